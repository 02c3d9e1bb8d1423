"""Cells in loops and stateful chunks: calls join into sequences where the caller hands the state back, nowhere else."""

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

import gatescope as gs
from gatescope.cells import GRUCell, LSTMCell, Recurrent, RNNCell, from_torch

WIDTH, UNITS, STEPS, ROWS = 3, 5, 6, 4
ATOL = {torch.float32: 5e-6, torch.float64: 1e-12}
TORCH_CELLS = {
    "LSTMCell": nn.LSTMCell,
    "GRUCell": nn.GRUCell,
    "RNNCell tanh": nn.RNNCell,
    "RNNCell relu": lambda *sizes, **options: nn.RNNCell(*sizes, nonlinearity="relu", **options),
}
OPEN_CELLS = {"LSTMCell": LSTMCell, "GRUCell": GRUCell, "RNNCell": RNNCell}
STACKS = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}


class Loop(nn.Module):
    """A cell called once per step, as people write it."""

    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x, state=None):
        for now in x.unbind(1):
            state = self.cell(now, state)
        return state


@pytest.fixture(params=TORCH_CELLS.values(), ids=TORCH_CELLS.keys())
def make(request):
    def make(dtype=torch.float64, **options):
        torch.manual_seed(1)
        return request.param(WIDTH, UNITS, **options).to(dtype)

    return make


@pytest.fixture(params=STACKS.values(), ids=STACKS.keys())
def make_stack(request):
    def make(**options):
        torch.manual_seed(1)
        return request.param(WIDTH, UNITS, **options).double()

    return make


