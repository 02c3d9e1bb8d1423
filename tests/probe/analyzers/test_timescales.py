"""Time scales: memories whose time scale is set, and estimates that are known to differ."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from gatescope.probe.analyzers import response, timescales
from gatescope.probe.analyzers.correlation import autocorrelation, e_fold
from gatescope.probe.analyzers.reading import Source
from gatescope.probe.analyzers.response import _falls
from gatescope.probe.schema import SchemaError

Make = Callable[..., xr.Dataset]
DIMS = ("layer", "direction", "sequence", "time", "unit")


def kept(keep: npt.ArrayLike, memory: npt.ArrayLike | None = None, retention: str = "forget_gate") -> xr.Dataset:
    """A recording of a retention (sequence, time, unit) and a memory, 0 where none is given."""
    gate = np.asarray(keep, dtype=float)[None, None]
    state = np.zeros_like(gate) if memory is None else np.asarray(memory, dtype=float)[None, None]
    coords: dict[str, Any] = {dim: np.arange(size) for dim, size in zip(DIMS, gate.shape, strict=True)}
    coords["direction"] = np.array(["forward"], dtype=object)
    data = {
        "forget_gate": (DIMS, gate, {"symbol": "f", "role": "gate"}),
        "cell_state": (DIMS, state, {"symbol": "c", "role": "memory"}),
    }
    attrs = {"schema": "gatescope.recording/1", "module": "rnn", "cell": "LSTMCell", "retention": retention}
    return xr.Dataset(data, coords, attrs)


def lstm(unit_gates: npt.NDArray[np.float64], steps: int, recurrent: float = 0.0, sequences: int = 4) -> xr.Dataset:
    """A recording of a torch LSTM in float64 with constant forget gates, without recurrence or with random weights."""
    torch = pytest.importorskip("torch")
    import gatescope as gs

    torch.manual_seed(0)
    units = len(unit_gates)
    model = torch.nn.LSTM(2, units, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        model.weight_hh_l0.mul_(recurrent * np.sqrt(units))
        model.weight_ih_l0[units : 2 * units] = 0
        model.bias_hh_l0[units : 2 * units] = torch.logit(torch.as_tensor(unit_gates))
        model.bias_ih_l0[units : 2 * units] = 0
    return gs.record(model, torch.randn(sequences, steps, 2, dtype=torch.float64))


def test_three_estimates_agree_on_a_memory_that_only_its_gate_rules() -> None:
    gates = np.array([0.5, 0.8, 0.95])
    result = timescales(lstm(gates, 2000), longest=100).squeeze()
    expected = -1 / np.log(gates)
    np.testing.assert_allclose(result["gate"], expected)
    np.testing.assert_allclose(result["autocorrelation"], expected, rtol=0.15)
    assert result["agree"].all()
    assert not result["heavy_tail"].any()


def test_the_jacobian_is_felt_as_autograd_says() -> None:
    torch = pytest.importorskip("torch")
    import gatescope as gs

    torch.manual_seed(1)
    model = torch.nn.LSTM(2, 4, batch_first=True, dtype=torch.float64)
    inputs = torch.randn(1, 31, 2, dtype=torch.float64)
    found = timescales(gs.record(model, inputs), longest=15)["jacobian"].squeeze().values
    falls = []
    for end in np.unique(np.linspace(15, 30, 4).round().astype(int)):
        norms = np.array([norm_of_response(torch, model, inputs, int(end), back) for back in range(16)])
        falls.append(e_fold(norms / norms[0]))
    falls = np.where(np.isnan(falls), np.inf, falls)
    np.testing.assert_allclose(found, np.median(falls, axis=0), rtol=1e-6)
    assert np.isfinite(found).all()


def norm_of_response(torch: Any, model: Any, inputs: Any, end: int, back: int) -> npt.NDArray[np.float64]:
    """Norm of d(h, c) at `end` by each unit's memory `back` steps before, which is shown in its own step too."""
    start = end - back
    cell = torch.nn.LSTMCell(2, 4, dtype=torch.float64)
    cell.load_state_dict({key.removesuffix("_l0"): value for key, value in model.state_dict().items()})
    with torch.no_grad():
        state = None
        for t in range(start + 1):
            before, state = state, cell(inputs[:, t], state)
        gates = inputs[:, start] @ cell.weight_ih.T + cell.bias_ih + cell.bias_hh
        gates = gates if before is None else gates + before[0] @ cell.weight_hh.T
        read = torch.sigmoid(gates[:, 12:])

    def onward(memory: Any) -> Any:
        now = (read * torch.tanh(memory), memory)
        for t in range(start + 1, end + 1):
            now = cell(inputs[:, t], now)
        return torch.cat(now, dim=1)

    whole = torch.autograd.functional.jacobian(onward, state[1])[0, :, 0]
    return np.asarray(torch.linalg.vector_norm(whole, dim=0))


def test_a_wide_layer_by_the_range_finder_is_close_to_the_exact_products() -> None:
    recording = lstm(np.linspace(0.6, 0.97, 40), 80, recurrent=0.5, sequences=1)
    source = Source(recording, "a test")
    ends = np.array([79, 70, 60])
    exact, ranged = (_falls(source, source.part(0, 0, [0]), ends, 60, way) for way in (True, False))
    both = np.isfinite(exact) & np.isfinite(ranged)
    assert both.mean() > 0.8
    error = np.log(ranged[both] / exact[both])
    assert abs(np.median(error)) < 0.05
    assert np.quantile(np.abs(error), 0.9) < 0.35


