"""What must hold of a file or folder before anything in it is believed."""

import os
import stat
from collections.abc import Iterable
from math import prod
from pathlib import Path

from .layout import CHUNK_NAME, SchemaError

FREE = 64 * 2**20
"""Bytes that coordinates and labels may always take."""
RATIO = 200
"""Beyond that, how often the bytes on disk: padding need not be written, so that some more is possible."""


def check_regular(source: Path) -> None:
    """Refuse pipes, devices and links out of a folder, which would be read for ever or show what was never given."""
    if not source.is_dir():
        if not source.is_file():
            raise SchemaError(f"A recording must be a file or a folder; {str(source)!r} is neither.")
        return
    inside = os.path.realpath(source)
    for here, folders, files in os.walk(source):
        for place in (os.path.join(here, name) for name in (*folders, *files)):
            _check_place(place, inside)


def _check_place(place: str, inside: str) -> None:
    if os.path.islink(place) and os.path.commonpath([inside, os.path.realpath(place)]) != inside:
        raise SchemaError(
            f"A recording must be whole in itself; {place} is a link that leaves it. Copy it with its contents."
        )
    try:
        kind = os.stat(place).st_mode
    except OSError as error:
        raise SchemaError(f"A recording must be whole; {place} cannot be followed ({error.strerror}).") from None
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
        raise SchemaError(f"A recording must consist of files and folders; {place} is neither.")


def size_on_disk(source: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    if not source.is_dir():
        return source.stat().st_size
    return sum(os.lstat(os.path.join(here, name)).st_size for here, _, files in os.walk(source) for name in files)


def check_declared(name: str, shape: Iterable[int], itemsize: int, size: int) -> None:
    """Refuse to read at once what is said to be far larger than all `size` bytes on disk.

    >>> check_declared("call", (3, 12), 8, size=10_000)
    """
    declared = prod(shape) * itemsize
    if not 0 <= declared <= FREE + RATIO * size:
        raise SchemaError(
            f"{name!r} must not be larger than what is stored; it is said to have {float(min(declared, 10**300)):.3g} "
            f"bytes where {size} stand on disk. Copy it again, or record again."
        )


def check_dims(name: str, dims: object, count: int) -> None:
    """Refuse an array whose dimensions have no names, or the same one twice."""
    names = list(dims) if isinstance(dims, list | tuple) else []
    if len(names) != count or len({*map(str, names)}) != count or not all(isinstance(n, str) and n for n in names):
        raise SchemaError(f"{name!r} must have {count} dimensions of different names; {str(dims)[:200]} came.")


def check_texts(folder: Path, count: int) -> None:
    """Refuse chunks of text that do not say first how many they hold: a decoder makes room for any number."""
    for here, _, files in os.walk(folder):
        for name in filter(CHUNK_NAME.fullmatch, files):
            with open(os.path.join(here, name), "rb") as file:
                if int.from_bytes(file.read(4), "little") != count:
                    raise SchemaError(f"The chunks of text {folder.name!r} must hold {count} texts each; one does not.")
