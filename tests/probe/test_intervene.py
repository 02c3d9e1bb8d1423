"""Interventions against recurrences written out here, row by row in float64, that change the same values."""

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import gatescope as gs
from gatescope.probe.opened import tapped

# torch says so once in a process, of its own LSTM in single precision
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

DOUBLE = torch.float64
KINDS = {
    "LSTM": (nn.LSTM, {}),
    "projection": (nn.LSTM, {"proj_size": 3}),
    "GRU": (nn.GRU, {}),
    "RNN": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
}
SIGNALS = {
    "LSTM": ["forget_gate", "input_gate_preactivation", "candidate", "cell_state", "hidden_state"],
    "projection": ["output_gate", "cell_state", "hidden_state"],
    "GRU": ["reset_gate", "update_gate_preactivation", "candidate_recurrent", "candidate", "hidden_state"],
    "RNN": ["hidden_state_preactivation", "hidden_state"],
    "relu": ["hidden_state"],
}
LENGTHS = [4, 7, 1]


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def one_step(kind, w, x, state, edit):
    """One row's next state; every named value goes through `edit(name, value)`."""
    a = w["ih"] @ x + w["b_ih"]
    b = w["hh"] @ state[0] + w["b_hh"]
    if kind in ("LSTM", "projection"):
        names = ["input_gate", "forget_gate", "candidate", "output_gate"]
        pre = {n: edit(n + "_preactivation", v) for n, v in zip(names, np.split(a + b, 4), strict=True)}
        i, f, g, o = (edit(n, np.tanh(pre[n]) if n == "candidate" else sigmoid(pre[n])) for n in names)
        c = edit("cell_state", f * state[1] + i * g)
        h = o * np.tanh(c)
        return edit("hidden_state", w["hr"] @ h if "hr" in w else h), c
    if kind == "GRU":
        (xr_, xz, xn), (hr, hz, hn) = np.split(a, 3), np.split(b, 3)
        r = edit("reset_gate", sigmoid(edit("reset_gate_preactivation", xr_ + hr)))
        z = edit("update_gate", sigmoid(edit("update_gate_preactivation", xz + hz)))
        n = edit("candidate_preactivation", xn + r * edit("candidate_recurrent", hn))
        return (edit("hidden_state", (1 - z) * edit("candidate", np.tanh(n)) + z * state[0]),)
    value = edit("hidden_state_preactivation", a + b)
    return (edit("hidden_state", np.tanh(value) if kind == "RNN" else np.maximum(value, 0)),)


def by_hand(kind, module, x, lengths, edit):
    """What the last layer shows, (time, row, unit), 0 in padding; `edit(name, value, layer, way, time, row)`."""
    weights = {name: value.detach().numpy() for name, value in module.named_parameters()}
    shown = x
    for layer in range(module.num_layers):
        sides = []
        for way, suffix in zip(("forward", "backward"), ("", "_reverse"), strict=True):
            if suffix and not module.bidirectional:
                continue
            end = f"_l{layer}{suffix}"
            w = {short: weights[f"weight_{short}{end}"] for short in ("ih", "hh")}
            w |= {f"b_{short}": weights[f"bias_{short}{end}"] for short in ("ih", "hh")}
            if f"weight_hr{end}" in weights:
                w["hr"] = weights[f"weight_hr{end}"]
            width = module.proj_size or module.hidden_size
            out = np.zeros((*x.shape[:2], width))
            for row, length in enumerate(lengths):
                state = (np.zeros(width), np.zeros(module.hidden_size))
                for time in range(length) if way == "forward" else reversed(range(length)):
                    at = (layer, way, time, row)
                    state = one_step(
                        kind, w, shown[time, row], state, lambda name, value, at=at: edit(name, value.copy(), *at)
                    )
                    out[time, row] = state[0]
            sides.append(out)
        shown = np.concatenate(sides, axis=-1)
    return shown


def build(kind, **options):
    torch.manual_seed(0)
    cls, own = KINDS[kind]
    return cls(2, 4, **own, **options, dtype=DOUBLE)


