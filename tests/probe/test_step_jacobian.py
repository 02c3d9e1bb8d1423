"""The Jacobians of all steps, recorded through torch.func, against autograd and against the analytic factors."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import gatescope as gs
from gatescope.probe import step_jacobian

CELLS = {
    "LSTM": lambda: gs.LSTMCell(3, 4),
    "LSTM with projection": lambda: gs.LSTMCell(3, 4, proj_size=2),
    "GRU": lambda: gs.GRUCell(3, 4),
    "RNN": lambda: gs.RNNCell(3, 4, nonlinearity="relu"),
    "peephole": lambda: gs.PeepholeLSTMCell(3, 4),
    "FGR": lambda: gs.PeepholeLSTMCell(3, 4, variant="FGR"),
    "1999": lambda: gs.cells.MemoryBlockCell(3, blocks=2, size=2),
    "textbook GRU": lambda: gs.ResetBeforeGRUCell(3, 4, convention="textbook"),
}


def stepped(cell, x, *state):
    return cell.forward(x, state)


def by_autograd(cell, x, recording):
    """(sequence, time, target, source) of one layer in one direction by torch's own function."""
    shape = (recording.sizes["sequence"], recording.sizes["time"])
    size = sum(cell.state_sizes)
    found = np.full((*shape, size, size), np.nan)
    for sequence, time in np.ndindex(shape):
        at = {"layer": 0, "direction": 0, "sequence": sequence}
        rows = [
            recording[f"initial_{name}"].isel(at) if time == 0 else recording[name].isel({**at, "time": time - 1})
            for name in cell.states
        ]
        state = tuple(torch.tensor(row.values) for row in rows)
        blocks = torch.autograd.functional.jacobian(partial(stepped, cell, x[time, sequence]), state)
        found[sequence, time] = torch.cat([torch.cat(row, -1) for row in blocks]).numpy()
    return found


@pytest.mark.parametrize("make", CELLS.values(), ids=CELLS)
def test_every_step_has_the_jacobian_that_autograd_gives(make):
    torch.manual_seed(0)
    cell, x = make().double(), torch.randn(5, 2, 3).double()
    recording = gs.record(gs.Recurrent([[cell]]), x, jacobian=True)
    got = gs.validate(recording, values=True).step_jacobian
    assert got.dims == ("layer", "direction", "sequence", "time", "target_state", "source_state")
    np.testing.assert_allclose(got.values[0, 0], by_autograd(cell, x, recording), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN], ids=lambda kind: kind.__name__)
def test_fused_modules_have_them_in_all_layers_and_directions_and_none_in_padding(kind):
    torch.manual_seed(0)
    model = kind(3, 4, num_layers=2, bidirectional=True).double()
    x = pack_padded_sequence(torch.randn(6, 3, 3).double(), torch.tensor([4, 6, 2]), enforce_sorted=False)
    recording = gs.validate(gs.record(model, x, jacobian=True), values=True)
    states = [name for name in ("hidden_state", "cell_state") if name in recording]
    twin = gs.from_torch(model)
    lengths, initial = [4, 6, 2], torch.zeros(4).double()
    compared = 0
    below = torch.nn.utils.rnn.pad_packed_sequence(x)[0]
    for layer in range(2):
        for direction, cell in enumerate(twin.cells[layer]):
            part = recording.isel(layer=layer, direction=direction)
            for sequence, length in enumerate(lengths):
                for time in range(length):
                    before = time + 1 if direction else time - 1
                    rows = [part[n].values[sequence, before] if 0 <= before < length else initial for n in states]
                    state = tuple(torch.as_tensor(row) for row in rows)
                    now = below[time, sequence]
                    blocks = torch.autograd.functional.jacobian(partial(stepped, cell, now), state)
                    true = torch.cat([torch.cat(row, -1) for row in blocks]).numpy()
                    got = part.step_jacobian.values[sequence, time]
                    np.testing.assert_allclose(got, true, rtol=0, atol=1e-12)
                    compared += 1
        hidden = recording.hidden_state.isel(layer=layer).transpose("time", "sequence", "direction", "unit")
        below = torch.nan_to_num(torch.tensor(hidden.values.reshape(6, 3, 8)))
    assert compared == 2 * 2 * 12


def test_memory_is_bounded_by_blocks_that_change_nothing(monkeypatch):
    torch.manual_seed(0)
    model, x = nn.LSTM(3, 4), torch.randn(50, 2, 3)
    whole = gs.record(model, x, jacobian=True).step_jacobian
    sizes = []
    jacobian = step_jacobian.jacobian
    monkeypatch.setattr(step_jacobian, "BLOCK_BYTES", 8000)
    monkeypatch.setattr(step_jacobian, "jacobian", lambda cell, x, s: (sizes.append(len(x)), jacobian(cell, x, s))[1])
    np.testing.assert_allclose(gs.record(model, x, jacobian=True).step_jacobian, whole, rtol=0, atol=1e-6)
    assert 1 <= max(sizes) < 10
    assert sum(sizes) == 100


