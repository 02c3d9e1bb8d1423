"""One writer per folder: the operating system holds the lock for the process, so that a dead one holds nothing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_HELD: set[Path] = set()


@contextmanager
def writers_lock(file: Path, folder: Path) -> Iterator[None]:
    """Hold the lock of a folder for the block; children of this process do not hold it.

    Raises
    ------
    BlockingIOError
        If another process holds it, or this one already.
    """
    key = Path(os.path.realpath(file))
    if key in _HELD:
        raise refusal("this process", folder)
    opened = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            take(opened)
        except OSError:
            owner = os.pread(opened, 32, 0).decode(errors="replace").strip()
            raise refusal(f"process {owner}" if owner else "another process", folder) from None
        os.ftruncate(opened, 0)
        os.pwrite(opened, str(os.getpid()).encode(), 0)
        _HELD.add(key)
        try:
            yield
        finally:
            _HELD.discard(key)
    finally:
        os.close(opened)


def refusal(owner: str, folder: Path) -> BlockingIOError:
    return BlockingIOError(
        f"a folder of results must have one writer at a time; {owner} is writing to {folder}. "
        "Wait until it ends, or name another folder with --out."
    )


def take(opened: int) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(opened, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        return
    fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
