"""Lyapunov exponents: networks whose exponents are known, and what must hold for any."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

import gatescope as gs
from gatescope.cells import GRUCell, LSTMCell, Recurrent
from gatescope.probe.analyzers import lyapunov
from gatescope.probe.analyzers.lyapunov import kaplan_yorke
from gatescope.probe.analyzers.reading import Source
from gatescope.probe.analyzers.steps import matrices
from gatescope.signals import SCHEMA

DIMS = ("layer", "direction", "sequence", "time", "unit")
FLOAT64 = {"dtype": torch.float64}


def linear_network(weight: np.ndarray, steps: int = 100) -> xr.Dataset:
    """A rectified network whose units stay positive, which is linear."""
    data = {
        "hidden_state": (DIMS, np.ones((1, 1, 1, steps, len(weight))), {"role": "memory"}),
        "weight_hh": (("layer", "direction", "gate", "unit", "source"), weight[None, None, None]),
    }
    coords = {"gate": np.array(["hidden_state"], object), "direction": np.array(["forward"], object)}
    return xr.Dataset(data, coords, {"schema": SCHEMA, "cell": "RNNCell", "retention": "none"})


def recorded(
    model: nn.Module, steps: int, sequences: int = 1, width: int = 3, seed: int = 0, scale: float = 1.0
) -> xr.Dataset:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        return gs.record(model, scale * torch.randn(steps, sequences, width, generator=generator, **FLOAT64))


def random_lstm(units: int, spread: float, forget_bias: float = 0.0, seed: int = 0) -> nn.LSTM:
    torch.manual_seed(seed)
    model = nn.LSTM(3, units, **FLOAT64)
    for weight in model.parameters():
        nn.init.normal_(weight, std=spread)
    nn.init.constant_(model.bias_hh_l0[units : 2 * units], forget_bias)
    return model


def test_a_diagonal_network_has_the_logs_of_its_weights() -> None:
    weights = np.array([0.2, 1.1, 0.9, 0.5])
    result = lyapunov(linear_network(np.diag(weights), steps=1000))
    np.testing.assert_allclose(result["exponent"].values[0, 0], np.log([1.1, 0.9, 0.5, 0.2]), rtol=0, atol=2e-3)
    assert result["verdict"].item() == "explodes"
    np.testing.assert_allclose(result["standard_error"], 0, atol=5e-3)


def test_a_rotation_holds() -> None:
    angle = 0.3
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    result = lyapunov(linear_network(rotation))
    np.testing.assert_allclose(result["exponent"], 0, atol=1e-12)
    assert result["kaplan_yorke"].item() in (0, 2)  # sums that are 0 but for rounding


def test_without_recurrent_weights_the_memory_has_the_logs_of_its_forget_gates_and_h_none() -> None:
    model = random_lstm(3, 0.5, forget_bias=2.0)
    nn.init.zeros_(model.weight_hh_l0)
    recording = recorded(model, 1000)
    counted = recording["forget_gate"].values[0, 0, 0, 100:]
    expected = np.sort(np.log(counted).mean(axis=0))[::-1]
    result = lyapunov(recording)
    np.testing.assert_allclose(result["exponent"].values[0, 0, :3], expected, rtol=0, atol=2e-3)
    assert np.isneginf(result["exponent"].values[0, 0, 3:]).all()
    assert result.sizes["index"] == 6


def test_the_sum_of_all_exponents_is_the_mean_log_of_the_volume() -> None:
    """Whatever the network: the determinant of every step says how volumes shrink."""
    recording = recorded(random_lstm(5, 0.8, forget_bias=1.0), 300, sequences=2)
    result = lyapunov(recording, k=10)
    source = Source(recording, "lyapunov")
    steps = source.steps(source.part(0, 0, [0, 1]))
    times = np.tile(np.arange(30, 300), 2)
    volumes = np.linalg.slogdet(matrices(steps, (np.repeat([0, 1], 270), times)))[1]
    assert result["exponent"].sum().item() == pytest.approx(volumes.mean(), abs=1e-6)
    assert result["steps"].item() == 540


def test_the_leading_exponent_is_the_growth_of_a_difference_between_two_runs() -> None:
    """A second algorithm, on the model itself: two states side by side, brought together again after every step."""
    torch.manual_seed(0)
    cell = GRUCell(3, 12, **FLOAT64)
    nn.init.normal_(cell.weight_hh, std=0.9)
    recording = recorded(Recurrent([[cell]]), 800)
    x = torch.randn(800, 1, 3, generator=torch.Generator().manual_seed(0), **FLOAT64)
    state = torch.zeros(1, 12, **FLOAT64)
    apart = torch.full((1, 12), 1e-8 / 12**0.5, **FLOAT64)
    logs = []
    with torch.no_grad():
        for value in x:
            (other,), (state,) = cell(value, (state + apart,)), cell(value, (state,))
            growth = (other - state).norm() / 1e-8
            apart = (other - state) / growth
            logs.append(float(growth.log()))
    result = lyapunov(recording, k=3)
    assert result["exponent"].values[0, 0, 0] == pytest.approx(np.mean(logs[80:]), abs=2e-3)


def test_h_alone_would_be_far_off_where_the_memory_is_long() -> None:
    model = random_lstm(8, 0.3, forget_bias=5.0)
    recording = recorded(model, 600)
    leading = lyapunov(recording, k=1)["exponent"].item()
    source = Source(recording, "lyapunov")
    steps = source.steps(source.part(0, 0, [0]))
    column, logs = np.ones(8), []
    for t in range(1, 600):
        column = matrices(steps, (np.array([0]), np.array([t])))[0][:8, :8] @ column
        logs.append(np.log(np.linalg.norm(column)))
        column /= np.linalg.norm(column)
    assert -0.05 < leading < 0.0
    assert np.mean(logs) < leading - 0.5


def test_columns_are_made_orthogonal_as_often_as_their_spread_needs() -> None:
    """Exponents 7 nats apart leave no more than 4 steps to a factorisation in float64."""
    weights = np.exp([0.0, -3.0, -7.0, -11.0])
    found = lyapunov(linear_network(np.diag(weights), steps=400))["exponent"].values[0, 0]
    np.testing.assert_allclose(found, [0, -3, -7, -11], rtol=0, atol=0.01)


def test_standard_errors_are_those_of_independent_recordings() -> None:
    model = random_lstm(4, 1.0, forget_bias=1.0)
    results = [lyapunov(recorded(model, 400, seed=seed), k=2) for seed in range(12)]
    scatter = np.std([result["exponent"].values[0, 0, 0] for result in results], ddof=1)
    stated = np.mean([result["standard_error"].values[0, 0, 0] for result in results])
    assert 0.4 < stated / scatter < 2.5


def test_sequences_and_directions_are_followed_alone_in_their_order() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(3, 4, bidirectional=True, **FLOAT64)
    x = torch.randn(90, 2, 3, **FLOAT64)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([90, 50]))
    with torch.no_grad():
        together = gs.record(model, packed)
        turned = gs.record(
            model, nn.utils.rnn.pack_padded_sequence(x.flip(1), torch.tensor([50, 90]), enforce_sorted=False)
        )
        alone = [gs.record(model, x[:length, [row]]) for row, length in enumerate((90, 50))]
    found = lyapunov(together, k=3)["exponent"]
    parts = [lyapunov(recording, k=3) for recording in alone]
    expected = sum(part["exponent"] * part["steps"] for part in parts) / sum(part["steps"] for part in parts)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found, lyapunov(turned, k=3)["exponent"], rtol=0, atol=1e-12)
    assert abs(found.values[0, 0] - found.values[0, 1]).max() > 1e-3


def test_long_recordings_are_read_in_stretches_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = nn.LSTM(3, 4, bidirectional=True, **FLOAT64)
    with torch.no_grad():
        recording = gs.record(model, torch.randn(200, 3, 3, **FLOAT64))
    whole = lyapunov(recording, k=2)
    monkeypatch.setitem(lyapunov.__globals__, "MEMORY", 1)
    found = lyapunov(recording, k=2)
    np.testing.assert_allclose(found["exponent"], whole["exponent"], rtol=1e-9)
    np.testing.assert_allclose(found["standard_error"], whole["standard_error"], rtol=0.3)


def test_projection_is_part_of_the_state() -> None:
    torch.manual_seed(0)
    recording = recorded(Recurrent([[LSTMCell(3, 5, proj_size=2, **FLOAT64)]]), 100)
    result = lyapunov(recording)
    assert result.sizes["index"] == 7
    assert np.isfinite(result["kaplan_yorke"].item())


@pytest.mark.parametrize(
    ("exponents", "dimension"),
    [([-0.1, -2], 0), ([0.5, -0.25, -1], 2.25), ([0.3, 0.1], 2), ([0.5, -np.inf], 1), ([np.nan, 1], np.nan)],
)
def test_the_dimension_is_where_volumes_neither_grow_nor_shrink(exponents: list[float], dimension: float) -> None:
    assert kaplan_yorke(np.array(exponents)) == pytest.approx(dimension, nan_ok=True)


def test_the_dimension_needs_the_whole_spectrum() -> None:
    recording = linear_network(np.diag([1.2, 0.5]))
    assert np.isnan(lyapunov(recording, k=1)["kaplan_yorke"].item())
    expected = 1 + np.log(1.2) / -np.log(0.5)
    assert lyapunov(recording)["kaplan_yorke"].item() == pytest.approx(expected, abs=0.02)


def test_bad_input_is_refused_in_one_sentence(make_recording: Callable[..., xr.Dataset]) -> None:
    recording = make_recording(lengths=(40, 30))
    for k in (0, -1, 2.5, True, "all"):
        with pytest.raises(ValueError, match="k must be a whole number"):
            lyapunov(recording, k=k)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 10 steps"):
        lyapunov(make_recording(lengths=(5, 2)))
    with pytest.raises(ValueError, match="jacobian=True"):
        lyapunov(recording.assign_attrs(cell="Unheard"))
    with pytest.raises(TypeError, match="Dataset"):
        lyapunov(3)  # type: ignore[arg-type]


def test_attributes_are_numbers_and_text_and_the_recording_is_left_as_it_was(
    make_recording: Callable[..., xr.Dataset],
) -> None:
    recording = make_recording(lengths=(40, 30))
    before = recording.copy(deep=True)
    result = lyapunov(recording, k=2)
    xr.testing.assert_identical(recording, before)
    assert {type(value) for value in result.attrs.values()} <= {str, int, float}
    assert (result.attrs["measure"], result.attrs["module"], result.attrs["k"]) == ("lyapunov", "encoder.rnn", 2)
    assert set(result.dims) <= set(result.coords)


def test_a_stretch_of_time_is_followed_and_infinite_states_do_not_warn(
    make_recording: Callable[..., xr.Dataset],
) -> None:
    recording = make_recording(lengths=(60, 50), labels=False)
    stretch = lyapunov(recording.isel(time=slice(20, 60)))
    moved = recording.isel(time=slice(20, 60)).assign_coords(time=range(40), length=("sequence", [40, 30]))
    xr.testing.assert_allclose(stretch, lyapunov(moved))
    recording["cell_state"][0, 0, 1, 4] = np.inf
    found, alone = (lyapunov(each)["exponent"] for each in (recording, recording.isel(sequence=[0])))
    xr.testing.assert_allclose(found.isel(layer=0, direction=0), alone.isel(layer=0, direction=0))
