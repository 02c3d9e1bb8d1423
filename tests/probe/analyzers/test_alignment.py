"""Alignment: events and boundaries whose agreement, and whose chance agreement, are known."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import xarray as xr
from scipy.stats import binom

from gatescope import record
from gatescope.probe.analyzers import alignment, resets
from gatescope.probe.analyzers import hits as hits_module
from gatescope.probe.analyzers.hits import HitNull, fitted_tail, shifted_hits

Make = Callable[..., xr.Dataset]
Flags = npt.NDArray[np.bool_]
RUNS, LEVEL = 500, 0.05


def events_of(
    trains: npt.ArrayLike,
    boundaries: npt.ArrayLike | None = None,
    *,
    start: str = "given",
    backward: bool = False,
    lengths: Sequence[int] | None = None,
    block: Sequence[int] | None = None,
) -> xr.Dataset:
    """What `resets` would return for events that begin where `trains` (sequence, time, unit) is true."""
    flags = np.asarray(trains, dtype=bool)
    n, steps, units = flags.shape
    sequence, unit, onset = np.nonzero(flags.swapaxes(1, 2))
    turn = "backward" if backward else "forward"
    coords: dict[str, Any] = {"layer": [0], "direction": np.array([turn], dtype=object), "unit": np.arange(units)}
    coords |= {"sequence": np.arange(n), "time": np.arange(steps), "kind": np.array(["reset"], dtype=object)}
    coords |= {"length": ("sequence", np.array(lengths or [steps] * n))}
    coords |= {"start": ("sequence", np.array([start] * n, dtype=object))}
    if boundaries is not None:
        coords["boundary"] = (("sequence", "time"), np.asarray(boundaries, dtype=bool))
    if block is not None:
        coords["block"] = ("unit", np.array(block))
    size = onset.size
    data = {"event_sequence": sequence, "event_unit": unit, "onset": onset, "event_layer": np.zeros(size, dtype=int)}
    data |= {"event_kind": np.full(size, "reset", dtype=object), "event_direction": np.full(size, turn, dtype=object)}
    variables = {name: ("event", values) for name, values in data.items()}
    return xr.Dataset(variables, coords | {"event": np.arange(size)}, {"measure": "resets", "cell": "Some"})


def marked(steps: int, *places: int) -> Flags:
    return np.isin(np.arange(steps), places)[None]


def train(steps: int, *places: int) -> Flags:
    return marked(steps, *places)[..., None]


def test_precision_recall_and_lags_are_counted() -> None:
    result = alignment(events_of(train(40, 5, 11, 20, 33), marked(40, 5, 10, 20, 30)))
    assert (result["precision"].item(), result["recall"].item(), result["f1"].item()) == (0.5, 0.5, 0.5)
    assert (result["hits"].item(), result["events"].item(), result["boundaries"].item()) == (2, 4, 4)
    assert result["lags"].sel(lag_step=[0, 1, 3]).values.ravel().tolist() == [2, 1, 1]
    assert result["lag"].item() == 0
    near = alignment(events_of(train(40, 5, 11, 20, 33), marked(40, 5, 10, 20, 30)), tolerance=1)
    assert (near["precision"].item(), near["recall"].item()) == (0.75, 0.75)
    assert near.attrs["tolerance"] == 1


def test_an_early_event_has_a_negative_lag() -> None:
    result = alignment(events_of(train(60, 8, 18, 28, 51), marked(60, 10, 20, 30, 50)))
    assert result["lag"].item() == -2
    assert result["lags"].sel(lag_step=[-2, 1]).values.ravel().tolist() == [3, 1]


def test_the_first_step_of_a_run_that_starts_from_zero_is_left_out() -> None:
    flags = marked(40, 0, 10, 20)
    from_zero = alignment(events_of(train(40, 10, 20), flags, start="zero"))
    assert (from_zero["recall"].item(), from_zero["boundaries"].item()) == (1.0, 2)
    carried = alignment(events_of(train(40, 10, 20), flags, start="continued"))
    assert (carried["recall"].item(), carried["boundaries"].item()) == (pytest.approx(2 / 3), 3)


def test_the_backward_direction_enters_a_segment_at_its_last_step() -> None:
    flags = marked(40, 0, 10, 20)
    result = alignment(events_of(train(40, 9, 19), flags, start="zero", backward=True))
    assert (result["precision"].item(), result["recall"].item(), result["boundaries"].item()) == (1.0, 1.0, 2)
    late = alignment(events_of(train(40, 7, 17), flags, start="zero", backward=True))
    assert late["lag"].item() == 2


def test_p_is_that_of_all_combinations_of_shifts() -> None:
    rng = np.random.default_rng(4)
    trains, flags = rng.random((2, 13, 5)) < 0.3, rng.random((2, 13)) < 0.3
    result = alignment(events_of(trains, flags))
    for unit in range(5):
        counts = [
            [np.sum(np.roll(trains[one, :, unit], shift) & flags[one]) for shift in range(13)] for one in range(2)
        ]
        sums = np.add.outer(*counts)
        reached = sums >= result["hits"].values[0, 0, unit]
        assert result["expected"].values[0, 0, unit] == pytest.approx(sums.mean())
        assert result["z"].values[0, 0, unit] == pytest.approx((counts[0][0] + counts[1][0] - sums.mean()) / sums.std())
        if reached.sum() >= 10:
            assert result["p"].values[0, 0, unit] == pytest.approx(reached.mean())


def test_shifted_hits_are_those_of_rolling() -> None:
    rng = np.random.default_rng(0)
    trains, flags = rng.integers(0, 3, (4, 31)).astype(float), rng.random(31) < 0.4
    found = shifted_hits(trains, flags)
    for shift in range(31):
        np.testing.assert_array_equal(found[:, shift], (np.roll(trains, shift, axis=1) * flags).sum(axis=1))


def test_many_sequences_fall_back_to_moments_that_agree_with_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    trains, flags = rng.random((60, 90, 40)) < 0.08, rng.random((60, 90)) < 0.1
    exact = alignment(events_of(trains, flags), tolerance=1)
    monkeypatch.setattr(hits_module, "MOST_VALUES", 10)
    moments = alignment(events_of(trains, flags), tolerance=1)
    np.testing.assert_allclose(moments["z"], exact["z"])
    np.testing.assert_allclose(moments["p"], exact["p"], atol=0.03)
    assert np.abs(moments["p"] - exact["p"]).max() > 0


def test_sums_with_too_many_values_are_counted_on_a_coarser_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    trains, flags = rng.random((4, 500, 30)) < 0.4, rng.random((4, 500)) < 0.4
    exact = alignment(events_of(trains, flags))
    monkeypatch.setattr(hits_module, "MOST_VALUES", 400)
    coarse = alignment(events_of(trains, flags))
    np.testing.assert_allclose(coarse["p"], exact["p"], atol=0.05)
    monkeypatch.setattr(hits_module, "MOST_VALUES", 10**6)
    finest = alignment(events_of(trains, flags))
    assert exact["layer_p"].item() == pytest.approx(finest["layer_p"].item(), abs=0.02)
    assert exact["layer_p"].item() != finest["layer_p"].item()


def test_a_tail_is_fitted_below_what_the_shifts_resolve() -> None:
    rng = np.random.default_rng(2)
    flags = rng.random((1, 400)) < 0.1
    result = alignment(events_of(flags[..., None], flags))
    assert 0 < result["p"].item() < 1e-8
    assert result["z"].item() > 10
    shares = np.array([[0.5, 0.3, 0.1, 0.06, 0.03, 0.01]])
    tails = [fitted_tail(shares, np.array([place])).item() for place in (3, 6, 12, 30)]
    assert tails[0] == pytest.approx(0.1, rel=0.01)
    assert (np.diff(np.log(tails)) < 0).all()
    assert tails[3] > 0


def test_regular_events_on_regular_boundaries_prove_little() -> None:
    flags = marked(400, *range(5, 400, 10))
    result = alignment(events_of(flags[..., None], flags))
    assert result["f1"].item() == 1.0
    assert result["p"].item() == pytest.approx(0.1)


def planted(true: int, units: int, seed: int, steps: int = 1000) -> tuple[Flags, Flags]:
    """Random trains, of which the first `true` have 60 % of their events within a step of 80 boundaries."""
    rng = np.random.default_rng(seed)
    flags = rng.random((1, steps)) < 0.08
    trains = rng.random((1, steps, units)) < 0.05
    for unit in range(true):
        places = np.flatnonzero(flags[0] & (rng.random(steps) < 0.5))
        trains[0, :, unit] = rng.random(steps) < 0.02
        trains[0, np.clip(places + rng.integers(-1, 2, places.size), 0, steps - 1), unit] = True
    return trains, flags


def test_thirty_units_among_1536_are_found_at_a_false_discovery_rate_of_5_percent() -> None:
    trains, flags = planted(30, 1536, seed=8)
    result = alignment(events_of(trains, flags), tolerance=1)
    found = result["p_adjusted"].values.ravel() < 0.05
    assert found[:30].sum() >= 29
    assert found[30:].sum() <= 4


def test_blocks_are_pooled_and_layers_too() -> None:
    flags = marked(60, 10, 20, 30, 40, 50)
    trains = np.concatenate([train(60, 10, 20, 30), train(60, 30, 40, 50), train(60, 5)], axis=2)
    result = alignment(events_of(trains, flags, block=[7, 7, 8]))
    assert result["block_recall"].sel(memory_block=7).item() == 1.0
    assert result["block_precision"].values.ravel().tolist() == [1.0, 0.0]
    assert result["block_events"].values.ravel().tolist() == [5, 1]
    assert result["recall"].values.ravel().tolist() == [0.6, 0.6, 0.0]
    assert (result["layer_hits"].item(), result["layer_events"].item()) == (6, 7)
    assert result["layer_recall"].item() == 1.0
    assert result["layer_lags"].sel(lag_step=0).item() == 6


def test_padding_and_other_sequences_do_not_count() -> None:
    flags = np.concatenate([marked(30, 5, 15), marked(30, 8)])
    trains = np.concatenate([train(30, 5, 15), train(30, 8)])
    result = alignment(events_of(trains, flags, lengths=[30, 12]))
    assert (result["precision"].item(), result["recall"].item()) == (1.0, 1.0)
    given = xr.DataArray(flags[::-1], dims=("sequence", "time"), coords={"sequence": [1, 0]})
    other = alignment(events_of(trains, lengths=[30, 12]), given)
    assert (other["precision"].item(), other["recall"].item()) == (1.0, 1.0)
    assert other["p"].item() == result["p"].item()


def test_some_of_the_events_can_be_asked_about(make_recording: Make) -> None:
    events = resets(make_recording(lengths=(200, 150)))
    assert 0 < events["overwrite"].sum() < events.sizes["event"]
    some = events.isel(event=events["overwrite"].values)
    assert alignment(some)["events"].sum() == events["overwrite"].sum()


def test_a_unit_without_events_and_data_without_boundaries_are_not_judged() -> None:
    trains = np.concatenate([train(30, 5, 15), train(30)], axis=2)
    result = alignment(events_of(trains, marked(30, 5)))
    assert np.isnan(result["p"].values.ravel()).tolist() == [False, True]
    assert np.isnan(result["precision"].values.ravel()).tolist() == [False, True]
    nothing = alignment(events_of(trains, marked(30)))
    for name in ("precision", "recall", "f1", "lag", "p", "z", "layer_p"):
        assert np.isnan(nothing[name]).all(), name
    everywhere = alignment(events_of(trains, np.ones((1, 30), dtype=bool)))
    assert np.isnan(everywhere["p"]).all()
    assert everywhere["precision"].values.ravel()[0] == 1.0


def test_what_does_not_fit_is_refused(make_recording: Make) -> None:
    events = events_of(train(30, 5), marked(30, 5), lengths=[20])
    with pytest.raises(ValueError, match="needs what resets returned; a Dataset came"):
        alignment(make_recording())
    with pytest.raises(ValueError, match=r"kind must be one of .*'reset'.*; 'fresh_start' came"):
        alignment(events, kind="fresh_start")
    with pytest.raises(ValueError, match="tolerance must be a whole number of steps, 0 or more; -1 came"):
        alignment(events, tolerance=-1)
    with pytest.raises(ValueError, match="tolerance must be a whole number"):
        alignment(events, tolerance=0.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'segment' came and the labels are boundary"):
        alignment(events, "segment")
    with pytest.raises(ValueError, match="in sequence 0 of length 20 one is at step 25"):
        alignment(events, xr.DataArray(marked(30, 25), dims=("sequence", "time")))
    with pytest.raises(ValueError, match="boundaries must be boolean"):
        alignment(events, xr.DataArray(marked(30, 5) * 1.0, dims=("sequence", "time")))
    with pytest.raises(ValueError, match="must cover 1 sequences of 30 steps; 1 of 29 came"):
        alignment(events, xr.DataArray(marked(29, 5), dims=("sequence", "time")))
    with pytest.raises(ValueError, match="must cover every sequence of the events; 0 are missing"):
        alignment(events, xr.DataArray(marked(30, 5), dims=("sequence", "time"), coords={"sequence": [4]}))


def rejections(p: npt.NDArray[np.float64], level: float) -> int:
    return int(np.sum(p <= level))


@pytest.mark.slow
@pytest.mark.parametrize("sequences", [1, 3, 40])
def test_shuffled_boundaries_are_rejected_no_more_often_than_the_level_says(sequences: int) -> None:
    rng, steps = np.random.default_rng(sequences), 2000 // sequences
    p, layer = [], []
    for _ in range(RUNS):
        trains = np.zeros((sequences, steps, 6), dtype=bool)
        for unit in range(6):  # clustered, regular and plain trains
            phase = np.cumsum(rng.normal(0.5, 0.1, (sequences, steps)), axis=1) + rng.uniform(0, 6)
            plain = rng.random((sequences, steps))
            trains[..., unit] = (np.sin(phase) > 0.8) & (plain < 0.8) if unit % 2 else plain < 0.06
        flags = rng.permuted(np.arange(steps) % 12 == 0)[None].repeat(sequences, axis=0)
        flags = np.stack([rng.permutation(flag) for flag in flags])
        result = alignment(events_of(trains, flags), tolerance=1)
        p.append(result["p"].values.ravel()[rng.integers(6)])
        layer.append(result["layer_p"].item())
    for level in (LEVEL, 0.01):
        assert rejections(np.array(p), level) <= binom.ppf(0.999, RUNS, level)
        assert rejections(np.array(layer), level) <= binom.ppf(0.999, RUNS, level)


@pytest.mark.slow
@pytest.mark.parametrize("cell", [torch.nn.LSTM, torch.nn.GRU])
def test_untrained_networks_align_with_unrelated_boundaries_no_more_often_than_the_level_says(
    cell: type[torch.nn.RNNBase],
) -> None:
    p, findings = [], 0
    for run in range(RUNS):
        torch.manual_seed(run)
        rng = np.random.default_rng(run)
        letters = torch.nn.functional.one_hot(torch.randint(0, 6, (3, 150)), 6).float()
        boundary = np.zeros((3, 150), dtype=bool)
        for one in range(3):
            places = np.cumsum(rng.integers(5, 15, 30))
            boundary[one, places[places < 150]] = True
        recording = record(
            cell(6, 12, batch_first=True, bidirectional=True), 3 * letters, labels={"boundary": boundary}
        )
        result = alignment(resets(recording, min_erased=0.0, method="absolute", low=0.35, high=0.45), tolerance=1)
        known = result["p"].values[np.isfinite(result["p"].values)]
        if known.size:
            p.append(known[rng.integers(known.size)])
            findings += bool((result["p_adjusted"] < LEVEL).any())
    assert len(p) > 0.8 * RUNS
    for level in (LEVEL, 0.01):
        assert rejections(np.array(p), level) <= binom.ppf(0.999, len(p), level)
    assert findings <= binom.ppf(0.999, RUNS, LEVEL)


def test_hits_of_no_train_are_not_judged() -> None:
    null = HitNull(2, np.array([3.0]))
    null.add(np.zeros((2, 8)), np.ones(8, dtype=bool))
    assert np.isnan(null.result().p).all()
