"""Taking out units, blocks and gates: against an independent float64 loop, by what was built, what is refused."""

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import gatescope as gs

Array = np.ndarray
LENGTHS = [6, 4, 1]
STACKS: dict[str, Callable[[], nn.RNNBase]] = {
    "LSTM": lambda: nn.LSTM(3, 4, batch_first=True),
    "GRU": lambda: nn.GRU(3, 4),
    "RNN of 3 layers": lambda: nn.RNN(3, 4, num_layers=3, nonlinearity="relu", batch_first=True),
    "bidirectional LSTM of 3 layers": lambda: nn.LSTM(3, 4, num_layers=3, bidirectional=True),
    "bidirectional GRU": lambda: nn.GRU(3, 4, bidirectional=True, batch_first=True),
    "projected LSTM": lambda: nn.LSTM(3, 4, proj_size=2, num_layers=2, batch_first=True),
}


def double(module: Any, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    for weight in module.double().parameters():
        nn.init.uniform_(weight, -0.8, 0.8)
    return module


def squares(batch_first: bool) -> Callable[[Any], Tensor]:
    """Sum over steps and units of a stack's squared output, one number a sequence; of packed ones too."""

    def metric(output: Any) -> Tensor:
        shown = pad_packed_sequence(output[0], batch_first=batch_first)[0] if is_packed(output[0]) else output[0]
        return (shown if batch_first else shown.transpose(0, 1)).square().sum((1, 2))

    return metric


def is_packed(value: object) -> bool:
    return isinstance(value, PackedSequence)


def held_step(reference: ModuleType, step: Any, units: list[int], value: float) -> Any:
    """The reference's step with some units' states at a value."""

    def lesioned(weights: Any, x: Array, state: tuple[Array, ...]) -> tuple[dict[str, Array], tuple[Array, ...]]:
        signals, new = step(weights, x, state)
        if "weight_hr" in weights:  # what is shown is projected, from a memory that is held
            shown, memory = new
            memory = memory.copy()
            memory[units] = value
            shown = weights["weight_hr"] @ (signals["output_gate"] * np.tanh(memory))
            new = (shown, memory)
        else:
            new = tuple(entry.copy() for entry in new)
            for entry in new:
                entry[units] = value
        return signals | dict(zip(reference.STATES, new, strict=False)), new

    return lesioned


def by_hand(
    reference: ModuleType,
    stack: nn.RNNBase,
    x: Array,
    lengths: list[int],
    at: tuple[int, int],
    units: list[int],
    value: float = 0.0,
) -> Array:
    """Sum of squares of what the last layer shows, by the reference in a loop with units held in one place."""
    steps, places = [], itertools.product(range(stack.num_layers), range(1 + stack.bidirectional))
    plain = reference.step_of(stack)
    for place in places:
        steps.append(held_step(reference, plain, units, value) if place == at else plain)
    left = iter(steps)
    kept, reference.step_of = reference.step_of, lambda module: next(left)
    try:
        shown = reference.unroll(stack, x, lengths)["hidden_state"][-1]
    finally:
        reference.step_of = kept
    return np.nansum(shown**2, axis=(0, 2, 3))


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("name", STACKS)
def test_the_effect_of_every_unit_is_that_of_an_independent_loop_that_holds_it_at_zero(
    reference: ModuleType, name: str, packed: bool
) -> None:
    stack = double(STACKS[name]())
    x = torch.randn(3, 6, 3, dtype=torch.float64)
    lengths = LENGTHS if packed else [6, 6, 6]
    inputs: Any = x if stack.batch_first else x.transpose(0, 1)
    if packed:
        inputs = pack_padded_sequence(inputs, lengths, batch_first=stack.batch_first, enforce_sorted=False)
    result = gs.ablation(stack, inputs, squares(stack.batch_first))
    intact = by_hand(reference, stack, x.numpy(), lengths, (-1, -1), [])
    np.testing.assert_allclose(result["intact_by_sequence"].values[0], intact, rtol=1e-10)
    for layer, direction, unit in np.ndindex(stack.num_layers, 1 + stack.bidirectional, 4):
        lesioned = by_hand(reference, stack, x.numpy(), lengths, (layer, direction), [unit])
        found = result["effect_by_sequence"].isel(metric=0, layer=layer, direction=direction, unit=unit)
        np.testing.assert_allclose(found, lesioned - intact, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(result["effect"], result["effect_by_sequence"].mean("sequence"), rtol=1e-12)
    assert np.abs(result["effect"]).max() > 0.01
    assert result.attrs["batched"] == int(result["effect"].size >= 6)


def sigmoid(values: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-values)))


