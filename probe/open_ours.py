"""Our own modules and registered cells that run openly."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..cells import AbstractCell, Recurrent, StepTap
from ..signals import Tap, no_tap
from .counting import Steps
from .find import State
from .foreign import ForeignCell
from .open_forward import Chain, OpenForward, lasting
from .origins import Origins


class OpenStack(OpenForward):
    """Our own unrolled stack, which is open already."""

    module: Recurrent

    def run(self, tap: StepTap | None, *args: Any, **kwargs: Any) -> Any:
        given = kwargs.pop("tap", None)
        taps = [each for each in (given, tap) if each is not None]
        with lasting(next(iter((*args, *kwargs.values())), None)):
            return self.own(*args, **kwargs, tap=Chain(taps) if taps else None)


class OpenCell(OpenForward):
    """One of our own cells in the user's loop, which is open already."""

    module: AbstractCell

    def __init__(self, path: str, module: AbstractCell) -> None:
        super().__init__(path, module)
        self.steps = Steps()

    def run(self, tap: StepTap | None, *args: Any, **kwargs: Any) -> Any:
        if tap is None:
            return self.own(*args, **kwargs)
        call = signature(type(self.module).forward).bind(self.module, *args, **kwargs).arguments
        given = call.get("tap", no_tap)
        rest = {name: value for name, value in call.items() if name not in ("self", "x", "state", "tap")}
        step = Joined(self.own, given, rest)
        return self.steps.run(step, call["x"], tuple(call["state"]), tap)


class Joined:
    """A cell's own call with a tap in front and its other arguments."""

    def __init__(self, own: Callable[..., Any], first: Tap, rest: Mapping[str, Any]) -> None:
        self.own, self.first, self.rest = own, first, rest

    def __call__(self, x: Tensor, state: State, tap: Tap) -> Any:
        first = self.first
        joined = tap if first is no_tap else lambda name, value: tap(name, first(name, value))
        return self.own(x, state, joined, **self.rest)


class OpenForeign(OpenForward):
    """A cell of a registered class: its own `forward` says how it is called and answers, our cell what it computes."""

    def __init__(self, path: str, module: nn.Module) -> None:
        super().__init__(path, module)
        self.observed = ForeignCell(path, module)
        self.origins = Origins(self.observed.registration.as_cell, module)
        self.steps = Steps()

    def run(self, tap: StepTap | None, *args: Any, **kwargs: Any) -> Any:
        output = self.own(*args, **kwargs)
        input, given, answered = self.observed.parts(args, kwargs, output)
        [[built]] = self.observed.cells()
        cell = self.origins.cell(built)
        state = tuple(torch.zeros_like(entry) for entry in answered) if given is None else given
        new = self.steps.run(cell, input, state, tap, given=given is not None)
        leaves, form = tree_flatten(output)
        instead = {id(old): value for old, value in zip(answered, new, strict=True)}
        if {id(leaf) for leaf in leaves if isinstance(leaf, Tensor)} == instead.keys():
            return tree_unflatten([instead.get(id(leaf), leaf) for leaf in leaves], form)
        if tap is None:
            return output
        raise TypeError(
            f"{self.path!r} must answer its new states, and no other tensor, for its signals to be changed; its class "
            f"{type(self.module).__name__} answers something made of them. Register the class of its inner cell."
        )
