"""Mutual information between values in classes of equal size and a label, less what shifted labels give."""

import numpy as np
import numpy.typing as npt
from scipy import stats

from .runs import Numbers

BINS = 8
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
    steps = len(label)
    width = int(codes.max(initial=0)) + 1
    places = np.unique(np.linspace(0, steps, shifts + 2)[1:-1].astype(int))
    places = places[(places > 0) & (places < steps)]
    rows = codes + width * np.arange(codes.shape[1])
    found = _information(rows, label, width)
    if not places.size:
        return np.zeros_like(found), found, np.ones_like(found)
    chance = np.array([_information(rows, np.roll(label, place), width) for place in places])
    reached = (chance >= found * (1 - 1e-9)).sum(axis=0)
    return found - chance.mean(axis=0), chance.mean(axis=0), (1 + reached) / (1 + len(places))


def _information(rows: Codes, label: Codes, width: int) -> Numbers:
    units, classes = rows.shape[1], int(label.max(initial=0)) + 1
    counts = np.bincount((rows * classes + label[:, None]).ravel(), minlength=units * width * classes)
    joint = counts.reshape(units, width, classes) / len(label)
    apart = joint.sum(axis=2, keepdims=True) * joint.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = joint * np.log2(joint / apart)
    return np.asarray(np.where(joint > 0, terms, 0.0).sum(axis=(1, 2)))