def blocks_by_hand(network: gs.BlockNetwork, x: Array, held: list[int]) -> Array:
    """Outputs (sequence, time, output) of a block network in a loop, some units held at zero."""
    w = {name: value.double().numpy() for name, value in network.state_dict().items()}
    blocks, size = network.cell.blocks, network.cell.size
    said = np.empty((*x.shape[:2], 7))
    for row in range(len(x)):
        shown, state = np.zeros((2, blocks * size))
        for time, symbol in enumerate(x[row]):
            net = w["cell.weight_ih"] @ symbol + w["cell.weight_hh"] @ shown
            into, keep, cells, out = np.split(net, np.cumsum([blocks, blocks, blocks * size]))
            biases = np.split(w["cell.bias"], 3)
            gates = [np.repeat(sigmoid(g + b), size) for g, b in zip((into, keep, out), biases, strict=True)]
            state = gates[1] * state + gates[0] * (4 * sigmoid(cells) - 2)
            state[held] = 0
            shown = gates[2] * (2 * sigmoid(state) - 1)
            said[row, time] = sigmoid(w["readout.weight"] @ np.concatenate([shown, symbol]) + w["readout.bias"])
    return said


@pytest.mark.parametrize("over", ["unit", "block"])
def test_units_and_blocks_of_a_trained_block_network_do_what_a_loop_without_them_does(over: Any) -> None:
    network, _ = gs.load_example("cerg-latch")
    network.double()
    sample = gs.tasks.CERG(streams=3).sample(30)
    metric = gs.tasks.lag_errors(sample)
    result = gs.ablation(network, torch.from_numpy(sample.inputs), metric, over=over)
    groups = [[unit] for unit in range(8)] if over == "unit" else [[2 * b, 2 * b + 1] for b in range(4)]
    for place, units in enumerate(groups):
        said = metric(blocks_by_hand(network, sample.inputs.astype(np.float64), units))
        found = result["intact_by_sequence"] + result["effect_by_sequence"][:, 0, 0, place]
        np.testing.assert_allclose(found, [said["long"], said["short"]], atol=1e-12)
    assert result["metric"].values.tolist() == ["long", "short"]
    if over == "block":
        assert result["memory_block"].values.tolist() == [0, 1, 2, 3]
    else:
        assert result["block"].values.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


def one_carries() -> nn.LSTM:
    """Unit 2 takes the first input and holds it; unit 0 reads the last; nobody listens to the others."""
    network = nn.LSTM(1, 4, batch_first=True).double()
    with torch.no_grad():
        for weight in network.parameters():
            weight.zero_()
        gate = network.bias_ih_l0.view(4, 4)  # (input, forget, candidate, output) by unit
        gate[0, :], gate[1, :], gate[3, :] = 30.0, -30.0, 30.0
        gate[1, 2] = 30.0  # unit 2 keeps all
        network.weight_ih_l0.view(4, 4)[2, :] = 1.0
    return network


def test_what_one_unit_carries_is_lost_without_it_and_the_others_lose_nothing() -> None:
    x = torch.zeros(5, 7, 1, dtype=torch.float64)
    x[:, 0, 0] = torch.linspace(0.5, 1, 5)
    result = gs.ablation(one_carries(), x, lambda output: (output[0][:, -1, 2] - output[0][:, 0, 2]).square())
    assert result["intact"].item() < 1e-20
    lost = gs.ablation(one_carries(), x, lambda output: output[0][:, -1, 2])
    held = torch.tanh(torch.tanh(x[:, 0, 0]))
    np.testing.assert_allclose(lost["effect_by_sequence"].values[0, 0, 0, 2], -held.numpy(), rtol=1e-9)
    assert np.abs(lost["effect"].values.ravel()[[0, 1, 3]]).max() < 1e-12
    assert lost["p"].values.ravel()[2] == 2 / 2**5
    assert lost["p"].values.ravel()[0] == 1.0


