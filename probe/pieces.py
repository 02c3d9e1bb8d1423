"""How a variable is cut into the pieces in which it is written, for both formats on disk."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import ceil, prod
from typing import Any
from uuid import uuid4

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .layout import SchemaError
from .text import escape_all, unescape

CHUNK_BYTES = 8 * 2**20
TEXT_BYTES = 32  # what one text is taken to weigh
MOST_PIECES = 50_000  # of one dask array


def chunk_shape(sizes: Mapping[str, int], itemsize: int, limit: int = CHUNK_BYTES) -> tuple[int, ...]:
    """How to cut an array: whole where it is small, else by layer, direction, batches of sequences, then time.

    The pieces are of about equal size, because the last one is stored in full, however little it holds.

    >>> chunk_shape({"layer": 1, "direction": 1, "sequence": 32, "time": 200, "unit": 256}, 4)
    (1, 1, 32, 200, 256)
    >>> chunk_shape({"layer": 2, "direction": 1, "sequence": 33, "time": 1000, "unit": 256}, 4)
    (1, 1, 7, 1000, 256)
    """
    chunk = {dim: max(1, size) for dim, size in sizes.items()}
    for dim, least in (("layer", 1), ("direction", 1), ("sequence", 8), ("time", 1), ("sequence", 1)):
        pieces = ceil(prod(chunk.values()) * itemsize / limit)
        if pieces > 1 and dim in chunk:
            length = max(min(least, chunk[dim]), chunk[dim] // pieces)
            chunk[dim] = ceil(sizes[dim] / ceil(sizes[dim] / length))
    return tuple(chunk.values())


def chunks_of(variable: xr.Variable, dtype: np.dtype[Any] | None = None) -> tuple[int, ...]:
    """The chunks of one variable, whatever it holds."""
    itemsize = TEXT_BYTES if variable.dtype == object else (dtype or variable.dtype).itemsize
    return chunk_shape({str(dim): size for dim, size in variable.sizes.items()}, itemsize)


def pieces(name: str, variable: xr.Variable, dtype: np.dtype[Any]) -> Iterator[tuple[tuple[slice, ...], NDArray[Any]]]:
    """Each chunk's place and its values, ready for the disk: text escaped, numbers as `dtype`."""
    chunks = chunks_of(variable, dtype)
    for corner in product(*(range(0, size, chunk) for size, chunk in zip(variable.shape, chunks, strict=True))):
        place = tuple(slice(start, start + chunk) for start, chunk in zip(corner, chunks, strict=True))
        values = variable[place].values
        yield place, escape_all(values) if values.dtype == object else cast(name, values, dtype)


def in_pieces(dataset: xr.Dataset, *, with_dask: bool) -> xr.Dataset:
    """The same Dataset without encoding; where dask is there, with dask arrays for what is larger than a piece on disk.

    A dask array's pieces are whole chunks of the disk's, as many as make CHUNK_BYTES, and not so many that the mere
    list of them takes long.
    """
    large = {
        str(name): variable
        for name, variable in dataset.data_vars.items()
        if with_dask and not variable.variable._in_memory and variable.nbytes > CHUNK_BYTES
    }
    result = dataset.drop_encoding()
    if large and _has_dask():
        for name, array in large.items():
            result[name] = array.variable.chunk(_dask_chunks(array.variable), name=f"{name}-{uuid4().hex}")
            result[name].encoding = {}
    result.set_close(dataset.close)
    return result


def _has_dask() -> bool:
    try:
        import dask.array  # noqa: F401
    except ImportError:
        return False
    return True


def _dask_chunks(variable: xr.Variable) -> dict[Any, int]:
    sizes = {str(dim): size for dim, size in variable.sizes.items()}
    ours = dict(zip(variable.dims, chunk_shape(sizes, variable.dtype.itemsize, CHUNK_BYTES), strict=True))
    stored = variable.encoding.get("preferred_chunks", ours)
    chunk = {dim: max(1, min(int(stored.get(dim, 1)), size)) for dim, size in variable.sizes.items()}
    if prod(chunk.values()) * variable.dtype.itemsize > 4 * CHUNK_BYTES:  # in one piece, which can be read in parts
        chunk = ours
    least = max(CHUNK_BYTES, variable.nbytes // MOST_PIECES)
    for dim in reversed(variable.dims):
        times = ceil(least / (prod(chunk.values()) * variable.dtype.itemsize))
        chunk[dim] = min(variable.sizes[dim], chunk[dim] * times) or 1
    return chunk


def contents(attrs: Mapping[str, Any]) -> dict[str, list[str]]:
    """The names of what was stored, in their order: `coordinates` and `variables`; empty for foreign files."""
    return {"coordinates": [], "variables": [], **json.loads(unescape(str(attrs.get("contents", "{}"))))}


def demand(attrs: Mapping[str, Any], present: Callable[[str], bool]) -> None:
    """Refuse a group in which something that was stored is not present."""
    missing = [name for names in contents(attrs).values() for name in names if not present(name)]
    if missing:
        raise SchemaError(f"Everything that was stored must be there; {missing[0]!r} is missing. Copy it again.")


def cast(name: str, values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore"):
        result = values.astype(dtype)
    if dtype.kind == "f" and np.isinf(result).sum() > np.isinf(values).sum():
        raise ValueError(
            f"Values must fit into {dtype}, at most {np.finfo(dtype).max:g}; {name!r} reaches "
            f"{np.nanmax(np.abs(values)):g}. Save with dtype='float32' or 'float64'."
        )
    return result
