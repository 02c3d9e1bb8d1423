"""Every way to run a recurrent module is noticed, counted once, and leaves no function mode behind."""

import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode
from torch.utils.checkpoint import checkpoint

import gatescope as gs

WIDTH, UNITS, STEPS, ROWS = 3, 5, 6, 4
LENGTHS = torch.tensor([2, 6, 1, 4])


@pytest.fixture(autouse=True)
def _no_mode_remains():
    yield
    left = [_pop_mode() for _ in _get_current_function_mode_stack()]
    assert left == []


@pytest.fixture
def x():
    return torch.randn(ROWS, STEPS, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def stack(**options):
    torch.manual_seed(1)
    return nn.LSTM(WIDTH, UNITS, batch_first=True, **options).double()


class Holder(nn.Module):
    def __init__(self, rnn):
        super().__init__()
        self.rnn = rnn

    def forward(self, x):
        return self.rnn(x)


def by_module(model, x):
    model.rnn(x)


def by_forward(model, x):
    model.rnn.forward(x)


def by_class(model, x):
    nn.LSTM.forward(model.rnn, x)


def by_kernel(model, x):
    rnn = model.rnn
    slots = rnn.num_layers * (2 if rnn.bidirectional else 1)
    zeros = x.new_zeros(slots, x.shape[0], UNITS)
    torch._VF.lstm(x, (zeros, zeros), rnn._flat_weights, True, rnn.num_layers, 0.0, False, rnn.bidirectional, True)


def by_functional_call(model, x):
    torch.func.functional_call(model, dict(model.named_parameters()), (x,))


WAYS = {way.__name__: way for way in (by_module, by_forward, by_class, by_kernel, by_functional_call)}
OPTIONS = {"one layer": {}, "two layers, bidirectional": {"num_layers": 2, "bidirectional": True}}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_a_call_is_recorded_once_however_it_is_made(x, reference, way, options):
    model = Holder(stack(**options))
    with gs.attach(model, preactivations=True) as probe:
        way(model, x)
    recording = gs.validate(probe.recording(), values=True)
    reference.assert_recorded(recording, reference.unroll(model.rnn, reference.as_array(x)), 1e-12)


@pytest.mark.parametrize("way", [by_module, by_forward, by_class], ids=lambda way: way.__name__)
def test_packed_calls_stand_in_the_callers_order_however_they_are_made(x, reference, way):
    model = Holder(stack(num_layers=2, bidirectional=True))
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    with gs.attach(model, preactivations=True) as probe:
        way(model, packed)
        way(model, packed)
    for rows in (slice(0, ROWS), slice(ROWS, None)):
        part = probe.recording().isel(sequence=rows)
        reference.assert_recorded(part, reference.unroll(model.rnn, reference.as_array(x), LENGTHS.tolist()), 1e-12)


def test_weights_that_are_swapped_for_one_call_are_those_of_its_recording(x, reference):
    model = Holder(stack(num_layers=2))
    other = Holder(stack(num_layers=2))
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(2)
    with gs.attach(model, preactivations=True) as probe:
        torch.func.functional_call(model, dict(other.named_parameters()), (x,))
        model(x)
    first, second = (probe.recording().isel(sequence=rows) for rows in (slice(0, ROWS), slice(ROWS, None)))
    reference.assert_recorded(first, reference.unroll(other.rnn, reference.as_array(x)), 1e-12)
    reference.assert_recorded(second, reference.unroll(model.rnn, reference.as_array(x)), 1e-12)


def test_dropout_is_replayed_however_the_call_is_made(x):
    model = Holder(stack(num_layers=3, dropout=0.5)).train()
    for way in (by_module, by_forward, by_functional_call):
        with gs.attach(model) as probe:
            way(model, x)
        assert probe.recording().parity < 1e-12


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell], ids=lambda kind: kind.__name__)
def test_loops_that_call_forward_join(x, reference, kind):
    torch.manual_seed(1)
    cell = kind(WIDTH, UNITS).double()
    with gs.attach(cell, preactivations=True) as probe:
        state = None
        for now in x.unbind(1):
            state = cell.forward(now, state)
    recording = gs.validate(probe.recording(), values=True)
    assert recording.length.values.tolist() == [STEPS] * ROWS
    reference.assert_recorded(recording, reference.unroll_cell(cell, reference.as_array(x)), 1e-12)


def test_a_subclass_that_runs_torchs_forward_within_its_own_is_recorded_from_the_inner_call(x, reference):
    class Sorted(nn.LSTM):
        def forward(self, words, lengths):
            packed = pack_padded_sequence(words, lengths, batch_first=True, enforce_sorted=False)
            return super().forward(packed)[1][0]

    torch.manual_seed(1)
    module = Sorted(WIDTH, UNITS, batch_first=True).double()
    with gs.attach(module, preactivations=True) as probe:
        module(x, LENGTHS)
    recording = gs.validate(probe.recording(), values=True)
    reference.assert_recorded(recording, reference.unroll(module, reference.as_array(x), LENGTHS.tolist()), 1e-12)


def test_the_same_kernel_on_weights_of_nobody_is_nobodys_call(x):
    model, stranger = Holder(stack()), stack()
    with gs.attach(model) as probe:
        stranger(x)
        model(x)
        stranger.forward(x)
    assert probe.recording().sizes["sequence"] == ROWS