def test_a_unit_without_outgoing_weights_has_no_effect() -> None:
    stack = double(nn.GRU(3, 8))
    readout = double(nn.Linear(8, 2))
    with torch.no_grad():
        stack.weight_hh_l0[:, 5] = 0
        readout.weight[:, 5] = 0

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.readout = stack, readout

        def forward(self, x: Tensor) -> Tensor:
            return self.readout(self.rnn(x)[0])  # type: ignore[no-any-return]

    x = torch.randn(9, 4, 3, dtype=torch.float64)
    result = gs.ablation(Model(), x, lambda output: output.square().mean((0, 2)))
    effects = np.abs(result["effect"].values.ravel())
    assert effects[5] < 1e-14
    assert effects[[0, 1, 2, 3, 4, 6, 7]].min() > 1e-4
    assert result.attrs["batched"] == 1


def gru_by_hand(reference: ModuleType, stack: nn.GRU, x: Array, held: Callable[[int, int], dict[int, float]]) -> Array:
    """Last hidden states of a GRU in which `held(sequence, time)` says which units are at which value."""
    weights, last = reference.weights_of(stack, "_l0"), []
    for row in range(len(x)):
        state = np.zeros(stack.hidden_size)
        for time in range(x.shape[1]):
            _, (state,) = reference.gru(weights, x[row, time], (state,))
            for unit, value in held(row, time).items():
                state[unit] = value
        last.append(state)
    return np.array(last)


def last_sum(output: Any) -> Tensor:
    return output[1][0].sum(1)  # type: ignore[no-any-return]


def test_the_mean_is_over_all_sequences_and_steps_without_padding(reference: ModuleType) -> None:
    stack = double(nn.GRU(3, 6, batch_first=True))
    x = torch.randn(3, 6, 3, dtype=torch.float64)
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True)
    recording = gs.record(stack, packed)["hidden_state"].values[0, 0]
    assert np.isnan(recording).any()
    result = gs.ablation(stack, packed, last_sum, to="mean")
    full = [slice(0, length) for length in LENGTHS]
    for unit in range(6):
        mean = float(np.nanmean(recording[..., unit]))
        lesioned = [
            gru_by_hand(reference, stack, x[[row], part].numpy(), lambda s, t, u=unit, m=mean: {u: m})  # type: ignore[misc]
            for row, part in enumerate(full)
        ]
        found = (result["intact_by_sequence"] + result["effect_by_sequence"][:, 0, 0, unit]).values[0]
        np.testing.assert_allclose(found, np.concatenate(lesioned).sum(1), rtol=1e-10)
    padded = gs.ablation(stack, x, last_sum, to="mean", lengths=LENGTHS, unit=[0, 1])
    whole = gs.ablation(stack, x, last_sum, to="mean", unit=[0, 1])
    assert np.abs(padded["effect"] - whole["effect"]).max() > 1e-4


def test_resampled_units_have_the_values_of_the_other_sequence_at_the_same_steps(reference: ModuleType) -> None:
    stack = double(nn.GRU(3, 6, batch_first=True))
    x = torch.randn(2, 6, 3, dtype=torch.float64)
    values = gs.record(stack, x)["hidden_state"].values[0, 0]
    result = gs.ablation(stack, x, last_sum, to="resample", draws=2)
    for unit in range(6):
        held = lambda row, time, u=unit: {u: values[1 - row, time, u]}  # noqa: E731
        lesioned = gru_by_hand(reference, stack, x.numpy(), held).sum(1)
        found = (result["intact_by_sequence"] + result["effect_by_sequence"][:, 0, 0, unit]).values[0]
        np.testing.assert_allclose(found, lesioned, rtol=1e-10)


def test_donors_may_come_from_another_recording(reference: ModuleType) -> None:
    stack = double(nn.GRU(3, 6, batch_first=True))
    x, other = torch.randn(2, 6, 3, dtype=torch.float64), torch.randn(1, 4, 3, dtype=torch.float64)
    recording = gs.record(stack, other)
    mean = gs.ablation(stack, x, last_sum, to="mean", recording=recording, unit=3)
    value = float(recording["hidden_state"].values[0, 0, 0, :, 3].mean())
    lesioned = gru_by_hand(reference, stack, x.numpy(), lambda row, time: {3: value}).sum(1)
    np.testing.assert_allclose((mean["intact_by_sequence"] + mean["effect_by_sequence"][:, 0, 0, 0])[0], lesioned)
    drawn = gs.ablation(stack, x, last_sum, to="resample", recording=recording, unit=3, draws=1)
    shifts = [  # one donor of 4 steps, turned by some
        gru_by_hand(
            reference,
            stack,
            x.numpy(),
            lambda row, time, s=s: {3: recording["hidden_state"].values[0, 0, 0, (time + s) % 4, 3]},
        ).sum(1)
        for s in range(1, 4)
    ]
    found = (drawn["intact_by_sequence"] + drawn["effect_by_sequence"][:, 0, 0, 0]).values[0]
    assert sum(np.allclose(found, shift) for shift in shifts) == 1


