"""What an attribution is given to: the input, an embedding of it, a signal at every step, or the initial state."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ..cells import AbstractCell, Recurrent
from ..signals import DIRECTIONS
from .attribution_calls import Call, Key, Layout, packed
from .attribution_target import indices, said

Tap = Callable[..., Tensor]


class Imposed(NamedTuple):
    """What a run is to go on with: values (row, time, feature), or (row, feature) at one step of each row."""

    values: Tensor
    steps: Tensor | None
    lengths: Tensor  # of the rows


class Source(Protocol):
    """One of the four; `actual` is (sequence, time, feature), what the model itself has there."""

    actual: Tensor

    def impose(self, imposed: Imposed, call: Call, stack: ExitStack) -> "TapAt | None":
        """Arrange for a call to go on with other values; a tap where that happens inside the recurrence."""
        ...


class TapAt(NamedTuple):
    """A tap on the signals of one recurrent module."""

    module: str
    tap: Tap


class InputSource:
    """The model's own input."""

    def __init__(self, given: Tensor | PackedSequence, key: Key, layout: Layout) -> None:
        self.key, self.layout = key, layout
        first = rows_first(given, layout)
        if not first.is_floating_point():
            raise TypeError(f"the input must be decimal numbers to attribute to; {first.dtype} came.")
        self.shape = first.shape[2:]
        self.actual = first.detach().reshape(*first.shape[:2], -1)

    def impose(self, imposed: Imposed, call: Call, stack: ExitStack) -> None:
        values = imposed.values.reshape(*imposed.values.shape[:2], *self.shape)
        call.put(self.key, as_given(call.at(self.key), values, imposed.lengths, self.layout))


def rows_first(given: Tensor | PackedSequence, layout: Layout) -> Tensor:
    if isinstance(given, PackedSequence):
        return pad_packed_sequence(given, batch_first=True)[0]
    return given if layout.batch_first else given.transpose(0, 1)


def as_given(like: Tensor | PackedSequence, values: Tensor, lengths: Tensor, layout: Layout) -> Tensor | PackedSequence:
    """Values (row, time, ...) in the form of the argument that they replace."""
    if isinstance(like, PackedSequence):
        return packed(values, lengths)
    return values if layout.batch_first else values.transpose(0, 1)


class EmbeddingSource:
    """What an embedding makes of whole numbers."""

    def __init__(self, module: nn.Module, output: Tensor, given: Tensor | PackedSequence, layout: Layout) -> None:
        self.module, self.layout = module, layout
        own = (layout.sequences, layout.steps)
        self.form = "rows"
        if isinstance(given, PackedSequence) and output.dim() == 2:
            self.form = "packed"
            output = pad_packed_sequence(given._replace(data=output), batch_first=True)[0]
        elif tuple(output.shape[:2]) != own or (own[0] == own[1] and not layout.batch_first):
            self.form, output = "columns", output.transpose(0, 1)
        if output.dim() != 3 or tuple(output.shape[:2]) != own:
            raise ValueError(
                f"embedding must give a vector for each of {own[1]} steps of {own[0]} sequences; an output of shape "
                f"{tuple(output.shape)} came. Name another with embedding=."
            )
        self.actual = output.detach()

    def impose(self, imposed: Imposed, call: Call, stack: ExitStack) -> None:
        values = imposed.values
        if self.form == "packed":
            values = packed(values, imposed.lengths).data
        elif self.form == "columns":
            values = values.transpose(0, 1)

        def replace(module: nn.Module, args: Any, output: Any) -> Tensor:
            return values

        stack.callback(self.module.register_forward_hook(replace).remove)

    def embed(self, tokens: Tensor) -> Tensor:
        """The embedding of other whole numbers (sequence, time)."""
        with torch.no_grad():
            embedded: Tensor = self.module(tokens)
        return embedded


