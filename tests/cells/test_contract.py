"""What every cell promises; each test runs on each row of the table in `conftest.py`."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gatescope.cells import linear_scan
from gatescope.signals import PREACTIVATION, ROLES, retention_form

DOUBLE = torch.float64
CLAMPED_AT = 0.3


class Recorder:
    """A tap that keeps every value by name, after `change` had its say."""

    def __init__(self, change=lambda name, value: value):
        self.values = {}
        self.change = change

    def __call__(self, name, value):
        value = self.change(name, value)
        self.values[name] = value
        return value


def clamp(signal):
    """A change, for torch and numpy alike, that holds unit 0 of one signal at a fixed value."""

    def change(name, value):
        if name != signal:
            return value
        value = value.clone() if isinstance(value, torch.Tensor) else value.copy()
        value[..., 0] = CLAMPED_AT
        return value

    return change


def numpy_weights(cell):
    return {name: weight.detach().numpy() for name, weight in cell.named_parameters()}


def random_state(cell, *batch):
    return tuple(torch.randn(*batch, size, dtype=DOUBLE) for size in cell.state_sizes)


def unroll(cell, inputs, state, change=lambda name, value: value):
    """Each step's recorder and the state before each step."""
    recorders, before = [], []
    for x in inputs:
        before.append(state)
        recorders.append(Recorder(change))
        state = cell(x, state, recorders[-1])
    return recorders, before


def unroll_numpy(row, cell, inputs, state, change=lambda name, value: value):
    recorders = []
    state = tuple(entry.numpy() for entry in state)
    for x in inputs.numpy():
        recorders.append(Recorder(change))
        state = row.equations(numpy_weights(cell), x, state, recorders[-1])
    return recorders


def difference(these, those):
    """Largest difference over all steps and all names, which must be the same in the same order."""
    worst = 0.0
    for one, other in zip(these, those, strict=True):
        assert list(one.values) == list(other.values)
        for name, value in one.values.items():
            worst = max(worst, np.abs(value.detach().numpy() - other.values[name]).max())
    return worst


def test_taps_come_as_declared_by_name_and_in_order(row):
    cell = row.make(3, 4)
    recorder = Recorder()
    cell(torch.randn(2, 3), cell.zero_state(torch.zeros(()), (2,)), recorder)
    names = list(recorder.values)
    assert [name for name in names if not name.endswith(PREACTIVATION)] == [signal.name for signal in cell.signals]
    for name in names:
        if name.endswith(PREACTIVATION):
            assert names[names.index(name) + 1] == name.removesuffix(PREACTIVATION)


def test_declarations_use_the_shared_vocabulary(row):
    cell = row.make(3, 4)
    by_name = {signal.name: signal for signal in cell.signals}
    assert {signal.role for signal in cell.signals} <= set(ROLES)
    assert set(cell.states) <= set(by_name)
    assert sum(signal.role == "memory" for signal in cell.signals) == 1
    form, what = retention_form(cell.retention)
    assert form in ("none", "constant") or by_name[what].bounds == (0, 1)
    if cell.recurrent_weight() is not None:
        assert cell.recurrent_weight().shape == (len(cell.gates), cell.hidden_size, cell.output_size)


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    batch=st.lists(st.integers(1, 3), max_size=3), width=st.integers(1, 4), units=st.integers(2, 5), bias=st.booleans()
)
def test_recorded_signals_satisfy_the_equations_for_any_leading_dims(row, batch, width, units, bias):
    cell = row.make(width, units, bias=bias, dtype=DOUBLE)
    inputs, state = torch.randn(4, *batch, width, dtype=DOUBLE), random_state(cell, *batch)
    recorders, _ = unroll(cell, inputs, state)
    assert difference(recorders, unroll_numpy(row, cell, inputs, state)) < 1e-12