def test_a_lesion_in_a_stretch_of_time_acts_there_only(reference: ModuleType) -> None:
    stack = double(nn.GRU(3, 6, batch_first=True))
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    result = gs.ablation(stack, x, last_sum, time=3)
    assert result["time"].values.tolist() == [0, 3, 6]
    assert result["time_stop"].values.tolist() == [3, 6, 7]
    for unit, window in np.ndindex(6, 3):
        held = lambda row, time, u=unit, w=window: {u: 0.0} if time // 3 == w else {}  # noqa: E731
        lesioned = gru_by_hand(reference, stack, x.numpy(), held).sum(1)
        found = (result["intact_by_sequence"] + result["effect_by_sequence"][:, 0, 0, unit, window]).values[0]
        np.testing.assert_allclose(found, lesioned, rtol=1e-10)
    slices = gs.ablation(stack, x, last_sum, time=[slice(6, None), slice(0, 3)])
    np.testing.assert_allclose(slices["effect"], result["effect"].sel(time=[6, 0]), rtol=1e-12)


def lstm_by_hand(stack: nn.LSTM, x: Array, held: dict[str, Any]) -> Array:
    """Last hidden states of an LSTM with some signals (name -> (units, value)) held."""
    w = {name: value.detach().numpy() for name, value in stack.named_parameters()}

    def hold(name: str, values: Array) -> Array:
        if name in held:
            values[held[name][0]] = held[name][1]
        return values

    last = []
    for row in x:
        shown, memory = np.zeros((2, stack.hidden_size))
        for value in row:
            net = w["weight_ih_l0"] @ value + w["bias_ih_l0"] + w["weight_hh_l0"] @ shown + w["bias_hh_l0"]
            i, f, g, o = np.split(net, 4)
            gates = {"input_gate": sigmoid(i), "forget_gate": sigmoid(f), "output_gate": sigmoid(o)}
            for name, opening in gates.items():
                hold(name, opening)
            memory = hold("cell_state", gates["forget_gate"] * memory + gates["input_gate"] * np.tanh(g))
            shown = hold("hidden_state", gates["output_gate"] * np.tanh(memory))
        last.append(shown)
    return np.array(last)


@pytest.mark.parametrize("over", ["gate", "unit_gate"])
@pytest.mark.parametrize("to", ["zero", "one", "mean"])
def test_gates_are_held_shut_open_or_at_their_mean(over: Any, to: Any) -> None:
    stack = double(nn.LSTM(3, 4, batch_first=True))
    x = torch.randn(3, 6, 3, dtype=torch.float64)
    recording = gs.record(stack, x)
    result = gs.ablation(stack, x, lambda output: output[1][0][0].sum(1), over=over, to=to)
    assert result["gate"].values.tolist() == ["input_gate", "forget_gate", "output_gate"]
    for gate in result["gate"].values:
        for units in [[0, 1, 2, 3]] if over == "gate" else [[0], [1], [2], [3]]:
            means = recording[gate].values[0, 0][..., units].mean((0, 1))
            value = {"zero": 0.0, "one": 1.0, "mean": means}[to]
            lesioned = lstm_by_hand(stack, x.numpy(), {gate: (units, value)}).sum(1)
            here = result.sel(gate=gate, layer=0, direction="forward", metric="metric")
            here = here if over == "gate" else here.sel(unit=units[0])
            np.testing.assert_allclose(here["intact_by_sequence"] + here["effect_by_sequence"], lesioned, rtol=1e-10)
    assert gs.ablation(stack, x, squares(True), over=over).attrs["to"] == "mean"


def test_memory_and_what_is_shown_are_each_held_at_their_own_mean() -> None:
    stack = double(nn.LSTM(3, 4, batch_first=True))
    x = torch.randn(3, 6, 3, dtype=torch.float64)
    recording = gs.record(stack, x)
    result = gs.ablation(stack, x, lambda output: output[1][0][0].sum(1), to="mean")
    for unit in range(4):
        held = {name: ([unit], float(recording[name][..., unit].mean())) for name in ("cell_state", "hidden_state")}
        found = (result["intact_by_sequence"] + result["effect_by_sequence"][:, 0, 0, unit]).values[0]
        np.testing.assert_allclose(found, lstm_by_hand(stack, x.numpy(), held).sum(1), rtol=1e-10)


