"""Save recordings to disk and open them again, lazily, with the same values, kinds and order."""

import errno
import json
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Literal
from uuid import uuid4

import numpy as np
import xarray as xr

from ..signals import SCHEMA
from . import netcdf_files, zarr_files
from .commits import FOLDER
from .guards import check_declared, check_regular, size_on_disk
from .overview import overviews
from .pieces import contents, in_pieces
from .schema import DISK_ATTRS, FIXED_DIMS, FLOATS, RESERVED, SchemaError, is_signal, normalise, plain, validate
from .streamed import unfinished
from .text import escape, unescape

FORMATS: dict[str, ModuleType] = {".zarr": zarr_files, ".nc": netcdf_files}
TRIES = 5
"""How often to look again where a writer has changed a store in the middle of a look."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def save_recording(
    recording: xr.Dataset | xr.DataTree,
    path: str | os.PathLike[str],
    *,
    dtype: Literal["float16", "float32", "float64"] | None = None,
) -> Path:
    """Save a recording, or a tree of them, as a zarr folder (`.zarr`) or a netCDF file (`.nc`).

    Nothing appears under `path` before everything is written: the work is done beside it under a hidden name
    (`.NAME.XXXXXXXX.partial`) that is renamed at the end and removed after any error.

    Parameters
    ----------
    recording
        What `validate` accepts.
    path
        Where to; the ending chooses the format, the folder above must exist, nothing may exist there yet.
    dtype
        Store signals in this precision; the default is the one they have. `"float16"` halves the size of float32 and
        keeps three digits. States at the start, weights and sums stay as they are.

    Returns
    -------
    Path
        The path, as `pathlib.Path`.

    Raises
    ------
    SchemaError
        If `recording` is none.
    ValueError
        For another ending, or values too large for `dtype`.
    FileExistsError, FileNotFoundError
        If something exists at `path`, or the folder above it does not.
    OSError
        If the disk is full; nothing is left behind.
    """
    target = Path(path)
    files = _format_for(target)
    validate(recording)
    nodes = _nodes(recording)
    partial = target.with_name(f".{target.name}.{uuid4().hex[:8]}.partial")
    try:
        for group, dataset in nodes.items():
            files.write(_for_disk(dataset), partial, group, _dtypes(dataset, dtype))
            for within, overview in overviews(dataset):
                files.write(_for_disk(overview), partial, f"{group}/{within}".lstrip("/"), {})
        files.finish(partial, _root_attrs(nodes, files.weight(partial)))
        _publish(partial, target)
    except BaseException as error:
        _remove(partial)
        if _is_full(error):
            raise OSError(
                errno.ENOSPC,
                f"The disk must have room for the recording; it became full while writing {target}. "
                "Nothing was left behind: free some space, or save with dtype='float16'",
            ) from None
        raise
    return target


def open_recording(
    path: str | os.PathLike[str], *, chunks: Literal["auto"] | None = "auto"
) -> xr.Dataset | xr.DataTree:
    """Open what `save_recording` or `attach(store=...)` wrote: a Dataset, or a DataTree with a node per module.

    Signals are read from disk when they are used; coordinates and labels at once. The files are never changed.
    A netCDF file is held open until `result.close()`, or until the result is forgotten.

    Parameters
    ----------
    path
        A `.zarr` folder or a `.nc` file.
    chunks
        `"auto"`: where dask is installed, signals of more than one piece of 8 MB become dask arrays of such pieces, so
        that sums and means over a recording larger than memory work piece by piece. `None`: no dask; a signal is
        read as a whole by what needs all of it. Both give the same numbers.

    Raises
    ------
    FileNotFoundError
        If nothing exists at `path`.
    SchemaError
        If it is not a recording of this schema, or is damaged, cut off or half written.
    """
    if chunks not in ("auto", None):
        raise ValueError(f"chunks must be 'auto' or None; {chunks!r} came. Rechunk the result with its .chunk().")
    source = Path(path)
    files = _format_of(source)
    for _ in range(TRIES):
        before = _commit(source)
        try:
            return _opened(source, files, chunks)
        except SchemaError:
            if _commit(source) == before:
                raise
    return _opened(source, files, chunks)


def _commit(source: Path) -> bytes:
    """Changes when a writer begins, commits or ends."""
    try:
        return (source / FOLDER / "zarr.json").read_bytes()
    except OSError:
        return b""


def _opened(source: Path, files: ModuleType, chunks: Literal["auto"] | None) -> xr.Dataset | xr.DataTree:
    try:
        opened = unfinished(source) or _read(source, files)
        opened = {group: in_pieces(dataset, with_dask=chunks is not None) for group, dataset in opened.items()}
        result: xr.Dataset | xr.DataTree = opened[""] if "" in opened else _tree(opened)
    except PermissionError:
        raise
    except SchemaError as error:
        raise _named(source, error) from None
    except Exception as error:
        raise _not_ours(source, f"it cannot be read ({_first_line(error)})") from error
    try:
        return validate(result)
    except SchemaError as error:
        result.close()
        raise _named(source, error) from None
    except Exception as error:
        result.close()
        raise _not_ours(source, f"it cannot be checked ({_first_line(error)})") from error


def _read(source: Path, files: ModuleType) -> dict[str, xr.Dataset]:
    """The recordings of a finished file or folder, by group."""
    root = files.attrs(source)
    if "schema" not in root:
        raise _not_ours(source, "it has no attribute 'schema', so it was never finished or is something else")
    _check_complete(source, files, root)
    modules = json.loads(unescape(root.get("modules", "[]")))
    size = size_on_disk(source)
    return {group: _from_disk(files.read(source, group), size) for group in modules or [""]}


def reading(source: Path, group: str) -> xr.Dataset:
    """One group of a file or folder."""
    dataset: xr.Dataset = _from_disk(_format_of(source).read(source, group), size_on_disk(source))
    return dataset


def _format_for(target: Path) -> ModuleType:
    if target.suffix not in FORMATS:
        raise ValueError(
            f"The path must end in .zarr (a folder) or .nc (one netCDF file); {str(target)!r} came. Choose either."
        )
    if not target.parent.is_dir():
        raise FileNotFoundError(f"The folder {str(target.parent)!r} must exist; it does not. Make it first.")
    if os.path.lexists(target):
        raise _exists(target)
    return FORMATS[target.suffix]


def _format_of(source: Path) -> ModuleType:
    if not source.exists():
        raise FileNotFoundError(f"A recording must exist at the path; there is nothing at {str(source)!r}.")
    check_regular(source)
    if source.is_dir():
        if not (source / "zarr.json").is_file():
            raise _not_ours(source, "the folder has no zarr.json, so it is not a zarr store of version 3")
        return zarr_files
    with source.open("rb") as file:
        if file.read(len(netcdf_files.SIGNATURE)) != netcdf_files.SIGNATURE:
            raise _not_ours(source, "it is neither a zarr folder nor a netCDF-4 file")
    return netcdf_files


def _named(source: Path, error: SchemaError) -> SchemaError:
    return error if str(source) in str(error) else SchemaError(f"{str(source)!r} is not a recording. {error}")


def _not_ours(source: Path, why: str) -> SchemaError:
    return SchemaError(
        f"The path must hold a recording that save_recording wrote; {str(source)!r} does not: {why}. "
        "Copy it again, or record again."
    )


def _exists(target: Path) -> FileExistsError:
    return FileExistsError(
        f"Nothing may exist at the path, for a recording is never overwritten; {str(target)!r} exists. "
        "Remove it or choose another name."
    )


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


def _nodes(recording: xr.Dataset | xr.DataTree) -> dict[str, xr.Dataset]:
    if isinstance(recording, xr.Dataset):
        return {"": recording}
    return {name: node.to_dataset() for name, node in recording.children.items()}


def _dtypes(dataset: xr.Dataset, dtype: str | None) -> dict[str, np.dtype[Any]]:
    """What is stored in another precision: the signals, and nothing when `dtype` is None."""
    if dtype is None:
        return {}
    if dtype not in FLOATS:
        raise ValueError(f"dtype must be one of {', '.join(FLOATS)} or None; {dtype!r} came.")
    return {str(name): np.dtype(dtype) for name in dataset.data_vars if is_signal(dataset, str(name))}


def _for_disk(dataset: xr.Dataset) -> xr.Dataset:
    """The same Dataset with attributes escaped and the order of its variables written down beside them."""
    result = dataset.copy(deep=False)
    listed = {"coordinates": [*map(str, dataset.coords)], "variables": [*map(str, dataset.data_vars)]}
    marks = " ".join(name for name in listed["coordinates"] if name not in dataset.dims and " " not in name)
    result.attrs = {**_escaped(dataset.attrs), "contents": escape(json.dumps(listed)), "coordinates": marks}
    for variable in result.variables.values():
        variable.attrs = _escaped(variable.attrs)
    return result


def _from_disk(stored: xr.Dataset, size: int) -> xr.Dataset:
    """Undo `_for_disk`, and load what is small: everything but the data variables."""
    variables, stated = stored.variables, contents(stored.attrs)
    listed = [*stated["coordinates"], *stated["variables"]]
    added = [name for name in variables if name not in listed]
    extra = [name for name in added if name in stored.coords or name in RESERVED - FIXED_DIMS.keys()]
    names = {*stated["coordinates"], *extra}
    ordered = [*listed, *sorted(added, key=str)]
    for name in names:
        check_declared(str(name), variables[name].shape, variables[name].dtype.itemsize, size)
    result = xr.Dataset(
        {name: variables[name] for name in ordered if name not in names},
        {name: variables[name].load() for name in ordered if name in names},
        {key: value for key, value in stored.attrs.items() if key not in DISK_ATTRS},
    )
    result = normalise(result)
    for attrs in (result.attrs, *(variable.attrs for variable in result.variables.values())):
        attrs.update({key: unescape(value) for key, value in attrs.items() if isinstance(value, str)})
    result.set_close(stored.close)
    return result


def _root_attrs(nodes: dict[str, xr.Dataset], weight: tuple[int, int]) -> dict[str, Any]:
    """What the root of a finished recording says: a Dataset's own attributes, or a tree's list of modules."""
    stored = {"stored": json.dumps(weight)}
    if "" in nodes:
        return {**_for_disk(nodes[""]).attrs, **stored}
    return {"schema": SCHEMA, "modules": escape(json.dumps(list(nodes))), **stored}


def _check_complete(source: Path, files: ModuleType, root: dict[str, Any]) -> None:
    count, size = json.loads(root.get("stored", "[0, 0]"))
    found, bytes_found = files.weight(source)
    if found < count or bytes_found < size:
        raise _not_ours(source, f"it holds {found} of {count} files of data, {bytes_found} of {size} bytes")


def _tree(nodes: dict[str, xr.Dataset]) -> xr.DataTree:
    tree = xr.DataTree(children={name: xr.DataTree(dataset) for name, dataset in nodes.items()})
    for name, dataset in nodes.items():
        tree.children[name].set_close(dataset.close)
    return tree


def _escaped(attrs: dict[Any, Any]) -> dict[str, Any]:
    values = {key: plain(value) for key, value in attrs.items()}
    return {key: escape(value) if isinstance(value, str) else value for key, value in values.items()}


def _publish(partial: Path, target: Path) -> None:
    """Rename; what somebody else put at the target meanwhile stays."""
    if os.path.lexists(target):
        raise _exists(target)
    os.rename(partial, target)


def _remove(partial: Path) -> None:
    """Take away what was written, and a last chunk that zarr's own thread still writes: look until it stays away."""
    absent = 0
    for _ in range(100):
        if os.path.lexists(partial):
            absent = 0
            shutil.rmtree(partial, ignore_errors=True)
            with suppress(OSError):
                partial.unlink()
        else:
            absent += 1
        if absent == 3:
            return
        time.sleep(0.02)


def _is_full(error: BaseException) -> bool:
    """HDF5 says so in the text of its error only."""
    if not isinstance(error, OSError | RuntimeError):
        return False
    return getattr(error, "errno", None) in FULL or any(f"errno = {code}," in str(error) for code in FULL)
