"""Correction of p for how many were looked at."""

import numpy as np
from scipy import stats

from .runs import Numbers


def corrected(p: Numbers) -> Numbers:
    """Benjamini and Hochberg's correction of p (first, second, ...) over all but the first two axes; NaN stays.

    >>> corrected(np.array([[[0.01, 0.04, np.nan]]])).ravel()  # of two: 2 * 0.01, and 0.04
    array([0.02, 0.04,  nan])
    """
    found = np.full_like(p, np.nan)
    for place in np.ndindex(p.shape[:2]):
        there = np.isfinite(p[place])
        if there.any():
            found[place][there] = stats.false_discovery_control(p[place][there])
    return found
