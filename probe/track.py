"""What a probe has seen of one module: its calls, and how they join into sequences."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..cells import AbstractCell
from .calls import Call, Observed, signal_names, version
from .labels import MisfitError, check_lengths, fit
from .rebuild import Rebuilt

Array = np.ndarray[Any, Any]
RECENT = 4
"""How many calls back a state may come from and still continue a sequence: streams that take turns on one cell."""
KINDS = {"O": "text", "b": "booleans", "f": "numbers"}


@dataclass
class Chunk:
    """One call: its signals and where its rows stand in the recording."""

    rebuilt: Rebuilt
    sequence: Array  # (row,) which sequence each row belongs to
    offset: Array  # (row,) step of that sequence at which the call began
    lengths: Array  # (row,) real steps
    steps: int
    packed: bool
    training: bool
    marked: bool = False  # the caller has said which steps are padding
    labels: dict[str, Array] = field(default_factory=dict)  # name -> (row, step)
    gone_on: Array = field(init=False)  # (row,) whether a later call continues it

    def __post_init__(self) -> None:
        self.gone_on = np.zeros(len(self.sequence), bool)

    @property
    def known(self) -> bool:
        """Whether it is known where sequences end."""
        return self.packed or self.marked

    def ended_at_its_last_step(self, row: int) -> bool:
        """False where the call ran on through marked padding, so that what it handed out is not that of a real step."""
        return not self.marked or bool(self.lengths[row] == self.steps)


@dataclass
class Sequences:
    """One entry per independent run."""

    stream: list[int] = field(default_factory=list)
    start: list[str] = field(default_factory=list)
    length: list[int] = field(default_factory=list)
    first: list[tuple[int, int]] = field(default_factory=list)  # chunk and row that hold its initial state


class Track:
    """All calls of one module under one probe."""

    def __init__(self, observed: Observed) -> None:
        self.observed = observed
        self.offered = signal_names(observed.kind)
        self.kinds: dict[str, np.dtype[Any]] = {}  # of the labels
        self.cells: list[list[AbstractCell]] = []
        self.count = 0  # calls
        self.chunks: list[Chunk] = []
        self.parity = self.tolerance = 0.0
        self.training = False
        self.sequences = Sequences()
        self.recent: dict[int, deque[Chunk]] = {}  # the last calls of each thread, the latest first
        self.versions: list[tuple[int, int]] = []
        self.weights: dict[str, Array] = {}
        self.weights_changed = ""
        self.intervened = False  # a signal was changed from outside
        self.left_out: set[str] = set()

    def add(self, call: Call, rebuilt: Rebuilt, cells: list[list[AbstractCell]], training: bool) -> Chunk:
        """Take a call in and join its rows to the sequences that they continue."""
        number, rows = self.count, rebuilt.final[0].shape[2]
        recent = self.recent.setdefault(threading.get_ident(), deque(maxlen=RECENT))
        steps = call.layers[0].input.shape[0]
        lengths = np.full(rows, steps) if call.lengths is None else call.lengths.cpu().numpy().astype(np.int64)
        before = continued(recent, rebuilt, rows) if call.given else [None] * rows
        sequence, offset = np.empty(rows, np.int64), np.zeros(rows, np.int64)
        starts: dict[int, str] = {}
        for row, earlier in enumerate(before):
            if earlier is not None and not self.observed.bidirectional and earlier.ended_at_its_last_step(row):
                sequence[row] = earlier.sequence[row]
                offset[row] = self.sequences.length[sequence[row]]
            else:
                sequence[row] = len(self.sequences.stream) + len(starts)
                starts[row] = "continued" if earlier is not None else origin(recent, rebuilt, call.given, row)
        chunk = Chunk(rebuilt, sequence, offset, lengths, steps, call.lengths is not None, training)
        self.keep_weights(cells, number)
        self.parity, self.tolerance = max(self.parity, rebuilt.parity), max(self.tolerance, rebuilt.tolerance)
        self.training = self.training or training
        self.commit(chunk, starts)
        for row, earlier in enumerate(before):
            if earlier is not None:
                earlier.gone_on[row] = True
        recent.appendleft(chunk)
        return chunk

    def commit(self, chunk: Chunk, starts: dict[int, str]) -> None:
        """Take a call in, or nothing of it: an interrupt may come between any two lines."""
        number, runs = self.count, self.sequences
        known = len(runs.stream)
        try:
            runs.stream += starts
            runs.start += starts.values()
            runs.first += [(number, row) for row in starts]
            runs.length += [0] * len(starts)
            for row, place in enumerate(chunk.sequence.tolist()):
                runs.length[place] = int(chunk.offset[row] + chunk.lengths[row])
            self.chunks.append(chunk)
            self.count += 1
        except BaseException:
            if self.count == number:
                self.chunks[:] = [other for other in self.chunks if other is not chunk]
                for entries in (runs.stream, runs.start, runs.first, runs.length):
                    del entries[known:]
                for row in np.flatnonzero(chunk.sequence < known).tolist():
                    runs.length[chunk.sequence[row]] = int(chunk.offset[row])
            raise

    def mark(self, chunk: Chunk, lengths: Array) -> None:
        """Take the caller's word for which steps of an unpacked call are padding, wholly or not at all."""
        before = chunk.lengths, chunk.marked, [self.sequences.length[place] for place in chunk.sequence]
        try:
            self.shorten(chunk, lengths)
        except BaseException:
            chunk.lengths, chunk.marked, earlier = before
            for place, length in zip(chunk.sequence.tolist(), earlier, strict=True):
                self.sequences.length[place] = length
            raise

    def shorten(self, chunk: Chunk, lengths: Array) -> None:
        chunk.lengths, chunk.marked = np.minimum(lengths, chunk.lengths), True
        for row, sequence in enumerate(chunk.sequence.tolist()):
            before, real = int(chunk.offset[row]), int(chunk.lengths[row])
            ended = chunk.steps if chunk.packed else int(lengths[row])
            if real == 0 and before:  # the sequence had ended before this call
                self.sequences.length[sequence] = min(self.sequences.length[sequence], before)
            else:
                self.sequences.length[sequence] = before + min(real, ended)

    def trim(self, given: Any) -> None:
        """Take the caller's word for how long each sequence of the recording is."""
        lengths = check_lengths(given, len(self.sequences.length), max(self.sequences.length, default=0))
        for chunk in self.chunks:
            self.mark(chunk, np.clip(lengths[chunk.sequence] - chunk.offset, 0, chunk.steps))
        self.sequences.length = np.minimum(self.sequences.length, lengths).tolist()

    def fit(self, name: str, values: Any) -> Array:
        """Labels for the whole recording, (sequence, time)."""
        length = np.asarray(self.sequences.length, np.int64)
        known = all(chunk.known for chunk in self.chunks)
        return fit(name, values, length, int(length.max(initial=0)), known=known)

    def keep_weights(self, cells: list[list[AbstractCell]], number: int) -> None:
        """The recurrent weights of the first call; a later change is noted."""
        versions = [version(p) for layer in cells for cell in layer for p in cell.parameters()]
        if versions == self.versions:
            return
        now = recurrent_weights(cells)
        if not self.weights:
            self.cells, self.weights = cells, now
        elif not self.weights_changed and any(not np.array_equal(now[k], self.weights[k]) for k in now):
            self.weights_changed = f"weights changed before call {number}; those stored are of call 0"
        self.versions = versions


