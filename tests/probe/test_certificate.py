"""The certificate: what is recorded is what the module computed, and what is not a number is named."""

import warnings

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import gatescope as gs
from gatescope.cells import GRUCell, LSTMCell, from_torch
from gatescope.probe import find
from gatescope.probe.stacks import TorchStack

WIDTH, UNITS, STEPS, ROWS = 3, 5, 6, 4


class Foreign(nn.Module):
    """An LSTM cell of somebody else: weights in the order output, forget, input, candidate; state (c, h)."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH + UNITS, 4 * UNITS)

    def forward(self, x, memory):
        c, h = memory
        o, f, i, g = self.inner(torch.cat([x, h], -1)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        return h, (c, h)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.decoder = nn.ModuleDict({"step": Foreign()})

    def forward(self, x):
        memory = (x.new_zeros(x.shape[0], UNITS), x.new_zeros(x.shape[0], UNITS))
        for now in x.unbind(1):
            _, memory = self.decoder["step"](now, memory)


def as_cell(module, order=(2, 1, 3, 0)):
    cell = LSTMCell(WIDTH, UNITS, bias=True, dtype=module.inner.weight.dtype)
    rows = [module.inner.weight.chunk(4)[place] for place in order]
    biases = [module.inner.bias.chunk(4)[place] for place in order]
    with torch.no_grad():
        cell.weight_ih.copy_(torch.cat(rows)[:, :WIDTH])
        cell.weight_hh.copy_(torch.cat(rows)[:, WIDTH:])
        cell.bias_ih.copy_(torch.cat(biases))
        cell.bias_hh.zero_()
    return cell


def read(args, kwargs, output):
    x, (c, h) = args
    new_c, new_h = output[1]
    return x, (h, c), (new_h, new_c)


@pytest.fixture
def registry(monkeypatch):
    """A registry of this test's own."""
    monkeypatch.setattr(find, "_registered", {})


@pytest.fixture
def x():
    return torch.randn(ROWS, STEPS, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def test_a_registered_cell_is_recorded_as_the_cell_it_is(registry, x, reference):
    torch.manual_seed(0)
    gs.register(Foreign, as_cell, read=read)
    model = Net().double()
    recording = gs.validate(gs.record(model, x, preactivations=True), values=True)
    expected = reference.unroll_cell(gs.to_torch(as_cell(model.decoder["step"])), reference.as_array(x))
    reference.assert_recorded(recording, expected, 1e-12)
    assert (recording.attrs["module"], recording.attrs["cell"]) == ("decoder.step", "LSTMCell")
    assert recording.length.values.tolist() == [STEPS] * ROWS


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 1, 0, 3), (1, 2, 3, 0)], ids=str)
def test_a_wrong_gate_order_is_named_with_module_layer_and_size(registry, x, order):
    torch.manual_seed(0)
    gs.register(Foreign, lambda module: as_cell(module, order), read=read)
    with pytest.raises(gs.ParityError, match=r"'decoder.step', layer 0") as caught:
        gs.record(Net().double(), x)
    message = str(caught.value)
    assert "LSTMCell" in message
    assert "0.0001" in message
    assert "\n" not in message
    difference = float(message.split("differ by ")[1].split()[0])
    assert 1e-4 < difference < 10


def test_a_registered_cells_weights_are_read_again_when_they_change(registry, x):
    torch.manual_seed(0)
    gs.register(Foreign, as_cell, read=read)
    model = Net().double()
    with gs.attach(model) as probe:
        model(x)
        with torch.no_grad():
            model.decoder["step"].inner.weight.mul_(1.5)
        model(x)
    assert probe.recording().parity < 1e-12
    assert "weights_changed" in probe.recording().attrs


def test_a_conversion_into_something_else_is_refused(registry, x):
    gs.register(Foreign, lambda module: module.inner, read=read)
    with pytest.raises(TypeError, match="as_cell must return a gatescope cell; Linear came") as caught:
        gs.record(Net().double(), x)
    assert "'decoder.step'" in str(caught.value)


def test_a_conversion_into_another_equation_is_caught(registry, x):
    torch.manual_seed(0)

    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRUCell(WIDTH, UNITS)

        def forward(self, x, h):
            return self.gru(x, h) * 0.99

    gs.register(Mine, lambda module: from_torch(module.gru))
    model = Mine().double()
    with pytest.raises(gs.ParityError, match="GRUCell"), gs.attach(model):
        model(x[:, 0], x.new_ones(ROWS, UNITS))


