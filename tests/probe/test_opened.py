"""Modules that run openly for a block: the same results from the same weights, and nothing left behind."""

import copy
import io
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import gatescope as gs
from gatescope.probe import find
from gatescope.probe.opened import tapped

# torch says so once in a process, of its own LSTM in single precision
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

DOUBLE = torch.float64
KINDS = {
    "LSTM": (nn.LSTM, {}),
    "projection": (nn.LSTM, {"proj_size": 2}),
    "GRU": (nn.GRU, {}),
    "RNN": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
}
OPTIONS = {
    "plain": {},
    "stacked": {"num_layers": 3, "bidirectional": True},
    "no bias": {"num_layers": 2, "bias": False},
    "dropout": {"num_layers": 3, "dropout": 0.4},
}
FORMS = ("time_first", "batch_first", "unbatched", "sorted", "unsorted")


def feed(form, dtype=DOUBLE):
    torch.manual_seed(3)
    x = torch.randn(6, 4, 3, dtype=dtype)
    if form == "batch_first":
        return x.transpose(0, 1)
    if form == "unbatched":
        return x[:, 0]
    if form == "sorted":
        return pack_padded_sequence(x, torch.tensor([6, 4, 4, 1]))
    if form == "unsorted":
        return pack_padded_sequence(x, torch.tensor([3, 6, 1, 6]), enforce_sorted=False)
    return x


def initial(module, form):
    rows = module.num_layers * (1 + module.bidirectional)
    batch = () if form == "unbatched" else (4,)
    dtype = module.weight_hh_l0.dtype
    hidden = torch.randn(rows, *batch, module.proj_size or 4, dtype=dtype, requires_grad=True)
    if not isinstance(module, nn.LSTM):
        return hidden
    return hidden, torch.randn(rows, *batch, 4, dtype=dtype, requires_grad=True)


def tensors(found):
    if isinstance(found, PackedSequence):
        return [found.data]
    if isinstance(found, torch.Tensor):
        return [found]
    return [leaf for part in found for leaf in tensors(part)]


