"""Batches on disk as torch computes them: time first, one batch behind the other in a file, so that nothing is copied.

A file is a shard of zarr's `sharding_indexed` codec. It begins with an index, which says from the beginning where each
batch will stand; a batch that is not written yet is a hole. Only when the recording is finished are batches without a
real step taken out of the index.
"""

import os
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
HEADER = 4096
"""Bytes before the first batch: a page, so that batches begin where pages do."""
MOST = 255
"""Batches whose index fits into the header."""
TOGETHER = 512
"""Pieces handed to the system at once; it takes 1024."""
MISSING = 2**64 - 1


class Piece(NamedTuple):
    """Some rows and steps of one part, and where they stand in their file, counted in vectors of units."""

    at: int
    size: int
    part: int
    steps: slice
    rows: slice


class Region(NamedTuple):
    """Pieces that stand in one file without a gap."""

    file: tuple[int, int]  # along sequence and time
    at: int
    pieces: list[Piece]


def codecs(chunks: Sequence[int]) -> list[dict[str, Any]]:
    """What zarr has to know: chunks of (layer, direction, sequence, time, unit), each stored time first."""
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    time_first = {"name": "transpose", "configuration": {"order": [0, 1, 3, 2, 4]}}
    shard = {
        "chunk_shape": list(chunks),
        "codecs": [time_first, little],
        "index_codecs": [little, {"name": "crc32c"}],
        "index_location": "start",
    }
    return [{"name": "sharding_indexed", "configuration": shard}]


@lru_cache(maxsize=64)
def index(batches: int, size: int, kept: tuple[int, ...] | None = None) -> bytes:
    """The index of a file of so many batches of `size` bytes; those not `kept` are said to be padding.

    >>> len(index(3, 100)), np.frombuffer(index(3, 100)[:-4], "<u8").tolist()
    (52, [4096, 100, 4196, 100, 4296, 100])
    """
    from google_crc32c import value

    places = np.full((batches, 2), MISSING, "<u8")
    slots = np.arange(batches) if kept is None else np.array(kept, np.int64)
    places[slots, 0], places[slots, 1] = HEADER + slots * size, size
    content = places.tobytes()
    return content + int(value(content)).to_bytes(4, "little")


def regions(chunk: Sequence[int], batches: int, start: Sequence[int], rows: Sequence[int], steps: int) -> list[Region]:
    """Where to write parts of so many rows each, which follow each other along `sequence` from `start` on.

    `chunk` and `start` are (sequence, time). A part that fills its chunk's rows is one piece; of others each step is.

    >>> [(region.file, region.at, len(region.pieces)) for region in regions((2, 4), 3, (2, 0), [2, 2, 2], 4)]
    [((0, 0), 8, 2), ((1, 0), 0, 1)]
    """
    high, long = chunk
    found: dict[tuple[int, int], list[Piece]] = {}
    first, begin = start
    for part, count in enumerate(rows):
        for block in range(first // high, -(-(first + count) // high)):
            low, top = max(first, block * high), min(first + count, (block + 1) * high)
            if low == top:
                continue
            file, slot = divmod(block, batches)
            for cell in range(begin // long, -(-(begin + steps) // long)):
                here, end = max(begin, cell * long), min(begin + steps, (cell + 1) * long)
                once = end - here if top - low == high else 1
                for step in range(here, end, once):
                    at = (slot * long + step - cell * long) * high + low - block * high
                    times = slice(step - begin, step - begin + once)
                    piece = Piece(at, (top - low) * once, part, times, slice(low - first, top - first))
                    found.setdefault((file, cell), []).append(piece)
        first += count
    return [region for place, pieces in found.items() for region in joined(place, sorted(pieces))]


def joined(file: tuple[int, int], pieces: list[Piece]) -> list[Region]:
    """Pieces of one file, those together that leave no gap."""
    ends = np.cumsum([0, *(piece.size for piece in pieces)])
    gaps = [piece.at - int(end) for piece, end in zip(pieces, ends, strict=False)]  # the same within a run
    runs = groupby(range(len(pieces)), key=lambda k: (gaps[k], k // TOGETHER))
    found = [[pieces[k] for k in run] for _, run in runs]
    return [Region(file, run[0].at, run) for run in found]


def write_together(file: int, values: list[Array], offset: int) -> None:
    """Arrays one behind the other at one place of a file; the system may take them in several parts."""
    written = os.pwritev(file, [value.data for value in values], offset)
    if written < sum(value.nbytes for value in values):
        rest = memoryview(b"".join(value.tobytes() for value in values))
        while written < len(rest):
            written += os.pwrite(file, rest[written:], offset + written)


def file_shape(chunks: Sequence[int], batches: int) -> list[int]:
    return [*chunks[:2], chunks[2] * batches, *chunks[3:]]
