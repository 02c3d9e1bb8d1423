"""Finding places in the sequences by the text of a label."""

from typing import NamedTuple

import numpy as np
import streamlit as st
import xarray as xr
from numpy.typing import NDArray

from . import catalogue
from .chooser import View

MOST_PLACES = 10_000


class Place(NamedTuple):
    """Where a text was found: a sequence (its coordinate), first and last step."""

    sequence: int
    first: int
    last: int


class Line(NamedTuple):
    """The labels of one sequence as a text, and where in it each step's begins."""

    sequence: int
    text: str
    begins: NDArray[np.int64]


def places(view: View, text: str) -> list[Place]:
    """Where the label on view reads so, upper and lower case alike; sequence by sequence, from left to right.

    Labels of one character each are read as one text, longer ones with spaces in between.
    """
    if not text or view.labels is None:
        return []
    return find(_lines(view.entry.name, catalogue.version(view.entry), view.module, view.labels, view.recording), text)


@st.cache_resource(max_entries=8, show_spinner="Reading the labels ...")
def _lines(entry: str, changed: str, module: str, labels: str, _recording: xr.Dataset) -> list[Line]:
    return lines(_recording, labels)


def lines(recording: xr.Dataset, labels: str) -> list[Line]:
    """The labels of every sequence as a text."""
    values, lengths = recording[labels].values, recording["length"].values
    rows = [[_word(value) for value in row[:steps]] for row, steps in zip(values, lengths, strict=True)]
    between = "" if all(len(word) <= 1 for row in rows for word in row) else " "
    found = []
    for number, row in zip(recording["sequence"].values.tolist(), rows, strict=True):
        sizes = np.array([len(word) + len(between) for word in row], dtype=np.int64)
        found.append(Line(int(number), between.join(row), np.concatenate([[0], sizes.cumsum()[:-1]])))
    return found


def _word(value: object) -> str:
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    return f"{value:.4g}".lower() if isinstance(value, float | np.floating) else "".join(map(_lower, str(value)))


def _lower(sign: str) -> str:
    """Lower case where it is one character, so that places stay what they are."""
    return low if len(low := sign.lower()) == 1 else sign


def find(read: list[Line], text: str) -> list[Place]:
    """Where a text stands.

    >>> find([Line(3, "abcabc", np.arange(6))], "BC")
    [Place(sequence=3, first=1, last=2), Place(sequence=3, first=4, last=5)]
    """
    wanted = "".join(map(_lower, text))
    found: list[Place] = []
    for line in read:
        at = line.text.find(wanted)
        while at >= 0 and len(found) < MOST_PLACES:
            ends = np.searchsorted(line.begins, [at, at + len(wanted) - 1], side="right") - 1
            found.append(Place(line.sequence, int(ends[0]), int(ends[1])))
            at = line.text.find(wanted, at + 1)
    return found


def beside(found: list[Place], now: Place | None, step: int) -> Place:
    """The place after (`step` 1) or before (-1) another one, round the end; at first the first.

    >>> every = [Place(0, 1, 2), Place(1, 0, 1)]
    >>> beside(every, None, 1), beside(every, every[1], 1), beside(every, Place(0, 0, 9), -1)
    (Place(sequence=0, first=1, last=2), Place(sequence=0, first=1, last=2), Place(sequence=1, first=0, last=1))
    """
    if now is None:
        return found[0]
    later = [place for place in found if place > now]
    earlier = [place for place in found if place < now]
    if step > 0:
        return later[0] if later else found[0]
    return earlier[-1] if earlier else found[-1]
