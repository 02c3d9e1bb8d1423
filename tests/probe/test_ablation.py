"""Taking out units, blocks and gates: against an independent float64 loop, by what was built, what is refused."""

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
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
