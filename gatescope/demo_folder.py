"""A folder of results that is written as a whole, may be written again, and never loses what others put into it."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

MARK = ".gatescope-demo.json"  # names what an earlier run wrote
PARTIAL = ".partial-"
FORGOTTEN = 600  # seconds after which the half-written results of a killed run are taken away


@contextmanager
def results_folder(out: Path) -> Iterator[Path]:
    """A new folder to write results into; when the block ends without an error they all replace the earlier ones.

    Entries are swapped by renaming, so nothing half-written is ever seen under its name, and if a swap fails those
    already done are undone. Whatever an earlier run did not write stays.

    Raises
    ------
    ValueError
        If `out` is no folder, or a folder with something in it that no earlier run wrote; if a result has the name
        of something that an earlier run did not write.
    """
    check(out)
    new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    if not (out / MARK).exists():
        write_mark(out, [])
    for left in out.glob(PARTIAL + "*"):
        if time.time() - left.stat().st_mtime > FORGOTTEN:
            shutil.rmtree(left, ignore_errors=True)
    partial = out / f"{PARTIAL}{uuid4().hex[:8]}"
    fresh, aside = partial / "new", partial / "old"
    try:
        fresh.mkdir(parents=True)
        aside.mkdir()
        yield fresh
        swap(fresh, aside, out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if not written(out):
            (out / MARK).unlink(missing_ok=True)
            if new:
                with suppress(OSError):  # somebody put something into it meanwhile
                    out.rmdir()


def check(out: Path) -> None:
    """Say before the work begins that its results could not be written."""
    if not os.path.lexists(out):
        return
    if not out.is_dir():
        raise ValueError(f"out must be a folder; {out} is a file. Name another one with --out.")
    if (out / MARK).is_file():
        written(out)
        return
    found = sorted(path.name for path in out.iterdir())
    if found:
        listed = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
        raise ValueError(
            f"out must be a new or empty folder, or one that an earlier demo filled; {out} holds {listed}. "
            "Name another one with --out."
        )


def written(out: Path) -> list[str]:
    """Names of the results that an earlier run left."""
    try:
        names = json.loads((out / MARK).read_text(encoding="utf-8"))["written"]
        if all(isinstance(name, str) and name == Path(name).name and name not in ("", "..") for name in names):
            return list(names)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{out / MARK} must say what an earlier demo wrote; it cannot be read. Name another folder.")


def write_mark(out: Path, names: list[str]) -> None:
    partial = out / f"{MARK}.{uuid4().hex[:8]}"
    partial.write_text(json.dumps({"written": names}), encoding="utf-8")
    os.replace(partial, out / MARK)


def swap(fresh: Path, aside: Path, out: Path) -> None:
    """Move every new result to its place and the old ones away; after an error everything is as before."""
    old, new = written(out), sorted(path.name for path in fresh.iterdir())
    foreign = [name for name in new if name not in old and os.path.lexists(out / name)]
    if foreign:
        raise ValueError(f"{out / foreign[0]} must not exist, for no earlier demo wrote it. Move it away.")
    write_mark(out, sorted({*old, *new}))
    done: list[tuple[Path, Path]] = []
    try:
        for name in [name for name in old if os.path.lexists(out / name)]:
            move(out / name, aside / name, done)
        for name in new:
            move(fresh / name, out / name, done)
    except BaseException:
        for source, target in reversed(done):
            os.rename(target, source)
        write_mark(out, old)
        raise
    write_mark(out, new)


def move(source: Path, target: Path, done: list[tuple[Path, Path]]) -> None:
    os.rename(source, target)
    done.append((source, target))
