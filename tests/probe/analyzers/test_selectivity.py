"""Selectivity: units and labels whose relation is built, and labels that have nothing to do with the units."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from scipy import stats

from gatescope.probe.analyzers import selectivity
from gatescope.probe.analyzers.information import mutual_information, quantile_codes
from gatescope.probe.analyzers.shifts import shifted_sums

Make = Callable[..., xr.Dataset]
DIMS = ("layer", "direction", "sequence", "time", "unit")
Array = npt.NDArray[Any]


def remembered(memory: npt.ArrayLike, direction: str = "forward", **labels: npt.ArrayLike) -> xr.Dataset:
    """A recording of a memory (sequence, time, unit) with labels (sequence, time)."""
    values = np.asarray(memory, dtype=float)[None, None]
    coords: dict[str, Any] = {dim: np.arange(size) for dim, size in zip(DIMS, values.shape, strict=True)}
    coords["direction"] = np.array([direction], dtype=object)
    attrs = {"schema": "gatescope.recording/1", "module": "rnn", "cell": "LSTMCell", "retention": "forget_gate"}
    data = {"cell_state": (DIMS, values, {"symbol": "c", "role": "memory"})}
    return xr.Dataset(data, coords | {key: (("sequence", "time"), np.asarray(v)) for key, v in labels.items()}, attrs)


def letters(rng: np.random.Generator, shape: tuple[int, int], alphabet: str = "abc", stay: float = 0.0) -> Array:
    """Random letters, each kept from the step before with probability `stay`."""
    drawn = rng.choice(list(alphabet), size=shape).astype(object)
    for t in range(1, shape[1]):
        keep = rng.random(shape[0]) < stay
        drawn[keep, t] = drawn[keep, t - 1]
    return drawn


def autoregressive(rng: np.random.Generator, shape: tuple[int, int, int], keep: float) -> npt.NDArray[np.float64]:
    values = rng.normal(size=shape)
    for t in range(1, shape[1]):
        values[:, t] += keep * values[:, t - 1]
    return values


def test_the_area_is_that_of_the_rank_sum_test() -> None:
    rng = np.random.default_rng(0)
    label, memory = letters(rng, (3, 50)), np.round(rng.normal(size=(3, 50, 2)), 1)  # with ties
    result = selectivity(remembered(memory, letter=label), "letter")
    for unit in range(2):
        for letter in "abc":
            inside, outside = (memory[..., unit][side] for side in (label == letter, label != letter))
            expected = stats.mannwhitneyu(inside, outside).statistic / (inside.size * outside.size)
            assert result["auc"].sel({"class": letter}).values[0, 0, 0, 0, unit] == pytest.approx(expected)


def test_a_latch_is_found_with_the_sign_of_each_class() -> None:
    rng = np.random.default_rng(1)
    label = letters(rng, (4, 300), "PT", stay=0.9)
    memory = rng.normal(size=(4, 300, 3))
    memory[..., 1] = np.where(label == "T", 1.0, -1.0) * rng.uniform(0.2, 3.0, label.shape)
    result = selectivity(remembered(memory, remember=label), "remember").squeeze()
    assert result["auc"].sel({"class": "T"}).values[1] == 1.0
    assert result["sign_code"].values[1].tolist() == [-1.0, 1.0]
    assert result["p_corrected"].values[1].max() < 1e-6
    assert result["p_corrected"].values[[0, 2]].min() > 0.05
    assert (
        0.75 < result["mutual_information"].values[1] < 1.0
    )  # one bit, less one of eight classes that holds both letters
    np.testing.assert_allclose(result["mutual_information"].values[[0, 2]], 0.0, atol=0.05)


def test_at_a_lag_the_label_came_before_the_value_in_the_order_of_computation() -> None:
    rng = np.random.default_rng(2)
    label = letters(rng, (2, 200), "ab")
    memory = np.zeros((2, 200, 1))
    memory[:, 3:, 0] = label[:, :-3] == "a"
    areas = selectivity(remembered(memory, letter=label), "letter", lags=[3, 0, -3])["auc"].sel({"class": "a"})
    assert areas["lag"].values.tolist() == [-3, 0, 3]
    assert areas.sel(lag=3).item() == 1.0
    assert abs(areas.sel(lag=0).item() - 0.5) < 0.1
    turned = remembered(memory[:, ::-1], "backward", letter=label[:, ::-1])
    assert selectivity(turned, "letter", lags=[3])["auc"].sel({"class": "a"}).item() == 1.0


def test_steps_of_two_sequences_are_never_compared() -> None:
    label = np.array([list("ab"), list("ba"), list("ab")], dtype=object)
    memory = np.arange(6.0).reshape(3, 2, 1)
    result = selectivity(remembered(memory, letter=label), "letter", lags=[1])
    assert result["steps"].item() == 3
    assert result["steps_of_class"].values.ravel().tolist() == [2, 1]


def test_a_numeric_label_is_followed_by_its_correlation() -> None:
    rng = np.random.default_rng(3)
    value = rng.normal(size=(2, 400))
    value[0, 7] = np.nan
    memory = np.stack([np.nan_to_num(value) * -2 + 1, rng.normal(size=value.shape)], axis=2)
    result = selectivity(remembered(memory, force=value), "force").squeeze()
    there = np.isfinite(value)
    expected = [np.corrcoef(memory[there][:, unit], value[there])[0, 1] for unit in range(2)]
    np.testing.assert_allclose(result["correlation"], expected)
    assert result["p_corrected"].values[0] < 1e-6 < 0.01 < result["p_corrected"].values[1]
    assert result["mutual_information"].values[0] > 2.5  # of log2(8) = 3 bits, less the bias
    assert result["steps"].item() == 799
    assert "class" not in result.dims


@pytest.mark.parametrize("keep", [0.0, 0.9, 0.98])
def test_labels_that_have_nothing_to_do_with_the_units_are_found_no_more_often_than_stated(keep: float) -> None:
    rng = np.random.default_rng(4)
    found = tests = 0
    for _ in range(25):
        memory, label = autoregressive(rng, (2, 500, 12), keep), letters(rng, (2, 500), "ab", stay=keep)
        p = selectivity(remembered(memory, letter=label), "letter", shifts=1)["p"].sel({"class": "a"})
        found, tests = found + int((p < 0.05).sum()), tests + p.size
    # units share their label's runs, so they are not independent: three times the variance of independent ones
    assert found <= stats.norm.ppf(0.999, 0.05 * tests, np.sqrt(3 * 0.05 * 0.95 * tests))


def test_a_few_true_units_among_many_are_found_at_a_rate_of_five_percent() -> None:
    rng = np.random.default_rng(5)
    label = letters(rng, (4, 250), "ab", stay=0.5)
    memory = autoregressive(rng, (4, 250, 600), 0.5)
    memory[..., :30] += 0.8 * (label == "a")[..., None] * memory.std()
    found = selectivity(remembered(memory, letter=label), "letter", shifts=1)["p_corrected"].sel({"class": "a"}) < 0.05
    assert found.values.ravel()[:30].all()
    assert found.values.ravel()[30:].sum() <= 6


def test_information_is_that_of_the_table_less_the_bias_of_shifts() -> None:
    rng = np.random.default_rng(6)
    codes, label = rng.integers(0, 4, (2000, 1)), rng.integers(0, 3, 2000)
    raw, chance, p = mutual_information(codes, label, 99)
    assert raw.item() == pytest.approx(0.0, abs=0.004)
    assert chance.item() == pytest.approx(3 * 2 / (2 * 2000 * np.log(2)), rel=0.2)  # Miller and Madow's bias
    assert p.item() > 0.05
    whole, chance, p = mutual_information(label[:, None].copy(), label, 99)
    entropy = stats.entropy(np.bincount(label), base=2)
    assert (whole + chance).item() == pytest.approx(entropy)
    assert p.item() == 0.01


def test_quantile_classes_are_of_equal_size_and_equal_values_share_one() -> None:
    values = np.random.default_rng(7).normal(size=(800, 1))
    assert np.bincount(quantile_codes(values).ravel()).tolist() == [100] * 8
    assert len(np.unique(quantile_codes(np.ones((50, 1))))) == 1


@pytest.mark.parametrize("steps", [40, 41, 53, 106])  # the last two with factors too large for a fast transform
def test_z_is_the_distance_in_standard_deviations_of_all_shifts(steps: int) -> None:
    rng = np.random.default_rng(8)
    column, values = rng.normal(size=(steps, 1)), rng.normal(size=(steps, 2))
    column, values = column - column.mean(), values - values.mean(axis=0)
    sums, null = shifted_sums(column, values)
    every = np.array([np.roll(column, shift, axis=0).T @ values for shift in range(steps)])[:, 0]
    np.testing.assert_allclose(sums[0], every[0])
    np.testing.assert_allclose(null.z[0], every[0] / every.std(axis=0))
    share = (np.abs(every) >= np.abs(every[0]) * (1 - 1e-9)).mean(axis=0)
    many = share * steps >= 10
    np.testing.assert_allclose(null.p[0][many], share[many])


def test_padding_and_unlabelled_steps_do_not_count() -> None:
    rng = np.random.default_rng(9)
    label, memory = letters(rng, (2, 60), "ab"), rng.normal(size=(2, 60, 1))
    plain = selectivity(remembered(memory, letter=label), "letter")
    label, memory = np.pad(label, ((0, 0), (0, 9))), np.pad(memory, ((0, 0), (0, 9), (0, 0)), constant_values=np.nan)
    label[:, 60:] = ""
    xr.testing.assert_allclose(selectivity(remembered(memory, letter=label), "letter"), plain)


def test_constant_units_and_units_that_are_not_finite_get_no_verdict() -> None:
    rng = np.random.default_rng(10)
    label, memory = letters(rng, (2, 60), "ab"), rng.normal(size=(2, 60, 3))
    memory[..., 1], memory[0, 5, 2] = 0.7, np.inf
    result = selectivity(remembered(memory, letter=label), "letter").squeeze()
    assert result["auc"].values[1].tolist() == [0.5, 0.5]
    assert result["p"].values[1].tolist() == [1.0, 1.0]
    assert np.isnan(result["auc"].values[2]).all()
    assert np.isnan(result["mutual_information"].values[2])


def test_a_layer_is_decoded_where_no_unit_tells_alone_and_the_control_is_not() -> None:
    pytest.importorskip("sklearn")
    rng = np.random.default_rng(11)
    label = letters(rng, (12, 80), "ab")
    hidden = rng.normal(size=(12, 80, 6))
    hidden[..., 0] = np.where(label == "a", 1.0, -1.0) - 4 * hidden[..., 1]  # only the sum of both tells
    result = selectivity(remembered(hidden, letter=label), "letter", decode=True, shifts=1).squeeze()
    assert result["decoding"].item() > 0.97
    assert abs(result["decoding_control"].item() - 0.5) < 0.06
    assert result["decoding_selectivity"].item() == pytest.approx(
        result["decoding"].item() - result["decoding_control"].item()
    )
    assert selectivity(remembered(hidden[..., 2:], letter=label), "letter", decode=True)["decoding"].item() < 0.6


@pytest.mark.parametrize(
    ("labels", "parameters", "said"),
    [
        ("word", {}, "labels must name a label"),
        ("one", {}, "must have 2 to 64 classes; 'one' has 1"),
        ("letter", {"signals": ["forget"]}, "signals must be signals over"),
        ("letter", {"lags": [60]}, "lag 60 leaves none"),
        ("letter", {"lags": []}, "at least one lag"),
        ("letter", {"shifts": 0}, "one shift"),
    ],
)
def test_what_cannot_be_asked_is_refused(labels: str, parameters: dict[str, Any], said: str) -> None:
    letter = letters(np.random.default_rng(0), (2, 60), "ab")
    recording = remembered(np.zeros((2, 60, 1)), letter=letter, one=np.full((2, 60), "x", dtype=object))
    with pytest.raises(ValueError, match=said):
        selectivity(recording, labels, **parameters)
    with pytest.raises(ValueError, match="must lie over"):
        selectivity(recording, xr.DataArray(np.zeros((2, 3))))


@pytest.mark.parametrize("flips", [0.02, 0.11, 0.3])
def test_information_about_a_letter_that_is_sometimes_mistaken_is_that_of_its_channel(flips: float) -> None:
    rng = np.random.default_rng(12)
    label = letters(rng, (4, 2500), "ab")
    told = np.where((label == "a") ^ (rng.random(label.shape) < flips), 1.0, -1.0)
    found = selectivity(remembered(told[:, :, None], letter=label), "letter")["mutual_information"].item()
    assert found == pytest.approx(1 - stats.entropy([flips, 1 - flips], base=2), abs=0.03)


def test_power_is_that_of_the_rank_sum_test() -> None:
    rng, effect, units = np.random.default_rng(13), 0.2, 400
    label = letters(rng, (2, 400), "ab")
    memory = rng.normal(size=(2, 400, units)) + effect * (label == "a")[..., None]
    p = selectivity(remembered(memory, letter=label), "letter", shifts=1)["p"].sel({"class": "a"})
    classes = [(label == letter).sum() for letter in "ab"]
    shift = effect / np.sqrt(sum(1 / count for count in classes)) * np.sqrt(3 / np.pi)  # Pitman's efficiency
    power = stats.norm.sf(stats.norm.isf(0.025) - shift)
    assert 0.7 < power < 0.85
    assert stats.binom.ppf(0.001, units, power) <= (p < 0.05).sum() <= stats.binom.ppf(0.999, units, power)
