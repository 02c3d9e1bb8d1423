"""Cells that nobody here wrote: what is recorded of them equals an unrolling of their packages' own equations."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import gatescope as gs
from gatescope.cells import linear_scan, step
from gatescope.probe import find
from gatescope.signals import no_tap

EXAMPLE = Path(__file__).parents[2] / "examples" / "foreign_cells.py"
PACKAGES = ("torchrecurrent", "opacus", "snntorch", "ncps")
WIDTH, UNITS, ROWS, STEPS = 5, 5, 3, 12  # of one width, because snntorch forgets everything otherwise


@pytest.fixture(scope="module")
def example():
    """The example's module; the classes that it registers are known in this file's tests only."""
    for package in PACKAGES:
        pytest.importorskip(package)
    known = dict(find._registered)
    spec = importlib.util.spec_from_file_location("foreign_cells", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    find._registered.clear()
    find._registered.update(known)


@pytest.fixture
def registry(monkeypatch):
    """A registry of this test's own that knows what is registered already."""
    monkeypatch.setattr(find, "_registered", dict(find._registered))


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def array(tensor):
    return tensor.detach().double().numpy()


def blocks(tensor, count):
    return np.split(array(tensor), count)


def mgu(cell, x, state):
    (h,) = state
    w, r, b, d = (blocks(t, 2) for t in (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh))
    net_f = x @ w[0].T + b[0] + h @ r[0].T + d[0]
    f = sigmoid(net_f)
    net_n = x @ w[1].T + b[1] + (f * h) @ r[1].T + d[1]
    n = np.tanh(net_n)
    h = (1 - f) * h + f * n
    signals = {"forget_gate_preactivation": net_f, "forget_gate": f, "candidate_preactivation": net_n, "candidate": n}
    return {**signals, "hidden_state": h}, (h,)


def lstm(nets, c, peephole=(0, 0, 0), forget=None):
    """The rest of every LSTM here: nets of input gate, forget gate (`None`: 1), candidate and output gate."""
    net_i, net_f, net_g, net_o = nets
    net_i = net_i + peephole[0] * c
    net_f = None if net_f is None else net_f + peephole[1] * c
    i, f, g = sigmoid(net_i), 1.0 if net_f is None else sigmoid(net_f), np.tanh(net_g)
    c = f * c + i * g
    net_o = net_o + peephole[2] * c
    o = sigmoid(net_o)
    h = o * np.tanh(c)
    gates = {"input_gate": (net_i, i), "forget_gate": (net_f, f), "candidate": (net_g, g), "output_gate": (net_o, o)}
    gates = {name: pair for name, pair in gates.items() if pair[0] is not None}
    signals = {f"{name}_preactivation": net for name, (net, _) in gates.items()}
    return {**signals, **{name: value for name, (_, value) in gates.items()}, "cell_state": c, "hidden_state": h}, (
        h,
        c,
    )


def peepholes(cell, x, state):
    h, c = state
    nets = np.split(
        x @ array(cell.weight_ih).T + array(cell.bias_ih + cell.bias_hh) + h @ array(cell.weight_hh).T, 4, -1
    )
    return lstm(nets, c, blocks(cell.weight_ph, 3))


def original(cell, x, state):
    h, c = state
    net = x @ array(cell.weight_ih).T + array(cell.bias_ih + cell.bias_hh) + h @ array(cell.weight_hh).T
    i, g, o = np.split(net, 3, -1)
    return lstm((i, None, g, o), c)


def opacus(cell, x, state):
    h, c = state
    net = x @ array(cell.ih.weight).T + array(cell.ih.bias) + h @ array(cell.hh.weight).T + array(cell.hh.bias)
    return lstm(np.split(net, 4, -1), c)


def snntorch(cell, x, state):
    h, c = state
    inner = cell.lstm_cell
    net = x @ array(inner.weight_ih).T + array(inner.bias_ih + inner.bias_hh) + h @ array(inner.weight_hh).T
    return lstm(np.split(net, 4, -1), c)


def ncps(cell, x, state):
    h, c = state
    net = x @ array(cell.input_map.weight).T + array(cell.input_map.bias) + h @ array(cell.recurrent_map.weight).T
    g, i, f, o = np.split(net, 4, -1)
    return lstm((i, f + 1.0, g, o), c)


