"""Every option of torch's fused modules: all signals equal an independent unrolling in float64."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import dropout
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import gatescope as gs

# torch says so on every projected LSTM in float32, with a probe or without
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")

WIDTH, UNITS, STEPS, ROWS = 3, 5, 6, 4
LENGTHS = (2, 6, 1, 4)
ATOL = {torch.float32: 5e-6, torch.float64: 1e-12}
MODULES = {
    "LSTM": nn.LSTM,
    "LSTM projected": lambda *sizes, **options: nn.LSTM(*sizes, proj_size=2, **options),
    "GRU": nn.GRU,
    "RNN tanh": nn.RNN,
    "RNN relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}
OPTIONS = {
    "one layer": {},
    "two layers": {"num_layers": 2},
    "four layers": {"num_layers": 4},
    "bidirectional": {"bidirectional": True},
    "three layers bidirectional": {"num_layers": 3, "bidirectional": True},
    "batch first": {"num_layers": 2, "batch_first": True},
    "no bias": {"num_layers": 2, "bidirectional": True, "bias": False},
    "dropout in eval": {"num_layers": 2, "dropout": 0.5},
}


def table(**named):
    return [pytest.param(value, id=name) for name, value in named.items()]


@pytest.fixture(params=MODULES.values(), ids=MODULES.keys())
def make(request):
    def make(dtype=torch.float32, **options):
        torch.manual_seed(1)
        return request.param(WIDTH, UNITS, **options).to(dtype).eval()

    return make


def batch(dtype=torch.float32, steps=STEPS, rows=ROWS):
    """(sequence, time, feature)"""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(rows, steps, WIDTH, generator=generator, dtype=dtype)


def states(module, rows=ROWS):
    """An initial state as torch takes it, and as a list."""
    generator = torch.Generator().manual_seed(3)
    slots = module.num_layers * (2 if module.bidirectional else 1)
    dtype = module.weight_ih_l0.dtype
    sizes = [module.proj_size or module.hidden_size, module.hidden_size][: 1 + isinstance(module, nn.LSTM)]
    entries = [torch.randn(slots, rows, size, generator=generator, dtype=dtype) for size in sizes]
    return (tuple(entries) if len(entries) > 1 else entries[0]), entries


def as_module_takes(module, x):
    return x if module.batch_first else x.transpose(0, 1)


@pytest.mark.parametrize("dtype", ATOL, ids=["float32", "float64"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("given", [False, True], ids=["zero state", "given state"])
def test_signals_of_a_padded_batch_equal_the_unrolling(make, reference, options, given, dtype):
    module, x = make(dtype, **options), batch(dtype)
    hx, entries = states(module) if given else (None, None)
    recording = gs.record(module, as_module_takes(module, x), hx, preactivations=True)
    gs.validate(recording, values=True)
    state = [reference.as_array(entry) for entry in entries] if given else None
    reference.assert_recorded(recording, reference.unroll(module, reference.as_array(x), None, state), ATOL[dtype])
    assert recording.start.values.tolist() == (["given"] if given else ["zero"]) * ROWS
    assert recording.parity < ATOL[dtype]


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("given", [False, True], ids=["zero state", "given state"])
@pytest.mark.parametrize("sort", [False, True], ids=["unsorted", "sorted"])
def test_packed_sequences_stand_in_the_callers_order_each_cut_at_its_own_length(make, reference, options, given, sort):
    module, x = make(torch.float64, **options), batch(torch.float64)
    lengths = sorted(LENGTHS, reverse=True) if sort else LENGTHS
    packed = pack_padded_sequence(
        as_module_takes(module, x), torch.tensor(lengths), batch_first=module.batch_first, enforce_sorted=sort
    )
    hx, entries = states(module) if given else (None, None)
    recording = gs.record(module, packed, hx, preactivations=True)
    gs.validate(recording, values=True)
    state = [reference.as_array(entry) for entry in entries] if given else None
    expected = reference.unroll(module, reference.as_array(x), lengths, state)
    reference.assert_recorded(recording, expected, 1e-12)
    assert recording.length.values.tolist() == list(lengths)
    assert recording.stream.values.tolist() == list(range(ROWS))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
@pytest.mark.parametrize("given", [False, True], ids=["zero state", "given state"])
def test_unbatched_input_is_one_sequence(make, reference, options, given):
    module, x = make(torch.float64, **options), batch(torch.float64, rows=1)
    hx, entries = states(module, rows=1) if given else (None, None)
    if given:
        hx = tuple(entry[:, 0] for entry in entries) if isinstance(hx, tuple) else entries[0][:, 0]
    recording = gs.record(module, x[0], hx, preactivations=True)
    gs.validate(recording, values=True)
    state = [reference.as_array(entry) for entry in entries] if given else None
    reference.assert_recorded(recording, reference.unroll(module, reference.as_array(x), None, state), 1e-12)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_a_single_step_is_recorded(make, reference, options):
    module, x = make(torch.float64, **options), batch(torch.float64, steps=1)
    recording = gs.record(module, as_module_takes(module, x), preactivations=True)
    gs.validate(recording, values=True)
    reference.assert_recorded(recording, reference.unroll(module, reference.as_array(x)), 1e-12)


def test_a_long_narrow_sequence_equals_the_unrolling(make, reference):
    module, x = make(), batch(steps=300, rows=1)
    recording = gs.record(module, x.transpose(0, 1), preactivations=True)
    reference.assert_recorded(recording, reference.unroll(module, reference.as_array(x)), 5e-6)


@pytest.mark.parametrize("batch_first", [False, True], ids=["time first", "batch first"])
@pytest.mark.parametrize("bidirectional", [False, True], ids=["forward", "bidirectional"])
def test_dropout_in_training_has_the_masks_of_the_call_itself(make, reference, batch_first, bidirectional):
    module = make(num_layers=3, dropout=0.4, bidirectional=bidirectional, batch_first=batch_first).train()
    x = batch()
    seed = torch.random.get_rng_state()
    with gs.attach(module, preactivations=True) as probe:
        output, _ = module(as_module_takes(module, x))
    recording = probe.recording()
    torch.random.set_rng_state(seed)
    width = (module.proj_size or UNITS) * (1 + bidirectional)
    masks = [dropout(torch.ones(STEPS, ROWS, width), 0.4).transpose(0, 1).double().numpy() for _ in range(2)]
    assert {0.0} < {round(float(value), 3) for value in np.unique(masks)}
    expected = reference.unroll(module, reference.as_array(x), masks=masks)
    reference.assert_recorded(recording, expected, 5e-6)
    own = output if batch_first else output.transpose(0, 1)
    top = np.concatenate(list(recording.hidden_state.values[-1]), axis=-1)
    np.testing.assert_array_equal(top, own.detach().numpy())
    assert (recording.training, recording.dropout) == (1, 0.4)


def test_dropout_in_training_on_packed_input_has_the_masks_of_the_call_itself(make, reference):
    module, x = make(num_layers=2, dropout=0.4, bidirectional=True).train(), batch()
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    seed = torch.random.get_rng_state()
    recording = gs.record(module, packed, preactivations=True)
    torch.random.set_rng_state(seed)
    width = (module.proj_size or UNITS) * 2
    mask = dropout(torch.ones(sum(LENGTHS), width), 0.4)
    masks = [pad_packed_sequence(packed._replace(data=mask), batch_first=True)[0].double().numpy()]
    expected = reference.unroll(module, reference.as_array(x), LENGTHS, masks=masks)
    reference.assert_recorded(recording, expected, 5e-6)


def test_training_without_dropout_between_layers_says_so(make):
    recording = gs.record(make().train(), batch())
    assert recording.training == 1
    assert "dropout" not in recording.attrs


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("options", table(one={}, two_bidirectional={"num_layers": 2, "bidirectional": True}))
def test_half_precision_is_recorded_within_the_tolerance_that_is_said(make, reference, options, kind):
    module, x = make(**options).to(kind), batch().to(kind)
    recording = gs.record(module, x.transpose(0, 1), preactivations=True)
    gs.validate(recording, values=True)
    tolerance = {torch.bfloat16: 0.05, torch.float16: 0.01}[kind]
    assert recording.tolerance == tolerance
    assert 0 < recording.parity < tolerance
    kept = {name for name in recording.data_vars if name != "log_retention_sum"}  # always float64
    assert {recording[name].dtype for name in kept} == {np.dtype("float32")}
    reference.assert_recorded(recording, reference.unroll(module, reference.as_array(x)), 2 * tolerance)


@pytest.mark.parametrize("given", [False, True], ids=["zero state", "given state"])
@pytest.mark.parametrize("options", table(one={}, two_bidirectional={"num_layers": 2, "bidirectional": True}))
def test_autocast_is_recorded_within_the_tolerance_that_is_said(make, reference, options, given):
    module, x = make(**options), batch()
    hx, entries = states(module) if given else (None, None)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        recording = gs.record(module, x.transpose(0, 1), hx, preactivations=True)
    gs.validate(recording, values=True)
    assert recording.tolerance == 0.05
    assert 1e-4 < recording.parity < 0.05
    state = [reference.as_array(entry) for entry in entries] if given else None
    reference.assert_recorded(recording, reference.unroll(module, reference.as_array(x), None, state), 0.05)


def test_a_call_outside_autocast_is_held_to_the_tolerance_that_was_asked(make):
    module, x = make(), batch().transpose(0, 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        module(x)
        with torch.autocast("cpu", enabled=False):
            recording = gs.record(module, x)
    assert recording.tolerance == 1e-4
    assert recording.parity < 1e-5


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
def test_rebuilding_in_blocks_gives_what_rebuilding_at_once_gives(make, reference, monkeypatch, options, size):
    monkeypatch.setattr("gatescope.probe.rebuild.BLOCK_ROWS", size)
    module, x = make(torch.float64, **options), batch(torch.float64)
    hx, entries = states(module)
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    recording = gs.record(module, packed, hx, preactivations=True)
    state = [reference.as_array(entry) for entry in entries]
    reference.assert_recorded(recording, reference.unroll(module, reference.as_array(x), LENGTHS, state), 1e-12)


def test_several_calls_of_different_sizes_stand_one_below_the_other(make, reference):
    module = make(torch.float64, num_layers=2, bidirectional=True)
    batches = [batch(torch.float64, steps=steps, rows=rows) for steps, rows in ((6, 4), (2, 1), (9, 3))]
    with gs.attach(module, preactivations=True) as probe:
        for x in batches:
            module(x.transpose(0, 1))
    recording = probe.recording()
    gs.validate(recording, values=True)
    assert recording.length.values.tolist() == [6] * 4 + [2] + [9] * 3
    assert recording.stream.values.tolist() == [0, 1, 2, 3, 0, 0, 1, 2]
    assert recording.call.max("time").values.tolist() == [0] * 4 + [1] + [2] * 3
    start = 0
    for x in batches:
        part = recording.isel(sequence=slice(start, start + x.shape[0]), time=slice(0, x.shape[1]))
        reference.assert_recorded(part, reference.unroll(module, reference.as_array(x)), 1e-12)
        rest = recording.isel(sequence=slice(start, start + x.shape[0]), time=slice(x.shape[1], None))
        assert bool(rest.hidden_state.isnull().all())
        start += x.shape[0]


def test_packed_and_padded_calls_mix_in_one_recording(make, reference):
    module, x = make(torch.float64), batch(torch.float64)
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    with gs.attach(module, preactivations=True) as probe:
        module(packed)
        module(x.transpose(0, 1))
    recording = gs.validate(probe.recording(), values=True)
    assert recording.length.values.tolist() == [*LENGTHS, *[STEPS] * ROWS]
    for rows, lengths in ((slice(0, ROWS), LENGTHS), (slice(ROWS, None), None)):
        expected = reference.unroll(module, reference.as_array(x), lengths)
        reference.assert_recorded(recording.isel(sequence=rows), expected, 1e-12)


def test_recurrent_weights_stand_by_gate_and_say_which_state_they_read(make, reference):
    module = make(num_layers=2, bidirectional=True)
    recording = gs.record(module, batch())
    for layer in range(2):
        for direction, suffix in (("forward", ""), ("backward", "_reverse")):
            here = {"layer": layer, "direction": direction}
            stored = recording.weight_hh.sel(here).values
            own = getattr(module, f"weight_hh_l{layer}{suffix}").detach().numpy()
            np.testing.assert_array_equal(stored.reshape(own.shape), own)
            if module.proj_size:
                own = getattr(module, f"weight_hr_l{layer}{suffix}").detach().numpy()
                np.testing.assert_array_equal(recording.weight_hr.sel(here).values, own)


def test_only_the_wanted_signals_are_kept(make, reference):
    module, x = make(torch.float64), batch(torch.float64)
    expected = reference.unroll(module, reference.as_array(x))
    kept = {name: values for name, values in expected.items() if not name.endswith("_preactivation")}
    reference.assert_recorded(gs.record(module, x.transpose(0, 1)), kept, 1e-12)
    for name in expected:
        if not name.startswith("initial_"):
            recording = gs.record(module, x.transpose(0, 1), signals=[name])
            one = {k: v for k, v in expected.items() if k == name or k.startswith("initial_")}
            reference.assert_recorded(recording, one, 1e-12)


def test_attributes_say_what_each_signal_is(make):
    recording = gs.record(make(), batch())
    for name, variable in recording.data_vars.items():
        if "role" in variable.attrs and "gate" in name:
            assert (variable.lower, variable.upper) == (0.0, 1.0)
    bounded = not (recording.attrs["cell"] == "LSTMCell" and "projection" in recording.dims)
    relu = recording.attrs["cell"] == "RNNCell" and bool((recording.hidden_state == 0).any())
    assert ("lower" in recording.hidden_state.attrs) == (bounded and not relu)