def continued(recent: Iterable[Chunk], rebuilt: Rebuilt, rows: int) -> list[Chunk | None]:
    """For each row the latest recent call that handed out, bit for bit, the state which comes in, if any did."""
    found: list[Chunk | None] = [None] * rows
    for chunk in recent:
        if all(earlier is not None for earlier in found):
            break
        same = continues(chunk, rebuilt, rows)
        for row in np.flatnonzero(same).tolist():
            if found[row] is None and not chunk.gone_on[row]:
                found[row] = chunk
    return found


def continues(last: Chunk, rebuilt: Rebuilt, rows: int) -> Array:
    """(row,) whether the incoming state is, bit for bit, what a call handed out for the same row."""
    if not rows:
        return np.zeros(rows, bool)
    final = last.rebuilt.final
    both = min(rows, final[0].shape[2])
    if any(a.dtype != b.dtype or a.shape[3] != b.shape[3] for a, b in zip(final, rebuilt.initial, strict=True)):
        return np.zeros(rows, bool)
    same = torch.ones(both, dtype=torch.bool)
    for out, came in zip(final, rebuilt.initial, strict=True):
        a, b = out[:, :, :both], came[:, :, :both]
        same &= ((a == b) | (a.isnan() & b.isnan())).all(-1).all(0).all(0)
    return np.concatenate([same.numpy(), np.zeros(rows - both, bool)])


def origin(recent: Sequence[Chunk], rebuilt: Rebuilt, given: bool, row: int) -> str:
    """How a sequence that continues none began: `zero`, `given`, or `imposed` (set to zero within a stream)."""
    if not given:
        return "zero"
    if any(bool(state[:, :, row].any()) for state in rebuilt.initial):
        return "given"
    return "imposed" if recent and row < len(recent[0].sequence) else "zero"