def everything(module, x, state):
    """Outputs, last states and gradients for what came in and all weights, with the draws of one seed."""
    torch.manual_seed(5)
    results = tensors(module(x) if state is None else module(x, state))
    sources = [*module.parameters(), *(() if state is None else tensors(state))]
    loss = sum((value**2 * (1 + value)).sum() for value in results)
    return [*results, *torch.autograd.grad(loss, sources), torch.get_rng_state().double()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_values_gradients_and_random_numbers_are_those_of_the_fused_module(kind, options, form):
    cls, own = KINDS[kind]
    torch.manual_seed(0)
    module = cls(3, 4, **own, **options, batch_first=form == "batch_first", dtype=DOUBLE)
    x, state = feed(form), initial(module, form) if options else None
    fused = everything(module, x, state)
    with gs.opened(module):
        found = everything(module, x, state)
    for one, other in zip(fused, found, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() < 1e-12
    for one, other in zip(fused, everything(module, x, state), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("kind", KINDS)
def test_in_single_precision_they_agree_to_single_precision(kind):
    cls, own = KINDS[kind]
    torch.manual_seed(0)
    module = cls(3, 4, num_layers=2, bidirectional=True, **own)
    x = feed("time_first", torch.float32)
    fused = everything(module, x, None)
    with gs.opened(module):
        found = everything(module, x, None)
    assert all((one - other).abs().max() < 1e-5 for one, other in zip(fused, found, strict=True))


class Loop(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state = None
        for now in x:
            state = self.cell(now, state)
        return state


CELLS = {"LSTM": nn.LSTMCell, "GRU": nn.GRUCell, "RNN": nn.RNNCell}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", CELLS)
def test_cells_in_a_loop_give_the_same(kind, bias):
    model = Loop(CELLS[kind](3, 4, bias=bias, dtype=DOUBLE))
    for x in (feed("time_first"), feed("unbatched")):
        fused = everything(model, x, None)
        with gs.opened(model):
            found = everything(model, x, None)
        assert all((one - other).abs().max() < 1e-12 for one, other in zip(fused, found, strict=True))


def watched(model, path):
    """For a block, all names that the open equations compute."""
    names = []

    def look(name, value, **at):
        names.append(name)
        return value

    return tapped(model, {path: look}), names


def ran_openly(model, path, call):
    block, names = watched(model, path)
    with block:
        found = call()
    assert names
    return found


def normed(module):
    return parametrizations.weight_norm(module, "weight_hh_l0")


def pruned(module):
    return prune.l1_unstructured(module, "weight_hh_l0", amount=0.5)


def tied(module):
    module.weight_hh_l1 = module.weight_hh_l0
    return module


@pytest.mark.parametrize("change", [normed, pruned, tied])
def test_weights_are_those_of_the_call_and_their_sources_get_the_gradients(change):
    module = change(nn.GRU(4, 4, num_layers=2, dtype=DOUBLE))
    x = torch.randn(6, 2, 4, dtype=DOUBLE)
    fused = everything(module, x, None)
    found = ran_openly(module, "model", lambda: everything(module, x, None))
    assert all((one - other).abs().max() < 1e-12 for one, other in zip(fused, found, strict=True))


def test_weights_swapped_for_one_call_are_used_and_get_the_gradients():
    module, x = nn.LSTM(3, 4, dtype=DOUBLE), feed("time_first")
    others = {name: torch.randn_like(value, requires_grad=True) for name, value in module.named_parameters()}

    def call():
        loss = torch.func.functional_call(module, others, (x,))[0].square().sum()
        return [loss, *torch.autograd.grad(loss, list(others.values()))]

    fused = call()
    with gs.opened(module):
        found = call()
        own = module(x)[0]
    torch.testing.assert_close(found, fused, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(own, module(x)[0], rtol=0, atol=1e-12)


def test_an_optimizer_step_inside_the_block_moves_the_modules_own_weights():
    module, x = nn.LSTM(3, 4, dtype=DOUBLE), feed("time_first")
    twin = copy.deepcopy(module)
    for model, block in ((module, gs.opened(module)), (twin, gs.opened(nn.GRU(1, 1)))):
        step = torch.optim.SGD(model.parameters(), lr=0.1)
        with block:
            for _ in range(3):
                step.zero_grad()
                model(x)[0].square().sum().backward()
                step.step()
    for one, other in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


class Scaled(nn.LSTM):
    """Somebody's subclass that does something before and after."""

    def forward(self, input, hx=None):
        output, state = super().forward(2 * input, hx)
        return output + 1, state


class Chooses(nn.GRUCell):
    def forward(self, input, hx=None):
        return super().forward(input.flip(-1), hx)


def test_what_a_subclass_does_around_the_kernel_stays():
    for module, x in ((Scaled(3, 4, dtype=DOUBLE), feed("sorted")), (Chooses(3, 4, dtype=DOUBLE), feed("unbatched"))):
        if isinstance(x, PackedSequence):
            x = feed("time_first")
        fused = tensors(module(x))
        found = tensors(ran_openly(module, "model", lambda module=module, x=x: module(x)))
        assert all((one - other).abs().max() < 1e-12 for one, other in zip(fused, found, strict=True))


class Handmade(nn.LSTM):
    def forward(self, input, hx=None):
        return input, hx


def test_a_subclass_that_runs_no_kernel_is_told():
    with (
        pytest.raises(TypeError, match="kernels to be opened; its class Handmade ran none"),
        gs.opened(Handmade(3, 4)) as m,
    ):
        m(feed("time_first"))


def test_hooks_of_the_module_see_its_calls_as_ever():
    module, x, seen = nn.GRU(3, 4), feed("time_first", torch.float32), []
    module.register_forward_pre_hook(lambda module, args: seen.append("before"))
    module.register_forward_hook(lambda module, args, output: (output[0] * 0, output[1]))
    with gs.opened(module):
        output, _ = module(x)
        direct, _ = module.forward(x)
    assert seen == ["before"]
    assert (output == 0).all()
    assert (direct != 0).any()


def test_the_models_forward_and_class_are_its_own_again_after_success_and_after_an_error():
    model = nn.ModuleDict({"one": nn.LSTM(3, 4), "other": nn.GRUCell(3, 4)})
    before = [dict(vars(part)) for part in model.modules()]
    with gs.opened(model) as yielded:
        assert yielded is model
        assert isinstance(model["one"], nn.LSTM)
        assert "forward" in vars(model["one"])
    with pytest.raises(RuntimeError), gs.opened(model):
        model["one"](torch.ones(2, 2, 5))
    with pytest.raises(KeyboardInterrupt), gs.opened(model):
        raise KeyboardInterrupt
    for part, fields in zip(model.modules(), before, strict=True):
        assert vars(part).keys() == fields.keys()
        assert all(vars(part)[name] is value for name, value in fields.items())


def test_only_the_modules_named_are_opened():
    model = nn.ModuleDict({"one": nn.LSTM(3, 4), "other": nn.GRU(3, 4)})
    with gs.opened(model, "other"):
        assert "forward" not in vars(model["one"])
        assert "forward" in vars(model["other"])
    with pytest.raises(ValueError, match="'third' came"), gs.opened(model, ["third"]):
        pass


def test_blocks_may_end_in_any_order_and_share_modules():
    shared = nn.LSTM(3, 4)
    one, other = nn.ModuleList([shared]), nn.Sequential(shared)
    first, second = gs.opened(one), gs.opened(other)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert "forward" in vars(shared)
    ran_openly(other, "0", lambda: other(torch.ones(2, 1, 3)))
    second.__exit__(None, None, None)
    assert "forward" not in vars(shared)


def test_a_forward_that_somebody_has_put_there_comes_back_and_is_called():
    module, calls = nn.GRU(3, 4), []
    own = module.forward

    def wrapped(*args):
        calls.append(len(args))
        return own(*args)

    module.forward = wrapped
    ran_openly(module, "model", lambda: module(torch.ones(2, 1, 3)))
    assert calls == [1]
    assert vars(module)["forward"] is wrapped


def test_a_wrapper_put_there_inside_the_block_goes_on_with_the_modules_own():
    module, x = nn.GRU(3, 4), torch.ones(2, 1, 3)
    plain = module(x)[0]
    with gs.opened(module):
        inside = module.forward
        module.forward = lambda *args: inside(*args)
    assert torch.equal(module(x)[0], plain)


def test_copies_and_pickles_made_inside_are_fused_modules_of_their_own():
    module, x = nn.LSTM(3, 4), feed("time_first", torch.float32)
    buffer = io.BytesIO()
    block, names = watched(module, "model")
    with block:
        copies = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
        torch.save(module, buffer)
        buffer.seek(0)
        copies.append(torch.load(buffer, weights_only=False))
        state = module.state_dict()
        for twin in copies:
            twin(x)
        assert not names
    assert b"gatescope" not in buffer.getvalue()
    assert list(state) == list(copies[0].state_dict())
    for twin in copies:
        with torch.no_grad():
            twin.weight_hh_l0.zero_()
        assert not torch.equal(twin(x)[0], module(x)[0])


def test_calls_from_other_threads_run_openly_too():
    module, x = nn.LSTM(3, 4, dtype=DOUBLE), feed("time_first")
    plain, found = module(x)[0], []
    block, names = watched(module, "model")
    with block:
        threads = [threading.Thread(target=lambda: found.append(module(x)[0])) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(names) == 4 * 6 * 10
    assert all((one - plain).abs().max() < 1e-12 for one in found)


def test_gradients_of_a_loss_stand_at_what_a_tap_has_looked_at():
    module, x, seen = nn.LSTM(3, 4, num_layers=2, dtype=DOUBLE), feed("time_first"), {}

    def look(name, value, *, layer, direction, time):
        value.retain_grad()
        seen[name, layer, time] = value
        return value

    def loss(found):
        return found[0][3].square().sum()

    with tapped(module, {"model": look}):
        loss(module(x)).backward()
    expected = gs.loss_gradient(module, x, loss)
    for layer in range(2):
        for time in range(4):
            for state in ("cell_state", "hidden_state"):
                true = expected[f"{state}_gradient"].sel(layer=layer, direction="forward", time=time).values
                torch.testing.assert_close(seen[state, layer, time].grad, torch.as_tensor(true), rtol=0, atol=1e-12)
            for gate in ("input_gate", "forget_gate", "candidate", "output_gate"):
                found = seen[f"{gate}_preactivation", layer, time].grad.norm(dim=-1).log10()
                true = expected.gate_norm.sel(layer=layer, direction="forward", time=time, gate=gate).values
                torch.testing.assert_close(found, torch.as_tensor(true), rtol=0, atol=1e-10)


FORMS_ATTACHED = {
    "LSTM": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, dropout=0.3, dtype=DOUBLE),
    "projection": lambda: nn.LSTM(3, 4, num_layers=2, proj_size=2, dtype=DOUBLE),
    "GRU": lambda: nn.GRU(3, 4, num_layers=3, dtype=DOUBLE),
    "cell": lambda: Loop(nn.LSTMCell(3, 4, dtype=DOUBLE)),
    "ours": lambda: gs.Recurrent([[gs.PeepholeLSTMCell(3, 4, dtype=DOUBLE)]]),
}


@pytest.mark.parametrize(
    ("kind", "form"),
    [
        *((kind, "time_first") for kind in FORMS_ATTACHED),
        *((kind, "unsorted") for kind in FORMS_ATTACHED if kind != "cell"),
    ],
)
def test_a_recording_made_inside_or_around_is_that_of_the_fused_module(kind, form):
    model, x = FORMS_ATTACHED[kind](), feed(form)

    def run():
        torch.manual_seed(2)
        model(x)

    with gs.attach(model) as probe:
        run()
    expected = probe.recording()
    with gs.opened(model), gs.attach(model) as inside:
        run()
    with gs.attach(model) as around, gs.opened(model):
        run()
    with gs.opened(model):
        inner = gs.attach(model)
        inner.__enter__()
        run()
    inner.__exit__(None, None, None)
    for probe in (inside, around, inner):
        found = probe.recording()
        assert found.parity < 1e-12
        for name, values in expected.data_vars.items():
            torch.testing.assert_close(
                torch.as_tensor(found[name].values), torch.as_tensor(values.values), rtol=0, atol=1e-12, equal_nan=True
            )


def test_gradients_recorded_inside_are_those_of_the_fused_module():
    module, x = nn.LSTM(3, 4, num_layers=2, dtype=DOUBLE), feed("time_first")
    found = []
    for block in (gs.opened(nn.GRU(1, 1)), gs.opened(module)):
        with block, gs.attach(module, gradients=True) as probe:
            module(x)[0][-1].sum().backward()
        found.append(probe.recording().cell_state_gradient.values)
    torch.testing.assert_close(*map(torch.as_tensor, found), rtol=0, atol=1e-12)


@torch.no_grad()
@pytest.mark.parametrize("when", ["before", "inside"])
@pytest.mark.parametrize("make", [lambda: Loop(nn.GRUCell(3, 4)), lambda: nn.Sequential(nn.GRU(3, 4))])
def test_a_compiled_model_runs_openly_inside_the_block_only(make, when):
    pytest.importorskip("torch._dynamo")
    model, x = make(), feed("time_first", torch.float32)
    compiled = torch.compile(model, backend="eager")
    plain = tensors(model(x))
    if when == "before":
        compiled(x)
    [path] = [module.path for module in gs.modules(model)]
    block, names = watched(model, path)
    with block:
        found = tensors(compiled(x))
    count = len(names)
    after = tensors(compiled(x))
    assert len(names) == count > 0
    for one, two, three in zip(plain, found, after, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-6)
        torch.testing.assert_close(one, three, rtol=0, atol=1e-6)
    torch._dynamo.reset()


def test_a_module_that_was_compiled_itself_is_refused():
    module = nn.GRU(3, 4)
    module.compile(backend="eager")
    with pytest.raises(TypeError, match="must not be compiled to be opened"), gs.opened(module):
        pass


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_what_cannot_be_opened_is_refused_with_the_way_out():
    with (
        pytest.raises(TypeError, match="attach to the model before scripting"),
        gs.opened(torch.jit.script(nn.GRU(3, 4))),
    ):
        pass
    with pytest.raises(ValueError, match="Linear has none"), gs.opened(nn.Linear(2, 2)):
        pass


class Minimal(nn.Module):
    """Somebody's GRU without a reset gate, called as torch's cells are."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.w = nn.Linear(input_size, 2 * hidden_size)
        self.u = nn.Linear(hidden_size, 2 * hidden_size, bias=False)

    def forward(self, x, h=None):
        h = x.new_zeros(*x.shape[:-1], self.hidden_size) if h is None else h
        z, n = (self.w(x) + self.u(h)).chunk(2, -1)
        return z.sigmoid() * h + (1 - z.sigmoid()) * n.relu()


class MinimalCell(gs.AbstractCell):
    signals = (
        gs.Signal("update_gate", "z", "gate", (0, 1)),
        gs.Signal("candidate", "n", "candidate", None),
        gs.Signal("hidden_state", "h", "memory", None),
    )
    retention = "update_gate"
    states = ("hidden_state",)
    gates = ("update_gate", "candidate")

    def __init__(self, module):
        super().__init__(module.input_size, module.hidden_size)
        self.weight_ih, self.bias_ih, self.weight_hh = module.w.weight, module.w.bias, module.u.weight

    def forward(self, x, state, tap, remember=None):
        (h,) = state
        rows = nn.functional.linear(x, self.weight_ih, self.bias_ih) + nn.functional.linear(h, self.weight_hh)
        z, n = rows.chunk(2, dim=-1)
        z = tap("update_gate", z.sigmoid())
        n = tap("candidate", n.relu())
        return (tap("hidden_state", z * h + (1 - z) * n),)


class Spiking(Minimal):
    def forward(self, x, h=None):
        h = super().forward(x, h)
        return h > 0.5, h


@pytest.fixture
def registry(monkeypatch):
    """A registry of this test's own that knows what is registered already."""
    monkeypatch.setattr(find, "_registered", dict(find._registered))


def test_a_registered_cell_runs_openly_and_its_own_weights_get_the_gradients(registry):
    gs.register(Minimal, MinimalCell)
    model, x = Loop(Minimal(3, 4).double()), feed("time_first")
    fused = everything(model, x, None)
    found = ran_openly(model, "cell", lambda: everything(model, x, None))
    assert all((one - other).abs().max() < 1e-12 for one, other in zip(fused, found, strict=True))
    with gs.intervene(model, "update_gate", 1.0, time=slice(2, None)), torch.no_grad():
        held = model(x)
    torch.testing.assert_close(held, model(x[:2]), rtol=0, atol=1e-12)


class Parts(nn.Module):
    """Somebody's LSTM with a layer for each gate, and 1 added to the forget gate in the code."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.gates = nn.ModuleList(nn.Linear(input_size + hidden_size, hidden_size) for _ in "ogif")

    def forward(self, x, state=None):
        h, c = (x.new_zeros(len(x), self.hidden_size),) * 2 if state is None else state
        o, g, i, f = (gate(torch.cat([x, h], -1)) for gate in self.gates)
        c = (f + 1).sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


def parts_as_cell(module):
    cell = gs.LSTMCell(module.input_size, module.hidden_size)
    o, g, i, f = module.gates
    rows = torch.cat([gate.weight for gate in (i, f, g, o)])
    bias = torch.cat([i.bias, f.bias + 1, g.bias, o.bias])
    weights = {"weight_ih": rows[:, : module.input_size], "weight_hh": rows[:, module.input_size :], "bias_ih": bias}
    cell.load_state_dict(weights | {"bias_hh": torch.zeros_like(bias)})
    return cell.to(rows)


def test_weights_that_a_registered_cell_lays_out_anew_get_their_gradients_too(registry):
    gs.register(Parts, parts_as_cell)
    torch.manual_seed(0)
    model, x = Loop(Parts(3, 4)), feed("time_first").float()
    fused = everything(model, x, None)
    found = ran_openly(model, "cell", lambda: everything(model, x, None))
    assert all((one - other).abs().max() < 1e-5 for one, other in zip(fused, found, strict=True))
    with gs.intervene(model, "forget_gate", 0.5):
        changed = everything(model, x, None)
    assert all(one.shape == other.shape for one, other in zip(fused, changed, strict=True))


def test_a_registered_cell_that_answers_more_than_its_states_cannot_be_changed(registry):
    gs.register(Spiking, MinimalCell, read=lambda args, kwargs, output: (args[0], None, (output[1],)))
    cell, x = Spiking(3, 4), torch.ones(2, 3)
    with gs.opened(cell):
        assert torch.equal(cell(x)[1], cell(x)[1])
    with pytest.raises(TypeError, match="answers something made of them"), gs.intervene(cell, "update_gate", 0.0):
        cell(x)
