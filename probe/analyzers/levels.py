"""Each unit's own levels: where its retention usually lies, what counts as a fall of it, how far its memory spreads."""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Values = npt.NDArray[np.floating]

FURTHEST, PER_LOGIT = 9.0, 4  # logits are counted between these ends, in so many bins each
EDGES = np.linspace(-FURTHEST, FURTHEST, int(2 * FURTHEST * PER_LOGIT) + 1)
CENTRES = (EDGES[:-1] + EDGES[1:]) / 2
NARROWEST = 0.125  # logits, the least standard deviation of a group of steps
EVEN = 0.35  # least ratio of the standard deviations of the two groups: a spike within one is no group of its own
GAIN = 0.02  # nats per step by which two levels must describe a unit better than one
FALL = 3.0  # without two levels: so many upper half-spreads below the median
LEAST_SPREAD = 1 / 3  # of the logit
RETURN, LEAST_RETURN = 0.25, 0.5  # a fall ends this share of the way back up, and at least so many logits


class Levels(NamedTuple):
    """Retention below which a unit has fallen, from which it has risen again, and where it usually is; each (unit,)."""

    low: Numbers
    high: Numbers
    usual: Numbers


@dataclass
class LevelCount:
    """How often a unit's retention lies where on the logit scale: counts (unit, bin)."""

    counts: Counts

    @classmethod
    def empty(cls, units: int) -> Self:
        return cls(np.zeros((units, CENTRES.size), dtype=np.int64))

    def add(self, keep: Values, at: slice = slice(None)) -> None:
        """Count a retention (..., unit) of some of the units; what is not finite counts for nothing."""
        flat = keep.reshape(-1, keep.shape[-1])
        units = flat.shape[1]
        inside = np.clip(flat, 1e-4, 1 - 1e-4)  # beyond the ends of the bins
        place = np.log(inside / (1 - inside))
        place += FURTHEST
        place *= PER_LOGIT
        there = np.isfinite(place)
        bins = np.where(there, place, 0).astype(np.int32)
        np.clip(bins, 0, CENTRES.size - 1, out=bins)
        bins += np.arange(units, dtype=np.int32) * CENTRES.size
        found = np.bincount(bins[there], minlength=units * CENTRES.size)
        self.counts[at] += found.reshape(units, CENTRES.size)


@dataclass
class Moments:
    """Finite values, their mean and their squared distance from it, each (unit,)."""

    steps: Counts
    mean: Numbers
    squares: Numbers

    @classmethod
    def empty(cls, units: int) -> Self:
        return cls(np.zeros(units, dtype=np.int64), np.zeros(units), np.zeros(units))

    def add(self, values: Values, at: slice = slice(None)) -> None:
        """Take in values (..., unit) of some of the units, by the update of Chan, Golub and LeVeque.

        >>> moments = Moments.empty(1)
        >>> moments.add(np.array([[1.0], [np.nan]]))
        >>> moments.add(np.array([[3.0]]))
        >>> moments.mean.item(), moments.spread.item()
        (2.0, 1.0)
        """
        over = tuple(range(values.ndim - 1))
        there = np.isfinite(values)
        steps = there.sum(over)
        sums = values.sum(over, dtype=np.float64, where=there)
        mean = np.divide(sums, steps, out=np.zeros(sums.shape), where=steps > 0)
        away = np.subtract(values, mean, out=np.zeros(values.shape), where=there)
        squares = np.square(away, out=away).sum(over)
        total = np.maximum(self.steps[at] + steps, 1)
        apart = mean - self.mean[at]
        self.squares[at] += squares + apart**2 * self.steps[at] * steps / total
        self.mean[at] += apart * steps / total
        self.steps[at] += steps

    @property
    def spread(self) -> Numbers:
        """Standard deviation, NaN where nothing was counted."""
        empty = np.full(self.steps.shape, np.nan)
        return np.asarray(np.sqrt(np.divide(self.squares, self.steps, out=empty, where=self.steps > 0)))


