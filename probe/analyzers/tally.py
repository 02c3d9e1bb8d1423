"""Counting what one pass over a signal finds for every unit, block by block."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Place = tuple[int, int]  # layer, direction


@dataclass
class Tally:
    """Finite steps, those beyond either edge, and sum, lowest and highest value, each (layer, direction, unit)."""

    edges: tuple[float, float]
    steps: Counts
    left: Counts
    right: Counts
    total: Numbers
    lowest: Numbers
    highest: Numbers

    @classmethod
    def empty(cls, shape: tuple[int, ...], edges: tuple[float, float] = (-np.inf, np.inf)) -> Self:
        steps, left, right = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        return cls(edges, steps, left, right, np.zeros(shape), np.full(shape, np.inf), np.full(shape, -np.inf))

    def add(self, at: Place, values: npt.NDArray[np.floating]) -> None:
        """Count values (..., unit) of one layer and direction; what is not finite counts for nothing.

        >>> tally = Tally.empty((1, 1, 1), edges=(0.1, 0.9))
        >>> tally.add((0, 0), np.array([[0.05], [0.5], [np.nan]]))
        >>> tally.steps.item(), tally.left.item(), tally.right.item(), tally.highest.item()
        (2, 1, 0, 0.5)
        """
        if values.dtype.kind != "f":
            values = values.astype(np.float64)
        over = tuple(range(values.ndim - 1))
        low_edge, high_edge = self.edges
        finite = np.isfinite(values)
        self.steps[at] += finite.sum(over)
        self.left[at] += ((values < low_edge) & finite).sum(over)
        self.right[at] += ((values > high_edge) & finite).sum(over)
        self.total[at] += values.sum(over, dtype=np.float64, where=finite)
        self.lowest[at] = np.minimum(self.lowest[at], values.min(over, where=finite, initial=np.inf))
        self.highest[at] = np.maximum(self.highest[at], values.max(over, where=finite, initial=-np.inf))

    def merge(self, other: Self) -> None:
        """Take in what another tally with the same edges has counted."""
        self.steps += other.steps
        self.left += other.left
        self.right += other.right
        self.total += other.total
        np.minimum(self.lowest, other.lowest, out=self.lowest)
        np.maximum(self.highest, other.highest, out=self.highest)

    @property
    def spread(self) -> Numbers:
        """Highest minus lowest value, NaN where nothing was counted."""
        empty = np.full(self.steps.shape, np.nan)
        return np.asarray(np.subtract(self.highest, self.lowest, out=empty, where=self.steps > 0))


def per_step(sums: npt.NDArray[np.generic], steps: Counts) -> Numbers:
    return np.asarray(np.divide(sums, steps, out=np.full(steps.shape, np.nan), where=steps > 0))
