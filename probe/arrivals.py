"""Gradients that arrive at the ends of a call in a backward pass, carried back through its layers and steps."""

import warnings
from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import register_multi_grad_hook

from ..cells import AbstractCell
from .calls import Call
from .dispatch import unseen
from .find import State
from .gradients import Run, through_time
from .rebuild import Rebuilt, rounded, rounding, uncast

GRADIENT = "_gradient"


def await_gradients(call: Call, cells: list[list[AbstractCell]], rebuilt: Rebuilt) -> Any | None:
    """Keep the true gradients of a call's states among its signals when a backward pass reaches it.

    Returns the handle that ends the waiting, or `None` where no gradient can come (nothing requires one).
    """
    tensors = [tensor for tensor in call.ends.tensors if tensor.requires_grad]
    if not tensors:
        return None
    arrivals = Arrivals(call, cells, rebuilt)
    return register_multi_grad_hook(tensors, arrivals.take, mode="all")


class Arrivals:
    """All that a call's gradients need, kept from changes after the call."""

    def __init__(self, call: Call, cells: list[list[AbstractCell]], rebuilt: Rebuilt) -> None:
        own = rounding(call.layers[-1].hidden)
        self.exact = torch.float64 if own == torch.float64 else torch.float32
        self.cells = [[frozen(rounded(cell, own, self.exact)) for cell in layer] for layer in cells]
        self.layers = [
            (self.kept(layer.input), self.kept(layer.hidden), None if layer.mask is None else self.kept(layer.mask))
            for layer in call.layers
        ]
        self.initial = tuple(self.kept(state) for state in call.initial)
        self.rebuilt = rebuilt
        self.wanted = [tensor.requires_grad for tensor in call.ends.tensors]
        self.shapes = [(tensor.shape, tensor.device) for tensor in call.ends.tensors]
        self.ends = call.ends._replace(tensors=())
        self.differentiable = False  # a backward pass has built a graph of itself
        self.real: Tensor | None = None
        if call.lengths is not None:
            hidden = self.layers[-1][1]
            steps = torch.arange(len(hidden), device=hidden.device)
            self.real = (steps[:, None] < call.lengths.to(hidden.device)).unsqueeze(-1)

    def kept(self, tensor: Tensor) -> Tensor:
        return tensor.detach().to(self.exact, copy=True)

    def take(self, grads: Sequence[Tensor | None]) -> None:
        """Carry what has arrived through all layers, from the top down; several backward passes add up."""
        if self.differentiable and not self.ends.total:
            self.give_up()
            return
        self.differentiable = torch.is_grad_enabled()
        unseen(lambda: self.carry(grads))

    def carry(self, grads: Sequence[Tensor | None]) -> None:
        with uncast(self.shapes[0][1]):
            coming = iter(grads)
            arrived = [next(coming) if wanted else None for wanted in self.wanted]
            full = tuple(
                torch.zeros(shape, device=device, dtype=self.exact) if grad is None else grad.detach().to(self.exact)
                for grad, (shape, device) in zip(arrived, self.shapes, strict=True)
            )
            partial, final = self.ends.arrange(full)
            if self.ends.total:
                for name, values in zip(self.cells[0][0].states, (partial, *final[1:]), strict=True):
                    self.keep(name, 0, 0, values.reshape(partial.shape[0], *values.shape[-2:]))
                return
            for index in range(len(self.layers) - 1, -1, -1):
                partial = self.layer(index, partial, final)

    def give_up(self) -> None:
        """A second derivative also reaches the states inside a fused kernel, where nothing arrives to be seen."""
        for name in [name for name in self.rebuilt.signals if name.endswith(GRADIENT)]:
            self.rebuilt.signals[name].fill_(torch.nan)
        warnings.warn(
            "gradients=True needs backward passes of the first order; one came after create_graph=True, and the "
            "gradients of its calls are recorded as NaN. Use cells in a loop, or record in another block.",
            RuntimeWarning,
            stacklevel=2,
        )

    def layer(self, index: int, partial: Tensor, final: State) -> Tensor:
        """The gradient at what the layer below shows, summed over directions, through the dropout between them."""
        read, hidden, mask = self.layers[index]
        below = torch.zeros_like(read)
        for direction, cell in enumerate(self.cells[index]):
            slot = index * len(self.cells[index]) + direction
            own = slice(direction * cell.output_size, (direction + 1) * cell.output_size)
            initial = tuple(state[slot] for state in self.initial)
            run = self.run(cell, direction == 1, read, hidden[..., own], partial[..., own], initial)
            found = through_time(run._replace(final=tuple(state[slot] for state in final)))
            for name, values in zip(cell.states, found.states, strict=True):
                self.keep(name, index, direction, values.flip(0) if direction else values)
            below += found.input.flip(0) if direction else found.input
        return below if mask is None else below * mask

    def run(
        self, cell: AbstractCell, backward: bool, read: Tensor, hidden: Tensor, partial: Tensor, initial: State
    ) -> Run:
        """One direction in the order in which it was computed."""
        real = self.real
        if real is not None:
            hidden, partial = torch.where(real, hidden, initial[0]), torch.where(real, partial, 0.0)
        if backward:
            read, hidden, partial = read.flip(0), hidden.flip(0), partial.flip(0)
            real = None if real is None else real.flip(0)
        before = torch.cat([initial[0].unsqueeze(0), hidden[:-1]])
        return Run(cell, read, before, initial[1:], real, partial, ())

    def keep(self, name: str, layer: int, direction: int, values: Tensor) -> None:
        signals, name = self.rebuilt.signals, name + GRADIENT
        if name not in signals:
            stack = (len(self.cells), len(self.cells[0]))
            signals[name] = torch.zeros(*stack, *values.shape, dtype=values.dtype)
        signals[name][layer, direction] += values.cpu()


def frozen(cell: AbstractCell) -> AbstractCell:
    """The cell with the weights that it has now, whatever it is given later."""
    twin = copy(cell)
    twin.__dict__["_parameters"] = {
        name: None if weight is None else weight.detach() for name, weight in cell._parameters.items()
    }
    return twin
