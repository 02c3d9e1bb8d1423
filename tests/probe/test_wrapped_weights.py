"""Weights that are computed, masked or swapped, and modules that others wrap: recorded with the weights really used."""

import threading

import numpy as np
import pytest
import torch
from torch import distributed, nn
from torch.nn.utils import parametrizations, prune

import gatescope as gs
from gatescope.cells import GRUCell, LSTMCell, Recurrent

WIDTH, UNITS, STEPS, ROWS = 3, 5, 6, 2


class Loop(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state = None
        for now in x:
            state = self.cell(now, state)
        return state


class OwnLoop(Loop):
    def forward(self, x):
        state = self.cell.zero_state(x, x.shape[1:2])
        for now in x:
            state = self.cell(now, state)
        return state


def pruned(module, name):
    return prune.l1_unstructured(module, name, amount=0.5)


WAYS = {
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "pruned": pruned,
}
KINDS = {
    "LSTM": (lambda: nn.LSTM(WIDTH, UNITS), "weight_hh_l0", lambda module: module),
    "GRUCell": (lambda: nn.GRUCell(WIDTH, UNITS), "weight_hh", Loop),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_weights_that_are_computed_are_those_really_used(kind, way, training):
    make, name, wrap = kind
    x = torch.randn(STEPS, ROWS, WIDTH).double()
    pair = []
    for _ in range(2):
        torch.manual_seed(0)
        pair.append(wrap(way(make().double(), name)).train(training))
    model, twin = pair
    module = getattr(model, "cell", model)
    with gs.attach(model) as probe:
        for _ in range(2):
            ours, theirs = model(x), twin(x)
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    recording = probe.recording()
    assert recording.parity < 1e-14
    for (place, mine), other in zip(model.state_dict().items(), twin.state_dict().values(), strict=True):
        assert torch.equal(mine, other), place  # spectral norm's own iterations too
    if not training or way is not parametrizations.spectral_norm:
        used = getattr(module, name).detach().numpy().reshape(recording.weight_hh.shape)
        np.testing.assert_array_equal(recording.weight_hh, used)
        assert "weights_changed" not in recording.attrs


OWN = {
    "cell": (lambda: LSTMCell(WIDTH, UNITS), lambda cell: cell, OwnLoop),
    "stack": (lambda: Recurrent([[GRUCell(WIDTH, UNITS)]]), lambda stack: stack.first_cell, nn.Sequential),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("own", OWN.values(), ids=OWN)
def test_computed_weights_of_our_own_cells_are_not_computed_anew(own, way, training):
    make, cell_of, wrap = own
    x = torch.randn(1, ROWS, WIDTH).double()
    pair = []
    for _ in range(2):
        torch.manual_seed(0)
        module = make().double()
        way(cell_of(module), "weight_hh")
        pair.append(wrap(module).train(training))
    model, twin = pair
    with gs.attach(model, gradients=True) as probe:
        output = model(x)
        torch.testing.assert_close(output, twin(x), rtol=0, atol=0)
        output[0].sum().backward()
    for mine, other in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(mine, other)
    recording = probe.recording()
    assert recording.parity < 1e-14
    assert recording.cell in ("LSTMCell", "GRUCell")
    np.testing.assert_array_equal(recording.hidden_state_gradient, 1.0)


def test_weights_computed_in_a_thread_that_is_not_heard_are_not_computed_anew():
    x = torch.randn(STEPS, ROWS, WIDTH).double()
    pair = []
    for _ in range(2):
        torch.manual_seed(0)
        pair.append(Loop(parametrizations.spectral_norm(nn.LSTMCell(WIDTH, UNITS).double(), "weight_hh")))
    model, twin = pair
    with gs.attach(model) as probe:
        thread = threading.Thread(target=model, args=(x,))
        thread.start()
        thread.join()
    twin(x)
    for mine, other in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert torch.equal(mine, other)
    assert probe.recording().parity < 1e-14
    assert probe.recording().sizes["time"] == STEPS


def test_weights_swapped_for_a_call_are_those_of_the_recording():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.LSTM(WIDTH, UNITS)).double(), torch.randn(STEPS, ROWS, WIDTH).double()
    other = nn.Sequential(nn.LSTM(WIDTH, UNITS)).double()
    with gs.attach(model) as probe:
        torch.func.functional_call(model, dict(other.named_parameters()), (x,))
    expected = gs.record(other, x)
    for name in expected.data_vars:
        np.testing.assert_array_equal(probe.recording()[name], expected[name], err_msg=name)


def test_data_parallel_on_one_device_is_recorded_under_its_module():
    model, x = nn.DataParallel(nn.LSTM(WIDTH, UNITS)), torch.randn(STEPS, ROWS, WIDTH)
    recording = gs.record(model, x)
    assert recording.module == "module"
    np.testing.assert_array_equal(recording.hidden_state[0, 0], model(x)[0].detach().transpose(0, 1))


def test_a_replica_of_distributed_training_is_refused_by_a_sentence():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.LSTM(WIDTH, UNITS)))
        with pytest.raises(TypeError, match=r"one of several replicas .* attach to the module that it wraps"):
            gs.attach(model)
        assert "replicas" in gs.modules(model)[0].reason
        assert gs.record(model.module, torch.zeros(STEPS, ROWS, WIDTH)).module == "0"
    finally:
        distributed.destroy_process_group()
