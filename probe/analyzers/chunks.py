"""Reading what roles are judged by: memory, gates, labels and resets of some units, in the order of computation."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from ...signals import GATE_ROLES, retention_form, retention_values
from ..schema import SIGNAL_DIMS, signal_names
from .evidence import Chunk
from .labelled import Label
from .runs import Numbers
from .saturation import bounds_of

AT_ONCE = 2**20  # values worked on at once

Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Rows(NamedTuple):
    """Resets of one layer and direction, by position: first and last step in the order of computation."""

    sequence: Places
    unit: Places
    first: Places
    last: Places


def chunks(
    recording: xr.Dataset,
    memory: str,
    at: tuple[int, int],
    lengths: Places,
    group: Places,
    label: Label | None,
    events: xr.Dataset,
) -> Iterator[Chunk]:
    """All units of one layer and direction, some at a time."""
    sizes = recording.sizes
    backward = str(recording["direction"].to_numpy()[at[1]]) == "backward"
    turn = _turned(lengths, sizes["time"]) if backward else None
    width = max(1, AT_ONCE // max(1, sizes["sequence"] * sizes["time"]))
    retention = str(recording.attrs.get("retention", "none"))
    form, keeper = retention_form(retention)
    gates = [
        name
        for name in signal_names(recording)
        if recording[name].dims == SIGNAL_DIMS and recording[name].attrs["role"] in GATE_ROLES
    ]
    writer = next((name for name in gates if recording[name].attrs["role"] == "write"), "")
    here = recording.isel(layer=at[0], direction=at[1])
    rows = _event_rows(recording, events, at, lengths, backward)

    def read(name: str, units: slice) -> Numbers:
        values = here[name].isel(unit=units).to_numpy().astype(np.float64)
        return values if turn is None else np.take_along_axis(values, turn[:, :, None], axis=1)

    for first in range(0, sizes["unit"], width):
        units = slice(first, min(first + width, sizes["unit"]))
        values = read(memory, units)
        good = (np.isfinite(values) | (group < 0)[:, :, None]).all(axis=(0, 1))
        values[:, :, ~good] = np.nan
        every = {name: read(name, units) for name in gates}
        for gate in every.values():
            gate[~np.isfinite(gate)] = np.nan
        keep: Numbers | None = None
        if form == "constant":
            keep = np.full_like(values, float(keeper))
        elif form != "none" and keeper in every:
            keep = np.asarray(retention_values(retention, every))
        write = every[writer] if writer else (1 - keep if keep is not None and form != "constant" else None)
        begins, inside = _event_masks(rows, values.shape, units)
        scaled = {name: _fraction(recording[name], array) for name, array in every.items()}
        yield Chunk(
            values,
            keep,
            write,
            scaled,
            group if turn is None else np.take_along_axis(group, turn, axis=1),
            None
            if label is None
            else (label.values if turn is None else np.take_along_axis(label.values, turn, axis=1)),
            len(label.classes) if label else 0,
            begins,
            inside,
        )


def _turned(lengths: Places, steps: int) -> Places:
    """For every (sequence, step of computation) of a backward direction, where it stands on the time axis."""
    time = np.arange(steps)
    return np.where(time < lengths[:, None], lengths[:, None] - 1 - time, time)


def _fraction(variable: xr.DataArray, values: Numbers) -> Numbers:
    """A gate as a fraction of its range."""
    lower, upper = bounds_of(variable) or (0.0, 1.0)
    return (values - lower) / (upper - lower)


def _event_rows(
    recording: xr.Dataset, events: xr.Dataset, at: tuple[int, int], lengths: Places, backward: bool
) -> Rows:
    """The resets of one layer and direction."""
    which = events["event_kind"].to_numpy() == "reset"
    for dim, place in zip(("layer", "direction"), at, strict=True):
        which &= events[f"event_{dim}"].to_numpy() == recording[dim].to_numpy()[place]
    sequence, unit = (
        _positions(events[f"event_{dim}"].to_numpy()[which], recording[dim].to_numpy()) for dim in ("sequence", "unit")
    )
    onset, offset = (events[name].to_numpy()[which].astype(np.int64) for name in ("onset", "offset"))
    if backward:
        onset, offset = (lengths[sequence] - 1 - step for step in (onset, offset))
    return Rows(sequence, unit, onset, offset)


def _positions(values: npt.NDArray[np.int64], index: npt.NDArray[np.int64]) -> Places:
    order = np.argsort(index, kind="stable")
    return np.asarray(order[np.searchsorted(index[order], values)], dtype=np.int64)


def _event_masks(rows: Rows, shape: tuple[int, ...], units: slice) -> tuple[Flags, Flags]:
    """First steps of resets, and all their steps, (sequence, time, unit)."""
    here = (rows.unit >= units.start) & (rows.unit < units.stop)
    sequence, unit = rows.sequence[here], rows.unit[here] - units.start
    first, last = rows.first[here], rows.last[here]
    begins = np.zeros(shape, dtype=bool)
    begins[sequence, first, unit] = True
    edges = np.zeros((shape[0], shape[1] + 1, shape[2]), dtype=np.int64)
    np.add.at(edges, (sequence, first, unit), 1)
    np.add.at(edges, (sequence, last + 1, unit), -1)
    return begins, np.cumsum(edges, axis=1)[:, :-1] > 0
