"""Resets: events whose onset, depth and content are known before anything is counted."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from gatescope.probe.analyzers import alignment, resets
from gatescope.probe.analyzers.describe import describe
from gatescope.probe.analyzers.falls import losses, runs_below
from gatescope.probe.analyzers.synchrony import coinciding_pairs

Make = Callable[..., xr.Dataset]
Array = npt.NDArray[np.float64]
DIMS = ("layer", "direction", "sequence", "time", "unit")
BOUNDED = {"lower": 0.0, "upper": 1.0}


def logistic(values: npt.ArrayLike) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.asarray(values, dtype=np.float64))))


def remembered(keep: Array, written: Array, initial: Array) -> Array:
    """The memory (sequence, time, unit) that obeys s = keep * s + written."""
    memory = np.empty_like(keep)
    before = initial
    for step in range(keep.shape[1]):
        before = memory[:, step] = keep[:, step] * before + written[:, step]
    return memory


def recording_of(
    keep: npt.ArrayLike,
    written: npt.ArrayLike = 0.0,
    *,
    initial: float = 0.0,
    start: str = "given",
    backward: bool = False,
    gate: str = "forget_gate",
    memory: str = "cell_state",
    retention: str | None = None,
    lengths: npt.ArrayLike | None = None,
) -> xr.Dataset:
    """A recording whose retention is `keep` (sequence, time, unit) in running order, all else following from it."""
    keep = np.asarray(keep, dtype=np.float64)
    written = np.broadcast_to(np.asarray(written, dtype=np.float64), keep.shape)
    before = np.full((keep.shape[0], keep.shape[2]), initial)
    states = remembered(keep, written, before)
    n, steps, units = keep.shape
    length = np.full(n, steps) if lengths is None else np.asarray(lengths)
    padding = np.arange(steps) >= length[:, None]
    keep, states = keep.copy(), states.copy()
    for values in (keep, states):
        values[padding] = np.nan
        if backward:
            for one, size in enumerate(length):
                values[one, :size] = values[one, :size][::-1].copy()
    gates = 1 - keep if retention and retention.startswith("1") else keep
    data = {
        gate: (DIMS, gates[None, None], {"role": "gate", "symbol": "f", **BOUNDED}),
        memory: (DIMS, states[None, None], {"role": "memory", "symbol": "c"}),
        f"initial_{memory}": (("layer", "direction", "sequence", "unit"), before[None, None]),
    }
    coords = {dim: np.arange(size) for dim, size in zip(("sequence", "time", "unit"), (n, steps, units), strict=True)}
    coords |= {"layer": [0], "direction": np.array(["backward" if backward else "forward"], dtype=object)}
    coords |= {"length": ("sequence", length), "start": ("sequence", np.array([start] * n, dtype=object))}
    attrs = {"schema": "gatescope.recording/1", "retention": retention or gate, "cell": "Some", "module": "rnn"}
    return xr.Dataset(data, coords, attrs)


def one_unit(*keep: float) -> Array:
    return np.reshape(np.array(keep, dtype=np.float64), (1, -1, 1))


def with_falls(steps: int, falls: dict[int, float], usual: float = 0.99, sequences: int = 1, units: int = 1) -> Array:
    keep = np.full((sequences, steps, units), usual)
    for step, value in falls.items():
        keep[:, step] = value
    return keep


def test_an_event_has_its_onset_offset_depth_and_content() -> None:
    keep = with_falls(60, {20: 0.1, 21: 0.5, 40: 0.25}, usual=1.0)
    events = resets(recording_of(keep, initial=2.0), method="absolute", low=0.6, high=0.9, min_erased=0.01)
    assert events["onset"].values.tolist() == [20, 40]
    assert events["offset"].values.tolist() == [21, 40]
    np.testing.assert_allclose(events["depth"], [0.95, 0.75])
    np.testing.assert_allclose(events["before"], [2.0, 0.1])
    np.testing.assert_allclose(events["after"], [0.1, 0.025])
    np.testing.assert_allclose(events["written"], 0, atol=1e-15)
    spread = np.std(np.concatenate([[2.0] * 20, [0.2], [0.1] * 19, [0.025] * 20]))
    np.testing.assert_allclose(events["erased"], [0.95 * 2 / spread, 0.75 * 0.1 / spread])
    assert events["spread"].item() == pytest.approx(spread)
    assert (events["count"].item(), events["rate"].item()) == (2, pytest.approx(1000 * 2 / 60))
    assert events["mean_depth"].item() == pytest.approx(0.85)


def test_a_gate_that_shuts_on_an_empty_memory_resets_nothing() -> None:
    keep = with_falls(60, {20: 0.01, 40: 0.01})
    written = np.zeros_like(keep)
    written[0, 30, 0] = 1.0
    assert resets(recording_of(keep, written))["onset"].values.tolist() == [40]


def test_what_must_be_erased_is_measured_in_the_units_own_spread() -> None:
    keep = with_falls(60, {20: 0.01, 40: 0.01}, units=2)
    written = np.zeros_like(keep)
    written[0, [10, 30]] = 1e-4, 1e-4
    written[0, :, 1] *= 1e7
    events = resets(recording_of(keep, written))
    assert events["event_unit"].values.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(events["erased"][:2], events["erased"][2:])
    assert resets(recording_of(keep, written), min_erased=50.0).sizes["event"] == 0


def test_a_gate_must_rise_before_it_can_fall_again() -> None:
    keep = one_unit(*[0.95] * 5, 0.2, 0.5, 0.2, *[0.95] * 5, 0.2, 0.9, 0.2, *[0.95] * 5)
    events = resets(recording_of(keep, 1.0), method="absolute", low=0.3, high=0.9)
    assert events["onset"].values.tolist() == [5, 13, 15]
    assert events["offset"].values.tolist() == [7, 13, 15]


@pytest.mark.parametrize("kept", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.85])
def test_a_partial_reset_counts_with_its_depth(kept: float) -> None:
    rng = np.random.default_rng(0)
    keep = logistic(rng.normal(5, 0.5, (2, 300, 1)))
    falls = np.arange(15, 300, 15)
    keep[:, falls] = kept
    events = resets(recording_of(keep, rng.normal(0, 1, keep.shape), initial=3.0), min_erased=0.0)
    assert events["onset"].values.tolist() == [*falls, *falls]
    np.testing.assert_allclose(events["depth"], 1 - kept)


def test_an_overwrite_is_told_apart_from_a_reset_to_zero() -> None:
    keep = with_falls(80, {20: 0.05, 40: 0.05, 60: 0.4})
    written = np.zeros_like(keep)
    written[0, [20, 30, 50], 0] = -1.0, 2.0, 1.5
    events = resets(recording_of(keep, written, initial=1.0))
    assert events["onset"].values.tolist() == [20, 40, 60]
    assert events["overwrite"].values.tolist() == [True, False, False]
    np.testing.assert_allclose(events["written"], [-1.0, 0.0, 0.0], atol=1e-12)
    assert events["overwritten"].item() == pytest.approx(1 / 3)


@pytest.mark.parametrize(("start", "found"), [("zero", []), ("imposed", []), ("given", [0]), ("continued", [0])])
def test_an_imposed_state_is_not_a_learned_reset(start: str, found: list[int]) -> None:
    keep = with_falls(40, {0: 0.01}, sequences=3)
    events = resets(recording_of(keep, 0.1, initial=5.0, start=start), method="absolute")
    assert events["onset"].values.tolist() == found * 3


def test_a_run_that_begins_with_an_imposed_state_is_no_reset_later_either() -> None:
    keep = with_falls(40, {0: 0.01, 1: 0.01, 2: 0.01, 20: 0.01})
    events = resets(recording_of(keep, 0.1, initial=5.0, start="imposed"), method="absolute")
    assert events["onset"].values.tolist() == [20]


def test_no_event_lies_in_padding_or_between_sequences() -> None:
    keep = with_falls(50, {10: 0.02, 30: 0.02}, sequences=3)
    recording = recording_of(keep, 0.2, lengths=[50, 20, 8])
    events = resets(recording)
    assert events["event_sequence"].values.tolist() == [0, 0, 1]
    assert events["onset"].values.tolist() == [10, 30, 10]
    assert events["steps"].item() == 78


def test_the_backward_direction_is_followed_in_its_own_order() -> None:
    rng = np.random.default_rng(1)
    keep = np.where(rng.random((3, 60, 4)) < 0.1, 0.02, 0.98)
    written, lengths = rng.normal(size=keep.shape), np.array([60, 41, 23])
    forward = resets(recording_of(keep, written, initial=1.0, lengths=lengths))
    backward = resets(recording_of(keep, written, initial=1.0, lengths=lengths, backward=True))
    assert forward.sizes["event"] > 30
    columns = ["event_sequence", "event_unit", "onset", "offset", "depth", "before", "after", "written"]
    ahead = np.array([forward[name].values for name in columns])
    behind = np.array([backward[name].values for name in columns])
    last = lengths[backward["event_sequence"].values] - 1
    behind[2:4] = last - behind[2:4]
    order = np.lexsort(behind[[2, 1, 0]])
    np.testing.assert_allclose(behind[:, order], ahead, rtol=1e-12)


@pytest.mark.parametrize(
    ("gate", "memory", "retention"),
    [
        ("forget_gate", "cell_state", "forget_gate"),
        ("update_gate", "hidden_state", "update_gate"),
        ("update_gate", "hidden_state", "1 - update_gate"),
        ("input_gate", "cell_state", "1 - input_gate"),
        ("leak", "potential", "leak"),
    ],
)
def test_what_multiplies_the_memory_is_found_by_its_role(gate: str, memory: str, retention: str) -> None:
    keep = with_falls(60, {20: 0.1, 40: 0.3})
    recording = recording_of(keep, 0.3, gate=gate, memory=memory, retention=retention)
    events = resets(recording)
    assert events["onset"].values.tolist() == [20, 40]
    np.testing.assert_allclose(events["depth"], [0.9, 0.7])
    assert events.attrs["memory"] == memory


@pytest.mark.parametrize(
    ("retention", "reason"),
    [("1.0", "constant, 1: .* never"), ("0.9", "constant, 0.9: .* same share"), ("none", "has no retention")],
)
def test_a_cell_that_cannot_reset_gives_an_empty_result_that_says_why(retention: str, reason: str) -> None:
    recording = recording_of(with_falls(40, {10: 0.1}), 0.3)
    recording.attrs["retention"] = retention
    recording = recording.assign_coords(boundary=(("sequence", "time"), np.arange(40)[None] % 10 == 0))
    events = resets(recording)
    assert events.sizes["event"] == 0
    assert (events["count"] == 0).all()
    assert np.isnan(events["synchrony"]).all()
    assert re.search(reason, events.attrs["reason"])
    found = alignment(events)
    assert np.isnan(found["p"]).all()
    assert np.isnan(found["f1"]).all()
    assert found.attrs["reason"] == events.attrs["reason"]


def test_cells_of_a_block_reset_as_one() -> None:
    keep = with_falls(60, {20: 0.05, 40: 0.05}, units=4)
    keep[0, 40, 2:] = 0.99
    written = np.zeros_like(keep)
    written[0, 10] = [1.0, 0.0, 1.0, 2.0]
    written[0, 30] = [0.0, 1.0, 1.0, 2.0]
    recording = recording_of(keep, written).assign_coords(block=("unit", [5, 5, 9, 9]))
    events = resets(recording, min_erased=0.5)
    assert events["event_unit"].values.tolist() == [0, 1, 2, 3]
    assert events["onset"].values.tolist() == [20, 40, 20, 20]
    assert events["event_block"].values.tolist() == [5, 5, 9, 9]
    assert events["memory_block"].values.tolist() == [5, 9]
    assert events["block_count"].values.ravel().tolist() == [2, 1]
    together = events["together"].isel(kind=0, layer=0, direction=0, sequence=0)
    assert (together[20].item(), together[40].item(), together.sum().item()) == (2, 1, 3)


@pytest.mark.parametrize("target", ["candidate_recurrent", "hidden_state"])
def test_a_fall_of_the_reset_gate_is_a_fresh_start(target: str) -> None:
    keep = with_falls(60, {50: 0.1})
    rng = np.random.default_rng(0)
    recording = recording_of(keep, rng.normal(size=keep.shape), gate="update_gate", memory="hidden_state")
    gate = with_falls(60, {15: 0.2, 35: 0.4})
    recording["reset_gate"] = (DIMS, gate[None, None], {"role": "reset", "symbol": "r", **BOUNDED})
    if target == "candidate_recurrent":
        product = rng.normal(1.0, 0.1, gate.shape)
        recording[target] = (DIMS, product[None, None], {"role": "internal", "symbol": "W_hn h + b_hn"})
    events = resets(recording, min_erased=0.01)
    assert events["kind"].values.tolist() == ["reset", "fresh_start"]
    assert events["event_kind"].values.tolist() == ["reset", "fresh_start", "fresh_start"]
    assert events["onset"].values.tolist() == [50, 15, 35]
    np.testing.assert_allclose(events["depth"], [0.9, 0.8, 0.6])
    memory = recording["hidden_state"].values.ravel()
    held = product.ravel()[[15, 35]] if target == "candidate_recurrent" else memory[[14, 34]]
    spread = np.std(product if target == "candidate_recurrent" else memory)
    np.testing.assert_allclose(events["erased"][1:], np.array([0.8, 0.6]) * np.abs(held) / spread)
    assert np.isnan(events["written"][1:]).all()
    marks = xr.DataArray(np.isin(np.arange(60), [15, 35])[None], dims=("sequence", "time"))
    found = alignment(events, marks, kind="fresh_start")
    assert (found["precision"].item(), found["recall"].item()) == (1.0, 1.0)


def noisy(seed: int, usual: float, noise: float, jitter: int) -> tuple[Array, Array, list[npt.NDArray[np.int64]]]:
    """Retention with falls to between 0.05 and 0.6 every 8 to 20 steps, noise on the logit scale."""
    rng = np.random.default_rng(seed)
    keep = rng.normal(usual, noise, (4, 600, 1))
    onsets = []
    for one in range(4):
        places = np.cumsum(rng.integers(8, 20, 60))
        places = places[places < 598] + rng.integers(-jitter, jitter + 1, (places < 598).sum())
        depth = rng.uniform(0.05, 0.6, places.size)
        keep[one, places, 0] = np.log(depth / (1 - depth)) + rng.normal(0, noise, places.size)
        onsets.append(places)
    return logistic(keep), rng.normal(0, 1, keep.shape), onsets


@pytest.mark.parametrize(("usual", "noise", "jitter"), [(6.0, 0.3, 0), (5.0, 0.8, 2), (4.0, 0.5, 1), (7.0, 1.0, 3)])
def test_noisy_falls_are_found_and_hardly_anything_else(usual: float, noise: float, jitter: int) -> None:
    keep, written, onsets = noisy(3, usual, noise, jitter)
    events = resets(recording_of(keep, written, initial=2.0), min_erased=0.0)
    truth = {(one, int(step)) for one, places in enumerate(onsets) for step in places}
    found = {*zip(events["event_sequence"].values.tolist(), events["onset"].values.tolist(), strict=True)}
    assert len(truth & found) >= 0.98 * len(truth)
    assert len(truth & found) >= 0.98 * len(found)


def test_a_spike_among_the_falls_is_not_taken_for_all_of_them() -> None:
    """As in a trained memory block: a third of the falls to exactly one value, the others anywhere below the gap."""
    rng = np.random.default_rng(6)
    logit = rng.uniform(-0.5, 8.5, (2, 600, 1))
    falls = np.arange(5, 600, 5)
    logit[:, falls, 0] = rng.uniform(-3, -1, (2, falls.size))
    logit[:, falls[::3]] = -3.1
    events = resets(recording_of(logistic(logit), rng.normal(size=logit.shape), initial=1.0), min_erased=0.0)
    assert (events["onset"].values % 5 == 0).mean() > 0.9
    assert events.sizes["event"] >= 0.95 * 2 * falls.size


def test_levels_are_each_units_own() -> None:
    rng = np.random.default_rng(5)
    usual = np.array([8.0, 4.0, 0.5])
    keep = rng.normal(usual, 0.3, (2, 500, 3))
    keep[:, 20::20] -= 5.0
    keep = logistic(keep)
    events = resets(recording_of(keep, rng.normal(size=keep.shape), initial=1.0), min_erased=0.0, min_depth=0.01)
    assert events["count"].values.ravel().tolist() == [48, 48, 48]
    low, high, level = (events[name].values.ravel() for name in ("low", "high", "usual"))
    assert (np.diff(low) < 0).all()
    assert ((low < high) & (high < level)).all()
    np.testing.assert_allclose(np.log(level / (1 - level)), usual, atol=0.1)


@pytest.mark.parametrize("method", ["adaptive", "absolute"])
def test_constant_signals_and_units_without_values_have_no_events(method: str) -> None:
    keep = np.full((2, 30, 3), 0.95)
    keep[..., 1] = 0.02
    recording = recording_of(keep, 0.1)
    recording["forget_gate"][..., 2] = np.nan
    recording["cell_state"][..., 0] = 0.7
    recording["cell_state"][..., 2] = np.nan
    events = resets(recording, method=method)
    assert events["count"].values.ravel().tolist() == [0, 0, 0]
    assert events["steps"].values.ravel().tolist() == [60, 60, 0]
    assert np.isnan(events["rate"].values.ravel()).tolist() == [False, False, True]
    assert np.isnan(events["mean_depth"]).all()


def test_without_the_memory_before_a_sequence_nothing_is_said_of_its_first_step() -> None:
    keep = with_falls(40, {0: 0.01, 20: 0.01})
    recording = recording_of(keep, 0.3, initial=5.0)
    assert resets(recording, method="absolute")["onset"].values.tolist() == [0, 20]
    assert resets(recording.drop_vars("initial_cell_state"), method="absolute")["onset"].values.tolist() == [20]


def test_reading_in_small_blocks_finds_the_same(make_recording: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = make_recording(lengths=(60, 41, 60, 12))
    whole = resets(recording, method="absolute", low=0.3, high=0.6)
    assert whole.sizes["event"] > 100
    for block in (1, 70, 130, 700):
        monkeypatch.setitem(resets.__globals__, "BLOCK", block)
        found = resets(recording, method="absolute", low=0.3, high=0.6)
        xr.testing.assert_allclose(found, whole, rtol=1e-12)


def test_events_carry_the_labels_of_the_recording(make_recording: Make) -> None:
    recording = make_recording()
    events = resets(recording)
    for name in ("token", "boundary", "value"):
        np.testing.assert_array_equal(events[name], recording[name])
    assert events["length"].values.tolist() == [7, 12, 1]


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), low=st.floats(0.05, 0.5), band=st.floats(0, 0.4), steps=st.integers(1, 30))
def test_runs_and_losses_agree_with_going_step_by_step(seed: int, low: float, band: float, steps: int) -> None:
    rng = np.random.default_rng(seed)
    keep, memory = rng.random((2, steps, 3)), rng.normal(size=(2, steps, 3))
    high = low + band
    expected = []
    for one, unit in np.ndindex(2, 3):
        fallen: list[int] = []
        for step in range(steps):
            value = keep[one, step, unit]
            if value < low:
                fallen = [fallen[0], step] if fallen else [step, step]
            elif value >= high and fallen:
                expected.append((one, unit, *fallen))
                fallen = []
        if fallen:
            expected.append((one, unit, *fallen))
    runs = runs_below(keep, np.full(3, low), np.full(3, high))
    assert [*zip(*(part.tolist() for part in runs), strict=True)] == expected
    lost = losses(keep, memory, np.zeros((2, 3)), np.zeros(2, dtype=np.int64), runs)
    for place, (one, unit, first, last) in enumerate(expected):
        kept = np.prod(keep[one, first : last + 1, unit])
        before = memory[one, first - 1, unit] if first else 0.0
        assert lost.kept[place] == pytest.approx(kept)
        assert lost.written[place] == pytest.approx(memory[one, last, unit] - kept * before)


def test_pairs_and_their_variance_are_those_of_all_combinations_of_shifts() -> None:
    rng = np.random.default_rng(2)
    train = (rng.random((3, 7)) < 0.4).astype(np.float32)
    found = []
    for shifts in np.ndindex(7, 7, 7):
        together = sum(np.roll(row, shift) for row, shift in zip(train, shifts, strict=True))
        found.append((together * (together - 1) / 2).sum())
    pairs = coinciding_pairs(train)
    assert pairs.expected == pytest.approx(np.mean(found))
    assert pairs.variance == pytest.approx(np.var(found))
    together = train.sum(axis=0)
    assert pairs.found == pytest.approx((together * (together - 1) / 2).sum())


def test_units_that_reset_together_are_told_from_units_that_do_not() -> None:
    rng = np.random.default_rng(7)
    keep = np.full((5, 400, 30), 0.98)
    together, alone = keep.copy(), keep.copy()
    common = rng.random((5, 400)) < 0.04
    for unit in range(30):
        together[..., unit][common & (rng.random((5, 400)) < 0.7)] = 0.05
        alone[..., unit][rng.random((5, 400)) < 0.04] = 0.05
    found = [resets(recording_of(each, rng.normal(size=keep.shape))) for each in (together, alone)]
    assert found[0]["synchrony"].item() > 8
    assert found[0]["synchrony_p"].item() < 1e-12
    assert found[1]["synchrony"].item() == pytest.approx(1, abs=0.1)
    assert found[1]["synchrony_p"].item() > 0.01


@pytest.mark.slow
def test_synchrony_of_independent_units_is_rarely_called_unusual() -> None:
    rng = np.random.default_rng(11)
    p = []
    for _ in range(500):
        trains = [(rng.random((20, 100)) < rng.uniform(0.01, 0.1, (20, 1))).astype(np.float32) for _ in range(4)]
        pairs = [coinciding_pairs(train) for train in trains]
        whole = pairs[0]
        for each in pairs[1:]:
            whole = whole.plus(each)
        p.append(whole.p)
    for level in (0.05, 0.01):
        assert np.sum(np.array(p) <= level) <= binom.ppf(0.999, 500, level)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "clever"}, "method must be one of .*adaptive.*; 'clever' came"),
        ({"low": 0.9, "high": 0.1}, "0 < low <= high < 1; low=0.9"),
        ({"low": 0.0}, "0 < low <= high < 1"),
        ({"min_depth": 0.0}, "0 < min_depth <= 1"),
        ({"min_erased": float("nan")}, "min_erased=nan"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: dict[str, Any], message: str, make_recording: Make) -> None:
    with pytest.raises(ValueError, match=message):
        resets(make_recording(), **parameters)


def test_a_recording_without_what_is_needed_is_refused(make_recording: Make) -> None:
    recording = make_recording()
    with pytest.raises(ValueError, match="needs 'forget_gate', which multiplies the memory"):
        resets(recording.drop_vars("forget_gate"))
    with pytest.raises(ValueError, match="needs the memory"):
        resets(recording.drop_vars("cell_state"))
    with pytest.raises(ValueError, match=r"\['layer'\] are missing"):
        resets(recording.isel(layer=0))
    with pytest.raises(ValueError, match="every step; the recording took only every 4th"):
        resets(recording.assign_attrs(stride=4))
    with pytest.raises(ValueError, match="attribute schema"):
        resets(recording.drop_attrs())
    with pytest.raises(TypeError, match="to_dataset"):
        resets(xr.DataTree())  # type: ignore[arg-type]


def test_a_recording_without_steps_has_no_events(make_recording: Make) -> None:
    recording = make_recording(lengths=(3, 2)).isel(sequence=[], time=[])
    events = resets(recording)
    assert events.sizes["event"] == 0
    assert (events["steps"] == 0).all()


def test_the_words_that_events_share_are_kept_once(make_recording: Make) -> None:
    events = resets(make_recording(lengths=(200, 200)), method="absolute", low=0.3, high=0.6)
    assert events.sizes["event"] > 500
    assert len({id(word) for word in events["event_direction"].values}) == 2
    assert len({id(word) for word in events["event_kind"].values}) == 1


@pytest.mark.parametrize("name", ["depth", "count", "kind", "event", "together"])
def test_a_label_called_like_a_column_of_the_result_does_not_get_in_its_way(make_recording: Make, name: str) -> None:
    recording = make_recording(layers=1, directions=1, lengths=(40,))
    expected, found = resets(recording), resets(recording.rename(token=name))
    xr.testing.assert_equal(found, expected.drop_vars("token"))
    describe(recording.rename(token=name))
