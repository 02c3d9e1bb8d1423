"""A model with a probe attached does, bit for bit, what it does without; afterwards nothing of the probe remains."""

import copy
import io
import threading
from contextlib import ExitStack, nullcontext

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import gatescope as gs

WIDTH, UNITS, STEPS, ROWS = 3, 5, 6, 4
HOOKS = [name for name, value in vars(nn.Module()).items() if "hook" in name and isinstance(value, dict)]


class Model(nn.Module):
    """Fused modules with dropout, a projection, a loop of cells, and dropout of its own."""

    def __init__(self, fails=None):
        super().__init__()
        self.encoder = nn.LSTM(WIDTH, UNITS, num_layers=2, bidirectional=True, dropout=0.3, batch_first=True)
        self.mix = nn.GRU(2 * UNITS, UNITS, num_layers=2, dropout=0.2, batch_first=True)
        self.plain = nn.RNN(UNITS, UNITS, batch_first=True)
        self.cell = nn.LSTMCell(UNITS, UNITS)
        self.drop = nn.Dropout(0.5)
        self.fails = fails

    def forward(self, x):
        packed = pack_padded_sequence(x, torch.tensor([3, 6, 1, 5]), batch_first=True, enforce_sorted=False)
        self.encoder(packed)
        x, _ = self.mix(self.encoder(x)[0])
        x, last = self.plain(self.drop(x))
        if self.fails is not None:
            raise self.fails
        state = None
        for now in x.unbind(1):
            state = self.cell(now, state)
        return state[0] + last[0] + torch.rand(())


def fresh(**kwargs):
    torch.manual_seed(0)
    return Model(**kwargs)


@pytest.fixture
def x():
    return torch.randn(ROWS, STEPS, WIDTH, generator=torch.Generator().manual_seed(2))


def hooks_of(model):
    return {(path, name): dict(getattr(m, name)) for path, m in model.named_modules() for name in HOOKS}


def assert_untouched(model):
    assert {kind: found for kind, found in hooks_of(model).items() if found} == {}
    assert {path for path, m in model.named_modules() if "forward" in vars(m)} == set()


def train(model, x, around):
    """Three optimisation steps and an evaluation; everything that could differ."""
    torch.manual_seed(7)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    seen = []
    with around(model):
        for _ in range(3):
            optimizer.zero_grad()
            output = model(x)
            output.square().sum().backward()
            seen += [output.detach().clone(), *(p.grad.clone() for p in model.parameters())]
            optimizer.step()
        model.eval()
        with torch.no_grad():
            seen.append(model(x))
        model.train()
        with torch.inference_mode():
            seen.append(model(x).clone())
    seen += [p.detach().clone() for p in model.parameters()]
    seen.append(torch.get_rng_state())
    return seen, [module.training for module in model.modules()], [p.requires_grad for p in model.parameters()]


def nested(model):
    stack = ExitStack()
    for _ in range(2):
        stack.enter_context(gs.attach(model, preactivations=True))
    return stack


AROUND = {
    "one probe": gs.attach,
    "one module": lambda model: gs.attach(model, "mix", signals=["update_gate"]),
    "labels": lambda model: gs.attach(model, labels=lambda args, kwargs: {"first": args[0][..., 0]}),
    "two probes": nested,
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND.keys())
def test_outputs_gradients_random_numbers_modes_and_weights_are_bit_identical(x, around):
    bare, bare_modes, bare_flags = train(fresh(), x, lambda model: nullcontext())
    model = fresh()
    seen, modes, flags = train(model, x, around)
    assert len(bare) == len(seen)
    assert all(torch.equal(one, other) for one, other in zip(bare, seen, strict=True))
    assert (bare_modes, bare_flags) == (modes, flags)
    assert_untouched(model)


def test_a_probe_in_the_middle_of_an_optimisation_step_changes_nothing(x):
    def step(attached):
        model = fresh()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for number in range(3):
            optimizer.zero_grad()
            loss = model(x).sum()
            with gs.attach(model) if attached and number == 1 else nullcontext():
                loss = loss + model(x).square().sum()
                loss.backward()
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    assert all(torch.equal(one, other) for one, other in zip(step(False), step(True), strict=True))


