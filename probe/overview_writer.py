"""The overview of a store that grows: each block is written once, when it is complete, and the last ones at the end."""

from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .growing import GrowingArray, write_group
from .overview import LEVELS, LONG, SLAB, STATISTICS, has_overview, summarise

Array = NDArray[Any]


class OverviewWriter:
    """Reads back what has just been written, while the system still has it in memory."""

    def __init__(self, arrays: dict[str, GrowingArray], folder: Any) -> None:
        self.sources, self.folder = arrays, folder / "overview"
        self.arrays: dict[tuple[int, str, str], GrowingArray] = {}
        self.done: NDArray[np.int64] | None = None  # steps of each sequence that are in it

    def update(self, lengths: NDArray[np.int64]) -> None:
        """Write all blocks that have become complete."""
        if self.done is None and lengths.max(initial=0) <= LONG:
            return
        done = np.zeros(0, np.int64) if self.done is None else self.done
        done = np.concatenate([done, np.zeros(len(lengths) - len(done), np.int64)])
        if self.done is None:
            self.begin()
        self.reserve(lengths)
        per, coarse = LEVELS
        for name in self.names():
            self.whole_blocks(self.sources[name], name, per, done // per, lengths // per, per)
            for kind in STATISTICS:
                source = self.arrays[per, name, kind]
                self.whole_blocks(source, name, coarse, done // coarse, lengths // coarse, coarse // per, kind)
        self.done = lengths

    def names(self) -> list[str]:
        return [name for name, array in self.sources.items() if has_overview(name, array.attrs)]

    def begin(self) -> None:
        """Create the arrays, or find those of an earlier run."""
        for folder in (self.folder, *(self.folder / str(per) for per in LEVELS)):
            write_group(folder, {})
        for per in LEVELS:
            for name in self.names():
                source = self.sources[name]
                for kind in STATISTICS:
                    folder = self.folder / str(per) / f"{name}_{kind}"
                    if (folder / "zarr.json").exists():
                        self.arrays[per, name, kind] = GrowingArray.found(folder)
                        continue
                    row = source.chunks[2] * max(1, source.shape[4])
                    chunks = (*source.chunks[:3], max(16, 2**18 // row), source.chunks[4])
                    shape = (*source.shape[:2], 0, 0, source.shape[4])
                    made = GrowingArray(folder, source.dims, shape, chunks, source.dtype, source.attrs)
                    self.arrays[per, name, kind] = made

    def reserve(self, lengths: NDArray[np.int64]) -> None:
        for (per, _, _), array in self.arrays.items():
            blocks = -(-int(lengths.max(initial=0)) // per)
            sequences, time = array.shape[2:4]
            room = time if blocks <= time else 4 * blocks
            array.resize({"sequence": max(sequences, len(lengths)), "time": room})

    def whole_blocks(
        self,
        source: GrowingArray,
        name: str,
        level: int,
        first: NDArray[np.int64],
        last: NDArray[np.int64],
        per: int,
        kind: str | None = None,
    ) -> None:
        """Blocks `first` to `last` of each sequence; rows with the same ones are done together."""
        rows = np.flatnonzero(last > first)
        if not len(rows):
            return
        breaks = (np.diff(rows) != 1) | (np.diff(first[rows]) != 0) | (np.diff(last[rows]) != 0)
        for begin, end in pairwise([0, *(np.flatnonzero(breaks) + 1).tolist(), len(rows)]):
            size = max(1, SLAB // (per * source.shape[4] * (end - begin)))
            stop = int(last[rows[begin]])
            for block in range(int(first[rows[begin]]), stop, size):
                blocks = min(size, stop - block)
                self.summarise(source, name, level, per, kind, (int(rows[begin]), end - begin, block, blocks))

    def summarise(
        self, source: GrowingArray, name: str, level: int, per: int, kind: str | None, place: tuple[int, int, int, int]
    ) -> None:
        row, rows, block, blocks = place
        shape = (*source.shape[:2], rows, blocks * per, source.shape[4])
        values = source.read((0, 0, row, block * per, 0), shape)
        for which, found in zip(STATISTICS, summarise(values, per), strict=True):
            if kind in (None, which):
                self.arrays[level, name, which].write((0, 0, row, block, 0), found)

    def finish(self, lengths: NDArray[np.int64], coords: dict[str, xr.Variable], write_whole: Any) -> None:
        """The last, incomplete blocks; then sizes, padding and coordinates."""
        self.update(lengths)
        if self.done is None:
            return
        for row, length in enumerate(lengths.tolist()):
            for name in self.names():
                self.tail(name, row, length)
        for level in LEVELS:
            blocks = -(-lengths // level)
            for array in (array for (of, _, _), array in self.arrays.items() if of == level):
                array.resize({"sequence": len(lengths), "time": int(blocks.max(initial=0))})
                array.fill_padding(blocks)
            times = xr.Variable("time", np.arange(int(blocks.max(initial=0))) * level)
            for key, variable in {**coords, "time": times}.items():
                write_whole(self.folder / str(level), key, variable)
            write_group(self.folder / str(level), {"per": level})

    def tail(self, name: str, row: int, length: int) -> None:
        source = self.sources[name]
        per, coarse = LEVELS
        if length % per:
            start = length // per * per
            values = source.read((0, 0, row, start, 0), (*source.shape[:2], 1, length - start, source.shape[4]))
            for kind, found in zip(STATISTICS, summarise(values, length - start), strict=True):
                self.arrays[per, name, kind].write((0, 0, row, start // per, 0), found)
        if length % coarse:
            start = length // coarse * coarse
            blocks = -(-(length - start) // per)
            weight = np.minimum(per, length - start - per * np.arange(blocks))[:, None]
            for kind in STATISTICS:
                fine = self.arrays[per, name, kind]
                values = fine.read((0, 0, row, start // per, 0), (*source.shape[:2], 1, blocks, source.shape[4]))
                if kind == "mean":
                    found = (values * weight).sum(-2, keepdims=True) / weight.sum()
                else:
                    found = (np.fmin if kind == "min" else np.fmax).reduce(values, -2, keepdims=True)
                self.arrays[coarse, name, kind].write((0, 0, row, start // coarse, 0), found)

    def close(self, *, sync: bool = False) -> None:
        for array in self.arrays.values():
            array.close(sync=sync)
