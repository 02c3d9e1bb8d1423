"""A store that is written while a probe records: buffered, committed step by step, and finished at the end."""

import errno
import json
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import xarray as xr

from ..signals import SCHEMA
from . import zarr_files
from .commits import BEGUN, FOLDER, Lock, write_record
from .growing import write_group
from .progress import Bar, bar
from .resuming import DifferentError, check_ours, record_of, sound
from .sinks import Sink
from .spool import Spool, bytes_of
from .store import FULL, open_recording
from .stored import StoredModule
from .storing import Storing, check_units, fingerprint
from .text import escape
from .track import Chunk, Track

BUFFER_BYTES = 16 * 2**20
BUFFER_SECONDS = 5.0


@dataclass(slots=True)
class Held:
    """A call that waits to be written."""

    path: str
    chunk: Chunk
    final: bool = False


class Stream(Sink):
    """What a probe with `store=` hands its calls to."""

    def __init__(
        self, storing: Storing, tracks: Mapping[str, Track], wanted: Mapping[str, frozenset[str]], *, sums: bool
    ) -> None:
        check_units(storing.units, tracks)
        self.storing, self.tracks, self.sums = storing, tracks, sums
        self.path = storing.path
        self.settings = storing.settings({path: names for path, names in wanted.items() if names})
        self.lock = Lock(self.path)
        self.waiting: deque[Held] = deque()
        self.unsettled: dict[int, list[Held]] = {}  # of those, by thread
        self.bytes = 0
        self.since = time.monotonic()
        self.spools: dict[str, Spool] = {}
        self.fresh = self.finished = self.broken = False  # fresh: begun here, and nothing committed yet
        self.bar: Bar | None = None

    def start(self) -> None:
        """Take the store for this process, and begin it or go on with it."""
        if not self.path.parent.is_dir():
            raise FileNotFoundError(f"The folder {str(self.path.parent)!r} must exist; it does not. Make it first.")
        if os.path.lexists(self.path):
            self.require_append()
            check_ours(self.path)
        self.lock.take()
        try:
            record = record_of(self.path)
            if record is None:
                self.begin()
            else:
                self.require_append()
                self.go_on(record)
            self.require_room(BUFFER_BYTES)
        except BaseException:
            self.close()
            raise
        self.bar = bar(self.storing.progress)

    def require_append(self) -> None:
        if not self.storing.append:
            raise FileExistsError(
                f"Nothing may exist at the store's path unless it is to be gone on with; {str(self.path)!r} exists. "
                "Choose another path, or say append=True."
            )

    def begin(self) -> None:
        """Begin, or begin anew where a run died before its first commit."""
        self.fresh = True
        self.lock.sign()
        (self.path / FOLDER / BEGUN).touch()
        for entry in self.path.iterdir():
            if entry.name == FOLDER:
                continue
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        write_group(self.path, {})

    def go_on(self, record: dict[str, Any]) -> None:
        sound(self.path, lambda: self.require_same(record))
        self.lock.sign()
        write_record(self.path, {**record, "finished": False})
        for path, module in record["modules"].items():
            stored = StoredModule.found(self.path, module)
            self.spools[path] = Spool(self.tracks[path], self.storing, stored, sums=self.sums)

    def require_same(self, record: dict[str, Any]) -> None:
        """Refuse to go on with what was begun otherwise."""
        now: dict[str, Any] = {"schema": SCHEMA, **self.settings}
        there: dict[str, Any] = {"schema": record["schema"], **record["settings"]}
        for path, module in record["modules"].items():
            if path in self.tracks:  # as the settings say of all
                now[f"hash of the weights of {path!r}"] = fingerprint(self.tracks[path])
                there[f"hash of the weights of {path!r}"] = module["more"]["weights"]
        for what, value in now.items():
            if there.get(what) != value:
                raise DifferentError(
                    f"A store can be gone on with by the same model and settings only; in {str(self.path)!r} {what} is "
                    f"{there.get(what)}, now it is {value}. Attach as before, or choose another path."
                )

    def take(self, path: str, chunk: Chunk) -> None:
        """Hold a call until the call of the model in which it was made has ended."""
        if self.broken:
            raise OSError(errno.EIO, "A store must take every call; an earlier one could not be written. Attach again")
        held, track = Held(path, chunk), self.tracks[path]
        self.waiting.append(held)
        self.unsettled.setdefault(threading.get_ident(), []).append(held)
        self.bytes += bytes_of(chunk)
        track.chunks.clear()
        track.sequences.first.clear()

    def settle(self) -> None:
        """This thread's calls are final; write when enough has gathered."""
        final = self.unsettled.pop(threading.get_ident(), [])
        for held in final:
            held.final = True
        if final and self.bar is not None:
            self.bar.update()
        if self.bytes >= BUFFER_BYTES or time.monotonic() - self.since > BUFFER_SECONDS:
            self.flush()

    def flush(self, *, sync: bool = False, every_thread: bool = False) -> None:
        """Write all calls that are final, then commit them. After an error the store stays as it was."""
        taken: list[Held] = []
        while self.waiting and (every_thread or self.waiting[0].final):
            taken.append(self.waiting.popleft())
        self.since = time.monotonic()
        if self.broken or not (taken or sync):
            return
        try:
            self.require_room(int(1.5 * self.bytes) + 2**20)
            self.write(taken)
            for spool in self.spools.values():
                spool.stored.flush(sync=sync)
            self.commit(sync=sync)
        except BaseException as error:
            self.broken = True
            if isinstance(error, OSError) and error.errno in FULL:
                raise self.full(str(error.strerror)) from error
            raise
        self.bytes = sum(bytes_of(held.chunk) for held in self.waiting)

    def write(self, taken: Sequence[Held]) -> None:
        for path in dict.fromkeys(held.path for held in taken):
            if path not in self.spools:
                group = path if len(self.tracks) > 1 else ""
                stored = StoredModule(self.path, len(self.spools), group)
                stored.more["weights"] = fingerprint(self.tracks[path])
                self.spools[path] = Spool(self.tracks[path], self.storing, stored, sums=self.sums)
            self.spools[path].write([held.chunk for held in taken if held.path == path])

    def commit(self, *, sync: bool = False, finished: bool = False) -> None:
        modules = {path: spool.stored.record() for path, spool in self.spools.items()}
        record = {"schema": SCHEMA, "finished": finished, "settings": self.settings, "modules": modules}
        if modules:
            write_record(self.path, record, sync=sync)
        if modules and self.fresh:
            self.fresh = False
            (self.path / FOLDER / BEGUN).unlink(missing_ok=True)

    def finish(self) -> None:
        """Write what is left, make it a plain recording, and let the store go."""
        try:
            self.flush(every_thread=True)
            if self.spools and not self.broken:
                self.complete()
        finally:
            self.close()

    def complete(self) -> None:
        """Padding, coordinates and attributes, as `save_recording` writes them."""
        try:
            attrs = {spool.stored.group: spool.stored.finish() for spool in self.spools.values()}
            for group, own in attrs.items():
                if group:
                    write_group(self.path / group, own)
            write_group(self.path, root_attrs(self.path, attrs))
            self.commit(finished=True)
            self.finished = True
        except OSError as error:
            if error.errno in FULL:
                raise self.full(str(error.strerror)) from error
            raise

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()
        for spool in self.spools.values():
            for array in spool.stored.arrays.values():
                array.close()
        self.lock.release()
        if self.fresh:  # nothing was recorded
            self.fresh = False
            with suppress(OSError):
                shutil.rmtree(self.path)

    def require_room(self, needed: int) -> None:
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise OSError(
                errno.ENOSPC,
                f"The disk must have room for the next buffer of {needed:,} bytes; {free:,} are free at "
                f"{str(self.path)!r}. Everything up to the last flush can be read: free some space and attach again "
                "with append=True",
            )

    def full(self, reason: str) -> OSError:
        return OSError(
            errno.ENOSPC,
            f"The disk must take the next buffer of {self.bytes:,} bytes at {str(self.path)!r}; it does not ({reason}; "
            f"{shutil.disk_usage(self.path).free:,} bytes are free). Everything up to the last flush can be read: free "
            "some space and attach again with append=True",
        )

    def recordings(self, paths: Sequence[str]) -> dict[str, xr.Dataset]:
        """What was stored of them so far, opened lazily."""
        if self.lock.file is not None:
            self.flush()
        opened = open_recording(self.path)
        if isinstance(opened, xr.Dataset):
            return {next(iter(self.spools)): opened}
        return {path: opened.children[path].to_dataset() for path in paths if path in opened.children}


def root_attrs(path: Any, attrs: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """What the root of a finished store says, as `save_recording` does."""
    stored = {"stored": json.dumps(zarr_files.weight(path))}
    if "" in attrs:
        return {**attrs[""], **stored}
    return {"schema": SCHEMA, "modules": escape(json.dumps(list(attrs))), **stored}
