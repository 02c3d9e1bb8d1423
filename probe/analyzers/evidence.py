"""What speaks for each role of a unit, gathered in sums over groups of sequences, so that groups can be drawn again."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .information import quantile_codes
from .runs import Numbers

Codes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.floating]

KEEP_EDGES = np.linspace(-10.0, 10.0, 201)  # of the retention's logit
VALUE_BINS = 64  # classes of equal size of a unit's memory
BACK = 2  # steps after which an event detector is back at its baseline
SHORTEST = 4  # steps of a segment that can show a line
EXACT = 2**24  # whole numbers below which float32 has all
AT_ONCE = 2**20  # counts of labels by memory that are held at once


@dataclass
class Chunk:
    """Some units of one layer and direction: arrays (sequence, time, unit) in the order of computation."""

    memory: Numbers
    keep: Numbers | None
    write: Numbers | None
    gates: dict[str, Numbers]  # by name, as fractions of their range
    group: Codes  # (sequence, time), -1 in padding
    label: Codes | None  # (sequence, time), -1 where there is none
    classes: int
    begins: Flags  # first steps of resets
    inside: Flags  # steps of resets

    def pieces(self, groups: int) -> Iterator["Chunk"]:
        """The same units, so few at a time that their counts by group and class stay in the processor's cache."""
        units = self.memory.shape[2]
        width = max(1, AT_ONCE // max(1, groups * max(1, self.classes) * VALUE_BINS))
        for first in range(0, units, width):
            some = np.s_[..., first : first + width]
            yield replace(
                self,
                memory=self.memory[some],
                keep=None if self.keep is None else self.keep[some],
                write=None if self.write is None else self.write[some],
                gates={name: values[some] for name, values in self.gates.items()},
                begins=self.begins[some],
                inside=self.inside[some],
            )


@dataclass
class Sums:
    """Sums over groups, (group, unit, ...); of bootstrap samples (sample, unit, ...)."""

    steps: Numbers  # (group, unit): steps
    resets: Numbers  # resets that begin
    keep: Numbers  # and a class of the retention's logit: steps
    write: Numbers  # sum of the gate that writes
    ends: Numbers  # and gate, end: steps within a tenth of either end
    total: Numbers  # sum of the centred memory
    square: Numbers  # and of its square
    classes: Floats  # and class of the label, class of the memory: steps
    classes_ago: Floats  # the same with the label of BACK steps ago
    signs: Numbers  # and class of the label, negative or positive: steps
    segments: Numbers  # and what segments between resets sum to, see SEGMENT

    @classmethod
    def of(cls, chunk: Chunk, groups: int) -> Self:
        units = chunk.memory.shape[2]
        real = chunk.group >= 0
        group = chunk.group[real]
        memory = chunk.memory[real]
        centred = memory - memory.mean(axis=0) if len(memory) else memory
        add = _Adder(group, groups, units)
        return cls(
            add.sum(np.ones_like(memory)),
            add.sum(chunk.begins[real]),
            add.count(_keep_codes(chunk, real, units), len(KEEP_EDGES) + 1).astype(np.float64),
            add.sum(np.full_like(memory, np.nan) if chunk.write is None else chunk.write[real]),
            np.stack(
                [np.stack([add.sum(v[real] < 0.1), add.sum(v[real] > 0.9)], axis=-1) for v in chunk.gates.values()]
                or [np.full((groups, units, 2), np.nan)],
                axis=2,
            ),
            add.sum(centred),
            add.sum(centred**2),
            *_class_counts(chunk, add, real, memory),
            _sign_counts(chunk, add, real, memory),
            _segment_sums(chunk, groups),
        )

    def drawn(self, weights: Numbers) -> "Sums":
        """Sums over samples, from how often each of them has each group, (sample, group)."""
        every = (getattr(self, each.name) for each in fields(self))
        return Sums(*(np.tensordot(weights.astype(values.dtype), values, axes=1) for values in every))


SEGMENT = ("count", "lines", "squares", "slope", "times", "pure", "positive", "steps")
"""Sums over segments of their number, the squares a line of each own explains, all squares, products with time,
squares of time, |positive - negative| steps, those mostly positive, and steps."""


class _Adder:
    """Adds values (step, unit) up by group and unit."""

    def __init__(self, group: Codes, groups: int, units: int) -> None:
        self.groups, self.units = groups, units
        self.rows = group[:, None] * units + np.arange(units)

    def sum(self, values: npt.NDArray[Any]) -> Numbers:
        summed = np.bincount(self.rows.ravel(), values.ravel().astype(np.float64), self.groups * self.units)
        return np.asarray(summed.reshape(self.groups, self.units))

    def count(self, codes: Codes, width: int) -> Codes:
        """Steps by code 0 to width - 1; a code of -1 counts nowhere."""
        there = codes >= 0
        keys = (self.rows * width + codes)[there]
        counts = np.bincount(keys, minlength=self.groups * self.units * width)
        return np.asarray(counts.reshape(self.groups, self.units, width), dtype=np.int64)


def _keep_codes(chunk: Chunk, real: Flags, units: int) -> Codes:
    if chunk.keep is None:
        return np.full((int(real.sum()), units), -1)
    keep = chunk.keep[real]
    with np.errstate(divide="ignore", invalid="ignore"):
        logit = np.log(keep) - np.log1p(-np.minimum(keep, 1.0))
    return np.where(np.isnan(keep), -1, np.searchsorted(KEEP_EDGES, logit)).astype(np.int64)


def _class_counts(chunk: Chunk, add: _Adder, real: Flags, memory: Numbers) -> tuple[Floats, Floats]:
    """Steps by class of the label, now and BACK steps ago, and class of the memory; in float32 where that is exact."""
    shape = (add.groups, add.units, max(1, chunk.classes), VALUE_BINS)
    if chunk.label is None or not len(memory):
        return np.zeros(shape), np.zeros(shape)
    codes = quantile_codes(np.nan_to_num(memory), VALUE_BINS)
    ago = np.full_like(chunk.label, -1)
    ago[:, BACK:] = chunk.label[:, :-BACK]
    most = add.groups * int(np.bincount(chunk.group[real], minlength=1).max())  # steps that a sample can have
    dtype = np.float32 if most < EXACT else np.float64
    now, then = (
        add.count(np.where(label >= 0, label * VALUE_BINS + codes, -1), shape[2] * VALUE_BINS).reshape(shape)
        for label in (chunk.label[real][:, None], ago[real][:, None])
    )
    return now.astype(dtype), then.astype(dtype)


def _sign_counts(chunk: Chunk, add: _Adder, real: Flags, memory: Numbers) -> Numbers:
    shape = (add.groups, add.units, max(1, chunk.classes), 2)
    if chunk.label is None or not len(memory):
        return np.zeros(shape)
    label = chunk.label[real][:, None]
    sign = np.where(memory > 0, 1, np.where(memory < 0, 0, -1))
    found = add.count(np.where((label >= 0) & (sign >= 0), label * 2 + sign, -1), chunk.classes * 2)
    return found.reshape(shape).astype(np.float64)


def _segment_sums(chunk: Chunk, groups: int) -> Numbers:
    """Sums over the segments between resets, each counted in the group of its middle."""
    sequences, steps, units = chunk.memory.shape
    segment = np.cumsum(chunk.begins, axis=1)
    most = int(segment.max(initial=0)) + 1
    key = (np.arange(sequences)[:, None, None] * units + np.arange(units)) * most + segment
    there = (chunk.group >= 0)[:, :, None] & ~chunk.inside
    key, time = key[there], np.broadcast_to(np.arange(steps)[None, :, None], there.shape)[there]
    value = chunk.memory[there]
    length = np.bincount(key, minlength=sequences * units * most)
    kept = np.flatnonzero(length >= SHORTEST)
    n = length[kept].astype(np.float64)

    def sums(values: npt.NDArray[Any]) -> Numbers:
        return np.asarray(np.bincount(key, values, len(length))[kept])

    middle = sums(time) / n
    mean = sums(value) / n
    place = np.searchsorted(kept, key)
    place = (
        np.where((place < len(kept)) & (kept[np.minimum(place, len(kept) - 1)] == key), place, -1)
        if len(kept)
        else key * 0 - 1
    )
    mine = place >= 0
    x, y, key = time[mine] - middle[place[mine]], value[mine] - mean[place[mine]], place[mine]
    xx, xy, yy = (np.bincount(key, part, len(kept)) for part in (x * x, x * y, y * y))
    up = np.bincount(key, value[mine] > 0, len(kept)) - np.bincount(key, value[mine] < 0, len(kept))
    every = np.stack([np.ones_like(n), xy**2 / xx, yy, xy, xx, np.abs(up), up > 0, n], axis=1)
    sequence, unit = kept // most // units, kept // most % units
    row = chunk.group[sequence, np.round(middle).astype(np.int64)] * units + unit
    found = np.zeros((groups * units, len(SEGMENT)))
    np.add.at(found, row, every)
    return found.reshape(groups, units, len(SEGMENT))
