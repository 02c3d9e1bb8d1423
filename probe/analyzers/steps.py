"""Steps that can be multiplied with: from the left (rows back in time) and from the right (columns forward)."""

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .jacobian import Array, Factors

Places = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]
Parts = tuple[Array, ...]
"""Per state: rows (product, row, width of the state), or columns (product, width of the state, column)."""


class Steps(Protocol):
    """All step Jacobians of some sequences, in the order in which a direction reads."""

    @property
    def states(self) -> tuple[str, ...]: ...

    @property
    def widths(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def pull(self, rows: Parts, at: Places) -> Parts:
        """Rows times the Jacobian of the step at each product's (sequence, time)."""

    def push(self, columns: Parts, at: Places) -> Parts:
        """That Jacobian times columns."""

    def total(self, rows: Parts, at: Places) -> Array | None:
        """Rows times what a change of the cell state changes in its step, `[dh/dc; 1]`; `None` for one state."""


class FactoredSteps:
    """Steps from a cell's factors; nothing here is as large as a matrix per step."""

    def __init__(self, factors: Factors) -> None:
        self.factors = factors
        self.states, self.widths, self.dtype = factors.states, factors.widths, factors.rows.dtype
        self._kept, self._exposed = factors.kept(), factors.exposed()
        weight = factors.weight if factors.read_weight is None else [*factors.weight, factors.read_weight]
        self._weight = np.ascontiguousarray(weight, dtype=self.dtype).reshape(-1, self.widths[0])
        self._space: dict[str, Array] = {}

    def pull(self, rows: Parts, at: Places) -> Parts:
        factors = self.factors
        memory = self._into_memory(rows, at)
        products, count, units = memory.shape
        gates = len(factors.paths) + (factors.read is not None)
        scaled = self._workspace("scaled", (products, count, gates, units))
        np.multiply(memory[:, :, None], taken(factors.rows, at)[:, None], out=scaled[:, :, : len(factors.paths)])
        if factors.read is not None:
            np.multiply(self._unprojected(rows[0]), taken(factors.read, at)[:, None], out=scaled[:, :, -1])
        hidden = (scaled.reshape(products * count, -1) @ self._weight).reshape(products, count, -1)
        for chain in factors.chains:
            through = (memory * taken(chain.rows, at)[:, None]) @ chain.outer * taken(chain.inner, at)[:, None]
            hidden += through if chain.weight is None else through @ chain.weight
        if factors.shown is None:
            if self._kept is not None:
                hidden += memory * taken(self._kept, at)[:, None]
            return (hidden,)
        kept = np.zeros_like(memory) if self._kept is None else memory * taken(self._kept, at)[:, None]
        return hidden, kept

    def push(self, columns: Parts, at: Places) -> Parts:
        factors, hidden = self.factors, columns[0]
        units, gates = factors.rows.shape[-1], len(factors.paths)
        net = (self._weight @ hidden).reshape(len(hidden), -1, units, hidden.shape[-1])
        memory = (taken(factors.rows, at)[..., None] * net[:, :gates]).sum(axis=1)
        for chain in factors.chains:
            through = hidden if chain.weight is None else chain.weight @ hidden
            memory += taken(chain.rows, at)[..., None] * (chain.outer @ (taken(chain.inner, at)[..., None] * through))
        if self._kept is not None:
            memory += taken(self._kept, at)[..., None] * columns[-1]
        if factors.shown is None:
            return (memory,)
        exposed = self._exposed
        shown = memory if exposed is None else taken(exposed, at)[..., None] * memory
        if factors.read is not None:
            shown = shown + taken(factors.read, at)[..., None] * net[:, -1]
        return (shown if factors.projection is None else factors.projection @ shown), memory

    def total(self, rows: Parts, at: Places) -> Array | None:
        return None if self._exposed is None else self._into_memory(rows, at)

    def _into_memory(self, rows: Parts, at: Places) -> Array:
        """Rows over the memory after the step: what they see of it, and what they see of what is shown of it."""
        if self._exposed is None:
            return rows[0]
        memory = self._workspace("memory", rows[1].shape)
        np.multiply(self._unprojected(rows[0]), taken(self._exposed, at)[:, None], out=memory)
        memory += rows[1]
        return memory

    def _unprojected(self, hidden: Array) -> Array:
        return hidden if self.factors.projection is None else hidden @ self.factors.projection

    def _workspace(self, name: str, shape: tuple[int, ...]) -> Array:
        """An array that is used again in every step: fresh ones cost as much as what is computed in them."""
        if name not in self._space or self._space[name].shape != shape:
            self._space[name] = np.empty(shape, self.dtype)
        return self._space[name]


class StoredSteps:
    """Steps whose Jacobians were recorded as matrices, (sequence, time, target state, source state)."""

    def __init__(self, matrices: Array, states: tuple[str, ...], widths: tuple[int, ...]) -> None:
        self.matrices, self.states, self.widths, self.dtype = matrices, states, widths, matrices.dtype

    def pull(self, rows: Parts, at: Places) -> Parts:
        return self._split(np.concatenate(rows, axis=2) @ taken(self.matrices, at), 2)

    def push(self, columns: Parts, at: Places) -> Parts:
        return self._split(taken(self.matrices, at) @ np.concatenate(columns, axis=1), 1)

    def total(self, rows: Parts, at: Places) -> Array | None:
        return None  # what a change of c changes in h of its own step does not follow from the step's Jacobian

    def _split(self, joined: Array, axis: int) -> Parts:
        return tuple(np.split(joined, np.cumsum(self.widths)[:-1], axis=axis))


def taken(values: Array, at: Places) -> Array:
    """Values (product, ...) at each product's sequence and time; of one product without a copy."""
    sequence, time = at
    if len(sequence) == 1:
        return values[sequence[0] : sequence[0] + 1, time[0]]
    found: Array = values[sequence, time]
    return found


def matrices(steps: Steps, at: Places) -> Array:
    """The whole Jacobians at some places, (product, target state, source state); for checks and small networks."""
    total = sum(steps.widths)
    unit = np.broadcast_to(np.eye(total, dtype=steps.dtype), (len(at[0]), total, total))
    rows = tuple(np.split(unit, np.cumsum(steps.widths)[:-1], axis=2))
    return np.concatenate(steps.pull(rows, at), axis=2)
