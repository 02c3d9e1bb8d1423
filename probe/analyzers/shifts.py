"""The null of a statistic between a signal and a label: all circular shifts of one against the other."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import fft, stats

from .runs import Numbers

RESOLVED = 10  # shifts that must reach a value for their count to be its p
AT_ONCE = 2**16  # shifted sums held at once
LARGEST_FACTOR = 50  # of a number of steps whose transform is fast


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
    by_unit = np.ascontiguousarray(values.T)
    sums = columns.T @ values
    power = _power(fft.rfft(by_unit, axis=1))
    power_squared = np.square(power)
    twice = np.full(power.shape[1], 2.0)  # each frequency but the first and, of an even number, the last, is two
    twice[0], twice[-1] = 1.0, 1.0 if steps % 2 == 0 else 2.0
    squares = np.square(values).sum(axis=0)
    size = transform_size(steps)
    spectrum = fft.rfft(by_unit, n=size, axis=1)
    z, p, freedom = (np.empty_like(sums) for _ in range(3))
    for place, column in enumerate(columns.T):
        weight = _power(fft.rfft(column))
        whole = power @ (twice * weight)
        flat = whole <= (np.finfo(float).eps * steps) ** 2 * np.sum(column**2) * squares * steps
        spread = np.sqrt(whole) / steps
        fourth = np.where(flat, 1.0, power_squared @ (twice * weight**2))
        freedom[place] = np.where(flat, 1.0, whole**2 / fourth)
        z[place] = np.where(flat, 0.0, sums[place] / np.where(flat, 1.0, spread))
        turns = fft.rfft(column if size == steps else np.concatenate([column, column[:-1]]), n=size)
        reached = _reached(spectrum, turns, np.abs(sums[place]) * (1 - 1e-9), steps, size)
        p[place] = np.where(flat, 1.0, tail(reached, steps, z[place], freedom[place]))
    return sums, Null(z, p, freedom)


def transform_size(steps: int) -> int:
    """Length of the transforms that turn a column by all shifts: the steps, or where these have large factors more.

    A column of twice the steps, less one, holds all its shifts side by side; so any length from there on will do.

    >>> transform_size(1000), transform_size(1439)  # which is prime
    (1000, 2880)
    """
    rest = steps
    for factor in range(2, LARGEST_FACTOR + 1):
        while rest % factor == 0 and rest > 1:
            rest //= factor
    return steps if rest == 1 else int(fft.next_fast_len(2 * steps - 1, real=True))


def _reached(
    spectrum: npt.NDArray[np.complex128], turns: npt.NDArray[np.complex128], least: Numbers, steps: int, size: int
) -> npt.NDArray[np.int64]:
    """How many shifts of a column give a sum with each unit of at least that magnitude, a few units at a time."""
    found = np.empty(len(spectrum), dtype=np.int64)
    width = max(1, AT_ONCE // size)
    for first in range(0, len(spectrum), width):
        some = slice(first, first + width)
        product = np.conj(spectrum[some]) * turns
        shifted = fft.irfft(product, n=size, axis=1, overwrite_x=True)[:, :steps]
        found[some] = (np.abs(shifted, out=shifted) >= least[some, None]).sum(axis=1)
    return found


def _power(spectrum: npt.NDArray[np.complex128]) -> Numbers:
    return np.asarray(np.square(spectrum.real) + np.square(spectrum.imag))


def tail(reached: npt.NDArray[np.int64], shifts: int, z: Numbers, freedom: Numbers) -> Numbers:
    """Two-sided p: the share of shifts that reach a value, or Student's tail where they are too few to count."""
    counted = np.maximum(reached, 1) / shifts
    return np.where(reached >= RESOLVED, counted, np.minimum(RESOLVED / shifts, 2 * stats.t.sf(np.abs(z), freedom)))
