"""Counting a stream of values into fixed bins, and the falls of a signal from high to low."""

from dataclasses import dataclass, field
from typing import Self

import numpy as np
import numpy.typing as npt

from .analyzers.tally import Counts, Numbers, Place

BINS = 50
"""Equal parts of a bounded signal's range."""
MAGNITUDES = np.concatenate([[0.0], 10.0 ** (np.arange(-24, 25) / 4)])
"""Lower ends of the magnitude bins of an unbounded signal: below 1e-6, four to every power of ten, from 1e6 on."""
SIGNS = (-1, 1)

Signs = npt.NDArray[np.int8]


@dataclass
class Histogram:
    """Counts (layer, direction, unit, bin) over a signal's range; values beyond an end lie in the bin at that end."""

    bounds: tuple[float, float]
    counts: Counts

    @classmethod
    def empty(cls, shape: tuple[int, ...], bounds: tuple[float, float]) -> Self:
        return cls(bounds, np.zeros((*shape, BINS), np.int64))

    def add(self, at: Place, values: Numbers) -> None:
        """Take values (step, unit); what is not finite counts for nothing.

        >>> histogram = Histogram.empty((1, 1, 1), (-1.0, 1.0))
        >>> histogram.add((0, 0), np.array([[-1.0], [0.0], [0.01], [1.0]]))
        >>> [(place, count) for place, count in enumerate(histogram.counts[0, 0, 0].tolist()) if count]
        [(0, 1), (25, 2), (49, 1)]
        """
        lower, upper = self.bounds
        place = np.floor((values.astype(np.float64) - lower) * (BINS / (upper - lower)))
        self.counts[at] += counted(place.clip(0, BINS - 1), np.isfinite(values), BINS)

    def merge(self, other: Self) -> None:
        self.counts += other.counts


@dataclass
class Magnitudes:
    """Counts (layer, direction, unit, sign, magnitude) of a signal without bounds; 0 lies at sign 1."""

    counts: Counts

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Self:
        return cls(np.zeros((*shape, len(SIGNS), len(MAGNITUDES)), np.int64))

    def add(self, at: Place, values: Numbers) -> None:
        """Take values (step, unit); what is not finite counts for nothing.

        >>> magnitudes = Magnitudes.empty((1, 1, 1))
        >>> magnitudes.add((0, 0), np.array([[0.0], [-2.0], [1e9]]))
        >>> counts = magnitudes.counts[0, 0, 0]
        >>> counts[0, MAGNITUDES.searchsorted(2.0) - 1].item(), counts[1, 0].item(), counts[1, -1].item()
        (1, 1, 1)
        """
        place = MAGNITUDES.searchsorted(np.abs(values), side="right") - 1
        place = place + len(MAGNITUDES) * (values >= 0)
        found = counted(place, np.isfinite(values), len(SIGNS) * len(MAGNITUDES))
        self.counts[at] += found.reshape(-1, len(SIGNS), len(MAGNITUDES))

    def merge(self, other: Self) -> None:
        self.counts += other.counts


def counted(place: npt.NDArray[np.generic], usable: npt.NDArray[np.bool_], bins: int) -> Counts:
    """How often each bin (unit, bin) is named in `place` (step, unit)."""
    units = place.shape[1]
    flat = (np.where(usable, place, 0).astype(np.int64) + bins * np.arange(units))[usable]
    return np.bincount(flat, minlength=units * bins).reshape(units, bins)


@dataclass
class Falls:
    """How often a signal falls from above `high` to below `low`, however long it takes, within a sequence.

    Between the two it counts as where it came from, so that wavering around one of them counts once. Where a sequence
    stands (1 above, -1 below, 0 neither so far) is kept until the sequence goes on.
    """

    low: float
    high: float
    counts: Counts  # (layer, direction, unit)
    standing: dict[int, Signs] = field(default_factory=dict)  # sequence -> (layer, direction, unit)

    @classmethod
    def empty(cls, shape: tuple[int, ...], low: float, high: float) -> Self:
        return cls(low, high, np.zeros(shape, np.int64))

    def stand(self, sequences: npt.NDArray[np.int64]) -> Signs:
        """Where sequences stand, (layer, direction, sequence, unit)."""
        nowhere = np.zeros(self.counts.shape, np.int8)
        found = [self.standing.get(sequence, nowhere) for sequence in sequences.tolist()]
        return np.stack(found, 2) if found else np.zeros((*self.counts.shape[:2], 0, self.counts.shape[2]), np.int8)

    def keep(self, sequences: npt.NDArray[np.int64], standing: Signs) -> None:
        for row, sequence in enumerate(sequences.tolist()):
            self.standing[sequence] = standing[:, :, row].copy()

    def add(self, at: Place, values: Numbers, standing: Signs) -> None:
        """Take values (time, sequence, unit) in the order of computation; `standing` (sequence, unit) is brought on.

        >>> falls = Falls.empty((1, 1, 1), low=0.1, high=0.9)
        >>> standing = np.zeros((1, 1), np.int8)
        >>> falls.add((0, 0), np.array([0.95, 0.5, 0.05, 0.2, 0.05, 0.95]).reshape(-1, 1, 1), standing)
        >>> falls.add((0, 0), np.array([0.5, 0.05]).reshape(-1, 1, 1), standing)
        >>> falls.counts.item(), standing.item()
        (2, -1)
        """
        marks = np.empty((len(values) + 1, *values.shape[1:]), np.int8)
        marks[0] = standing
        np.subtract(values > self.high, values < self.low, out=marks[1:], dtype=np.int8)
        last = np.where(marks != 0, np.arange(len(marks), dtype=np.int32)[:, None, None], 0)
        np.maximum.accumulate(last, axis=0, out=last)
        before = np.take_along_axis(marks, last[:-1], 0)
        self.counts[at] += ((marks[1:] < 0) & (before > 0)).sum((0, 1))
        standing[...] = np.take_along_axis(marks, last[-1:], 0)[0]

    def forget(self, going_on: set[int]) -> None:
        """Keep where only those sequences stand that may still go on."""
        self.standing = {sequence: signs for sequence, signs in self.standing.items() if sequence in going_on}

    def merge(self, other: Self) -> None:
        """Counts of other sequences; theirs do not go on here."""
        self.counts += other.counts