def test_versions_of_weights_and_inputs_do_not_move(x):
    model = fresh()
    tensors = [x, *model.parameters()]
    before = [tensor._version for tensor in tensors]
    with gs.attach(model):
        model(x)
    assert [tensor._version for tensor in tensors] == before


def test_the_output_keeps_its_graph_and_its_type(x):
    model = nn.LSTM(WIDTH, UNITS, batch_first=True)
    bare = model(x)
    with gs.attach(model):
        output = model(x)
    assert type(output) is type(bare)
    assert type(output[0].grad_fn) is type(bare[0].grad_fn)


def test_the_users_hooks_stay_in_place_and_run_as_often_as_before(x):
    def run(attached):
        model, calls = fresh(), []
        handles = []
        for name, module in model.named_modules():
            handles += [
                module.register_forward_pre_hook(lambda *a, n=name: calls.append(("pre", n))),
                module.register_forward_hook(lambda *a, n=name: calls.append(("post", n))),
                module.register_forward_hook(lambda *a, n=name, **k: calls.append(("kwargs", n)), with_kwargs=True),
                module.register_forward_hook(lambda *a, n=name: calls.append(("always", n)), always_call=True),
            ]
        model.mix.register_full_backward_hook(lambda *a: calls.append("backward"))
        before = hooks_of(model)
        with gs.attach(model) if attached else nullcontext():
            model(x).sum().backward()
        after = hooks_of(model)
        assert list(after) == list(before)
        assert all(list(after[key].items()) == list(before[key].items()) for key in before)
        for handle in handles:
            handle.remove()
        return calls

    assert run(True) == run(False)


def test_hooks_that_the_user_adds_and_takes_away_inside_the_block_are_the_users(x):
    model, calls = fresh(), []
    early = model.mix.register_forward_hook(lambda *a: calls.append("early"))
    with gs.attach(model):
        late = model.mix.register_forward_hook(lambda *a: calls.append("late"))
        early.remove()
        model(x)
    model(x)
    assert calls == ["late", "late"]
    late.remove()
    assert_untouched(model)


@pytest.mark.parametrize("when", ["before", "inside"])
def test_outputs_that_a_hook_of_the_user_changes_go_on_changed_and_are_recorded_as_computed(x, when, reference):
    model = nn.Sequential(nn.LSTM(WIDTH, UNITS, batch_first=True)).double()
    x = x.double()

    def change(module, args, output):
        return output[0] * 2, output[1]

    if when == "before":
        model[0].register_forward_hook(change)
    with gs.attach(model, preactivations=True) as probe:
        if when == "inside":
            model[0].register_forward_hook(change)
        output, _ = model(x)
    expected = reference.unroll(model[0], reference.as_array(x))
    reference.assert_recorded(probe.recording(), expected, 1e-12)
    torch.testing.assert_close(output, 2 * torch.from_numpy(expected["hidden_state"][0, 0]))


def test_inputs_that_a_hook_of_the_user_changes_are_recorded_as_read(x, reference):
    model = nn.Sequential(nn.GRU(WIDTH, UNITS, batch_first=True)).double()
    model[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    with gs.attach(model, preactivations=True) as probe:
        model(x.double())
    reference.assert_recorded(probe.recording(), reference.unroll(model[0], reference.as_array(x) + 1), 1e-12)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit], ids=lambda e: e.__name__)
def test_nothing_remains_after_an_error_in_the_model_and_what_was_seen_is_kept(x, error):
    failure = error("stop")
    model = fresh(fails=failure)
    with pytest.raises(error) as caught, gs.attach(model) as probe:
        model(x)
    assert caught.value is failure
    assert_untouched(model)
    assert probe.recording("encoder").sizes["sequence"] == 2 * ROWS


def test_a_probe_goes_on_after_an_error_in_the_model(x):
    model = fresh(fails=ValueError("stop"))
    with gs.attach(model) as probe:
        with pytest.raises(ValueError, match="stop"):
            model(x)
        model.fails = None
        model(x)
    assert_untouched(model)
    assert probe.recording("plain").sizes["sequence"] == 2 * ROWS
    assert probe.recording("cell").length.values.tolist() == [STEPS] * ROWS


