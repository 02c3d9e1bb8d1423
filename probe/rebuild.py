"""Every signal of every step of an observed call, rebuilt at once from the model's own states, and certified."""

from copy import copy
from typing import NamedTuple

import torch
from torch import Tensor

from ..cells import AbstractCell, linear_scan
from ..signals import PREACTIVATION
from .calls import Call, Layer, Observed, State

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
    """A tap that copies the wanted signals of the current layer and direction into one array each."""

    def __init__(self, wanted: frozenset[str], shape: tuple[int, int, int, int]) -> None:
        self.wanted = wanted
        self.shape = shape
        self.arrays: dict[str, Tensor] = {}
        self.layer = self.direction = 0
        self.time: slice = slice(None)

    def __call__(self, name: str, value: Tensor) -> Tensor:
        if name in self.wanted:
            self.write(name, value.flip(0) if self.direction else value)
        return value

    def write(self, name: str, value: Tensor) -> None:
        if name not in self.arrays:
            self.arrays[name] = torch.empty(*self.shape, value.shape[-1], dtype=value.dtype)
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
    time, sequences, _ = call.layers[0].input.shape
    tape = Tape(wanted, (len(cells), directions, time, sequences))
    own = call.layers[-1].hidden.dtype
    exact = torch.float64 if own == torch.float64 else torch.float32
    tolerance = max(tolerance, COARSE.get(own, 0.0))
    worst, infinite = 0.0, torch.zeros(len(cells), directions, time, sequences, dtype=torch.bool)
    for index, (row, layer) in enumerate(zip(cells, call.layers, strict=True)):
        for direction, cell in enumerate(row):
            tape.layer, tape.direction = index, direction
            same = rounded(cell, own, exact)
            part = Part(same, layer, call, index * directions + direction, direction == 1, own, exact)
            error = part.run(tape)
            infinite[index, direction] = part.infinite.cpu()
            if not error <= tolerance:
                raise ParityError(
                    f"the rebuilt states of {observed.path!r}, layer {index}, {'backward' if direction else 'forward'} "
                    f"must equal the module's own within {tolerance:g} of the largest memory; they differ by {error:.2g} "
                    f"in call {number}. The equations, the gate order or the weights of {type(cell).__name__} are not "
                    "those of the module."
                )
            worst = max(worst, error)
    shape = (len(cells), directions, sequences, -1)
    initial, final = (tuple(t.detach().reshape(shape).cpu().clone() for t in s) for s in (call.initial, call.final))
    result = Rebuilt(tape.arrays, initial, final, worst, tolerance, infinite if bool(infinite.any()) else None)
    return result, cells