def test_the_state_handed_on_is_the_recorded_one(row):
    cell = row.make(3, 4)
    recorder = Recorder()
    state = cell(torch.randn(2, 3), cell.zero_state(torch.zeros(()), (2,)), recorder)
    assert len(state) == len(cell.states)
    for name, entry, size in zip(cell.states, state, cell.state_sizes, strict=True):
        assert entry is recorder.values[name]
        assert entry.shape == (2, size)


def test_bounds_hold_and_are_the_ends_of_the_squasher(row):
    cell = row.make(8, 20, dtype=DOUBLE)
    inputs = 200 * torch.randn(40, 16, 8, dtype=DOUBLE)
    recorders, _ = unroll(cell, inputs, cell.zero_state(inputs, (16,)))
    for signal in cell.signals:
        values = torch.stack([recorder.values[signal.name] for recorder in recorders])
        if signal.bounds is None:
            assert values.abs().max() > 1
        else:
            lower, upper = signal.bounds
            assert lower <= values.min() < lower + 0.01
            assert upper - 0.01 < values.max() <= upper


def test_retention_is_what_multiplies_the_old_memory(row_that_retains):
    cell = row_that_retains.make(3, 4, dtype=DOUBLE)
    form, what = retention_form(cell.retention)
    recorder = Recorder(lambda name, value: torch.zeros_like(value) if name == "candidate" else value)
    state = random_state(cell, 5)
    cell(torch.randn(5, 3, dtype=DOUBLE), state, recorder)
    memory = next(signal.name for signal in cell.signals if signal.role == "memory")
    keep = what if form == "constant" else recorder.values[what]
    kept = (1 - keep if form == "complement" else keep) * state[cell.states.index(memory)]
    assert (recorder.values[memory] - kept).abs().max() < 1e-14


@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_equal_torchs(row_in_torch, bias):
    theirs, ours = row_in_torch.torch(3, 5, bias=bias, dtype=DOUBLE), row_in_torch.make(3, 5, bias=bias, dtype=DOUBLE)
    ours.load_state_dict(theirs.state_dict())
    inputs = torch.randn(6, 2, 3, dtype=DOUBLE)
    results = []
    for cell, single in ((theirs, len(ours.states) == 1), (ours, False)):
        torch.manual_seed(1)
        x = inputs.clone().requires_grad_()
        state = start = tuple(entry.requires_grad_() for entry in random_state(ours, 2))
        for now in x.unbind(0):
            state = cell(now, state[0] if single else state)
            state = (state,) if single else state
        sum((entry**3).sum() for entry in state).backward()
        sources = [x, *start, *cell.parameters()]
        results.append([*state, *(source.grad for source in sources)])
    for theirs_now, ours_now in zip(*results, strict=True):
        assert (theirs_now - ours_now).abs().max() < 1e-12


def test_the_same_seed_draws_torchs_initial_weights(row_in_torch):
    torch.manual_seed(3)
    theirs = row_in_torch.torch(3, 5).state_dict()
    torch.manual_seed(3)
    ours = row_in_torch.make(3, 5).state_dict()
    assert all(torch.equal(theirs[name], ours[name]) for name in theirs)
    assert list(theirs) == list(ours)


def test_initial_weights_fill_their_interval(row):
    cell, end = row.make(20, 30), row.interval(30)
    for name, weight in cell.named_parameters():
        if not (row.own_biases and name.startswith("bias")):
            assert 0.9 * end < weight.abs().max() <= torch.tensor(end)


def test_gradients_equal_finite_differences(row):
    cell = row.make(2, 3, dtype=DOUBLE)
    x, state = torch.randn(2, 2, dtype=DOUBLE, requires_grad=True), random_state(cell, 2)
    names = [name for name, _ in cell.named_parameters()]

    def run(x, *rest):
        weights = dict(zip(names, rest[len(state) :], strict=True))
        return torch.func.functional_call(cell, weights, (x, rest[: len(state)]))

    sources = [x, *(entry.requires_grad_() for entry in state), *(weight.detach() for weight in cell.parameters())]
    assert torch.autograd.gradcheck(run, [source.requires_grad_() for source in sources])