def adaptive_levels(counts: Counts) -> Levels:
    """Levels of every unit from where its retention lies, counts (unit, bin) on the logit scale.

    Where two groups of steps describe the unit better than one (minimum error threshold, Kittler and Illingworth 1986,
    doi 10.1016/0031-3203(86)90030-0, with no group less than 0.35 times as wide as the other), a fall goes below the
    value between them. Elsewhere it goes below the median by three upper half-spreads (the distance from the median to
    the 84th percentile, which rare falls do not widen, and at least 1/3 of a logit). It ends a quarter of the way back
    up to the upper group's mean, or the median, and at least half a logit above.

    >>> counts = np.zeros((1, CENTRES.size), dtype=np.int64)
    >>> counts[0, [32, 56]] = 10, 90                                # logits -0.875 and 5.125
    >>> low, high, usual = (float(level[0]) for level in adaptive_levels(counts))
    >>> 0.29 < low < high < usual < 0.995
    True
    """
    total = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    share = counts / total
    below = np.cumsum(share, axis=1)
    median, upper = _quantile(below, 0.5), _quantile(below, 0.8413)
    spread = np.maximum(upper - median, LEAST_SPREAD)
    split, above, two = _two_groups(share, below)
    low = np.where(two, split, median - FALL * spread)
    high = low + np.maximum(RETURN * (np.where(two, above, median) - low), LEAST_RETURN)
    levels = (1 / (1 + np.exp(-value)) for value in (low, high, median))
    nothing = counts.sum(axis=1) == 0
    return Levels(*(np.where(nothing, np.nan, level) for level in levels))


def _quantile(below: Numbers, part: float) -> Numbers:
    """Logit below which this part of the steps lies, by interpolation within a bin."""
    place = np.minimum((below < part).sum(axis=1), CENTRES.size - 1)
    rows = np.arange(len(below))
    before = np.where(place > 0, below[rows, place - 1], 0.0)
    inside = np.maximum(below[rows, place] - before, 1e-12)
    return np.asarray(EDGES[place] + np.clip((part - before) / inside, 0, 1) / PER_LOGIT)


def _two_groups(share: Numbers, below: Numbers) -> tuple[Numbers, Numbers, npt.NDArray[np.bool_]]:
    """Value between two groups, the upper one's mean, and whether two are better than one and the lower is smaller."""
    floor = NARROWEST**2
    first, second = np.cumsum(share * CENTRES, axis=1), np.cumsum(share * CENTRES**2, axis=1)
    lower = np.clip(below[:, :-1], 1e-9, 1)
    upper = np.clip(1 - below[:, :-1], 1e-9, 1)
    lower_mean = first[:, :-1] / lower
    upper_mean = (first[:, -1:] - first[:, :-1]) / upper
    lower_var = np.maximum(second[:, :-1] / lower - lower_mean**2, floor)
    upper_var = np.maximum((second[:, -1:] - second[:, :-1]) / upper - upper_mean**2, floor)
    lower_var = np.maximum(lower_var, EVEN**2 * upper_var)
    upper_var = np.maximum(upper_var, EVEN**2 * lower_var)
    cost = lower * np.log(lower_var) + upper * np.log(upper_var) - 2 * (lower * np.log(lower) + upper * np.log(upper))
    cost[(below[:, :-1] <= 0) | (below[:, :-1] > 0.5)] = np.inf
    best = cost.argmin(axis=1)
    rows = np.arange(len(share))
    one = np.log(np.maximum(second[:, -1] - first[:, -1] ** 2, floor))
    split = _middle_of_gap(share, best)
    return split, upper_mean[rows, best], one - cost[rows, best] >= GAIN


def _middle_of_gap(share: Numbers, best: npt.NDArray[np.intp]) -> Numbers:
    """Middle of the empty bins around the edge after bin `best`; that edge itself where there are none."""
    bins = np.arange(CENTRES.size)
    full = share > 0
    before = np.where(full & (bins <= best[:, None]), bins, -1).max(axis=1)
    after = np.where(full & (bins > best[:, None]), bins, CENTRES.size).min(axis=1)
    between = (EDGES[before + 1] + EDGES[np.minimum(after, CENTRES.size)]) / 2
    return np.asarray(np.where((before >= 0) & (after < CENTRES.size), between, EDGES[best + 1]))
