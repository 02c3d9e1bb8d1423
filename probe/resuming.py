"""Whether a store can be gone on with: looked at before anything in it is changed."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from .commits import BEGUN, FOLDER, LOCK, read_journal, read_record
from .growing import GrowingArray
from .guards import check_regular
from .layout import SchemaError
from .store import open_recording
from .stored import OWN
from .streamed import read_module

T = TypeVar("T")


class DifferentError(ValueError):
    """A store that is whole, of another model or with other settings."""


def check_ours(path: Path) -> None:
    """Refuse what cannot be a store, before a lock is looked for in it."""
    own = path / FOLDER
    real = path.is_dir() and own.is_dir() and not own.is_symlink()
    if not real or not any(is_plain(own / name) for name in (LOCK, "zarr.json")) or (own / LOCK).is_symlink():
        raise something_else(path)


def is_plain(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()


def something_else(path: Path) -> FileExistsError:
    return FileExistsError(
        f"Only what attach(store=...) wrote can be gone on with; {str(path)!r} is something else. Choose another path."
    )


def record_of(path: Path) -> dict[str, Any] | None:
    """The last commit of a store that is whole; `None` where nothing was committed and nothing can be lost.

    Raises `SchemaError` where a store is damaged, `FileExistsError` where a folder is none.
    """
    check_regular(path)
    for here, folders, files in os.walk(path):
        for name in (*folders, *files):
            if os.path.islink(os.path.join(here, name)):
                raise damaged(path, f"{os.path.join(here, name)} is a link")
    record = sound(path, lambda: read_record(path))
    if record is None:
        if (path / FOLDER / "zarr.json").exists():
            raise damaged(path, "its commit record is none of this format")
        if not (path / FOLDER / BEGUN).exists() and {entry.name for entry in path.iterdir()} != {FOLDER}:
            raise something_else(path)
        return None
    sound(path, lambda: check_record(path, record))
    open_recording(path).close()
    return record


def sound(path: Path, look: Callable[[], T]) -> T:
    """What is seen, or a sentence that says why it cannot be."""
    try:
        return look()
    except (PermissionError, SchemaError, DifferentError):
        raise
    except Exception as error:
        words = str(error).strip().splitlines() or [""]
        raise damaged(path, f"{type(error).__name__}: {words[0][:200]}") from error


def damaged(path: Path, why: str) -> SchemaError:
    return SchemaError(
        f"A store must be whole to be gone on with; {str(path)!r} is not ({why}). Restore it, or choose another path."
    )


def check_record(path: Path, record: Mapping[str, Any]) -> None:
    """Everything that a writer will go on from."""
    json.dumps(record["settings"]), str(record["schema"])
    modules = list(record["modules"].items())
    if [module["number"] for _, module in modules] != list(range(len(modules))) or not modules:
        raise ValueError("its modules are not numbered")
    for name, module in modules:
        if module["group"] != (name if len(record["settings"]["modules"]) > 1 else ""):
            raise ValueError(f"module {name!r} stands elsewhere")
        counts = [*module["chunking"], module["sequences"], module["steps"], module["journal"], module["calls"]]
        if not all(type(count) is int and 0 <= count < 2**62 for count in counts) or len(counts) not in (6, 7):
            raise ValueError(f"sizes of {name!r} are no numbers")
        if not isinstance(module["more"]["weights"], str) or not isinstance(module["attrs"]["created"], str):
            raise ValueError(f"{name!r} does not say what it is of")
        sequences = read_journal(path, module["number"], module["journal"], module["sequences"])
        read_module(path / module["group"], module, sequences).close()
        for variable in (*module["contents"]["coordinates"], *module["contents"]["variables"]):
            if variable not in OWN:
                sizes = {"sequence": module["sequences"], "time": module["steps"]} if record["finished"] else {}
                check_array(path / module["group"] / variable, sizes)


def check_array(folder: Path, sizes: Mapping[str, int]) -> None:
    """An array as the writer makes them, in a finished store of these sizes, its files as long as they were made."""
    array = GrowingArray.found(folder)
    there = json.loads((folder / "zarr.json").read_text(encoding="utf-8"))
    if there != json.loads(json.dumps(array.description())):
        raise ValueError(f"{folder.name!r} is not as it was made")
    if any(sizes.get(dim, size) != size for dim, size in zip(array.dims, array.shape, strict=True)):
        raise ValueError(f"{folder.name!r} has shape {array.shape} where {dict(sizes)} were committed")
    for file, _ in array.chunk_files():
        if array.dtype != object and file.stat().st_size != array.file_bytes:
            raise ValueError(f"{file.name} of {folder.name!r} has {file.stat().st_size} bytes of {array.file_bytes}")
