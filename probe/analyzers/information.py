"""Mutual information between values in classes of equal size and a label, less what shifted labels give."""

import numpy as np
import numpy.typing as npt
from scipy import stats

from .runs import Numbers

BINS = 8
AT_ONCE = 2**16  # steps of units whose counts are taken together: what the processor's cache holds
MOST_UNITS = 32
Codes = npt.NDArray[np.int64]


def quantile_codes(values: Numbers, bins: int = BINS) -> Codes:
    """The class, 0 to bins - 1, of every value (step, unit): classes of equal size per unit; equal values share one.

    >>> quantile_codes(np.array([[3.0], [1.0], [2.0], [4.0]]), bins=2).ravel().tolist()
    [1, 0, 0, 1]
    """
    return rank_codes(stats.rankdata(values, method="average", axis=0), bins)


def rank_codes(ranks: Numbers, bins: int = BINS) -> Codes:
    """The same from ranks, 1 to the number of steps, of which equal values share the mean."""
    return np.asarray(np.minimum((ranks - 0.5) * bins / len(ranks), bins - 1), dtype=np.int64)


def mutual_information(codes: Codes, label: Codes, shifts: int) -> tuple[Numbers, Numbers, Numbers]:
    """Mutual information (unit) of codes (step, unit) with a label (step), in bits, less its chance level.

    `I = sum p(x, y) log2(p(x, y) / (p(x) p(y)))`, with shares of steps for p. It is never below 0 and so
    biased; its mean over `shifts` evenly spaced circular shifts of the label is that bias.

    Returns
    -------
    tuple
        The information less its chance level, the chance level, and p: one plus the number of shifts with at least as
        much, over one plus the number of shifts.
    """
    steps, units = codes.shape
    width, classes = int(codes.max(initial=0)) + 1, int(label.max(initial=0)) + 1
    places = np.unique(np.linspace(0, steps, shifts + 2)[1:-1].astype(int))
    places = places[(places > 0) & (places < steps)]
    every = np.empty((1 + len(places), units))
    twice = np.concatenate([label, label])
    some = max(1, min(AT_ONCE // max(1, steps), MOST_UNITS))
    for first in range(0, units, some):
        cells = np.ascontiguousarray(codes[:, first : first + some].T) * classes
        cells += width * classes * np.arange(len(cells))[:, None]
        counts = np.empty((1 + len(places), len(cells), width, classes))
        keys = np.empty_like(cells)
        for row, place in enumerate([0, *places]):
            np.add(cells, twice[steps - place : 2 * steps - place], out=keys)
            counts[row] = np.bincount(keys.ravel(), minlength=counts[row].size).reshape(counts[row].shape)
        every[:, first : first + some] = _information(counts / max(1, steps))
    found, chance = every[0], every[1:]
    if not places.size:
        return np.zeros_like(found), found, np.ones_like(found)
    reached = (chance >= found * (1 - 1e-9)).sum(axis=0)
    return found - chance.mean(axis=0), chance.mean(axis=0), (1 + reached) / (1 + len(places))


def _information(joint: Numbers) -> Numbers:
    """Of shares (..., class of the value, class of the label)."""
    apart = joint.sum(axis=-1, keepdims=True) * joint.sum(axis=-2, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = joint * np.log2(joint / apart)
    return np.asarray(np.where(joint > 0, terms, 0.0).sum(axis=(-2, -1)))
