"""Cells run step by step over whole sequences, through layers and directions."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import dropout
from torch.nn.utils.rnn import PackedSequence

from ..signals import DIRECTIONS, Tap, no_tap
from .abstract import AbstractCell

State = tuple[Tensor, ...]


@runtime_checkable
class StepTap(Protocol):
    """What `Recurrent` calls on each named value of each step; it goes on with what that returns.

    `value` is (sequence, unit), rows in the order of the caller's batch. `time` counts on the input's time axis, in
    the backward direction too. Rows that have ended hold values that nothing depends on.
    """

    def __call__(self, name: str, value: Tensor, /, *, layer: int, direction: str, time: int) -> Tensor: ...


class Packing(NamedTuple):
    """Where each row of a packed sequence's data stands in a padded (time, sequence, feature) array."""

    time: Tensor
    sequence: Tensor
    lengths: Tensor

    @classmethod
    def of(cls, packed: PackedSequence) -> "Packing":
        sizes = packed.batch_sizes
        time = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        place = torch.arange(len(time)) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
        device = packed.data.device
        sequence = place.to(device)
        if packed.sorted_indices is not None:
            sequence = packed.sorted_indices[sequence]
        lengths = torch.bincount(sequence, minlength=int(sizes[0]))
        return cls(time.to(device), sequence, lengths)

    def pad(self, data: Tensor) -> Tensor:
        shape = (int(self.time[-1]) + 1, len(self.lengths), data.shape[-1])
        return data.new_zeros(shape).index_put((self.time, self.sequence), data)

    def pack(self, padded: Tensor) -> Tensor:
        return padded[self.time, self.sequence]


def run_kernel(
    cells: list[list[AbstractCell]],
    rows: Tensor | PackedSequence,
    state: State,
    dropout_now: float = 0.0,
    tap: StepTap | None = None,
) -> tuple[Tensor, State]:
    """What torch's fused kernels compute, by the equations of cells, which may have any tensors as weights.

    Parameters
    ----------
    cells : by layer and direction.
    rows : the input, (time, sequence, feature), or packed.
    state : initial state, each (layer times direction, sequence, unit); where the input is packed, in the order in
        which its rows are packed, as the kernels want it. Taps see the caller's order.
    dropout_now : probability of dropping a value between layers; 0 in evaluation.
    tap : called on every named value of every step.

    Returns
    -------
    What the last layer shows, (time, sequence, unit) or packed rows, and the last states, in the order of `state`.
    """
    if not isinstance(rows, PackedSequence):
        return run_layers(cells, rows, None, state, dropout_now, tap)
    packing, order, back = Packing.of(rows), rows.sorted_indices, rows.unsorted_indices
    if back is not None:
        state = tuple(entry.index_select(1, back) for entry in state)
    padded, last = run_layers(cells, packing.pad(rows.data), packing, state, dropout_now, tap)
    if order is not None:
        last = tuple(entry.index_select(1, order) for entry in last)
    return packing.pack(padded), last


def run_layers(
    cells: list[list[AbstractCell]],
    input: Tensor,
    packing: Packing | None,
    state: State,
    dropout_now: float,
    tap: StepTap | None,
) -> tuple[Tensor, State]:
    """All layers on time-major input, dropout between them."""
    if not len(input):
        raise ValueError("A sequence must be at least one step long; one of no steps came. Leave it out.")
    lengths = None if packing is None else packing.lengths
    finals = []
    for index, row in enumerate(cells):
        if index > 0 and dropout_now:
            input = _drop(input, packing, dropout_now)
        start = index * len(row)
        here = tuple(entry[start : start + len(row)] for entry in state)
        input, final_state = run_layer(row, index, input, lengths, here, tap)
        finals.append(final_state)
    return input, tuple(torch.cat(entries) for entries in zip(*finals, strict=True))


def _drop(padded: Tensor, packing: Packing | None, probability: float) -> Tensor:
    """Dropout as torch draws it: on the packed values where the input is packed."""
    if packing is None:
        return dropout(padded, probability)
    return packing.pad(dropout(packing.pack(padded), probability))


def run_layer(
    cells: list[AbstractCell],
    index: int,
    input: Tensor,
    lengths: Tensor | None,
    state: State,
    tap: StepTap | None,
) -> tuple[Tensor, State]:
    """One layer in its directions, as `Recurrent.run_layer` says."""
    steps = input.shape[0]
    active: list[Tensor | None] = [None] * steps
    if lengths is not None and bool((lengths < steps).any()):
        real = torch.arange(steps, device=input.device).unsqueeze(1) < lengths.to(input.device)
        input = input.masked_fill(~real.unsqueeze(-1), 0)
        full = real.all(1).tolist()
        active = [None if full[time] else now for time, now in enumerate(real.unsqueeze(-1).unbind(0))]
    outputs, finals = [], []
    for place, cell in enumerate(cells):
        here = tuple(entry[place] for entry in state)
        output, final_state = _unroll(cell, input, active, here, _at(tap, index, DIRECTIONS[place]), place == 1)
        outputs.append(output)
        finals.append(final_state)
    shown = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
    return shown, tuple(torch.stack(entries) for entries in zip(*finals, strict=True))


def _at(tap: StepTap | None, layer: int, direction: str) -> Callable[[int], Tap]:
    """The tap of each step of a layer in one direction."""
    if tap is None:
        return lambda time: no_tap
    return lambda time: cast(Tap, partial(tap, layer=layer, direction=direction, time=time))


def _unroll(
    cell: AbstractCell,
    input: Tensor,
    active: list[Tensor | None],
    state: State,
    tap: Callable[[int], Tap],
    backward: bool,
) -> tuple[Tensor, State]:
    """One cell over all steps; where a sequence is not active its state waits and its output is 0.

    `active` holds (sequence, 1) for each step on which some sequences are not active; `tap` gives that of a step.
    """
    reads, advance = (input.unbind(0), cell) if _is_hooked(cell) else cell.steps(input)
    shown: list[Tensor] = []
    order = range(len(active))
    for time in reversed(order) if backward else order:
        new = advance(reads[time], state, tap(time))
        now = active[time]
        if now is not None:
            waiting = (torch.where(now, after, before) for after, before in zip(new, state, strict=True))
            shown.append(new[0].masked_fill(~now, 0))
            state = tuple(waiting)
        else:
            shown.append(new[0])
            state = new
    return torch.stack(shown[::-1] if backward else shown), state


def _is_hooked(cell: AbstractCell) -> bool:
    """Whether somebody listens to the calls of a cell, so that every step must be one."""
    return bool(cell._forward_hooks or cell._forward_pre_hooks or cell._backward_hooks or cell._backward_pre_hooks)
