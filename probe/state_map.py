"""One step of a recurrent module under a constant input, as a map of its whole state onto itself."""

from copy import deepcopy
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..cells import AbstractCell, Recurrent, from_torch
from ..signals import DIRECTIONS
from .calls import settled
from .find import choose_one, registration
from .observe import observe
from .stacks import TorchStack
from .step_jacobian import blocks

Array = npt.NDArray[Any]


class Entry(NamedTuple):
    """Where a stretch of the joined state comes from."""

    signal: str
    layer: int
    width: int


class StateMap:
    """`F(x)`: all states of some layers after one step, x being those before it, joined layer by layer.

    The layers are one direction of a module. A layer above reads what the layer below shows after the same step, as it
    does in the running network. The cells are copies on the CPU in float64: the model is never touched.
    """

    def __init__(self, cells: list[AbstractCell], layers: list[int], input: Array) -> None:
        self.cells, self.layers = [exact(cell) for cell in cells], layers
        self.input = torch.from_numpy(np.asarray(input, np.float64))
        self.entries = [
            Entry(name, layer, width)
            for cell, layer in zip(self.cells, layers, strict=True)
            for name, width in zip(cell.states, cell.state_sizes, strict=True)
        ]

    @property
    def size(self) -> int:
        return sum(entry.width for entry in self.entries)

    def step(self, state: Tensor) -> Tensor:
        """F of each row of (row, state)."""
        shown, parts = self.input.expand(*state.shape[:-1], -1), list(state.split([e.width for e in self.entries], -1))
        after: list[Tensor] = []
        for cell in self.cells:
            before, parts = tuple(parts[: len(cell.states)]), parts[len(cell.states) :]
            new = cell.forward(shown, before)
            shown = new[0]
            after += new
        return torch.cat(after, -1)

    def jacobian(self, state: Tensor) -> Tensor:
        """(row, target, source): dF/dx at each row, by reverse mode for all targets at once."""
        size, units = self.size, sum(cell.hidden_size for cell in self.cells)
        found = state.new_empty(len(state), size, size)
        for rows in blocks(len(state), size, units, state.element_size()):
            found[rows] = differentiated(self.step, state[rows])
        return found


def differentiated(step: Any, state: Tensor) -> Tensor:
    _, pull = torch.func.vjp(step, state)[:2]
    size = state.shape[-1]
    targets = torch.eye(size, dtype=state.dtype)[:, None].expand(-1, len(state), -1)
    pulled: Any = torch.func.vmap(pull)(targets)
    result: Tensor = pulled[0]
    return result.transpose(0, 1)


def exact(cell: AbstractCell) -> AbstractCell:
    """A copy on the CPU in float64 that asks for no gradients."""
    twin = deepcopy(cell).to(device="cpu", dtype=torch.float64).eval()
    return twin.requires_grad_(False)


class Chosen(NamedTuple):
    """One direction of some layers of a module."""

    path: str
    cells: list[AbstractCell]
    layers: list[int]
    direction: str


def chosen_layers(model: nn.Module, module: str | None, layer: int | None, direction: str | None) -> Chosen:
    """The layers whose states are one map, by what the caller named; a sentence where there is none."""
    path, part = choose_one(model, module)
    cells = cells_of(path, part)
    names = list(DIRECTIONS[: len(cells[0])])
    if direction is not None and direction not in names:
        raise ValueError(f"direction must be one of {names} of {path!r}; {direction!r} came.")
    if isinstance(layer, bool) or not (layer is None or isinstance(layer, (int, np.integer))):
        raise TypeError(f"layer must be a whole number or None; {layer!r} came. Give for instance 0.")
    if layer is not None and not 0 <= layer < len(cells):
        raise ValueError(f"layer must lie between 0 and {len(cells) - 1} in {path!r}; {layer} came.")
    if len(names) > 1:
        if direction is None:
            raise ValueError(
                f"direction must be named where a module reads both ways, as {path!r} does: each way is a map of its "
                "own; none came. Give 'forward' or 'backward'."
            )
        if layer is None and len(cells) > 1:
            raise ValueError(
                f"layer must be named where a module with {len(cells)} layers reads both ways, as {path!r} does: a "
                "layer above reads the other direction's future, so that all layers together are no map of a state "
                "onto the next; none came. Give layer=0, or a layer above with the constant input that comes to it."
            )
    layers = list(range(len(cells))) if layer is None else [int(layer)]
    direction = names[0] if direction is None else direction
    return Chosen(path, [cells[index][names.index(direction)] for index in layers], layers, direction)


def cells_of(path: str, part: nn.Module) -> list[list[AbstractCell]]:
    """[layer][direction], with the weights that the module has now, also where they are computed from others."""
    if "forward" in vars(part):
        raise TypeError(
            f"{path!r} must step as its class does; its forward has been replaced, as gatescope.opened and "
            "gatescope.intervene do, and what replaces it would not be seen. Ask outside of the block."
        )
    observed = observe(path, part)
    if registration(part) is not None or not isinstance(part, (nn.RNNBase, nn.RNNCellBase)):
        return observed.cells()
    if isinstance(observed, TorchStack) and not observed.plain:
        raise TypeError(
            f"{path!r} must step as torch's own modules do; its class {type(part).__name__} has a forward of its own. "
            "Let it hold the recurrent module instead of inheriting from it."
        )
    twin = from_torch(settled(part))
    return twin.cells if isinstance(twin, Recurrent) else [[twin]]


def constant_input(input: Any, width: int, where: str) -> Array:
    """The input of every step, (feature,); one number stands for all features."""
    values = input.detach().cpu().numpy() if isinstance(input, Tensor) else np.asarray(input)
    if values.dtype.kind not in "fiub":
        raise TypeError(f"input must be numbers; {values.dtype} came. Give an array of {width} numbers, or 0.0.")
    if values.shape not in ((), (width,)):
        raise ValueError(
            f"input must be one vector of {width} numbers, constant over time, as wide as what {where} reads, or one "
            f"number for all; shape {values.shape} came. Give for instance 0.0."
        )
    whole = np.broadcast_to(values.astype(np.float64), (width,)).copy()
    if not all(map(isfinite, whole.tolist())):
        raise ValueError(f"input must be finite; {whole[~np.isfinite(whole)][0]} came. Give finite numbers.")
    return whole