def batch(dtype=torch.float64, steps=STEPS, rows=ROWS, seed=2):
    return torch.randn(rows, steps, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def some_state(cell, rows=ROWS):
    generator = torch.Generator().manual_seed(3)
    dtype = next(cell.parameters()).dtype
    entries = [torch.randn(rows, UNITS, generator=generator, dtype=dtype) for _ in range(2)]
    return tuple(entries) if "LSTM" in type(cell).__name__ else entries[0]


def as_list(state):
    return [state] if isinstance(state, torch.Tensor) else list(state)


def without_calls(recording):
    return recording.drop_vars("call").drop_attrs()


@pytest.mark.parametrize("dtype", ATOL, ids=["float32", "float64"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("given", [False, True], ids=["zero state", "given state"])
def test_a_loop_of_cells_is_one_sequence_per_row(make, reference, dtype, bias, given):
    cell, x = make(dtype, bias=bias), batch(dtype)
    state = some_state(cell) if given else None
    recording = gs.validate(gs.record(Loop(cell), x, state, preactivations=True), values=True)
    initial = [reference.as_array(entry) for entry in as_list(state)] if given else None
    reference.assert_recorded(recording, reference.unroll_cell(cell, reference.as_array(x), initial), ATOL[dtype])
    assert recording.attrs["module"] == "cell"
    assert recording.length.values.tolist() == [STEPS] * ROWS
    assert recording.start.values.tolist() == ["given" if given else "zero"] * ROWS
    np.testing.assert_array_equal(recording.call.values, np.tile(np.arange(STEPS), (ROWS, 1)))


def test_an_unbatched_loop_of_cells_is_one_sequence(make, reference):
    cell, x = make(), batch(rows=1)
    with gs.attach(cell, preactivations=True) as probe:
        state = None
        for now in x[0]:
            state = cell(now, state)
    recording = probe.recording()
    reference.assert_recorded(recording, reference.unroll_cell(cell, reference.as_array(x)), 1e-12)


def test_two_loops_of_different_length_and_batch_are_two_sets_of_sequences(make, reference):
    cell, first, second = make(), batch(), batch(steps=2, rows=1, seed=5)
    loop = Loop(cell)
    with gs.attach(loop, preactivations=True) as probe:
        loop(first)
        loop(second)
    recording = gs.validate(probe.recording(), values=True)
    assert recording.length.values.tolist() == [STEPS] * ROWS + [2]
    assert recording.start.values.tolist() == ["zero"] * (ROWS + 1)
    last = recording.isel(sequence=[ROWS], time=slice(0, 2))
    reference.assert_recorded(last, reference.unroll_cell(cell, reference.as_array(second)), 1e-12)


def test_two_cells_on_top_of_each_other_are_two_modules(reference):
    torch.manual_seed(0)
    lower, upper, x = nn.LSTMCell(WIDTH, UNITS).double(), nn.GRUCell(UNITS, UNITS).double(), batch()

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.lower, self.upper = lower, upper

        def forward(self, x):
            state = top = None
            for now in x.unbind(1):
                state = self.lower(now, state)
                top = self.upper(state[0], top)

    model = Two()
    with gs.attach(model, preactivations=True) as probe:
        model(x)
    read = reference.unroll_cell(lower, reference.as_array(x))
    reference.assert_recorded(probe.recording("lower"), read, 1e-12)
    top = reference.unroll_cell(upper, read["hidden_state"][0, 0])
    reference.assert_recorded(probe.recording("upper"), top, 1e-12)


@pytest.mark.parametrize("options", [{}, {"num_layers": 2}], ids=["one layer", "two layers"])
def test_stateful_chunks_equal_one_long_call(make_stack, options):
    module, x = make_stack(**options, batch_first=True), batch(steps=10)
    whole = gs.record(module, x, preactivations=True)
    with gs.attach(module, preactivations=True) as probe:
        state = None
        for start, stop in ((0, 3), (3, 4), (4, 10)):
            _, state = module(x[:, start:stop], state)
    joined = gs.validate(probe.recording(), values=True)
    assert joined.length.values.tolist() == [10] * ROWS
    np.testing.assert_array_equal(joined.call.values, [[0] * 3 + [1] + [2] * 6] * ROWS)
    xr.testing.assert_allclose(without_calls(joined), without_calls(whole), atol=1e-13)


def test_detached_and_cloned_states_still_continue(make_stack):
    module, x = make_stack(), batch()
    with gs.attach(module) as probe:
        _, state = module(x.transpose(0, 1))
        module(x.transpose(0, 1), torch.utils._pytree.tree_map(lambda entry: entry.detach().clone(), state))
    assert probe.recording().length.values.tolist() == [2 * STEPS] * ROWS


def test_rows_reset_one_by_one_begin_new_sequences(make):
    cell, x = make(), batch()
    with gs.attach(cell) as probe:
        state = None
        for step, now in enumerate(x.unbind(1)):
            if step == 2:
                state = tuple(entry.clone() for entry in as_list(state))
                for entry in state:
                    entry[1] = 0
                state = state if len(state) > 1 else state[0]
            state = cell(now, state)
    recording = gs.validate(probe.recording(), values=True)
    assert recording.length.values.tolist() == [STEPS, 2, STEPS, STEPS, STEPS - 2]
    assert recording.stream.values.tolist() == [0, 1, 2, 3, 1]
    assert recording.start.values.tolist() == ["zero"] * ROWS + ["imposed"]
    assert bool((recording.initial_hidden_state.isel(sequence=-1) == 0).all())
    np.testing.assert_array_equal(recording.call.values[-1], [2, 3, 4, 5, -1, -1])


def test_a_state_changed_by_a_single_bit_begins_a_new_sequence(make):
    cell, x = make(), batch()
    with gs.attach(cell) as probe:
        first = cell(x[:, 0])
        changed = [entry.clone() for entry in as_list(first)]
        changed[-1][2, 3] = torch.nextafter(changed[-1][2, 3], torch.tensor(9.0, dtype=torch.float64))
        cell(x[:, 1], tuple(changed) if len(changed) > 1 else changed[0])
    recording = probe.recording()
    assert recording.length.values.tolist() == [2, 2, 1, 2, 1]
    assert recording.start.values[-1] == "given"
    assert recording.stream.values[-1] == 2


def test_reordered_rows_do_not_join(make):
    cell, x = make(), batch()
    with gs.attach(cell) as probe:
        state = cell(x[:, 0])
        flipped = [entry.flip(0) for entry in as_list(state)]
        cell(x[:, 1], tuple(flipped) if len(flipped) > 1 else flipped[0])
    assert probe.recording().length.values.tolist() == [1] * 2 * ROWS


def test_rows_that_stop_are_shorter_and_the_others_go_on(make):
    cell, x = make(), batch()
    with gs.attach(cell) as probe:
        state = cell(x[:, 0])
        fewer = [entry[:2] for entry in as_list(state)]
        cell(x[:2, 1], tuple(fewer) if len(fewer) > 1 else fewer[0])
    recording = gs.validate(probe.recording(), values=True)
    assert recording.length.values.tolist() == [2, 2, 1, 1]


def test_bidirectional_modules_never_join(make_stack):
    module, x = make_stack(bidirectional=True), batch().transpose(0, 1)
    with gs.attach(module) as probe:
        _, state = module(x)
        module(x, state)
    recording = gs.validate(probe.recording(), values=True)
    assert recording.length.values.tolist() == [STEPS] * 2 * ROWS
    assert recording.start.values.tolist() == ["zero"] * ROWS + ["continued"] * ROWS


def test_packed_chunks_join_each_at_its_own_length(make_stack, reference):
    module, x, lengths = make_stack(), batch(), (2, 6, 1, 4)
    packed = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
    with gs.attach(module, preactivations=True) as probe:
        _, state = module(packed)
        module(x.transpose(0, 1), state)
    recording = gs.validate(probe.recording(), values=True)
    assert recording.length.values.tolist() == [length + STEPS for length in lengths]
    long = torch.zeros(ROWS, 12, WIDTH, dtype=torch.float64)
    for row, length in enumerate(lengths):
        long[row, :length] = x[row, :length]
        long[row, length : length + STEPS] = x[row]
    expected = reference.unroll(module, reference.as_array(long), [length + STEPS for length in lengths])
    reference.assert_recorded(recording, expected, 1e-12)


@pytest.mark.parametrize("kind", OPEN_CELLS.values(), ids=OPEN_CELLS.keys())
def test_our_own_cells_are_recorded_in_a_users_loop(kind, reference):
    torch.manual_seed(1)
    cell, x = kind(WIDTH, UNITS).double(), batch()

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = cell

        def forward(self, x):
            state = cell.zero_state(x, (x.shape[0],))
            for now in x.unbind(1):
                state = self.cell(now, state)

    recording = gs.validate(gs.record(Own(), x, preactivations=True), values=True)
    expected = reference.unroll_cell(gs.to_torch(cell), reference.as_array(x))
    reference.assert_recorded(recording, expected, 1e-12)
    assert recording.length.values.tolist() == [STEPS] * ROWS


@pytest.mark.parametrize("given", [False, True], ids=["zero state", "given state"])
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_our_own_unrolled_networks_are_recorded(make_stack, reference, packed, given):
    module, x, lengths = make_stack(num_layers=2, bidirectional=True, batch_first=True), batch(), (2, 6, 1, 4)
    twin = from_torch(module)
    assert isinstance(twin, Recurrent)
    read = (
        nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first=True, enforce_sorted=False)
        if packed
        else x
    )
    count = 2 if isinstance(module, nn.LSTM) else 1
    entries = [torch.full((4, ROWS, UNITS), 0.5, dtype=torch.float64) for _ in range(count)]
    hx = (tuple(entries) if count == 2 else entries[0]) if given else None
    recording = gs.validate(gs.record(twin, read, hx, preactivations=True), values=True)
    state = [reference.as_array(entry) for entry in entries] if given else None
    expected = reference.unroll(module, reference.as_array(x), lengths if packed else None, state)
    reference.assert_recorded(recording, expected, 1e-12)


def test_our_own_unrolled_network_replays_its_dropout_in_training(reference):
    torch.manual_seed(1)
    twin = from_torch(nn.LSTM(WIDTH, UNITS, num_layers=3, dropout=0.5).double()).train()
    recording = gs.record(twin, batch().transpose(0, 1))
    assert recording.parity < 1e-12
    assert (recording.training, recording.dropout) == (1, 0.5)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_loops_join_within_the_tolerance_that_is_said(make, reference, kind):
    cell, x = make(kind), batch(kind)
    recording = gs.validate(gs.record(Loop(cell), x, preactivations=True), values=True)
    tolerance = {torch.bfloat16: 0.05, torch.float16: 0.01}[kind]
    assert recording.tolerance == tolerance
    assert recording.length.values.tolist() == [STEPS] * ROWS
    reference.assert_recorded(recording, reference.unroll_cell(cell, reference.as_array(x)), 2 * tolerance)


@pytest.mark.parametrize("given", [False, True], ids=["zero state", "given state"])
@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
def test_loops_under_autocast_join_within_the_tolerance_that_is_said(make, reference, kind, given):
    cell, x = make(torch.float32), batch(torch.float32)
    state = some_state(cell) if given else None
    with torch.autocast("cpu", dtype=kind):
        recording = gs.validate(gs.record(Loop(cell), x, state, preactivations=True), values=True)
    assert recording.tolerance == {torch.bfloat16: 0.05, torch.float16: 0.01}[kind]
    assert recording.length.values.tolist() == [STEPS] * ROWS
    initial = [reference.as_array(entry) for entry in as_list(state)] if given else None
    reference.assert_recorded(recording, reference.unroll_cell(cell, reference.as_array(x), initial), 0.05)


def test_streams_that_take_turns_on_one_cell_keep_apart():
    torch.manual_seed(0)
    cell = nn.GRUCell(WIDTH, UNITS)
    first, second = torch.randn(2, 6, 1, WIDTH)
    with gs.attach(cell) as probe, torch.no_grad():
        left = right = None
        for a, b in zip(first, second, strict=True):
            left, right = cell(a, left), cell(b, right)
    recording = probe.recording()
    assert recording.length.values.tolist() == [6, 6]
    with torch.no_grad():
        alone = gs.record(_Loop(cell), second)
    np.testing.assert_array_equal(recording.hidden_state.isel(sequence=1), alone.hidden_state.isel(sequence=0))


class _Loop(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell = cell

    def forward(self, x):
        state = None
        for now in x:
            state = self.cell(now, state)
        return state