def test_a_class_that_is_no_module_is_refused():
    with pytest.raises(TypeError, match=r"cls must be a subclass of torch.nn.Module; .* came"):
        gs.register(Foreign(), as_cell)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN], ids=lambda k: k.__name__)
def test_parity_is_small_and_positive_for_torchs_own_modules(kind):
    torch.manual_seed(0)
    recording = gs.record(kind(WIDTH, 32, num_layers=2, bidirectional=True), torch.randn(50, 3, WIDTH))
    assert 0 < recording.parity < 2e-6


def test_a_tolerance_below_the_rounding_of_float32_is_not_met():
    torch.manual_seed(0)
    with pytest.raises(gs.ParityError, match="within 1e-12"):
        gs.record(nn.LSTM(WIDTH, 32), torch.randn(50, 3, WIDTH), tolerance=1e-12)


@pytest.mark.parametrize("tolerance", [0, -1, float("nan"), "small", None], ids=repr)
def test_a_tolerance_that_is_no_positive_number_is_refused(tolerance):
    with pytest.raises(ValueError, match="tolerance must be a number above 0"):
        gs.attach(nn.LSTM(WIDTH, UNITS), tolerance=tolerance)


def test_the_layer_and_direction_that_differ_are_named(x, monkeypatch):
    rebuilt_cells = TorchStack.cells

    def with_one_wrong(self):
        cells = rebuilt_cells(self)
        cells[1][1]._parameters["weight_hh"] = -cells[1][1]._parameters["weight_hh"]
        return cells

    torch.manual_seed(0)
    model = nn.Sequential(nn.Identity(), nn.LSTM(WIDTH, UNITS, num_layers=2, bidirectional=True).double())
    monkeypatch.setattr(TorchStack, "cells", with_one_wrong)
    with pytest.raises(gs.ParityError, match="'1', layer 1, backward"):
        gs.record(model, x)


SPOILERS = {"NaN": float("nan"), "Inf": float("inf"), "-Inf": -float("inf")}
STACKS = {
    "LSTM": nn.LSTM,
    "GRU": nn.GRU,
    "RNN": nn.RNN,
    "relu": lambda *a, **k: nn.RNN(*a, nonlinearity="relu", **k),
}


