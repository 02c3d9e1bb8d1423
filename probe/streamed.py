"""Read a store that is being written, or whose writer died: everything up to its last commit, and nothing beyond."""

from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from .commits import Sequences, read_journal, read_record
from .guards import check_declared, check_dims, check_texts, size_on_disk
from .layout import padding_value
from .pieces import TEXT_BYTES
from .text import unescape, unescape_all


def unfinished(path: Path) -> dict[str, xr.Dataset]:
    """The recordings of a store that is still written, or was never finished, by group; empty for all others."""
    record = read_record(path) if path.is_dir() else None
    if record is None or record["finished"]:
        return {}
    found = {}
    for module in record["modules"].values():
        sequences = read_journal(path, module["number"], module["journal"], module["sequences"])
        found[str(module["group"])] = read_module(path / module["group"], module, sequences)
    return found


def read_module(folder: Path, module: dict[str, Any], sequences: Sequences) -> xr.Dataset:
    """One module's recording as it was at the last commit."""
    sizes = {"sequence": int(module["sequences"]), "time": int(module["steps"])}
    on_disk = size_on_disk(folder)
    check_declared("time", (sizes["time"],), 8, on_disk)
    own: dict[str, Any] = {name: ((name,), np.arange(size)) for name, size in sizes.items()}
    own |= {name: (("sequence",), values) for name, values in sequences._asdict().items()}
    coords, data = {}, {}
    for name in module["contents"]["coordinates"]:
        if name not in own:
            found = committed(folder / name, sizes, sequences.length)
            check_declared(name, found.shape, TEXT_BYTES if found.dtype == object else found.dtype.itemsize, on_disk)
            own[name] = found.load()
        coords[name] = own[name]
    for name in module["contents"]["variables"]:
        data[name] = committed(folder / name, sizes, sequences.length)
    attrs = {key: unescape(value) if isinstance(value, str) else value for key, value in module["attrs"].items()}
    calls = "1 call" if module["calls"] == 1 else f"{module['calls']} calls"
    attrs["unfinished"] = f"holds the first {calls}; the run goes on, or was broken off"
    return xr.Dataset(data, coords, attrs)


def read_overview(folder: Path, recording: xr.Dataset, per: int) -> xr.Dataset:
    """Its complete blocks, as they were at the last commit."""
    lengths = recording["length"].values // per
    sizes = {"sequence": len(lengths), "time": int(lengths.max(initial=0))}
    names = sorted(entry.name for entry in folder.iterdir() if (entry / "zarr.json").is_file())
    data = {name: committed(folder / name, sizes, lengths) for name in names}
    coords: dict[str, Any] = {
        name: recording[name].variable
        for name in ("layer", "direction", "sequence", "unit", "projection")
        if name in recording.coords
    }
    return xr.Dataset(data, {**coords, "time": np.arange(sizes["time"]) * per}, {"per": per})


def committed(folder: Path, sizes: dict[str, int], length: NDArray[np.int64]) -> xr.Variable:
    """One variable, no larger than what was committed."""
    array = Committed(folder, sizes, length)
    attrs = {key: unescape(value) if isinstance(value, str) else value for key, value in array.attrs.items()}
    chunks = {"preferred_chunks": dict(zip(array.dims, array.chunks, strict=True))}
    return xr.Variable(array.dims, indexing.LazilyIndexedArray(array), attrs, chunks)


class Committed(BackendArray):
    """An array on disk, cut to the committed sizes, with padding wherever nothing was committed."""

    def __init__(self, folder: Path, sizes: dict[str, int], length: NDArray[np.int64]) -> None:
        import zarr

        array = zarr.open_array(folder, mode="r")
        self.folder, self.length = folder, length
        names = getattr(array.metadata, "dimension_names", None)  # of version 3 only
        self.dims: tuple[str, ...] = tuple(map(str, names or ()))
        self.attrs, self.chunks = dict(array.attrs), array.chunks
        self.shape = tuple(sizes.get(dim, size) for dim, size in zip(self.dims, array.shape, strict=True))
        self.text = array.dtype.kind in "TUO"
        self.dtype = np.dtype(object) if self.text else np.dtype(array.dtype)
        check_dims(folder.name, names, array.ndim)
        if self.text and not array.compressors:
            check_texts(folder, prod(array.chunks))
        if any(size > there for size, there in zip(self.shape, array.shape, strict=True)):
            raise ValueError(f"{folder.name!r} must have at least shape {self.shape}; it has {array.shape}")

    def __getitem__(self, key: indexing.ExplicitIndexer) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self.read)

    def read(self, key: tuple[Any, ...]) -> NDArray[Any]:
        import zarr

        single = tuple(axis for axis, part in enumerate(key) if isinstance(part, (int, np.integer)))
        places = [self.place(part, size) for part, size in zip(key, self.shape, strict=True)]
        if any(len(place) == 0 for place in places):
            values = np.empty([len(place) for place in places], self.dtype)
        else:
            values = np.asarray(zarr.open_array(self.folder, mode="r").oindex[tuple(map(as_slice, places))])
            values = unescape_all(values) if self.text else values
        return self.padded(values, places).squeeze(single)

    def place(self, part: Any, size: int) -> NDArray[np.int64]:
        return np.atleast_1d(np.arange(size)[part])

    def padded(self, values: NDArray[Any], places: list[NDArray[np.int64]]) -> NDArray[Any]:
        if not {"sequence", "time"} <= {*self.dims}:
            return values
        first = self.dims.index("sequence")
        rows, steps = places[first], places[first + 1]
        padding = steps >= self.length[rows][:, None]
        if padding.any():
            values = np.array(values)
            values[(slice(None),) * first + (padding,)] = padding_value(self.dtype)
        return values


def as_slice(place: NDArray[np.int64]) -> Any:
    """Neighbouring places as a slice, which zarr reads at once."""
    if np.array_equal(place, np.arange(place[0], place[0] + len(place))):
        return slice(int(place[0]), int(place[-1]) + 1)
    return place
