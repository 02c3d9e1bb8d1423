"""Recordings as zarr folders (version 3): uncompressed, in chunks of 1 to 16 MB, written piece by piece."""

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from .guards import check_declared, check_dims, check_texts, size_on_disk
from .layout import CHUNK_NAME
from .pieces import TEXT_BYTES, chunks_of, demand, pieces
from .text import unescape_all

if TYPE_CHECKING:
    import zarr


def write(dataset: xr.Dataset, path: Path, group: str, dtypes: Mapping[str, np.dtype[Any]]) -> None:
    """Write one Dataset into a group of a zarr folder, one chunk at a time, so that any size fits in memory."""
    import zarr

    root = zarr.open_group(path, mode="a", zarr_format=3)
    node = root.create_group(group, attributes=dataset.attrs) if group else root
    for name, variable in dataset.variables.items():
        dtype = dtypes.get(str(name), variable.dtype)
        array = create_array(node, str(name), variable, dtype)
        for place, values in pieces(str(name), variable, dtype):
            array[place] = values


def create_array(node: "zarr.Group", name: str, variable: xr.Variable, dtype: np.dtype[Any]) -> Any:
    """An empty array for one variable; chunks that would hold padding only need never be written."""
    return node.create_array(
        name,
        shape=variable.shape,
        dtype=str if dtype.kind == "O" else dtype,
        chunks=chunks_of(variable, dtype),
        compressors=None,
        fill_value=np.nan if dtype.kind == "f" else None,
        dimension_names=[str(dim) for dim in variable.dims],
        attributes=variable.attrs,
    )


def finish(path: Path, attrs: Mapping[str, Any]) -> None:
    """Write the root's attributes, last of all: a folder without them was never finished."""
    import zarr

    zarr.open_group(path, mode="r+", zarr_format=3).update_attributes(dict(attrs))


def weight(path: Path) -> tuple[int, int]:
    """How many files of data a folder holds, and their bytes: what an interrupted copy is short of."""
    files = (Path(here, name) for here, _, names in os.walk(path) for name in filter(CHUNK_NAME.fullmatch, names))
    sizes = [file.stat().st_size for file in files]
    return len(sizes), sum(sizes)


def attrs(path: Path) -> dict[str, Any]:
    """The root's attributes."""
    import zarr

    return dict(zarr.open_group(path, mode="r", zarr_format=3).attrs)


def read(path: Path, group: str) -> xr.Dataset:
    """Open one group: numbers stay on disk until they are used, text is read at once."""
    import zarr

    node = zarr.open_group(path, mode="r", path=group, zarr_format=3)
    demand(node.attrs, lambda name: (path / group / name / "zarr.json").is_file())
    with strangers_allowed():
        arrays, size = dict(node.arrays()), size_on_disk(path)
    for name, array in arrays.items():
        check_dims(name, getattr(array.metadata, "dimension_names", None), array.ndim)
    texts = {name: array for name, array in arrays.items() if array.dtype.kind in "TUO"}
    for name, array in texts.items():
        check_declared(name, array.shape, TEXT_BYTES, size)
        if not array.compressors:
            check_texts(path / group / name, prod(array.chunks))
    with strangers_allowed():
        dataset = xr.open_zarr(
            path,
            group=group or None,
            consolidated=False,
            zarr_format=3,
            chunks=None,
            drop_variables=list(texts),
            mask_and_scale=False,
            decode_times=False,
        )
    result: xr.Dataset = dataset.assign({name: _read_text(array) for name, array in texts.items()})
    return result


@contextmanager
def strangers_allowed() -> Iterator[None]:
    """Folders that are no part of the recording, as a writer's own that has lost its metadata, are passed over."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Object at .* is not recognized as a component of a Zarr hierarchy")
        yield


def _read_text(array: Any) -> xr.Variable:
    return xr.Variable(array.metadata.dimension_names, unescape_all(array[...]), dict(array.attrs))
