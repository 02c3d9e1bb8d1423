"""What a growing store holds for certain: the commit record, the journal of its sequences, and the writer's lock."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .growing import write_group
from .layout import STARTS

FOLDER = ".stream"
LOCK = "lock"
BEGUN = "begun"
"""A file that is there until the first commit: what lies beside it may be thrown away."""
FORMAT = "gatescope.stream/1"
JOURNAL = np.dtype([("sequence", "<i8"), ("length", "<i8"), ("stream", "<i8"), ("start", "<i8")])
_HELD: set[Path] = set()


class Sequences(NamedTuple):
    """One entry per sequence."""

    length: NDArray[np.int64]
    stream: NDArray[np.int64]
    start: NDArray[Any]  # text


def read_record(path: Path) -> dict[str, Any] | None:
    """The last commit of a store; `None` for a folder that was not written by streaming or was never committed."""
    try:
        attrs = json.loads((path / FOLDER / "zarr.json").read_text(encoding="utf-8"))["attributes"]
    except FileNotFoundError:
        return None
    return attrs if attrs.get("format") == FORMAT else None


def write_record(path: Path, record: dict[str, Any], *, sync: bool = False) -> None:
    """Commit: everything named in the record is on disk when this begins, and counts when it has ended."""
    write_group(path / FOLDER, {"format": FORMAT, **record}, sync=sync)


def journal_path(path: Path, number: int) -> Path:
    return path / FOLDER / f"{number}.journal"


def read_journal(path: Path, number: int, size: int, sequences: int) -> Sequences:
    """The sequences of one module as they were at a commit: the last word on each counts."""
    found = journal_path(path, number).stat().st_size
    if not 0 <= size <= found:
        raise ValueError(f"the journal must hold {size} bytes; it holds {found}")
    with journal_path(path, number).open("rb") as file:
        entries = np.frombuffer(file.read(size), JOURNAL)
    if not 0 <= sequences <= len(entries) or set(np.unique(entries["sequence"]).tolist()) != set(range(sequences)):
        raise ValueError(f"the journal must tell of {sequences} sequences; it tells of others")
    last = np.zeros(sequences, JOURNAL)
    last[entries["sequence"]] = entries  # of repeated places numpy keeps the last
    starts = np.array(STARTS, dtype=object)[last["start"]]
    return Sequences(last["length"].astype(np.int64), last["stream"].astype(np.int64), starts)


def append_journal(path: Path, number: int, size: int, entries: NDArray[Any], *, sync: bool = False) -> int:
    """Write entries behind the committed ones; the size to commit."""
    content = entries.tobytes()
    with journal_path(path, number).open("r+b" if size else "wb") as file:
        file.seek(size)
        file.write(content)
        file.truncate()
        if sync:
            file.flush()
            os.fsync(file.fileno())
    return size + len(content)


class Lock:
    """One writer per store: held by the operating system for this process, so that a dead one holds nothing."""

    def __init__(self, path: Path) -> None:
        self.path = Path(os.path.realpath(path / FOLDER / LOCK))  # Path.resolve() raises where a link leads to itself
        self.store = path
        self.file: int | None = None
        self.created = False

    def take(self) -> None:
        if self.path in _HELD:
            raise self.refusal("this process")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.created = not self.path.exists()
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            lock_file(file)
        except OSError:
            owner = os.pread(file, 32, 0).decode(errors="replace").strip()
            os.close(file)
            raise self.refusal(f"process {owner}" if owner else "another process") from None
        self.file = file
        _HELD.add(self.path)

    def sign(self) -> None:
        """Say whose it is, once it is certain that the store may be changed."""
        if self.file is not None:
            os.ftruncate(self.file, 0)
            os.pwrite(self.file, str(os.getpid()).encode(), 0)
            self.created = False

    def release(self) -> None:
        if self.file is not None:
            if self.created:
                self.path.unlink(missing_ok=True)
            os.close(self.file)
            self.file = None
            _HELD.discard(self.path)

    def refusal(self, owner: str) -> BlockingIOError:
        return BlockingIOError(
            f"A store must have one writer at a time; {owner} is writing to {str(self.store)!r}. "
            "Wait until it ends, or choose another path."
        )


def lock_file(file: int) -> None:
    """Of the process and not of its children, which may outlive it."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
