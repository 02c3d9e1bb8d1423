"""What every cell is: named signals, a carried state, and `forward` with the equations of one step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from ..signals import Signal, Tap, no_tap
from .scan import Remember, step

Advance = Callable[[Any, tuple[Tensor, ...], Tap], tuple[Tensor, ...]]
"""One step: from what it reads, the state before it and a tap to the state after it."""


class AbstractCell(nn.Module, ABC):
    """A recurrent cell that names its signals; concrete cells are final.

    Attributes
    ----------
    signals : what the cell computes at each step, in the order it is computed.
    retention : what multiplies the old memory (see `gatescope.signals.retention_form`).
    states : names of what is carried from step to step; the first is what the cell shows.
    gates : blocks of rows of `weight_hh`, in order.
    peepholes : the gates whose connections to the memory are the rows of `weight_peephole`, in order.
    squashers : for a memory that is not shown through tanh, through what; such as `tanh(x/2)`.
    variant : which form of the cell, where it has several.
    parallel : whether all signals of all steps follow from the inputs, the shown states before each step and one
        linear scan, so that `forward` with `remember=linear_scan` rebuilds a whole recording.
    """

    signals: tuple[Signal, ...]
    retention: str
    states: tuple[str, ...]
    gates: tuple[str, ...]
    peepholes: tuple[str, ...] = ()
    squashers: Mapping[str, str] = MappingProxyType({})
    variant: str | None = None
    parallel: bool = True

    input_size: int
    hidden_size: int
    bias: bool
    proj_size: int

    def __init__(self, input_size: int, hidden_size: int, *, bias: bool = True, proj_size: int = 0) -> None:
        super().__init__()
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size)):
            if size < 1:
                raise ValueError(f"{name} of {type(self).__name__} must be at least 1; {size} came.")
        if not 0 <= proj_size < hidden_size:
            raise ValueError(
                f"proj_size of {type(self).__name__} must be 0 (no projection) or smaller than hidden_size "
                f"{hidden_size}; {proj_size} came."
            )
        self.input_size, self.hidden_size, self.bias, self.proj_size = input_size, hidden_size, bias, proj_size

    @abstractmethod
    def forward(self, x: Tensor, state: Any, tap: Tap = no_tap, remember: Remember = step) -> tuple[Tensor, ...]:
        """The state after one step, in the order of `states`; with `remember=linear_scan` after each of all steps.

        `x` is (..., input_size), each entry of `state` (..., unit). Every named value goes through
        `tap(name, value)`, and the cell goes on with what that returns. With `remember=linear_scan`, `x` is
        (time, sequence, input_size), the shown state holds the state *before* each step (time, sequence, unit) and the
        others are the initial ones (sequence, unit).
        """

    def steps(self, x: Tensor) -> tuple[Sequence[Any], Advance]:
        """What each step reads of `x` (time, sequence, input_size), and the step itself, for running step by step.

        The step computes what `forward` does, with the products that do not wait for a state taken for all steps at
        once. A cell that has no such form is called as it is.
        """
        return x.unbind(0), self

    @property
    def output_size(self) -> int:
        """Width of the state that the cell shows."""
        return self.proj_size or self.hidden_size

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Width of each entry of the state, in the order of `states`."""
        return (self.output_size, *(self.hidden_size for _ in self.states[1:]))

    def zero_state(self, like: Tensor, batch: Sequence[int] = ()) -> tuple[Tensor, ...]:
        """The state of a cell that has read nothing, with leading dims `batch` and device and dtype of `like`."""
        return tuple(like.new_zeros(*batch, size) for size in self.state_sizes)

    def add_weights(
        self,
        shapes: Mapping[str, tuple[int, ...] | None],
        *,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        """Register parameters by name (`None`: the cell goes without) and initialise them."""
        for name, shape in shapes.items():
            weight = None if shape is None else nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
            self.register_parameter(name, weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters uniformly from +-1/sqrt(hidden_size), as torch does."""
        bound = 1 / sqrt(self.hidden_size)
        for weight in self.parameters():
            nn.init.uniform_(weight, -bound, bound)

    def recurrent_weight(self) -> Tensor | None:
        """`weight_hh` by gate, (gate, unit, source): through what a step acts on the next; None without `weight_hh`."""
        weight: Tensor | None = getattr(self, "weight_hh", None)
        return None if weight is None else weight.reshape(len(self.gates), -1, weight.shape[-1])

    def unit_blocks(self) -> tuple[int, ...] | None:
        """Which memory block each unit belongs to; None where no units share gates."""
        return None

    def check(self, x: Tensor, state: tuple[Tensor, ...]) -> None:
        """Raise a `ValueError` where input or state do not have the shape that the cell needs."""
        name = type(self).__name__
        if x.shape[-1] != self.input_size:
            raise ValueError(
                f"the input of {name} must be {self.input_size} wide (its input_size); shape {tuple(x.shape)} came."
            )
        if len(state) != len(self.states):
            raise ValueError(
                f"the state of {name} must be the tuple ({', '.join(self.states)}); {len(state)} entries came."
            )
        batch = tuple(x.shape[:-1])
        for place, (entry, size) in enumerate(zip(state, self.state_sizes, strict=True)):
            came = tuple(entry.shape)
            allowed = came[:-1] == batch if place == 0 else batch[len(batch) - len(came) + 1 :] == came[:-1]
            if came[-1:] != (size,) or not allowed:
                raise ValueError(
                    f"{self.states[place]} of {name} must have shape {(*batch, size)} for an input of shape "
                    f"{tuple(x.shape)}; {came} came."
                )

    def extra_repr(self) -> str:
        projection = f", proj_size={self.proj_size}" if self.proj_size else ""
        return f"{self.input_size}, {self.hidden_size}{projection}"
