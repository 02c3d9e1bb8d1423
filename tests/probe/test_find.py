"""gs.modules: what can be observed in a model, its sizes and parameters, and why the rest cannot."""

import warnings

import pytest
import torch
from torch import nn

import gatescope as gs
from gatescope.cells import Recurrent, RNNCell, from_torch


class Wrapped(nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


class StrangeLSTM(nn.Module):
    """A recurrent class that nobody knows."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(4, 4))

    def forward(self, x):
        return (x,)


COUNTS = {
    "LSTM": (nn.LSTM(3, 5), 4 * 5 * (3 + 5 + 2), 4 * 5 * (3 + 5 + 1)),
    "GRU": (nn.GRU(3, 5), 3 * 5 * (3 + 5 + 2), 3 * 5 * (3 + 5 + 1)),
    "RNN": (nn.RNN(3, 5), 5 * (3 + 5 + 2), 5 * (3 + 5 + 1)),
    "no bias": (nn.LSTM(3, 5, bias=False), 4 * 5 * 8, 4 * 5 * 8),
    "two directions": (nn.GRU(3, 5, bidirectional=True), 2 * 3 * 5 * 10, 2 * 3 * 5 * 9),
    "projection": (nn.LSTM(3, 5, proj_size=2), 4 * 5 * (3 + 2 + 2) + 2 * 5, 4 * 5 * (3 + 2 + 1) + 2 * 5),
    "cell": (nn.LSTMCell(3, 5), 4 * 5 * 10, 4 * 5 * 9),
    "open cell": (RNNCell(3, 5), 5 * 10, 5 * 9),
    "open network": (from_torch(nn.GRU(3, 5)), 3 * 5 * 10, 3 * 5 * 9),
}


@pytest.mark.parametrize(("module", "stored", "textbook"), COUNTS.values(), ids=COUNTS.keys())
def test_parameters_are_counted_as_stored_and_as_in_the_textbook(module, stored, textbook):
    (found,) = gs.modules(module)
    assert (found.path, found.kind, found.reason) == ("model", type(module).__name__, "")
    assert (found.input_size, found.hidden_size) == (3, 5)
    assert (found.parameters, found.parameters_one_bias) == (stored, textbook)


SHAPES = {
    "deep": (nn.LSTM(3, 5, num_layers=3, bidirectional=True, proj_size=2), (3, 5, 2, 3, 2)),
    "open": (from_torch(nn.LSTM(3, 5, num_layers=3, bidirectional=True, proj_size=2)), (3, 5, 2, 3, 2)),
    "cell": (nn.GRUCell(3, 5), (3, 5, 0, 1, 1)),
}


@pytest.mark.parametrize(("module", "shape"), SHAPES.values(), ids=SHAPES.keys())
def test_shapes_are_told(module, shape):
    (found,) = gs.modules(module)
    assert (found.input_size, found.hidden_size, found.proj_size, found.layers, found.directions) == shape


def test_modules_stand_in_the_models_order_with_their_paths():
    model = nn.ModuleDict(
        {"b": nn.ModuleList([nn.GRU(1, 2), nn.Linear(2, 2), nn.LSTMCell(2, 3)]), "a": Wrapped(nn.RNN(3, 5))}
    )
    assert [found.path for found in gs.modules(model)] == ["b.0", "b.2", "a.rnn"]


def test_only_the_outermost_of_nested_modules_is_named():
    network = Recurrent.stacked(lambda width: RNNCell(width, 4), 3, num_layers=2)
    assert [found.path for found in gs.modules(nn.Sequential(network))] == ["0"]


def test_a_model_without_recurrent_modules_has_none():
    assert gs.modules(nn.Sequential(nn.Linear(2, 2), nn.Conv1d(1, 1, 1))) == []


def test_looking_changes_nothing():
    model = Wrapped(nn.LSTM(3, 5)).train()
    before = [(p, p._version) for p in model.parameters()]
    gs.modules(model)
    assert [(p, p._version) for p in model.parameters()] == before
    assert model.training


X = torch.zeros(4, 2, 3)


def script(model):
    return torch.jit.script(model)


def trace(model):
    return torch.jit.trace(model, X)


def export(model):
    return torch.export.export(model, (X,)).module()


def quantize(model):
    return torch.ao.quantization.quantize_dynamic(model, {nn.LSTM, nn.GRU, nn.LSTMCell})


CLOSED = {
    "scripted": (script, "TorchScript", "before scripting or tracing"),
    "traced": (trace, "TorchScript", "before scripting or tracing"),
    "exported": (export, "exported", "before exporting"),
    "quantized": (quantize, "quantized", "before quantizing"),
}


def closed(make, rnn):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates all four of them, each in its own words
        return make(Wrapped(rnn).eval())


@pytest.mark.parametrize(("make", "what", "instead"), CLOSED.values(), ids=CLOSED.keys())
def test_what_cannot_be_seen_is_listed_with_the_reason_and_the_way_out(make, what, instead):
    model = closed(make, nn.LSTM(3, 5))
    found = gs.modules(model)
    assert found
    assert all(what in entry.reason and instead in entry.reason for entry in found)


@pytest.mark.parametrize(("make", "what", "instead"), CLOSED.values(), ids=CLOSED.keys())
def test_a_closed_module_inside_an_open_model_is_listed_beside_what_can_be_seen(make, what, instead):
    model = nn.ModuleDict({"open": nn.GRU(3, 5), "closed": closed(make, nn.LSTM(3, 5))})
    first, *rest = gs.modules(model)
    assert (first.path, first.reason) == ("open", "")
    assert rest
    assert all(entry.path.startswith("closed") and what in entry.reason for entry in rest)


@pytest.mark.parametrize(("make", "what", "instead"), CLOSED.values(), ids=CLOSED.keys())
def test_attaching_to_a_closed_model_is_refused_with_the_way_out(make, what, instead):
    with pytest.raises(TypeError, match="model must have a recurrent module that can be observed") as caught:
        gs.attach(closed(make, nn.LSTM(3, 5)))
    assert what in str(caught.value)
    assert instead in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_quantized_cell_says_why_too():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = quantize(nn.Sequential(nn.LSTMCell(3, 5)))
    (found,) = gs.modules(model)
    assert "quantized" in found.reason
    assert found.kind == "LSTMCell"


def test_an_exported_program_is_refused_with_the_way_out():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(Wrapped(nn.LSTM(3, 5)).eval(), (X,))
    with pytest.raises(TypeError, match=r"ExportedProgram came\. Attach to the model before exporting it"):
        gs.attach(program)
    with pytest.raises(TypeError, match="ExportedProgram came"):
        gs.modules(program)


def test_a_symbolically_traced_model_keeps_its_modules_and_is_recorded():
    model = torch.fx.symbolic_trace(Wrapped(nn.LSTM(3, 5)))
    assert [found.path for found in gs.modules(model)] == ["rnn"]
    assert gs.record(model, X).sizes["unit"] == 5


def test_an_unknown_recurrent_class_is_told_to_register():
    model = nn.ModuleDict({"known": nn.GRU(3, 5), "strange": StrangeLSTM()})
    known, strange = gs.modules(model)
    assert known.path == "known"
    assert (strange.path, strange.kind) == ("strange", "StrangeLSTM")
    assert "StrangeLSTM is unknown" in strange.reason
    assert "gatescope.register" in strange.reason


def test_attaching_to_an_unknown_recurrent_class_says_to_register():
    for model in (StrangeLSTM(), Wrapped(StrangeLSTM())):
        with pytest.raises(TypeError, match=r"StrangeLSTM is unknown; .*gatescope.register"):
            gs.attach(model)


@pytest.mark.parametrize("model", [None, "model", 3, lambda x: x, nn.LSTM], ids=repr)
def test_what_is_no_module_is_refused(model):
    for ask in (gs.modules, gs.attach):
        with pytest.raises(TypeError, match=r"model must be a torch.nn.Module; .* came"):
            ask(model)


def test_a_compiled_model_shows_its_modules():
    model = torch.compile(Wrapped(nn.LSTM(3, 5)), backend="eager")
    assert [found.path for found in gs.modules(model)] == ["rnn"]


def test_an_unknown_cell_made_of_other_layers_is_named():
    class LiGRUCell(nn.Module):
        def __init__(self):
            super().__init__()
            self.read, self.carry = nn.Linear(3, 5), nn.Linear(5, 5)

    model = nn.Sequential(nn.LSTM(3, 5), LiGRUCell())
    assert [(found.path, "gatescope.register" in found.reason) for found in gs.modules(model)] == [
        ("0", False),
        ("1", True),
    ]
    with pytest.raises(TypeError, match=r"of 'model': its class LiGRUCell is unknown"):
        gs.attach(LiGRUCell())
