"""Signals of a module that runs openly, as its equations had them: nothing need be rebuilt, and changes are seen."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..cells import AbstractCell, StepTap
from .calls import Call, Observed
from .rebuild import COARSE, ParityError, Rebuilt, largest, rebuild, rounding


class Place(NamedTuple):
    name: str
    layer: int
    direction: int


class Heard:
    """All values of one call, after every tap."""

    def __init__(self) -> None:
        self.values: dict[Place, list[tuple[int, Tensor]]] = {}
        self.changed = False  # by a tap

    def after(self, tap: StepTap | None) -> StepTap:
        """A tap that keeps what another one leaves."""

        def keep(name: str, value: Tensor, /, *, layer: int, direction: str, time: Any) -> Tensor:
            new = value if tap is None else tap(name, value, layer=layer, direction=direction, time=time)
            self.changed = self.changed or new is not value
            at = Place(name, layer, int(direction == "backward"))
            self.values.setdefault(at, []).append((time if isinstance(time, int) else 0, new.detach()))
            return new

        return keep

    def signals(self, wanted: frozenset[str], stack: tuple[int, int], steps: int) -> dict[str, Tensor] | None:
        """Each (layer, direction, time, sequence, unit) on the CPU; `None` where they are not those of one call."""
        names = dict.fromkeys(at.name for at in self.values if at.name in wanted)
        every = [(layer, direction) for layer in range(stack[0]) for direction in range(stack[1])]
        found = {}
        for name in names:
            parts = [self.values.get(Place(name, *at), []) for at in every]
            if any(len(part) != steps for part in parts):
                return None
            rows = [torch.stack([value for _, value in sorted(part, key=lambda entry: entry[0])]) for part in parts]
            values = torch.stack(rows).unflatten(0, stack).cpu()
            found[name] = values.float() if values.dtype in COARSE else values
        return found


def signals_of_call(
    observed: Observed, call: Call, wanted: frozenset[str], tolerance: float, number: int
) -> tuple[Rebuilt, list[list[AbstractCell]]]:
    """What is kept of a call: rebuilt and certified, or as it was heard where the module ran openly.

    Where nothing was changed, what was heard is certified as everything is. Where an intervention has changed a signal,
    the states that were heard are compared with those that the module has handed out.
    """
    heard: Heard | None = call.heard
    if heard is None:
        return rebuild(observed, call, wanted, tolerance, number)
    cells, states = observed.cells(), observed.kind.states
    found = heard.signals(wanted | frozenset(states), (len(cells), len(cells[0])), call.layers[0].input.shape[0])
    if found is None:
        return rebuild(observed, call, wanted, tolerance, number)
    signals = {name: values for name, values in found.items() if name in wanted}
    if not heard.changed:
        rebuilt, cells = rebuild(observed, call, wanted, tolerance, number)
        return rebuilt._replace(signals=rebuilt.signals | signals), cells
    return as_heard(observed, call, found, signals, tolerance, number), cells


def as_heard(
    observed: Observed,
    call: Call,
    found: dict[str, Tensor],
    signals: dict[str, Tensor],
    tolerance: float,
    number: int,
) -> Rebuilt:
    """The signals that were heard, of which `found` also has the states."""
    kind = observed.kind
    shown = found[kind.states[0]]
    hidden = call.layers[-1].hidden.detach().cpu()
    top = torch.cat(list(shown[-1]), dim=-1)
    gap = top.to(hidden) - hidden
    real = None
    if call.lengths is not None:
        real = torch.arange(len(hidden))[:, None] < call.lengths.cpu()
        gap = gap[real]
    memories = [found[name] if real is None else found[name][:, :, real] for name in kind.states]
    finite = [values[values.isfinite()] for values in memories]
    size = largest(finite[1:] or finite)
    error = largest([gap[gap.isfinite()]]) / size if size > 0 else 0.0
    tolerance = max(tolerance, COARSE.get(rounding(call.layers[-1].hidden), 0.0))
    if not error <= tolerance:
        raise ParityError(
            f"the states that {observed.path!r} shows must be those that its equations had within {tolerance:g} of the "
            f"largest memory; they differ by {error:.2g} in call {number}. Its class changes them after the last step."
        )
    stack = shown.shape[:2]
    initial, final = (
        tuple(state.detach().unflatten(0, tuple(stack)).cpu().clone() for state in states)
        for states in (call.initial, call.final)
    )
    bad = torch.stack([~found[name].isfinite().all(-1) for name in kind.states]).any(0)
    bad = bad if real is None else bad & real
    return Rebuilt(signals, initial, final, error, tolerance, bad if bool(bad.any()) else None)
