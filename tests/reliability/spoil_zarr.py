"""Ways to spoil a zarr folder, and one that a stream was broken off in."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from spoil_bytes import HTML, Spoil, edited

HUGE = 10**15


def arrays(path: Path) -> list[Path]:
    return sorted(f.parent for f in path.rglob("zarr.json") if json.loads(f.read_text())["node_type"] == "array")


def swap_arrays(path: Path, rng: random.Random) -> None:
    one, other = rng.sample(arrays(path), 2)
    one.rename(path / "x")
    other.rename(one)
    (path / "x").rename(other)


def swap_group_and_array(path: Path, rng: random.Random) -> None:
    array = rng.choice(arrays(path))
    shutil.copy(path / "zarr.json", array / "zarr.json")


def array_at_the_root(path: Path, rng: random.Random) -> None:
    shutil.copy(rng.choice(arrays(path)) / "zarr.json", path / "zarr.json")


def metadata(key: str, value: Any, name: str | None = None) -> Spoil:
    """The metadata of one array (any, or all of that name) with another value, deep in it or not."""

    def spoil(path: Path, rng: random.Random) -> None:
        chosen = [f for f in arrays(path) if f.name == name] or [rng.choice(arrays(path))]
        for folder in chosen:
            described = json.loads((folder / "zarr.json").read_text())
            *way, last = key.split(".")
            place = described
            for step in way:
                place = place[step]
            now = value(place.get(last)) if callable(value) else value
            place[last] = now
            (folder / "zarr.json").write_text(json.dumps(described))

    return spoil


def all_metadata(key: str, value: Any) -> Spoil:
    def spoil(path: Path, rng: random.Random) -> None:
        for folder in arrays(path):
            metadata(key, value, folder.name)(path, rng)

    return spoil


def root(key: str, value: Any) -> Spoil:
    """The attributes of the root (and of the commit record, where there is one) with another value."""

    def spoil(path: Path, rng: random.Random) -> None:
        for file in (path / "zarr.json", path / ".stream" / "zarr.json"):
            if file.exists():
                described = json.loads(file.read_text())
                attributes = described["attributes"]
                attributes[key] = value(attributes.get(key)) if callable(value) else value
                file.write_text(json.dumps(described))

    return spoil


def commit(change: Callable[[dict[str, Any], dict[str, Any]], Any]) -> Spoil:
    """The commit record of a stream, changed: the whole of it and its first module are given."""

    def spoil(path: Path, rng: random.Random) -> None:
        file = path / ".stream" / "zarr.json"
        described = json.loads(file.read_text())
        change(described["attributes"], next(iter(described["attributes"]["modules"].values())))
        file.write_text(json.dumps(described))

    return spoil


def steps(count: int) -> Spoil:
    """Every array that runs over time has so many steps, in chunks of which most were never written."""

    def spoil(path: Path, rng: random.Random) -> None:
        for folder in arrays(path):
            described = json.loads((folder / "zarr.json").read_text())
            if "time" in described["dimension_names"]:
                described["shape"][described["dimension_names"].index("time")] = count
                (folder / "zarr.json").write_text(json.dumps(described))

    return spoil


def link(where: str, to: str) -> Spoil:
    """Something within replaced by a link: `where` is metadata, a chunk, an array or the root's metadata."""

    def spoil(path: Path, rng: random.Random) -> None:
        array = next(folder for folder in arrays(path) if folder.name == "cell_state")
        chunk = next(file for file in sorted(array.rglob("*")) if file.is_file() and file.suffix != ".json")
        place = {"array": array, "metadata": array / "zarr.json", "chunk": chunk, "root": path / "zarr.json"}[where]
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        like = path.parent.parent / path.name / place.relative_to(path)
        place.symlink_to({"itself": place, "above": path.parent, "its like": like}.get(to, to))

    return spoil


def fifo_within(path: Path, rng: random.Random) -> None:
    place = rng.choice(arrays(path)) / "zarr.json"
    place.unlink()
    os.mkfifo(place)


