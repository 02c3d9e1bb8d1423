"""Recordings of memory blocks: every value equals a loop written by hand, and what units share is said and survives."""

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

import gatescope as gs
from gatescope.cells import BlockNetwork, MemoryBlockCell, Recurrent, ResetBeforeGRUCell

DOUBLE = torch.float64
STEPS, ROWS, INPUTS, BLOCKS, SIZE = 60, 3, 7, 3, 2
UNITS = BLOCKS * SIZE
OPTIONS = {
    "1999": {},
    "1997": {"forget": "none"},
    "decay": {"forget": 0.9},
    "no input gate": {"input_gate": False},
    "no output gate": {"output_gate": False},
    "ERG": {"forget": "none", "gates_see_gates": True, "shortcut": False, "output_bias": False},
    "all see all": {"gates_see_gates": True},
}
BOUNDS = {
    "input_gate": (0, 1),
    "candidate": (-2, 2),
    "cell_state": (None, None),
    "output_gate": (0, 1),
    "hidden_state": (-1, 1),
}
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def network(**options):
    made = BlockNetwork(INPUTS, 4, blocks=BLOCKS, size=SIZE, **options, dtype=DOUBLE)
    for weight in made.parameters():
        nn.init.uniform_(weight, -1, 1)
    return made


def batch(steps=STEPS, rows=ROWS):
    return torch.randn(rows, steps, INPUTS, dtype=DOUBLE)


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def by_hand(model, x):
    """Signal -> (sequence, time, unit), computed block by block and cell by cell from the papers' equations."""
    cell, weights = model.cell, {name: weight.numpy() for name, weight in model.state_dict().items()}
    found = {name: np.full((len(x), x.shape[1], UNITS), np.nan) for name in ("candidate", "cell_state", "hidden_state")}
    found |= {name: np.full((len(x), x.shape[1], UNITS), np.nan) for name in cell.block_gates}
    first = dict(zip(cell.gates, np.cumsum([0, *cell.rows[:-1]]), strict=True))
    for row, inputs in enumerate(x.numpy()):
        y, s, before = np.zeros(UNITS), np.zeros(UNITS), np.zeros((len(cell.block_gates), BLOCKS))
        for t, now in enumerate(inputs):
            seen = np.concatenate([now, y, before.ravel()] if cell.gates_see_gates else [now, y])
            matrix = np.concatenate([weights["cell.weight_ih"], weights["cell.weight_hh"]], 1)
            y, s, after = y.copy(), s.copy(), np.ones_like(before)
            for j in range(BLOCKS):
                gate = dict.fromkeys(("input_gate", "forget_gate", "output_gate"), 1.0)
                gate["forget_gate"] = {"learned": 1.0, "none": 1.0}.get(cell.forget, cell.forget)
                for place, name in enumerate(cell.block_gates):
                    bias = weights["cell.bias"][place * BLOCKS + j]
                    gate[name] = after[place, j] = sigmoid(matrix[first[name] + j] @ seen + bias)
                for unit in range(j * SIZE, (j + 1) * SIZE):
                    candidate = 4 * sigmoid(matrix[first["candidate"] + unit] @ seen) - 2
                    s[unit] = gate["forget_gate"] * s[unit] + gate["input_gate"] * candidate
                    y[unit] = gate["output_gate"] * (2 * sigmoid(s[unit]) - 1)
                    values = {**gate, "candidate": candidate, "cell_state": s[unit], "hidden_state": y[unit]}
                    for name, array in found.items():
                        array[row, t, unit] = values[name]
            before = after
    return found


@each_option
def test_the_recording_is_what_a_loop_by_hand_computes(options):
    model, x = network(**options), batch()
    recording = gs.validate(gs.record(model, x), values=True)
    expected = by_hand(model, x)
    assert set(expected) == {name for name in recording.data_vars if "role" in recording[name].attrs}
    for name, values in expected.items():
        np.testing.assert_allclose(recording[name].values[0, 0], values, rtol=0, atol=1e-12, err_msg=name)
    assert recording.parity < 1e-12
    assert (recording.cell, recording.module) == ("MemoryBlockCell", "recurrent")
    assert recording.retention == model.cell.retention
    assert recording.attrs.get("variant") == model.cell.variant


