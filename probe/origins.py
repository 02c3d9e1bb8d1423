"""From a registered module's weights to those of the cell that stands for it, so that gradients go the way back."""

from collections.abc import Callable
from copy import copy, deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..cells import AbstractCell
from .foreign import built_without_trace

EXACT = 2**24
"""Up to here float32 counts, so that a weight's number survives what `as_cell` does with it."""


class Origin(NamedTuple):
    """Where the numbers of a weight come from: `sign * (all of the module's numbers)[where] + constant`."""

    where: Tensor
    sign: Tensor
    constant: Tensor


class Origins:
    """How a cell's weights follow from its module's: in shared memory, or laid out anew by `as_cell`.

    Where `as_cell` orders, joins, splits, negates or shifts the weights, which is found by giving it numbered ones, the
    cell gets them through operations that gradients pass. What it computes otherwise is taken as it is.
    """

    def __init__(self, as_cell: Callable[[Any], AbstractCell], module: nn.Module) -> None:
        self.as_cell, self.module = as_cell, module
        self.found: dict[str, Origin] | None = None

    def cell(self, built: AbstractCell) -> AbstractCell:
        """The cell with weights through which gradients reach the module's own."""
        shared = {place(tensor): tensor for tensor in (*self.module.parameters(), *self.module.buffers())}
        weights = {name: None if w is None else shared.get(place(w), w) for name, w in built._parameters.items()}
        alone = [name for name, w in weights.items() if w is not None and place(w) not in shared]
        if alone and torch.is_grad_enabled() and any(weight.requires_grad for weight in self.module.parameters()):
            weights |= self.laid_out(built, alone)
        twin = copy(built)
        twin.__dict__["_parameters"] = weights
        return twin

    def laid_out(self, built: AbstractCell, names: list[str]) -> dict[str, Any]:
        """Those of the weights named of which it is known where they come from, made of the module's own."""
        if self.found is None:
            self.found = self.look(built)
        known = {name: self.found[name] for name in names if name in self.found}
        if not known:
            return {}
        flat = torch.cat([weight.flatten() for weight in self.module.parameters()])
        return {name: flat[at.where] * at.sign.to(flat) + at.constant.to(flat) for name, at in known.items()}

    def look(self, built: AbstractCell) -> dict[str, Origin]:
        """The weights that `as_cell` lays out anew; checked with random numbers and with the real ones."""
        sizes = [weight.numel() for weight in self.module.parameters()]
        total = sum(sizes)
        if total >= EXACT:
            return {}
        try:
            twin = deepcopy(self.module)
            draws = torch.Generator().manual_seed(0)
            zero, numbered, drawn = (
                torch.zeros(total),
                torch.arange(1.0, total + 1),
                torch.randn(total, generator=draws),
            )
            from_zero, from_numbers, from_draws = (self.built_of(twin, flat) for flat in (zero, numbered, drawn))
        except (RuntimeError, TypeError, ValueError):
            return {}
        real = torch.cat([weight.detach().flatten().cpu() for weight in self.module.parameters()])
        found = {}
        for name, constant in from_zero.items():
            moved = from_numbers[name] - constant
            number = moved.abs().round().long().clamp(max=total)
            index, sign = (number - 1).clamp(min=0), moved.sign()
            tries = ((drawn, from_draws[name]), (real, weights_of(built)[name]))
            if all(torch.allclose(flat.double()[index] * sign + constant, truth, 1e-5, 1e-6) for flat, truth in tries):
                device = next(self.module.parameters()).device
                found[name] = Origin(index.to(device), sign.to(device), constant.to(device))
        return found

    def built_of(self, twin: nn.Module, flat: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            start = 0
            for weight in twin.parameters():
                weight.copy_(flat[start : start + weight.numel()].view_as(weight))
                start += weight.numel()
        return {name: weight.clone() for name, weight in weights_of(built_without_trace(self.as_cell, twin)).items()}


def weights_of(cell: AbstractCell) -> dict[str, Tensor]:
    return {name: weight.detach().double().cpu() for name, weight in cell._parameters.items() if weight is not None}


def place(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype
