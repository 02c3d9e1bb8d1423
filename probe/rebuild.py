"""Every signal of every step of an observed call, rebuilt at once from the model's own states, and certified."""

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from copy import copy, deepcopy
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..cells import AbstractCell, linear_scan
from ..signals import DIRECTIONS
from .calls import Call, Layer, Observed
from .find import State

BLOCK_ROWS = 4096
"""Steps times sequences that are rebuilt together."""
COARSE = {torch.bfloat16: 0.05, torch.float16: 0.01}
"""Tolerance where the model itself rounds every state to 8 or 11 bits."""


class ParityError(RuntimeError):
    """The rebuilt states are not the model's own: the cell's equations or weights are not those of the module."""


class Rebuilt(NamedTuple):
    """All that is kept of one call, on the CPU; time is the input's own."""

    signals: dict[str, Tensor]  # (layer, direction, time, sequence, unit)
    initial: State  # (layer, direction, sequence, unit), in the order of the cell's `states`
    final: State
    parity: float
    tolerance: float
    infinite: Tensor | None  # (layer, direction, time, sequence), where a state is NaN or Inf


class Tape:
    """A tap that keeps the wanted signals of all layers and directions, one array each."""

    def __init__(self, wanted: frozenset[str], layers: int, directions: int, time: int) -> None:
        self.wanted = wanted
        self.shape = (layers, directions, time)
        self.arrays: dict[str, Tensor] = {}
        self.layer = self.direction = 0
        self.time = slice(None)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        if name in self.wanted:
            self.write(name, value)
        return value

    def write(self, name: str, value: Tensor) -> None:
        """Keep (time, sequence, unit) of the steps, layer and direction that are being rebuilt."""
        if name not in self.arrays:
            self.arrays[name] = torch.empty(*self.shape, *value.shape[1:], dtype=value.dtype)
        self.arrays[name][self.layer, self.direction, self.time] = value


def rebuild(
    observed: Observed, call: Call, wanted: frozenset[str], tolerance: float, number: int
) -> tuple[Rebuilt, list[list[AbstractCell]]]:
    """Rebuild one call and compare it with what the module computed.

    The gates of all steps come from one matrix product with the model's own `h_{t-1}`; only the linear memory is
    scanned. Nothing free-running is simulated, so errors do not grow along the sequence.

    Raises
    ------
    ParityError
        If rebuilt and own states differ by more than `tolerance` times the largest |memory|.
    """
    cells = observed.cells()
    directions = len(cells[0])
    tape = Tape(wanted, len(cells), directions, call.layers[0].hidden.shape[0])
    own = rounding(call.layers[-1].hidden)
    exact = torch.float64 if own == torch.float64 else torch.float32
    tolerance = max(tolerance, COARSE.get(own, 0.0))
    worst, places = 0.0, []
    for index, (row, layer) in enumerate(zip(cells, call.layers, strict=True)):
        for direction, cell in enumerate(row):
            tape.layer, tape.direction = index, direction
            part = Part(
                rounded(cell, own, exact), layer, call, index * directions + direction, direction == 1, own, exact
            )
            error = part.run(tape)
            if not error <= tolerance:
                raise ParityError(
                    f"the rebuilt states of {observed.path!r}, layer {index}, {DIRECTIONS[direction]} must equal the "
                    f"module's own within {tolerance:g} of the largest memory; they differ by {error:.2g} in call "
                    f"{number}. The equations, the gate order or the weights of {type(cell).__name__} are not those of "
                    "the module."
                )
            worst = max(worst, error)
            places.append(part.infinite)
    stack = (len(cells), directions)
    initial, final = (
        tuple(t.detach().unflatten(0, stack).cpu().clone() for t in state) for state in (call.initial, call.final)
    )
    infinite = None
    if any(place is not None for place in places):
        clean = torch.zeros(call.layers[0].hidden.shape[:2], dtype=torch.bool)
        infinite = torch.stack([clean if place is None else place.cpu() for place in places])
        infinite = infinite.unflatten(0, stack)
    return Rebuilt(tape.arrays, initial, final, worst, tolerance, infinite), cells