@pytest.mark.parametrize("steps", [1, 7, 150])
def test_the_rebuild_of_all_steps_at_once_equals_going_step_by_step(row_in_parallel, steps):
    cell = row_in_parallel.make(3, 4, dtype=DOUBLE)
    inputs, state = torch.randn(steps, 2, 3, dtype=DOUBLE), random_state(cell, 2)
    recorders, before = unroll(cell, inputs, state)
    shown = torch.stack([entry[0] for entry in before])
    rebuilt = Recorder()
    cell(inputs, (shown, *state[1:]), rebuilt, linear_scan)
    assert list(rebuilt.values) == list(recorders[0].values)
    for name, values in rebuilt.values.items():
        true = torch.stack([recorder.values[name] for recorder in recorders])
        assert (values - true).abs().max() < 1e-12


def test_a_rewritten_signal_acts_inside_the_recurrence(row):
    cell = row.make(3, 4, dtype=DOUBLE)
    inputs, state = torch.randn(6, 2, 3, dtype=DOUBLE), random_state(cell, 2)
    untouched, _ = unroll(cell, inputs, state)
    for name in untouched[0].values:
        changed, _ = unroll(cell, inputs, state, clamp(name))
        assert (changed[-1].values[name][..., 0] == CLAMPED_AT).all()
        assert difference(changed, unroll_numpy(row, cell, inputs, state, clamp(name))) < 1e-12
        last = cell.states[0]
        assert (changed[-1].values[last] - untouched[-1].values[last])[..., 1:].abs().max() > 1e-6


def test_pickle_deepcopy_and_state_dict_keep_what_the_cell_computes(row):
    cell = row.make(3, 4)
    x, state = torch.randn(2, 3), cell.zero_state(torch.zeros(()), (2,))
    loaded = row.make(3, 4)
    loaded.load_state_dict(cell.state_dict())
    for twin in (pickle.loads(pickle.dumps(cell)), copy.deepcopy(cell), loaded):
        assert all(torch.equal(one, other) for one, other in zip(cell(x, state), twin(x, state), strict=True))
        assert twin.signals == cell.signals


def test_a_cell_without_bias_is_one_whose_biases_are_zero(row):
    bare, biased = row.make(3, 4, bias=False), row.make(3, 4)
    missing = biased.load_state_dict(bare.state_dict(), strict=False).missing_keys
    assert missing
    for name, weight in biased.named_parameters():
        if name in missing:
            torch.nn.init.zeros_(weight)
    x, state = torch.randn(2, 3), bare.zero_state(torch.zeros(()), (2,))
    assert torch.equal(bare(x, state)[0], biased(x, state)[0])


def test_device_and_dtype_reach_every_weight(row):
    cell = row.make(3, 4, device="meta", dtype=torch.float16)
    assert all(weight.is_meta and weight.dtype == torch.float16 for weight in cell.parameters())


def test_bad_sizes_and_shapes_are_told_in_one_sentence_with_both_numbers(row):
    with pytest.raises(ValueError, match=r"input_size of \w+ must be at least 1; 0 came"):
        row.make(0, 4)
    with pytest.raises(ValueError, match=r"(hidden_size|blocks) of \w+ must be .*at least 1; -2 came"):
        row.make(3, -2)
    cell = row.make(3, 4)
    state = cell.zero_state(torch.zeros(()), (2,))
    with pytest.raises(ValueError, match=r"must be 3 wide .* shape \(2, 5\) came"):
        cell(torch.randn(2, 5), state)
    with pytest.raises(ValueError, match=rf"must be the tuple .* {len(state) + 1} entries came"):
        cell(torch.randn(2, 3), (*state, state[0]))
    for place, name in enumerate(cell.states):
        for wrong in (torch.zeros(2, 9), torch.zeros(5, cell.state_sizes[place]), torch.zeros(())):
            given_state = [*state]
            given_state[place] = wrong
            with pytest.raises(ValueError, match=rf"{name} of \w+ must have shape"):
                cell(torch.randn(2, 3), tuple(given_state))