class SignalSource:
    """A signal of one layer and direction at every step; where it is not replaced, it follows from what came before."""

    def __init__(self, module: str, name: str, layer: int, direction: str, actual: Tensor) -> None:
        self.module, self.name, self.layer, self.direction = module, name, layer, direction
        self.actual = actual
        self.free = torch.ones(actual.shape[1:], dtype=torch.bool, device=actual.device)  # (time, unit)
        self.following = False

    def impose(self, imposed: Imposed, call: Call, stack: ExitStack) -> TapAt:
        here = (self.name, self.layer, self.direction)

        def tap(name: str, value: Tensor, /, *, layer: int, direction: str, time: Any) -> Tensor:
            return self.replaced(value, imposed, time) if (name, layer, direction) == here else value

        return TapAt(self.module, tap)

    def replaced(self, value: Tensor, imposed: Imposed, time: Any) -> Tensor:
        """What the recurrence goes on with; `time` is one number, or one for each row."""
        if imposed.steps is not None:
            now = (imposed.steps.to(value.device) == torch.as_tensor(time, device=value.device)).unsqueeze(-1)
            if not bool(now.any()):
                return value
            return torch.where(now & self.free.any(0), imposed.values, value)
        free = self.free[time]
        if not bool(free.any()):
            return value
        rows = torch.arange(len(value), device=value.device) if isinstance(time, Tensor) else slice(None)
        given = imposed.values[rows, time]
        if self.following:  # the value is what it is; the gradient is that of all that follows from it
            return value + torch.where(free, given - given.detach(), 0.0)
        return torch.where(free, given, value)


class StateSource:
    """The state before the first step: all layers, directions and states side by side, at one step of its own."""

    def __init__(self, part: nn.Module, cell: AbstractCell, rows: int, directions: int, actual: Tensor) -> None:
        self.part, self.sizes, self.names, self.rows = part, cell.state_sizes, cell.states, rows
        self.directions = directions
        self.choice: dict[str, list[int]] = {}
        self.actual = actual

    @classmethod
    def of(
        cls, part: nn.Module, cells: list[list[AbstractCell]], given: Any, sequences: int, like: Tensor
    ) -> "StateSource":
        """The state that the model starts from: given, or zeros."""
        cell, directions = cells[0][0], len(cells[0])
        rows = len(cells) * directions
        source = cls(part, cell, rows, directions, like.new_zeros(sequences, 1, rows * sum(cell.state_sizes)))
        if given is not None:
            source.actual = source.flat(given, sequences, "the initial state")
        return source

    def flat(self, state: Any, sequences: int, what: str = "baseline") -> Tensor:
        """A state in the module's own form as (sequence, 1, feature)."""
        entries = (state,) if isinstance(state, Tensor) else tuple(state) if isinstance(state, (tuple, list)) else ()
        layers = isinstance(self.part, (nn.RNNBase, Recurrent))
        shapes = [(self.rows, sequences, size) if layers else (sequences, size) for size in self.sizes]
        came = [tuple(entry.shape) for entry in entries if isinstance(entry, Tensor)]
        if came != shapes or len(came) != len(entries):
            raise ValueError(
                f"{what} must be a number or a state in the module's own form, of shapes {shapes}; "
                f"{came or type(state).__name__} came."
            )
        rows = [entry.transpose(0, 1) if layers else entry.unsqueeze(1) for entry in entries]
        return torch.cat(rows, -1).detach().to(self.actual).flatten(1).unsqueeze(1)

    def chosen(self, layer: int | None, direction: str | None, unit: Any) -> list[int]:
        """Places in the row of all states of what was asked for; `choice` remembers it by dimension."""
        directions = list(DIRECTIONS[: self.directions])
        if direction is not None and direction not in directions:
            raise ValueError(f"direction must be one of {', '.join(directions)}; {said(direction)} came.")
        self.choice = {
            "layer": indices("layer", layer, self.rows // self.directions),
            "direction": [*range(len(directions))] if direction is None else [directions.index(direction)],
            "unit": indices("unit", unit, max(self.sizes)),
        }
        starts = [sum(self.sizes[:place]) for place in range(len(self.sizes))]
        return [
            (layer * self.directions + direction) * sum(self.sizes) + start + unit
            for layer in self.choice["layer"]
            for direction in self.choice["direction"]
            for start, size in zip(starts, self.sizes, strict=True)
            for unit in self.choice["unit"]
            if unit < size
        ]

    def impose(self, imposed: Imposed, call: Call, stack: ExitStack) -> None:
        entries = imposed.values[:, 0].unflatten(1, (self.rows, -1)).split(self.sizes, -1)
        stack_of_layers = isinstance(self.part, (nn.RNNBase, Recurrent))
        state = tuple(e.transpose(0, 1).contiguous() if stack_of_layers else e[:, 0] for e in entries)
        given: Any = state if len(state) > 1 or isinstance(self.part, AbstractCell) else state[0]
        begun: list[bool] = []

        def begin(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if begun:
                return None
            begun.append(True)
            return (args[0], given, *args[2:]), {key: value for key, value in kwargs.items() if key != "hx"}

        stack.callback(self.part.register_forward_pre_hook(begin, with_kwargs=True).remove)