def batch(steps=7, rows=3):
    return torch.randn(steps, rows, 2, dtype=DOUBLE, generator=torch.Generator().manual_seed(1))


def clamp(signal, number, *, layers=None, ways=None, units=slice(None), times=None, rows=None):
    def edit(name, value, layer, way, time, row):
        here = name == signal and (layers is None or layer in layers) and (ways is None or way in ways)
        if here and (times is None or time in times) and (rows is None or row in rows):
            value[units] = number
        return value

    return edit


CASES = [(kind, signal) for kind, signals in SIGNALS.items() for signal in signals]


@pytest.mark.parametrize(("kind", "signal"), CASES)
def test_a_clamped_signal_gives_what_a_loop_with_the_same_clamp_gives(kind, signal):
    module, x = build(kind), batch()
    with gs.intervene(module, signal, 0.3, unit=[0, 2], time=slice(2, 5), sequence=[0, 2]):
        output, _ = module(x)
    edit = clamp(signal, 0.3, units=[0, 2], times=range(2, 5), rows=(0, 2))
    np.testing.assert_allclose(output.detach(), by_hand(kind, module, x.numpy(), [7] * 3, edit), rtol=0, atol=1e-12)
    untouched = module(x)[0]
    assert (output - untouched)[:2].abs().max() < 1e-12
    assert (output - untouched)[2:].abs().max() > 1e-3
    assert (output - untouched)[:, 1].abs().max() < 1e-12