@pytest.mark.parametrize("name", ["run.zarr", "run.nc"])
def test_it_outlives_a_file_and_joining(tmp_path, name):
    torch.manual_seed(0)
    recording = gs.record(nn.GRU(3, 4), torch.randn(5, 2, 3), jacobian=True)
    gs.save_recording(recording, tmp_path / name)
    with gs.open_recording(tmp_path / name) as again:
        np.testing.assert_array_equal(gs.validate(again, values=True).step_jacobian, recording.step_jacobian)
        assert again.step_jacobian.attrs["states"] == "hidden_state 0:4"
    other = gs.record(nn.GRU(3, 4), torch.randn(7, 1, 3), jacobian=True)
    joined = gs.validate(gs.concat([recording, other]), values=True)
    np.testing.assert_array_equal(joined.step_jacobian[:, :, 2], other.step_jacobian[:, :, 0])


def test_signals_that_were_not_asked_for_are_not_kept():
    recording = gs.record(nn.LSTM(3, 4), torch.randn(5, 2, 3), signals=["forget_gate"], jacobian=True)
    assert set(recording.data_vars) >= {"forget_gate", "step_jacobian"}
    assert "cell_state" not in recording
    assert np.isfinite(recording.step_jacobian).all()


def test_gradient_flow_is_the_same_from_the_matrices_and_from_the_factors():
    torch.manual_seed(0)
    model, x = nn.LSTM(3, 4, num_layers=2, bidirectional=True).double(), torch.randn(20, 3, 3).double()
    stored = gs.gradient_flow(gs.record(model, x, jacobian=True))
    factored = gs.gradient_flow(gs.record(model, x))
    both = [block for block in factored.block.values if block in stored.block.values]
    assert {"whole", "h->h", "c->c"} <= set(both)
    np.testing.assert_allclose(
        stored.state_norm.sel(block=both), factored.state_norm.sel(block=both), rtol=0, atol=1e-9
    )
    np.testing.assert_allclose(stored.cell_path, factored.cell_path, rtol=0, atol=1e-12)


def test_a_registered_cell_with_equations_of_its_own_has_a_gradient_flow():
    class LightCell(gs.AbstractCell):
        signals = (
            gs.Signal("update_gate", "z", "gate", (0, 1)),
            gs.Signal("hidden_state", "h", "memory", None),
        )
        retention = "update_gate"
        states = ("hidden_state",)
        gates = ("update_gate",)

        def __init__(self, module):
            super().__init__(3, 4)
            self.weight_ih, self.weight_hh = module.x.weight, module.h.weight

        def forward(self, x, state, tap=gs.signals.no_tap, remember=None):
            z = tap("update_gate", (x @ self.weight_ih.T + state[0] @ self.weight_hh.T).sigmoid())
            return (tap("hidden_state", z * state[0] + (1 - z)),)

    class Light(nn.Module):
        def __init__(self):
            super().__init__()
            self.x, self.h = nn.Linear(3, 4, bias=False), nn.Linear(4, 4, bias=False)

        def forward(self, x, h):
            z = torch.sigmoid(self.x(x) + self.h(h))
            return z * h + (1 - z)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = Light()

        def forward(self, x):
            h = torch.zeros(2, 4).double()
            for now in x:
                h = self.cell(now, h)
            return h

    gs.register(Light, LightCell)
    torch.manual_seed(0)
    model, x = Net().double(), torch.randn(12, 2, 3).double()
    with gs.attach(model, jacobian=True) as probe:
        model(x)
    recording = gs.validate(probe.recording())
    assert recording.step_jacobian.shape == (1, 1, 2, 12, 4, 4)
    flow = gs.gradient_flow(recording, horizons=[11], end=-1)
    product = np.linalg.multi_dot(recording.step_jacobian.values[0, 0, 0, :0:-1])
    both = [
        np.log10(np.linalg.norm(np.linalg.multi_dot(recording.step_jacobian.values[0, 0, s, :0:-1]))) for s in (0, 1)
    ]
    assert np.log10(np.linalg.norm(product)) == pytest.approx(both[0])
    got = flow.state_norm.sel(norm="frobenius", block="whole", horizon=11).values
    assert min(both) - 1e-9 <= got.min() <= got.max() <= max(both) + 1e-9


def test_a_wish_that_memory_cannot_hold_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"jacobian=True keeps a matrix of every step in memory; store= came too"):
        gs.attach(nn.GRU(3, 4), jacobian=True, store=tmp_path / "run.zarr")
    with pytest.raises(ValueError, match="statistics=True came too"):
        gs.attach(nn.GRU(3, 4), jacobian=True, statistics=True)


def test_a_jacobian_with_other_dimensions_is_no_part_of_a_recording():
    recording = gs.record(nn.GRU(3, 4), torch.randn(5, 2, 3), jacobian=True)
    with pytest.raises(
        gs.SchemaError, match="'step_jacobian' must have dimensions layer, direction, sequence, time, targ"
    ):
        gs.validate(recording.assign(step_jacobian=recording.step_jacobian.isel(target_state=0)))


def test_the_model_is_not_changed_and_computes_the_same():
    torch.manual_seed(0)
    model, x = nn.LSTM(3, 4), torch.randn(5, 2, 3, requires_grad=True)
    model(x)[0].sum().backward()
    bare = x.grad.clone()
    x.grad = None
    with gs.attach(model, jacobian=True):
        model(x)[0].sum().backward()
    assert torch.equal(x.grad, bare)
