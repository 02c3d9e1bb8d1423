"""Attaching: which modules are recorded, under which names, and what the probe hands out."""

import threading

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

import gatescope as gs

WIDTH, STEPS, ROWS = 3, 6, 4


class Several(nn.Module):
    """Three recurrent modules of different kinds and sizes, and one that is never called."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.ModuleDict({"rnn": nn.LSTM(WIDTH, 5, batch_first=True), "head": nn.Linear(5, 4)})
        self.middle = nn.GRU(4, 7, num_layers=2, bidirectional=True, batch_first=True)
        self.decoder = nn.RNNCell(14, 2)
        self.unused = nn.LSTM(1, 1)

    def forward(self, x):
        x, _ = self.encoder["rnn"](x)
        x, _ = self.middle(self.encoder["head"](x))
        state = None
        for now in x.unbind(1):
            state = self.decoder(now, state)
        return state


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Several().double()


@pytest.fixture
def x():
    return torch.randn(ROWS, STEPS, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def test_every_module_that_is_called_gets_its_own_recording(model, x, reference):
    with gs.attach(model, preactivations=True) as probe:
        model(x)
    rnn = reference.unroll(model.encoder["rnn"], reference.as_array(x))
    reference.assert_recorded(probe.recording("encoder.rnn"), rnn, 1e-12)
    between = reference.as_array(model.encoder["head"](model.encoder["rnn"](x)[0]))
    middle = reference.unroll(model.middle, between)
    reference.assert_recorded(probe.recording("middle"), middle, 1e-12)
    read = np.concatenate(list(middle["hidden_state"][-1]), axis=-1)
    reference.assert_recorded(probe.recording("decoder"), reference.unroll_cell(model.decoder, read), 1e-12)


def test_a_tree_has_an_empty_root_and_a_node_per_called_module(model, x):
    with gs.attach(model) as probe:
        model(x)
    tree = gs.validate(probe.tree(), values=True)
    assert isinstance(tree, xr.DataTree)
    assert not tree.variables
    assert list(tree.children) == ["encoder.rnn", "middle", "decoder"]
    assert {name: node.sizes["unit"] for name, node in tree.children.items()} == {
        "encoder.rnn": 5,
        "middle": 7,
        "decoder": 2,
    }
    for name, node in tree.children.items():
        assert node.attrs["module"] == name
        xr.testing.assert_identical(node.to_dataset().drop_attrs(), probe.recording(name).drop_attrs())


def test_a_module_whose_path_cannot_name_a_node_is_recorded_alone():
    model = nn.ModuleDict({"text/en": nn.GRU(3, 5), "audio": nn.GRU(3, 5)})
    with gs.attach(model) as probe:
        for module in model.values():
            module(torch.zeros(4, 2, 3))
    with pytest.raises(ValueError, match="the module 'text/en' came"):
        probe.tree()
    assert gs.validate(probe.recording("text/en")).module == "text/en"


@pytest.mark.parametrize("wanted", ["middle", ["middle"], ("middle",)], ids=["text", "list", "tuple"])
def test_only_the_named_modules_are_recorded(model, x, wanted):
    with gs.attach(model, wanted) as probe:
        model(x)
    assert list(probe.tree().children) == ["middle"]
    assert probe.recording().attrs["module"] == "middle"


def test_a_name_is_not_needed_where_one_module_was_called(model, x):
    with gs.attach(model, ["unused", "middle"]) as probe:
        model.middle(torch.zeros(1, 2, 4, dtype=torch.float64))
    assert probe.recording().attrs["module"] == "middle"


def test_a_model_that_is_itself_recurrent_is_called_model():
    model = nn.GRU(WIDTH, 5)
    with gs.attach(model, "model") as probe:
        model(torch.zeros(STEPS, ROWS, WIDTH))
    assert list(probe.tree().children) == ["model"]


def test_record_takes_arguments_by_position_and_by_name(model, x):
    by_place = gs.record(model, x, module="middle")
    by_name = gs.record(model, inputs_kwargs={"x": x}, module="middle")
    xr.testing.assert_equal(by_place, by_name)


def test_a_module_called_by_name_of_its_arguments_is_recorded():
    torch.manual_seed(0)
    module, x, state = nn.GRU(WIDTH, 5), torch.randn(STEPS, ROWS, WIDTH), torch.randn(1, ROWS, 5)
    by_place = gs.record(module, x, state)
    by_name = gs.record(module, inputs_kwargs={"input": x, "hx": state})
    xr.testing.assert_equal(by_place, by_name)


def test_a_module_shared_between_two_paths_is_recorded_once():
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.GRU(WIDTH, WIDTH)
            self.other = self.one

        def forward(self, x):
            return self.other(self.one(x)[0])

    model = Shared()
    with gs.attach(model) as probe:
        model(torch.zeros(STEPS, ROWS, WIDTH))
    assert probe.recording("one").sizes["sequence"] == 2 * ROWS


def test_a_recording_is_the_same_however_often_it_is_asked_for(model, x):
    with gs.attach(model) as probe:
        model(x)
        early = probe.recording("middle")
    xr.testing.assert_equal(early, probe.recording("middle"))


def test_a_recording_made_inside_the_block_does_not_change_with_later_calls(model, x):
    with gs.attach(model) as probe:
        model(x)
        early = probe.recording("middle")
        kept = early.copy(deep=True)
        model(x + 1)
    xr.testing.assert_identical(early, kept)
    assert probe.recording("middle").sizes["sequence"] == 2 * ROWS


def test_in_place_edits_after_the_call_do_not_change_the_recording(x, reference):
    torch.manual_seed(0)
    module = nn.LSTM(WIDTH, 5, batch_first=True).double()
    h, c = torch.randn(2, 1, ROWS, 5, dtype=torch.float64)
    expected = reference.unroll(module, reference.as_array(x), None, [reference.as_array(h), reference.as_array(c)])
    read = x.clone()
    with torch.no_grad(), gs.attach(module, preactivations=True) as probe:
        output, final = module(read, (h, c))
        for tensor in (output, *final, read, h, c):
            tensor.zero_()
        for weight in module.parameters():
            weight.mul_(3)
    reference.assert_recorded(probe.recording(), expected, 1e-12)


def test_a_model_run_in_another_thread_is_recorded(model, x):
    with gs.attach(model) as probe:
        thread = threading.Thread(target=model, args=(x,))
        thread.start()
        thread.join()
    with gs.attach(model) as here:
        model(x)
    xr.testing.assert_equal(probe.tree(), here.tree())


def test_threads_that_run_at_once_are_all_recorded(x):
    torch.manual_seed(0)
    module = nn.LSTM(WIDTH, 5, num_layers=2, batch_first=True).double()
    batches = [x + number for number in range(6)]
    with gs.attach(module) as probe:
        threads = [threading.Thread(target=module, args=(batch,)) for batch in batches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    recording = gs.validate(probe.recording(), values=True)
    single = [gs.record(module, batch).hidden_state.values for batch in batches]
    found = np.split(recording.hidden_state.values, 6, axis=2)
    assert all(any(np.array_equal(one, other) for other in found) for one in single)


def test_labels_given_in_a_thread_are_for_the_calls_of_that_thread(x):
    torch.manual_seed(0)
    module = nn.GRU(WIDTH, 5, batch_first=True).double()
    names = ["a", "b", "c"]

    def work(probe, name, barrier):
        probe.annotate(who=[[name] * STEPS] * ROWS)
        barrier.wait()
        module(x + names.index(name))

    with gs.attach(module) as probe:
        barrier = threading.Barrier(3)
        threads = [threading.Thread(target=work, args=(probe, name, barrier)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    recording = probe.recording()
    for name in names:
        own = recording.isel(sequence=recording.who.values[:, 0] == name)
        alone = gs.record(module, x + names.index(name))
        np.testing.assert_array_equal(own.hidden_state.values, alone.hidden_state.values)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode], ids=["no_grad", "inference_mode"])
def test_recordings_without_gradients_are_the_same(model, x, mode):
    with gs.attach(model) as probe:
        model(x)
    with mode(), gs.attach(model) as other:
        model(x)
    tree = other.tree()
    xr.testing.assert_allclose(tree, probe.tree(), atol=1e-13)
    gs.validate(tree, values=True)


def test_weights_that_change_between_calls_are_said(x):
    module = nn.LSTM(WIDTH, 5, batch_first=True).double()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with gs.attach(module) as probe:
        before = module.weight_hh_l0.detach().clone()
        for _ in range(2):
            module(x)[0].square().sum().backward()
            optimizer.step()
    recording = probe.recording()
    assert "call 1" in recording.attrs["weights_changed"]
    np.testing.assert_array_equal(recording.weight_hh.values.reshape(20, 5), before.numpy())
    assert "weights_changed" not in gs.record(module, x).attrs


def test_every_call_is_rebuilt_with_the_weights_it_had(x, reference):
    module = nn.LSTM(WIDTH, 5, batch_first=True).double()
    expected = []
    with gs.attach(module, preactivations=True) as probe:
        for _ in range(3):
            expected.append(reference.unroll(module, reference.as_array(x)))
            module(x)
            with torch.no_grad():
                module.weight_hh_l0.add_(0.1)
            module.weight_ih_l0.data = module.weight_ih_l0.data + 0.1
    for number, signals in enumerate(expected):
        part = probe.recording().isel(sequence=slice(number * ROWS, (number + 1) * ROWS))
        reference.assert_recorded(part, signals, 1e-12)


def test_parametrized_weights_are_those_really_used(x, reference):
    module = nn.LSTM(WIDTH, 5, batch_first=True).double()
    nn.utils.parametrizations.weight_norm(module, "weight_hh_l0")
    with torch.no_grad():
        module.parametrizations.weight_hh_l0.original0.mul_(2)
    recording = gs.record(module, x, preactivations=True)
    reference.assert_recorded(recording, reference.unroll(module, reference.as_array(x)), 1e-12)


def test_subclasses_of_torchs_modules_are_recorded(x):
    class Mine(nn.LSTM):
        pass

    module = Mine(WIDTH, 5, batch_first=True).double()
    assert gs.record(module, x).attrs["cell"] == "LSTMCell"


def test_provenance_stands_in_the_attributes(model, x):
    attrs = gs.record(model.eval(), x, module="middle").attrs
    assert (attrs["schema"], attrs["cell"], attrs["retention"]) == ("gatescope.recording/1", "GRUCell", "update_gate")
    assert (attrs["module"], attrs["training"], attrs["tolerance"]) == ("middle", 0, 1e-4)
    assert attrs["torch_version"] == torch.__version__
    assert attrs["gatescope_version"] == gs.__version__
    assert 0 <= attrs["parity"] < 1e-12


@pytest.mark.parametrize("rows", [0, 1])
def test_batches_of_any_size_are_recorded(rows, x):
    module = nn.GRU(WIDTH, 5, batch_first=True).double()
    with gs.attach(module) as probe:
        module(x[:rows])
        module(x)
    assert gs.validate(probe.recording(), values=True).sizes["sequence"] == rows + ROWS


def test_a_signal_of_one_module_only_leaves_the_others_out(model, x):
    with gs.attach(model, signals=["forget_gate", "update_gate"]) as probe:
        model(x)
    tree = gs.validate(probe.tree(), values=True)
    assert {name: [v for v in node.data_vars if "gate" in v] for name, node in tree.children.items()} == {
        "encoder.rnn": ["forget_gate"],
        "middle": ["update_gate"],
    }
