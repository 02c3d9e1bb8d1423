"""Running sums that a stream of steps is folded into: what they say is what the whole stream would have said.

Every class starts `empty`, takes values of one layer and direction with `add(at, ...)`, takes in another with `merge`,
and never keeps a step. Arrays are (layer, direction, unit), sums are float64, and spreads are gathered around means
(Chan, Golub and LeVeque 1983), so that a large mean takes no digits from a small variance.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from .analyzers.tally import Counts, Numbers, Place, per_step


@dataclass
class Scatter:
    """Mean and covariance over the units of one layer and direction; steps that are not finite in all are left out."""

    steps: Counts  # (layer, direction)
    mean: Numbers  # (layer, direction, unit)
    products: Numbers  # (layer, direction, unit, unit), of differences from the mean

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Self:
        return cls(np.zeros(shape[:2], np.int64), np.zeros(shape), np.zeros((*shape, shape[-1])))

    def add(self, at: Place, values: Numbers) -> None:
        """Take values (step, unit).

        >>> scatter = Scatter.empty((1, 1, 2))
        >>> scatter.add((0, 0), np.array([[1.0, 4.0], [3.0, 0.0]]))
        >>> scatter.add((0, 0), np.array([[2.0, 2.0]]))
        >>> scatter.mean[0, 0], scatter.covariance[0, 0].tolist()
        (array([2., 2.]), [[1.0, -2.0], [-2.0, 4.0]])
        """
        usable = np.isfinite(values).all(1)
        values = values if usable.all() else values[usable]
        if len(values):
            mean = values.mean(0)
            apart = values - mean
            self._join(at, len(values), mean, apart.T @ apart)

    def merge(self, other: Self) -> None:
        for at in np.ndindex(*self.steps.shape):
            if other.steps[at]:
                self._join(at, int(other.steps[at]), other.mean[at], other.products[at])

    def _join(self, at: tuple[int, ...], steps: int, mean: Numbers, products: Numbers) -> None:
        before = int(self.steps[at])
        step = mean - self.mean[at]
        self.products[at] += products
        self.products[at] += np.outer(step, step) * (before * steps / (before + steps))
        self.mean[at] += step * (steps / (before + steps))
        self.steps[at] = before + steps

    @property
    def mean_or_nan(self) -> Numbers:
        return np.where(self.steps[..., None] > 0, self.mean, np.nan)

    @property
    def covariance(self) -> Numbers:
        """Sums of products over steps - 1; NaN below two steps."""
        free = np.where(self.steps > 1, self.steps - 1.0, np.nan)
        return np.asarray(self.products / free[..., None, None])


@dataclass
class Slope:
    """Least-squares line through (step, value) of every unit; values that are not finite are left out."""

    steps: Counts
    mean_step: Numbers
    mean: Numbers
    step_step: Numbers  # sums of products of differences from the means
    step_value: Numbers
    value_value: Numbers

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Self:
        return cls(np.zeros(shape, np.int64), *(np.zeros(shape) for _ in range(5)))

    def add(self, at: Place, steps: Numbers, values: Numbers) -> None:
        """Take values (step, unit) at steps (step,).

        >>> slope = Slope.empty((1, 1, 1))
        >>> slope.add((0, 0), np.array([0.0, 1.0]), np.array([[1.0], [3.0]]))
        >>> slope.add((0, 0), np.array([2.0]), np.array([[5.0]]))
        >>> slope.slope.item(), slope.standard_error.item()
        (2.0, 0.0)
        """
        finite = np.isfinite(values)
        if finite.all():
            self._add_all(at, steps, values)
            return
        for unit in range(values.shape[1]):
            keep = finite[:, unit]
            self._add_all((*at, slice(unit, unit + 1)), steps[keep], values[keep, unit : unit + 1])

    def _add_all(self, at: tuple[int | slice, ...], steps: Numbers, values: Numbers) -> None:
        if not len(steps):
            return
        mean_step, mean = steps.mean(), values.mean(0)
        away, apart = steps - mean_step, values - mean
        squares = np.einsum("su,su->u", apart, apart)
        self._join(at, np.full(mean.shape, len(steps)), mean_step, mean, away @ away, away @ apart, squares)

    def merge(self, other: Self) -> None:
        sums = (other.mean_step, other.mean, other.step_step, other.step_value, other.value_value)
        self._join((), other.steps, *sums)

    def _join(
        self,
        at: tuple[int | slice, ...],
        steps: Counts,
        mean_step: Numbers,
        mean: Numbers,
        step_step: Numbers,
        step_value: Numbers,
        value_value: Numbers,
    ) -> None:
        before = self.steps[at]
        share = steps / np.maximum(before + steps, 1)
        away, apart = mean_step - self.mean_step[at], mean - self.mean[at]
        self.step_step[at] += step_step + away * away * before * share
        self.step_value[at] += step_value + away * apart * before * share
        self.value_value[at] += value_value + apart * apart * before * share
        self.mean_step[at] += away * share
        self.mean[at] += apart * share
        self.steps[at] += steps

    @property
    def slope(self) -> Numbers:
        """Per step; NaN where there are no two different steps."""
        return _divided(self.step_value, self.step_step)

    @property
    def standard_error(self) -> Numbers:
        """Of the slope, for residuals that do not depend on each other; NaN below three steps."""
        unexplained = np.maximum(self.value_value - self.slope * self.step_value, 0.0)
        return np.sqrt(_divided(_divided(unexplained, np.maximum(self.steps - 2.0, 0.0)), self.step_step))


@dataclass
class Keeping:
    """What multiplies the memory: its sum, the sum of its log where it is above 0, and how often it is exactly 0."""

    steps: Counts
    total: Numbers
    log_total: Numbers
    zeros: Counts

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Self:
        return cls(np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape), np.zeros(shape, np.int64))

    def add(self, at: Place, values: Numbers) -> None:
        """Take values (step, unit).

        >>> keeping = Keeping.empty((1, 1, 1))
        >>> keeping.add((0, 0), np.array([[0.5], [0.5], [0.0]]))
        >>> keeping.zeros.item(), round(keeping.mean.item(), 3), round(keeping.timescale.item(), 3)
        (1, 0.333, 1.443)
        """
        finite = np.isfinite(values)
        above = finite & (values > 0)
        self.steps[at] += finite.sum(0)
        self.zeros[at] += (values == 0).sum(0)
        self.total[at] += values.sum(0, where=finite)
        self.log_total[at] += np.log(values, out=np.zeros(values.shape), where=above).sum(0)

    def merge(self, other: Self) -> None:
        self.steps += other.steps
        self.zeros += other.zeros
        self.total += other.total
        self.log_total += other.log_total

    @property
    def mean(self) -> Numbers:
        return per_step(self.total, self.steps)

    @property
    def mean_log(self) -> Numbers:
        """Over the steps on which the retention is above 0; NaN where there is none."""
        return per_step(self.log_total, self.steps - self.zeros)

    @property
    def timescale(self) -> Numbers:
        """Steps after which 1/e is left; infinite where nothing is lost."""
        return as_timescale(self.mean_log)


def as_timescale(mean_log: Numbers) -> Numbers:
    """-1 / mean log retention; infinite from 0 on.

    >>> as_timescale(np.array([-0.5, 0.0, np.nan]))
    array([ 2., inf, nan])
    """
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(mean_log >= 0, np.inf, -1 / np.where(mean_log >= 0, 1.0, mean_log)))


def _divided(above: Numbers, below: Numbers) -> Numbers:
    return np.asarray(np.divide(above, below, out=np.full(np.shape(above), np.nan), where=np.asarray(below) > 0))