class Part:
    """One layer in one direction of a call, on the input's time axis."""

    infinite: Tensor | None = None  # (time, sequence), where a state of the model is not finite

    def __init__(
        self,
        cell: AbstractCell,
        layer: Layer,
        call: Call,
        slot: int,
        backward: bool,
        own: torch.dtype,
        exact: torch.dtype,
    ) -> None:
        self.cell, self.backward, self.own, self.exact = cell, backward, own, exact
        width = cell.output_size
        self.input = layer.input.detach()
        self.hidden = layer.hidden.detach()[..., backward * width : (backward + 1) * width]
        self.initial = tuple(state[slot].detach().to(exact) for state in call.initial)
        self.final = tuple(state[slot].detach().to(exact) for state in call.final)
        self.computed = tuple(state.detach() for state in call.computed)
        self.real = None if call.lengths is None else self.mask(call.lengths)

    def mask(self, lengths: Tensor) -> Tensor:
        """(time, sequence, 1), False in the padding of packed rows."""
        steps = torch.arange(self.hidden.shape[0], device=self.hidden.device)
        return (steps[:, None] < lengths.to(self.hidden.device)).unsqueeze(-1)

    def run(self, tape: Tape, *, closely: bool = False) -> float:
        """Write all wanted signals to the tape; the error relative to the largest |memory|.

        Of each block only the largest values are kept; where one is not finite, all goes `closely` once more.
        """
        memory = self.initial[1:]
        gaps: list[Tensor] = []
        memories: list[Tensor] = []
        for steps in self.blocks():
            tape.time = steps
            hidden = self.hidden[steps].to(self.exact)
            state = (self.before(steps, hidden), *memory)
            input = self.input[steps].to(self.own).to(self.exact)
            with uncast(self.hidden.device):
                now = self.cell.forward(input, state, tape, partial(self.scan, steps))
            memory = tuple(self.after(steps, new, old) for new, old in zip(now[1:], memory, strict=True))
            found = [self.real_only(now[0] - hidden, steps)], now[1:] or [self.real_only(hidden, steps)]
            gaps += found[0] if closely else ends(found[0])
            memories += found[1] if closely else ends(found[1])
            self.keep_own(tape, steps)
        gaps += [rebuilt - final for rebuilt, final in zip(memory, self.final[1:], strict=True)]
        if closely:
            return self.error(gaps, memories)
        difference, largest_memory = largest(gaps), largest(memories)
        if not isfinite(difference + largest_memory):
            return self.run(tape, closely=True)
        return difference / largest_memory if largest_memory > 0 else difference

    def blocks(self) -> list[slice]:
        """Steps that are rebuilt together: few enough for the cache, in the order of computation."""
        time, sequences = self.hidden.shape[:2]
        size = max(1, BLOCK_ROWS // max(1, sequences)) if self.cell.parallel else 1
        blocks = [slice(start, min(start + size, time)) for start in range(0, time, size)]
        return blocks[::-1] if self.backward else blocks

    def before(self, steps: slice, hidden: Tensor) -> Tensor:
        """The model's own shown state before each step of a block, (time, sequence, output)."""
        initial = self.initial[0]
        if self.backward:
            last = self.shown(steps.stop) if steps.stop < len(self.hidden) else initial
            if self.real is not None:  # a row's first step follows its padding
                hidden = torch.where(self.real[steps], hidden, initial)
            return torch.cat([hidden[1:], last.unsqueeze(0)])
        first = self.shown(steps.start - 1) if steps.start else initial
        return torch.cat([first.unsqueeze(0), hidden[:-1]])

    def shown(self, step: int) -> Tensor:
        hidden = self.hidden[step].to(self.exact)
        return hidden if self.real is None else torch.where(self.real[step], hidden, self.initial[0])

    def scan(self, steps: slice, keep: Tensor, write: Tensor, memory: Tensor) -> Tensor:
        if self.real is not None:  # through padding a memory stays as it is
            keep = torch.where(self.real[steps], keep, 1.0)
            write = torch.where(self.real[steps], write, 0.0)
        return linear_scan(keep, write, memory, backward=self.backward)

    def after(self, steps: slice, new: Tensor, old: Tensor) -> Tensor:
        """A memory after a block; what a single step computes from padding is not carried on, as `scan` sees to it."""
        last = new[0 if self.backward else -1]
        return last if self.real is None or self.cell.parallel else torch.where(self.real[steps][0], last, old)

    def real_only(self, values: Tensor, steps: slice) -> Tensor:
        return values if self.real is None else torch.where(self.real[steps], values, 0.0)

    def keep_own(self, tape: Tape, steps: slice) -> None:
        """Where the model shows a state itself, its own bits are recorded."""
        for name, value in zip(self.cell.states, (self.hidden, *self.computed), strict=False):
            if name in tape.wanted:
                tape.write(name, value[steps])

    def error(self, gaps: list[Tensor], memories: list[Tensor]) -> float:
        """Largest difference from the model's own states over the largest |memory|, over sequences that stay finite."""
        self.infinite = self.not_finite(memories)
        usable = ~self.infinite.any(0)
        difference = largest([part[..., usable, :] for part in gaps])
        memory = largest([part[..., usable, :] for part in memories])
        return difference / memory if memory > 0 else difference

    def not_finite(self, memories: list[Tensor]) -> Tensor:
        """(time, sequence): True where a state of the model is NaN or Inf.

        Where the model shows a memory at its end only, the steps before are those of the rebuilt one.
        """
        bad = ~torch.isfinite(self.hidden).all(-1)
        spoiled = torch.stack([~torch.isfinite(final).all(-1) for final in self.final]).any(0)
        each = max(1, len(self.final) - 1)
        for place, memory in enumerate(memories):
            bad[self.blocks()[place // each]] |= ~torch.isfinite(memory).all(-1) & spoiled
        return bad if self.real is None else bad & self.real.squeeze(-1)


def largest(parts: list[Tensor]) -> float:
    """The largest |value|; NaN where there is one, 0 where there is nothing."""
    found = ends(parts)
    return float(torch.stack(found).abs().max()) if found else 0.0


def ends(parts: Iterable[Tensor]) -> list[Tensor]:
    """The lowest and highest value of each part that has any."""
    return [end for part in parts if part.numel() for end in part.aminmax()]


def uncast(device: torch.device) -> AbstractContextManager[Any]:
    """Without autocast; where there is none, without entering a block that an interrupt could keep from ending."""
    on = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if on else nullcontext()


def rounding(hidden: Tensor) -> torch.dtype:
    """The type of a module's products: that of its states, or autocast's, which may still hand out float32."""
    device = hidden.device.type
    autocast = hidden.dtype == torch.float32 and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if autocast else hidden.dtype


def rounded(cell: AbstractCell, own: torch.dtype, exact: torch.dtype) -> AbstractCell:
    """The cell computing in `exact` with its weights rounded as the model rounds them; the cell itself is untouched."""
    nested = bool(cell._modules or cell._buffers)  # somebody's own cell may be made of modules
    weights = [*cell.parameters(), *cell.buffers()] if nested else cell._parameters.values()
    if all(weight is None or weight.dtype == own == exact or not weight.is_floating_point() for weight in weights):
        return cell
    if nested:
        return deepcopy(cell).to(own).to(exact)
    twin = copy(cell)
    twin.__dict__["_parameters"] = {
        name: None if w is None else w.detach().to(own).to(exact) for name, w in cell._parameters.items()
    }
    return twin