@each_option
def test_every_unit_knows_its_block_and_what_the_block_shares(options):
    model = network(**options)
    recording = gs.record(model, batch())
    assert recording.block.dims == ("unit",)
    assert recording.block.values.tolist() == [0, 0, 1, 1, 2, 2]
    for name in model.cell.block_gates:
        assert float((recording[name].groupby("block").max() - recording[name].groupby("block").min()).max()) == 0


def test_bounds_and_the_squasher_are_those_of_1997():
    recording = gs.record(network(forget="none"), batch(300))
    bounds = {name: (recording[name].attrs.get("lower"), recording[name].attrs.get("upper")) for name in BOUNDS}
    assert bounds == BOUNDS
    assert recording.cell_state.attrs["squasher"] == "tanh(x/2)"
    flat = gs.saturation(recording).squash_saturated
    share = (abs(2 * sigmoid(recording.cell_state) - 1) > 0.95).mean(("sequence", "time"))
    assert float(share.max()) > 0
    xr.testing.assert_allclose(flat.drop_vars(["block"]), share.drop_vars(["block"]))


@each_option
def test_recurrent_weights_stand_at_every_unit(options):
    """What the stored weights say of the net input of each gate is what the gate computed."""
    model, x = network(**options), batch()
    recording = gs.record(model, x, preactivations=True)
    cell = model.cell
    assert recording.gate.values.tolist() == list(cell.gates)
    assert recording.weight_hh.shape == (1, 1, len(cell.gates), UNITS, UNITS)
    before = np.concatenate([np.zeros((ROWS, 1, UNITS)), recording.hidden_state.values[0, 0, :, :-1]], 1)
    for name in cell.gates:
        rows = cell.weight_ih.detach()[sum(cell.rows[: cell.gates.index(name)]) :][: cell.rows[cell.gates.index(name)]]
        driven = (x @ rows.T).numpy()
        if name != "candidate":
            place = cell.block_gates.index(name) * BLOCKS
            driven = np.repeat(driven + cell.bias_ih.detach().numpy()[place : place + BLOCKS], SIZE, axis=-1)
        net = driven + before @ recording.weight_hh.sel(gate=name).values[0, 0].T
        if not cell.gates_see_gates:  # whose weights are not stored
            np.testing.assert_allclose(recording[f"{name}_preactivation"].values[0, 0], net, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("forget", "keep"), [("none", 1.0), (0.9, 0.9), (0.0, 0.0)])
def test_the_running_product_of_a_constant_retention(forget, keep):
    recording = gs.record(network(forget=forget), batch())
    steps = np.arange(1, STEPS + 1)[None, None, None, :, None]
    if keep:
        expected = np.broadcast_to(steps * np.log(keep), recording.log_retention_sum.shape)
        np.testing.assert_allclose(recording.log_retention_sum, expected, rtol=1e-12)
        assert "retention_zeros" not in recording
    else:
        np.testing.assert_array_equal(recording.retention_zeros, np.broadcast_to(steps, recording.cell_state.shape))


def test_the_running_product_of_the_forget_gate():
    recording = gs.record(network(), batch())
    np.testing.assert_allclose(recording.log_retention_sum, np.log(recording.forget_gate).cumsum("time"), rtol=1e-10)


@pytest.mark.parametrize("suffix", [".zarr", ".nc"])
@each_option
def test_files_keep_blocks_and_everything_else(tmp_path, suffix, options):
    x = batch()
    symbols = [["BTPSXVE"[step] for step in row] for row in x.argmax(-1).tolist()]
    recording = gs.record(network(**options), x, labels={"symbol": symbols})
    gs.save_recording(recording, tmp_path / f"run{suffix}")
    opened = gs.open_recording(tmp_path / f"run{suffix}")
    xr.testing.assert_identical(opened.load(), recording)
    opened.close()


