"""Events under each label against those under the others: counts, and how they scatter when trains are turned."""

import numpy as np
import numpy.typing as npt
from scipy.fft import rfft
from scipy.special import betainc
from scipy.stats import norm

from .trains import Trains

Numbers = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


class LabelCounts:
    """Events of each unit under each label, and their covariance over all circular shifts, summed over sequences.

    A unit's events are turned within each sequence by a uniform shift of its own. With E the spectrum of the events
    and A, B those of the steps with labels a and b, the covariance of the events under a and b over the n shifts is
    the sum over f > 0 of |E|^2 A conj(B) / n^2. It knows how events and labels follow each other in time.
    """

    def __init__(self, units: int, labels: int) -> None:
        self.events, self.expected = np.zeros((units, labels)), np.zeros((units, labels))
        self.covariance = np.zeros((units, labels, labels))
        self.steps = np.zeros(labels)

    def add(self, train: npt.NDArray[np.floating], codes: Codes) -> None:
        """Take in one sequence: trains (unit, step) and the label of each step, -1 where it has none."""
        labels = self.steps.size
        flags = codes == np.arange(labels)[:, None]
        self.steps += flags.sum(axis=1)
        there = np.flatnonzero(train.any(axis=1))
        if not there.size:
            return
        n = train.shape[1]
        found = train[there].astype(np.float64)
        self.events[there] += found @ flags.T
        self.expected[there] += found.sum(axis=1, keepdims=True) * flags.sum(axis=1) / n
        power = np.square(np.abs(rfft(found, axis=1)[:, 1:]))
        power *= np.where(np.arange(1, power.shape[1] + 1) * 2 == n, 1.0, 2.0) / n**2
        used = np.flatnonzero(flags.any(axis=1))
        spectra = rfft(flags[used].astype(np.float64), axis=1)[:, 1:]
        for place, label in enumerate(used):
            products = (spectra[place] * np.conj(spectra)).real  # (label, frequency)
            self.covariance[there[:, None], label, used] += power @ products.T


def label_counts(trains: Trains, at: tuple[int, int], codes: Codes, labels: int, *, pooled: bool) -> LabelCounts:
    """Count one layer and direction over all sequences; `pooled` adds up the trains of all its units."""
    counts = LabelCounts(1 if pooled else trains.units, labels)
    for sequence in range(trains.shape[2]):
        train = trains.dense(*at, sequence)
        here = codes[sequence, trains.times(at[1], sequence)]
        counts.add(train.sum(axis=0, keepdims=True) if pooled else train, here)
    return counts


def more_than_others(counts: LabelCounts, tested: int, *, rare: bool) -> Numbers:
    """p (unit, label) that one of the first `tested` labels has no more events per step than any other of them.

    It is the largest p of a label's rate against each other one's, so it is small only if the label stands out from
    all (intersection-union test). Each of those is the larger one of two: that of the difference of the rates by its
    variance over the shifts, and (with `rare`) the exact one of two Poisson counts (Przyborowski and Wilenski 1940).
    """
    events, steps = counts.events[:, :tested], counts.steps[:tested]
    covariance = counts.covariance[:, :tested, :tested]
    beyond = (events - counts.expected[:, :tested]) / steps
    own = np.einsum("uaa->ua", covariance)
    p = np.full(events.shape, np.nan)
    for label in range(tested if tested > 1 else 0):
        others = np.arange(tested) != label
        var = own[:, [label]] / steps[label] ** 2 + own / steps**2
        var -= 2 * covariance[:, label] / (steps[label] * steps)
        found = by_spread(beyond[:, [label]] - beyond, var)
        if rare:
            found = np.maximum(found, two_counts(events[:, [label]], steps[label], events, steps))
        p[:, label] = found[:, others].max(axis=1)
    p[counts.events.sum(axis=1) == 0] = np.nan
    return p


def more_than_rest(counts: LabelCounts, member: npt.NDArray[np.bool_], *, rare: bool) -> Numbers:
    """p (unit, group) that the steps of a group of labels (group, label) have no more events than all others do."""
    inside = member.astype(np.float64)
    steps, left = inside @ counts.steps, (1 - inside) @ counts.steps
    there = (steps > 0) & (left > 0)
    weights = inside / np.maximum(steps, 1)[:, None] - (1 - inside) / np.maximum(left, 1)[:, None]
    difference = (counts.events - counts.expected) @ weights.T
    variance = np.einsum("ga,uab,gb->ug", weights, counts.covariance, weights, optimize=True)
    p = by_spread(difference, variance)
    if rare:
        events = counts.events @ inside.T
        rest = counts.events.sum(axis=1, keepdims=True) - events
        p = np.maximum(p, two_counts(events, np.maximum(steps, 1), rest, np.maximum(left, 1)))
    p[counts.events.sum(axis=1) == 0] = np.nan
    return np.where(there, p, np.nan)


def by_spread(difference: Numbers, variance: Numbers) -> Numbers:
    """One-sided p of a difference with mean 0 and this variance; without variance, 1."""
    there = variance > 1e-18
    z = np.divide(difference, np.sqrt(np.where(there, variance, 1.0)))
    return np.where(there, norm.sf(z), 1.0)


def two_counts(many: Numbers, steps: Numbers, few: Numbers, others: Numbers) -> Numbers:
    """Probability that the first of two Poisson counts in so many steps is so large, given their sum, at equal rates.

    >>> float(two_counts(np.array(3.0), np.array(10.0), np.array(0.0), np.array(10.0)))
    0.125
    """
    share = steps / (steps + others)
    there = many > 0
    return np.where(there, betainc(np.where(there, many, 1.0), few + 1, share), 1.0)


def information(events: Numbers, steps: Numbers) -> Numbers:
    """Mutual information (unit) of an event and the label of its step, in bits, less its bias (Miller and Madow).

    >>> information(np.array([[4.0, 0.0]]), np.array([4.0, 4.0])).round(2)
    array([0.91])
    """
    total = steps.sum()
    joint = np.stack([events, steps - events], axis=1) / total
    by_event = joint.sum(axis=2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = joint * np.log2(joint / (by_event * (steps / total)))
    found = np.where(joint > 0, terms, 0.0).sum(axis=(1, 2))
    return np.asarray(found - (np.count_nonzero(steps) - 1) / (2 * total * np.log(2)))
