"""Unrolled cells against torch's fused modules, in every form of input that these take."""

import copy
import pickle
from typing import final

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence

from gatescope.cells import AbstractCell, GRUCell, LSTMCell, Recurrent, from_torch, step
from gatescope.signals import Signal, no_tap

# torch says so once in a process, of its own LSTM in single precision
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

DOUBLE = torch.float64
KINDS = {
    "LSTM": (nn.LSTM, {}),
    "LSTM-projection": (nn.LSTM, {"proj_size": 2}),
    "GRU": (nn.GRU, {}),
    "RNN-tanh": (nn.RNN, {}),
    "RNN-relu": (nn.RNN, {"nonlinearity": "relu"}),
}
LENGTHS = torch.tensor([3, 6, 1, 6])
FORMS = ("time_first", "batch_first", "unbatched", "sorted", "unsorted", "one_step")


def build(kind, **options):
    cls, own = KINDS[kind]
    return cls(3, 4, **own, **options, dtype=DOUBLE)


def feed(form):
    """An input of that form and the function that packs it where needed."""
    if form == "unbatched":
        return torch.randn(6, 3, dtype=DOUBLE), lambda x: x
    if form == "batch_first":
        return torch.randn(4, 6, 3, dtype=DOUBLE), lambda x: x
    if form == "one_step":
        return torch.randn(1, 4, 3, dtype=DOUBLE), lambda x: x
    x = torch.randn(6, 4, 3, dtype=DOUBLE)
    if form == "sorted":
        return x, lambda x: pack_padded_sequence(x, LENGTHS.sort(descending=True).values)
    if form == "unsorted":
        return x, lambda x: pack_padded_sequence(x, LENGTHS, enforce_sorted=False)
    return x, lambda x: x


def random_state(module, form):
    rows = module.num_layers * (1 + module.bidirectional)
    batch = () if form == "unbatched" else (4,)
    state = [torch.randn(rows, *batch, module.proj_size or 4, dtype=DOUBLE, requires_grad=True)]
    if isinstance(module, nn.LSTM):
        state.append(torch.randn(rows, *batch, 4, dtype=DOUBLE, requires_grad=True))
    return tuple(state)


def everything(module, x, pack, state):
    """Outputs, last states, and the gradients of a fixed loss for input, initial state and weights by torch's names."""
    x = x.clone().requires_grad_()
    given = state if state is None or len(state) > 1 else state[0]
    output, last = module(pack(x), given)
    data = output.data if isinstance(output, PackedSequence) else output
    results = [data, *((last,) if isinstance(last, torch.Tensor) else last)]
    sources = [x, *(state or ()), *module.parameters()]
    gradients = torch.autograd.grad(sum((value**2 * (1 + value)).sum() for value in results), sources)
    return output, [*results, *gradients]


