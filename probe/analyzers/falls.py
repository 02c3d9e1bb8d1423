"""Runs of steps on which a gate has fallen, and what became of the memory in each."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
Values = npt.NDArray[np.floating]


class Runs(NamedTuple):
    """One entry per run: its sequence and unit, its first and last step in running order."""

    sequence: Places
    unit: Places
    first: Places
    last: Places


class Losses(NamedTuple):
    """One entry per run: what was kept of the memory before, that memory, the one after, and what was written."""

    kept: Numbers
    before: Numbers
    after: Numbers
    written: Numbers


def runs_below(gate: Values, low: Numbers, high: Numbers) -> Runs:
    """Runs of a gate (sequence, time, unit) from its first to its last step below `low`, without one from `high` on.

    Two falls are two runs only if the gate rose to `high` between them (hysteresis, a Schmitt trigger). NaN is neither
    below nor above.

    >>> gate = np.reshape([0.9, 0.1, 0.5, 0.2, 0.9, 0.3], (1, 6, 1))
    >>> runs = runs_below(gate, np.array([0.4]), np.array([0.8]))
    >>> runs.first, runs.last
    (array([1, 5]), array([3, 5]))
    """
    risen = np.cumsum(gate >= high, axis=1, dtype=np.int32)
    sequence, unit, step = np.nonzero(np.swapaxes(gate < low, 1, 2))
    level = risen[sequence, step, unit]
    new = np.ones(step.size + 1, dtype=bool)
    new[1:-1] = (np.diff(sequence) != 0) | (np.diff(unit) != 0) | (np.diff(level) != 0)
    begins, ends = new[:-1], new[1:]
    return Runs(sequence[begins], unit[begins], step[begins], step[ends])


def chosen(runs: Runs, which: npt.NDArray[np.bool_]) -> Runs:
    return Runs(*(part[which] for part in runs))


def losses(keep: Values, memory: Values, initial: Values, begin: Places, runs: Runs) -> Losses:
    """What each run did to the memory; `begin` is the first step of each sequence, `initial` the memory before it.

    Over a run the old memory is multiplied by the product of its retention, `kept`; what the memory after it holds
    beyond that was written meanwhile: `written = after - kept * before`.

    >>> keep, memory = np.reshape([0.9, 0.25, 0.9], (1, 3, 1)), np.reshape([4.0, 1.5, 1.4], (1, 3, 1))
    >>> run = Runs(*(np.array([place]) for place in (0, 0, 1, 1)))
    >>> lost = losses(keep, memory, np.zeros((1, 1)), np.array([0]), run)
    >>> lost.before.item(), lost.kept.item(), lost.written.item()
    (4.0, 0.25, 0.5)
    """
    sequence, unit, first, last = runs
    if not first.size:
        return Losses(*(np.empty(0) for _ in range(4)))
    lengths = last - first + 1
    starts = np.cumsum(lengths) - lengths
    step = np.arange(lengths.sum()) - np.repeat(starts - first, lengths)
    factors = keep[np.repeat(sequence, lengths), step, np.repeat(unit, lengths)].astype(np.float64)
    kept = np.multiply.reduceat(np.where(np.isnan(factors), 1.0, factors), starts)
    inside = first > begin[sequence]
    before = np.where(inside, memory[sequence, first - 1, unit], initial[sequence, unit]).astype(np.float64)
    after = memory[sequence, last, unit].astype(np.float64)
    return Losses(kept, before, after, after - kept * before)


def masked(gate: Values, masked_memory: Values, runs: Runs) -> tuple[Numbers, Numbers]:
    """Lowest value of a gate in each run, and what of the signal that it multiplies it held back at most."""
    sequence, unit, first, last = runs
    if not first.size:
        return np.empty(0), np.empty(0)
    lengths = last - first + 1
    starts = np.cumsum(lengths) - lengths
    step = np.arange(lengths.sum()) - np.repeat(starts - first, lengths)
    at = (np.repeat(sequence, lengths), step, np.repeat(unit, lengths))
    values = gate[at].astype(np.float64)
    held = np.abs((1 - values) * masked_memory[at])
    lowest = np.fmin.reduceat(values, starts)
    return np.asarray(lowest), np.asarray(np.fmax.reduceat(held, starts))