class Tagger(nn.Module):
    """Token numbers, padded and with lengths; packs by itself, sorted, and answers in several forms."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.embedding, self.rnn, self.readout = nn.Embedding(9, 3), nn.LSTM(3, 4, bidirectional=True), nn.Linear(8, 2)

    def forward(self, tokens: Tensor, lengths: Any, scale: float = 1.0) -> Any:
        read = self.embedding(tokens) * scale
        packed = pack_padded_sequence(read, torch.as_tensor(lengths), batch_first=True)
        shown, _ = self.rnn(packed)
        if self.form == "packed":
            return shown._replace(data=self.readout(shown.data))
        tags = self.readout(pad_packed_sequence(shown, batch_first=True)[0])
        forms = {
            "dict": {"tags": tags, "name": "tags", "nothing": None},
            "flat": tags.reshape(-1, 2),
            "time first, flat": tags.transpose(0, 1).reshape(-1, 2),
            "array": (tags.detach().numpy(), [7.0]),
        }
        return forms[self.form]


def of_tagger(form: str) -> Callable[[Any], Any]:
    def metric(output: Any) -> Any:
        if form == "packed":
            tags = pad_packed_sequence(output, batch_first=True)[0]
        elif form == "dict":
            tags = output["tags"]
        elif form == "flat":
            tags = output.reshape(3, 6, 2)
        elif form == "array":
            return (output[0] ** 2).sum((1, 2)) + output[1][0]
        else:
            tags = output.reshape(6, 3, 2).transpose(0, 1)
        return tags.square().sum((1, 2))

    return metric


@pytest.mark.parametrize("lengths", [torch.tensor(LENGTHS), LENGTHS], ids=["tensor", "list"])
@pytest.mark.parametrize("form", ["dict", "flat", "time first, flat", "array", "packed"])
def test_outputs_of_any_form_are_taken_apart_and_batched_lesions_are_those_one_by_one(form: str, lengths: Any) -> None:
    model = double(Tagger(form))
    tokens = torch.randint(0, 9, (3, 6))
    inputs = {"tokens": tokens, "lengths": lengths}
    together = gs.ablation(model, inputs, of_tagger(form), inputs_kwargs={"scale": 0.7})
    alone = gs.ablation(model, (tokens, lengths, 0.7), of_tagger(form), rows=1)
    assert (together.attrs["batched"], together.attrs["remark"]) == (1, "")
    assert (alone.attrs["batched"], alone.attrs["remark"]) == (0, "")
    np.testing.assert_allclose(together["effect_by_sequence"], alone["effect_by_sequence"], atol=1e-12)
    assert np.abs(together["effect"]).min() > 1e-6


def test_as_many_steps_as_sequences_do_not_confuse_the_dims() -> None:
    stack = double(nn.LSTM(6, 6))
    x = torch.randn(6, 6, 6, dtype=torch.float64)
    metric = squares(False)
    together, alone = gs.ablation(stack, x, metric), gs.ablation(stack, x, metric, rows=1)
    assert together.attrs["batched"] == 1
    np.testing.assert_allclose(together["effect_by_sequence"], alone["effect_by_sequence"], atol=1e-12)
    told = gs.ablation(stack, (x, (torch.zeros(1, 6, 6).double(), torch.zeros(1, 6, 6).double())), metric, batch_dim=1)
    assert told.attrs["batched"] == 1
    np.testing.assert_allclose(told["effect_by_sequence"], alone["effect_by_sequence"], atol=1e-12)


class Mixing(nn.Module):
    """Models whose sequences cannot be repeated."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.rnn = how, nn.GRU(3, 8, batch_first=True)

    def forward(self, x: Tensor) -> Any:
        if self.how == "turned":
            return self.rnn(x.flip(0))[0].flip(0).square().sum((1, 2))
        if self.how == "words":
            return self.rnn(x.reshape(-1, x.shape[1] // 2, 3))[0].square().sum((1, 2)).reshape(len(x), 2).sum(1)
        shown = self.rnn(x)[0].square().sum((1, 2))
        return shown.mean() if self.how == "one loss" else shown / shown.sum()


@pytest.mark.parametrize("rows", [512, 18], ids=["many copies", "few copies"])
@pytest.mark.parametrize("how", ["one loss", "mixed", "turned", "words"])
def test_where_sequences_cannot_be_repeated_lesions_run_one_by_one_and_are_right(how: str, rows: int) -> None:
    model = double(Mixing(how))
    x = torch.randn(3, 6, 3, dtype=torch.float64)
    found = gs.ablation(model, x, lambda output: output, rows=rows * (1 + (how == "words")))
    expected = gs.ablation(model, x, lambda output: output, rows=1)
    assert found.attrs["batched"] == 0
    assert found.attrs["remark"].startswith("one by one: ")
    np.testing.assert_allclose(found["effect"], expected["effect"], atol=1e-14)
    if how != "one loss":
        np.testing.assert_allclose(found["effect_by_sequence"], expected["effect_by_sequence"], atol=1e-14)
        assert np.abs(found["effect_by_sequence"]).max() > 1e-6
    assert found["per_sequence"].item() is (how != "one loss")
    assert bool(found["effect_low"].isnull().all()) is (how == "one loss")


def test_cells_in_a_loop_of_the_models_own_are_lesioned_too() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.GRUCell(3, 8)

        def forward(self, x: Tensor) -> Tensor:
            state = x.new_zeros(len(x), 8)
            for step in x.unbind(1):
                state = self.cell(step, state)
            return state

    model = double(Loop())
    stack = nn.GRU(3, 8, batch_first=True).double()
    stack.load_state_dict({f"{name}_l0": value for name, value in model.cell.state_dict().items()})
    x = torch.randn(4, 6, 3, dtype=torch.float64)
    for parameters in ({}, {"time": 2}, {"to": "resample"}):
        found = gs.ablation(model, x, lambda output: output.sum(1), **parameters)  # type: ignore[arg-type]
        same = gs.ablation(stack, x, last_sum, **parameters)  # type: ignore[arg-type]
        assert found.attrs["batched"] == 1
        np.testing.assert_allclose(found["effect_by_sequence"], same["effect_by_sequence"], atol=1e-12)


class Noisy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.drop = nn.LSTM(3, 4, num_layers=2, dropout=0.5, batch_first=True), nn.Dropout(0.5)
        self.fail = False

    def forward(self, x: Tensor) -> Tensor:
        shown = self.drop(self.rnn(x)[0])
        if self.fail:
            raise ArithmeticError("no")
        return shown  # type: ignore[no-any-return]


def fails(output: Tensor) -> Tensor:
    raise LookupError("no metric")


@pytest.mark.parametrize("how", ["well", "error in the model", "error in the metric"])
def test_mode_random_numbers_gradients_and_hooks_are_as_before_also_after_an_error(how: str) -> None:
    model = Noisy()
    model.rnn.eval()
    model.rnn.weight_hh_l0.requires_grad_(False)
    model(torch.zeros(1, 2, 3)).sum().backward()
    handle = model.drop.register_forward_hook(lambda module, args, output: None)
    grads = {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}
    modes, state = {name: part.training for name, part in model.named_modules()}, torch.get_rng_state()
    keys = {name: sorted(vars(part)) for name, part in model.named_modules()}
    model.fail = how == "error in the model"
    x = torch.ones(2, 3, 3)
    if how == "well":
        first, second = (gs.ablation(model, x, lambda output: output.sum((1, 2))) for _ in range(2))
        xr.testing.assert_identical(first, second)
    else:
        with pytest.raises(ArithmeticError if model.fail else LookupError, match="no"):
            gs.ablation(model, x, fails)
    assert torch.equal(torch.get_rng_state(), state)
    assert {name: part.training for name, part in model.named_modules()} == modes
    assert {name: sorted(vars(part)) for name, part in model.named_modules()} == keys
    assert [len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.modules()].count(1) == 1
    assert not model.rnn.weight_hh_l0.requires_grad
    assert model.rnn.weight_ih_l0.requires_grad
    assert torch.is_grad_enabled()
    for name, p in model.named_parameters():
        assert p.grad is None if grads[name] is None else torch.equal(p.grad, grads[name])
    handle.remove()


def test_intervals_hold_the_effect_and_p_is_small_where_all_sequences_lose() -> None:
    stack = double(nn.GRU(3, 6, batch_first=True))
    x = torch.randn(12, 5, 3, dtype=torch.float64)
    result = gs.ablation(stack, x, lambda output: {"sum": output[0].abs().sum((1, 2)), "one": output[0].mean()})
    here = result.sel(metric="sum")
    assert bool(((here["effect_low"] <= here["effect"]) & (here["effect"] <= here["effect_high"])).all())
    assert bool((here["p_adjusted"] >= here["p"]).all())
    alike = (np.sign(here["effect_by_sequence"]) == np.sign(here["effect"])).all("sequence")
    assert alike.any()
    assert float(here["p"].where(alike).max()) == 2 / 2**12
    assert result["per_sequence"].values.tolist() == [True, False]
    assert bool(
        result[["effect_low", "effect_high", "p", "p_adjusted", "effect_by_sequence"]]
        .sel(metric="one")
        .isnull()
        .to_array()
        .all()
    )
    assert bool(result["effect"].sel(metric="one").notnull().all())


def test_parameters_stand_in_the_attributes_and_the_result_survives_a_file(tmp_path: Any) -> None:
    result = gs.ablation(nn.LSTM(3, 4), torch.zeros(5, 2, 3), lambda o: o[0].sum((0, 2)), seed=3, samples=500, rows=64)
    about = {key: result.attrs[key] for key in ("measure", "module", "cell", "over", "to", "seed", "samples", "rows")}
    assert list(about.values()) == ["ablation", "model", "LSTMCell", "unit", "zero", 3, 500, 64]
    assert {type(value) for value in result.attrs.values()} <= {int, float, str}
    result.to_netcdf(tmp_path / "effects.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "effects.nc", engine="h5netcdf") as stored:
        xr.testing.assert_equal(stored, result)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"over": "neuron"}, "over must be one of 'unit'"),
        ({"over": "block"}, "over='block' needs a cell whose units share gates"),
        ({"to": "half"}, "to must be one of 'zero'"),
        ({"to": "one"}, "to='one' must come with over='gate'"),
        ({"unit": 4}, "unit must be of the module's: 0, 1, 2, 3; 4 came"),
        ({"layer": [0, 2]}, "layer must be of the module's: 0; 2 came"),
        ({"direction": "backward"}, "direction must be of the module's: forward; 'backward' came"),
        ({"over": "gate", "gate": "reset_gate"}, "gate must be of the module's: input_gate"),
        ({"time": 6}, "time must be a width of 1 to 5 steps"),
        ({"time": slice(3, 9)}, "time must lie within the 5 steps of the run"),
        ({"time": []}, "time must hold at least one stretch"),
        ({"module": "rnn"}, "modules must name recurrent modules"),
        ({"rows": 0}, "rows must be a whole number from 1 on"),
        ({"confidence": 1.0}, "confidence must be between 0 and 1"),
    ],
)
def test_what_is_not_there_is_refused(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        gs.ablation(nn.LSTM(3, 4), torch.zeros(5, 2, 3), lambda o: o[0].sum((0, 2)), **parameters)


@pytest.mark.parametrize(
    ("metric", "error", "said"),
    [
        (
            lambda o: o[0].sum((0, 2)) / 0,
            ValueError,
            "metric must return finite numbers; .*inf for sequence 0 came from the intact",
        ),
        (lambda o: o[0].sum(2), ValueError, r"one number a sequence, .* shape \(5, 2\) came"),
        (lambda o: "good", TypeError, "metric must return a number"),
        (lambda o: None, TypeError, "NoneType came"),
        (lambda o: {}, ValueError, "an empty mapping came"),
        (lambda o: {"a": [1, 2], "b": [1, 2, 3]}, ValueError, "a 2, b 3 came"),
        (lambda o: o[0].sum((0, 2)) + 1j, TypeError, "complex"),
        (3, TypeError, "metric must be a function of the model's output; int came"),
    ],
)
def test_metrics_that_give_no_numbers_are_refused(metric: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        gs.ablation(nn.LSTM(3, 4), torch.zeros(5, 2, 3), metric)


def test_a_recording_of_another_module_is_refused() -> None:
    stack, x = nn.LSTM(3, 4), torch.ones(5, 2, 3)
    others: list[tuple[Any, type[Exception], str]] = [
        (gs.record(nn.GRU(3, 4), x), ValueError, "recording must be of this module, .*; it lacks cell_state"),
        (gs.record(nn.LSTM(3, 5), x), ValueError, "it has {'layer': 1, 'direction': 1, 'unit': 5}"),
        ("run.zarr", TypeError, "recording must be what gatescope.record returned; str came"),
    ]
    for other, error, said in others:
        with pytest.raises(error, match=said):
            gs.ablation(stack, x, lambda o: o[0].sum((0, 2)), to="mean", recording=other)


def test_a_metric_that_breaks_under_a_lesion_names_it() -> None:
    torch.manual_seed(0)
    stack, x = nn.LSTM(3, 4), torch.ones(5, 2, 3)
    with pytest.raises(ValueError, match="nan for sequence 0 came from the model without unit 2 of layer 0, forward"):
        gs.ablation(stack, x, lambda o: o[0][-1, :, 2] / o[0][-1, :, 2])
    with pytest.raises(ValueError, match="metric as 1 numbers came from the model without unit 2"):
        gs.ablation(stack, x, lambda o: [1.0] if o[0][-1, 0, 2] == 0 else [1.0, 2.0])


def test_models_that_cannot_be_lesioned_are_refused() -> None:
    class Stateful(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.state = nn.GRU(3, 4), None

        def forward(self, x: Tensor) -> Tensor:
            shown, self.state = self.rnn(x, self.state)
            return shown.sum((0, 2))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    with pytest.raises(ValueError, match="must give the same output for the same inputs; Stateful does not"):
        gs.ablation(Stateful(), torch.ones(4, 2, 3), lambda o: o)
    with pytest.raises(ValueError, match="needs a cell with gates; RNNCell has none"):
        gs.ablation(nn.RNN(3, 4), torch.ones(4, 2, 3), lambda o: o[0].sum((0, 2)), over="gate")
    two = nn.ModuleDict({"a": nn.GRU(3, 4), "b": nn.GRU(3, 4)})
    with pytest.raises(
        ValueError, match=r"module must be named where a model has several; none came\. Choose from: a, b"
    ):
        gs.ablation(two, torch.ones(4, 2, 3), lambda o: o)
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module"):
        gs.ablation(3, torch.ones(4, 2, 3), lambda o: o)  # type: ignore[arg-type]


def test_an_effect_is_that_of_the_same_intervention_by_hand() -> None:
    stack = double(nn.LSTM(3, 4, num_layers=2, bidirectional=True))
    x, metric = torch.randn(6, 3, 3, dtype=torch.float64), squares(False)
    result = gs.ablation(stack, x, metric, layer=slice(1, None), direction="backward", unit=[1, 3])
    place = {"layer": 1, "direction": "backward", "unit": 3}
    with (
        torch.no_grad(),
        gs.intervene(stack, "cell_state", 0.0, **place),
        gs.intervene(stack, "hidden_state", 0.0, **place),
    ):
        lesioned = metric(stack(x))
    found = result.sel(unit=3, direction="backward").squeeze()
    np.testing.assert_allclose(found["intact_by_sequence"] + found["effect_by_sequence"], lesioned, rtol=1e-11)


def test_the_bar_counts_every_lesion_and_is_closed_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Any] = []

    class Bar:
        def update(self) -> None:
            said.append("update")

        def close(self) -> None:
            said.append("close")

    monkeypatch.setattr("gatescope.probe.ablation.bar", lambda calls, **about: said.append((calls, about)) or Bar())
    stack, x = nn.LSTM(3, 8), torch.ones(4, 2, 3)
    for rows in (512, 1):
        gs.ablation(stack, x, lambda o: o[0].sum((0, 2)), rows=rows)
        assert said == [(8, {"doing": "ablation", "unit": "lesion"}), *["update"] * 8, "close"]
        said.clear()
    with pytest.raises(ValueError, match="finite"):
        gs.ablation(stack, x, lambda o: o[0][-1, :, 7] / o[0][-1, :, 7])
    assert said[-1] == "close"


def test_a_sequence_without_a_batch_runs_one_by_one() -> None:
    stack, x = double(nn.LSTM(3, 8)), torch.randn(5, 3, dtype=torch.float64)
    alone = gs.ablation(stack, x, lambda o: o[0].square().sum())
    batched = gs.ablation(stack, x[:, None], lambda o: o[0].square().sum((0, 2)))
    assert alone.attrs["remark"] == "one by one: no input has a dimension of 1 sequence, as many as the module reads"
    assert batched.attrs["batched"] == 1
    np.testing.assert_allclose(alone["effect"], batched["effect"], rtol=1e-10)
