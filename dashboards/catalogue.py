"""The recordings that the reader may open: those in the folders given on the command line, examples, and nothing else.

What the address of the page asks for is only ever compared with names found here; it is never used as a path.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import streamlit as st
import xarray as xr

from ..probe.store import open_recording
from ..tasks.examples import examples, load_example

SUFFIXES = (".zarr", ".nc")
LESIONS = ".ablation.nc"  # what a network loses without its units, beside the recording of that name
RESET_FROM_OUTSIDE = "cerg-external-reset"  # the example whose network is put to rest at every start of a string
DEPTH = 4  # folders below a given one that are searched


class Entry(NamedTuple):
    """A place that looks like a recording: the name to show, where it is, and why it may not be opened.

    Or a trained network that comes with gatescope: its `example` name, and a path that is no file's.
    """

    name: str
    path: Path
    problem: str = ""
    example: str = ""


class Opened(NamedTuple):
    """Recordings by module, or the sentence that says why there are none; `tree`: they are nodes of a DataTree."""

    modules: dict[str, xr.Dataset]
    tree: bool = False
    problem: str = ""


def find(folders: Sequence[str | Path]) -> list[Entry]:
    """Every `.zarr` folder and `.nc` file in some folders (or given itself), sorted by name."""
    found: dict[Path, Entry] = {}
    for folder in map(Path, folders):
        for path in _candidates(folder):
            shown = path.name if path == folder else path.relative_to(folder).as_posix()
            name = shown if path == folder or len(folders) == 1 else f"{folder.resolve().name}/{shown}"
            found.setdefault(path.absolute(), Entry(name, path.absolute(), _refusal(path, folder)))
    entries = [entry._replace(name=readable(entry.name)) for entry in found.values()]
    entries = _told_apart(entries, lambda path: readable(str(path)))
    return sorted(_told_apart(entries, lambda path: repr(str(path))), key=lambda entry: entry.name)


def _told_apart(entries: list[Entry], longer: Callable[[Path], str]) -> list[Entry]:
    count = Counter(entry.name for entry in entries)
    return [entry if count[entry.name] == 1 else entry._replace(name=longer(entry.path)) for entry in entries]


def readable(name: str) -> str:
    """A name that can be sent to a browser: bytes in it that are no text are replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _candidates(folder: Path) -> Iterator[Path]:
    if folder.suffix in SUFFIXES:
        yield folder
        return
    for here, folders, files in os.walk(folder, followlinks=False):
        deep = len(Path(here).relative_to(folder).parts)
        stores = [name for name in folders if name.endswith(".zarr") and not name.startswith(".")]
        yield from (Path(here, name) for name in stores)
        files = [name for name in files if name.endswith(SUFFIXES) and not name.endswith(LESIONS)]
        yield from (Path(here, name) for name in files if not name.startswith("."))
        folders[:] = [n for n in folders if n not in stores and not n.startswith(".")] if deep < DEPTH else []


def _refusal(path: Path, folder: Path) -> str:
    """Why a place must not be followed: it is a link to outside of the folder that was given."""
    inside = os.path.realpath(folder)
    if path == folder or not path.is_symlink() or Path(os.path.realpath(path)).is_relative_to(inside):
        return ""
    shown = readable(str(path))
    return (
        f"A recording must lie in the folder given; {shown} is a link that leaves it. Give the link's target instead."
    )


def embedded() -> list[Entry]:
    """The trained networks that come with gatescope, recorded when somebody chooses one."""
    return [Entry(f"example: {name}", Path(f"example: {name}"), example=name) for name in sorted(examples())]


def beside(path: Path) -> Path:
    """Where lesions of a recording lie, if they were measured.

    >>> beside(Path("runs/net.zarr")).as_posix()
    'runs/net.ablation.nc'
    """
    return path.with_name(path.stem + LESIONS)


def stamp(path: Path) -> str:
    """What changes when something else is saved under the same path."""
    parts = [path, path / "zarr.json"]
    return " ".join(f"{p.stat().st_mtime_ns}-{p.stat().st_ino}" for p in parts if p.exists())


def version(entry: Entry) -> str:
    """What tells a recording from an earlier one of its name."""
    return entry.example or stamp(entry.path)


def recordings(entry: Entry) -> Opened:
    """Open a recording, lazily, once for all sessions for as long as it does not change on disk."""
    if entry.problem:
        return Opened({}, problem=entry.problem)
    if entry.example:
        return _recorded(entry.example)
    return _opened(os.fsencode(entry.path), stamp(entry.path))


@st.cache_resource(max_entries=32, show_spinner=False)
def _opened(path: bytes, changed: str) -> Opened:  # a parameter with an underscore in front would not be in the key
    try:
        recording = open_recording(os.fsdecode(path))
    except (ValueError, OSError) as error:
        return Opened({}, problem=readable(str(error)))
    if isinstance(recording, xr.DataTree):
        return Opened({str(name): node.to_dataset() for name, node in recording.children.items()}, tree=True)
    return Opened({str(recording.attrs["module"]): recording})


@st.cache_resource(max_entries=8, show_spinner="Recording the example ...")
def _recorded(example: str) -> Opened:
    import torch

    from ..probe.attach import record

    model, sample = load_example(example)
    inputs = torch.from_numpy(sample.inputs)
    resets = {"reset": torch.from_numpy(sample.labels["boundary"])} if example == RESET_FROM_OUTSIDE else {}
    recording = record(model, inputs, inputs_kwargs=resets, labels=sample.labels)
    return Opened({str(recording.attrs["module"]): recording})
