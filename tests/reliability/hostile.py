"""The process that opens hostile files: it spoils a copy of a valid recording, opens it, and says what happened.

Arguments: the folder with the valid ones (`plain.zarr plain.nc tree.zarr tree.nc stream.zarr run.zarr`). Each line it
reads is the name of a case; it answers with a line of JSON. With `--list` it prints the names of all cases. A case
whose name begins with `go on` is a store that a probe is to go on with.
"""

import hashlib
import json
import logging
import random
import resource
import shutil
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import spoil_bytes
from spoil_bytes import FOREIGN, Spoil
from spoil_netcdf import NETCDF
from spoil_zarr import STREAM, ZARR

GO_ON = "go on"
FOLDERS = ("plain.zarr", "tree.zarr", "stream.zarr")
FILES = ("plain.nc", "tree.nc")
AT_RANDOM: dict[tuple[str, ...], dict[str, int]] = {  # how often each, half as often in the trees
    FOLDERS: {
        **{"flip_metadata": 6, "flip_data": 6},
        **{"truncate": 3, "append": 3, "empty": 3, "delete": 3, "blank": 3, "flip_many": 3, "swap_files": 3},
    },
    FILES: {"flip": 12, "flip_header": 12, "truncate": 5, "blank": 5, "flip_many": 5, "append": 1},
}


def at_random() -> Iterator[tuple[str, str, Spoil]]:
    for bases, spoils in AT_RANDOM.items():
        for name, times in spoils.items():
            for base in bases:
                for k in range(times // 2 if base.startswith("tree") else times):
                    yield base, f"{name} {k}", getattr(spoil_bytes, name)


def on_purpose() -> Iterator[tuple[str, str, Spoil]]:
    for number, (name, spoil) in enumerate(ZARR.items()):
        stream = number % 4 == 3 and not name.startswith("root")
        yield "tree.zarr" if "modules" in name else "stream.zarr" if stream else "plain.zarr", name, spoil
    for name, spoil in STREAM.items():
        yield "stream.zarr", name, spoil
    for number, (name, spoil) in enumerate(NETCDF.items()):
        yield "plain.nc" if number % 3 else "tree.nc", name, spoil
    for number, (name, spoil) in enumerate(FOREIGN.items()):
        yield ("plain.zarr", "plain.nc")[number % 2], name, spoil


def stores() -> Iterator[tuple[str, str, Spoil]]:
    """Stores broken off and finished, every second spoil on each."""
    spoils = {**ZARR, **STREAM, **FOREIGN, **{name: getattr(spoil_bytes, name) for name in AT_RANDOM[FOLDERS]}}
    for number, (name, spoil) in enumerate(item for item in spoils.items() if "modules" not in item[0]):
        yield ("stream.zarr", "run.zarr")[number % 2], name, spoil


def cases() -> dict[str, tuple[str, Spoil]]:
    """Every case: what is spoiled, and how."""
    found = {f"{base}: {name}": (base, spoil) for base, name, spoil in (*on_purpose(), *at_random())}
    return found | {f"{GO_ON} {base}: {name}": (base, spoil) for base, name, spoil in stores()}


def fingerprint(path: Path) -> str:
    """What stands on disk: names, kinds, contents, times of change (of folders only their names)."""
    found = hashlib.sha256()
    for place in [path, *sorted(path.rglob("*"))] if path.is_dir() and not path.is_symlink() else [path]:
        state = place.lstat()
        if place.is_dir() and not place.is_symlink():
            found.update(str(place).encode())
            continue
        found.update(f"{place} {state.st_mode} {state.st_size} {state.st_mtime_ns}".encode())
        if place.is_file() and not place.is_symlink():
            found.update(place.read_bytes())
    return found.hexdigest()


def attempt(act: Callable[[], Any]) -> tuple[str, Any]:
    """`""` or the kind and words of the error; and what came."""
    try:
        return "", act()
    except (ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}", None


def look(path: Path) -> dict[str, Any]:
    """Everything that one does with a recording's file."""
    from gatescope.dashboards import catalogue
    from gatescope.probe.analyzers import saturation
    from gatescope.probe.schema import validate
    from gatescope.probe.store import open_recording

    said: dict[str, Any] = {}
    said["open"], opened = attempt(lambda: open_recording(path))
    if opened is not None:
        said["validate"], _ = attempt(lambda: validate(opened, values=True))
        if not said["validate"]:
            nodes = [opened] if hasattr(opened, "data_vars") and not hasattr(opened, "children") else None
            datasets = nodes or [node.to_dataset() for node in opened.children.values()]
            said["analyse"], _ = attempt(lambda: [saturation(dataset) for dataset in datasets])
        opened.close()
    (entry,) = catalogue.find([path])
    said["dashboard"] = catalogue.recordings(entry).problem
    return said


def go_on(path: Path) -> dict[str, Any]:
    """A probe that goes on with a store; where it may, what is there afterwards."""
    import torch

    import gatescope as gs

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, before = torch.nn.LSTM(3, 5, num_layers=2), fingerprint(path)

    def act() -> None:
        with torch.no_grad(), gs.attach(model, store=path, append=True) as probe:
            probe.annotate(token=["a" * 12, "b" * 12])
            model(torch.zeros(12, 2, 3))

    said = {"append": attempt(act)[0]}
    if said["append"]:
        return {**said, "open": "", "touched": fingerprint(path) != before}
    said["open"], opened = attempt(lambda: gs.open_recording(path))
    if opened is not None:
        said["validate"] = attempt(lambda: gs.validate(opened, values=True))[0]
    return {**said, "touched": False}


def run(folder: Path, name: str) -> dict[str, Any]:
    base, spoil = cases()[name]
    place = folder / f"spoiled-{hashlib.sha256(name.encode()).hexdigest()[:12]}"  # no path is opened twice
    place.mkdir()
    path = place / base
    source = folder / base
    shutil.copytree(source, path, symlinks=True) if source.is_dir() else shutil.copy(source, path)
    spoil(path, random.Random(name))
    before, memory = fingerprint(path), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun = time.perf_counter()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        said = go_on(path) if name.startswith(GO_ON) else look(path)
    seconds, peak = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    changed = said.pop("touched") if "touched" in said else fingerprint(path) != before
    shutil.rmtree(place, ignore_errors=True)
    return {
        "said": said,
        "seconds": seconds,
        "grown": (peak - memory) / 1e3,
        "changed": changed,
        "warned": [str(warning.message) for warning in warned],
    }


def main() -> None:
    if sys.argv[1] == "--list":
        print("\n".join(cases()))
        return
    folder = Path(sys.argv[1])
    logging.disable(logging.CRITICAL)  # streamlit says that it runs without a server
    for name in ("plain.nc", "plain.zarr"):
        look(folder / name)  # so that no case pays for what is loaded once
    for line in sys.stdin:
        try:
            answer = run(folder, line.rstrip("\n"))
        except BaseException as error:
            places = [f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)]
            answer = {"broke": f"{type(error).__name__}: {error}"[:2000], "trace": places[-6:]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
