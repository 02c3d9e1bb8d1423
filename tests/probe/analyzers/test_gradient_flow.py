"""Gradient flow: beside autograd over many steps, a second algorithm, hand-worked cases and arbitrary precision."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import gatescope as gs
from gatescope.cells import GRUCell, LSTMCell, PeepholeLSTMCell, Recurrent, ResetBeforeGRUCell, RNNCell
from gatescope.probe.analyzers import gradient_flow
from gatescope.probe.analyzers.gradient_flow import gradient_verdict
from gatescope.probe.analyzers.horizons import Horizons
from gatescope.probe.analyzers.norms import carry
from gatescope.probe.analyzers.products import identity, sketch
from gatescope.probe.analyzers.reading import Source
from gatescope.probe.analyzers.steps import matrices
from gatescope.signals import SCHEMA

DIMS = ("layer", "direction", "sequence", "time", "unit")
FLOAT64 = {"dtype": torch.float64}
LSTM_SIGNALS = ("input_gate", "forget_gate", "candidate", "output_gate")


def lstm(
    units: int = 7, steps: int = 12, sequences: int = 1, *, spread: float = 0.6, forget_bias: float = 1.0, **options
) -> tuple[nn.LSTM, torch.Tensor, xr.Dataset]:
    """A random LSTM in float64, its input and its recording."""
    torch.manual_seed(3)
    model = nn.LSTM(3, units, **options, **FLOAT64)
    for name, weight in model.named_parameters():
        nn.init.normal_(weight, std=spread)
        if name.startswith("bias_hh"):
            nn.init.constant_(weight[units : 2 * units], forget_bias)
    x = torch.randn(steps, sequences, 3, **FLOAT64)
    with torch.no_grad():
        return model, x, gs.record(model, x)


def autograd_product(model: nn.LSTM, x: torch.Tensor, recording: xr.Dataset, start: int, end: int) -> np.ndarray:
    """d(h, c)_end / d(h, c)_start of one sequence, by autograd through torch's own module."""
    states = [torch.tensor(recording[name].values[0, 0, 0, start]) for name in ("hidden_state", "cell_state")]
    units = len(states[0])

    def run(joined: torch.Tensor) -> torch.Tensor:
        h, c = joined.split(units)
        _, (h, c) = model(x[start + 1 : end + 1, :1], (h[None, None], c[None, None]))
        return torch.cat([h[0, 0], c[0, 0]])

    return torch.autograd.functional.jacobian(run, torch.cat(states)).numpy()


def numpy_lstm(gates: dict[str, np.ndarray], initial: np.ndarray, weight_hh: np.ndarray, **attrs: object) -> xr.Dataset:
    """A recording from gates (time, unit) that anyone may choose."""
    memory, found = initial, []
    for i, f, g in zip(gates["input_gate"], gates["forget_gate"], gates["candidate"], strict=True):
        memory = f * memory + i * g
        found.append(memory)
    values = {**gates, "cell_state": np.array(found)}
    values["hidden_state"] = values["output_gate"] * np.tanh(values["cell_state"])
    roles = dict(zip(LSTM_SIGNALS, ("write", "gate", "candidate", "read"), strict=True))
    data = {n: (DIMS, v[None, None, None], {"role": roles.get(n, "memory")}) for n, v in values.items()}
    data["weight_hh"] = (("layer", "direction", "gate", "unit", "source"), weight_hh[None, None])
    coords = {"gate": np.array(LSTM_SIGNALS, object), "direction": np.array(["forward"], object)}
    return xr.Dataset(data, coords, {"schema": SCHEMA, "cell": "LSTMCell", "retention": "forget_gate", **attrs})


