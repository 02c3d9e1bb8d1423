"""Triggers: labels that do and do not set events off, by construction, and in a real trained network."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import xarray as xr
from scipy.stats import binom

from gatescope import record
from gatescope.probe.analyzers import resets, triggers
from gatescope.probe.analyzers.contrasts import LabelCounts, information, more_than_others, more_than_rest

Make = Callable[..., xr.Dataset]
Flags = npt.NDArray[np.bool_]
RUNS, LEVEL = 500, 0.05


def events_of(trains: npt.ArrayLike, *, backward: bool = False) -> xr.Dataset:
    """What `resets` would return for events that begin where `trains` (sequence, time, unit) is true."""
    flags = np.asarray(trains, dtype=bool)
    n, steps, units = flags.shape
    sequence, unit, onset = np.nonzero(flags.swapaxes(1, 2))
    turn, size = "backward" if backward else "forward", onset.size
    coords: dict[str, Any] = {"layer": [0], "direction": np.array([turn], dtype=object), "unit": np.arange(units)}
    coords |= {"sequence": np.arange(n), "time": np.arange(steps), "kind": np.array(["reset"], dtype=object)}
    coords |= {"length": ("sequence", np.full(n, steps)), "event": np.arange(size)}
    coords |= {"start": ("sequence", np.array(["given"] * n, dtype=object))}
    data = {"event_sequence": sequence, "event_unit": unit, "onset": onset, "event_layer": np.zeros(size, dtype=int)}
    data |= {"event_kind": np.full(size, "reset", dtype=object), "event_direction": np.full(size, turn, dtype=object)}
    return xr.Dataset({name: ("event", v) for name, v in data.items()}, coords, {"measure": "resets"})


def label_of(values: npt.ArrayLike) -> xr.DataArray:
    array = np.asarray(values)
    return xr.DataArray(array.astype(object) if array.dtype.kind == "U" else array, dims=("sequence", "time"))


def letters(seed: int, n: int = 6, steps: int = 300, alphabet: str = "abcdefgh") -> npt.NDArray[np.str_]:
    return np.random.default_rng(seed).choice([*alphabet], size=(n, steps))


@pytest.mark.parametrize("backward", [False, True])
def test_a_letter_that_sets_a_unit_off_is_its_trigger(backward: bool) -> None:
    rng = np.random.default_rng(1)
    read = letters(1)
    noise = rng.random((*read.shape, 3)) < 0.02
    trains = noise.copy()
    trains[..., 0] |= (read == "c") & (rng.random(read.shape) < 0.8)
    result = triggers(events_of(trains, backward=backward), label_of(read))
    assert result["trigger"].values.ravel().tolist() == ["c", "", ""]
    assert result["units"].sel(label="c").item() == 1
    share, whole = trains[..., 0][read == "c"].mean(), trains[..., 0].mean()
    assert result["lift"].isel(unit=0).sel(label="c").item() == pytest.approx(share / whole, rel=0.02)
    assert result["steps"].sel(label="c").item() == (read == "c").sum()
    assert result["mutual_information"].values.ravel()[0] > 0.1
    assert np.abs(result["mutual_information"].values.ravel()[1:]).max() < 0.01


def test_a_unit_that_resets_at_many_letters_alike_has_no_trigger() -> None:
    rng = np.random.default_rng(2)
    read = letters(2)
    trains = (np.isin(read, [*"abcd"]) & (rng.random(read.shape) < 0.7))[..., None]
    result = triggers(events_of(trains), label_of(read))
    assert result["trigger"].item() == ""
    assert result["units"].sum().item() == 0
    assert (result["p_rest_adjusted"].sel(label=[*"abcd"]) < 1e-6).all()
    assert (result["lift"].sel(label=[*"abcd"]) > 1.5).all()


def test_many_units_that_reset_at_all_letters_make_no_finding_but_a_letter_above_all_does() -> None:
    rng = np.random.default_rng(3)
    read = letters(3)
    trains = rng.random((*read.shape, 40)) < rng.uniform(0.1, 0.5, 40)
    result = triggers(events_of(trains), label_of(read))
    assert result["units"].sum().item() == 0
    assert result["layer_trigger"].item() == ""
    trains |= (read == "e")[..., None] & (rng.random(trains.shape) < 0.15)
    above = triggers(events_of(trains), label_of(read))
    assert above["layer_trigger"].item() == "e"
    assert above["layer_p_adjusted"].sel(label="e").item() < 1e-6


def test_counts_and_their_covariance_are_those_of_all_shifts() -> None:
    rng = np.random.default_rng(5)
    train, codes = (rng.random((2, 9)) < 0.4).astype(np.float32), rng.integers(-1, 3, 9)
    counts = LabelCounts(2, 3)
    counts.add(train, codes)
    flags = codes == np.arange(3)[:, None]
    shifted = np.array([np.roll(train, shift, axis=1) @ flags.T for shift in range(9)])
    np.testing.assert_array_equal(counts.events, shifted[0])
    np.testing.assert_allclose(counts.expected, shifted.mean(axis=0))
    for unit in range(2):
        np.testing.assert_allclose(counts.covariance[unit], np.cov(shifted[:, unit].T, bias=True), atol=1e-12)


def test_information_is_that_of_the_table_less_its_bias() -> None:
    events, steps = np.array([[30.0, 0.0, 10.0]]), np.array([100.0, 100.0, 200.0])
    joint = np.stack([events[0], steps - events[0]]) / 400
    expected = sum(
        joint[row, column] * np.log2(joint[row, column] / (joint[row].sum() * joint[:, column].sum()))
        for row in range(2)
        for column in range(3)
        if joint[row, column] > 0
    )
    assert information(events, steps).item() == pytest.approx(expected - 2 / (2 * 400 * np.log(2)))


@pytest.mark.parametrize(("low", "high"), [(0.8, np.inf), (-np.inf, -1.0), (-0.3, 0.4)])
def test_a_range_of_a_number_that_sets_a_unit_off_is_found(low: float, high: float) -> None:
    rng = np.random.default_rng(6)
    value = rng.normal(size=(5, 400))
    trains = rng.random((5, 400, 2)) < 0.02
    trains[..., 0] |= (value > low) & (value < high) & (rng.random(value.shape) < 0.6)
    result = triggers(events_of(trains), label_of(value), bins=16)
    assert result["range_p_adjusted"].values.ravel()[0] < 1e-9
    assert result["range_p_adjusted"].values.ravel()[1] > 0.05
    bin_width = 0.35
    if np.isfinite(low):
        assert result["range_low"].values.ravel()[0] == pytest.approx(low, abs=bin_width)
    if np.isfinite(high):
        assert result["range_high"].values.ravel()[0] == pytest.approx(high, abs=bin_width)
    assert " to " in result["trigger"].values.ravel()[0]
    assert result["trigger"].values.ravel()[1] == ""
    assert result["range_lift"].values.ravel()[0] > 2
    assert result["steps"].values.tolist() == pytest.approx([2000 / 16] * 16, abs=1)


def test_states_given_as_numbers_or_truth_values_stay_as_they_are() -> None:
    rng = np.random.default_rng(7)
    state = rng.integers(0, 5, (4, 300))
    trains = ((state == 3) & (rng.random(state.shape) < 0.9))[..., None]
    result = triggers(events_of(trains), label_of(state))
    assert result["label"].values.tolist() == ["0", "1", "2", "3", "4"]
    assert result["trigger"].item() == "3 to 3"
    truth = triggers(events_of(trains), label_of(state == 3))
    assert truth["label"].values.tolist() == ["False", "True"]
    assert truth["trigger"].item() == "True"


def test_rare_labels_are_not_tested_but_count_among_the_rest() -> None:
    rng = np.random.default_rng(8)
    read = letters(8)
    read[0, :5] = "z"
    trains = ((read == "a") & (rng.random(read.shape) < 0.5))[..., None] | (read == "z")[..., None]
    result = triggers(events_of(trains), label_of(read))
    assert "z" not in result["label"].values
    assert result["trigger"].item() == "a"
    every = triggers(events_of(trains), label_of(read), at_least=5)
    assert every["lift"].sel(label="z").item() == pytest.approx(1800 / trains.sum())
    assert result["lift"].sel(label="a").item() == every["lift"].sel(label="a").item()


def test_a_label_without_others_is_not_judged() -> None:
    rng = np.random.default_rng(9)
    trains = rng.random((2, 50, 2)) < 0.1
    trains[..., 1] = False
    alone = triggers(events_of(trains), label_of(np.full((2, 50), "a")))
    assert np.isnan(alone["p"]).all()
    assert np.isnan(alone["p_rest"]).all()
    assert alone["trigger"].values.ravel().tolist() == ["", ""]
    two = triggers(events_of(trains), label_of(letters(1, 2, 50, "ab")))
    assert np.isnan(two["p"].isel(unit=1)).all()
    assert np.isfinite(two["p"].isel(unit=0)).all()
    assert np.isnan(two["mutual_information"].values.ravel()[1])


def test_thirty_units_among_1536_are_found_at_a_false_discovery_rate_of_5_percent() -> None:
    rng = np.random.default_rng(10)
    read = letters(10, n=8, steps=250)
    trains = rng.random((*read.shape, 1536)) < 0.03
    trains[..., :30] |= (read == "d")[..., None] & (rng.random((*read.shape, 30)) < 0.4)
    result = triggers(events_of(trains), label_of(read))
    found = result["trigger"].values.ravel()
    assert (found[:30] == "d").sum() >= 29
    assert (found[30:] != "").sum() <= 4


def test_what_does_not_fit_is_refused(make_recording: Make) -> None:
    events = resets(make_recording(lengths=(60, 50)))
    with pytest.raises(ValueError, match="needs what resets returned"):
        triggers(make_recording(), "token")
    with pytest.raises(ValueError, match="'letter' came and the labels are token, boundary, value"):
        triggers(events, "letter")
    with pytest.raises(ValueError, match="at_least must be a whole number of steps, 1 or more; 0 came"):
        triggers(events, "token", at_least=0)
    with pytest.raises(ValueError, match="bins must be a whole number from 2 to 128; 1 came"):
        triggers(events, "token", bins=1)
    with pytest.raises(ValueError, match="alpha must be a probability"):
        triggers(events, "token", alpha=1.0)
    with pytest.raises(ValueError, match="at least one step; all are empty or NaN"):
        triggers(events, xr.full_like(events["value"], np.nan))
    none = triggers(events, "token", at_least=1000)
    assert none.sizes["label"] == 0
    assert (none["trigger"] == "").all()


@pytest.mark.slow
@pytest.mark.parametrize("still", [1, 5])
def test_shuffled_labels_are_rejected_no_more_often_than_the_level_says(still: int) -> None:
    """Labels and events that are each their own past for a while, but have nothing to do with each other."""
    p, p_rest, p_range, layer, found = [], [], [], [], 0
    for run in range(RUNS):
        rng = np.random.default_rng(run)
        read = np.repeat(rng.choice([*"abcde"], size=(4, 200 // still)), still, axis=1)
        rate = np.repeat(rng.random((4, 200 // still, 5)) ** 3, still, axis=1)
        trains = rng.random((4, 200, 5)) < 0.3 * rate
        result = triggers(events_of(trains), label_of(read))
        unit = int(rng.integers(5))
        p.append(result["p"].isel(unit=unit).values.min())
        p_rest.append(result["p_rest"].values[0, 0, unit, rng.integers(5)])
        layer.append(result["layer_p"].values.min())
        found += bool((result["p_adjusted"] < LEVEL).any())
        value = np.repeat(rng.normal(size=(4, 200 // still)), still, axis=1)
        p_range.append(triggers(events_of(trains), label_of(value))["range_p"].values[0, 0, unit])
    for level in (LEVEL, 0.01):
        for values in (p, p_rest, p_range, layer):
            assert np.sum(np.array(values) <= level) <= binom.ppf(0.999, RUNS, level)
    assert found <= binom.ppf(0.999, RUNS, LEVEL)


@pytest.mark.slow
def test_untrained_networks_have_triggers_among_unrelated_labels_no_more_often_than_the_level_says() -> None:
    p, layer, found = [], [], 0
    for run in range(RUNS):
        torch.manual_seed(run)
        rng = np.random.default_rng(run)
        inputs = 3 * torch.nn.functional.one_hot(torch.randint(0, 6, (4, 120)), 6).float()
        labels = rng.choice([*"abcde"], size=(4, 120)).astype(object)
        recording = record(torch.nn.LSTM(6, 12, batch_first=True), inputs, labels={"other": labels})
        result = triggers(resets(recording, method="absolute", low=0.35, high=0.45, min_erased=0.0), "other")
        p.append(np.nan_to_num(result["p"].values, nan=1.0)[0, 0, rng.integers(12)].min())
        layer.append(np.nan_to_num(result["layer_p"].values, nan=1.0).min())
        found += bool((result["p_adjusted"] < LEVEL).any())
    for values in (p, layer):
        assert np.sum(np.array(values) <= LEVEL) <= binom.ppf(0.999, RUNS, LEVEL)
    assert found <= binom.ppf(0.999, RUNS, LEVEL)


@pytest.fixture(scope="module")
def diacritizer_events() -> xr.Dataset:
    """Resets of a BiLSTM that adds vowel marks to Arabic, on 32 texts with 240 spaces."""
    if find_spec("diacritize") is None:
        pytest.skip("arabic-diacritizer is not installed")
    from gatescope import demo
    from gatescope.demo_sentences import TEXTS

    return resets(demo.record_texts(demo.load_model(), TEXTS))


def test_a_trained_diacritizer_resets_backwards_at_spaces_more_than_at_any_other_character(
    diacritizer_events: xr.Dataset,
) -> None:
    """No boundary is given; forwards, where many units also shut at other characters, nothing is reported."""
    result = triggers(diacritizer_events, "character").isel(layer=0)
    backward, forward = result.sel(direction="backward"), result.sel(direction="forward")
    assert backward["layer_trigger"].item() == " "
    assert backward["layer_p_adjusted"].sel(label=" ").item() < 1e-4
    assert backward["layer_p"].drop_sel(label=" ").min().item() > 0.05
    assert backward["label"][int(backward["layer_lift"].argmax("label"))].item() == " "
    assert backward["label"][int(backward["units"].argmax("label"))].item() == " "
    rest = (backward["p_rest_adjusted"] < LEVEL).sum("unit")
    assert rest["label"][int(rest.argmax("label"))].item() == " "
    assert forward["layer_trigger"].item() == ""
    assert (forward["p_rest_adjusted"] < LEVEL).sum("unit").drop_sel(label=" ").max().item() > 5


def test_no_two_labels_can_both_stand_out_from_all_others() -> None:
    rng = np.random.default_rng(0)
    counts = LabelCounts(6, 4)
    for _ in range(5):
        counts.add((rng.random((6, 80)) < 0.2).astype(np.float32), rng.integers(0, 4, 80))
    assert ((more_than_others(counts, 4, rare=True) < 0.5).sum(axis=1) <= 1).all()
    assert ((more_than_rest(counts, np.eye(4, dtype=bool), rare=True) < 0.5).sum(axis=1) >= 1).all()
