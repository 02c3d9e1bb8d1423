"""Stretches of time whose contribution is asked for."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Phrases(NamedTuple):
    """Each stretch from its first step up to the one behind its last."""

    start: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]

    def at(self, time: int) -> npt.NDArray[np.bool_]:
        """(phrase,): whether a step belongs to each phrase."""
        inside: npt.NDArray[np.bool_] = (self.start <= time) & (time < self.stop)
        return inside

    def part(self, which: slice) -> "Phrases":
        return Phrases(self.start[which], self.stop[which])

    @property
    def number(self) -> int:
        return len(self.start)


def phrases_of(phrase: Any, steps: int) -> Phrases:
    """One phrase, several, or every step as one.

    >>> phrases_of(None, 3), phrases_of([(0, 2)], 3)
    (Phrases(start=array([0, 1, 2]), stop=array([1, 2, 3])), Phrases(start=array([0]), stop=array([2])))
    """
    if phrase is None:
        return Phrases(np.arange(steps), np.arange(1, steps + 1))
    ends = [of_slice(phrase, steps)] if isinstance(phrase, slice) else [pair(entry, steps) for entry in several(phrase)]
    return Phrases(*(np.array(each, np.int64) for each in zip(*ends, strict=True)))


def several(phrase: Any) -> "Sequence[Any] | npt.NDArray[Any]":
    if isinstance(phrase, str) or not isinstance(phrase, (Sequence, np.ndarray)) or len(phrase) == 0:
        raise ValueError(
            f"phrase must be a slice, a list of (start, stop), or None for every step; {phrase!r} came. Give for "
            "instance slice(2, 5) or [(2, 5), (7, 8)]."
        )
    return phrase


def of_slice(phrase: slice, steps: int) -> tuple[int, int]:
    if phrase.step not in (None, 1):
        raise ValueError(f"phrase must be a slice of steps that follow each other; {phrase} came. Leave out its step.")
    start, stop, _ = phrase.indices(steps)
    return pair((start, stop), steps)


def pair(entry: Any, steps: int) -> tuple[int, int]:
    whole = isinstance(entry, (Sequence, np.ndarray)) and len(entry) == 2
    if not whole or any(isinstance(end, bool) or not isinstance(end, (int, np.integer)) for end in entry):
        raise ValueError(f"phrase must have whole numbers (start, stop) in each entry; {entry!r} came. Give (2, 5).")
    start, stop = (int(end) for end in entry)
    if not 0 <= start < stop <= steps:
        raise ValueError(
            f"phrase must be at least one step long and lie within the {steps} steps of the input; from {start} to "
            f"{stop} came. The last possible is ({steps - 1}, {steps})."
        )
    return start, stop