def assert_equal_to_torch(module, form, with_state):
    x, pack = feed(form)
    state = random_state(module, form) if with_state else None
    ours = from_torch(module)
    torch.manual_seed(5)
    output, theirs = everything(module, x, pack, state)
    torch.manual_seed(5)
    own_output, results = everything(ours, x, pack, state)
    for one, other in zip(theirs, results, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() < 1e-12
    assert type(own_output) is type(output)
    if isinstance(output, PackedSequence):
        for name in ("batch_sizes", "sorted_indices", "unsorted_indices"):
            one, other = getattr(output, name), getattr(own_output, name)
            assert one is other is None or torch.equal(one, other)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bidirectional", [False, True], ids=["one_way", "both_ways"])
@pytest.mark.parametrize("num_layers", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_equal_torchs_in_every_form(kind, num_layers, bidirectional, form):
    module = build(kind, num_layers=num_layers, bidirectional=bidirectional, batch_first=form == "batch_first")
    assert_equal_to_torch(module, form, with_state=num_layers != 2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_without_bias_they_equal_torchs_too(kind, form):
    module = build(kind, num_layers=2, bidirectional=True, bias=False, batch_first=form == "batch_first")
    assert_equal_to_torch(module, form, with_state=False)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_dropout_draws_the_mask_that_torch_draws(kind, form, training):
    module = build(kind, num_layers=3, bidirectional=True, dropout=0.4, batch_first=form == "batch_first")
    assert_equal_to_torch(module.train(training), form, with_state=True)


def test_dropout_in_training_changes_the_output():
    network = from_torch(build("GRU", num_layers=2, dropout=0.4))
    x, _ = feed("time_first")
    assert (network.train()(x)[0] - network.eval()(x)[0]).abs().max() > 1e-3


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    bidirectional=st.booleans(),
    num_layers=st.integers(1, 3),
    kind=st.sampled_from(sorted(KINDS)),
)
def test_packed_sequences_of_any_lengths_equal_torchs(lengths, bidirectional, num_layers, kind):
    module = build(kind, num_layers=num_layers, bidirectional=bidirectional)
    packed = pack_sequence([torch.randn(length, 3, dtype=DOUBLE) for length in lengths], enforce_sorted=False)
    theirs, own = module(packed), from_torch(module)(packed)
    padded, padded_lengths = pad_packed_sequence(own[0])
    assert padded_lengths.tolist() == lengths
    assert (pad_packed_sequence(theirs[0])[0] - padded).abs().max() < 1e-12
    states = [(state,) if isinstance(state, torch.Tensor) else state for state in (theirs[1], own[1])]
    assert all((one - other).abs().max() < 1e-12 for one, other in zip(*states, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_single_precision_equals_torchs_to_single_precision(kind):
    module = build(kind, num_layers=2, bidirectional=True).float()
    x = torch.randn(50, 4, 3)
    assert (module(x)[0] - from_torch(module)(x)[0]).abs().max() < 1e-5


def test_every_value_of_every_step_is_tapped_with_its_place():
    network = Recurrent.stacked(lambda width: GRUCell(width, 4), 3, num_layers=2, bidirectional=True)
    calls = []

    def tap(name, value, *, layer, direction, time):
        assert value.shape == (2, 4)
        calls.append((layer, direction, time, name))
        return value

    x = torch.randn(5, 2, 3)
    output, state = network(x, tap=tap)
    names = ["reset_gate_preactivation", "update_gate_preactivation", "reset_gate", "update_gate"]
    names += ["candidate_recurrent", "candidate_preactivation", "candidate", "hidden_state"]
    order = {"forward": range(5), "backward": range(4, -1, -1)}
    places = [(layer, way, time) for layer in range(2) for way in order for time in order[way]]
    assert calls == [(*place, name) for place in places for name in names]
    untapped, untapped_state = network(x)
    assert torch.equal(output, untapped)
    assert torch.equal(state, untapped_state)


def test_taps_see_the_hidden_states_that_the_output_shows():
    network = from_torch(build("LSTM", num_layers=2, bidirectional=True))
    x, pack = feed("unsorted")
    seen = {}

    def tap(name, value, *, layer, direction, time):
        if name == "hidden_state" and layer == 1:
            seen[direction, time] = value
        return value

    output, _ = pad_packed_sequence(network(pack(x), tap=tap)[0])
    for time in range(6):
        going_on = time < LENGTHS
        shown = torch.cat([seen["forward", time], seen["backward", time]], dim=-1)
        assert torch.equal(shown[going_on], output[time][going_on])


@pytest.mark.parametrize(("direction", "changed"), [("forward", [2, 3, 4]), ("backward", [0, 1, 2])])
def test_a_rewritten_gate_changes_what_its_direction_reads_later(direction, changed):
    network = Recurrent.stacked(lambda width: LSTMCell(width, 4), 3, bidirectional=True)
    place = direction

    def tap(name, value, *, layer, direction, time):
        return torch.zeros_like(value) if (name, direction, time) == ("forget_gate", place, 2) else value

    x = torch.randn(5, 2, 3)
    state = (torch.ones(2, 2, 4), torch.ones(2, 2, 4))
    difference = (network(x, state, tap=tap)[0] - network(x, state)[0]).abs().amax(dim=(1,)).unflatten(-1, (2, 4))
    half = ("forward", "backward").index(direction)
    assert (difference.amax(-1)[:, half] > 1e-4).nonzero().flatten().tolist() == changed
    assert difference[:, 1 - half].max() == 0


def test_layers_run_one_by_one_give_the_whole():
    network = from_torch(build("LSTM-projection", num_layers=3, bidirectional=True))
    x, pack = feed("unsorted")
    state = tuple(entry.detach() for entry in random_state(build("LSTM-projection", num_layers=3), "time_first"))
    state = tuple(torch.cat([entry, entry + 1]) for entry in state)
    output, last = network(pack(x), state)
    layer_input, finals = x, []
    for index in range(3):
        here = tuple(entry[2 * index : 2 * index + 2] for entry in state)
        layer_input, final_state = network.run_layer(index, layer_input, LENGTHS, here)
        finals.append(final_state)
    assert torch.equal(layer_input, pad_packed_sequence(output)[0])
    for place, entry in enumerate(last):
        assert torch.equal(entry, torch.cat([final_state[place] for final_state in finals]))


def test_what_stands_in_the_padding_is_never_read():
    network = from_torch(build("GRU", bidirectional=True))
    x, _ = feed("time_first")
    state = (torch.zeros(2, 4, 4, dtype=DOUBLE),)
    results = []
    for filler in (0.0, float("nan")):
        filled = torch.where((torch.arange(6).unsqueeze(1) < LENGTHS).unsqueeze(-1), x, filler).requires_grad_()
        output, _ = network.run_layer(0, filled, LENGTHS, state)
        network.zero_grad()
        (output**2).sum().backward()
        results.append([output, filled.grad, *(weight.grad.clone() for weight in network.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@final
class LeakyCell(AbstractCell):
    """A cell whose memory is no linear recurrence and that carries three states of its own."""

    signals = (Signal("cell_state", "c", "memory", None), Signal("hidden_state", "h", "output", (-1, 1)))
    retention = "0.5"
    states = ("hidden_state", "cell_state", "steps_read")
    gates = ()
    parallel = False

    def forward(self, x, state, tap=no_tap, remember=step):
        h, c, steps = state
        c = tap("cell_state", 0.5 * c + (x.sum(-1, keepdim=True) + h).sin())
        return tap("hidden_state", c.tanh()), c, steps + 1


def test_any_cell_can_be_unrolled():
    network = Recurrent.stacked(lambda width: LeakyCell(width, 4), 3, num_layers=2, bidirectional=True)
    x, pack = feed("unsorted")
    output, (hidden, _, steps) = network(pack(x))
    assert torch.equal(steps, LENGTHS.view(1, 4, 1).expand(4, 4, 4).double())
    padded = pad_packed_sequence(output)[0]
    assert torch.equal(hidden[2], padded[LENGTHS - 1, torch.arange(4), :4])
    assert torch.equal(hidden[3], padded[0, :, 4:])


def test_a_network_pickles_and_copies():
    network = Recurrent.stacked(lambda width: LSTMCell(width, 4), 3, num_layers=2, batch_first=True, dropout=0.5)
    x = torch.randn(2, 5, 3)
    network.eval()
    for twin in (pickle.loads(pickle.dumps(network)), copy.deepcopy(network)):
        assert torch.equal(twin(x)[0], network(x)[0])


def test_it_answers_what_models_ask_of_torchs_modules():
    module = build("LSTM-projection", num_layers=2, bidirectional=True, batch_first=True, dropout=0.1)
    network = from_torch(module)
    sizes = ["input_size", "hidden_size", "proj_size", "num_layers"]
    for name in [*sizes, "bidirectional", "batch_first", "dropout", "training", "bias"]:
        assert getattr(network, name) == getattr(module, name)
    assert network.flatten_parameters() is None
    x, _ = feed("batch_first")
    module.eval(), network.eval()
    state = tuple(entry.detach() for entry in random_state(module, "batch_first"))
    assert torch.allclose(network(x, hx=state)[0], module(x, hx=state)[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "state", "message"),
    [
        ((3,), None, r"must have 2 or 3 dimensions; shape \(3,\) came"),
        ((5, 2, 7), None, r"must be 3 wide \(its input_size\); width 7 came"),
        ((0, 2, 3), None, r"at least one time step; none came"),
        ((5, 2, 3), ((1, 2, 4),), r"must be \(hidden_state, cell_state\); 1 entries came"),
        ((5, 2, 3), ((1, 2, 4), (1, 3, 4)), r"cell_state of Recurrent must have shape \(1, 2, 4\).*\(1, 3, 4\) came"),
        ((5, 3), ((1, 2, 4), (1, 2, 4)), r"hidden_state of Recurrent must have shape"),
    ],
)
def test_bad_inputs_are_told_in_one_sentence(shape, state, message):
    network = Recurrent([[LSTMCell(3, 4)]])
    given_state = None if state is None else tuple(torch.zeros(entry) for entry in state)
    with pytest.raises(ValueError, match=message):
        network(torch.zeros(shape), given_state)


@pytest.mark.parametrize(
    ("layers", "error", "message"),
    [
        ([], ValueError, r"one cell in each layer or two in each; \[\] came"),
        ([["LSTM3", "LSTM3"], ["LSTM8"]], ValueError, r"one cell in each layer or two in each; \[2, 1\] came"),
        ([["LSTM3"], ["LSTM3"]], ValueError, "layer 1 must have input_size 4, which is what comes to it; 3 came"),
        ([["LSTM3"], ["GRU4"]], ValueError, "must be of one class and size"),
        ([["linear"]], TypeError, "made of cells of gatescope.cells; a Linear came"),
    ],
)
def test_cells_that_do_not_fit_are_told_in_one_sentence(layers, error, message):
    cells = {"LSTM3": LSTMCell(3, 4), "LSTM8": LSTMCell(8, 4), "GRU4": GRUCell(4, 4), "linear": nn.Linear(3, 4)}
    with pytest.raises(error, match=message):
        Recurrent([[cells[name] for name in layer] for layer in layers])


def test_dropout_must_be_a_probability():
    with pytest.raises(ValueError, match=r"between 0 and 1; 1\.5 came"):
        Recurrent([[LSTMCell(3, 4)]], dropout=1.5)