def test_two_probes_hear_every_call_once(x):
    model = Holder(stack())
    first, second = gs.attach(model), gs.attach(model)
    with first:
        model(x)
        with second:
            model.rnn.forward(x)
    assert first.recording().sizes["sequence"] == 2 * ROWS
    assert second.recording().sizes["sequence"] == ROWS


def test_modes_go_in_any_order_and_the_users_stay(x):
    class Counting(TorchFunctionMode):
        calls = 0

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.calls += 1
            return func(*args, **(kwargs or {}))

    model = Holder(stack())
    first, second, users = gs.attach(model), gs.attach(model), Counting()
    first.__enter__()
    with users:
        second.__enter__()
        model(x)
        first.__exit__(None, None, None)
        model.rnn.forward(x)
        second.__exit__(None, None, None)
        assert _get_current_function_mode_stack() == [users]
        seen = users.calls
        assert seen > 0
        model(x)
        assert users.calls > seen
    assert first.recording().sizes["sequence"] == ROWS
    assert second.recording().sizes["sequence"] == 2 * ROWS


def test_the_users_mode_sees_the_calls_it_would_see_without_a_probe(x):
    class Listing(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.names.append(getattr(func, "__name__", str(func)))
            return func(*args, **(kwargs or {}))

    model = Holder(stack(num_layers=2))
    with Listing() as bare:
        model(x)
    with gs.attach(model), Listing() as inside:
        model(x)
    assert inside.names == bare.names
    with Listing() as outside, gs.attach(model):
        outside.names.clear()
        model(x)
        names = list(outside.names)
    assert names == bare.names


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt], ids=lambda error: error.__name__)
def test_no_mode_remains_after_an_error(x, error):
    with pytest.raises(error), gs.attach(Holder(stack())):
        raise error


def test_a_block_that_ends_in_another_thread_hears_no_more_and_its_mode_goes_with_the_next_one(x):
    model = Holder(stack())
    probe = gs.attach(model)
    probe.__enter__()
    model(x)
    thread = threading.Thread(target=probe.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    model.rnn.forward(x)
    assert probe.recording().sizes["sequence"] == ROWS
    with gs.attach(model):
        model(x)
    assert _get_current_function_mode_stack() == []


def test_a_default_device_set_inside_the_block_is_the_users(x):
    model = Holder(stack())
    try:
        with gs.attach(model):
            torch.set_default_device("cpu")
            model(x)
        assert [type(mode).__name__ for mode in _get_current_function_mode_stack()] == ["DeviceContext"]
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("reentrant", [False, True], ids=["plain", "reentrant"])
def test_a_model_that_is_run_again_in_the_backward_pass_is_recorded_once(x, reentrant):
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.cell = stack(), nn.GRUCell(UNITS, UNITS).double()

        def forward(self, x):
            x, _ = self.rnn(x)
            state = None
            for now in x.unbind(1):
                state = self.cell(now, state)
            return state

    model = Loop()
    x = x.requires_grad_()
    with gs.attach(model) as probe:
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
    assert probe.recording("rnn").sizes["sequence"] == ROWS
    assert probe.recording("cell").length.values.tolist() == [STEPS] * ROWS
    grad, x.grad = x.grad, None
    model(x).sum().backward()
    torch.testing.assert_close(grad, x.grad, rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # torch's, about vmap of gru_cell
@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_a_call_inside_a_transform_of_torch_func_is_refused_by_a_sentence(x, transform):
    cell = nn.GRUCell(WIDTH, UNITS).double()
    cell.requires_grad_(False)
    run = torch.func.vmap(cell) if transform == "vmap" else torch.func.grad(lambda x: cell(x).sum())
    with pytest.raises(TypeError, match="must be called outside torch") as error, gs.attach(cell):
        run(x[:, 0])
    assert "\n" not in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before the block", "inside the block"])
def test_a_compiled_model_is_recorded_as_an_eager_one(x, when):
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.cell = stack(), nn.GRUCell(UNITS, UNITS).double()

        def forward(self, x):
            x, _ = self.rnn(x)
            state = None
            for now in x.unbind(1):
                state = self.cell(now, state)
            return state

    model = Loop()
    compiled = torch.compile(model, backend="eager")
    bare = compiled(x) if when == "before the block" else None
    with gs.attach(model, labels=lambda args, kwargs: {"first": args[0][..., 0]}) as probe:
        outputs = [compiled(x) for _ in range(2)]
    if bare is not None:
        assert all(torch.equal(output, bare) for output in outputs)
    for path in ("rnn", "cell"):
        recording = gs.validate(probe.recording(path), values=True)
        assert recording.length.values.tolist() == [STEPS] * 2 * ROWS
        np.testing.assert_array_equal(recording["first"].values[:ROWS], x[..., 0].numpy())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRUCell], ids=lambda kind: kind.__name__)
def test_calls_of_forward_after_a_call_that_failed_are_recorded(kind):
    model = nn.ModuleDict({"first": kind(WIDTH, UNITS), "second": kind(WIDTH, UNITS)})
    x = torch.randn(1, ROWS, WIDTH) if kind is nn.LSTM else torch.randn(ROWS, WIDTH)
    with gs.attach(model) as probe:
        with pytest.raises((RuntimeError, ValueError)):
            model["first"](x[..., :-1])
        model["first"].forward(x)
        model["second"].forward(x)
        model["first"](x)
    assert probe.recording("first").sizes["sequence"] == 2 * ROWS
    assert probe.recording("second").sizes["sequence"] == ROWS
