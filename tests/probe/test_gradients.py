"""Gradients at every step, against autograd on the same network unrolled in the open."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import gatescope as gs
from gatescope.cells import GRUCell, LSTMCell, RNNCell
from gatescope.probe.gradients import ADJOINTS, Run, by_autograd

LENGTHS = torch.tensor([5, 7, 2])
FORMS = {
    "one layer": {},
    "two layers": {"num_layers": 2},
    "three layers in both directions": {"num_layers": 3, "bidirectional": True},
    "batch first": {"num_layers": 2, "bidirectional": True, "batch_first": True},
}
KINDS = {
    "LSTM": lambda **form: nn.LSTM(4, 5, **form),
    "LSTM with projection": lambda **form: nn.LSTM(4, 5, proj_size=3, **form),
    "GRU": lambda **form: nn.GRU(4, 5, **form),
    "RNN tanh": lambda **form: nn.RNN(4, 5, **form),
    "RNN relu": lambda **form: nn.RNN(4, 5, nonlinearity="relu", **form),
}


def loss_of(output, state):
    torch.manual_seed(7)
    shown = output if isinstance(output, torch.Tensor) else output.data  # of a packed output
    ends = [shown, *(state if isinstance(state, tuple) else (state,))]
    return sum((end * torch.randn_like(end)).sum() for end in ends)


def unrolled(model, x):
    """(name, layer, direction, time) -> the tensor of an open twin whose `.grad` is the truth."""
    found = {}

    def tap(name, value, *, layer, direction, time):
        if name in ("hidden_state", "cell_state"):
            value.retain_grad()
            found[name, layer, direction, time] = value
        return value

    loss_of(*gs.from_torch(model)(x, tap=tap)).backward()
    return found


def assert_true(recording, model, x):
    compared = 0
    for (name, layer, direction, time), value in unrolled(model, x).items():
        got = recording[f"{name}_gradient"].sel(layer=layer, direction=direction, time=time).values
        real = ~np.isnan(got)
        true = torch.zeros_like(value) if value.grad is None else value.grad
        np.testing.assert_allclose(got[real], true.numpy()[real], rtol=0, atol=1e-12)
        compared += int(real.sum())
    assert compared > 0


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_recorded_gradients_are_those_of_the_unrolled_network(kind, form, packed):
    torch.manual_seed(0)
    model = kind(**form).double()
    x = torch.randn(7, 3, 4).double()
    first = form.get("batch_first", False)
    x = x.transpose(0, 1) if first else x
    x = pack_padded_sequence(x, LENGTHS, batch_first=first, enforce_sorted=False) if packed else x
    with gs.attach(model, gradients=True) as probe:
        loss_of(*model(x)).backward()
    assert_true(gs.validate(probe.recording(), values=True), model, x)


def test_a_loss_on_the_last_step_reaches_the_first_where_the_gradient_of_the_output_is_zero():
    torch.manual_seed(0)
    model = nn.LSTM(4, 5)
    with gs.attach(model, gradients=True) as probe:
        output, _ = model(torch.randn(6, 1, 4))
        output.retain_grad()
        output[-1].sum().backward()
    sizes = np.abs(probe.recording().hidden_state_gradient).max("unit").squeeze()
    assert (sizes > 0).all()
    assert (output.grad[:-1] == 0).all()


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_a_loop_of_cells_gives_the_gradients_of_the_stack(cell):
    torch.manual_seed(0)
    loop = cell(4, 5).double()
    stack = {nn.LSTMCell: nn.LSTM, nn.GRUCell: nn.GRU, nn.RNNCell: nn.RNN}[cell](4, 5).double()
    stack.load_state_dict({f"{name}_l0": value for name, value in loop.state_dict().items()})
    x, weight = torch.randn(7, 3, 4).double(), torch.arange(1.0, 8).double()
    with gs.attach(loop, gradients=True) as probe:
        state, loss = None, 0.0
        for now, w in zip(x, weight, strict=True):
            state = loop(now, state)
            loss = loss + w * (state[0] if isinstance(state, tuple) else state).sum()
        loss.backward()
    with gs.attach(stack, gradients=True) as fused:
        (stack(x)[0] * weight[:, None, None]).sum().backward()
    ours, theirs = probe.recording(), fused.recording()
    names = [name for name in theirs.data_vars if name.endswith("_gradient")]
    assert len(names) == len(gs.from_torch(loop).states)
    for name in names:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-12, err_msg=name)


def test_dropout_between_layers_is_that_of_the_call():
    torch.manual_seed(0)
    model = nn.LSTM(4, 5, num_layers=2, dropout=0.5).double()
    x = torch.randn(7, 3, 4).double()
    torch.manual_seed(3)
    with gs.attach(model, gradients=True) as probe:
        loss_of(*model(x)).backward()
    torch.manual_seed(3)
    assert_true(probe.recording(), model, x)


@pytest.mark.parametrize(
    "cell",
    [LSTMCell(3, 5), LSTMCell(3, 5, proj_size=2), GRUCell(3, 5), RNNCell(3, 5), RNNCell(3, 5, nonlinearity="relu")],
    ids=["LSTM", "projection", "GRU", "RNN tanh", "RNN relu"],
)
def test_the_adjoint_by_hand_is_that_of_autograd_step_by_step(cell):
    torch.manual_seed(0)
    cell = cell.double()
    lengths = torch.tensor([11, 4, 1, 7])
    real = (torch.arange(11)[:, None] < lengths).unsqueeze(-1)
    before, partial = (torch.randn(11, 4, cell.output_size).double() for _ in range(2))
    initial, *rest = (torch.randn(4, size).double() for size in cell.state_sizes)
    final = tuple(torch.randn(4, size).double() for size in cell.state_sizes)
    before[0] = initial
    run = Run(cell, torch.randn(11, 4, 3).double(), before, tuple(rest), real, partial * real, final)
    with torch.no_grad():
        ours, theirs = ADJOINTS[type(cell)](run), by_autograd(run)
    for mine, other in zip((*ours.states, ours.input), (*theirs.states, theirs.input), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


def test_the_models_own_gradients_are_bit_for_bit_those_without_a_probe():
    torch.manual_seed(0)
    model, x = nn.LSTM(4, 5, num_layers=2, bidirectional=True), torch.randn(7, 3, 4, requires_grad=True)
    loss_of(*model(x)).backward()
    bare = [x.grad.clone(), *(p.grad.clone() for p in model.parameters())]
    model.zero_grad()
    x.grad = None
    with gs.attach(model, gradients=True):
        loss_of(*model(x)).backward()
    assert all(torch.equal(a, b) for a, b in zip(bare, [x.grad, *(p.grad for p in model.parameters())], strict=True))


def test_backward_passes_add_up_and_stop_counting_when_the_block_ends():
    torch.manual_seed(0)
    model, x = nn.GRU(4, 5).double(), torch.randn(7, 3, 4).double()
    with gs.attach(model, gradients=True) as probe:
        loss = loss_of(*model(x))
        loss.backward(retain_graph=True)
        once = probe.recording().hidden_state_gradient.copy(deep=True)
        loss.backward(retain_graph=True)
    loss.backward()
    np.testing.assert_allclose(probe.recording().hidden_state_gradient, 2 * once, rtol=1e-12)


def test_calls_without_a_backward_pass_are_padded():
    model = nn.GRU(4, 5)
    with gs.attach(model, gradients=True) as probe:
        model(torch.randn(3, 2, 4))
        loss_of(*model(torch.randn(4, 1, 4))).backward()
    gradient = gs.validate(probe.recording(), values=True).hidden_state_gradient
    assert np.isnan(gradient.isel(sequence=[0, 1])).all()
    assert np.isfinite(gradient.isel(sequence=2)).all()


def test_a_block_without_a_backward_pass_says_so():
    model = nn.LSTM(4, 5)
    with (
        pytest.raises(ValueError, match=r"needs a backward pass .* 'model'; none did\. Call backward"),
        gs.attach(model, gradients=True),
        torch.no_grad(),
    ):
        model(torch.zeros(3, 2, 4))


@pytest.mark.parametrize("kind", [nn.GRU, nn.GRUCell], ids=lambda kind: kind.__name__)
def test_second_derivatives_are_right_for_cells_and_left_out_with_a_warning_for_fused_modules(kind):
    torch.manual_seed(0)
    module = kind(2, 3).double()
    x = torch.randn(1 if kind is nn.GRUCell else 4, 2, 2).double().requires_grad_()

    def penalty(output):
        (slope,) = torch.autograd.grad(output.square().sum(), x, create_graph=True)
        return slope.square().sum()

    fused = kind is nn.GRU
    with gs.attach(module, gradients=True) as probe:
        output = module(x)[0] if fused else module(x[0], module(x[0]))
        with pytest.warns(RuntimeWarning, match="create_graph=True") if fused else nullcontext():
            penalty(output).backward()
        assert x.grad is not None
    gradient = probe.recording().hidden_state_gradient.values[0, 0]
    assert np.isnan(gradient).all() == fused
    if not fused:
        first = module(x[0])
        last = module(x[0], first)
        passes = (
            torch.autograd.grad(loss, first, retain_graph=True)[0] for loss in (last.square().sum(), penalty(last))
        )
        np.testing.assert_allclose(gradient[:, 0], sum(passes), atol=1e-12)