def call_single(cell, x, state):
    return (cell(x, state[0]),)


def call_pair(cell, x, state):
    return cell(x, state)


def call_spiking(cell, x, state):
    _, c, h = cell(x, state[1], state[0])
    return h, c


# name -> (its class in the example, its equations in numpy, how it is called, how many states)
FOREIGN = {
    "MGUCell": (mgu, call_single, 1),
    "ForeignPeepholeLSTMCell": (peepholes, call_pair, 2),
    "OriginalLSTMCell": (original, call_pair, 2),
    "DPLSTMCell": (opacus, call_pair, 2),
    "SLSTM": (snntorch, call_spiking, 2),
    "NcpsLSTMCell": (ncps, call_pair, 2),
}


def make(example, name, dtype=torch.float64):
    torch.manual_seed(1)
    options = {"bias": True} if name == "DPLSTMCell" else {}
    cell = getattr(example, name)(WIDTH, UNITS, **options)
    with torch.no_grad():
        for weight in cell.parameters():
            weight.uniform_(-0.8, 0.8)  # some packages begin with biases of 0, which would prove nothing
    return cell.to(dtype)


def drive(name, cell, dtype=torch.float64):
    """Run a cell over random inputs from a random state: inputs, the state it began with, the states it handed out."""
    _, call, count = FOREIGN[name]
    generator = torch.Generator().manual_seed(2)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)  # noqa: E731
    inputs, state = draw(STEPS, ROWS, WIDTH), tuple(draw(ROWS, UNITS) for _ in range(count))
    begin, states = state, []
    for x in inputs:
        state = call(cell, x, state)
        states.append(state)
    return inputs, begin, states


def recorded(name, cell, dtype=torch.float64, **options):
    with gs.attach(cell, **options) as probe:
        inputs, begin, states = drive(name, cell, dtype)
    return gs.validate(probe.recording(), values=True), inputs, begin, states


def unrolled(name, cell, inputs, begin):
    """Signals (sequence, time, unit) of the package's equations in float64."""
    state, steps = tuple(array(entry) for entry in begin), []
    for x in inputs:
        signals, state = FOREIGN[name][0](cell, array(x), state)
        steps.append(signals)
    return {signal: np.stack([step[signal] for step in steps], 1) for signal in steps[0]}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_recorded_equals_an_unrolling_of_the_packages_equations(example, name):
    cell = make(example, name)
    recording, inputs, begin, _ = recorded(name, cell, preactivations=True)
    expected = unrolled(name, cell, inputs, begin)
    assert {k for k, v in recording.data_vars.items() if "role" in v.attrs or k.endswith("_preactivation")} == set(
        expected
    )
    for signal, values in expected.items():
        np.testing.assert_allclose(recording[signal].values[0, 0], values, rtol=0, atol=1e-13, err_msg=signal)
    assert recording.parity < 1e-14
    assert recording.sizes["sequence"] == ROWS
    assert recording.length.values.tolist() == [STEPS] * ROWS