def test_joined_recordings_keep_blocks_and_other_blocks_are_refused():
    first, second = gs.record(network(), batch()), gs.record(network(), batch(9))
    assert gs.concat([first, second]).block.equals(first.block)
    model = BlockNetwork(INPUTS, 4, blocks=2, size=3, dtype=DOUBLE)
    with pytest.raises(ValueError, match="same block coordinates"):
        gs.concat([first, gs.record(model, batch())])
    with pytest.raises(ValueError, match="same variant; recording 0 has None, recording 1 has no output gate"):
        gs.concat([first, gs.record(network(output_gate=False), batch())])


def test_a_reset_from_outside_is_recorded_as_imposed():
    model, x = network(), batch(12, 2)
    reset = torch.zeros(2, 12, dtype=torch.bool)
    reset[0, [3, 7]] = reset[1, [7]] = True
    labels = {"boundary": reset, "number": np.arange(24).reshape(2, 12)}
    recording = gs.validate(gs.record(model, x, inputs_kwargs={"reset": reset}, labels=labels), values=True)
    assert recording.length.values.tolist() == [3, 7, 4, 5, 5]
    assert recording.start.values.tolist() == ["zero", "zero", "imposed", "imposed", "imposed"]
    assert recording.stream.values.tolist() == [0, 1, 0, 0, 1]
    assert recording.number.values[:, 0].tolist() == [0, 12, 3, 7, 19]
    assert recording.boundary.values[:, 0].tolist() == [False, False, True, True, True]
    assert not recording.boundary.values[:, 1:].any()
    assert not recording.initial_cell_state.any()
    alone = by_hand(model, x[:1, 3:7])
    np.testing.assert_allclose(recording.cell_state.values[0, 0, 2, :4], alone["cell_state"][0], rtol=0, atol=1e-12)


def test_calls_without_a_state_begin_at_zero_and_not_by_a_reset():
    model, reset = network(), torch.zeros(ROWS, STEPS, dtype=torch.bool)
    reset[:, [0, 20]] = True
    with gs.attach(model) as probe:
        model(batch(), reset=reset)
        model(batch(), reset=reset)
    assert probe.recording().start.values.tolist() == (["zero"] * ROWS + ["imposed"] * ROWS) * 2


def test_streams_in_pieces_are_one_sequence():
    model, x = network(gates_see_gates=True), batch()
    with gs.attach(model) as probe:
        _, state = model(x[:, :20])
        _, state = model(x[:, 20:50], state)
        model(x[:, 50:], state)
    whole, pieces = gs.record(model, x), probe.recording()
    assert pieces.sizes["sequence"] == ROWS
    np.testing.assert_allclose(pieces.cell_state, whole.cell_state, rtol=0, atol=1e-13)


@each_option
def test_statistics_say_of_blocks_what_the_steps_say(options):
    model, x = network(**options), batch()
    with gs.attach(model, statistics=True) as probe:
        model(x)
    found, recording = probe.statistics(), gs.record(model, x)
    for name in model.cell.block_gates:
        mean = recording[name].mean(("sequence", "time")).drop_vars("block")
        np.testing.assert_allclose(found["mean"].sel(signal=name).squeeze(), mean.squeeze(), rtol=1e-12)
    assert found.block.equals(recording.block)


@each_option
def test_a_store_holds_the_same_signals(tmp_path, options):
    model, x = network(**options), batch()
    with gs.attach(model, store=tmp_path / "run.zarr"):
        _, state = model(x[:, :35])
        model(x[:, 35:], state)
    opened = gs.validate(gs.open_recording(tmp_path / "run.zarr"), values=True)
    expected = by_hand(model, x)
    for name, values in expected.items():
        np.testing.assert_allclose(opened[name].values[0, 0], values, rtol=0, atol=1e-12)
    kept = {
        name: opened[name] for name in ("weight_hh", "initial_cell_state", *(f"initial_{n}" for n in model.cell.states))
    }
    recording = gs.record(model, x)
    for name, values in kept.items():
        np.testing.assert_array_equal(values, recording[name])
    assert opened.block.equals(recording.block)


