"""From the calls of one module to its arrays in a growing store."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr

from ..signals import DIRECTIONS
from .assemble import attributes, last_dim, nonfinite_in, nonfinite_text, provenance
from .layout import FIXED_DIMS, LABEL_DIMS, SIGNAL_DIMS, padding_mask
from .pieces import cast
from .retention import log_retention, log_retention_attrs
from .stored import Chunking, StoredModule
from .storing import Storing
from .track import Array, Chunk, Track

GATHERED_BYTES = 2**20
"""Calls smaller than this are put together before they are written."""


class Block(NamedTuple):
    """Calls that follow each other in the same rows, and of them what is kept; arrays are (row, ...) or signals."""

    signals: dict[str, Array]  # (layer, direction, sequence, time, unit)
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
        self.carry: dict[int, tuple[Array, Array]] = {}  # sequence -> sum of log retention and zeros so far
        self.infinite: dict[int, tuple[int, int, int]] = {}  # sequence -> step, layer, direction
        self.earlier: list[int] = stored.more.get("infinite", [])  # how many, and the first: of earlier runs

    def write(self, chunks: Sequence[Chunk]) -> None:
        """Write calls, in their order; nothing of it counts before the next commit."""
        for group in following(chunks):
            block = self.block(group)
            if not self.stored.arrays:
                self.begin(group[0], block)
            self.lay(block)
            for chunk in group:
                self.forget(chunk)
        self.stored.attrs = self.attrs()
        self.stored.calls = self.number
        recent = {s for calls in self.track.recent.values() for chunk in calls for s in chunk.sequence.tolist()}
        self.carry = {sequence: value for sequence, value in self.carry.items() if sequence in recent}

    def block(self, group: list[Chunk]) -> Block:
        """The chosen rows, units and all steps of some calls."""
        first, every, units = group[0], self.storing.every, self.storing.units
        rows = np.flatnonzero(first.sequence % every == 0)
        numbers = np.repeat(self.number + np.arange(len(group)), [chunk.steps for chunk in group])
        self.number += len(group)
        cell = self.track.cells[0][0]

        def chosen(name: str, values: Array) -> Array:
            values = values if every == 1 else values[..., rows, :]
            return values[..., list(units)] if units is not None and last_dim(cell, name) == "unit" else values

        def joined(name: str) -> Array:
            parts = [chunk.rebuilt.signals[name] for chunk in group]
            return (parts[0] if len(parts) == 1 else torch.cat(parts, 2)).numpy()

        return Block(
            {name: np.swapaxes(chosen(name, joined(name)), 2, 3) for name in first.rebuilt.signals},
            tuple(
                chosen(name, (state.float() if state.dtype in (torch.bfloat16, torch.float16) else state).numpy())
                for name, state in zip(cell.states, first.rebuilt.initial, strict=True)
            ),
            first.sequence[rows],
            first.offset[rows],
            np.sum([chunk.lengths for chunk in group], axis=0)[rows],
            np.broadcast_to(numbers, (len(rows), len(numbers))),
            {name: np.concatenate([chunk.labels[name] for chunk in group], 1)[rows] for name in first.labels},
        )

    def begin(self, chunk: Chunk, block: Block) -> None:
        """Create the arrays: what the module is, and room for what comes."""
        cell, stored = self.track.cells[0][0], self.stored
        layers, directions = chunk.rebuilt.final[0].shape[:2]
        units = np.arange(cell.hidden_size) if self.storing.units is None else np.asarray(self.storing.units)
        joined = bool(chunk.gone_on.any())
        stored.chunking = Chunking.chosen(len(block.local), block.call.shape[1], len(units), joined=joined)
        coords: dict[str, Any] = {
            "layer": xr.Variable("layer", np.arange(layers)),
            "direction": xr.Variable("direction", np.array(DIRECTIONS[:directions], dtype=object)),
            "sequence": None,
            "time": None,
            "unit": xr.Variable("unit", units),
            **dict.fromkeys(("length", "stream", "start", "call")),
        }
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
        for name, values in block.signals.items():
            dims = ("layer", "direction", *LABEL_DIMS, last_dim(cell, name))
            dtype = np.dtype(self.storing.dtype or values.dtype)
            stored.add(name, dims, dtype, attributes(cell, name), (layers, directions, values.shape[-1]))
            stored.list("variables", name)
        if self.sums and (form := log_retention_attrs(cell.retention, block.signals)):
            stored.add("log_retention_sum", SIGNAL_DIMS, np.dtype(float), form, (layers, directions, len(units)))
            stored.list("variables", "log_retention_sum")
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
        over_time = {**block.signals, **self.summed(block)}
        for name, labels in block.labels.items():
            self.require_label(name, labels)
        for first, last in equal_runs(ids, block.offset, block.lengths):
            offset = int(block.offset[first])
            steps, start = slice(-offset % stride, int(block.lengths[first]), stride), -(-offset // stride)
            for name, values in over_time.items():
                part = values[:, :, first:last, steps]
                part = part if self.storing.dtype is None else self.cast(name, part)
                stored.arrays[name].write((0, 0, int(ids[first]), start, 0), part)
            for name, labels in {"call": block.call, **block.labels}.items():
                if labels.dtype.kind != "O":
                    stored.arrays[name].write((int(ids[first]), start), labels[first:last, steps])
        self.lay_texts(block, ids)
        new = block.local >= self.seen
        if new.any():
            for name, values in zip(self.track.cells[0][0].states, block.initial, strict=True):
                stored.arrays[f"initial_{name}"].write((0, 0, int(ids[new][0]), 0), values[:, :, new])
        runs = self.track.sequences
        streams = np.asarray([runs.stream[sequence] for sequence in block.local.tolist()], np.int64)
        stored.note(ids, ends, streams, [runs.start[sequence] for sequence in block.local.tolist()])

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
        array = self.stored.arrays[name]
        return cast(name, values, array.dtype) if name in self.track.offered else values

    def summed(self, block: Block) -> dict[str, Array]:
        """The running sums of log retention, going on from where their sequences were."""
        if "log_retention_sum" not in self.stored.arrays:
            return {}
        padding = padding_mask(block.lengths, block.call.shape[1])
        found = log_retention(self.track.cells[0][0].retention, block.signals, padding)
        sums, _ = found["log_retention_sum"]
        zeros, more = found.get("retention_zeros", (np.zeros(sums.shape, np.float32), {}))
        for row, sequence in enumerate(block.local.tolist()):
            if sequence in self.carry:
                sums[:, :, row] += self.carry[sequence][0][:, :, None]
                zeros[:, :, row] += self.carry[sequence][1][:, :, None]
            if real := int(block.lengths[row]):
                self.carry[sequence] = (sums[:, :, row, real - 1].copy(), zeros[:, :, row, real - 1].copy())
        if "retention_zeros" not in self.stored.arrays:
            if not more:
                return {"log_retention_sum": sums}
            self.begin_zeros(more, sums.shape[:2] + sums.shape[-1:])
        return {"log_retention_sum": sums, "retention_zeros": zeros}

    def begin_zeros(self, attrs: dict[str, str], sizes: tuple[int, ...]) -> None:
        """The first retention of exactly 0: before it, all counts were 0."""
        stored, name = self.stored, "retention_zeros"
        stored.add(name, SIGNAL_DIMS, np.dtype(np.float32), attrs, sizes)
        stored.list("variables", name, behind="log_retention_sum")
        for sequence, length in enumerate(stored.lengths().tolist()):
            nothing = np.zeros((*sizes[:2], 1, length, sizes[2]), np.float32)
            stored.arrays[name].write((0, 0, sequence, 0, 0), nothing)

    def require_label(self, name: str, labels: Array) -> None:
        if name not in self.stored.arrays:
            self.stored.add(name, LABEL_DIMS, labels.dtype, {})
            self.stored.list("coordinates", name)
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


def follows(before: Chunk, chunk: Chunk) -> bool:
    small = sum(signal.nbytes for signal in before.rebuilt.signals.values()) < GATHERED_BYTES
    return small and (
        np.array_equal(before.sequence, chunk.sequence)
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