@pytest.mark.parametrize("name", FOREIGN)
def test_in_single_precision_the_states_are_the_modules_own_bits(example, name):
    cell = make(example, name, torch.float32)
    recording, inputs, begin, states = recorded(name, cell, torch.float32)
    assert recording.parity < 2e-6
    for place, state in enumerate(("hidden_state", "cell_state")[: FOREIGN[name][2]]):
        own = torch.stack([entry[place] for entry in states], 1).detach().numpy()
        np.testing.assert_array_equal(recording[state].values[0, 0], own)
    for signal, values in unrolled(name, cell, inputs, begin).items():
        if signal in recording:
            np.testing.assert_allclose(recording[signal].values[0, 0], values, rtol=0, atol=2e-6, err_msg=signal)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_probe_changes_neither_outputs_nor_random_numbers(example, name):
    alone, watched = make(example, name), make(example, name)
    _, _, expected = drive(name, alone)
    before = torch.get_rng_state()
    _, _, _, came = recorded(name, watched)
    assert torch.equal(before, torch.get_rng_state())
    for one, other in zip(expected, came, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_random_weights_that_as_cell_begins_with_are_not_drawn_from_the_models_generator(example, registry):
    def as_cell(module):
        cell = gs.LSTMCell(module.input_size, module.hidden_size, dtype=torch.float64)  # draws its weights
        cell.load_state_dict(example.ncps_cell(module).state_dict())
        return cell

    gs.register(example.NcpsLSTMCell, as_cell)
    test_a_probe_changes_neither_outputs_nor_random_numbers(example, "NcpsLSTMCell")


def test_a_gate_that_overwrites_is_kept_apart_from_one_that_keeps(example):
    cell = make(example, "MGUCell")
    recording, *_ = recorded("MGUCell", cell)
    assert recording.retention == "1 - forget_gate"
    before = recording.hidden_state.shift(time=1)
    kept = (1 - recording.forget_gate) * before + recording.forget_gate * recording.candidate
    assert float(abs(kept - recording.hidden_state).isel(time=slice(1, None)).max()) < 1e-14


def test_a_memory_without_forget_gate_is_kept_whole(example):
    cell = make(example, "OriginalLSTMCell")
    recording, *_ = recorded("OriginalLSTMCell", cell)
    assert (recording.retention, recording.cell, recording.variant) == ("1.0", "PeepholeLSTMCell", "NFG")
    written = recording.input_gate * recording.candidate
    assert float(abs(recording.cell_state.diff("time") - written.isel(time=slice(1, None))).max()) < 1e-13


def test_peephole_weights_stand_at_the_gates_that_have_them(example):
    cell = make(example, "ForeignPeepholeLSTMCell")
    recording, *_ = recorded("ForeignPeepholeLSTMCell", cell)
    weights = recording.weight_peephole.sel(layer=0, direction="forward")
    for gate, own in zip(("input_gate", "forget_gate", "output_gate"), cell.weight_ph.detach().chunk(3), strict=True):
        np.testing.assert_array_equal(weights.sel(gate=gate), own.numpy())
    assert not weights.sel(gate="candidate").any()


# -- said wrongly


def turned(example):
    """A minimal gated unit whose gate keeps where the package's overwrites."""

    class Turned(example.MinimalGatedUnitCell):
        def forward(self, x, state, tap=no_tap, remember=step):
            seen = {}

            def keep(name, value):
                return seen.setdefault(name, tap(name, value))

            super().forward(x, state, keep)
            f, n = seen["forget_gate"], seen["candidate"]
            return (f * state[0] + (1 - f) * n,)

    return Turned


def reordered(as_cell, order):
    """The same conversion with the blocks of rows in another order."""

    def wrong(module):
        cell = as_cell(module)
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            rows = getattr(cell, name).data.chunk(len(order))
            setattr(cell, name, nn.Parameter(torch.cat([rows[k] for k in order])))
        return cell

    return wrong


def other_peepholes(example):
    def wrong(module):
        cell = example.peephole_cell(module)
        cell.weight_peephole = nn.Parameter(cell.weight_peephole.data[[1, 0, 2]])
        return cell

    return wrong


def without_peepholes(module):
    cell = gs.LSTMCell(module.input_size, module.hidden_size, device="meta")
    weights = {name: weight for name, weight in module.state_dict().items() if name != "weight_ph"}
    cell.load_state_dict(weights, assign=True)
    return cell


def without_the_one(example):
    def wrong(module):
        cell = example.ncps_cell(module)
        cell.bias_hh = nn.Parameter(torch.zeros_like(cell.bias_hh))
        return cell

    return wrong


def read_as_h_c(args, kwargs, output):
    input, c, h = args
    _, new_c, new_h = output
    return input, (c, h), (new_c, new_h)


WRONG = {  # what is said -> the class and what is registered for it
    "the gate of the MGU keeps": ("MGUCell", lambda e: (turned(e), None)),
    "the MGU's rows the other way": ("MGUCell", lambda e: (reordered(e.MinimalGatedUnitCell, (1, 0)), None)),
    "peepholes of the wrong gates": ("ForeignPeepholeLSTMCell", lambda e: (other_peepholes(e), None)),
    "no peepholes": ("ForeignPeepholeLSTMCell", lambda e: (without_peepholes, None)),
    "1997's rows in another order": ("OriginalLSTMCell", lambda e: (reordered(e.original_cell, (1, 0, 2)), None)),
    "opacus' rows in keras' order": (
        "DPLSTMCell",
        lambda e: (reordered(e.opacus_cell, (1, 0, 2, 3)), e.read_opacus),
    ),
    "(h, c) where (c, h) comes": ("SLSTM", lambda e: (e.snntorch_cell, read_as_h_c)),
    "ncps' rows as torch's": ("NcpsLSTMCell", lambda e: (reordered(e.ncps_cell, (2, 0, 1, 3)), None)),
    "ncps without the one": ("NcpsLSTMCell", lambda e: (without_the_one(e), None)),
}


@pytest.mark.parametrize(("name", "say"), WRONG.values(), ids=WRONG.keys())
def test_what_is_said_wrongly_is_found_out(example, registry, name, say):
    as_cell, read = say(example)
    gs.register(getattr(example, name), as_cell, read=read)
    cell = make(example, name)
    with pytest.raises(gs.ParityError, match=r"'model', layer 0, forward must equal the module's own"), gs.attach(cell):
        drive(name, cell)


def test_a_package_that_loses_its_memory_is_found_out(example):
    torch.manual_seed(0)
    cell = example.SLSTM(3, 5)  # snntorch 1.0.0 puts zeros in the place of states that are not as wide as the input
    x, memories = torch.randn(2, 3), torch.randn(2, 2, 5)
    with pytest.raises(gs.ParityError), gs.attach(cell):
        cell(x, *memories)
    with gs.attach(cell) as probe:
        cell(x, *torch.zeros(2, 2, 5))
    assert probe.recording().parity < 1e-6


# -- in models


def test_a_stack_of_foreign_cells_is_recorded_cell_by_cell(example):
    torch.manual_seed(0)
    model = example.MGU(WIDTH, UNITS, num_layers=2, dtype=torch.float64)
    x = torch.randn(STEPS, ROWS, WIDTH, dtype=torch.float64)
    assert [found.path for found in gs.modules(model)] == ["cells.0", "cells.1"]
    with gs.attach(model) as probe:
        output, _ = model(x)
    top = probe.recording("cells.1").hidden_state.values[0, 0]
    np.testing.assert_array_equal(top, output.detach().transpose(0, 1).numpy())
    lower = torch.from_numpy(probe.recording("cells.0").hidden_state.values[0, 0]).transpose(0, 1)
    state = (np.zeros((ROWS, UNITS)),)
    for time, read in enumerate(lower):
        signals, state = mgu(model.cells[1], array(read), state)
        np.testing.assert_allclose(probe.recording("cells.1").forget_gate.values[0, 0, :, time], signals["forget_gate"])


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_opacus_records_what_torchs_lstm_with_its_weights_records(example, packed):
    torch.manual_seed(0)
    theirs = example.DPLSTM(WIDTH, UNITS, num_layers=2, bidirectional=True).double()
    ours = nn.LSTM(WIDTH, UNITS, num_layers=2, bidirectional=True).double()
    ours.load_state_dict(theirs.state_dict())
    x, lengths = torch.randn(STEPS, ROWS, WIDTH, dtype=torch.float64), [STEPS, 7, 4]
    batch = pack_padded_sequence(x, torch.tensor(lengths)) if packed else x
    expected = gs.record(ours, batch)
    with gs.attach(theirs) as probe:
        theirs(batch)
    for layer, direction, path in [(0, "forward", "l0"), (1, "forward", "l1"), (1, "backward", "l1_reverse")]:
        found = probe.recording(path)
        for name in ("forget_gate", "output_gate", "cell_state"):
            true = expected[name].sel(layer=layer, direction=direction).values
            for sequence, length in enumerate(lengths if packed else [STEPS] * ROWS):
                steps = true[sequence, :length]
                came = found[name].sel(layer=0, direction="forward").values
                row = int(np.flatnonzero(found.stream.values == sequence)[0])
                steps = steps[::-1] if direction == "backward" else steps  # a backward cell runs on its own time
                np.testing.assert_allclose(came[row, :length], steps, rtol=0, atol=1e-12)


def test_new_weights_are_seen_at_the_next_step(example):
    cell = make(example, "NcpsLSTMCell")
    with gs.attach(cell) as probe:
        drive("NcpsLSTMCell", cell)
        with torch.no_grad():
            cell.input_map.bias.add_(0.5)
            cell.recurrent_map.weight.mul_(0.5)
        inputs, begin, _ = drive("NcpsLSTMCell", cell)
    recording = probe.recording()
    expected = unrolled("NcpsLSTMCell", cell, inputs, begin)
    np.testing.assert_allclose(recording.forget_gate.values[0, 0, ROWS:], expected["forget_gate"], rtol=0, atol=1e-13)
    assert recording.weights_changed.startswith("weights changed before call 12")


@pytest.mark.parametrize("name", FOREIGN)
def test_the_true_gradient_at_every_step_is_recorded_of_foreign_cells_too(example, name):
    cell, loss = make(example, name), 0.0
    with gs.attach(cell, gradients=True) as probe:
        _, _, states = drive(name, cell)
        for time, state in enumerate(states):
            for entry in state:
                entry.retain_grad()
            loss = loss + (state[0] ** 2).sum() * (time % 3 == 0) + (state[-1] ** 3).sum() * (time == 5)
        loss.backward()
    for place, state in enumerate(("hidden_state", "cell_state")[: FOREIGN[name][2]]):
        arrived = [e[place].grad if e[place].grad is not None else torch.zeros_like(e[place]) for e in states]
        own = torch.stack(arrived, 1).numpy()
        np.testing.assert_allclose(probe.recording()[f"{state}_gradient"].values[0, 0], own, rtol=0, atol=1e-13)


# -- cells of one's own


class Leaky(nn.Module):
    """A foreign cell: h = 0.9 h + 0.1 tanh(W [x, h])."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Linear(WIDTH + UNITS, UNITS)

    def forward(self, x, h):
        return 0.9 * h + 0.1 * self.mix(torch.cat([x, h], -1)).tanh()


class LeakyCell(gs.AbstractCell):
    """Made of a module instead of parameters of its own."""

    signals = (gs.Signal("candidate", "n", "candidate", (-1, 1)), gs.Signal("hidden_state", "h", "memory", (-1, 1)))
    retention = "0.9"
    states = ("hidden_state",)
    gates = ("candidate",)

    def __init__(self, module):
        super().__init__(WIDTH, UNITS)
        self.mix = module.mix

    def forward(self, x, state, tap=no_tap, remember=step):
        n = tap("candidate", tap("candidate_preactivation", self.mix(torch.cat([x, state[0]], -1))).tanh())
        return (tap("hidden_state", 0.9 * state[0] + 0.1 * n),)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_cell_of_ones_own_may_be_made_of_modules(registry, dtype):
    torch.manual_seed(0)
    gs.register(Leaky, LeakyCell)
    module, state = Leaky().to(dtype), torch.randn(ROWS, UNITS, dtype=dtype)
    with gs.attach(module) as probe:
        for x in torch.randn(STEPS, ROWS, WIDTH, dtype=dtype):
            state = module(x, state)
    recording = gs.validate(probe.recording(), values=True)
    assert (recording.cell, recording.retention) == ("LeakyCell", "0.9")
    assert recording.sizes["time"] == STEPS
    assert "weight_hh" not in recording
    assert {p.dtype for p in module.parameters()} == {dtype}
    assert recording.parity < {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 0.05}[dtype]


def spoiled(**changes):
    return type("Spoiled", (LeakyCell,), changes)


def silent(self, x, state, tap=no_tap, remember=step):
    return LeakyCell.forward(self, x, state)


def loud(self, x, state, tap=no_tap, remember=step):
    tap("secret", x)
    return LeakyCell.forward(self, x, state, tap)


class Rows(LeakyCell):
    def __init__(self, module):
        super().__init__(module)
        self.weight_hh = nn.Parameter(torch.zeros(7, UNITS))


SPOILED = {
    "must declare signals, retention, states and gates; states came not": lambda m: Undeclared(m),
    "must have a signal for each state": lambda m: spoiled(states=("memory",))(m),
    "must have the signal of its retention '1 - gate'": lambda m: spoiled(retention="1 - gate")(m),
    "must have 5 rows in weight_hh, hidden_size for each of .*; 7 came": Rows,
    r"must tap the signals that it declares, in their order; .* and \[\] tapped": lambda m: spoiled(forward=silent)(m),
    r"must tap the signals that it declares, .* \['secret', ": lambda m: spoiled(forward=loud)(m),
    "as_cell must return a gatescope cell; Linear came for 'model'": lambda m: m.mix,
}


class Undeclared(gs.AbstractCell):
    signals, retention, gates = LeakyCell.signals, "0.9", ("candidate",)

    def __init__(self, module):
        super().__init__(WIDTH, UNITS)

    def forward(self, x, state, tap=no_tap, remember=step):
        return state


@pytest.mark.parametrize(("said", "as_cell"), SPOILED.items(), ids=SPOILED.keys())
def test_a_cell_that_cannot_be_recorded_is_named_when_one_attaches(registry, said, as_cell):
    gs.register(Leaky, as_cell)
    with pytest.raises(TypeError, match=said) as caught:
        gs.attach(Leaky())
    assert "\n" not in str(caught.value)


def test_a_retention_outside_the_grammar_is_refused_when_one_attaches(registry):
    gs.register(Leaky, spoiled(retention="0.9 * gate"))
    with pytest.raises(ValueError, match="retention must be a signal's name"):
        gs.attach(Leaky())


X, H = torch.zeros(ROWS, WIDTH), torch.zeros(ROWS, UNITS)


def reads(input, state, new):
    return lambda args, kwargs, output: (input, state, new)


FORMS = {
    "must answer (hidden_state), the states of LeakyCell, at every step; 2 tensors came": reads(X, None, (H, H)),
    "must answer (hidden_state), the states of LeakyCell, at every step; Tensor, tuple came": reads(X, None, (H, (H,))),
    "must take (hidden_state), the states of LeakyCell, at every step; 2 tensors came": reads(X, (H, H), H),
    "must answer (hidden_state), the states of LeakyCell, at every step; (7, 3, 5) for an input of (3, 5) came": reads(
        X, H, torch.zeros(7, ROWS, UNITS)
    ),
    "must take (hidden_state), the states of LeakyCell, at every step; (1, 3, 5) for an input of (3, 5) came": reads(
        X, H.unsqueeze(0), H
    ),
    "an input of shape (3, 4), which must be 5 wide, came": reads(X[:, 1:], H, H),
    "NoneType came": reads(X, H, None),
}


@pytest.mark.parametrize(("said", "read"), FORMS.items(), ids=FORMS.keys())
def test_a_call_that_is_no_step_of_the_cell_is_told_in_one_sentence(registry, said, read):
    gs.register(Leaky, LeakyCell, read=read)
    module = Leaky()
    with pytest.raises(TypeError) as caught, gs.attach(module):
        module(X, H)
    assert said in str(caught.value)
    assert "register the class of its inner cells where it runs whole sequences" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_stack_registered_in_the_place_of_its_cells_is_told_to_register_those(example, registry):
    gs.register(example.MGU, lambda module: example.MinimalGatedUnitCell(module.cells[0]))
    model = example.MGU(WIDTH, UNITS)
    with pytest.raises(TypeError, match=r"2 tensors came.*register the class of its inner cells"), gs.attach(model):
        model(torch.zeros(STEPS, ROWS, WIDTH))


def test_only_classes_and_functions_can_be_registered(registry):
    for wrong, named in ((Leaky(), "a Leaky"), (nn.Module, "Module"), (dict, "dict"), ("Leaky", "'Leaky'")):
        with pytest.raises(TypeError, match=rf"cls must be a subclass of torch.nn.Module; {named} came"):
            gs.register(wrong, LeakyCell)
    with pytest.raises(TypeError, match=r"as_cell must be a function; a dict came"):
        gs.register(Leaky, {})
    with pytest.raises(TypeError, match=r"read must be a function; 'x' came"):
        gs.register(Leaky, LeakyCell, read="x")
    assert gs.modules(nn.Sequential(Leaky())) == []


def test_a_memory_beside_the_shown_state_may_be_scanned_or_stepped(example):
    cell = example.MinimalGatedUnitCell(make(example, "MGUCell"))
    x, h = torch.randn(4, ROWS, WIDTH, dtype=torch.float64), torch.randn(4, ROWS, UNITS, dtype=torch.float64)
    together = cell(x, (h,), no_tap, linear_scan)[0]
    apart = torch.stack([cell(x[t], (h[t],))[0] for t in range(4)])
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-15)