def test_a_store_of_some_units_holds_their_blocks(tmp_path):
    model, x = network(), batch()
    with gs.attach(model, store=tmp_path / "run.zarr", units=[1, 4]):
        model(x)
    assert gs.open_recording(tmp_path / "run.zarr").block.values.tolist() == [0, 2]


def test_the_gradient_of_a_loss_names_blocks():
    model, x = network(), batch(9)
    found = gs.loss_gradient(model, x, lambda output: (output[0] ** 2).sum())
    assert found.block.values.tolist() == [0, 0, 1, 1, 2, 2]


@each_option
def test_gradients_at_the_states_are_those_of_autograd(options):
    """Of a loop by hand over the cell, whose states all keep their gradients."""
    model, x = network(**options), batch(12)
    with gs.attach(model, gradients=True) as probe:
        outputs, _ = model(x)
        (outputs**2).sum().backward()
    recording = probe.recording()
    cell, state, kept = model.cell, model.cell.zero_state(x, (ROWS,)), []
    for t in range(12):
        state = tuple(entry.requires_grad_() for entry in cell(x[:, t], state))
        for entry in state[:2]:
            entry.retain_grad()
        kept.append(state)
    shown = torch.stack([step[0] for step in kept], 1)
    seen = torch.cat([shown, x], -1) if model.shortcut else shown
    (model.readout(seen).sigmoid() ** 2).sum().backward()
    for place, name in enumerate(("hidden_state", "cell_state")):
        expected = torch.stack([step[place].grad for step in kept], 1)
        np.testing.assert_allclose(recording[f"{name}_gradient"].values[0, 0], expected, rtol=0, atol=1e-12)


def test_the_certificate_finds_weights_of_another_gate_order():
    class Foreign(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = MemoryBlockCell(INPUTS, blocks=BLOCKS, size=SIZE, dtype=DOUBLE)

        def forward(self, x, state):
            return self.inner.forward(x, state)

    def as_cell(module):
        cell = MemoryBlockCell(INPUTS, blocks=BLOCKS, size=SIZE, dtype=DOUBLE)
        order = torch.cat([torch.arange(BLOCKS, 2 * BLOCKS), torch.arange(BLOCKS)])
        weights = {name: weight.clone() for name, weight in module.inner.state_dict().items()}
        for weight in weights.values():
            weight[: 2 * BLOCKS] = weight[order]
        cell.load_state_dict(weights)
        return cell

    gs.register(Foreign, as_cell)
    model = Foreign()
    with pytest.raises(gs.ParityError, match="MemoryBlockCell are not those of the module"), gs.attach(model):
        model(batch()[:, 0], tuple(torch.randn(ROWS, UNITS, dtype=DOUBLE) for _ in range(2)))


@pytest.mark.parametrize("convention", ["torch", "textbook"])
def test_a_gru_that_resets_before_is_recorded_in_either_convention(convention):
    model = Recurrent.stacked(
        lambda width: ResetBeforeGRUCell(width, 5, convention=convention, dtype=DOUBLE),
        INPUTS,
        num_layers=2,
        bidirectional=True,
    )
    x = batch(20)
    recording = gs.validate(gs.record(model, x), values=True)
    assert recording.parity < 1e-14
    forward = recording.sel(direction="forward")
    before = np.concatenate([np.zeros((2, x.shape[1], 1, 5)), forward.hidden_state.values[:, :, :-1]], 2)
    keep = forward.update_gate.values if convention == "torch" else 1 - forward.update_gate.values
    expected = keep * before + (1 - keep) * forward.candidate.values
    np.testing.assert_allclose(forward.hidden_state, expected, rtol=0, atol=1e-14)
    rows = recording.weight_hh.sel(gate="candidate", direction="forward").values
    biases = np.stack([cells[0].bias_hh.detach().numpy()[10:] for cells in model.cells])
    masked = np.einsum("lstu,lvu->lstv", forward.reset_gate.values * before, rows) + biases[:, None, None]
    np.testing.assert_allclose(forward.candidate_recurrent, masked, rtol=0, atol=1e-14)
    np.testing.assert_allclose(forward.log_retention_sum, np.log(keep).cumsum(2), rtol=1e-10)