def fifo_chunk(path: Path, rng: random.Random) -> None:
    link("chunk", "itself")(path, rng)
    place = next(file for file in path.rglob("*") if file.is_symlink())
    place.unlink()
    os.mkfifo(place)


def deep_folders(path: Path, rng: random.Random) -> None:
    here = path / "deep"
    for _ in range(400):
        here = here / "d" if len(str(here)) < 3000 else here
        here.mkdir(parents=True, exist_ok=True)
    shutil.copy(path / "zarr.json", path / "deep" / "zarr.json")


def deep_json(path: Path, rng: random.Random) -> None:
    (path / "zarr.json").write_text("[" * 200_000 + "]" * 200_000)


def deep_attribute(path: Path, rng: random.Random) -> None:
    text = (path / "zarr.json").read_text()
    (path / "zarr.json").write_text(text.replace('"schema"', '"deep": ' + "[" * 900 + "]" * 900 + ', "schema"', 1))


def large_json(path: Path, rng: random.Random) -> None:
    root("module", "x" * 5_000_000)(path, rng)


def not_unicode(path: Path, rng: random.Random) -> None:
    edited(path / "zarr.json", lambda content: content.__setitem__(slice(20, 24), b"\xff\xfe\xc0\x80"))


def many_arrays(path: Path, rng: random.Random) -> None:
    array = arrays(path)[0]
    for k in range(300):
        shutil.copytree(array, array.parent / f"copy{k}")