class Part:
    """One layer in one direction of a call, in the order in which it was computed."""

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
        self.cell, self.backward = cell, backward
        width = cell.output_size
        hidden = layer.hidden.detach()[..., backward * width : (backward + 1) * width]
        self.own_hidden = hidden
        self.input = self.ordered(layer.input.detach().to(own)).to(exact)
        self.hidden = self.ordered(hidden).to(exact)
        self.initial = tuple(state[slot].detach().to(exact) for state in call.initial)
        self.final = tuple(state[slot].detach().to(exact) for state in call.final)
        self.computed = tuple(state.detach() for state in call.computed)
        self.real = self.mask(call.lengths)

    def ordered(self, value: Tensor) -> Tensor:
        return value.flip(0) if self.backward else value

    def mask(self, lengths: Tensor | None) -> Tensor | None:
        """(time, sequence, 1), False in the padding of packed rows."""
        if lengths is None:
            return None
        steps = torch.arange(self.hidden.shape[0], device=self.hidden.device)
        return self.ordered(steps[:, None] < lengths.to(self.hidden.device)).unsqueeze(-1)

    def run(self, tape: Tape) -> float:
        """Write all wanted signals to the tape; the error relative to the largest |memory|."""
        cell, hidden, initial = self.cell, self.hidden, self.initial
        if self.real is not None:
            hidden = torch.where(self.real, hidden, initial[0])
        before = torch.cat([initial[0].unsqueeze(0), hidden[:-1]])
        if cell.parallel:
            shown, *rest = cell.forward(self.input, (before, *initial[1:]), tape, self.remember)
        else:
            shown, *rest = self.loop(before, tape)
        self.keep_own(tape)
        return self.error(shown, rest)

    def remember(self, keep: Tensor, write: Tensor, memory: Tensor) -> Tensor:
        if self.real is not None:  # through padding a memory stays as it is
            keep = torch.where(self.real, keep, 1.0)
            write = torch.where(self.real, write, 0.0)
        return linear_scan(keep, write, memory)

    def loop(self, before: Tensor, tape: Tape) -> list[Tensor]:
        """Step by step, for cells whose gates see the memory; the shown state is still the model's own."""
        rest, steps = self.initial[1:], []
        length = before.shape[0]
        for t in range(length):
            tape.time = slice(length - 1 - t, length - t) if self.backward else slice(t, t + 1)
            here = slice(t, t + 1)
            now = self.cell.forward(self.input[here], (before[here], *(r.unsqueeze(0) for r in rest)), tape)
            new = [value[0] for value in now[1:]]
            if self.real is not None:
                new = [torch.where(self.real[t], value, old) for value, old in zip(new, rest, strict=True)]
            rest = tuple(new)
            steps.append((now[0][0], *rest))
        tape.time = slice(None)
        return [torch.stack(values) for values in zip(*steps, strict=True)]

    def keep_own(self, tape: Tape) -> None:
        """Where the model shows a state itself, its own bits are recorded."""
        for name, value in zip(self.cell.states, (self.own_hidden, *self.computed), strict=False):
            if name in tape.wanted:
                tape.write(name, value.to(self.hidden.dtype))

    @property
    def infinite(self) -> Tensor:
        """(time, sequence) on the input's time axis: True where a state is not finite."""
        bad = ~torch.isfinite(self.own_hidden).all(-1)
        return bad if self.real is None else bad & self.ordered(self.real.squeeze(-1))

    def error(self, shown: Tensor, rest: list[Tensor]) -> float:
        """Largest difference from the model's own states over the largest |memory|, over sequences that stay finite."""
        counts = torch.ones_like(self.hidden[..., :1], dtype=torch.bool) if self.real is None else self.real
        usable = (torch.isfinite(self.hidden) | ~counts).all(0).all(-1)
        for final in self.final[1:]:
            usable &= torch.isfinite(final).all(-1)
        if not bool(usable.any()):
            return 0.0
        differences = [torch.where(counts, (shown - self.hidden).abs(), 0.0)[:, usable].max()]
        differences += [(r[-1] - f)[usable].abs().max() for r, f in zip(rest, self.final[1:], strict=True)]
        memories = rest or [torch.where(counts, self.hidden, 0.0)]
        difference = float(torch.stack(differences).max())
        memory = float(torch.stack([m[:, usable].abs().max() for m in memories]).max())
        return difference / memory if memory > 0 else difference


def rounded(cell: AbstractCell, own: torch.dtype, exact: torch.dtype) -> AbstractCell:
    """The cell computing in `exact` with its weights rounded as the model rounds them; the cell itself is untouched."""
    if all(weight is None or weight.dtype == own == exact for weight in cell._parameters.values()):
        return cell
    twin = copy(cell)
    weights = {name: None if w is None else w.detach().to(own).to(exact) for name, w in cell._parameters.items()}
    twin.__dict__["_parameters"] = weights
    return twin


def names(cell: AbstractCell, preactivations: bool) -> list[str]:
    """The signals that a cell can give, in the order it computes them."""
    found = []
    for signal in cell.signals:
        if preactivations and signal.bounds is not None:
            found.append(signal.name + PREACTIVATION)
        found.append(signal.name)
    return found