@pytest.mark.parametrize("direction", ["forward", "backward", None])
@pytest.mark.parametrize("kind", ["LSTM", "projection", "GRU", "RNN"])
def test_in_three_layers_of_two_directions_one_is_changed(kind, direction):
    module, x = build(kind, num_layers=3, bidirectional=True), batch()
    with gs.intervene(module, "hidden_state", -0.5, layer=1, direction=direction, time=3):
        output, _ = module(x)
    ways = None if direction is None else (direction,)
    edit = clamp("hidden_state", -0.5, layers=(1,), ways=ways, times=(3,))
    np.testing.assert_allclose(output.detach(), by_hand(kind, module, x.numpy(), [7] * 3, edit), rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", ["sorted", "unsorted"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_rows_of_packed_input_are_those_of_the_callers_batch(kind, order):
    module, x = build(kind, num_layers=2, bidirectional=True), batch()
    lengths = sorted(LENGTHS, reverse=True) if order == "sorted" else LENGTHS
    packed = pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=order == "sorted")
    with gs.intervene(module, "candidate", 0.9, unit=1, time=[0, 2], sequence=lengths.index(4)):
        output, _ = module(packed)
    edit = clamp("candidate", 0.9, units=1, times=(0, 2), rows=(lengths.index(4),))
    expected = by_hand(kind, module, x.numpy(), lengths, edit)
    np.testing.assert_allclose(pad_packed_sequence(output)[0].detach(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("make", [lambda: build("GRU"), lambda: gs.from_torch(build("GRU"))], ids=["torch", "ours"])
def test_a_packed_row_that_has_ended_has_no_more_steps(make):
    module, shapes = make(), []
    packed = pack_padded_sequence(batch(), torch.tensor(LENGTHS), enforce_sorted=False)
    with gs.intervene(module, "update_gate", lambda gate: shapes.append(len(gate)) or gate):
        module(packed)
    assert shapes == [3, 2, 2, 2, 1, 1, 1]
    never = pytest.raises(ValueError, match="time 5, sequence 0 never came")
    with never, gs.intervene(module, "update_gate", 0.0, sequence=0, time=5):
        module(packed)


@pytest.mark.parametrize("form", ["unbatched", "batch_first"])
def test_unbatched_and_batch_first_inputs_have_their_rows_and_steps(form):
    module, x = build("GRU", batch_first=form == "batch_first"), batch(rows=1 if form == "unbatched" else 3)
    with gs.intervene(module, "update_gate", 1.0, time=slice(3, None), sequence=0):
        output, _ = module(x[:, 0] if form == "unbatched" else x.transpose(0, 1))
    output = output.unsqueeze(1) if form == "unbatched" else output.transpose(0, 1)
    edit = clamp("update_gate", 1.0, times=range(3, 7), rows=(0,))
    expected = by_hand("GRU", module, x.numpy(), [7] * x.shape[1], edit)
    np.testing.assert_allclose(output.detach(), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(output[3:, 0], output[2, 0].expand(4, -1), rtol=0, atol=0)


class Loop(nn.Module):
    """A cell in a loop; where told, the state is set to zero on the way, for all rows or one."""

    def __init__(self, cell, zero_at=None):
        super().__init__()
        self.cell, self.zero_at = cell, zero_at

    def forward(self, x):
        state, shown = None, []
        for time, now in enumerate(x):
            if time == self.zero_at:
                state = None
            state = self.cell(now, state)
            shown.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(shown)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_steps_of_a_cell_in_a_loop_are_counted(kind):
    module, x = build(kind), batch()
    cell = {"LSTM": nn.LSTMCell, "GRU": nn.GRUCell, "RNN": nn.RNNCell}[kind](2, 4, dtype=DOUBLE)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in module.state_dict().items()})
    model = Loop(cell)
    with gs.intervene(model, "hidden_state", 0.2, unit=[3], time=[1, 4]):
        output = model(x)
    edit = clamp("hidden_state", 0.2, units=[3], times=(1, 4))
    np.testing.assert_allclose(output.detach(), by_hand(kind, module, x.numpy(), [7] * 3, edit), rtol=0, atol=1e-12)
    with gs.intervene(model, "hidden_state", 0.2, unit=[3], time=[1, 4]):
        again = model(x)
    assert torch.equal(output, again)


def test_a_cell_whose_state_is_set_to_zero_begins_at_step_0_again():
    model, x = Loop(nn.GRUCell(2, 4), zero_at=4), batch().float()
    with gs.intervene(model, "hidden_state", 0.25, time=1):
        output = model(x)
    assert [bool((now == 0.25).all()) for now in output] == [False, True, False, False, False, True, False]


def test_rows_of_a_cell_that_stand_at_different_steps_are_told_apart():
    cell, x = nn.LSTMCell(2, 4), batch(steps=4).float()
    with gs.intervene(cell, "hidden_state", 0.25, time=2), torch.no_grad():
        state, shown = None, []
        for time, now in enumerate(x):
            if time == 1:
                state = tuple(entry.clone() for entry in state)
                for entry in state:
                    entry[1] = 0.5  # row 1 begins anew
            state = cell(now, state)
            shown.append((state[0] == 0.25).all(-1).tolist())
    assert shown == [[False] * 3, [False] * 3, [True, False, True], [False, True, False]]


OWN = {
    "memory blocks": lambda: gs.Recurrent([[gs.MemoryBlockCell(2, blocks=2, size=2)]]),
    "peepholes": lambda: gs.Recurrent([[gs.PeepholeLSTMCell(2, 4)]]),
    "coupled": lambda: gs.Recurrent([[gs.PeepholeLSTMCell(2, 4, variant="CIFG")]]),
    "gates see gates": lambda: gs.Recurrent([[gs.PeepholeLSTMCell(2, 4, variant="FGR")]]),
    "reset before": lambda: gs.Recurrent([[gs.ResetBeforeGRUCell(2, 4)]]),
    "network": lambda: nn.Sequential(gs.BlockNetwork(2, 3, blocks=2, size=2)),
}


@pytest.mark.parametrize("make", OWN.values(), ids=OWN)
def test_every_signal_of_our_own_cells_can_be_changed(make):
    torch.manual_seed(0)
    model, x = make().double(), batch()
    [path] = [module.path for module in gs.modules(model)]
    part = model.get_submodule("" if path == "model" else path)
    for signal in part.first_cell.signals:
        with gs.intervene(model, signal.name, 0.123, unit=1):
            changed = model(x)[0]
            seen = []
            with tapped(model, {path: lambda name, value, seen=seen, **at: seen.append((name, value)) or value}):
                model(x)
        assert all((value[:, 1] == 0.123).all() for name, value in seen if name == signal.name)
        assert (changed - model(x)[0]).abs().max() > 1e-4


def test_a_memory_block_is_chosen_by_its_number():
    model, x = OWN["memory blocks"](), batch().float()
    with gs.intervene(model, "hidden_state", 0.0, block=1):
        output, _ = model(x)
    assert (output[..., 2:] == 0).all()
    assert (output[..., :2] != 0).all()


def taken(model, path, x, **call):
    """All values of an open run as the equations had them, by name, layer, direction and time."""
    found = {}

    def keep(name, value, *, layer, direction, time):
        found[name, layer, direction, time] = value.detach().clone()
        return value

    with tapped(model, {path: keep}):
        output = model(x, **call)
    return found, output


NEUTRAL = {kind: (lambda kind=kind: build(kind, num_layers=2, bidirectional=True)) for kind in KINDS} | {
    name: (lambda make=make: make().double()) for name, make in OWN.items()
}


@pytest.mark.parametrize("single", [False, True], ids=["float64", "float32"])
@pytest.mark.parametrize("make", NEUTRAL.values(), ids=NEUTRAL)
def test_what_changes_nothing_is_neutral_bit_for_bit(make, single):
    torch.manual_seed(0)
    model, x = make(), batch(steps=3, rows=5)
    if single:
        model, x = model.float(), x.float()
    [path] = [module.path for module in gs.modules(model)]
    with gs.opened(model):
        plain = model(x)[0]
    values, _ = taken(model, path, x)
    steps = 1 + max(time for *_, time in values)
    for signal in dict.fromkeys(name for name, *_ in values):
        with gs.intervene(model, signal, lambda value: value):
            assert torch.equal(model(x)[0], plain), signal
        own = torch.stack([values[signal, 0, "forward", time] for time in range(steps)], dim=1)
        for unit in ([0, 2], None):
            chosen = own if unit is None else own[..., unit]
            with gs.intervene(model, signal, chosen, layer=0, direction="forward", unit=unit):
                assert torch.equal(model(x)[0], plain), (signal, unit)


@pytest.mark.parametrize("make", NEUTRAL.values(), ids=NEUTRAL)
def test_clamped_to_what_a_recording_of_the_open_run_says_nothing_changes(make):
    torch.manual_seed(0)
    model, x = make().float(), batch(steps=3, rows=5).float()
    [path] = [module.path for module in gs.modules(model)]
    values, _ = taken(model, path, x)
    with gs.opened(model), torch.no_grad():
        plain = model(x)[0]
        recording = gs.record(model, x, preactivations=True)
    for (name, layer, way, time), value in values.items():
        recorded = recording[name].sel(layer=layer, direction=way, time=time).values
        np.testing.assert_array_equal(recorded, value, err_msg=name)
    with torch.no_grad():
        for name in dict.fromkeys(name for name, *_ in values):
            with gs.intervene(model, name, recording, unit=1):
                assert torch.equal(model(x)[0], plain), name


@pytest.mark.parametrize("order", ["record inside", "attach around"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_recording_of_a_changed_run_holds_what_was_computed(packed, order):
    module, x = build("LSTM", num_layers=2, bidirectional=True), batch()
    given = pack_padded_sequence(x, torch.tensor(LENGTHS), enforce_sorted=False) if packed else x
    change = gs.intervene(module, "forget_gate", 0.7, layer=0, unit=2)
    probe = gs.attach(module)
    with torch.no_grad():
        for block in (change, probe) if order == "record inside" else (probe, change):
            block.__enter__()
        output, _ = module(given)
        for block in (probe, change) if order == "record inside" else (change, probe):
            block.__exit__(None, None, None)
    recording = probe.recording()
    assert recording.attrs["intervened"] == 1
    assert recording.parity == 0
    lengths = LENGTHS if packed else [7] * 3
    seen = {}

    def edit(name, value, layer, way, time, row):
        if name == "forget_gate" and layer == 0:
            value[2] = 0.7
        seen[name, layer, way, time, row] = value
        return value

    by_hand("LSTM", module, x.numpy(), lengths, edit)
    for (name, layer, way, time, row), value in seen.items():
        if name in recording:
            found = recording[name].sel(layer=layer, direction=way, time=time, sequence=row)
            np.testing.assert_allclose(found, value, rtol=0, atol=1e-12, err_msg=name)
    assert bool(recording.forget_gate.isel(sequence=0, time=-1).isnull().all()) == packed
    gs.validate(recording)
    kept = recording.hidden_state.isel(layer=1, direction=0).transpose("time", "sequence", "unit").fillna(0)
    shown = pad_packed_sequence(output)[0] if packed else output
    np.testing.assert_array_equal(kept, shown[..., :4])


def test_a_recording_of_a_changed_loop_of_cells_holds_what_was_computed():
    model, x = Loop(nn.GRUCell(2, 4)), batch().float()
    with gs.intervene(model, "update_gate", 0.25, time=[2, 3]), torch.no_grad():
        recording = gs.record(model, x)
    assert dict(recording.sizes)["time"] == 7
    there = (recording.update_gate == 0.25).all(["layer", "direction", "sequence", "unit"]).values.tolist()
    assert there == [False, False, True, True, False, False, False]
    assert recording.attrs["intervened"] == 1
    with gs.intervene(model, "update_gate", lambda gate: gate):
        assert "intervened" not in gs.record(model, x).attrs


@pytest.mark.parametrize("asked", ["gradients", "jacobian"])
def test_derivatives_that_the_equations_do_not_give_are_not_recorded(asked):
    module = build("GRU")
    with gs.intervene(module, "update_gate", 0.5):
        with (
            pytest.raises(ValueError, match=f"{asked}=True needs signals that follow"),
            gs.attach(module, **{asked: True}),
        ):
            module(batch())
        with pytest.raises(ValueError, match="a loss gradient needs signals that follow from the equations"):
            gs.loss_gradient(module, batch(), lambda found: found[0][-1].sum())


def test_a_recording_is_matched_by_its_labels_and_patched_in():
    module, x = build("LSTM", num_layers=2, bidirectional=True), batch()
    other = batch(steps=7) * 2
    with torch.no_grad():
        recording = gs.record(module, other)
    values = recording.forget_gate
    with gs.intervene(module, "forget_gate", recording, unit=[1, 3], time=[2, 5]):
        output, _ = module(x)

    def edit(name, value, layer, way, time, row):
        if name == "forget_gate" and time in (2, 5):
            value[[1, 3]] = values.sel(layer=layer, direction=way, time=time, sequence=row, unit=[1, 3])
        return value

    expected = by_hand("LSTM", module, x.numpy(), [7] * 3, edit)
    np.testing.assert_allclose(output.detach(), expected, rtol=0, atol=1e-12)
    shuffled = recording.isel(unit=[3, 0, 1, 2], time=slice(None, None, -1), layer=[1, 0], sequence=[2, 0, 1])
    with gs.intervene(module, "forget_gate", shuffled, unit=[1, 3], time=[2, 5]):
        assert torch.equal(module(x)[0], output)


def test_one_layer_direction_or_step_of_a_recording_is_that_one_and_not_all():
    module, x = build("GRU", num_layers=2), batch()
    with torch.no_grad():
        recording = gs.record(module, x + 1)
    one = recording.hidden_state.sel(layer=1, time=3)
    for missing in ({}, {"layer": 1}):
        told = pytest.raises(ValueError, match=r"value must (hold|have) every (layer|time) that it is laid on")
        with told, gs.intervene(module, "hidden_state", one, **missing):
            module(x)
    with gs.intervene(module, "hidden_state", one, layer=1, time=3):
        output, _ = module(x)
    np.testing.assert_array_equal(output[3].detach(), one.isel(direction=0))
    with gs.intervene(module, "hidden_state", one.drop_vars(["layer", "time"])):
        output, _ = module(x)
    np.testing.assert_array_equal(output.detach(), np.broadcast_to(one.isel(direction=0), (7, 3, 4)))


def test_a_run_whose_states_are_all_patched_shows_the_other_runs_states():
    module, x = build("GRU"), batch()
    with torch.no_grad():
        recording = gs.record(module, batch() + 1)
    with gs.intervene(module, "hidden_state", recording):
        output, _ = module(x)
    np.testing.assert_array_equal(output.detach(), recording.hidden_state[0, 0].transpose("time", "sequence", "unit"))


def test_padding_of_a_recording_keeps_what_is_there():
    module, x = build("RNN"), batch()
    packed = pack_padded_sequence(x + 1, torch.tensor(LENGTHS), enforce_sorted=False)
    with torch.no_grad():
        recording = gs.record(module, packed)
    with gs.intervene(module, "hidden_state", recording):
        output, _ = module(x)
        output.sum().backward()
    patched = recording.hidden_state[0, 0].transpose("time", "sequence", "unit").values
    real = ~np.isnan(patched)
    np.testing.assert_array_equal(output.detach().numpy()[real], patched[real])
    assert output.isfinite().all()
    assert all(weight.grad.isfinite().all() for weight in module.parameters())


def test_a_mean_over_a_recording_ablates():
    module, x = build("LSTM"), batch()
    with torch.no_grad():
        recording = gs.record(module, x)
    mean = recording.output_gate.mean(["sequence", "time"])
    with gs.intervene(module, "output_gate", mean, unit=2):
        output, _ = module(x)
    edit = clamp("output_gate", float(mean[0, 0, 2]), units=2)
    np.testing.assert_allclose(output.detach(), by_hand("LSTM", module, x.numpy(), [7] * 3, edit), rtol=0, atol=1e-12)


def test_resampled_values_are_drawn_from_the_recordings_real_steps():
    module, x = build("GRU"), batch(steps=40)
    lengths = torch.tensor([40, 9, 30])
    with torch.no_grad():
        recording = gs.record(module, pack_padded_sequence(x, lengths, enforce_sorted=False))
    pool = recording.hidden_state[0, 0].values.reshape(-1, 4)
    pool = {tuple(row) for row in pool[~np.isnan(pool).any(-1)]}
    runs, before = [], torch.get_rng_state()
    for seed in (0, 0, 1):
        with gs.intervene(module, "hidden_state", gs.resampled(recording, seed=seed)):
            runs.append(module(x)[0].detach())
    drawn = [tuple(row) for row in runs[0].reshape(-1, 4).numpy()]
    assert len(pool) == 79
    assert set(drawn) <= pool
    assert len(set(drawn)) > 40
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    assert torch.equal(before, torch.get_rng_state())


def test_an_inner_block_changes_what_the_outer_one_has_left():
    module, x = build("RNN"), batch()
    with gs.intervene(module, "hidden_state", 0.5, unit=0), gs.intervene(module, "hidden_state", lambda v: v + 1):
        output, _ = module(x)
    assert (output[..., 0] == 1.5).all()
    with gs.intervene(module, "hidden_state", lambda v: v + 1), gs.intervene(module, "hidden_state", 0.5, unit=0):
        output, _ = module(x)
    assert (output[..., 0] == 0.5).all()
    assert (output[..., 1] > 0).all()


def test_gradients_flow_through_and_into_the_value():
    module, x = build("GRU"), batch(steps=3).requires_grad_()
    number = torch.tensor([0.3], dtype=DOUBLE, requires_grad=True)
    with gs.intervene(module, "update_gate", number, unit=1):
        loss = module(x)[0].square().sum()
    found = torch.autograd.grad(loss, [number, x, module.weight_hh_l0])
    eps = 1e-6
    ends = []
    for value in (0.3 + eps, 0.3 - eps):
        with gs.intervene(module, "update_gate", value, unit=1):
            ends.append(module(x)[0].square().sum().item())
    assert found[0].item() == pytest.approx((ends[0] - ends[1]) / (2 * eps), rel=1e-6)
    rows = found[2].unflatten(0, (3, 4))
    assert (rows[1, 1] == 0).all()  # the clamped gate's own weights
    assert (rows[1, 0] != 0).all()
    assert (found[1] != 0).any()


def test_a_function_gets_the_chosen_values_and_may_keep_some():
    module, x = build("LSTM"), batch()
    shapes = set()

    def halve_the_wide(gate):
        shapes.add(tuple(gate.shape))
        return torch.where(gate > 0.5, gate / 2, torch.nan)

    with gs.intervene(module, "forget_gate", halve_the_wide, unit=slice(1, 4), sequence=[0, 2]):
        output, _ = module(x)

    def edit(name, value, layer, way, time, row):
        if name == "forget_gate" and row in (0, 2):
            value[1:4] = np.where(value[1:4] > 0.5, value[1:4] / 2, value[1:4])
        return value

    assert shapes == {(2, 3)}
    np.testing.assert_allclose(output.detach(), by_hand("LSTM", module, x.numpy(), [7] * 3, edit), rtol=0, atol=1e-12)


@pytest.mark.parametrize("fails", ["forward", "function", "never"])
def test_the_model_is_as_it_was_whatever_happens(fails):
    module, x = build("LSTM"), batch()
    before, state = dict(vars(module)), {k: v.clone() for k, v in module.state_dict().items()}
    plain = module(x)[0]

    def broken(value):
        raise RuntimeError("as meant")

    value = broken if fails == "function" else 0.0
    time = 99 if fails == "never" else None
    with pytest.raises((RuntimeError, ValueError)), gs.intervene(module, "forget_gate", value, time=time):
        module(x[..., :1] if fails == "forward" else x)
    assert vars(module).keys() == before.keys()
    assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    assert torch.equal(module(x)[0], plain)


def two():
    return nn.ModuleDict({"encoder": nn.LSTM(2, 4), "decoder": nn.GRU(4, 4)})


WRONG = {
    "signal": (("forget_gates", 0.0), {}, ValueError, "'forget_gates' came. Choose from: input_gate_preactivation, "),
    "signal kind": ((3, 0.0), {}, TypeError, "name of a signal; int came"),
    "unit": (("forget_gate", 0.0), {"unit": [1, 4]}, ValueError, "units of 'model', 0 to 3; 4 came"),
    "unit below": (("forget_gate", 0.0), {"unit": -1}, ValueError, "unit must be counted from 0; -1 came"),
    "unit twice": (("forget_gate", 0.0), {"unit": [1, 1]}, ValueError, "named once each; 1, 1 came"),
    "unit kind": (("forget_gate", 0.0), {"unit": 1.5}, TypeError, "unit must be a whole number, a list"),
    "unit slice": (("forget_gate", 0.0), {"unit": slice(7, 9)}, ValueError, "units of 'model', 0 to 3; slice"),
    "no unit": (("forget_gate", 0.0), {"unit": []}, TypeError, "unit must be a whole number, a list"),
    "time": (("forget_gate", 0.0), {"time": -1}, ValueError, "time must be counted from 0; -1 came"),
    "time slice": (("forget_gate", 0.0), {"time": slice(-3, None)}, ValueError, "slice of whole numbers counted"),
    "layer": (("forget_gate", 0.0), {"layer": 1}, ValueError, "layers of 'model', 0 to 0; 1 came"),
    "direction": (("forget_gate", 0.0), {"direction": "backward"}, ValueError, "of 'model', forward; 'backward' came"),
    "block": (("forget_gate", 0.0), {"block": 0}, ValueError, "those of 'model', a LSTMCell, do not"),
    "module": (("forget_gate", 0.0), {"module": "rnn"}, ValueError, "'rnn' came. Choose from: model"),
    "NaN": (("forget_gate", float("nan")), {}, ValueError, "value must not be NaN"),
    "text": (("forget_gate", "shut"), {}, TypeError, "or resampled.recording.; str came"),
    "shape": (("forget_gate", np.zeros(3)), {}, ValueError, "each of the 4 chosen by unit, or one for all; shape .3,."),
    "times": (("forget_gate", np.zeros((2, 1))), {"time": [1, 2, 3]}, ValueError, "the 3 chosen by time"),
    "dims": (("forget_gate", np.zeros((1, 1, 1, 1))), {}, ValueError, "or .sequence, time, unit.; shape .1, 1, 1, 1."),
    "numbers": (("forget_gate", ["a"]), {}, TypeError, "an array of numbers"),
    "recording": (("forget_gate", xr.Dataset({"a": 1})), {}, ValueError, "must hold 'forget_gate'; it holds a"),
    "strange dim": (("forget_gate", xr.DataArray([1.0], dims="lag")), {}, ValueError, "no dims but layer.*lag came"),
    "few units": (("forget_gate", xr.DataArray([1.0], dims="unit")), {}, ValueError, "unit 1 of 'model' is missing"),
    "layers": (("forget_gate", xr.DataArray([1.0], {"layer": [3]}, "layer")), {}, ValueError, "every layer that"),
}


@pytest.mark.parametrize(("args", "options", "error", "message"), WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_told_before_the_block_begins(args, options, error, message):
    with pytest.raises(error, match=message) as raised:
        gs.intervene(nn.LSTM(2, 4), *args, **options)
    assert "\n" not in str(raised.value)


def test_unit_and_block_together_are_refused():
    with pytest.raises(ValueError, match="either unit or block"):
        gs.intervene(OWN["memory blocks"](), "hidden_state", 0.0, unit=0, block=0)


def test_of_several_modules_one_must_be_named():
    model = two()
    with pytest.raises(ValueError, match="module must be named where several compute 'hidden_state'"):
        gs.intervene(model, "hidden_state", 0.0)
    with pytest.raises(ValueError, match="one that 'decoder' computes; 'forget_gate' came"):
        gs.intervene(model, "forget_gate", 0.0, module=["encoder", "decoder"])
    with gs.intervene(model, "forget_gate", 0.0), gs.intervene(model, "hidden_state", 0.0, module="decoder"):
        hidden = model["encoder"](torch.ones(3, 1, 2))[0]
        assert (model["decoder"](hidden)[0] == 0).all()


NEVER = {
    "time": ({"time": [3, 50, 60]}, "time 50, time 60 never came"),
    "slice": ({"time": slice(20, None)}, "time 20 never came"),
    "sequence": ({"sequence": 3}, "sequence 3 never came"),
}


@pytest.mark.parametrize(("options", "message"), NEVER.values(), ids=NEVER)
def test_a_site_that_never_fired_is_told_with_those_that_exist(options, message):
    module = build("GRU", num_layers=2)
    with pytest.raises(ValueError, match=message) as raised, gs.intervene(module, "reset_gate", 0.0, **options):
        module(batch())
    assert "reset_gate, update_gate_preactivation" in str(raised.value)
    assert "7 steps of 3 sequences ran" in str(raised.value)


def test_a_model_that_was_not_called_is_told():
    never = pytest.raises(ValueError, match=r"it was not computed\. Sites that exist: 'model'")
    with never, gs.intervene(build("GRU"), "reset_gate", 0.0):
        pass


WRONG_IN_THE_RUN = {
    "few steps": (torch.zeros(3, 4), "value must have every time that it is laid on; time 3 came"),
    "few rows": (torch.zeros(2, 1, 4), "every sequence that it is laid on; sequence 2 came, and it has 0 to 1"),
    "function": (lambda value: value[:1, :2], r"shape \(3, 4\) \(sequence, unit\) that came to it; shape \(1, 2\)"),
    "nothing": (lambda value: None, "a NoneType came"),
}


@pytest.mark.parametrize(("value", "message"), WRONG_IN_THE_RUN.values(), ids=WRONG_IN_THE_RUN)
def test_what_does_not_fit_the_batch_is_told_when_it_comes(value, message):
    module = build("LSTM")
    with pytest.raises((ValueError, TypeError), match=message), gs.intervene(module, "cell_state", value):
        module(batch())
    assert "forward" not in vars(module)