def test_above_the_stated_cost_the_range_finder_is_taken_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = lstm(np.linspace(0.6, 0.97, 8), 40, recurrent=0.5, sequences=1)
    assert "exact" in timescales(recording).attrs["jacobian_note"]
    monkeypatch.setattr(response, "COST", 1e4)
    assert "range finder" in timescales(recording).attrs["jacobian_note"]


def test_the_mean_of_logs_decides_and_the_mean_stands_beside_it() -> None:
    keep = np.array([0.9, 0.9, 0.9, 0.1]).reshape(1, 4, 1)
    result = timescales(kept(keep), jacobian=False)
    assert result["gate"].item() == pytest.approx(-4 / np.log(0.9**3 * 0.1))
    assert result["gate_of_mean"].item() == pytest.approx(-1 / np.log(0.7))
    assert result["gate_typical"].item() == pytest.approx(-1 / np.log(0.9))


def test_a_unit_that_keeps_and_then_resets_is_warned_of() -> None:
    keep = np.full((1, 1000, 3), 0.99)
    keep[:, ::50, 0] = 0.01  # resets
    keep[..., 2] = np.random.default_rng(0).uniform(0.3, 1.0, 1000)  # always forgets a little
    result = timescales(kept(keep), jacobian=False)
    assert result["heavy_tail"].values.ravel().tolist() == [True, False, False]
    assert result["gate"].values.ravel()[0] < 15 < 90 < result["gate_typical"].values.ravel()[0]


def test_retentions_of_exactly_zero_are_counted_apart() -> None:
    keep = np.array([0.5, 0.0, 0.5, 0.5]).reshape(1, 4, 1)
    result = timescales(kept(keep), jacobian=False)
    assert result["gate"].item() == pytest.approx(1 / np.log(2))
    assert result["gate_zeros"].item() == 0.25
    assert timescales(kept(np.zeros((1, 4, 1))), jacobian=False)["gate"].item() == 0.0


@pytest.mark.parametrize(("retention", "scale"), [("1.0", np.inf), ("0.9", -1 / np.log(0.9)), ("none", np.nan)])
def test_constant_retentions_and_none(retention: str, scale: float) -> None:
    result = timescales(kept(np.ones((1, 9, 1)), retention=retention), jacobian=False)
    np.testing.assert_allclose(result["gate"].item(), scale)
    assert not result["agree"].item()


def test_what_does_not_decorrelate_in_time_is_beyond_and_what_is_constant_is_neither() -> None:
    memory = np.stack([np.arange(40.0), np.ones(40), np.tile([1.0, -1.0], 20)], axis=1)[None]
    result = timescales(kept(np.ones((1, 40, 3)), memory), jacobian=False, longest=3).squeeze()
    assert result["autocorrelation_beyond"].values.tolist() == [True, False, False]
    assert np.isnan(result["autocorrelation"].values[:2]).all()
    assert 0 < result["autocorrelation"].values[2] < 1


@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(0, 6), st.integers(0, 9))
def test_the_autocorrelation_is_that_of_its_definition(lengths: list[int], most: int, seed: int) -> None:
    most = min(most, max(lengths) - 1)
    values = np.random.default_rng(seed).normal(size=(len(lengths), max(lengths), 1))
    series = [values[row, :length, 0] for row, length in enumerate(lengths)]
    mean = np.concatenate(series).mean()
    variance = np.concatenate(series).var()
    found = autocorrelation(values, np.array(lengths), most).ravel()
    if variance < 1e-12:
        assert np.isnan(found).all()
        return
    for lag in range(most + 1):
        products = np.concatenate([(x[: len(x) - lag] - mean) * (x[lag:] - mean) for x in series if len(x) > lag])
        assert found[lag] == pytest.approx(products.mean() / variance)


def test_a_cell_of_unknown_jacobian_is_said_to_be_one(make_recording: Make) -> None:
    result = timescales(make_recording().assign_attrs(cell="SomeCell"))
    assert result["jacobian"].isnull().all()
    assert "whose Jacobian is known" in result.attrs["jacobian_note"]


def test_units_that_are_not_finite_have_no_time_scale_and_spoil_no_other() -> None:
    keep, memory = np.full((2, 50, 2), 0.5), np.random.default_rng(0).normal(size=(2, 50, 2))
    alone = timescales(kept(keep, memory), jacobian=False)
    keep[0, 3, 1], memory[1, 7, 1] = np.nan, np.inf
    result = timescales(kept(keep, memory).assign_coords(length=("sequence", np.array([50, 50]))), jacobian=False)
    assert np.isnan(result["gate"].values.ravel()[1])
    assert np.isnan(result["autocorrelation"].values.ravel()[1])
    xr.testing.assert_allclose(result.isel(unit=[0]), alone.isel(unit=[0]))


def test_bad_input_is_refused(make_recording: Make) -> None:
    with pytest.raises(TypeError, match="timescales needs one recording"):
        timescales(3)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="timescales needs a recording"):
        timescales(xr.Dataset())
    with pytest.raises(ValueError, match="timescales needs a memory"):
        timescales(make_recording().drop_vars("cell_state"))
    with pytest.raises(ValueError, match="longest must be"):
        timescales(make_recording(), longest=-1)