def recurrent_weights(cells: list[list[AbstractCell]]) -> dict[str, Array]:
    """The weights through which a step acts on the next, with the dims of the recording.

    `weight_hh` (layer, direction, gate, unit, source), `weight_hr` (layer, direction, projection, unit),
    `weight_peephole` (layer, direction, gate, unit): 0 for a gate that does not see the memory.
    """
    found: dict[str, Array] = {}
    first = cells[0][0]
    if first.recurrent_weight() is not None:
        found["weight_hh"] = stacked(cells, lambda cell: cell.recurrent_weight())
    if getattr(first, "weight_hr", None) is not None:
        found["weight_hr"] = stacked(cells, attrgetter("weight_hr"))
    if getattr(first, "weight_peephole", None) is not None:
        rows = stacked(cells, attrgetter("weight_peephole"))
        found["weight_peephole"] = np.zeros((*rows.shape[:2], len(first.gates), rows.shape[-1]), rows.dtype)
        found["weight_peephole"][:, :, [first.gates.index(gate) for gate in first.peepholes]] = rows
    return found


def stacked(cells: list[list[AbstractCell]], weight: Callable[[AbstractCell], Any]) -> Array:
    return np.stack([np.stack([as_numpy(weight(cell)) for cell in layer]) for layer in cells])


def as_numpy(tensor: Tensor) -> Array:
    """A copy on the CPU; half precision becomes float32."""
    tensor = tensor.detach().cpu()
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return tensor.numpy().copy()


def lay(labels: dict[str, Any], recorded: list[tuple[Track, Chunk]]) -> None:
    """Lay the labels of one call of the model on the modules that they fit; at the end, raise where one fits none."""
    series: dict[int, tuple[Track, list[Chunk]]] = {}
    for track, chunk in recorded:
        series.setdefault(id(track), (track, []))[1].append(chunk)
    failures = []
    for name in sorted(labels, key=lambda name: name != "lengths"):  # lengths first: they say where rows end
        misfits = []
        for track, chunks in series.values():
            try:
                if name == "lengths":
                    mark(track, labels[name], chunks)
                else:
                    label(track, name, labels[name], chunks)
            except ValueError as misfit:
                misfits.append(misfit)
                track.left_out.add(name)
        if len(misfits) == len(series):
            failures.append(misfits[0])
    if failures:
        raise failures[0]


def joined(chunks: list[Chunk]) -> Array | None:
    """Where each call begins when the calls of a module follow each other; `None` where their rows differ."""
    if len({len(chunk.sequence) for chunk in chunks}) != 1:
        return None
    return np.cumsum([0, *[chunk.steps for chunk in chunks]])


def mark(track: Track, lengths: Any, chunks: list[Chunk]) -> None:
    """Lengths of one call, or of the calls of a loop taken together."""
    begins = joined(chunks)
    if begins is None:
        raise MisfitError(
            f"lengths must fit every call of {track.observed.path!r}; it was called with different numbers of "
            "sequences. Pack the sequences instead."
        )
    real = check_lengths(lengths, len(chunks[0].sequence), int(begins[-1]))
    if len(chunks) > 1 and all(chunk.steps >= real.max(initial=0) > 1 for chunk in chunks):
        for chunk in chunks:
            track.mark(chunk, real)
        return
    for chunk, begin in zip(chunks, begins, strict=False):
        track.mark(chunk, np.clip(real - begin, 0, chunk.steps))


def label(track: Track, name: str, values: Any, chunks: list[Chunk]) -> None:
    """One label for one call, for each of several equal calls, or for the calls of a loop taken together."""
    fitted = fit_loop(name, values, chunks)
    if fitted is None:
        fitted = [fit(name, values, chunk.lengths, chunk.steps, known=chunk.known) for chunk in chunks]
    kind = track.kinds.setdefault(name, fitted[0].dtype)
    if kind != fitted[0].dtype:
        raise MisfitError(
            f"labels {name!r} must be of one kind in all calls; {KINDS[kind.kind]} came before, now "
            f"{KINDS[fitted[0].dtype.kind]}. Convert them."
        )
    for chunk, array in zip(chunks, fitted, strict=True):
        chunk.labels[name] = array


def fit_loop(name: str, values: Any, chunks: list[Chunk]) -> list[Array] | None:
    """The parts of one label that runs through the calls of a loop; `None` where it does not."""
    begins = joined(chunks)
    if len(chunks) == 1 or begins is None:
        return None
    lengths = np.sum([chunk.lengths for chunk in chunks], axis=0)
    try:
        whole = fit(name, values, lengths, int(begins[-1]), known=all(chunk.known for chunk in chunks))
    except MisfitError:
        return None
    return [whole[:, begin : begin + chunk.steps] for chunk, begin in zip(chunks, begins, strict=False)]
