"""From which states the search for fixed points starts: an array, or states that a network was recorded in."""

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from torch import Tensor

from .schema import padding_mask
from .state_map import Entry

Array = npt.NDArray[np.float64]


def starting_states(
    starts: Any, entries: list[Entry], direction: str, *, count: int, between: float, seed: int
) -> Array:
    """(start, state), float64: an array as it is; of a recording as many as are asked for."""
    if isinstance(starts, xr.Dataset):
        return drawn(starts, entries, direction, count=count, between=between, seed=seed)
    try:
        values = starts.detach().cpu().numpy() if isinstance(starts, Tensor) else np.asarray(starts)
    except (NotImplementedError, ValueError):  # a tensor without values, rows of unequal length
        values = np.array(None)
    size = sum(entry.width for entry in entries)
    if values.dtype.kind not in "fiu" or values.ndim != 2 or values.shape[1] != size or len(values) == 0:
        parts = ", ".join(f"{entry.width} of {entry.signal} of layer {entry.layer}" for entry in entries)
        raise ValueError(
            f"starts must be a recording or an array (start, state) with {size} numbers a start: {parts}; "
            f"{values.dtype} of shape {values.shape} came. Give for instance what gatescope.record returned."
        )
    states = np.array(values, np.float64)
    if not np.isfinite(states).all():
        raise ValueError("starts must be finite; some are NaN or infinite. Leave those rows out.")
    return states


def drawn(
    recording: xr.Dataset, entries: list[Entry], direction: str, *, count: int, between: float, seed: int
) -> Array:
    """Recorded states at random steps; a share of them is replaced by a point on the line to another recorded state."""
    lacking = [name for name in ("length", "layer", "direction", "sequence", "time") if name not in recording.variables]
    if lacking:
        raise ValueError(
            f"starts must be what gatescope.record returned, or whole sequences and steps of it; it has no "
            f"{lacking[0]!r}. Select with a list or a slice, and average nothing."
        )
    random = np.random.default_rng(seed)
    steps = np.argwhere(~padding_mask(recording["length"].to_numpy(), recording.sizes["time"]))
    if len(steps) == 0:
        raise ValueError("starts must hold a step; the recording has none. Record some inputs.")
    first = at_steps(recording, entries, direction, random.permutation(steps)[:count])
    pairs = random.integers(len(first), size=(round(between * count), 2))
    share = random.random((len(pairs), 1))
    mixed = share * first[pairs[:, 0]] + (1 - share) * first[pairs[:, 1]]
    return np.concatenate([first[: max(count - len(pairs), 0)], mixed])


def at_steps(recording: xr.Dataset, entries: list[Entry], direction: str, steps: npt.NDArray[np.int64]) -> Array:
    """The joined states after some steps, (step, state); those that are not finite are left out."""
    sequence, time = (xr.DataArray(places, dims="step") for places in steps.T)
    parts = []
    for entry in entries:
        signal = require(recording, entry, direction)
        here = signal.sel(layer=entry.layer, direction=direction).isel(sequence=sequence, time=time)
        parts.append(np.asarray(here.transpose("step", ...).to_numpy(), np.float64))
    states: Array = np.concatenate(parts, axis=1)
    states = states[np.isfinite(states).all(axis=1)]
    if len(states) == 0:
        raise ValueError("starts must hold finite states; all those of the recording are NaN or infinite.")
    return states


def require(recording: xr.Dataset, entry: Entry, direction: str) -> xr.DataArray:
    """A state's signal, if the recording has it for this layer and direction and as wide as the module's."""
    if entry.signal not in recording:
        raise ValueError(
            f"starts must be a recording with every state; {entry.signal} is missing in it. Record without signals=, "
            "or with it."
        )
    signal = recording[entry.signal]
    for dim, value in (("layer", entry.layer), ("direction", direction)):
        there = recording[dim].to_numpy().tolist()
        if value not in there:
            raise ValueError(f"starts must be a recording with {dim} {value!r}; it has {there}. Record the module.")
    width = signal.sizes[signal.dims[-1]]
    if width != entry.width:
        raise ValueError(
            f"starts must be a recording of this module, whose {entry.signal} has {entry.width} units in a layer; one "
            f"with {width} came. Record this model."
        )
    return signal
