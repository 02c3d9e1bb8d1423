"""The null of a statistic between a signal and a label: all circular shifts of one against the other."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import fft, stats

from .runs import Numbers

RESOLVED = 10  # shifts that must reach a value for their count to be its p


class Null(NamedTuple):
    """What the shifts say of sums of products, each (column, unit)."""

    z: Numbers  # the sum in standard deviations of the shifted ones
    p: Numbers  # two-sided
    freedom: Numbers  # effective number of independent shifts


def shifted_sums(columns: Numbers, values: Numbers) -> tuple[Numbers, Null]:
    """Sums over steps of column times value, and how unusual they are among all circular shifts of the columns.

    A shift keeps the autocorrelation of both and breaks what joins them. Columns and values have mean 0 over steps, so
    the sums over all shifts have too. p is the share of shifts (0 among them) whose sum is at least as large in
    magnitude; where fewer than 10 of them are, it is the tail of Student's t at z with as many degrees of freedom as
    the power spectrum P of the shifted sums has, (sum P)^2 / sum P^2 (Satterthwaite), but no more than that share.

    Parameters
    ----------
    columns : (step, column), mean 0.
    values : (step, unit), mean 0.

    Returns
    -------
    tuple
        The sums (column, unit) and a `Null`. A constant column or value has sum 0, z 0 and p 1.
    """
    steps = len(values)
    spectrum = fft.rfft(values, axis=0)
    sums = columns.T @ values
    z, p, freedom = (np.empty_like(sums) for _ in range(3))
    twice = np.full((len(spectrum), 1), 2.0)  # each frequency but the first and, of an even number, the last, is two
    twice[0], twice[-1] = 1.0, 1.0 if steps % 2 == 0 else 2.0
    for place, column in enumerate(columns.T):
        product = spectrum * np.conj(fft.rfft(column))[:, None]
        power = np.abs(product) ** 2
        whole = (twice * power).sum(axis=0)
        flat = whole <= (np.finfo(float).eps * steps) ** 2 * np.sum(column**2) * np.sum(values**2, axis=0) * steps
        spread = np.sqrt(whole) / steps
        freedom[place] = np.where(flat, 1.0, whole**2 / np.where(flat, 1.0, (twice * power**2).sum(axis=0)))
        z[place] = np.where(flat, 0.0, sums[place] / np.where(flat, 1.0, spread))
        reached = np.abs(fft.irfft(product, n=steps, axis=0)) >= np.abs(sums[place]) * (1 - 1e-9)
        p[place] = np.where(flat, 1.0, tail(reached.sum(axis=0), steps, z[place], freedom[place]))
    return sums, Null(z, p, freedom)


def tail(reached: npt.NDArray[np.int64], shifts: int, z: Numbers, freedom: Numbers) -> Numbers:
    """Two-sided p: the share of shifts that reach a value, or Student's tail where they are too few to count."""
    counted = np.maximum(reached, 1) / shifts
    return np.where(reached >= RESOLVED, counted, np.minimum(RESOLVED / shifts, 2 * stats.t.sf(np.abs(z), freedom)))