def test_nothing_remains_after_probes_that_end_out_of_order(x):
    model = fresh()
    first, second, third = (gs.attach(model) for _ in range(3))
    first.__enter__()
    second.__enter__()
    model(x)
    first.__exit__(None, None, None)
    third.__enter__()
    model(x)
    second.__exit__(None, None, None)
    model(x)
    third.__exit__(None, None, None)
    assert_untouched(model)
    counts = [probe.recording("mix").sizes["sequence"] // ROWS for probe in (first, second, third)]
    assert counts == [1, 2, 2]


def test_nothing_remains_after_a_parity_error(x):
    model = nn.Sequential(nn.GRU(WIDTH, UNITS, batch_first=True))
    with pytest.raises(gs.ParityError), gs.attach(model, tolerance=1e-30):
        model(x)
    assert_untouched(model)
    model(x)


def test_nothing_remains_after_an_error_in_labels(x):
    model = nn.GRU(WIDTH, UNITS, batch_first=True)
    with pytest.raises(ZeroDivisionError), gs.attach(model, labels=lambda args, kwargs: 1 / 0):
        model(x)
    assert_untouched(model)
    probe = gs.attach(model)
    probe.annotate(token=[])
    with pytest.raises(ValueError, match="'token' must"), probe:
        model(x)
    assert_untouched(model)


def test_nothing_remains_after_a_block_without_a_call():
    model = fresh()
    with pytest.raises(ValueError, match="must call"), gs.attach(model):
        pass
    assert_untouched(model)


def test_an_error_in_the_block_is_not_replaced_by_one_about_calls():
    with pytest.raises(ZeroDivisionError), gs.attach(fresh()):
        raise ZeroDivisionError


def test_a_probe_that_is_never_entered_touches_nothing():
    model = fresh()
    gs.attach(model)
    assert_untouched(model)


def test_a_block_that_ends_while_another_thread_is_in_the_model_leaves_nothing(x):
    entered, leave = threading.Event(), threading.Event()
    model = nn.Sequential(nn.GRU(WIDTH, UNITS, batch_first=True))

    def wait(module, args):
        entered.set()
        leave.wait(10)

    handle = model[0].register_forward_pre_hook(wait)
    errors = []

    def work():
        try:
            model(x)
        except BaseException as error:
            errors.append(error)

    with gs.attach(model) as probe:
        leave.set()
        model(x)
        entered.clear()
        leave.clear()
        thread = threading.Thread(target=work)
        thread.start()
        entered.wait(10)
    leave.set()
    thread.join()
    handle.remove()
    assert errors == []
    assert_untouched(model)
    assert probe.recording().sizes["sequence"] == ROWS


COPIES = {
    "copy.deepcopy": copy.deepcopy,
    "torch.save": lambda model: torch.load(saved(model), weights_only=False),
}


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES.keys())
def test_copies_of_the_model_made_inside_the_block_record_nothing(x, duplicate):
    model = nn.Sequential(nn.LSTM(WIDTH, UNITS, batch_first=True))
    with gs.attach(model) as probe:
        model(x)
        twin = duplicate(model)
        torch.testing.assert_close(twin(x), model(x), rtol=0, atol=0)
        twin(x)
    assert probe.recording().sizes["sequence"] == 2 * ROWS
    twin(x)
    assert probe.recording().sizes["sequence"] == 2 * ROWS
    assert_untouched(model)


def test_state_dicts_are_those_of_the_bare_model(x):
    model = fresh()
    before = list(model.state_dict())
    with gs.attach(model):
        assert list(model.state_dict()) == before
        model.load_state_dict(fresh().state_dict())
        model(x)


def test_a_probe_lets_go_of_the_graph_of_the_model(x):
    model = nn.LSTM(WIDTH, UNITS, batch_first=True)
    with gs.attach(model) as probe:
        output, _ = model(x)
    recorded = [t for track in probe.tracks.values() for c in track.chunks for t in c.rebuilt.signals.values()]
    assert recorded
    assert not any(tensor.requires_grad for tensor in recorded)
    assert output.requires_grad


def test_a_second_block_with_the_same_probe_is_refused(x):
    model = nn.GRU(WIDTH, UNITS, batch_first=True)
    probe = gs.attach(model)
    with probe:
        model(x)
        with pytest.raises(ValueError, match="one with block"):
            probe.__enter__()
        model(x)
    with pytest.raises(ValueError, match="one with block"):
        probe.__enter__()
    assert_untouched(model)
    assert probe.recording().sizes["sequence"] == 2 * ROWS
