"""The overview of a long recording: least, largest and mean value per 64 and per 4096 steps, for pictures."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..signals import PREACTIVATION
from .layout import SchemaError

Array = NDArray[Any]
LEVELS = (64, 4096)
LONG = 4096
"""Recordings of more steps have an overview."""
STATISTICS = ("min", "max", "mean")
SLAB = 2**20  # numbers that are summarised together


def summarise(values: Array, per: int) -> tuple[Array, Array, Array]:
    """Least, largest and mean of every `per` steps, (..., time, unit) -> (..., block, unit); NaN counts for nothing.

    >>> [part.ravel().tolist() for part in summarise(np.array([[1.0], [3.0], [5.0]]), 2)]
    [[1.0, 5.0], [3.0, 5.0], [2.0, 5.0]]
    """
    steps = values.shape[-2]
    blocks = -(-steps // per)
    if blocks * per > steps:
        padding = np.full((*values.shape[:-2], blocks * per - steps, values.shape[-1]), np.nan, values.dtype)
        values = np.concatenate([values, padding], -2)
    cut = values.reshape(*values.shape[:-2], blocks, per, values.shape[-1])
    exact = np.float64 if values.dtype == np.float64 or per > LEVELS[0] else np.float32
    total = np.add.reduce(cut, -2, dtype=exact)
    if np.isnan(total).any():
        real = ~np.isnan(cut)
        count = real.sum(-2)
        total = np.where(real, cut, 0).sum(-2, dtype=exact)
        mean = np.divide(total, count, out=np.full(total.shape, np.nan, exact), where=count > 0)
    else:
        mean = total / exact(per)
    return np.fmin.reduce(cut, -2), np.fmax.reduce(cut, -2), mean


def has_overview(name: str, attrs: Any) -> bool:
    return "role" in attrs or name.endswith(PREACTIVATION)


def overviews(recording: xr.Dataset) -> Iterator[tuple[str, xr.Dataset]]:
    """Group and Dataset of each level, for a recording that is long."""
    if recording.sizes["time"] <= LONG or "overview" in recording.variables:
        return
    for per in LEVELS:
        yield f"overview/{per}", overview(recording, per)


def overview(recording: xr.Dataset, per: int) -> xr.Dataset:
    """One level, read from the recording in slabs."""
    blocks = -(-recording.sizes["time"] // per)
    data: dict[str, Any] = {}
    for key, variable in recording.data_vars.items():
        if not has_overview(str(key), variable.attrs):
            continue
        shape = (*variable.shape[:3], blocks, variable.shape[4])
        found = {kind: np.full(shape, np.nan, variable.dtype) for kind in STATISTICS}
        slab = max(1, SLAB // (per * max(1, variable.shape[4]))) * per
        for place in np.ndindex(shape[:3]):
            for start in range(0, variable.sizes["time"], slab):
                values = variable.variable[(*place, slice(start, start + slab))].values
                for kind, part in zip(STATISTICS, summarise(values, per), strict=True):
                    found[kind][(*place, slice(start // per, start // per + len(part)))] = part
        for kind, values in found.items():
            data[f"{key}_{kind}"] = (variable.dims, values, variable.attrs)
    names = [dim for dim in ("layer", "direction", "sequence", "unit", "projection") if dim in recording.coords]
    coords: dict[str, Any] = {name: recording.coords[name].variable for name in names}
    return xr.Dataset(data, {**coords, "time": np.arange(blocks) * per}, {"per": per})


def open_overview(
    path: str | os.PathLike[str], *, per: Literal[64, 4096] = 64, module: str | None = None
) -> xr.Dataset:
    """Least, largest and mean value of every 64 or 4096 steps of a long recording on disk, without reading it.

    Recordings of more than 4096 steps have it, saved or streamed. While one is still written, blocks that are not
    complete are NaN.

    Parameters
    ----------
    path
        Of the recording.
    per
        Steps in a block, 64 or 4096; the last block of a sequence may hold fewer.
    module
        Path of the module, where the recording holds several.

    Returns
    -------
    xr.Dataset
        For each signal `<signal>_min`, `<signal>_max`, `<signal>_mean`, dims (layer, direction, sequence, time, unit),
        in the signal's units; `time` is the first step of the block.

    Raises
    ------
    FileNotFoundError
        If nothing exists at `path`.
    SchemaError
        If it is no recording.
    ValueError
        If it has no overview, or the module is not in it.
    """
    from . import streamed
    from .store import open_recording, reading

    if per not in LEVELS:
        raise ValueError(f"per must be 64 or 4096 steps; {per!r} came. Choose either.")
    opened = open_recording(path)
    groups = [""] if isinstance(opened, xr.Dataset) else list(map(str, opened.children))
    if isinstance(opened, xr.Dataset) and module in (None, opened.attrs["module"]):
        group, recording = "", opened
    elif module is None and len(groups) == 1:
        group, recording = groups[0], opened.children[groups[0]].to_dataset()
    elif isinstance(opened, xr.DataTree) and module in opened.children:
        group, recording = str(module), opened.children[str(module)].to_dataset()
    else:
        names = [opened.attrs["module"]] if isinstance(opened, xr.Dataset) else groups
        raise ValueError(f"module must be one of {', '.join(names)}; {module!r} came. Name one of them.")
    within = f"{group}/overview/{per}".lstrip("/")
    try:
        if "unfinished" in recording.attrs:
            return streamed.read_overview(Path(path) / within, recording, per)
        return reading(Path(path), within)
    except (KeyError, FileNotFoundError, OSError, SchemaError):
        opened.close()
        raise ValueError(
            f"Recordings of more than {LONG} steps have an overview; {os.fspath(path)!r} has none, with "
            f"{recording.sizes['time']} steps. Open the recording itself."
        ) from None
