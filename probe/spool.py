"""From the calls of one module to its arrays in a growing store."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr

from ..signals import DIRECTIONS
from .assemble import attributes, last_dim, nonfinite_in, nonfinite_text, provenance, unit_coordinates
from .layout import FIXED_DIMS, LABEL_DIMS, SIGNAL_DIMS, padding_mask, padding_value
from .pieces import cast
from .retention import SUM, ZEROS, log_retention, log_retention_attrs
from .stored import Chunking, StoredModule
from .storing import Storing
from .track import Array, Chunk, Track

GATHERED_BYTES = 2**20
"""Calls of a stream that are smaller than this are put together before they are written."""
TOGETHER_BYTES = 2**24
"""So are batches that are smaller than this."""


class Block(NamedTuple):
    """Of some calls what is kept; arrays are (row, ...) or signals.

    Parts stand side by side, with as many steps each; the calls of a part follow each other in the same rows.
    """

    signals: list[dict[str, Array]]  # of each part, (layer, direction, time, sequence, unit)
    initial: tuple[Array, ...]  # (layer, direction, sequence, unit)
    local: Array  # (row,) sequence as the track counts
    offset: Array
    lengths: Array
    call: Array  # (row, step)
    labels: dict[str, Array]  # (row, step)


class Spool:
    """Writes calls as they come, each value once, and keeps in memory what the next call may go on from."""

    def __init__(self, track: Track, storing: Storing, stored: StoredModule, *, sums: bool) -> None:
        self.track, self.storing, self.stored, self.sums = track, storing, stored, sums
        self.base = stored.sequences  # sequences of earlier runs
        self.resumed_at = self.number = stored.calls
        self.before = dict(stored.attrs)
        self.seen = 0
        self.open: set[int] = set()  # sequences that may go on
        self.carry: dict[int, dict[str, Array]] = {}  # sequence -> sum of log retention and zeros so far
        self.infinite: dict[int, tuple[int, int, int]] = {}  # sequence -> step, layer, direction
        self.earlier: list[int] = stored.more.get("infinite", [])  # how many, and the first: of earlier runs

    def write(self, chunks: Sequence[Chunk]) -> None:
        """Write calls, in their order; nothing of it counts before the next commit."""
        recent = {s for calls in self.track.recent.values() for chunk in calls for s in chunk.sequence.tolist()}
        self.open = recent.union(*(chunk.sequence[chunk.offset > 0].tolist() for chunk in chunks))
        for parts in side_by_side(following(chunks)):
            block = self.block(parts)
            if not self.stored.arrays:
                self.begin(parts[0][0], block)
            self.lay(block)
            for chunk in (chunk for part in parts for chunk in part):
                self.forget(chunk)
        self.stored.attrs = self.attrs()
        self.stored.calls = self.number
        self.carry = {sequence: value for sequence, value in self.carry.items() if sequence in recent}

    def block(self, parts: list[list[Chunk]]) -> Block:
        """The chosen rows, units and all steps of some calls."""
        firsts = [part[0] for part in parts]
        kept = [self.kept(first) for first in firsts]
        calls = []
        for part, first, rows in zip(parts, firsts, kept, strict=True):
            numbers = np.repeat(np.arange(self.number, self.number + len(part)), [chunk.steps for chunk in part])
            calls.append(np.full((len(first.sequence[rows]), len(numbers)), numbers))
            self.number += len(part)

        def together(values: Iterable[Array], axis: int = 0) -> Array:
            whole = (slice(None),) * axis
            return np.concatenate([each[(*whole, rows)] for each, rows in zip(values, kept, strict=True)], axis)

        def along(part: list[Chunk], name: str) -> Array:
            return np.concatenate([chunk.labels[name] for chunk in part], 1) if part[1:] else part[0].labels[name]

        return Block(
            [self.signals(part, rows) for part, rows in zip(parts, kept, strict=True)],
            tuple(
                together((self.initial(first, place, name) for first in firsts), 2)
                for place, name in enumerate(self.track.cells[0][0].states)
            ),
            together(first.sequence for first in firsts),
            together(first.offset for first in firsts),
            together(
                np.sum([chunk.lengths for chunk in part], axis=0) if part[1:] else part[0].lengths for part in parts
            ),
            np.concatenate(calls),
            {name: together(along(part, name) for part in parts) for name in firsts[0].labels},
        )

    def kept(self, chunk: Chunk) -> Any:
        """Which rows of a call."""
        every = self.storing.every
        return slice(None) if every == 1 else np.flatnonzero(chunk.sequence % every == 0)

    def signals(self, part: list[Chunk], rows: Any) -> dict[str, Array]:
        """The signals of calls that follow each other, as they came."""
        if not part[1:] and self.storing.every == 1 and self.storing.units is None:
            return {name: signal.numpy() for name, signal in part[0].rebuilt.signals.items()}
        found = {}
        for name in part[0].rebuilt.signals:
            calls = [chunk.rebuilt.signals[name] for chunk in part]
            values = (calls[0] if len(calls) == 1 else torch.cat(calls, 2)).numpy()
            found[name] = self.chosen(name, values[..., rows, :])
        return found

    def chosen(self, name: str, values: Array) -> Array:
        units = self.storing.units
        return values if units is None or self.last_dim(name) != "unit" else values[..., list(units)]

    def last_dim(self, name: str) -> str:
        return last_dim(self.track.cells[0][0], name)

    def initial(self, chunk: Chunk, place: int, name: str) -> Array:
        state = chunk.rebuilt.initial[place]
        half = state.dtype in (torch.bfloat16, torch.float16)
        return self.chosen(name, (state.float() if half else state).numpy())

    def begin(self, chunk: Chunk, block: Block) -> None:
        """Create the arrays: what the module is, and room for what comes."""
        cell, stored = self.track.cells[0][0], self.stored
        layers, directions = chunk.rebuilt.final[0].shape[:2]
        units = np.arange(cell.hidden_size) if self.storing.units is None else np.asarray(self.storing.units)
        joined = bool(chunk.gone_on.any())
        stored.chunking = Chunking.chosen(rows_of(block.signals[0]), block.call.shape[1], len(units), joined=joined)
        coords: dict[str, Any] = {
            "layer": xr.Variable("layer", np.arange(layers)),
            "direction": xr.Variable("direction", np.array(DIRECTIONS[:directions], dtype=object)),
            "sequence": None,
            "time": None,
            "unit": xr.Variable("unit", units),
            **dict.fromkeys(("length", "stream", "start", "call")),
        }
        for name, (dim, values) in unit_coordinates(cell).items():
            coords[name] = xr.Variable(dim, values[units])
        if cell.proj_size:
            coords["projection"] = xr.Variable("projection", np.arange(cell.proj_size))
        fixed = {}
        for name, values in self.track.weights.items():
            fixed[name] = xr.Variable(FIXED_DIMS[name][0], values)
            if self.storing.units is not None:
                fixed[name] = fixed[name].isel(unit=list(self.storing.units))
            if name == "weight_hh":
                coords["gate"] = xr.Variable("gate", np.array(cell.gates, dtype=object))
                coords["source"] = xr.Variable("source", np.arange(values.shape[-1]))
        stored.begin(coords, fixed)
        for name, values in block.signals[0].items():
            dims = ("layer", "direction", *LABEL_DIMS, last_dim(cell, name))
            dtype = np.dtype(self.storing.dtype or values.dtype)
            stored.add(name, dims, dtype, attributes(cell, name), (layers, directions, values.shape[-1]))
            stored.list("variables", name)
        if self.sums and (form := log_retention_attrs(cell.retention, block.signals[0])):
            stored.add(SUM, SIGNAL_DIMS, np.dtype(float), form, (layers, directions, len(units)))
            stored.list("variables", SUM)
        for name, values in zip(cell.states, block.initial, strict=True):
            places = ("layer", "direction", "sequence", last_dim(cell, name))
            stored.add(f"initial_{name}", places, values.dtype, {}, (layers, directions, values.shape[-1]))
            stored.list("variables", f"initial_{name}")
        for name in fixed:
            stored.list("variables", name)

    def lay(self, block: Block) -> None:
        """Write one block, row by row as far as each is real."""
        stored, stride = self.stored, self.storing.stride
        ids = self.base + block.local // self.storing.every
        ends = -(-(block.offset + block.lengths) // stride)
        stored.reserve(max(stored.sequences, int(ids.max(initial=-1)) + 1), max(stored.steps, int(ends.max(initial=0))))
        over_time = [{**part, **sums} for part, sums in zip(block.signals, self.summed(block), strict=True)]
        for name, labels in block.labels.items():
            self.require_label(name, labels)
        block = block._replace(labels=block.labels | self.missing_labels(block))
        if stored.chunking.batches:
            self.lay_batches(block, ids, over_time)
        else:
            self.lay_rows(block, ids, over_time)
        self.lay_texts(block, ids)
        new = block.local >= self.seen
        if new.any():
            for name, values in zip(self.track.cells[0][0].states, block.initial, strict=True):
                stored.arrays[f"initial_{name}"].write((0, 0, int(ids[new][0]), 0), values[:, :, new])
        runs = self.track.sequences
        streams = np.asarray([runs.stream[sequence] for sequence in block.local.tolist()], np.int64)
        stored.note(ids, ends, streams, [runs.start[sequence] for sequence in block.local.tolist()])

    def lay_rows(self, block: Block, ids: Array, over_time: list[dict[str, Array]]) -> None:
        """Each row as far as it is real."""
        runs = equal_runs(ids, block.offset, block.lengths)
        for name in over_time[0]:
            parts = [part[name].swapaxes(2, 3) for part in over_time]
            values = self.cast(name, parts[0] if len(parts) == 1 else np.concatenate(parts, 2))
            for first, last in runs:
                place, steps = self.steps(block, first, int(block.lengths[first]))
                self.stored.arrays[name].write((0, 0, int(ids[first]), place, 0), values[:, :, first:last, steps])
        for first, last in runs:
            self.lay_numbers(block, ids, slice(first, last), int(block.lengths[first]))

    def lay_batches(self, block: Block, ids: Array, over_time: list[dict[str, Array]]) -> None:
        """Parts as they are, not copied where they fill chunks; what stands behind a row's end is no step of it."""
        for first, last in equal_runs(ids, block.offset, np.zeros_like(ids)):
            end = int(block.lengths[first:last].max())
            place, steps = self.steps(block, first, end)
            several = len(over_time) > 1  # then all of them are one run
            counts = [rows_of(part) for part in over_time] if several else [last - first]
            rows = slice(None) if several else slice(first, last)
            number = len(range(*steps.indices(end)))
            regions = self.stored.regions((int(ids[first]), place), counts, number)
            whole = several and steps == slice(0, block.call.shape[1], 1)
            for name in over_time[0]:
                parts = [part[name] if whole else part[name][:, :, steps, rows] for part in over_time]
                if self.storing.dtype is not None:
                    parts = [self.cast(name, part) for part in parts]
                self.stored.arrays[name].write_batches(regions, parts)
            self.lay_numbers(block, ids, slice(first, last), end)

    def steps(self, block: Block, row: int, end: int) -> tuple[int, slice]:
        """Which step is the first that is kept of a row, in the recording, and which are kept of the block."""
        offset, stride = int(block.offset[row]), self.storing.stride
        return -(-offset // stride), slice(-offset % stride, end, stride)

    def lay_numbers(self, block: Block, ids: Array, rows: slice, end: int) -> None:
        place, steps = self.steps(block, rows.start, end)
        for name, labels in {"call": block.call, **block.labels}.items():
            if labels.dtype.kind != "O":
                self.stored.arrays[name].write((int(ids[rows.start]), place), labels[rows, steps])

    def lay_texts(self, block: Block, ids: Array) -> None:
        """Text labels, whose padding is the same as their absence: rows of any lengths at once."""
        stride, longest = self.storing.stride, int(block.lengths.max(initial=0))
        for name, labels in block.labels.items():
            if labels.dtype.kind == "O":
                for first, last in equal_runs(ids, block.offset, np.zeros_like(ids)):
                    offset = int(block.offset[first])
                    part = labels[first:last, -offset % stride : longest : stride]
                    self.stored.arrays[name].write((int(ids[first]), -(-offset // stride)), part)

    def cast(self, name: str, values: Array) -> Array:
        return cast(name, values, self.stored.arrays[name].dtype) if name in self.track.offered else values

    def summed(self, block: Block) -> list[dict[str, Array]]:
        """The running sums of log retention of each part, going on from where their sequences were."""
        if SUM not in self.stored.arrays:
            return [{}] * len(block.signals)
        found, row = [], 0
        for part in block.signals:
            rows = slice(row, row := row + rows_of(part))
            signals = {name: values.swapaxes(2, 3) for name, values in part.items()}
            padding = padding_mask(block.lengths[rows], block.call.shape[1])
            sums = log_retention(self.track.cells[0][0].retention, signals, padding)
            if ZEROS in sums and ZEROS not in self.stored.arrays:
                self.begin_zeros(sums[ZEROS][1], sums[SUM][0][:, :, 0, 0].shape)
            found.append(self.go_on(block, rows, {name: values for name, (values, _) in sums.items()}))
        if ZEROS in self.stored.arrays:
            found = [{ZEROS: np.zeros_like(sums[SUM], np.float32), **sums} for sums in found]
        return [{name: values.swapaxes(2, 3) for name, values in sums.items()} for sums in found]

    def go_on(self, block: Block, rows: slice, sums: dict[str, Array]) -> dict[str, Array]:
        """Sums from the start of their sequences, and not of the calls."""
        for row, sequence in enumerate(block.local[rows].tolist()):
            for name, before in self.carry.get(sequence, {}).items():
                if name not in sums and before.any():
                    sums[name] = np.zeros_like(sums[SUM], np.float32)
                if name in sums:
                    sums[name][:, :, row] += before[:, :, None]
            if sequence in self.open and (real := int(block.lengths[rows][row])):
                self.carry[sequence] = {name: values[:, :, row, real - 1].copy() for name, values in sums.items()}
        return sums

    def begin_zeros(self, attrs: dict[str, str], sizes: tuple[int, ...]) -> None:
        """The first retention of exactly 0: before it, all counts were 0."""
        stored, name = self.stored, ZEROS
        stored.add(name, SIGNAL_DIMS, np.dtype(np.float32), attrs, sizes)
        stored.list("variables", name, behind=SUM)
        for sequence, length in enumerate(stored.lengths().tolist()):
            nothing = np.zeros((*sizes[:2], 1, length, sizes[2]), np.float32)
            stored.arrays[name].write((0, 0, sequence, 0, 0), nothing)

    def begin_label(self, name: str, dtype: np.dtype[Any]) -> None:
        """A label that none of the steps before has: of numbers, a hole in a file would say 0."""
        stored = self.stored
        stored.add(name, LABEL_DIMS, dtype, {})
        stored.list("coordinates", name)
        lengths = stored.lengths()
        if dtype.kind == "f":
            for first, last in equal_runs(np.arange(len(lengths)), np.zeros_like(lengths), lengths):
                nothing = np.broadcast_to(padding_value(dtype), (last - first, int(lengths[first])))
                stored.arrays[name].write((first, 0), nothing)

    def missing_labels(self, block: Block) -> dict[str, Array]:
        """Padding for the labels that other calls have: a killed run may have left its own where these steps go."""
        arrays = {name: array for name, array in self.stored.arrays.items() if array.dims == LABEL_DIMS}
        return {
            name: np.full(block.call.shape, padding_value(array.dtype), array.dtype)
            for name, array in arrays.items()
            if name != "call" and name not in block.labels
        }

    def require_label(self, name: str, labels: Array) -> None:
        if name not in self.stored.arrays:
            self.begin_label(name, labels.dtype)
        there = self.stored.arrays[name].dtype
        if there != labels.dtype:
            raise ValueError(
                f"labels {name!r} must be of one kind in all of a store; {there} is there, {labels.dtype} came. "
                "Convert them, or choose another path."
            )

    def forget(self, chunk: Chunk) -> None:
        """Keep of a call what a later one may go on from, and where it was not finite."""
        kept = {s: at for s, at in nonfinite_in(chunk).items() if s % self.storing.every == 0}
        for sequence, at in kept.items():
            number = self.base + sequence // self.storing.every
            self.infinite[number] = min(self.infinite.get(number, at), at)
        self.seen = max(self.seen, int(chunk.sequence.max(initial=-1)) + 1)
        chunk.rebuilt = chunk.rebuilt._replace(signals={}, infinite=None)
        chunk.labels = {}

    def attrs(self) -> dict[str, Any]:
        """The recording's attributes so far, those of earlier runs included."""
        track, before = self.track, self.before
        found: dict[str, Any] = provenance(track, track.cells[0][0])
        if before:
            found["created"] = before["created"]
            found |= {key: max(found[key], before[key]) for key in ("parity", "tolerance", "training")}
            if "weights_changed" in found:
                found["weights_changed"] += f" (counted from call {self.resumed_at}, where the recording was resumed)"
            found = {**before, **found}
        if self.infinite or self.earlier:
            first: dict[int, tuple[int, int, int]] = {}
            more = 0
            if self.earlier:
                count, sequence, step, layer, direction = self.earlier
                first, more = {sequence: (step, layer, direction)}, count - 1
            found["nonfinite"] = nonfinite_text(first | self.infinite, self.stored.sequences, more=more)
            self.stored.more["infinite"] = self.summary(first)
        if track.left_out:
            said = set(str(before.get("labels_left_out", "")).split(", ")) - {""}
            found["labels_left_out"] = ", ".join(sorted(said | track.left_out))
        return {**found, **self.storing.said(track), "calls": self.number}

    def summary(self, first: dict[int, tuple[int, int, int]]) -> list[int]:
        found = first | self.infinite
        sequence = min(found, key=lambda number: (found[number][0], number))
        return [len(self.infinite) + (self.earlier[0] if self.earlier else 0), sequence, *found[sequence]]


def following(chunks: Sequence[Chunk]) -> list[list[Chunk]]:
    """Calls in groups in which each goes on where the one before it ended, in the same rows."""
    groups: list[list[Chunk]] = []
    for chunk in chunks:
        if groups and follows(groups[-1][-1], chunk):
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
    return groups


def side_by_side(groups: list[list[Chunk]]) -> list[list[list[Chunk]]]:
    """Groups put together whose sequences begin in them, one behind the other, with as many steps."""
    found: list[list[list[Chunk]]] = []
    for group in groups:
        if found and beside(found[-1][-1], group):
            found[-1].append(group)
        else:
            found.append([group])
    return found


def beside(before: list[Chunk], group: list[Chunk]) -> bool:
    first, last = before[0], group[0]
    signal = next(iter(first.rebuilt.signals.values()))
    return (
        len(first.sequence) > 0
        and sum(chunk.steps for chunk in before) == sum(chunk.steps for chunk in group)
        and signal.nbytes < TOGETHER_BYTES
        and not (first.offset.any() or last.offset.any())
        and np.array_equal(last.sequence, np.arange(len(last.sequence)) + first.sequence[-1] + 1)
        and first.labels.keys() == last.labels.keys()
    )


def bytes_of(chunk: Chunk) -> int:
    return sum(signal.nbytes for signal in chunk.rebuilt.signals.values())


def rows_of(part: dict[str, Array]) -> int:
    return int(next(iter(part.values())).shape[3])


def follows(before: Chunk, chunk: Chunk) -> bool:
    return (
        np.array_equal(before.sequence, chunk.sequence)
        and bytes_of(before) < GATHERED_BYTES
        and before.labels.keys() == chunk.labels.keys()
        and bool((before.lengths == before.steps).all())
        and bool((chunk.offset == before.offset + before.steps).all())
    )


def equal_runs(ids: Array, offset: Array, lengths: Array) -> list[tuple[int, int]]:
    """Ranges of rows that stand side by side in the recording and cover the same steps."""
    if not len(ids):
        return []
    breaks = (np.diff(ids) != 1) | (np.diff(offset) != 0) | (np.diff(lengths) != 0)
    return list(pairwise([0, *(np.flatnonzero(breaks) + 1).tolist(), len(ids)]))
