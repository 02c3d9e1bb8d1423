"""How many events fall on marked steps, against all circular shifts of the events within each sequence at once."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.fft import irfft, rfft
from scipy.stats import genpareto, pearson3

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

MOST_VALUES = 4096  # sums that are told apart; beyond, they are put on a coarser scale, or three moments are used
MANY = 30  # sequences from which on three moments stand for the whole distribution where it has too many values
FEW_SHIFTS = 10  # p above so many shifts is counted; below, it comes from a fitted tail
TAIL = 0.1  # share of the shifted sums that the tail is fitted to
HEAVIEST = 0.5  # largest shape of a fitted tail; the least is 0, an exponential one
WELL_RESOLVED = 1e-12  # p below which no tail is needed


class Hits(NamedTuple):
    """Hits of each train: found, expected by the shifts, z and p; each (train,)."""

    found: Numbers
    expected: Numbers
    z: Numbers
    p: Numbers


def shifted_hits(trains: npt.NDArray[np.floating], marked: npt.NDArray[np.bool_]) -> Numbers:
    """Hits of trains (train, step) on marked steps under every circular shift (train, shift), the first of none.

    >>> shifted_hits(np.array([[1.0, 0, 1, 0]]), np.array([True, False, True, False]))
    array([[2., 0., 2., 0.]])
    """
    steps = trains.shape[1]
    spectrum = np.conj(rfft(trains.astype(np.float64), axis=1)) * rfft(marked.astype(np.float64))
    return np.asarray(np.rint(irfft(spectrum, n=steps, axis=1)), dtype=np.float64)


class HitNull:
    """Sum over sequences of the hits, each sequence's train turned by a uniform shift of its own.

    The shifts of different sequences are independent, so the distribution of the sum is the convolution of theirs:
    it is exact, without a random draw, and with several sequences it reaches far below 1 / steps. Sums with too many
    values for that are put on a coarser scale with the same mean or, in many sequences, described by three cumulants,
    which add, as a Pearson type III distribution.
    """

    def __init__(self, trains: int, most: npt.NDArray[np.generic]) -> None:
        """`most` is the largest number of hits in each sequence."""
        whole = float(most.sum())
        self.by_moments = whole > MOST_VALUES and np.count_nonzero(most) >= MANY
        self.scale = 1.0 if self.by_moments else max(1.0, np.ceil(whole / MOST_VALUES))
        self.found, self.mean, self.var, self.third = (np.zeros(trains) for _ in range(4))
        self.whole, self.others = np.ones((trains, 1)), np.ones((trains, 1))
        self.log_shifts = np.zeros(trains)

    def add(self, trains: npt.NDArray[np.floating], marked: npt.NDArray[np.bool_]) -> None:
        """Take in one sequence's trains (train, step) and its marked steps."""
        there = np.flatnonzero(trains.any(axis=1))
        if not (there.size and marked.any()):
            return
        hits = shifted_hits(trains[there], marked)
        self.found[there] += hits[:, 0]
        mean = hits.mean(axis=1)
        away = hits - mean[:, None]
        self.mean[there] += mean
        squares = np.square(away)
        self.var[there] += squares.mean(axis=1)
        self.third[there] += np.einsum("ij,ij->i", squares, away) / hits.shape[1]
        if self.by_moments:
            return
        self.log_shifts[there] += np.where(away.any(axis=1), np.log(hits.shape[1]), 0.0)
        self.whole = _convolved(self.whole, _shares(hits, self.scale), there)
        if self.log_shifts[there].min(initial=np.inf) < -np.log(WELL_RESOLVED):
            self.others = _convolved(self.others, _shares(hits[:, min(1, hits.shape[1] - 1) :], self.scale), there)

    def result(self) -> Hits:
        """p is the probability of at least as many hits; NaN for trains whose hits no shift changes."""
        spread = np.sqrt(self.var)
        z = np.divide(self.found - self.mean, spread, out=np.full(spread.shape, np.nan), where=spread > 1e-9)
        if self.by_moments:
            skew = np.divide(self.third, spread**3, out=np.zeros(spread.shape), where=spread > 1e-9)
            p = pearson3.sf(np.nan_to_num(z), np.maximum(skew, 0.0))
        else:
            p = self._counted()
        return Hits(self.found, self.mean, z, np.where(np.isnan(z), np.nan, np.clip(p, 1e-300, 1.0)))

    def _counted(self) -> Numbers:
        place = np.floor(self.found / self.scale).astype(np.int64)
        beyond = self.found / self.scale - place
        p = (1 - beyond) * _at_least(self.whole, place) + beyond * _at_least(self.whole, place + 1)
        coarse = (p < FEW_SHIFTS * np.exp(-self.log_shifts) * (1 + 1e-9)) & (p > WELL_RESOLVED)
        some = np.flatnonzero(coarse & (self.var > 0))
        if some.size:
            p[some] = fitted_tail(self.others[some], place[some])
        return p


def fitted_tail(shares: Numbers, place: Places) -> Numbers:
    """Probability of `place` or more under distributions (train, value), from a tail fitted to their largest values.

    A generalized Pareto distribution has the mean and variance of the upper tenth (by moments; a shape below 0, which
    would end the tail, is taken as 0), as for few permutations in Knijnenburg et al. (2009).
    """
    above = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1]  # of each value or more
    values = np.arange(shares.shape[1])
    edge = np.minimum((above > TAIL).sum(axis=1), values.size - 1)
    edge = np.where(above[np.arange(len(edge)), edge] > 1e-15, edge, np.maximum(edge - 1, 0))
    inside = np.where(values >= edge[:, None], shares, 0.0)
    part = inside.sum(axis=1)
    excess = values - edge[:, None] + 0.5
    mean = (inside * excess).sum(axis=1) / part
    var = np.maximum((inside * excess**2).sum(axis=1) / part - mean**2, 1e-12)
    shape = np.clip((1 - mean**2 / var) / 2, 0.0, HEAVIEST - 0.01)
    tail = part * genpareto.sf(place - edge, shape, scale=mean * (1 - shape))
    return np.where(place >= edge, tail, _at_least(shares, place))


def _at_least(shares: Numbers, place: Places) -> Numbers:
    values = np.arange(shares.shape[1])
    return np.asarray(np.where(values >= place[:, None], shares, 0.0).sum(axis=1))


def _shares(hits: Numbers, scale: float) -> Numbers:
    """How often each number of hits (train, shift) occurs, as shares (train, value); between two values it is split."""
    trains, shifts = hits.shape
    place = hits / scale
    lower = np.floor(place).astype(np.int64)
    width = int(lower.max(initial=0)) + (1 if scale == 1 else 2)
    rows = np.arange(trains)[:, None] * width
    found = np.bincount((rows + lower).ravel(), (1 - (place - lower)).ravel(), minlength=trains * width)
    if scale != 1:
        found += np.bincount((rows + lower + 1).ravel(), (place - lower).ravel(), minlength=trains * width)
    return np.asarray(found.reshape(trains, width) / max(1, shifts))


def _convolved(sums: Numbers, shares: Numbers, there: Places) -> Numbers:
    """The distribution of the sum with one more sequence, for the trains that have events in it."""
    width = sums.shape[1]
    result = np.zeros((len(sums), width + shares.shape[1] - 1))
    result[:, :width] = sums
    result[there] = 0.0
    before = sums[there]
    part = np.zeros((there.size, result.shape[1]))
    for value, share in enumerate(shares.T):
        if share.any():
            part[:, value : value + width] += share[:, None] * before
    result[there] = part
    return result
