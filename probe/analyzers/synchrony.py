"""How often units have events together, against each unit's train turned within its sequence."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.fft import rfft
from scipy.stats import gamma

from .trains import Train


class Pairs(NamedTuple):
    """Coinciding pairs of events of different units: how many, how many expected, the variance of that."""

    found: float
    expected: float
    variance: float

    def plus(self, other: "Pairs") -> "Pairs":
        return Pairs(*(mine + its for mine, its in zip(self, other, strict=True)))

    @property
    def p(self) -> float:
        """Probability of so many pairs or more, from a gamma distribution with the exact mean and variance.

        >>> Pairs(10.0, 10.0, 0.0).p, Pairs(60.0, 10.0, 9.0).p < 1e-6
        (nan, True)
        """
        if not (self.variance > 0 and self.expected > 0):
            return float("nan")
        scale = self.variance / self.expected
        return float(gamma.sf(self.found, self.expected / scale, scale=scale))

    @property
    def z(self) -> float:
        return float((self.found - self.expected) / np.sqrt(self.variance)) if self.variance > 0 else float("nan")


NONE = Pairs(0.0, 0.0, 0.0)


def coinciding_pairs(train: Train) -> Pairs:
    """Pairs of events at one step in trains (unit, step), and what independent turns of each train would give.

    Turned by independent uniform shifts, two trains with a and b events in n steps coincide a b / n times on average;
    the variance over the shifts follows from their spectra A and B as sum over f > 0 of |A|^2 |B|^2 / n^2 (Parseval).
    Shifts of different pairs are pairwise independent, so that means and variances add: nothing is drawn at random.

    >>> coinciding_pairs(np.array([[1, 0, 0, 0], [1, 0, 0, 0]], dtype=np.float32))
    Pairs(found=1.0, expected=0.25, variance=0.1875)
    """
    events = train.sum(axis=1, dtype=np.float64)
    steps = train.shape[1]
    if steps < 2 or np.count_nonzero(events) < 2:
        return NONE
    together = train.sum(axis=0, dtype=np.float64)
    found = (np.square(together) - together).sum() / 2
    expected = (events.sum() ** 2 - np.square(events).sum()) / (2 * steps)
    power = np.abs(rfft(train[events > 0], axis=1)[:, 1:].astype(np.complex128)) ** 2
    twice = np.full(power.shape[1], 2.0)  # a real train's spectrum: every frequency but the highest of an even n
    if steps % 2 == 0:
        twice[-1] = 1.0
    both = power.sum(axis=0) ** 2 - np.square(power).sum(axis=0)
    return Pairs(float(found), float(expected), float((twice * both).sum() / (2 * steps**2)))


def member_of(blocks: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The blocks in order, and for each unit the place of its block among them."""
    names, member = np.unique(blocks, return_inverse=True)
    return names, member
