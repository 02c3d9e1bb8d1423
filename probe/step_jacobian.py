"""The Jacobian of every step of an observed call: the whole state after it by the whole state before it."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ..cells import AbstractCell
from ..signals import DIRECTIONS
from .calls import Call
from .layout import STEP_JACOBIAN
from .rebuild import Rebuilt, rounded, rounding, uncast

BLOCK_BYTES = 2**26
"""What differentiating some steps together may take beside their result."""
State = tuple[Tensor, ...]


def check_jacobian(jacobian: bool, *, statistics: bool, stored: bool) -> None:
    if jacobian and (statistics or stored):
        other = "statistics=True" if statistics else "store="
        raise ValueError(f"jacobian=True keeps a matrix of every step in memory; {other} came too. Attach for each.")


def add_step_jacobians(call: Call, cells: list[list[AbstractCell]], rebuilt: Rebuilt, wanted: frozenset[str]) -> None:
    """Put `step_jacobian`, (layer, direction, time, sequence, target x source), among the signals of a rebuilt call.

    The full state has the cell's states one after the other, in the order of `states`. The states were rebuilt for
    this; those that are not `wanted` are dropped.
    """
    first = cells[0][0]
    own = rounding(call.layers[-1].hidden)
    exact = torch.float64 if own == torch.float64 else torch.float32
    time, sequences = call.layers[0].input.shape[:2]
    size = sum(first.state_sizes)
    found = torch.empty(len(cells), len(cells[0]), time, sequences, size * size, dtype=exact)
    for index, (row, layer) in enumerate(zip(cells, call.layers, strict=True)):
        input = layer.input.detach().to(own).to(exact)
        for direction, cell in enumerate(row):
            states = before_each_step(call, cell, rebuilt, index, direction)
            with uncast(input.device):
                write(rounded(cell, own, exact), input, states, found[index, direction], DIRECTIONS[direction])
    for name in first.states:
        if name not in wanted:
            del rebuilt.signals[name]
    rebuilt.signals[STEP_JACOBIAN] = found


def before_each_step(call: Call, cell: AbstractCell, rebuilt: Rebuilt, layer: int, direction: int) -> State:
    """Every state before every step, (time, sequence, unit), on the input's time axis."""
    found = []
    for name, initial in zip(cell.states, rebuilt.initial, strict=True):
        states = rebuilt.signals[name][layer, direction]
        first = initial[layer, direction].to(states.dtype)
        if call.lengths is not None:  # a backward row's first step follows its padding
            real = torch.arange(len(states))[:, None] < call.lengths.cpu()
            states = torch.where(real.unsqueeze(-1), states, first)
        shifted = [states[1:], first.unsqueeze(0)] if direction else [first.unsqueeze(0), states[:-1]]
        found.append(torch.cat(shifted))
    return tuple(found)


def write(cell: AbstractCell, input: Tensor, states: State, found: Tensor, direction: str) -> None:
    """Differentiate all steps, as many together as memory allows."""
    rows, size = input.flatten(0, 1), sum(cell.state_sizes)
    each = tuple(state.flatten(0, 1) for state in states)
    into = found.view(-1, size, size)
    for block in blocks(len(rows), size, cell.hidden_size, into.element_size()):
        before = torch.cat([state[block].to(rows.device, rows.dtype) for state in each], -1)
        into[block] = jacobian(cell, rows[block], before).cpu()


def blocks(rows: int, size: int, units: int, bytes_each: int) -> Iterator[slice]:
    """Rows that are differentiated together; each needs about a dozen vectors for every entry of the state."""
    together = max(1, BLOCK_BYTES // (bytes_each * size * (size + 12 * units)))
    for start in range(0, rows, together):
        yield slice(start, min(start + together, rows))


def jacobian(cell: AbstractCell, input: Tensor, state: Tensor) -> Tensor:
    """(row, target, source): of one step of each row, by reverse mode for all targets at once."""

    def step(joined: Tensor) -> Tensor:
        return torch.cat(cell.forward(input, joined.split(list(cell.state_sizes), -1)), -1)

    _, pull = torch.func.vjp(step, state)[:2]
    size = state.shape[-1]
    targets = torch.eye(size, dtype=state.dtype, device=state.device)[:, None].expand(-1, len(state), -1)
    pulled: Any = torch.func.vmap(pull)(targets)
    result: Tensor = pulled[0]
    return result.transpose(0, 1)
