"""One module's recording in a growing store: which arrays it has, how far they go, and how it is finished."""

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .commits import JOURNAL, Sequences, append_journal, journal_path, read_journal
from .growing import GrowingArray, write_group
from .layout import LABEL_DIMS, STARTS, plain
from .overview import LONG
from .overview_writer import OverviewWriter
from .pieces import CHUNK_BYTES, chunks_of
from .shards import MOST, Region, regions
from .text import escape

Array = NDArray[Any]
STREAM_BYTES = 4 * 2**20
"""Size of a chunk where sequences go on and on."""
BATCH_BYTES = 2**16
"""Batches of at least so much, of one signal, are stored as they come; smaller ones are put together in chunks."""
FILE_BYTES = 2**24
"""Size of a file of such batches."""
LABEL_BYTES = 2**20
ROOM = 2**10
TEXTS = 2**13
"""Text labels in one chunk."""
OWN = ("sequence", "time", "length", "stream", "start")
"""Coordinates that follow from the journal, and are written out at the end."""


class Chunking(NamedTuple):
    """How many sequences and steps of the signals stand in one chunk; each layer and direction has its own.

    `batches` are the chunks in one file where each holds one batch, as it came; 0 where a chunk is a file.
    """

    sequence: int
    time: int
    batches: int = 0

    @classmethod
    def chosen(cls, rows: int, steps: int, units: int, *, joined: bool) -> "Chunking":
        """From what came first: calls of so many rows and steps; `joined` where later calls prolong the same rows.

        >>> Chunking.chosen(32, 200, 256, joined=False), Chunking.chosen(1, 100, 256, joined=True)
        (Chunking(sequence=32, time=200, batches=2), Chunking(sequence=1, time=4096, batches=0))
        """
        width = 4 * max(1, units)
        if joined:
            sequence = max(1, min(rows, 8))
            return cls(sequence, max(16, STREAM_BYTES // (sequence * width)))
        if rows * steps * width >= BATCH_BYTES and steps * width < CHUNK_BYTES and 16 * rows * width <= CHUNK_BYTES:
            time = min(max(steps, 16), CHUNK_BYTES // (rows * width))
            return cls(rows, time, max(1, min(MOST, FILE_BYTES // (rows * time * width))))
        time = min(max(steps, 16), max(16, CHUNK_BYTES // width))
        sequence = max(1, CHUNK_BYTES // (time * width))
        return cls(sequence // rows * rows if sequence > rows > 0 else sequence, time)


class StoredModule:
    """The arrays of one module and what is known of its sequences."""

    def __init__(self, store: Path, number: int, group: str) -> None:
        self.store, self.number, self.group = store, number, group
        self.folder = store / group if group else store
        self.arrays: dict[str, GrowingArray] = {}
        self.contents: dict[str, list[str]] = {"coordinates": [], "variables": []}
        self.chunking = Chunking(1, 1)
        self.sequences = self.steps = self.journal = self.calls = 0
        self.room = {"sequence": 0, "time": 0}
        self.entries: list[Array] = []
        self.attrs: dict[str, Any] = {}
        self.overview = OverviewWriter(self.arrays, self.folder)
        self.more: dict[str, Any] = {}  # what the writer wants to find again

    @classmethod
    def found(cls, store: Path, record: dict[str, Any]) -> "StoredModule":
        """A module as its last commit left it."""
        module = cls(store, record["number"], record["group"])
        for name in ("contents", "sequences", "steps", "journal", "calls", "attrs", "more"):
            setattr(module, name, record[name])
        module.chunking = Chunking(*record["chunking"])
        for names in module.contents.values():
            for name in names:
                if name in OWN:
                    continue
                array = GrowingArray.found(module.folder / name)
                if "sequence" in array.dims:
                    module.arrays[name] = array
        module.reserve(module.sequences, module.steps)
        if module.steps > LONG:
            module.overview.done = module.known().length
            module.overview.begin()
        return module

    def begin(self, coords: dict[str, Any], fixed: dict[str, xr.Variable]) -> None:
        """Create the group with what does not grow; `coords` are (variable or `None` where it grows) in their order."""
        write_group(self.folder, {})
        for name, variable in {**coords, **fixed}.items():
            if variable is not None:
                write_whole(self.folder, name, variable)
        self.contents = {"coordinates": list(coords), "variables": []}
        self.add("call", LABEL_DIMS, np.dtype(np.int64), {})

    def add(
        self, name: str, dims: tuple[str, ...], dtype: np.dtype[Any], attrs: dict[str, Any], sizes: tuple[int, ...] = ()
    ) -> None:
        """A new array that grows; `sizes` are those of its other dimensions, in their order."""
        others = iter(sizes)
        shape = [self.room[dim] if dim in self.room else next(others) for dim in dims]
        batches = self.chunking.batches if len(dims) == 5 else 0
        growing = {"sequence": self.chunking.sequence, "time": self.chunking.time}
        if not batches:  # what stands beside the batches of a file is a chunk
            growing["sequence"] *= max(1, self.chunking.batches)
        chunks = []
        for dim, size in zip(dims, shape, strict=True):
            own = 1 if dim in ("layer", "direction") and "time" in dims else max(1, size)
            chunks.append(growing.get(dim, own))
        if dtype.kind == "O":  # read, changed and replaced as a whole
            chunks = [max(1, min(chunks[0], TEXTS // min(chunks[1], TEXTS))), min(chunks[1], TEXTS)]
        elif dims == LABEL_DIMS or "time" not in dims:
            more = max(1, LABEL_BYTES // (8 * int(np.prod(chunks))))
            long = growing["time"] > 4 * growing["sequence"] and "time" in dims and not self.chunking.batches
            chunks[dims.index("time" if long else "sequence")] *= more
        escaped = {key: escape(value) if isinstance(value, str) else value for key, value in attrs.items()}
        shutil.rmtree(self.folder / name, ignore_errors=True)  # of a run that never committed it
        self.arrays[name] = GrowingArray(self.folder / name, dims, shape, chunks, dtype, escaped, batches)
        self.arrays[name].describe()

    def reserve(self, sequences: int, steps: int) -> None:
        """Give every array room for so much, and far more, so that this happens seldom: room on disk takes none."""
        needed = {"sequence": sequences, "time": steps}
        if any(needed[dim] > self.room[dim] for dim in needed):
            self.room = {dim: ROOM * size if size > self.room[dim] else self.room[dim] for dim, size in needed.items()}
        for array in self.arrays.values():
            array.resize(self.room)

    def regions(self, start: tuple[int, int], rows: list[int], steps: int) -> list[Region]:
        """Where parts of batches go: the same in all arrays over time and units."""
        return regions(self.chunking[:2], self.chunking.batches, start, rows, steps) if steps else []

    def note(self, sequence: Array, length: Array, stream: Array, start: list[str]) -> None:
        """What is now true of some sequences."""
        entries = np.empty(len(sequence), JOURNAL)
        entries["sequence"], entries["length"], entries["stream"] = sequence, length, stream
        entries["start"] = [STARTS.index(name) for name in start]
        self.entries.append(entries)
        if len(sequence):
            self.sequences = max(self.sequences, int(sequence.max()) + 1)
            self.steps = max(self.steps, int(length.max()))

    def list(self, kind: str, name: str, behind: str = "") -> None:
        """Let a variable or coordinate count from the next commit on."""
        names = self.contents[kind]
        if name not in names:
            names.insert(names.index(behind) + 1 if behind in names else len(names), name)

    def flush(self, *, sync: bool) -> None:
        """Hand all data to the system (and wait for the disk), then the journal."""
        if self.steps > LONG:
            self.overview.update(self.lengths())
            self.overview.close(sync=sync)
        for array in self.arrays.values():
            array.close(sync=sync)
        entries = np.concatenate([np.empty(0, JOURNAL), *self.entries])
        self.journal = append_journal(self.store, self.number, self.journal, entries, sync=sync)
        self.entries = []

    def record(self) -> dict[str, Any]:
        """What a commit says of this module."""
        names = ("number", "group", "sequences", "steps", "journal", "calls", "contents", "more")
        attrs = {key: escape(value) if isinstance(value, str) else plain(value) for key, value in self.attrs.items()}
        return {name: getattr(self, name) for name in names} | {"chunking": list(self.chunking), "attrs": attrs}

    def known(self) -> Sequences:
        return read_journal(self.store, self.number, self.journal, self.sequences)

    def lengths(self) -> NDArray[np.int64]:
        """Steps of every sequence, also of those that are not committed yet."""
        found = np.zeros(self.sequences, np.int64)
        if self.journal:
            entries = np.fromfile(journal_path(self.store, self.number), JOURNAL, self.journal // JOURNAL.itemsize)
            found[entries["sequence"]] = entries["length"]
        for entries in self.entries:
            found[entries["sequence"]] = entries["length"]
        return found

    def finish(self) -> dict[str, Any]:
        """Make it a plain recording: padding written, sizes exact, all coordinates there. Returns the attributes."""
        sequences = self.known()
        for array in self.arrays.values():
            array.resize({"sequence": self.sequences, "time": self.steps})
            array.fill_padding(sequences.length)
        self.room = {"sequence": self.sequences, "time": self.steps}
        if self.steps > LONG:
            self.overview.finish(sequences.length, self.overview_coords(), write_whole)
        whole: dict[str, Any] = {
            "sequence": np.arange(self.sequences),
            "time": np.arange(self.steps),
            **sequences._asdict(),
        }
        for name, values in whole.items():
            write_whole(self.folder, name, xr.Variable("time" if name == "time" else "sequence", values))
        marks = [name for name in self.contents["coordinates"] if name not in self.dims() and " " not in name]
        listed = escape(json.dumps(self.contents))
        return {**self.record()["attrs"], "contents": listed, "coordinates": " ".join(marks)}

    def overview_coords(self) -> dict[str, xr.Variable]:
        found = {"sequence": xr.Variable("sequence", np.arange(self.sequences))}
        for name in ("layer", "direction", "unit", "projection"):
            if name in self.contents["coordinates"]:
                array = GrowingArray.found(self.folder / name)
                found[name] = xr.Variable(name, array.read((0,), array.shape))
        return found

    def dims(self) -> set[str]:
        return {dim for array in self.arrays.values() for dim in array.dims} | {"gate", "source"}


def write_whole(folder: Path, name: str, variable: xr.Variable) -> None:
    """A variable that does not grow, anew."""
    shutil.rmtree(folder / name, ignore_errors=True)
    chunks = chunks_of(variable)
    array = GrowingArray(folder / name, tuple(map(str, variable.dims)), variable.shape, chunks, variable.dtype, {})
    array.describe()
    array.write([0] * variable.ndim, variable.values)
    array.close()
