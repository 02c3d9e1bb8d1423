"""Ways to spoil any file or folder, and things that never were a recording."""

import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

Spoil = Callable[[Path, random.Random], None]
HTML = "<script>alert(1)</script><img src=x onerror=alert(1)>"


def files_of(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]


def some_file(path: Path, rng: random.Random, json_only: bool | None = None) -> Path:
    files = [f for f in files_of(path) if f.stat().st_size and json_only in (None, f.suffix == ".json")]
    return rng.choice(files)


def edited(file: Path, edit: Callable[[bytearray], None]) -> None:
    content = bytearray(file.read_bytes())
    edit(content)
    file.write_bytes(content)


def flip(path: Path, rng: random.Random, json_only: bool | None = None, within: int | None = None) -> None:
    def edit(content: bytearray) -> None:
        place = rng.randrange(min(len(content), within or len(content)))
        content[place] ^= 1 << rng.randrange(8)

    edited(some_file(path, rng, json_only), edit)


def flip_metadata(path: Path, rng: random.Random) -> None:
    flip(path, rng, json_only=True)


def flip_data(path: Path, rng: random.Random) -> None:
    flip(path, rng, json_only=False)


def flip_header(path: Path, rng: random.Random) -> None:
    flip(path, rng, within=4096)


def flip_many(path: Path, rng: random.Random) -> None:
    for _ in range(40):
        flip(path, rng)


def truncate(path: Path, rng: random.Random) -> None:
    edited(file := some_file(path, rng), lambda content: content.__delitem__(slice(rng.randrange(len(content)), None)))
    assert file.exists()


def append(path: Path, rng: random.Random) -> None:
    edited(some_file(path, rng), lambda content: content.extend(rng.randbytes(rng.randrange(1, 5000))))


def blank(path: Path, rng: random.Random) -> None:
    def edit(content: bytearray) -> None:
        start = rng.randrange(len(content))
        content[start : start + 512] = bytes(len(content[start : start + 512]))

    edited(some_file(path, rng), edit)


def empty(path: Path, rng: random.Random) -> None:
    some_file(path, rng).write_bytes(b"")


def delete(path: Path, rng: random.Random) -> None:
    some_file(path, rng).unlink()


def swap_files(path: Path, rng: random.Random) -> None:
    one, other = rng.sample([f for f in files_of(path) if f.suffix != ".json"], 2)
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)


def foreign(content: bytes | Callable[[Path], Any]) -> Spoil:
    def spoil(path: Path, rng: random.Random) -> None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        if callable(content):
            content(path)
        else:
            path.write_bytes(content)

    return spoil


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch /tmp/gatescope_was_pickled",)


def folder_with(path: Path, files: dict[str, bytes]) -> None:
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)


def zarr_two(path: Path) -> None:
    import zarr

    zarr.open_group(path, mode="w", zarr_format=2).create_array("a", shape=(3,), dtype="f4")


def another_netcdf(path: Path) -> None:
    import xarray as xr

    xr.Dataset({"a": ("x", [1.0])}).to_netcdf(path, engine="h5netcdf")


def loop_link(path: Path) -> None:
    path.symlink_to(path)


PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 8
ZIP = b"PK\x03\x04" + bytes(300)
PICKLE = pickle.dumps(Evil())
FOREIGN: dict[str, Spoil] = {
    "pickle": foreign(PICKLE),
    "text": foreign(b"time,unit\n1,2\n" * 100),
    "image": foreign(PNG),
    "archive": foreign(ZIP),
    "nothing": foreign(b""),
    "one byte": foreign(b"\x89"),
    "noise": foreign(random.Random(1).randbytes(20_000)),
    "a signature and noise": foreign(b"\x89HDF\r\n\x1a\n" + random.Random(2).randbytes(20_000)),
    "a signature alone": foreign(b"\x89HDF\r\n\x1a\n"),
    "netCDF of 1990": foreign(b"CDF\x01" + bytes(200)),
    "json": foreign(b'{"zarr_format": 3, "node_type": "group", "attributes": {"schema": "gatescope.recording/1"}}'),
    "another netCDF": foreign(another_netcdf),
    "an empty folder": foreign(lambda path: path.mkdir()),
    "a folder of images": foreign(lambda path: folder_with(path, {"a.png": PNG, "b.png": PNG})),
    "a folder with metadata of nothing": foreign(lambda path: folder_with(path, {"zarr.json": b"{}"})),
    "a folder with null": foreign(lambda path: folder_with(path, {"zarr.json": b"null"})),
    "a folder with a list": foreign(lambda path: folder_with(path, {"zarr.json": b"[1, 2]"})),
    "a folder with a pickle": foreign(lambda path: folder_with(path, {"zarr.json": PICKLE})),
    "a folder with nothing but a schema": foreign(
        lambda path: folder_with(
            path,
            {"zarr.json": b'{"zarr_format":3,"node_type":"group","attributes":{"schema":"gatescope.recording/1"}}'},
        )
    ),
    "a commit record alone": foreign(
        lambda path: (
            folder_with(path, {"zarr.json": b'{"zarr_format":3,"node_type":"group"}'}),
            folder_with(path / ".stream", {"zarr.json": b'{"attributes":{"format":"gatescope.stream/1"}}'}),
        )
    ),
    "zarr of version 2": foreign(zarr_two),
    "a link to nothing": foreign(lambda path: path.symlink_to(path.parent / "nothing")),
    "a link to itself": foreign(loop_link),
    "a link to a device": foreign(lambda path: path.symlink_to("/dev/zero")),
    "a pipe": foreign(os.mkfifo),
    "a folder of folders": foreign(lambda path: (path / "zarr.json" / "c").mkdir(parents=True)),
}
