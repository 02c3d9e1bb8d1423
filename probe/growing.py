"""Arrays of a zarr folder that grow while they are written: raw chunks, filled in place, each byte once.

Written bytes are never touched again by a later write, so a process that dies in the middle damages nothing that was
there before. What lies in a chunk and was not written yet is a hole that takes no space.
"""

import json
import os
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import shards
from .layout import padding_value
from .text import escape_all, unescape_all

Array = NDArray[Any]
Place = tuple[slice, ...]


def replace_text(path: Path, text: str, *, sync: bool = False) -> None:
    """Write a small file so that a reader, or the next process, sees the old or the new one and nothing between."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    fresh.replace(path)


def write_group(folder: Path, attrs: dict[str, Any], *, sync: bool = False) -> None:
    """A zarr group with these attributes, new or replaced."""
    folder.mkdir(exist_ok=True)
    meta = {"attributes": attrs, "zarr_format": 3, "node_type": "group"}
    replace_text(folder / "zarr.json", json.dumps(meta), sync=sync)


class GrowingArray:
    """One zarr array; its shape on disk is room to grow, and says nothing of how much of it is real."""

    def __init__(
        self,
        folder: Path,
        dims: Sequence[str],
        shape: Sequence[int],
        chunks: Sequence[int],
        dtype: np.dtype[Any],
        attrs: dict[str, Any],
        batches: int = 0,
    ) -> None:
        self.folder, self.dims, self.shape, self.chunks = folder, tuple(dims), tuple(shape), tuple(chunks)
        self.dtype, self.attrs = dtype, attrs
        self.batches = batches  # chunks in a file, each time first; 0: a chunk is a file, in the order of its dims
        self.chunk_bytes = prod(self.chunks) * dtype.itemsize
        self.fresh = True  # no earlier process may have finished it
        self.strides = [prod(self.chunks[axis + 1 :]) * dtype.itemsize for axis in range(len(self.chunks))]
        self.files: dict[str, int] = {}  # open ones

    @classmethod
    def found(cls, folder: Path) -> "GrowingArray":
        """An array that an earlier process made."""
        meta = json.loads((folder / "zarr.json").read_text(encoding="utf-8"))
        kind = np.dtype(object) if meta["data_type"] == "string" else np.dtype(meta["data_type"])
        chunks = file = meta["chunk_grid"]["configuration"]["chunk_shape"]
        batches = 0
        if meta["codecs"][0]["name"] == "sharding_indexed":
            chunks = meta["codecs"][0]["configuration"]["chunk_shape"]
            batches = file[2] // chunks[2]
        array = cls(folder, meta["dimension_names"], meta["shape"], chunks, kind, meta["attributes"], batches)
        array.fresh = False
        return array

    def description(self) -> dict[str, Any]:
        """What zarr has to know."""
        text = self.dtype == object
        fill = {"f": "NaN", "i": -1, "b": False, "O": ""}[self.dtype.kind]
        codecs: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
        file = list(self.chunks)
        if text:
            codecs = [{"name": "vlen-utf8", "configuration": {}}]
        elif self.batches:
            codecs, file = shards.codecs(self.chunks), shards.file_shape(self.chunks, self.batches)
        return {
            "shape": list(self.shape),
            "data_type": "string" if text else self.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": file}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
            "fill_value": fill,
            "codecs": codecs,
            "attributes": self.attrs,
            "dimension_names": list(self.dims),
            "zarr_format": 3,
            "node_type": "array",
            "storage_transformers": [],
        }

    def describe(self) -> None:
        """Write zarr's own file beside the chunks."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path, text = self.folder / "zarr.json", json.dumps(self.description())
        if path.exists():
            replace_text(path, text)
        else:  # nothing counts yet that lies beside it
            path.write_text(text, encoding="utf-8")

    def resize(self, sizes: dict[str, int]) -> None:
        shape = tuple(sizes.get(dim, size) for dim, size in zip(self.dims, self.shape, strict=True))
        if shape != self.shape:
            self.shape = shape
            self.describe()

    def write(self, start: Sequence[int], values: Array) -> None:
        """Put a block of values at a place; the files of its chunks stay open until `close`."""
        if not values.size:
            return
        if self.dtype == object:
            for cell, inside, part in self.cells(start, values.shape):
                self.write_text(self.path(cell), inside, values[part])
            return
        values = values.astype(self.dtype, copy=False)
        if self.batches:
            place = shards.regions(self.chunks[2:4], self.batches, start[2:4], [values.shape[2]], values.shape[3])
            self.write_batches(place, [values.swapaxes(2, 3)])
            return
        for cell, inside, part in self.cells(start, values.shape):
            self.write_raw(self.open(str(self.path(cell))), inside, values[part])

    def write_batches(self, regions: list[shards.Region], parts: list[Array]) -> None:
        """Write parts, (layer, direction, time, sequence, unit), at regions of any array with such chunks."""
        width = self.chunks[4] * self.dtype.itemsize
        for place in np.ndindex(parts[0].shape[:2]):
            here = [part[place] for part in parts]
            for region in regions:
                file = self.open(f"{self.folder}/c.{place[0]}.{place[1]}.{region.file[0]}.{region.file[1]}.0")
                values = [np.ascontiguousarray(here[piece.part][piece.steps, piece.rows]) for piece in region.pieces]
                shards.write_together(file, values, shards.HEADER + region.at * width)

    def read(self, start: Sequence[int], shape: Sequence[int]) -> Array:
        """A block as it stands in the files, written or not."""
        result = np.full(shape, padding_value(self.dtype), self.dtype)
        for cell, inside, part in self.cells(start, shape):
            path = self.path_of(cell)
            if self.batches or self.chunks[2:3] != (1,) or str(path) not in self.files:
                if path.exists():
                    result[part] = self.whole(path, cell)[inside]
                continue
            offset = inside[3].start * self.strides[3]  # steps of one sequence stand together
            os.preadv(self.files[str(path)], [result[part].reshape(-1).view(np.uint8).data], offset)
        return result

    def cells(self, start: Sequence[int], shape: Sequence[int]) -> Iterator[tuple[tuple[int, ...], Place, Place]]:
        """Each chunk that a block touches: its number, the place in the chunk, the place in the block."""
        axes = []
        for begin, size, chunk in zip(start, shape, self.chunks, strict=True):
            axis = []
            for cell in range(begin // chunk, -(-(begin + size) // chunk)):
                low, high = max(begin, cell * chunk), min(begin + size, (cell + 1) * chunk)
                axis.append((cell, slice(low - cell * chunk, high - cell * chunk), slice(low - begin, high - begin)))
            axes.append(axis)
        for found in product(*axes):
            cell, inside, part = zip(*found, strict=True)
            yield cell, inside, part

    def path(self, cell: tuple[int, ...]) -> Path:
        """All chunks lie in one folder: making folders takes longer than filling files."""
        return self.folder / ".".join(("c", *map(str, cell)))

    def path_of(self, cell: tuple[int, ...]) -> Path:
        """The file that a chunk stands in."""
        if not self.batches:
            return self.path(cell)
        return self.path((*cell[:2], cell[2] // self.batches, *cell[3:]))

    def open(self, path: str) -> int:
        if path in self.files:
            return self.files[path]
        if len(self.files) >= 32:
            self.close()
        try:
            file = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            file = self.create(path)
        self.files[path] = file
        if self.batches and not self.fresh:
            self.write_index(file)
        return file

    @property
    def file_bytes(self) -> int:
        return self.chunk_bytes * self.batches + shards.HEADER if self.batches else self.chunk_bytes

    def create(self, path: str) -> int:
        """A file of chunks that is whole from the moment on in which it is seen."""
        new = f"{path}.new"
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            os.ftruncate(file, self.file_bytes)
            if self.batches:
                self.write_index(file)
            os.rename(new, path)
        except BaseException:
            os.close(file)
            raise
        return file

    def write_index(self, file: int, kept: tuple[int, ...] | None = None) -> None:
        write_all(file, np.frombuffer(shards.index(self.batches, self.chunk_bytes, kept), np.uint8), 0)

    def write_raw(self, file: int, inside: Place, values: Array) -> None:
        """Write one block into one chunk, in as few pieces as its order in the file allows."""
        axis = values.ndim - 1
        while axis > 0 and values.shape[axis] == self.chunks[axis]:
            axis -= 1
        base = sum(place.start * stride for place, stride in zip(inside, self.strides, strict=True))
        for index in np.ndindex(values.shape[:axis]):
            offset = base + sum(step * stride for step, stride in zip(index, self.strides, strict=False))
            write_all(file, np.ascontiguousarray(values[index]), offset)

    def whole(self, path: Path, cell: tuple[int, ...]) -> Array:
        """One chunk, of numbers as the file itself."""
        if self.dtype == object:
            return unescape_all(self.texts(path))
        if not self.batches:
            return np.memmap(path, self.dtype, mode="r", shape=self.chunks)
        return self.batch(path, cell[2] % self.batches)

    def batch(self, path: Path, slot: int) -> Array:
        layer, direction, rows, steps, units = self.chunks
        offset, shape = shards.HEADER + slot * self.chunk_bytes, (layer, direction, steps, rows, units)
        return np.memmap(path, self.dtype, mode="r", offset=offset, shape=shape).swapaxes(2, 3)

    def texts(self, path: Path) -> Array:
        """The texts of one chunk as they stand on disk, escaped."""
        from numcodecs.vlen import VLenUTF8

        if not path.exists():
            return np.full(self.chunks, "", dtype=object)
        return np.asarray(VLenUTF8().decode(path.read_bytes()), dtype=object).reshape(self.chunks)

    def write_text(self, path: Path, inside: Place, values: Array) -> None:
        """Put texts into a chunk that is read, changed and replaced as a whole."""
        from numcodecs.vlen import VLenUTF8

        whole = self.texts(path)
        before = whole[inside]
        escaped = escape_all(values)
        if not np.array_equal(before, escaped):
            whole[inside] = escaped
            fresh = path.with_name(f"{path.name}.new")
            fresh.write_bytes(VLenUTF8().encode(whole.ravel()))
            fresh.replace(path)

    def close(self, *, sync: bool = False) -> None:
        while self.files:
            _, file = self.files.popitem()
            try:
                if sync:
                    os.fsync(file)
            finally:
                os.close(file)

    def chunk_files(self) -> Iterator[tuple[Path, list[tuple[int, ...]]]]:
        """Every file of chunks that is there, with the numbers of its chunks."""
        for path in sorted(self.folder.glob("c.*")):
            numbers = path.name.split(".")[1:]
            if len(numbers) == len(self.dims) and all(map(str.isdecimal, numbers)):
                cell = tuple(map(int, numbers))
                first = cell[2] * self.batches if self.batches else 0
                cells = [(*cell[:2], first + slot, *cell[3:]) for slot in range(self.batches)]
                yield path, cells or [cell]

    def fill_padding(self, length: NDArray[np.int64]) -> None:
        """Write padding into the holes of the chunks that are there, as far as the shape goes.

        `length` are the real steps of each sequence. Chunks with nothing real in them are removed.
        """
        for path, cells in list(self.chunk_files()):
            if self.batches and self.is_whole(cells, length):
                continue
            kept = [slot for slot, cell in enumerate(cells) if self.fill_chunk(path, slot, cell, length)]
            if not kept:
                self.close()
                path.unlink()
            elif self.batches:
                self.write_index(self.open(str(path)), tuple(kept))
        self.close()

    def is_whole(self, cells: list[tuple[int, ...]], length: NDArray[np.int64]) -> bool:
        """Whether every step of a file's batches is real."""
        first, last = cells[0][2] * self.chunks[2], (cells[-1][2] + 1) * self.chunks[2]
        return last <= len(length) and bool(length[first:last].min() >= (cells[0][3] + 1) * self.chunks[3])

    def fill_chunk(self, path: Path, slot: int, cell: tuple[int, ...], length: NDArray[np.int64]) -> bool:
        """Whether anything in a chunk is real; then the rest of it is padding afterwards."""
        axis = self.dims.index("sequence")
        first = cell[axis] * self.chunks[axis]
        inside = length[first : first + self.chunks[axis]]
        if "time" not in self.dims:
            return len(inside) > 0
        begin = cell[axis + 1] * self.chunks[axis + 1]
        steps = min(self.chunks[axis + 1], self.shape[axis + 1] - begin)
        if len(inside) and inside.min() >= begin + steps > begin:
            return True
        width = np.clip(inside - begin, 0, max(steps, 0))
        if not width.any():
            return False
        if (width < steps).any() and self.batches:
            self.pad_batch(path, slot, width, steps)
        elif (width < steps).any():
            self.pad(path, width, steps, axis)
        return True

    def pad_batch(self, path: Path, slot: int, width: NDArray[np.int64], steps: int) -> None:
        """Padding behind the first `width` steps of each row of a batch."""
        begin = int(width.min())
        values = np.array(self.batch(path, slot)[0, 0, :, begin:steps].swapaxes(0, 1), order="C")
        values[:, : len(width)][np.arange(begin, steps)[:, None] >= width] = padding_value(self.dtype)
        offset = shards.HEADER + slot * self.chunk_bytes + begin * values[0].nbytes
        write_all(self.open(str(path)), values, offset)

    def pad(self, path: Path, width: NDArray[np.int64], steps: int, axis: int) -> None:
        """Padding behind the first `width` steps of each row of a chunk; rows of one width are written together."""
        if self.dtype == object:  # labels: (sequence, time)
            place = (slice(0, len(width)), slice(0, steps))
            values = self.whole(path, ())[place]
            values[np.arange(steps) >= width[:, None]] = ""
            self.write_text(path, place, values)
            return
        edges = [0, *(np.flatnonzero(np.diff(width)) + 1).tolist(), len(width)]
        for begin, end in pairwise(edges):
            inside = [slice(0, size) for size in self.chunks]
            inside[axis : axis + 2] = slice(begin, end), slice(int(width[begin]), steps)
            values = np.full([part.stop - part.start for part in inside], padding_value(self.dtype), self.dtype)
            if values.size:
                self.write_raw(self.open(str(path)), tuple(inside), values)


def write_all(file: int, values: Array, offset: int) -> None:
    """All bytes of an array at one place of a file; the system may take them in several parts."""
    view = memoryview(np.atleast_1d(values).view(np.uint8).reshape(-1).data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written
