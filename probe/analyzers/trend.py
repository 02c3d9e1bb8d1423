"""What one pass over the runs gathers for `drift`: a slope per unit, the leading rhythm, the limit, the ranges."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy import stats

from .correction import corrected
from .runs import Numbers

Flags = npt.NDArray[np.bool_]

BLOCKS = 16  # stretches into which the late part of a sequence is cut
FEWEST = 4  # late steps below which a sequence says nothing of a trend
LOWEST_CYCLES = 3  # slower rhythms than so many cycles in the late part cannot be told from a trend


@dataclass
class Trend:
    """Sums for one slope per unit (layer, direction, unit), with a level of its own for each sequence."""

    xx: Numbers  # of centred block times and block means, and of each with its neighbour
    xy: Numbers
    yy: Numbers
    next_xx: Numbers
    next_xy: Numbers
    next_yy: Numbers
    freedom: Numbers
    steps: Numbers
    total: Numbers
    sequences: Numbers
    rhythm: Numbers
    frequency: Numbers
    weight: Numbers

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Self:
        return cls(*(np.zeros(shape) for _ in range(13)))

    def add(self, at: tuple[int, int], values: Numbers, good: Flags, late: float) -> None:
        """Take in one run (step, unit); units that are not `good` count for nothing."""
        part = values[len(values) - int(np.ceil(late * len(values))) :]
        if len(part) < FEWEST:
            return
        edges = np.linspace(0, len(part), min(BLOCKS, len(part)) + 1).astype(int)
        x = (edges[:-1] + edges[1:] - 1) / 2
        x = (x - x.mean())[:, None]
        means = np.add.reduceat(np.abs(part), edges[:-1], axis=0) / np.diff(edges)[:, None]
        y = means - means.mean(axis=0)
        self.xx[at] += good * (x * x).sum()
        self.xy[at] += good * (x * y).sum(axis=0)
        self.yy[at] += good * (y * y).sum(axis=0)
        self.next_xx[at] += good * (x[1:] * x[:-1]).sum()
        self.next_xy[at] += good * (x[1:] * y[:-1] + x[:-1] * y[1:]).sum(axis=0)
        self.next_yy[at] += good * (y[1:] * y[:-1]).sum(axis=0)
        self.freedom[at] += good * (len(x) - 1)
        self.steps[at] += good * len(part)
        self.total[at] += good * np.abs(part).sum(axis=0)
        self.sequences[at] += good
        self._rhythm(at, part, good)

    def _rhythm(self, at: tuple[int, int], part: Numbers, good: Flags) -> None:
        """Share of the power at the leading frequency and its neighbours, runs weighted by length."""
        if len(part) < 4 * LOWEST_CYCLES:
            return
        time = np.arange(len(part)) - (len(part) - 1) / 2
        flat = part - part.mean(axis=0) - np.outer(time, (time @ part) / (time @ time))
        power = np.abs(np.fft.rfft(flat, axis=0)) ** 2
        power[0] = 0.0
        whole = power.sum(axis=0)
        lead = LOWEST_CYCLES + np.argmax(power[LOWEST_CYCLES:], axis=0)
        around = np.clip(lead + np.array([[-1], [0], [1]]), 0, len(power) - 1)
        near = np.take_along_axis(power, around, axis=0)
        near[2, lead == len(power) - 1] = 0.0  # the clipped neighbour is the leading one again
        flatness = whole <= np.square(np.finfo(np.float32).eps * np.abs(part).max(axis=0)) * len(part) ** 2
        share = np.where(flatness, 0.0, near.sum(axis=0) / np.where(whole > 0, whole, 1.0))
        self.rhythm[at] += good * share * len(part)
        self.frequency[at] += good * lead  # cycles
        self.weight[at] += good * len(part)

    def conclude(self, confidence: float) -> dict[str, Numbers]:
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = self.xy / self.xx
            rest = np.maximum(self.yy - slope * self.xy, 0.0)
            neighbours = self.next_yy - slope * self.next_xy + slope**2 * self.next_xx
            exact = rest <= 1e-24 * np.maximum(self.yy, np.finfo(float).tiny)
            r = np.where(exact, 0.0, np.clip(neighbours / rest, 0.0, 0.95))
            freedom = np.maximum((self.freedom - 1) * (1 - r) / (1 + r), 1.0)
            error = np.sqrt(rest / np.maximum(self.freedom - 1, 1) / self.xx * (1 + r) / (1 - r))
            t = np.where(error > 0, slope / error, np.where(slope == 0, 0.0, np.inf * np.sign(slope)))
            level, length = self.total / self.steps, self.steps / self.sequences
            half = stats.t.ppf((1 + confidence) / 2, freedom) * error
            growth = np.where(level > 0, slope * length / level, 0.0)
        p = np.where(np.isnan(slope), np.nan, 2 * stats.t.sf(np.abs(t), freedom))
        known = self.weight > 0
        weight = np.where(known, self.weight, 1.0)
        return {
            "slope": slope,
            "slope_low": slope - half,
            "slope_high": slope + half,
            "p": p,
            "p_corrected": corrected(p),
            "growth": np.where(self.steps > 0, growth, np.nan),
            "level": level,
            "rhythm": np.where(known, self.rhythm / weight, np.nan),
            "period": np.where(known & (self.frequency > 0), weight / np.maximum(self.frequency, 1), np.nan),
        }


@dataclass
class Ranges:
    """Means of retention and writing, and the largest memory within and beyond the trained length."""

    keep: Numbers
    write: Numbers
    steps: Numbers
    within: Numbers
    beyond: Numbers

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Self:
        return cls(np.zeros(shape), np.zeros(shape), np.zeros(shape), np.full(shape, np.nan), np.full(shape, np.nan))

    def add(
        self, at: tuple[int, int], values: Numbers, keep: Numbers | float | None, good: Flags, trained: int
    ) -> None:
        if keep is not None and len(values) > 1:
            factor = np.broadcast_to(np.asarray(keep), values.shape)[1:]
            values = np.where(good, values, 0.0)
            self.keep[at] += np.where(good, factor.sum(axis=0), 0.0)
            self.write[at] += np.where(good, (values[1:] - np.where(good, factor, 0.0) * values[:-1]).sum(axis=0), 0.0)
            self.steps[at] += good * (len(values) - 1)
        if trained:
            for kept, part in ((self.within, values[:trained]), (self.beyond, values[trained:])):
                if len(part):
                    kept[at] = np.fmax(kept[at], np.where(good, np.abs(part).max(axis=0), np.nan))

    def conclude(self) -> dict[str, Numbers]:
        there = self.steps > 0
        steps = np.where(there, self.steps, 1.0)
        keep, write = self.keep / steps, self.write / steps
        open_ended = np.where(write == 0, 0.0, np.copysign(np.inf, write))
        with np.errstate(divide="ignore", invalid="ignore"):
            limit = np.where(keep == 1, open_ended, write / (1 - keep))
        return {
            "limit": np.where(there, limit, np.nan),
            "range_trained": self.within,
            "range_beyond": self.beyond,
        }
