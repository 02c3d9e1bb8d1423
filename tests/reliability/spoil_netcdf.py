"""Ways to spoil a netCDF file from within, through h5py."""

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
from spoil_bytes import HTML, Spoil

SHAPE = (2, 2, 3, 12, 5)


def inside(change: Callable[[Any], Any]) -> Spoil:
    """The group that holds a recording, changed."""

    def spoil(path: Path, rng: random.Random) -> None:
        with h5py.File(path, "r+") as file:
            change(file if "cell_state" in file else next(group for group in file.values() if "cell_state" in group))

    return spoil


def replaced(name: str, make: Callable[[Any], Any]) -> Spoil:
    """A variable replaced by what `make` puts into the group, with the same dimensions and attributes where it can."""

    def change(node: Any) -> None:
        attrs = {key: value for key, value in node[name].attrs.items() if key != "DIMENSION_LIST"}
        scales = [list(dim.values()) for dim in node[name].dims]
        del node[name]
        made = make(node)
        if isinstance(made, h5py.Dataset):
            for key, value in attrs.items():
                made.attrs[key] = value
            for axis, found in enumerate(scales):
                with contextlib.suppress(IndexError):
                    made.dims[axis].attach_scale(found[0])

    return inside(change)


def dataset(name: str, **options: Any) -> Spoil:
    return replaced(name, lambda node: node.create_dataset(name, **options))


def huge(name: str, *shape: int, dtype: Any = "f4") -> Spoil:
    return dataset(name, shape=shape, dtype=dtype, chunks=tuple(min(size, 64) for size in shape))


def link(name: str, target: Any) -> Spoil:
    return replaced(name, lambda node: node.__setitem__(name, target))


def attribute(name: str, key: str, value: Any) -> Spoil:
    return inside(lambda node: (node[name] if name else node).attrs.__setitem__(key, value))


def long_time(count: int) -> Spoil:
    """All that runs over time made anew with so many steps, none of which was written."""

    def change(node: Any) -> None:
        old = node["time"]
        new = node.create_dataset("new", shape=(count,), dtype="i8", chunks=(64,))
        new.attrs.update({key: value for key, value in old.attrs.items() if key != "REFERENCE_LIST"})
        new.make_scale("time")
        for name in [key for key, value in node.items() if isinstance(value, h5py.Dataset)]:
            scales = [dim.values()[0] if dim.values() else None for dim in node[name].dims]
            if old not in scales or name == "time":
                continue
            shape = tuple(count if found == old else size for found, size in zip(scales, node[name].shape, strict=True))
            attrs, dtype = dict(node[name].attrs), node[name].dtype
            del node[name]
            made = node.create_dataset(name, shape=shape, dtype=dtype, chunks=tuple(min(n, 64) for n in shape))
            made.attrs.update({key: value for key, value in attrs.items() if key != "DIMENSION_LIST"})
            for axis, found in enumerate(scales):
                made.dims[axis].attach_scale(new if found == old else found)
        del node["time"]
        node.move("new", "time")

    return inside(change)


def loop_of_groups(path: Path, rng: random.Random) -> None:
    with h5py.File(path, "r+") as file:
        file["round"] = file["/"]


def many_groups(path: Path, rng: random.Random) -> None:
    with h5py.File(path, "r+") as file:
        here = file
        for _ in range(300):
            here = here.create_group("d")


NETCDF: dict[str, Spoil] = {
    "10**12 steps": huge("cell_state", 2, 2, 3, 10**12, 5),
    "coordinate of 10**10": huge("call", 10**5, 10**5),
    **{f"{count:.0e} steps": long_time(count) for count in (10**6, 2 * 10**8)},
    "text of 10**10": huge("token", 10**5, 10**5, dtype=h5py.string_dtype()),
    "numbers whole": dataset("cell_state", shape=SHAPE, dtype="i4"),
    "numbers complex": dataset("cell_state", shape=SHAPE, dtype="c8"),
    "numbers named": dataset("cell_state", shape=SHAPE, dtype=[("a", "f4"), ("b", "i4")]),
    "numbers opaque": dataset("cell_state", shape=SHAPE, dtype="V7"),
    "text of fixed width": dataset("token", shape=(3, 12), dtype="S5"),
    "lengths in half precision": dataset("length", shape=(3,), dtype="f2"),
    "lengths negative": inside(lambda node: node["length"].__setitem__(0, -5)),
    "lengths huge": inside(lambda node: node["length"].__setitem__(0, 2**62)),
    "calls negative": inside(lambda node: node["call"].__setitem__((0, 0), -(2**63))),
    "time from 5": inside(lambda node: node["time"].__setitem__(slice(None), range(5, 17))),
    "one dimension": dataset("cell_state", shape=(7,), dtype="f4"),
    "no dimension": dataset("cell_state", shape=(), dtype="f4"),
    "no value": dataset("cell_state", dtype="f4"),
    "an enumeration": dataset("cell_state", shape=SHAPE, dtype=h5py.enum_dtype({"RED": 0}, basetype="i1")),
    "references": dataset("cell_state", shape=SHAPE, dtype=h5py.ref_dtype),
    "ragged numbers": dataset("cell_state", shape=SHAPE, dtype=h5py.vlen_dtype("f4")),
    "link to itself": link("cell_state", h5py.SoftLink("/cell_state")),
    "link to nothing": link("cell_state", h5py.SoftLink("/nothing")),
    "link to another file": link("cell_state", h5py.ExternalLink("/etc/passwd", "/cell_state")),
    "link to a recording elsewhere": link("cell_state", h5py.ExternalLink("../plain.nc", "/cell_state")),
    "bytes of another file": dataset("cell_state", shape=SHAPE, dtype="f4", external=[("/etc/passwd", 0, 100_000)]),
    "a variable less": inside(lambda node: node.__delitem__("cell_state")),
    "a dimension less": inside(lambda node: node.__delitem__("unit")),
    "a group as variable": replaced("cell_state", lambda node: node.create_group("cell_state")),
    "two that are one": inside(
        lambda node: (node.__delitem__("input_gate"), node.__setitem__("input_gate", node["forget_gate"]))
    ),
    "a loop of groups": loop_of_groups,
    "deep groups": many_groups,
    **{
        f"attribute {key} of {name or 'all'} is {value!r:.20}": attribute(name, key, value)
        for name, key, value in (
            ("", "module", HTML),
            ("", "parity", float("nan")),
            ("", "parity", [1.0, 2.0]),
            ("", "training", "yes"),
            ("", "contents", b"\xff\xfe"),
            ("", "contents", "{"),
            ("", "retention", HTML),
            ("", "schema", 5),
            ("cell_state", "role", b"\xff"),
            ("cell_state", "role", [1, 2, 3]),
            ("cell_state", "units", HTML),
            ("forget_gate", "lower", "x"),
            ("forget_gate", "lower", float("nan")),
            ("forget_gate", "_FillValue", 0.5),
            ("length", "dtype", "bool"),
            ("cell_state", "scale_factor", "x"),
            ("time", "units", "days since 0000-00-00"),
        )
    },
}
