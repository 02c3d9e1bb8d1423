"""Cells that are called once per step: torch's and our own."""

from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from ..cells import AbstractCell
from .calls import Call, Ends, Layer, Observed, are_tensors, argument, as_tuple, bind, settled, shadow, zeros
from .dispatch import CELL_KERNELS, Kernel
from .find import State


class Single(Observed):
    """A cell called once per step; its calls join into sequences."""

    def call(self, input: Tensor, state: State | None, new: State) -> Call:
        if not are_tensors(input, *(state or ()), *new):
            name = type(self.module).__name__
            raise TypeError(
                f"{self.path!r} must be called as (input, state) and answer the new state; its class {name} does "
                f"otherwise. Say how to read its calls: gatescope.register({name}, as_cell, read=...)."
            )
        rows = [tensor.reshape(1, -1, tensor.shape[-1]) for tensor in new]
        old = zeros(tuple(rows)) if state is None else tuple(t.reshape(1, -1, t.shape[-1]) for t in state)
        layer = Layer(input.reshape(1, -1, input.shape[-1]), rows[0])
        shapes = [row.shape for row in rows]

        def arrange(arrived: State) -> tuple[Tensor, State]:
            shown, *others = (tensor.reshape(shape) for tensor, shape in zip(arrived, shapes, strict=True))
            return shown, (torch.zeros_like(shown), *others)

        apart = len({tensor.grad_fn for tensor in new}) == len(new)  # a fused cell computes all states at one node
        ends = Ends(new, arrange, total=apart)
        return Call([layer], old, tuple(rows), state is not None, None, tuple(rows[1:]), ends)


class TorchCell(Single):
    """nn.LSTMCell, nn.GRUCell, nn.RNNCell and their subclasses."""

    module: nn.RNNCellBase
    runs_kernels = True

    def __init__(self, path: str, module: nn.RNNCellBase) -> None:
        super().__init__(path, module)
        self.shadow = shadow(module, module.input_size)

    def cells(self) -> list[list[AbstractCell]]:
        names = [name for name, weight in self.shadow._parameters.items() if weight is not None]
        if self.used is None:
            module = settled(self.module)
            used = [getattr(module, name) for name in names]
        else:
            used = self.used
        bind(self.shadow, dict(zip(names, used, strict=True)))
        return [[self.shadow]]

    @property
    def kind(self) -> AbstractCell:
        return self.shadow

    def fits(self, kernel: Kernel) -> bool:
        return kernel.name in CELL_KERNELS

    def runs(self, kernel: Kernel) -> bool:
        own = self.module._parameters.get("weight_hh")
        return kernel.name in CELL_KERNELS and own is kernel.weights[1]

    @property
    def plain(self) -> bool:
        torchs = (nn.LSTMCell.forward, nn.GRUCell.forward, nn.RNNCell.forward)
        return type(self.module).forward in torchs and "forward" not in vars(self.module)

    def read_kernel(self, kernel: Kernel, order: Tensor | None) -> Call:
        state = as_tuple(kernel.state)
        given = any(bool(tensor.any()) for tensor in state)
        return self.call(kernel.input, state, as_tuple(kernel.output))._replace(given=given)

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, random: Tensor | None) -> Call:
        state = argument(args, kwargs, 1, "hx")
        return self.call(
            argument(args, kwargs, 0, "input"), None if state is None else as_tuple(state), as_tuple(output)
        )


class OpenCell(Single):
    """One of our own cells, called by the user's loop."""

    module: AbstractCell

    def cells(self) -> list[list[AbstractCell]]:
        cell = settled(self.module)
        if "forward" in vars(cell):  # it runs openly, and what is rebuilt must not be taken for a call
            cell = copy(cell)
            del vars(cell)["forward"]
        return [[cell]]

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, random: Tensor | None) -> Call:
        return self.call(argument(args, kwargs, 0, "x"), as_tuple(argument(args, kwargs, 1, "state")), output)