def random_gates(steps: int, units: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = {name: rng.uniform(0.05, 0.95, (steps, units)) for name in LSTM_SIGNALS}
    return values | {"candidate": rng.uniform(-0.9, 0.9, (steps, units))}


def median(result: xr.Dataset, block: str = "whole", norm: str = "frobenius") -> np.ndarray:
    """log10 norms by horizon of the first layer and direction."""
    return result["state_norm"].sel(quantile=0.5, block=block, norm=norm).values[0, 0]


def test_every_block_is_that_of_autograd_through_the_module() -> None:
    model, x, recording = lstm()
    units, end = 7, 11
    result = gradient_flow(recording, horizons=range(1, 12), end=-1)
    gate, cell = recording["output_gate"].values[0, 0, 0], np.tanh(recording["cell_state"].values[0, 0, 0])
    for horizon in (1, 2, 6, 11):
        product = autograd_product(model, x, recording, end - horizon, end)
        h, c = slice(0, units), slice(units, None)
        exposed = gate[end - horizon] * (1 - cell[end - horizon] ** 2)
        reached = product @ np.vstack([np.diag(exposed), np.eye(units)])
        blocks = {"whole": product, "h->h": product[h, h], "h->c": product[c, h], "c->h": product[h, c]}
        blocks |= {"c->c": product[c, c], "total c->c": reached[c], "total c->h": reached[h]}
        for block, expected in blocks.items():
            found = result["state_norm"].sel(quantile=0.5, block=block, horizon=horizon)[0, 0]
            assert 10 ** found.sel(norm="frobenius").item() == pytest.approx(np.linalg.norm(expected), rel=1e-12)
            assert 10 ** found.sel(norm="spectral").item() == pytest.approx(np.linalg.norm(expected, 2), rel=1e-12)


def test_the_product_of_the_memorys_own_steps_is_not_what_is_returned() -> None:
    """It leaves out the path through the output gate, which is already seen at horizon 2."""
    model, x, recording = lstm(units=16, spread=0.9)
    units, end = 16, 11
    true = autograd_product(model, x, recording, end - 2, end)
    gate, cell = recording["output_gate"].values[0, 0, 0], np.tanh(recording["cell_state"].values[0, 0, 0])
    exposed = [np.diag(gate[t] * (1 - cell[t] ** 2)) for t in range(12)]
    jacobians = [autograd_product(model, x, recording, t - 1, t) for t in (end - 1, end)]
    memory_only = [
        step[units:, :units] @ exposed[t] + step[units:, units:]
        for step, t in zip(jacobians, (end - 2, end - 1), strict=True)
    ]
    reached = (true @ np.vstack([exposed[end - 2], np.eye(units)]))[units:]
    result = gradient_flow(recording, horizons=[2], end=-1)
    assert 10 ** median(result, "total c->c")[0] == pytest.approx(np.linalg.norm(reached), rel=1e-12)
    wrong = memory_only[1] @ memory_only[0]
    assert np.linalg.norm(wrong - reached) > 0.5 * np.linalg.norm(reached)
    assert abs(np.linalg.norm(wrong) / np.linalg.norm(reached) - 1) > 0.1


@pytest.mark.parametrize(
    "make",
    [
        lambda width: GRUCell(width, 5, **FLOAT64),
        lambda width: ResetBeforeGRUCell(width, 5, convention="textbook", **FLOAT64),
        lambda width: RNNCell(width, 5, nonlinearity="relu", **FLOAT64),
        lambda width: PeepholeLSTMCell(width, 5, **FLOAT64),
        lambda width: LSTMCell(width, 5, proj_size=3, **FLOAT64),
    ],
    ids=["GRU", "reset before", "ReLU RNN", "peepholes", "projected"],
)
@pytest.mark.parametrize("direction", [0, 1])
def test_products_of_other_cells_are_those_of_autograd_over_the_steps(make: Callable, direction: int) -> None:
    torch.manual_seed(0)
    model = Recurrent.stacked(make, 3, num_layers=1, bidirectional=True)
    x = torch.randn(9, 1, 3, **FLOAT64)
    with torch.no_grad():
        recording = gs.record(model, x)
    cell = model.cells[0][direction]
    order = slice(None, None, -1) if direction else slice(None)
    start = [torch.tensor(recording[name].values[0, direction, 0, order][1]) for name in cell.states]
    widths = [len(state) for state in start]
    read = x[:, 0].flip(0) if direction else x[:, 0]

    def run(joined: torch.Tensor) -> torch.Tensor:
        state = joined.split(widths)
        for value in read[2:9]:
            state = cell(value, tuple(state))
        return torch.cat(state)

    expected = torch.autograd.functional.jacobian(run, torch.cat(start)).numpy()
    found = gradient_flow(recording, horizons=[7], end=-1)["state_norm"].sel(quantile=0.5, block="whole")[0, direction]
    assert 10 ** found.sel(norm="frobenius").item() == pytest.approx(np.linalg.norm(expected), rel=1e-12)
    assert 10 ** found.sel(norm="spectral").item() == pytest.approx(np.linalg.norm(expected, 2), rel=1e-12)


def test_products_taken_forward_in_time_have_the_same_norms() -> None:
    """A second algorithm: full matrices, multiplied from the first step on."""
    _, _, recording = lstm(units=6, steps=40)
    source = Source(recording, "gradient_flow")
    steps = source.steps(source.part(0, 0, [0]))
    product, scale = np.eye(12), 0.0
    for t in range(5, 40):
        product = matrices(steps, (np.array([0]), np.array([t])))[0] @ product
        size = np.linalg.norm(product)
        product, scale = product / size, scale + np.log10(size)
    found = median(gradient_flow(recording, horizons=[35], end=39))
    np.testing.assert_allclose(found, [scale], rtol=0, atol=1e-12)


def test_without_recurrent_weights_exactly_the_product_of_the_forget_gate_is_left() -> None:
    gates = random_gates(30, 4)
    recording = numpy_lstm(gates, np.zeros(4), np.zeros((4, 4, 4)))
    result = gradient_flow(recording, horizons=[1, 5, 20], end=-1)
    kept = np.stack([np.prod(gates["forget_gate"][30 - k :], axis=0) for k in (1, 5, 20)])
    np.testing.assert_allclose(10 ** median(result, "c->c"), np.linalg.norm(kept, axis=1), rtol=1e-12)
    np.testing.assert_allclose(10 ** median(result, "c->c", "spectral"), kept.max(axis=1), rtol=1e-12)
    np.testing.assert_allclose(10 ** median(result, "total c->c"), np.linalg.norm(kept, axis=1), rtol=1e-12)
    assert np.isneginf(median(result, "h->h")).all()
    np.testing.assert_allclose(result["path_share"].values[0, 0, 0, 1:, 0], 1, rtol=1e-12)
    cut = result["knockout_norm"].sel(quantile=0.5, path="direct").values
    assert np.isneginf(cut).all()


def test_a_forget_gate_at_bias_one_keeps_what_the_sigmoid_says() -> None:
    gates = random_gates(30, 3) | {"forget_gate": np.full((30, 3), 1 / (1 + np.exp(-1.0)))}
    result = gradient_flow(numpy_lstm(gates, np.zeros(3), np.zeros((4, 3, 3))), horizons=[20])
    assert (10 ** result["cell_path"].sel(quantile=0.5)).round(7).values.ravel().tolist() == [0.0019013] * 3
    assert 10 ** median(result, "c->c", "spectral")[0] == pytest.approx(0.0019013, rel=1e-4)


def test_a_diagonal_linear_network_has_the_powers_of_its_weights() -> None:
    """A rectified network whose units stay positive is linear."""
    weights = np.array([0.5, 0.9, 1.0, 1.1])
    data = {
        "hidden_state": (DIMS, np.ones((1, 1, 1, 21, 4)), {"role": "memory"}),
        "weight_hh": (("layer", "direction", "gate", "unit", "source"), np.diag(weights)[None, None, None]),
    }
    coords = {"gate": np.array(["hidden_state"], object), "direction": np.array(["forward"], object)}
    recording = xr.Dataset(data, coords, {"schema": SCHEMA, "cell": "RNNCell", "retention": "none"})
    result = gradient_flow(recording, horizons=[1, 7, 20])
    powers = weights ** np.array([[1], [7], [20]])
    np.testing.assert_allclose(10 ** median(result), np.linalg.norm(powers, axis=1), rtol=1e-12)
    np.testing.assert_allclose(10 ** median(result, norm="spectral"), powers.max(axis=1), rtol=1e-12)
    assert "cell_path" not in result


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_thousand_steps_are_those_of_arbitrary_precision(dtype: str) -> None:
    mpmath = pytest.importorskip("mpmath")
    units, steps = 3, 400
    gates = {name: values.astype(dtype) for name, values in random_gates(steps, units, seed=1).items()}
    gates["forget_gate"] *= 0.01  # far below the smallest float64 at the end
    weights = np.random.default_rng(2).normal(size=(4, units, units), scale=0.01).astype(dtype)
    recording = numpy_lstm(gates, np.zeros(units, dtype), weights)
    recording = recording.assign(cell_state=recording["cell_state"].astype(dtype))
    found = median(gradient_flow(recording, horizons=[steps - 1], end=-1))[0]
    source = Source(recording, "gradient_flow")
    stepwise = source.steps(source.part(0, 0, [0]), np.float64)
    with mpmath.workdps(40):
        product = mpmath.eye(2 * units)
        for t in range(1, steps):
            product = mpmath.matrix(matrices(stepwise, (np.array([0]), np.array([t])))[0].tolist()) * product
        expected = float(mpmath.log10(mpmath.mnorm(product, "f")))
    assert expected < -400
    assert found == pytest.approx(expected, abs=1e-10)


def test_what_no_float_can_hold_is_finite_and_right() -> None:
    """10**-874 after a thousand steps."""
    factor = 10 ** (-0.874)
    gates = {name: np.full((1001, 2), 0.5, np.float32) for name in LSTM_SIGNALS}
    gates["forget_gate"][:] = factor
    recording = numpy_lstm(gates, np.zeros(2, np.float32), np.zeros((4, 2, 2), np.float32))
    result = gradient_flow(recording, horizons=[1000])
    exactly = 1000 * np.log10(float(np.float32(factor)))
    assert exactly == pytest.approx(-874, abs=1e-4)
    assert median(result, "c->c", "spectral")[0] == pytest.approx(exactly, abs=1e-9)
    assert result["cell_path"].sel(quantile=0.5).values.ravel() == pytest.approx([exactly] * 2, abs=1e-9)


def test_a_gate_that_is_exactly_zero_leaves_nothing_and_no_nan() -> None:
    gates = random_gates(12, 2)
    gates["forget_gate"][6, 0] = 0
    result = gradient_flow(numpy_lstm(gates, np.zeros(2), np.zeros((4, 2, 2))), horizons=[4, 8], end=-1)
    paths = gradient_flow(numpy_lstm(gates, np.zeros(2), np.zeros((4, 2, 2))), horizons=[11])["cell_path"]
    assert np.isneginf(paths.sel(quantile=0.5).values[0, 0, 0, 0])
    assert np.isfinite(paths.sel(quantile=0.5).values[0, 0, 0, 1])
    assert np.isfinite(median(result, "c->c")).all()


def test_both_conventions_of_the_update_gate_keep_the_same() -> None:
    torch.manual_seed(0)
    cell = ResetBeforeGRUCell(3, 5, convention="torch", **FLOAT64)
    other = ResetBeforeGRUCell(3, 5, convention="textbook", **FLOAT64)
    other.load_state_dict(cell.state_dict())
    with torch.no_grad():
        for weight in other.parameters():
            weight[5:10] *= -1
        x = torch.randn(15, 2, 3, **FLOAT64)
        keeps, overwrites = (gradient_flow(gs.record(Recurrent([[each]]), x)) for each in (cell, other))
    for name in ("cell_path", "state_norm", "path_share", "knockout_norm"):
        np.testing.assert_allclose(keeps[name], overwrites[name], rtol=1e-9, atol=1e-12)


def test_every_sequence_is_followed_within_its_length_and_never_across() -> None:
    torch.manual_seed(0)
    model = nn.LSTM(3, 4, num_layers=2, bidirectional=True, **FLOAT64)
    x, lengths = torch.randn(9, 4, 3, **FLOAT64), [9, 5, 2, 1]
    with torch.no_grad():
        together = gs.record(model, pack_padded_sequence(x, torch.tensor(lengths)))
        alone = [gs.record(model, x[:length, [row]]) for row, length in enumerate(lengths)]
    found = gradient_flow(together, horizons=range(1, 9), end=-1)
    assert found["state_norm_samples"].values.tolist() == [3, 2, 2, 2, 1, 1, 1, 1]
    each = [
        gradient_flow(recording, horizons=range(1, length), end=-1)
        for recording, length in zip(alone[:3], lengths, strict=False)
    ]
    for horizon in range(1, 9):
        values = [
            one["state_norm"].sel(horizon=horizon, quantile=0.5, norm="frobenius").values
            for one in each
            if horizon in one["horizon"]
        ]
        expected = np.quantile(values, 0.5, axis=0)
        here = found["state_norm"].sel(horizon=horizon, quantile=0.5, norm="frobenius").values
        np.testing.assert_allclose(here, expected, rtol=0, atol=1e-12)
    for row, one in enumerate(each):
        shares = found["path_share"].values[:, :, row, : lengths[row]]
        np.testing.assert_allclose(shares, one["path_share"].values[:, :, 0], rtol=0, atol=1e-12)
        assert np.isnan(found["path_share"].values[:, :, row, lengths[row] :]).all()


def test_quantiles_are_over_all_ends_that_were_taken() -> None:
    _, _, recording = lstm(units=4, steps=17)
    every = [[median(gradient_flow(recording, horizons=[k], end=end))[0] for end in range(k, 17)] for k in (1, 3, 16)]
    result = gradient_flow(recording, horizons=[1, 3, 16])
    assert result["state_norm_samples"].values.tolist() == [16, 14, 1]
    found = result["state_norm"].sel(norm="frobenius", block="whole")[0, 0]
    for place, values in enumerate(every):
        np.testing.assert_allclose(found[:, place], np.quantile(values, [0.1, 0.5, 0.9]), rtol=0, atol=1e-12)


def test_the_norm_with_a_path_cut_is_that_of_a_network_without_it() -> None:
    _, _, recording = lstm(units=5, steps=10)
    result = gradient_flow(recording, horizons=[6], end=-1)
    weights = recording["weight_hh"].copy(deep=True)
    for path, gate in [("via forget", "forget_gate"), ("via input", "input_gate"), ("via output", "output_gate")]:
        cut = weights.copy(deep=True)
        cut.loc[{"gate": gate}] = 0
        expected = median(gradient_flow(recording.assign(weight_hh=cut), horizons=[6], end=-1))[0]
        found = result["knockout_norm"].sel(path=path, quantile=0.5).item()
        assert found == pytest.approx(expected, abs=1e-12)
        assert found != pytest.approx(result["knockout_reference"].sel(quantile=0.5).item(), abs=1e-6)


def test_half_precision_is_carried_in_more() -> None:
    _, _, recording = lstm(units=5, steps=20)
    half = recording.assign({name: recording[name].astype(np.float16) for name in recording.data_vars})
    found, exact = gradient_flow(half), gradient_flow(recording)
    np.testing.assert_allclose(median(found), median(exact), atol=0.02)


@pytest.mark.parametrize("units", [24, 48])
def test_the_range_finder_is_within_its_stated_error_and_exact_where_it_can_be(units: int) -> None:
    _, _, recording = lstm(units=units, steps=150, spread=1.2 / units**0.5, forget_bias=2.0)
    exact, quick = (gradient_flow(recording, method=method, end=-1) for method in ("exact", "range"))
    assert (exact.attrs["method_used"], quick.attrs["method_used"]) == ("exact", "range")
    assert "state_norm_error" not in exact
    error = quick["state_norm_error"].values[0, 0]
    difference = np.abs(median(exact) - median(quick))
    short = exact["horizon"].values <= 32
    np.testing.assert_allclose(difference[short], 0, atol=1e-9)
    assert (difference <= 6 * error + 1e-9).all()
    assert difference[-1] < 1e-4
    assert 0 < error[~short].max() < 1e-2


def test_a_sequence_that_is_not_finite_counts_for_nothing() -> None:
    _, _, recording = lstm(units=5, steps=12, sequences=3)
    broken = recording.copy(deep=True)
    broken["cell_state"][0, 0, 1, 4:] = np.nan
    alone = gradient_flow(recording.isel(sequence=[0, 2]), horizons=[3, 9], end=-1)
    for method in ("exact", "range"):
        found = gradient_flow(broken, horizons=[3, 9], end=-1, method=method)
        tolerance = 1e-12 if method == "exact" else 0.05
        np.testing.assert_allclose(median(found), median(alone), rtol=0, atol=tolerance)
        assert found["state_norm_samples"].values.tolist() == [2, 2]


def test_judgement_follows_the_memory() -> None:
    found = []
    for forget_gate in (0.999, 0.5, 1.2):
        gates = random_gates(60, 3) | {"forget_gate": np.full((60, 3), forget_gate)}
        found.append(gradient_flow(numpy_lstm(gates, np.zeros(3), np.zeros((4, 3, 3)))))
    kept, lost, grown = found
    assert (kept["verdict"].item(), lost["verdict"].item(), grown["verdict"].item()) == (
        "preserved",
        "vanishing",
        "exploding",
    )
    assert lost["half_life"].item() == pytest.approx(1)
    assert lost["slope"].item() == pytest.approx(np.log10(0.5))
    assert lost["effective_horizon"].values.ravel() == pytest.approx([np.log(0.01) / np.log(0.5), 23])
    assert np.isinf(kept["half_life"].item())
    assert lost.attrs["judged_block"] == "total c->c"


def test_a_recorded_step_jacobian_takes_the_place_of_the_cells_own() -> None:
    _, _, recording = lstm(units=4, steps=12, sequences=2)
    source = Source(recording, "gradient_flow")
    steps = source.steps(source.part(0, 0, [0, 1]))
    stored = np.stack([matrices(steps, (np.full(12, row), np.arange(12))) for row in (0, 1)])[None, None]
    names = ("layer", "direction", "sequence", "time", "target_state", "source_state")
    other = recording.drop_vars("weight_hh").assign(step_jacobian=(names, stored)).assign_attrs(cell="Unheard")
    found, exact = gradient_flow(other), gradient_flow(recording)
    blocks = [block for block in exact["block"].values if not block.startswith("total")]
    np.testing.assert_allclose(found["state_norm"].sel(block=blocks), exact["state_norm"].sel(block=blocks), atol=1e-10)
    xr.testing.assert_allclose(found["cell_path"], exact["cell_path"])
    assert "path_share" not in found


def test_gates_that_are_states_are_followed_through_their_recorded_jacobian() -> None:
    torch.manual_seed(0)
    model = Recurrent([[PeepholeLSTMCell(3, 4, variant="FGR", **FLOAT64)]])
    cell, x = model.cells[0][0], torch.randn(9, 1, 3, **FLOAT64)
    recording = gs.record(model, x, jacobian=True)
    state = [torch.tensor(recording[name].values[0, 0, 0, 2]) for name in cell.states]

    def run(joined: torch.Tensor) -> torch.Tensor:
        for value in x[3:9, 0]:
            joined = torch.cat(cell(value, tuple(joined.split(4))))
        return joined

    expected = torch.autograd.functional.jacobian(run, torch.cat(state)).numpy()
    result = gradient_flow(recording, horizons=[6], end=-1)
    assert 10 ** median(result)[0] == pytest.approx(np.linalg.norm(expected), rel=1e-12)
    assert (result.attrs["jacobian"], result["block"].values.tolist()) == ("recorded", ["whole"])


def test_bad_input_is_refused_in_one_sentence_with_the_way_out(make_recording: Callable[..., xr.Dataset]) -> None:
    recording = make_recording()
    cases = [
        (recording.drop_vars("weight_hh"), {}, "needs the recurrent weights"),
        (recording.drop_vars("output_gate"), {}, "lacks output_gate"),
        (recording.assign_attrs(cell="Unheard"), {}, "jacobian=True"),
        (recording.assign_attrs(stride=5), {}, "every 5th"),
        (recording.isel(unit=[0, 1]), {}, "needs all units"),
        (recording.isel(layer=0), {}, "lacks layer"),
        (recording.assign_attrs(weights_changed="weights changed before call 1"), {}, "one set of weights"),
        (recording, {"horizons": []}, "horizons must be"),
        (recording, {"horizons": [0]}, "horizons must be"),
        (recording, {"horizons": [12]}, "horizons must be"),
        (recording, {"horizons": [1.5]}, "horizons must be"),
        (recording, {"method": "fast"}, "method must be"),
        (recording, {"end": 12}, "end must be"),
        (recording, {"end": True}, "end must be"),
        (recording.isel(sequence=[2]), {}, "at least 2 steps"),
    ]
    for bad, options, said in cases:
        with pytest.raises(ValueError, match=said):
            gradient_flow(bad, **options)
    with pytest.raises(TypeError, match="Dataset"):
        gradient_flow(recording["forget_gate"])


def test_a_recording_opened_from_disk_gives_the_same(make_recording: Callable[..., xr.Dataset], tmp_path: Path) -> None:
    recording = make_recording()
    opened = gs.open_recording(gs.save_recording(recording, tmp_path / "run.zarr"))
    xr.testing.assert_allclose(gradient_flow(opened), gradient_flow(recording))
    opened.close()


def test_the_range_finder_is_unbiased_and_errs_as_much_as_it_states() -> None:
    """Over twenty draws of its random rows, at horizons where they matter."""
    _, _, recording = lstm(units=24, steps=60, spread=0.25, forget_bias=2.0)
    source = Source(recording, "gradient_flow")
    steps = source.steps(source.part(0, 0, [0]))
    last, horizons = (np.array([0]), np.array([59])), Horizons(np.array([1, 4, 12]), np.array([], np.int64))
    true = carry(steps, last, horizons, ["whole"], *identity(steps, 1)).frobenius[0, 0]
    drawn = [carry(steps, last, horizons, ["whole"], *sketch(steps, last, 59, seed)) for seed in range(20)]
    off = np.array([found.frobenius[0, 0] - true for found in drawn])
    stated = np.array([found.error[0] for found in drawn])
    assert (np.abs(off.mean(axis=0)) < 3 * off.std(axis=0) / 20**0.5).all()
    np.testing.assert_allclose(stated.mean(axis=0), off.std(axis=0), rtol=0.5)


@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}])
def test_a_stretch_of_time_is_followed_as_the_whole_is(options: dict) -> None:
    """From step 3 to 8: all that a stretch says stands in the whole recording too."""
    torch.manual_seed(1)
    model = nn.LSTM(3, 4, **options, **FLOAT64)
    x = pack_padded_sequence(torch.randn(12, 3, 3, **FLOAT64), [12, 7, 2])
    recording = gs.record(model, x)
    whole, part = (gradient_flow(each) for each in (recording, recording.isel(time=slice(3, 9))))
    assert part.sizes["horizon"] == 5
    np.testing.assert_array_equal(part["time"].values, range(3, 9))
    shown = whole["path_share"].sel(time=slice(3, 8))
    same = part["path_share"].transpose(*shown.dims)
    both = same.notnull() & shown.notnull()
    assert both.sum() >= 5
    np.testing.assert_allclose(same.where(both).values, shown.where(both).values, rtol=1e-9)
    for sequence, last in ((0, 8), (1, 6)):
        lonely = recording.isel(sequence=[sequence], direction=[0])
        expected = gradient_flow(lonely, horizons=[1, 2], end=last)["state_norm"]
        found = gradient_flow(lonely.isel(time=slice(3, 9)), horizons=[1, 2], end=-1)["state_norm"]
        np.testing.assert_allclose(found.values, expected.values, atol=1e-12)


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        ({"time": [1, 5, 7]}, "follow one another"),
        ({"time": slice(None, None, -1)}, "follow one another"),
        ({"layer": []}, "at least one layer"),
        ({"direction": []}, "at least one direction"),
        ({"gate": [1, 0]}, "weight_hh lacks candidate, output_gate"),
        ({"time": slice(0, 0)}, "at least 2 steps"),
    ],
)
def test_a_cut_that_cannot_be_followed_is_refused(cut: dict, said: str) -> None:
    recording = lstm()[2].isel(cut)
    with pytest.raises(ValueError, match=said):
        gradient_flow(recording)


def test_infinite_states_give_nan_and_no_warning() -> None:
    recording = lstm(sequences=2)[2]
    recording["cell_state"][0, 0, 1, 4] = np.inf
    result = gradient_flow(recording)
    alone = gradient_flow(recording.isel(sequence=[0]))
    np.testing.assert_allclose(median(result)[8:], median(alone)[8:])


def test_recorded_jacobians_stay_whole_when_units_are_chosen_away() -> None:
    """The blocks are those of all units, not of the two that are left."""
    model, x, _ = lstm(units=4)
    recording = gs.record(model, x, jacobian=True)
    whole = gradient_flow(recording.drop_vars("weight_hh"))["state_norm"]
    xr.testing.assert_identical(gradient_flow(recording.isel(unit=[0, 1]))["state_norm"], whole)
    for cut in ({"target_state": [0, 1]}, {"target_state": [0, 1], "source_state": [0, 1]}):
        with pytest.raises(ValueError, match="must have the whole state as target and as source, 8 numbers; 2 and "):
            gradient_flow(recording.isel(cut))


@pytest.mark.parametrize("method", ["exact", "range"])
def test_the_verdict_alone_is_that_of_the_whole_measure(method: str, make_recording: Callable[..., xr.Dataset]) -> None:
    """Of two states, in both directions, of sequences of different lengths; and of one state."""
    model = nn.GRU(3, 7, **FLOAT64)
    with torch.no_grad():
        one_state = gs.record(model, torch.randn(20, 2, 3, **FLOAT64))
    for recording in (make_recording(layers=1, lengths=(15, 36), units=18), one_state):
        whole, alone = gradient_flow(recording, method=method), gradient_verdict(recording, method=method)
        assert set(alone.data_vars) == {"half_life", "slope", "verdict"}
        for name in alone.data_vars:
            if name == "verdict":
                assert alone[name].values.tolist() == whole[name].values.tolist()
            else:
                np.testing.assert_allclose(alone[name], whole[name], rtol=1e-5)