ZARR: dict[str, Spoil] = {
    **{f"shape {value}": metadata("shape", value) for value in ([], [-1], [1.5], "many", None, [HUGE], [[1]], {})},
    **{
        f"cell_state of shape {value}": metadata("shape", value, "cell_state")
        for value in ([1, 1, 1, 1, HUGE], [2] * 5)
    },
    **{f"every shape {n}": all_metadata("shape", lambda old, n=n: [n] * len(old)) for n in (HUGE, -3, 0, 2**63)},
    "10**12 steps": steps(10**12),
    "2 * 10**8 steps": steps(2 * 10**8),
    "3 * 10**7 steps": steps(3 * 10**7),
    "many steps": steps(10**6),
    **{
        f"chunks {value}": metadata("chunk_grid.configuration.chunk_shape", value)
        for value in ([0], [-1], [HUGE], [1.5], None, [])
    },
    "chunks of 0": all_metadata("chunk_grid.configuration.chunk_shape", lambda old: [0] * len(old)),
    "chunks of 1": all_metadata("chunk_grid.configuration.chunk_shape", lambda old: [1] * len(old)),
    **{
        f"type {value!r}": metadata("data_type", value, "cell_state") for value in ("float128", "object", None, "int32")
    },
    **{f"type {value!r} of length": metadata("data_type", value, "length") for value in ("float64", "bool", "string")},
    "type of a call": metadata("data_type", "complex128", "call"),
    "type of a text": metadata("data_type", "int64", "start"),
    "text instead of numbers": metadata("data_type", "string", "call"),
    **{f"fill {value!r}": metadata("fill_value", value, "cell_state") for value in ("x", None, [1], "Infinity")},
    "names missing": metadata("dimension_names", None, "cell_state"),
    "names twice": metadata("dimension_names", ["unit"] * 5, "cell_state"),
    "names few": metadata("dimension_names", ["unit"], "cell_state"),
    "names that are numbers": metadata("dimension_names", [1, 2, 3, 4, 5], "cell_state"),
    "names that are paths": all_metadata("dimension_names", lambda old: ["../../etc"] * len(old)),
    "codec unknown": metadata("codecs", [{"name": "evil", "configuration": {}}], "cell_state"),
    "codec missing": metadata("codecs", [], "cell_state"),
    "codec of compression": metadata(
        "codecs", lambda old: [*old, {"name": "gzip", "configuration": {"level": 1}}], "call"
    ),
    "format 99": metadata("zarr_format", 99, "cell_state"),
    "another kind of node": metadata("node_type", "table", "cell_state"),
    "an array that is a group": metadata("node_type", "group", "cell_state"),
    "attributes null": metadata("attributes", None, "cell_state"),
    "attributes a list": metadata("attributes", [1], "cell_state"),
    "role of another kind": metadata("attributes.role", ["gate"], "cell_state"),
    "role NaN": metadata("attributes.role", float("nan"), "cell_state"),
    "bounds NaN": metadata("attributes.upper", float("nan"), "forget_gate"),
    "bounds in HTML": metadata("attributes.upper", HTML, "forget_gate"),
    "bounds endless": metadata("attributes.upper", 10**400, "forget_gate"),
    **{f"root: schema {value!r}": root("schema", value) for value in (None, 1, ["gatescope.recording/1"], HTML)},
    **{f"root: contents {value!r}": root("contents", value) for value in ("{", "[]", '{"variables": 1}', 7, "null")},
    "root: contents of paths": root("contents", json.dumps({"coordinates": [], "variables": ["../../../etc/passwd"]})),
    "root: contents nested": root("contents", '{"variables": [' + "[" * 5000 + "]" * 5000 + "]}"),
    **{
        f"root: modules {value!r}": root("modules", json.dumps(value))
        for value in (["../plain.zarr"], ["/etc"], 3, {"a": 1}, [None], [[]], [""], ["nowhere"], ["."], ["a/b"])
    },
    "root: modules twice": root("modules", lambda old: json.dumps((json.loads(old) if old else ["a"]) * 2)),
    "root: modules endless": root("modules", json.dumps(["x" * 100_000])),
    **{f"root: stored {value!r}": root("stored", value) for value in ("x", "[1]", [1, 2], "[-1, -1]", '["a", "b"]')},
    "root: parity NaN": root("parity", float("nan")),
    "root: parity text": root("parity", "small"),
    "root: retention in HTML": root("retention", HTML),
    "root: retention that runs": root("retention", "__import__('os').system('touch /tmp/gatescope_was_pickled')"),
    "root: module in HTML": root("module", HTML),
    "root: cell a number": root("cell", 5),
    "root: an attribute of attributes": root("cell", {"a": {"b": [1, None]}}),
    "swapped arrays": swap_arrays,
    "a group in the place of an array": swap_group_and_array,
    "an array at the root": array_at_the_root,
    "deep folders": deep_folders,
    "deep json": deep_json,
    "deep attribute": deep_attribute,
    "large json": large_json,
    "metadata that is no text": not_unicode,
    "300 arrays more": many_arrays,
    **{
        f"link: {w} to {to}": link(w, to)
        for w in ("array", "metadata", "chunk", "root")
        for to in ("itself", "above", "its like")
    },
    **{f"link: {w} to a device": link(w, "/dev/zero") for w in ("metadata", "chunk", "root")},
    "link: chunk to a file elsewhere": link("chunk", "/etc/passwd"),
    "a pipe as metadata": fifo_within,
    "a pipe as a chunk": fifo_chunk,
}
STREAM: dict[str, Spoil] = {
    f"commit: {name}": commit(change)
    for name, change in {
        "sequences huge": lambda record, module: module.update(sequences=HUGE),
        "sequences negative": lambda record, module: module.update(sequences=-1),
        "steps huge": lambda record, module: module.update(steps=HUGE),
        "steps text": lambda record, module: module.update(steps="many"),
        "journal huge": lambda record, module: module.update(journal=HUGE),
        "journal negative": lambda record, module: module.update(journal=-1),
        "journal elsewhere": lambda record, module: module.update(number="../../../etc/passwd"),
        "group elsewhere": lambda record, module: module.update(group="../plain.zarr"),
        "group absolute": lambda record, module: module.update(group="/etc"),
        "contents elsewhere": lambda record, module: module.update(contents={"coordinates": [], "variables": ["../x"]}),
        "contents a list": lambda record, module: module.update(contents=[1]),
        "no attributes": lambda record, module: module.pop("attrs"),
        "attributes text": lambda record, module: module.update(attrs="x"),
        "calls a list": lambda record, module: module.update(calls=[1]),
        "modules a list": lambda record, module: record.update(modules=[1]),
        "modules none": lambda record, module: record.update(modules={}),
        "finished of another kind": lambda record, module: record.pop("finished"),
    }.items()
}