def quiet(probe_or_call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return probe_or_call()


@pytest.mark.parametrize("value", SPOILERS.values(), ids=SPOILERS.keys())
@pytest.mark.parametrize("kind", STACKS.values(), ids=STACKS.keys())
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_a_spoiled_sequence_is_named_and_the_others_are_those_of_a_clean_run(x, kind, value, packed):
    torch.manual_seed(0)
    model = kind(WIDTH, UNITS, num_layers=2, batch_first=True).double()
    spoiled = x.clone()
    spoiled[2, 3, 1] = value

    def form(x):
        return (
            pack_padded_sequence(x, torch.tensor([2, 6, 5, 1]), batch_first=True, enforce_sorted=False) if packed else x
        )

    clean = gs.record(model, form(x))
    recording = quiet(lambda: gs.record(model, form(spoiled)))
    bad = bool((~np.isfinite(recording.hidden_state.values[:, :, 2, : int(recording.length[2])])).any())
    with (pytest.warns if bad else _no_warning)(RuntimeWarning):
        again = gs.record(model, form(spoiled))
    gs.validate(again, values=True)
    recording = recording.drop_vars("retention_zeros", errors="ignore")  # of the spoiled sequence
    others = {"sequence": [0, 1, 3]}
    xr.testing.assert_equal(recording.isel(others), clean.isel(others))
    xr.testing.assert_equal(recording.isel(time=slice(0, 3)), clean.isel(time=slice(0, 3)))
    assert recording.parity < 1e-12
    if bad:
        assert recording.nonfinite.startswith("NaN or Inf in 1 of 4 sequences, first at step 3 of sequence 2 in layer")
    else:
        assert "nonfinite" not in recording.attrs


def _no_warning(kind):
    return warnings.catch_warnings()


def test_nan_weights_name_the_layer_that_they_stand_in(x):
    torch.manual_seed(0)
    model = nn.LSTM(WIDTH, UNITS, num_layers=3, batch_first=True).double()
    with torch.no_grad():
        model.weight_ih_l1[0, 0] = float("nan")
    with pytest.warns(RuntimeWarning, match="first at step 0 of sequence 0 in layer 1, forward") as caught:
        recording = gs.record(model, x)
    assert "'model' computed NaN or Inf in 4 of 4 sequences" in str(caught[0].message)
    gs.validate(recording, values=True)
    assert bool(np.isfinite(recording.hidden_state.sel(layer=0)).all())


def test_nan_reaches_backwards_from_its_step_in_the_backward_direction(x):
    torch.manual_seed(0)
    model = nn.GRU(WIDTH, UNITS, bidirectional=True, batch_first=True).double()
    x[1, 3] = float("nan")
    with pytest.warns(RuntimeWarning, match="first at step 0 of sequence 1 in layer 0, backward"):
        recording = gs.record(model, x)
    finite = np.isfinite(recording.hidden_state.values[0, :, 1]).all(-1)
    assert finite.tolist() == [[True] * 3 + [False] * 3, [False] * 4 + [True] * 2]


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_an_infinite_memory_is_named_though_all_that_is_shown_is_finite(x, packed):
    torch.manual_seed(0)
    model = nn.LSTM(WIDTH, UNITS, batch_first=True).double()
    h, c = x.new_zeros(1, ROWS, UNITS), x.new_zeros(1, ROWS, UNITS)
    c[0, 0, 1] = float("inf")
    read = pack_padded_sequence(x, torch.tensor([2, 6, 5, 1]), batch_first=True, enforce_sorted=False) if packed else x
    clean = gs.record(model, read, (h, h))
    with pytest.warns(RuntimeWarning, match="1 of 4 sequences, first at step 0 of sequence 0 in layer 0, forward"):
        recording = gs.record(model, read, (h, c))
    assert not np.isfinite(recording.cell_state.values[0, 0, 0, 0, 1])
    others = {"sequence": [1, 2, 3]}
    xr.testing.assert_equal(recording.isel(others), clean.isel(others))


def test_nan_in_a_loop_of_cells_is_named_by_the_step_of_its_sequence(x):
    torch.manual_seed(0)
    cell = nn.LSTMCell(WIDTH, UNITS).double()
    x[3, 4] = float("nan")
    with gs.attach(cell) as probe:
        state = None
        for now in x.unbind(1):
            state = cell(now, state)
    with pytest.warns(RuntimeWarning, match="1 of 4 sequences, first at step 4 of sequence 3 in layer 0, forward"):
        recording = probe.recording()
    assert recording.length.values.tolist() == [STEPS] * ROWS


def test_nan_in_the_padding_of_an_unpacked_batch_is_nobodys_matter(x):
    torch.manual_seed(0)
    model = nn.GRU(WIDTH, UNITS, batch_first=True).double()
    x[1, 4:] = float("nan")
    recording = gs.record(model, x, lengths=[6, 4, 6, 6])
    assert "nonfinite" not in recording.attrs
    gs.validate(recording, values=True)


def test_a_spoiled_sequence_does_not_hide_a_wrong_conversion_in_the_others(registry, x):
    torch.manual_seed(0)
    gs.register(Foreign, lambda module: as_cell(module, (0, 1, 2, 3)), read=read)
    x[0] = float("nan")
    with pytest.raises(gs.ParityError):
        gs.record(Net().double(), x)


def test_large_memories_are_certified_relative_to_their_size():
    torch.manual_seed(0)
    model = nn.LSTM(1, UNITS)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.bias_ih_l0[:] = 12.0  # all gates open, candidate 1: c counts the steps
    recording = gs.record(model, torch.zeros(800, 1, 1))
    assert float(recording.cell_state[..., -1, :].min()) > 700
    assert recording.parity < 1e-4


def test_open_gru_cells_are_certified_in_a_loop(x):
    torch.manual_seed(0)
    cell = GRUCell(WIDTH, UNITS).double()
    with gs.attach(cell) as probe:
        state = (x.new_zeros(ROWS, UNITS),)
        for now in x.unbind(1):
            state = cell(now, state)
    assert probe.recording().parity < 1e-12
