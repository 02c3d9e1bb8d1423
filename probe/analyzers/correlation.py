"""Autocorrelation of many series of different lengths at once."""

import numpy as np
import numpy.typing as npt
from scipy import fft

from .runs import Numbers

E_FOLD = np.exp(-1.0)


def autocorrelation(values: Numbers, lengths: npt.NDArray[np.int64], most: int) -> Numbers:
    """Autocorrelation (lag, unit) at lags 0 to `most` of series (sequence, time, unit), pooled over sequences.

        r(k) = mean of x(t) x(t + k) over all pairs within a sequence / mean of x(t)^2

    with x the value less the unit's mean over all steps. NaN beyond a sequence's length, for a
    constant unit and for one with values that are not finite.
    """
    if not values.shape[1]:
        return np.full((most + 1, values.shape[2]), np.nan)
    steps = np.arange(values.shape[1])
    real = (steps < lengths[:, None])[:, :, None]
    good = np.where(real, np.isfinite(values), True).all(axis=(0, 1))
    there = np.where(real & good, values, 0.0)
    mean = there.sum(axis=(0, 1)) / max(1, int(lengths.sum()))
    largest = np.abs(there).max(axis=(0, 1), initial=0.0)
    there = np.where(real, there - mean, 0.0)
    size = fft.next_fast_len(values.shape[1] + most, real=True)
    power = np.abs(fft.rfft(there, n=size, axis=1)) ** 2
    products = fft.irfft(power.sum(axis=0), n=size, axis=0)[: most + 1]
    pairs = np.maximum(lengths[:, None] - np.arange(most + 1), 0).sum(axis=0)[:, None]
    variance = np.square(there).sum(axis=(0, 1)) / max(1, int(lengths.sum()))
    flat = ~good | (variance <= np.square(np.finfo(np.float32).eps * largest))
    with np.errstate(divide="ignore", invalid="ignore"):
        found = products / np.where(pairs > 0, pairs, np.nan) / np.where(flat, np.nan, variance)
    return np.asarray(found)


def e_fold(decay: Numbers) -> Numbers:
    """First place along axis 0 at which a curve that begins at 1 has fallen to 1/e, between steps by its logarithm.

    NaN where the curve does not fall so far. Where it falls to 0 or below at once, a line joins both steps.

    >>> e_fold(0.9 ** np.arange(20.0)[:, None]).round(6)  # -1 / log(0.9)
    array([9.491222])
    """
    below = decay < E_FOLD
    if len(decay) < 2:
        return np.full(decay.shape[1:], np.nan)
    first = np.argmax(below, axis=0)
    reached = below.any(axis=0) & (first > 0)
    at = np.maximum(first, 1)
    before, after = (np.take_along_axis(decay, place[None], axis=0)[0] for place in (at - 1, at))
    with np.errstate(divide="ignore", invalid="ignore"):
        by_log = (np.log(before) + 1) / (np.log(before) - np.log(after))
        by_line = (before - E_FOLD) / (before - after)
    return np.asarray(np.where(reached, at - 1 + np.where(after > 0, by_log, by_line), np.nan))
