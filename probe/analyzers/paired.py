"""Means of paired differences over sequences: their intervals and whether they could be chance."""

import numpy as np
from scipy import stats

from .runs import Numbers

FLIPS = 9999  # samples of signs, where not all are tried
TRIED = 12  # up to so many differences all signs are tried
BLOCK = 2_000_000  # numbers held at once


def mean_interval(differences: Numbers, confidence: float, samples: int, seed: int) -> tuple[Numbers, Numbers]:
    """Ends of the bootstrap interval of the mean over the last axis: (..., sequence) -> (...).

    Whole sequences are drawn again with replacement, the same for all rows. The percentiles are those of the expanded
    interval, at Phi(-t sqrt(n / (n - 1))) with Student's t of n - 1 degrees of freedom: plain percentiles are too
    narrow for few sequences (Hesterberg 2015, doi:10.1080/00031305.2015.1089789). NaN for fewer than two sequences
    and where a difference is NaN.

    >>> low, high = mean_interval(np.array([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]), 0.95, 1000, 0)
    >>> low.tolist(), high.tolist()
    ([1.0, 0.0], [1.0, 2.0])
    """
    rows = differences.reshape(-1, differences.shape[-1])
    low, high = np.full((2, len(rows)), np.nan)
    count = rows.shape[1]
    if count > 1:
        tail = expanded_tail(count, confidence)
        rng = np.random.default_rng(seed)
        weights = rng.multinomial(count, np.full(count, 1 / count), size=samples) / count
        step = max(1, BLOCK // samples)
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            means = weights @ rows[part].T
            low[part], high[part] = np.quantile(means, [tail, 1 - tail], axis=0)
    shape = differences.shape[:-1]
    return low.reshape(shape), high.reshape(shape)


def expanded_tail(count: int, confidence: float) -> float:
    """The share of bootstrap means beyond either end of an interval from so many values."""
    reach = stats.t.ppf(0.5 + confidence / 2, count - 1) * np.sqrt(count / (count - 1))
    return float(stats.norm.sf(reach))


def sign_flip_p(differences: Numbers, seed: int, *, greater: bool = False) -> Numbers:
    """p that the mean over the last axis is 0, (..., sequence) -> (...), two-sided or, with `greater`, that it is <= 0.

    If nothing was done to a sequence, its difference has either sign as easily: all signs of up to 12 differences are
    tried, of more 9999 samples of them (Fisher's randomization test), the same for all rows. The mean that was found
    counts among them, so p is never 0. NaN for fewer than two sequences and where a difference is NaN.

    >>> sign_flip_p(np.array([1.0, 1.0, 1.0]), 0), sign_flip_p(np.array([1.0, 1.0, 1.0]), 0, greater=True)
    (array(0.25), array(0.125))
    """
    rows = differences.reshape(-1, differences.shape[-1])
    count = rows.shape[1]
    found = np.full(len(rows), np.nan)
    if count > 1:
        signs = _signs(count, seed)
        step = max(1, BLOCK // len(signs))
        for first in range(0, len(rows), step):
            part = slice(first, first + step)
            means = signs @ rows[part].T
            if not greater:
                means = np.abs(means)
            edge = means[0] - 1e-9 * np.abs(rows[part]).sum(axis=1)  # the found one comes first; ties count
            found[part] = (means >= edge).mean(axis=0)
    found[np.isnan(rows).any(axis=1)] = np.nan
    return found.reshape(differences.shape[:-1])


def _signs(count: int, seed: int) -> Numbers:
    """Rows of signs, the first all positive: all there are, or a sample."""
    if count <= TRIED:
        codes = np.arange(2**count)[:, None] >> np.arange(count)
        return np.asarray(1.0 - 2.0 * (codes & 1))
    drawn = np.random.default_rng(seed).integers(0, 2, (FLIPS, count)) * 2.0 - 1.0
    return np.concatenate([np.ones((1, count)), drawn])
