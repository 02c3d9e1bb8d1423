"""Recordings as netCDF files through h5netcdf: uncompressed, each variable in one piece."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from ..signals import SCHEMA
from .guards import check_declared, check_dims, size_on_disk
from .layout import SchemaError
from .pieces import TEXT_BYTES, demand, pieces
from .text import unescape_all

SIGNATURE = b"\x89HDF\r\n\x1a\n"


def write(dataset: xr.Dataset, path: Path, group: str, dtypes: Mapping[str, np.dtype[Any]]) -> None:
    """Write one Dataset into a group of a netCDF file, piece by piece, so that any size fits in memory."""
    import h5netcdf

    with h5netcdf.File(path, "a") as file:
        node = file.create_group(group) if group else file
        node.dimensions = {str(dim): size for dim, size in dataset.sizes.items()}
        if group:
            node.attrs.update(dataset.attrs)
        for name, variable in dataset.variables.items():
            _write_variable(node, str(name), variable, dtypes.get(str(name), variable.dtype))


def finish(path: Path, attrs: Mapping[str, Any]) -> None:
    """Write the root's attributes, last of all: a file without them was never finished."""
    import h5netcdf

    with h5netcdf.File(path, "r+") as file:
        file.attrs.update(attrs)


def weight(path: Path) -> tuple[int, int]:
    """One file, whose length the format itself guards: nothing to count."""
    return 0, 0


def attrs(path: Path) -> dict[str, Any]:
    """The root's attributes."""
    import h5netcdf
    import h5py

    with h5py.File(path, "r") as opened:  # where this fails, h5netcdf also prints what it cannot tidy up
        opened.attrs.get("_nc3_strict")
    with h5netcdf.File(path, "r") as file:
        return dict(file.attrs)


def read(path: Path, group: str) -> xr.Dataset:
    """Open one group: numbers stay on disk until they are used, text is read at once."""
    import h5netcdf

    shapes = _own_shapes(path, group)
    with h5netcdf.File(path, "r", decode_vlen_strings=True) as file:
        node = file[group] if group else file
        filled = any("_FillValue" in array.attrs for array in node.variables.values())
        if filled and node.attrs.get("schema") == SCHEMA:
            raise SchemaError(
                "It must have been written by save_recording; to_netcdf of xarray wrote it, which marks numbers "
                "in its own way. Write the recording with gatescope.save_recording(recording, path)."
            )
        demand(node.attrs, node.variables.__contains__)
        for name, array in node.variables.items():
            check_dims(name, array.dimensions, len(shapes[name]))
            if array.shape != shapes[name]:
                raise SchemaError(f"{name!r} must be as large as its dimensions, {array.shape}; it is {shapes[name]}.")
        arrays = {name: array for name, array in node.variables.items() if array.dtype.kind == "O"}
        for name in arrays:
            check_declared(name, shapes[name], TEXT_BYTES, size_on_disk(path))
        texts = {name: xr.Variable(a.dimensions, unescape_all(a[...]), dict(a.attrs)) for name, a in arrays.items()}
    dataset = xr.open_dataset(
        path,
        engine="h5netcdf",
        group=group or None,
        chunks=None,
        drop_variables=list(texts),
        mask_and_scale=False,
        decode_times=False,
    )
    result = dataset.assign(texts)
    result.set_close(dataset.close)
    return result


def _own_shapes(path: Path, group: str) -> dict[str, tuple[int, ...]]:
    """Shapes of a group's variables, which must stand in the file itself: HDF5 can also point at any other file."""
    import h5py

    shapes = {}
    with h5py.File(path, "r") as file:
        node = file[group] if group else file
        for name in node:
            own = isinstance(node.get(name, getlink=True), h5py.HardLink)
            array = node[name] if own else None
            if not own or (isinstance(array, h5py.Dataset) and (array.external or array.is_virtual)):
                raise SchemaError(f"{name!r} must stand in the file itself; it points at something else.")
            if isinstance(array, h5py.Dataset):
                shapes[str(name)] = array.shape or ()
    return shapes


def _write_variable(node: Any, name: str, variable: xr.Variable, dtype: np.dtype[Any]) -> None:
    """Booleans become int8 marked `dtype`, which is how xarray writes and reads them."""
    import h5py

    kind = {"O": h5py.string_dtype(), "b": np.dtype("int8")}.get(dtype.kind, dtype)
    array = node.create_variable(name, variable.dims, kind)
    array.attrs.update(variable.attrs if dtype.kind != "b" else {**variable.attrs, "dtype": "bool"})
    for place, values in pieces(name, variable, dtype):
        array[place] = values
