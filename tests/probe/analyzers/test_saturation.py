"""Saturation: shares, verdicts and flats that are known before anything is counted."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gatescope.probe.analyzers import saturation
from gatescope.probe.schema import SchemaError

Make = Callable[..., xr.Dataset]
DIMS = ("layer", "direction", "sequence", "time", "unit")


def one_gate(values: npt.ArrayLike, lower: float = 0.0, upper: float = 1.0, role: str = "gate") -> xr.Dataset:
    """A recording of one signal, from values (time, unit) or (sequence, time, unit)."""
    array = np.asarray(values, dtype=np.float64)
    array = array.reshape((1, 1, -1, *array.shape[-2:]))
    attrs = {"symbol": "f", "role": role, "lower": lower, "upper": upper}
    data = {"forget_gate": (DIMS, array, attrs)}
    coords = {dim: np.arange(size) for dim, size in zip(DIMS, array.shape, strict=True) if dim != "direction"}
    coords["direction"] = np.array(["forward"], dtype=object)
    return xr.Dataset(data, coords, {"schema": "gatescope.recording/1", "module": "rnn", "cell": "LSTMCell"})


def with_memory(recording: xr.Dataset, memory: npt.ArrayLike, **attrs: str | float) -> xr.Dataset:
    """The recording and a memory from values (time, unit)."""
    array = np.asarray(memory, dtype=np.float64)[None, None, None]
    return recording.assign(cell_state=(DIMS, array, {"symbol": "c", "role": "memory", **attrs}))


def column(*parts: tuple[int, float]) -> list[list[float]]:
    """One unit over time: so many steps of each value."""
    return [[value] for count, value in parts for _ in range(count)]


def verdict_of(recording: xr.Dataset) -> str:
    return str(saturation(recording)["verdict"].item())


def test_shares_are_counted_on_both_sides() -> None:
    result = saturation(one_gate(column((3, 0.02), (5, 0.5), (2, 0.97))))
    assert result["left"].item() == 0.3
    assert result["right"].item() == 0.2
    assert result["steps"].item() == 10
    assert result["mean"].item() == pytest.approx(0.3 * 0.02 + 0.5 * 0.5 + 0.2 * 0.97)


def test_the_edges_themselves_are_not_saturated() -> None:
    result = saturation(one_gate(column((1, 0.25), (1, 0.75))), low=0.25, high=0.75)
    assert (result["left"].item(), result["right"].item()) == (0.0, 0.0)


@pytest.mark.parametrize(("lower", "upper"), [(-1.0, 1.0), (-2.0, 2.0), (-1.0, 3.0), (0.0, 1.0)])
def test_edges_follow_the_bounds_of_the_signal(lower: float, upper: float) -> None:
    fractions = np.array([0.05, 0.09, 0.11, 0.5, 0.89, 0.91, 0.95, 0.99])
    values = lower + fractions * (upper - lower)
    result = saturation(one_gate(values[:, None], lower, upper, role="candidate"))
    assert (result["left"].item(), result["right"].item()) == (2 / 8, 3 / 8)
    assert (result["lower"].item(), result["upper"].item()) == (lower, upper)


def test_padding_and_values_that_are_not_finite_do_not_count() -> None:
    result = saturation(one_gate(column((1, 0.95), (1, 0.05), (2, np.nan), (1, np.inf), (1, -np.inf))))
    assert result["steps"].item() == 2
    assert (result["left"].item(), result["right"].item()) == (0.5, 0.5)
    assert result["mean"].item() == pytest.approx(0.5)


def test_sequences_count_by_their_length() -> None:
    values = np.full((2, 4, 1), np.nan)
    values[0, :, 0], values[1, :1, 0] = 0.95, 0.05
    result = saturation(one_gate(values))
    assert result["steps"].item() == 5
    assert (result["left"].item(), result["right"].item()) == (0.2, 0.8)


@pytest.mark.parametrize(
    ("gate", "verdict"),
    [
        (column((96, 0.99), (4, 0.5)), "stuck open"),
        (column((94, 0.99), (6, 0.5)), "graded"),
        (column((96, 0.01), (4, 0.5)), "stuck shut"),
        (column((94, 0.01), (6, 0.5)), "graded"),
        (column((50, 0.01), (50, 0.99)), "switching"),
        (column((499, 0.99), (1, 0.01)), "switching"),
        (column((1999, 0.99), (1, 0.01)), "stuck open"),
        (column((20, 0.01), (20, 0.99), (60, 0.5)), "graded"),
        (column((100, 0.5)), "graded"),
        (column((3, np.nan)), "no data"),
    ],
)
def test_a_verdict_says_what_the_gate_does(gate: list[list[float]], verdict: str) -> None:
    assert verdict_of(one_gate(gate)) == verdict


@pytest.mark.parametrize(
    ("spread", "bounds", "verdict"),
    [
        (0.9e-6, {}, "dead"),
        (1.2e-6, {}, "switching"),
        (1.9e-6, {"lower": -2.0, "upper": 2.0}, "dead"),
        (2.1e-6, {"lower": -2.0, "upper": 2.0}, "switching"),
    ],
)
def test_a_unit_whose_memory_never_changes_is_dead(spread: float, bounds: dict[str, float], verdict: str) -> None:
    gate = one_gate(column((5, 0.01), (5, 0.99)))
    memory = column((5, 0.5), (5, 0.5 + spread))
    recording = with_memory(gate, memory, **bounds)
    assert saturation(recording)["verdict"].sel(signal="forget_gate").item() == verdict
    assert saturation(recording)["memory_spread"].item() == pytest.approx(spread)


def test_one_step_is_too_little_to_call_a_unit_dead() -> None:
    assert verdict_of(with_memory(one_gate([[0.99]]), [[0.3]])) == "stuck open"


def test_memory_held_at_two_values_in_two_sequences_is_not_dead() -> None:
    values = np.full((2, 5, 1), 0.99)
    recording = one_gate(values)
    held = np.repeat([0.7, -0.7], 5).reshape(1, 1, 2, 5, 1)
    recording = recording.assign(cell_state=(DIMS, held, {"symbol": "c", "role": "memory"}))
    assert verdict_of(recording) == "stuck open"


@pytest.mark.parametrize(("role", "verdict"), [("write", "stuck open"), ("candidate", ""), ("output", "")])
def test_verdicts_are_on_gates_only(role: str, verdict: str) -> None:
    assert verdict_of(one_gate(column((9, 1.0)), role=role)) == verdict


def test_an_lstm_saturates_where_tanh_of_its_memory_is_flat() -> None:
    edge = float(np.arctanh(0.95))
    recording = with_memory(one_gate(column((4, 0.5))), [[edge - 1e-3], [edge + 1e-3], [-edge - 1e-3], [0.0]])
    result = saturation(recording)
    assert result["squash_saturated"].item() == 0.5
    assert result.attrs["memory"] == "cell_state"
    wide = with_memory(one_gate(column((4, 0.5))), [[3.0], [3.7], [-3.6], [-3.7]], squasher="tanh(x/2)")
    assert saturation(wide)["squash_saturated"].item() == 0.5


def test_a_bounded_memory_saturates_within_five_percent_of_its_bounds() -> None:
    recording = with_memory(one_gate(column((4, 0.5))), [[0.96], [0.94], [-0.96], [0.0]], lower=-1.0, upper=1.0)
    assert saturation(recording)["squash_saturated"].item() == 0.5


def test_an_unbounded_memory_without_squasher_never_saturates() -> None:
    recording = with_memory(one_gate(column((2, 0.5))), [[0.2], [50.0]])
    recording.attrs["cell"] = "RNNCell"
    result = saturation(recording)
    assert np.isnan(result["squash_saturated"].item())
    assert "no squasher" in result.attrs["squash_saturated_note"]


def test_without_a_memory_nothing_is_said_about_it() -> None:
    result = saturation(one_gate(column((2, 0.5))))
    assert np.isnan(result["squash_saturated"].item())
    assert np.isnan(result["memory_spread"].item())
    assert result.attrs["memory"] == ""


def test_every_bounded_signal_is_listed_and_no_other(make_recording: Make) -> None:
    recording = make_recording()
    recording["forget_gate_preactivation"] = recording["forget_gate"] * 9
    result = saturation(recording)
    assert result["signal"].values.tolist() == [
        "input_gate",
        "forget_gate",
        "candidate",
        "output_gate",
        "hidden_state",
    ]
    assert result["symbol"].values.tolist() == ["i", "f", "g", "o", "h"]
    assert result["left"].dims == ("signal", "layer", "direction", "unit")


def test_a_subset_lists_what_is_left(make_recording: Make) -> None:
    recording = make_recording()
    part = recording[["output_gate"]].isel(layer=[1], direction=[1], unit=slice(2, 4), time=slice(3, 9))
    result = saturation(part)
    assert result["signal"].values.tolist() == ["output_gate"]
    assert result["layer"].values.tolist() == [1]
    assert result["direction"].values.tolist() == ["backward"]
    assert (result["steps"] == 4 + 6).all()


def test_a_projected_state_has_no_unit_and_is_left_out(make_recording: Make) -> None:
    recording = make_recording()
    projected = recording["hidden_state"].isel(unit=slice(0, 2)).rename(unit="projection")
    projected = projected.assign_coords(projection=np.arange(2))
    recording = recording.drop_vars(["hidden_state"]).assign(hidden_state=projected)
    result = saturation(recording)
    assert "hidden_state" not in result["signal"].values
    assert np.isfinite(result["squash_saturated"]).all()


def test_blocks_of_a_memory_block_stay_known(make_recording: Make) -> None:
    recording = make_recording().assign_coords(block=("unit", np.array([0, 0, 1, 1, 2])))
    assert saturation(recording)["block"].values.tolist() == [0, 0, 1, 1, 2]


def test_reading_in_small_blocks_counts_the_same(make_recording: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = make_recording()
    whole = saturation(recording)
    for block in (1, 11, 70):
        monkeypatch.setitem(saturation.__globals__, "BLOCK", block)
        xr.testing.assert_allclose(saturation(recording), whole, rtol=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    values=arrays.arrays(
        np.float32,
        arrays.array_shapes(min_dims=3, max_dims=3, max_side=5),
        elements=st.floats(0, 1, width=32) | st.just(float("nan")),
    )
)
def test_shares_agree_with_counting_one_by_one(values: npt.NDArray[np.float32]) -> None:
    result = saturation(one_gate(values))
    for unit in range(values.shape[2]):
        finite = [value for value in values[:, :, unit].ravel().astype(float).tolist() if value == value]
        assert result["steps"].isel(unit=unit).item() == len(finite)
        if finite:
            assert result["left"].isel(unit=unit).item() == sum(value < 0.1 for value in finite) / len(finite)
            assert result["right"].isel(unit=unit).item() == sum(value > 0.9 for value in finite) / len(finite)


@pytest.mark.parametrize(("low", "high"), [(0.9, 0.1), (0.5, 0.5), (0.0, 0.9), (0.1, 1.0), (float("nan"), 0.9)])
def test_edges_out_of_order_are_refused(low: float, high: float) -> None:
    with pytest.raises(ValueError, match="0 < low < high < 1; low="):
        saturation(one_gate([[0.5]]), low=low, high=high)


def test_a_recording_without_bounded_signals_is_refused(make_recording: Make) -> None:
    with pytest.raises(ValueError, match=r"needs a signal .* bounds .*\['cell_state'\]"):
        saturation(make_recording()[["cell_state"]])


def test_what_is_no_recording_is_refused(make_recording: Make) -> None:
    with pytest.raises(SchemaError, match="attribute schema"):
        saturation(make_recording().drop_attrs())
    with pytest.raises(TypeError, match="to_dataset"):
        saturation(xr.DataTree())  # type: ignore[arg-type]
