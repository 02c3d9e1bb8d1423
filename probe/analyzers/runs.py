"""Reading a recording run by run: one sequence of one layer and direction at a time, in the order of computation."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from ...signals import SCHEMA
from ..schema import SIGNAL_DIMS, SchemaError

Numbers = npt.NDArray[np.float64]
READ = 2**22  # values read at once, of each signal


class Run(NamedTuple):
    """One sequence of one layer and direction: where it is and its values (step, unit) by name, without padding."""

    layer: int
    direction: int
    sequence: int
    values: dict[str, Numbers]


def require_recording(recording: xr.Dataset, measure: str) -> None:
    """Raise where what came is no recording, naming the measure that was asked for."""
    if not isinstance(recording, xr.Dataset):
        raise TypeError(
            f"{measure} needs one recording, an xarray Dataset; {type(recording).__name__} came. "
            "Take one node of a tree: tree['name'].to_dataset()."
        )
    if recording.attrs.get("schema") != SCHEMA:
        raise SchemaError(
            f"{measure} needs a recording, with attribute schema={SCHEMA!r}; {recording.attrs.get('schema')!r} came. "
            "Pass what record or open_recording returns, and keep its attributes."
        )


def lengths_of(recording: xr.Dataset, name: str) -> npt.NDArray[np.int64]:
    """Real steps of each sequence, of those that are there.

    `length` counts from the first step that was recorded, so of a later stretch of time less is left. Where a subset
    has lost it, steps count up to the last one with a value of the signal.
    """
    steps = recording.sizes["time"]
    if "length" not in recording.coords:
        other = [dim for dim in SIGNAL_DIMS if dim not in ("sequence", "time")]
        real = recording[name].notnull().any(other).transpose("sequence", "time").to_numpy()
        last = steps - np.argmax(real[:, ::-1], axis=1) if steps else 0
        return np.where(real.any(axis=1), last, 0).astype(np.int64)
    lengths = np.asarray(recording["length"].to_numpy(), dtype=np.int64)
    time = times_of(recording)
    return np.asarray(np.minimum(lengths, steps) if time is None else np.searchsorted(time, lengths), dtype=np.int64)


def times_of(recording: xr.Dataset) -> npt.NDArray[np.int64] | None:
    """Which of the recorded steps are there; None where they are in no order."""
    if "time" not in recording.coords:
        return np.arange(recording.sizes["time"])
    time = recording["time"].to_numpy()
    return time.astype(np.int64) if time.dtype.kind in "iu" and (np.diff(time) > 0).all() else None


def runs(recording: xr.Dataset, names: list[str]) -> Iterator[Run]:
    """All runs, each read once; the backward direction is turned round, so that its first step is the last input."""
    lengths = lengths_of(recording, names[0])
    width = max(1, recording.sizes["time"] * recording.sizes["unit"])
    group = max(1, READ // width)
    places = np.ndindex(recording.sizes["layer"], recording.sizes["direction"])
    backward = [str(direction) == "backward" for direction in recording["direction"].to_numpy()]
    for layer, direction in places:
        here = recording[names].isel(layer=layer, direction=direction)
        for first in range(0, recording.sizes["sequence"], group):
            part = here.isel(sequence=slice(first, first + group))
            arrays = {name: part[name].to_numpy() for name in names}
            for offset in range(part.sizes["sequence"]):
                steps = slice(None, lengths[first + offset])
                order = slice(None, None, -1) if backward[direction] else slice(None)
                values = {name: array[offset, steps][order].astype(np.float64) for name, array in arrays.items()}
                yield Run(layer, direction, first + offset, values)
