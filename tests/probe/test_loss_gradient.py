"""The gradient of a loss at every state, against autograd on the same network unrolled in the open."""

import math
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import gatescope as gs

LENGTHS = torch.tensor([5, 7, 2])
FORMS = {
    "one layer": {},
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


def loss_of(result):
    output, state = result
    generator = torch.Generator().manual_seed(7)
    ends = [
        output if isinstance(output, torch.Tensor) else output.data,
        *(state if isinstance(state, tuple) else (state,)),
    ]
    return sum((end * torch.randn(end.shape, generator=generator, dtype=end.dtype)).sum() for end in ends)


def last_step(result):
    return result[0][-1].sum()


def unrolled(model, x, loss=loss_of):
    """(name, layer, direction, time) -> the tensor of an open twin whose `.grad` is the truth."""
    found = {}

    def tap(name, value, *, layer, direction, time):
        if name in ("hidden_state", "cell_state") or name.endswith("_preactivation"):
            value.retain_grad()
            found[name, layer, direction, time] = value
        return value

    loss(gs.from_torch(model)(x, tap=tap)).backward()
    return found


def log10_norm(gradient):
    with np.errstate(divide="ignore"):
        return np.log10(np.linalg.norm(gradient, axis=-1))


def assert_true(found, model, x, loss=loss_of):
    compared = 0
    for (name, layer, direction, time), value in unrolled(model, x, loss).items():
        true = torch.zeros_like(value) if value.grad is None else value.grad
        place = {"layer": layer, "direction": direction, "time": time}
        real = ~np.isnan(found.gradient_norm.sel(state="hidden_state", **place).values)
        if name in found.state.values:
            got = found[f"{name}_gradient"].sel(**place).values
            np.testing.assert_allclose(got[real], true.numpy()[real], rtol=0, atol=1e-12)
            norm = found.gradient_norm.sel(state=name, **place).values
        else:
            gate = "hidden_state" if name == "hidden_state_preactivation" else name.removesuffix("_preactivation")
            norm = found.gate_norm.sel(gate=gate, **place).values
        np.testing.assert_allclose(norm[real], log10_norm(true.numpy())[real], rtol=0, atol=1e-11, err_msg=name)
        compared += int(real.sum())
    assert compared > 0


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_gradients_and_norms_are_those_of_the_unrolled_network(kind, form, packed):
    torch.manual_seed(0)
    model = kind(**form).double()
    x = torch.randn(7, 3, 4).double()
    first = form.get("batch_first", False)
    x = x.transpose(0, 1) if first else x
    x = pack_padded_sequence(x, LENGTHS, batch_first=first, enforce_sorted=False) if packed else x
    assert_true(gs.loss_gradient(model, x, loss_of), model, x)


def test_gradients_far_beyond_a_block_are_those_of_the_unrolled_network():
    torch.manual_seed(0)
    model, x = nn.LSTM(4, 5, num_layers=2).double(), torch.randn(150, 2, 4).double()
    assert_true(gs.loss_gradient(model, x, last_step), model, x, last_step)


def test_finite_differences_of_the_initial_state_agree():
    torch.manual_seed(0)
    model, x = nn.LSTM(3, 4).double(), torch.randn(6, 1, 3).double()
    run = [torch.zeros(1, 1, 4).double() for _ in range(2)]
    before = model(x[:2], tuple(run))[1]  # the states after step 1
    found = gs.loss_gradient(model, x, last_step)
    for place, name in enumerate(("hidden_state", "cell_state")):
        for unit in range(4):
            moved = []
            for step in (1e-6, -1e-6):
                state = [entry.detach().clone() for entry in before]
                state[place][0, 0, unit] += step
                moved.append(float(last_step(model(x[2:], tuple(state))).detach()))
            slope = (moved[0] - moved[1]) / 2e-6
            got = found[f"{name}_gradient"].values[0, 0, 0, 1, unit]
            if name == "hidden_state":
                assert got == pytest.approx(slope, abs=1e-8)
            else:  # a memory also shows itself at the same step, and that reaches the next
                hidden = found["hidden_state_gradient"].values[0, 0, 0, 1, unit]
                recording = gs.record(model, x).isel(layer=0, direction=0, sequence=0, time=1, unit=unit)
                shown = float(recording.output_gate * (1 - np.tanh(recording.cell_state) ** 2))
                assert got == pytest.approx(slope + shown * hidden, abs=1e-8)


def halving(dtype=torch.float32, factor=0.1):
    """`h_t = relu(factor h_{t-1} + x)`: the gradient is a power of the factor."""
    rnn = nn.RNN(1, 1, nonlinearity="relu", bias=False)
    for weight, value in zip(rnn.parameters(), (1.0, factor), strict=True):
        nn.init.constant_(weight, value)
    return rnn.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_of_ten_to_the_minus_999_is_that(dtype):
    found = gs.loss_gradient(halving(dtype), torch.ones(1000, 1, 1, dtype=dtype), last_step)
    norms = found.gradient_norm.values.ravel()
    exact = math.log10(float(torch.tensor(0.1)))
    atol = 1e-4 if dtype is torch.float32 else 1e-9
    np.testing.assert_allclose(norms, exact * np.arange(999, -1, -1), rtol=0, atol=atol)
    assert found.hidden_state_gradient.dtype == np.float64
    assert found.hidden_state_gradient.values.ravel()[-101] == pytest.approx(10 ** (100 * exact))


def test_an_lstm_in_float32_far_beyond_its_range_agrees_with_float64():
    torch.manual_seed(0)
    model, x = nn.LSTM(4, 8, num_layers=2), torch.randn(400, 2, 4)
    small = gs.loss_gradient(model, x, last_step)
    exact = gs.loss_gradient(model.double(), x.double(), last_step)
    assert exact.gradient_norm.min() < -60
    for name in ("gradient_norm", "gate_norm", "profile", "depth_norm", "input_norm"):
        np.testing.assert_allclose(small[name], exact[name], rtol=0, atol=2e-3, err_msg=name)


def test_explosions_are_carried_too():
    rnn = nn.RNN(1, 1, bias=False)
    for weight in rnn.parameters():
        nn.init.constant_(weight, 4.0)
    found = gs.loss_gradient(rnn, torch.zeros(300, 1, 1), last_step)  # tanh has slope 1 at 0
    np.testing.assert_allclose(found.gradient_norm.values.ravel(), math.log10(4) * np.arange(299, -1, -1), atol=1e-9)


def test_losses_of_very_different_size_at_different_steps_are_added_where_they_meet():
    weights = torch.tensor([0.0, 1e-30, 0.0, 1e30, 0.0])
    found = gs.loss_gradient(halving(factor=1e-25), torch.ones(5, 1, 1), lambda r: (weights * r[0].flatten()).sum())
    factor = float(torch.tensor(1e-25))
    third = 1e30
    second = third * factor
    first = 1e-30 + second * factor
    expected = [first * factor, first, second, third]
    np.testing.assert_allclose(found.gradient_norm.values.ravel()[:4], np.log10(expected), rtol=0, atol=1e-5)
    assert found.gradient_norm.values.ravel()[4] == -np.inf


def test_distance_counts_back_from_the_last_step_that_the_loss_reaches_in_either_direction():
    model, x = nn.GRU(3, 4, bidirectional=True), torch.randn(6, 2, 3)
    found = gs.loss_gradient(model, x, lambda r: r[0][3].sum())
    forward, backward = found.distance.isel(sequence=0).values
    np.testing.assert_array_equal(forward, [3, 2, 1, 0, np.nan, np.nan])
    np.testing.assert_array_equal(backward, [np.nan, np.nan, np.nan, 0, 1, 2])
    behind = found.gradient_norm.sel(direction="forward", time=[4, 5])
    assert (behind == -np.inf).all()


def test_the_profile_is_the_norm_at_that_distance():
    torch.manual_seed(0)
    model, x = nn.LSTM(3, 4), torch.randn(6, 1, 3)
    found = gs.loss_gradient(model, x, last_step)
    profile = found.profile.sel(quantity="cell_state", layer=0, direction="forward", quantile=0.5).values
    norms = found.gradient_norm.sel(state="cell_state").values.ravel()
    np.testing.assert_array_equal(profile, norms[::-1])


def test_what_arrives_from_outside_is_the_partial_derivative():
    torch.manual_seed(0)
    model, x = nn.LSTM(3, 4).double(), torch.randn(6, 2, 3).double()
    found = gs.loss_gradient(model, x, lambda result: (result[0] ** 2)[2:5].sum())
    partial = 2 * model(x)[0].detach().numpy().transpose(1, 0, 2)
    partial[:, [0, 1, 5]] = 0
    np.testing.assert_allclose(found.arriving_norm.values[0, 0], log10_norm(partial), rtol=0, atol=1e-12)


def test_depth_norms_sum_up_what_the_steps_of_a_layer_hold():
    torch.manual_seed(0)
    model, x = nn.GRU(3, 4, num_layers=3, bidirectional=True).double(), torch.randn(6, 2, 3).double()
    x.requires_grad_()
    found = gs.loss_gradient(model, x, loss_of)
    squares = (found.hidden_state_gradient**2).sum(["direction", "time", "unit"])
    np.testing.assert_allclose(found.depth_norm, np.log10(np.sqrt(squares)), rtol=0, atol=1e-12)
    loss_of(model(x)).backward()
    np.testing.assert_allclose(
        found.input_norm.sel(layer=0), log10_norm(x.grad.transpose(0, 1).flatten(1).numpy()), rtol=0, atol=1e-12
    )


class Loop(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state, shown = None, []
        for now in x:
            if state is None and isinstance(self.cell, gs.AbstractCell):
                state = self.cell.zero_state(now, now.shape[:1])
            state = self.cell(now, state)
            shown.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(shown)


CELLS = {
    "LSTMCell": nn.LSTMCell(4, 5),
    "GRUCell": nn.GRUCell(4, 5),
    "RNNCell": nn.RNNCell(4, 5),
    "own LSTM": gs.LSTMCell(4, 5),
    "own peephole LSTM": gs.PeepholeLSTMCell(4, 5),
    "own FGR": gs.PeepholeLSTMCell(4, 5, variant="FGR"),
    "own 1997": gs.cells.MemoryBlockCell(4, blocks=2, size=2, forget="none"),
}


@pytest.mark.parametrize("cell", CELLS.values(), ids=CELLS)
def test_a_loop_of_cells_gives_the_gradients_of_the_stack(cell):
    torch.manual_seed(0)
    loop, x = Loop(cell).double(), torch.randn(7, 3, 4).double()
    if isinstance(cell, gs.AbstractCell):
        stack = gs.Recurrent([[cell]])
    else:
        stack = {nn.LSTMCell: nn.LSTM, nn.GRUCell: nn.GRU, nn.RNNCell: nn.RNN}[type(cell)](4, 5).double()
        stack.load_state_dict({f"{name}_l0": value for name, value in cell.state_dict().items()})
    weight = torch.arange(1.0, 8).double()[:, None, None]
    ours = gs.loss_gradient(loop, x, lambda shown: (shown * weight).sum())
    theirs = gs.loss_gradient(stack, x, lambda result: (result[0] * weight).sum())
    assert ours.sizes["time"] == 7
    for name in [f"{state}_gradient" for state in ours.state.values] + ["gradient_norm", "gate_norm", "profile"]:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-11, err_msg=name)
    np.testing.assert_array_equal(ours.distance, theirs.distance)


def test_norms_that_autograd_cannot_hold_in_a_loop_of_cells_are_unknown_and_said_to_be():
    cell = nn.RNNCell(1, 1, nonlinearity="relu", bias=False)
    for weight, value in zip(cell.parameters(), (1.0, 0.1), strict=True):
        nn.init.constant_(weight, value)
    found = gs.loss_gradient(Loop(cell), torch.ones(100, 1, 1), lambda shown: shown[-3].sum())
    norms = found.gradient_norm.values.ravel()
    np.testing.assert_allclose(norms[61:98], -np.arange(36.0, -1, -1), atol=1e-4)
    assert np.isnan(norms[:61]).all()
    assert (norms[98:] == -np.inf).all()
    assert found.attrs["underflow"].startswith("at 61 steps the gradient is too small")


def test_dropout_between_layers_is_that_of_the_call():
    torch.manual_seed(0)
    model, x = nn.LSTM(4, 5, num_layers=2, dropout=0.5).double(), torch.randn(7, 3, 4).double()
    torch.manual_seed(3)
    found = gs.loss_gradient(model, x, loss_of)
    torch.manual_seed(3)
    assert_true(found, model, x)


class Tagger(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.rnn = nn.LSTM(4, 5, num_layers=2, batch_first=True, dropout=dropout)
        self.norm = nn.BatchNorm1d(5)
        self.head = nn.Linear(5, 3)

    def forward(self, letters, lengths=None, scale=1.0):
        x = self.embedding(letters) * scale
        if lengths is not None:
            x = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, _ = self.rnn(x)
        if lengths is not None:
            output, _ = pad_packed_sequence(output, batch_first=True)
        return self.head(self.norm(output[:, -1]))


LETTERS = torch.tensor([[1, 2, 3, 4, 5, 0, 0], [1, 2, 3, 4, 5, 6, 7], [8, 2, 0, 0, 0, 0, 0]])


def everything(model):
    return {
        "parameters": [(p.tolist(), p.requires_grad, str(p.grad)) for p in model.parameters()],
        "buffers": [b.clone() for b in model.buffers()],
        "modes": [m.training for m in model.modules()],
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()],
        "random": torch.get_rng_state(),
        "modes of torch": torch._C._len_torch_function_stack(),
        "grad mode": torch.is_grad_enabled(),
    }


def assert_same(before, after):
    assert before["parameters"] == after["parameters"]
    assert all(torch.equal(a, b) for a, b in zip(before["buffers"], after["buffers"], strict=True))
    assert torch.equal(before.pop("random"), after.pop("random"))
    assert {k: before[k] for k in ("modes", "hooks", "modes of torch", "grad mode")} == {
        k: after[k] for k in ("modes", "hooks", "modes of torch", "grad mode")
    }


@pytest.mark.parametrize("fails", [False, True], ids=["success", "error"])
@pytest.mark.parametrize("frozen", [False, True], ids=["trainable", "frozen"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
def test_the_model_is_left_as_it_was(training, frozen, fails):
    torch.manual_seed(0)
    model = Tagger(dropout=0.5).train(training)
    model(LETTERS).sum().backward()
    model.requires_grad_(not frozen)
    before = everything(model)

    def loss(output):
        if fails:
            raise KeyError("targets")
        return output.square().sum()

    with pytest.raises(KeyError, match="targets") if fails else torch.no_grad():
        found = gs.loss_gradient(model, (LETTERS, LENGTHS), loss)
        assert np.isfinite(found.gradient_norm.sel(layer=1, sequence=1)).all()
    assert_same(before, everything(model))


def test_a_loss_that_calls_backward_itself_leaves_the_gradients_of_the_parameters():
    model = Tagger()
    model(LETTERS).sum().backward()
    before = everything(model)

    def loss(output):
        output.sum().backward(retain_graph=True)
        return output.square().sum()

    gs.loss_gradient(model, (LETTERS, LENGTHS), loss)
    assert_same(before, everything(model))


def test_frozen_and_trainable_models_have_the_same_gradient_with_integer_inputs_and_named_arguments():
    torch.manual_seed(0)
    model = Tagger().eval()

    def find():
        return gs.loss_gradient(
            model, LETTERS, lambda o: o.square().sum(), module="rnn", inputs_kwargs={"lengths": LENGTHS, "scale": 2.0}
        )

    first = find()
    second = (model.requires_grad_(False), find())[1]
    np.testing.assert_array_equal(first.hidden_state_gradient, second.hidden_state_gradient)
    np.testing.assert_array_equal(first.length, LENGTHS)
    np.testing.assert_array_equal(np.isnan(first.gradient_norm.values[0, 0, 0]).sum(-1), 7 - LENGTHS.numpy())


def test_lengths_make_padding_count_for_nothing():
    found = gs.loss_gradient(Tagger().eval(), LETTERS, lambda o: o.sum(), lengths=[5, 7, 2])
    assert np.isnan(found.gradient_norm.isel(sequence=2, time=slice(2, None))).all()
    assert np.isfinite(found.gradient_norm.isel(sequence=2, time=[0, 1])).all()
    np.testing.assert_array_equal(found.distance.values[0, 2, :3], [6, 5, np.nan])  # the loss reads the padding


class Detaching(nn.Module):
    """A model with a hole: `cut` is laid on the way from the states to the output."""

    def __init__(self, cut):
        super().__init__()
        self.rnn, self.head, self.cut = nn.GRU(3, 4), nn.Linear(4, 2), cut

    def forward(self, x):
        output, state = self.rnn(x)
        return self.head(self.cut(output, state, self))


def cut_by_chunks(output, state, model):
    again, _ = model.rnn(torch.ones(2, 2, 3), state.detach())
    return again


def cut_in_place(output, state, model):
    doubled = output * 1
    with torch.no_grad():
        doubled.mul_(2)
    return doubled


def cut_by_buffer(output, state, model):
    kept = torch.zeros(2, 4)
    kept[0] = output[0, 0].data
    return output[-1] + kept


@torch.no_grad()
def quietly_doubled(values):
    return values * 2


def cut_by_no_grad(output, state, model):
    return output[-1] + quietly_doubled(output[0])


CUTS = {
    "detach": (lambda output, state, model: output[-1] + output[0].detach(), r"detach\(\)"),
    "data": (lambda output, state, model: output[-1] + output[0].data, r"\.data"),
    "no_grad": (
        lambda output, state, model: output[-1] + torch.no_grad()(lambda: output[0] * 2)(),
        r"mul\(\) under no_grad",
    ),
    "numpy": (lambda output, state, model: output[-1] * torch.from_numpy(output[0].detach().numpy()), r"numpy\(\)"),
    "item": (lambda output, state, model: output[-1] / output.max().item(), r"item\(\)"),
    "in place": (cut_in_place, r"mul_\(\) changes"),
    "through data": (lambda output, state, model: (output.data.mul_(2), output[-1])[1], r"mul_\(\) changes"),
    "a buffer": (cut_by_buffer, r"\.data"),
    "chunks": (cut_by_chunks, r"detach\(\)"),
}


@pytest.mark.parametrize(("cut", "said"), CUTS.values(), ids=CUTS)
def test_a_partial_gradient_is_refused_and_what_cut_it_is_named(cut, said):
    with pytest.raises(ValueError, match=rf"in ways that autograd sees; .*{said}.* would be partial: leave that out"):
        gs.loss_gradient(Detaching(cut), torch.randn(5, 2, 3), lambda output: output.sum())


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.detach() * 2

    @staticmethod
    def backward(ctx, gradient):
        return 2 * gradient


def logged(output, state, model):
    model.norms = [output.detach().norm(), output.data.abs().max()]
    model.carried = state.detach()
    return output[-1] + torch.zeros_like(output[0]) + output.new_ones(4)


def rounded(output, state, model):
    return output[-1] * (output[-1] > 0).float() + output[-1, :, output[0].argmax(-1)[0], None]


WHOLE = {
    "what is kept beside and not used": logged,
    "a function of the user's own": lambda output, state, model: Doubled.apply(output[-1]),
    "decisions and places": rounded,
    "checkpoints": lambda output, state, model: torch.utils.checkpoint.checkpoint(
        torch.sigmoid, output[-1], use_reentrant=False
    ),
    "in place with gradients": lambda output, state, model: output.mul_(2)[-1],
}


@pytest.mark.parametrize("way", WHOLE.values(), ids=WHOLE)
def test_a_whole_gradient_is_not_refused(way):
    torch.manual_seed(0)
    model, x = Detaching(way).double(), torch.randn(5, 2, 3).double()
    found = gs.loss_gradient(model, x, lambda output: output.sum())
    first = gs.from_torch(model.rnn)
    kept = []

    def tap(name, value, *, layer, direction, time):
        if name == "hidden_state":
            value.retain_grad()
            kept.append(value)
        return value

    output, state = first(x, tap=tap)
    model.head(way(output, state, model)).sum().backward()
    true = np.stack([value.grad.numpy() for value in kept], 1)
    np.testing.assert_allclose(found.hidden_state_gradient.values[0, 0], true, rtol=0, atol=1e-12)


class Hidden(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(3, 4)

    @torch.no_grad()
    def forward(self, x):
        return self.rnn(x)[0]


def test_a_model_under_no_grad_is_refused():
    with pytest.raises(ValueError, match=r"'rnn' with gradients on; call 0 ran under no_grad\. .*partial"):
        gs.loss_gradient(Hidden(), torch.randn(5, 2, 3), lambda output: output.sum())


def test_reads_that_make_tensors_of_their_own_are_refused():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.GRUCell(3, 4)
            self.hidden_size = 4

        def forward(self, x, h):
            return self.cell(x, h)

    def as_cell(module):
        cell = gs.GRUCell(3, 4, device="meta")
        cell.load_state_dict(module.cell.state_dict(), assign=True)
        return cell

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.odd = Odd()

        def forward(self, x):
            h = torch.zeros(2, 4)
            for now in x:
                h = self.odd(now, h)
            return h

    x = torch.randn(5, 2, 3)
    gs.register(Odd, as_cell, read=lambda args, kwargs, output: (args[0], (args[1],), (output * 1,)))
    with pytest.raises(ValueError, match=r"must be tensors that the module itself returns; .* in `read`"):
        gs.loss_gradient(Net(), x, lambda h: h.sum(), module="odd")
    gs.register(Odd, as_cell, read=lambda args, kwargs, output: (args[0], (args[1],), (output,)))
    found = gs.loss_gradient(Net(), x, lambda h: h.sum(), module="odd")
    assert np.isfinite(found.gradient_norm).all()


def test_chunks_that_hand_their_state_on_are_one_sequence_with_the_gradient_of_the_whole():
    torch.manual_seed(0)

    class Chunked(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(3, 4, num_layers=2)

        def forward(self, x):
            state = None
            for chunk in x.split(4):
                output, state = self.rnn(chunk, state)
            return output[-1]

    model, x = Chunked().double(), torch.randn(10, 2, 3).double()
    parts = gs.loss_gradient(model, x, lambda o: o.sum())
    whole = gs.loss_gradient(model.rnn, x, last_step)
    for name in ("hidden_state_gradient", "cell_state_gradient", "gradient_norm", "gate_norm", "profile", "distance"):
        np.testing.assert_allclose(parts[name], whole[name], rtol=0, atol=1e-11, err_msg=name)


def test_calls_in_other_threads_count():
    class Threaded(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(3, 4)

        def forward(self, x):
            found = []
            thread = threading.Thread(target=lambda: found.append(self.rnn(x)[0]))
            thread.start()
            thread.join()
            return found[0]

    model, x = Threaded(), torch.randn(5, 2, 3)
    found = gs.loss_gradient(model, x, lambda o: o[-1].sum())
    alone = gs.loss_gradient(model.rnn, x, last_step)
    np.testing.assert_array_equal(found.hidden_state_gradient, alone.hidden_state_gradient)


BAD = {
    "no function": (lambda m: gs.loss_gradient(m, X, 3), TypeError, "loss must be a function"),
    "a number": (lambda m: gs.loss_gradient(m, X, lambda r: 1.0), TypeError, "must give a tensor; float came"),
    "many numbers": (lambda m: gs.loss_gradient(m, X, lambda r: r[0]), ValueError, "single number; (5, 2, 4)"),
    "elsewhere": (
        lambda m: gs.loss_gradient(m, X, lambda r: torch.ones(1, requires_grad=True).sum()),
        ValueError,
        "the loss must depend on the states of 'model'; it does not",
    ),
    "no module": (lambda m: gs.loss_gradient(nn.Linear(2, 3), X, sum), ValueError, "must contain a recurrent module"),
    "an unknown module": (lambda m: gs.loss_gradient(m, X, sum, module="rnn"), ValueError, "'rnn' came. Choose from"),
    "no name": (
        lambda m: gs.loss_gradient(nn.ModuleDict({"a": nn.GRU(3, 4), "b": nn.GRU(3, 4)}), X, sum),
        ValueError,
        "module must be named where a model has several; none came. Choose from: a, b.",
    ),
    "arguments": (
        lambda m: gs.loss_gradient(m, X, sum, inputs_kwargs=3),
        TypeError,
        "inputs_kwargs must map names of arguments to their values; 3 came.",
    ),
    "tolerance": (lambda m: gs.loss_gradient(m, X, sum, tolerance=0), ValueError, "tolerance must be a number above 0"),
}
X = torch.zeros(5, 2, 3)


@pytest.mark.parametrize(("ask", "kind", "said"), BAD.values(), ids=BAD)
def test_what_cannot_be_answered_is_refused_in_one_sentence(ask, kind, said):
    with pytest.raises(kind) as error:
        ask(nn.GRU(3, 4))
    assert said in str(error.value)


def test_an_uncalled_module_is_named():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.GRU(3, 4), nn.GRU(3, 4)

        def forward(self, x):
            return self.a(x)[0]

    with pytest.raises(ValueError, match="the model must call 'b', through its module; it did not"):
        gs.loss_gradient(Two(), X, lambda o: o.sum(), module="b")


def test_a_result_without_torch_types_is_written_to_a_file(tmp_path):
    found = gs.loss_gradient(nn.LSTM(3, 4), X, last_step)
    found.to_netcdf(tmp_path / "gradient.nc", engine="h5netcdf")


def test_weights_made_under_inference_mode_are_refused_in_a_sentence():
    with torch.inference_mode():
        model = nn.LSTM(2, 3)
    with pytest.raises(ValueError, match=r"must be known to autograd; some were made under torch\.inference_mode"):
        gs.loss_gradient(model, torch.randn(4, 2, 2), lambda output: output[0].sum())


def test_a_batch_without_sequences_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="'model' must read at least one sequence; none came"):
        gs.loss_gradient(nn.LSTM(2, 3), torch.randn(4, 0, 2), lambda output: output[0].sum())
