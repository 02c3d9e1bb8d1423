"""What gate and memory do around an event: averages over the events of each unit."""

import numpy as np
import numpy.typing as npt
import xarray as xr

from .gate_source import Source, kinds_of
from .runs import require_recording
from .saturation import KEPT_ATTRS
from .trains import places, require_events

UNIT_DIMS = ("layer", "direction", "unit")
BLOCK = 2**21  # values read at once

Numbers = npt.NDArray[np.float64]


def event_average(
    recording: xr.Dataset, events: xr.Dataset, *, before: int = 8, after: int = 12, kind: str = "reset"
) -> xr.Dataset:
    """Event-triggered average: each unit's gate and memory around the steps at which its events begin.

    At lag 0 stands the first step of an event, before it the steps that the network had computed earlier, so that in
    the backward direction lag -1 is the next step of the input. Steps outside the sequence count for nothing.

    Parameters
    ----------
    recording
        The recording that the events are from; it is read in blocks of whole sequences.
    events
        What `resets` returned of it, or some of its events.
    before, after
        Steps to average before and after the onset, 0 or more.
    kind
        Which events: `"reset"` (the gate is the retention) or `"fresh_start"` (the reset gate).

    Returns
    -------
    xr.Dataset
        Over `layer`, `direction`, `unit`, `lag`: `gate`, `memory`, `memory_size` (mean of the absolute value, which
        does not cancel between events of either sign) and `steps` (how many there were). Over `layer`, `direction`,
        `unit`: `events`, and `usual_gate` and `usual_size`, the means over all steps. NaN for units without events.

    Raises
    ------
    ValueError
        When the events are not those of the recording, or `before` or `after` is no whole number of steps.

    Examples
    --------
    >>> dims, shape = ["layer", "direction", "sequence", "time", "unit"], (1, 1, 1, 6, 1)
    >>> gate = xr.DataArray(np.reshape([1, 1, 1, 0.25, 1, 1], shape), dims=dims, attrs={"role": "gate"})
    >>> memory = xr.DataArray(np.reshape([4.0, 4, 4, 1, 1, 1], shape), dims=dims, attrs={"role": "memory"})
    >>> recording = xr.Dataset({"forget_gate": gate, "cell_state": memory}, {"direction": ["forward"]})
    >>> recording = recording.assign_coords(layer=[0], sequence=[0], unit=[0])
    >>> recording.attrs = {"schema": "gatescope.recording/1", "retention": "forget_gate"}
    >>> from gatescope import resets
    >>> event_average(recording, resets(recording), before=1, after=1)["memory"].values.ravel()
    array([4., 1., 1.])
    """
    require_recording(recording, "event_average")
    require_events(events, "event_average", kind)
    for name, value in {"before": before, "after": after}.items():
        if not (isinstance(value, int | np.integer) and value >= 0):
            raise ValueError(f"{name} must be a whole number of steps, 0 or more; {value!r} came.")
    kinds = [one for one in kinds_of(recording)[0] if one.name == kind]
    lags = np.arange(-before, after + 1)
    shape = tuple(recording.sizes[dim] for dim in UNIT_DIMS)
    sums = np.zeros((4, *shape, lags.size))  # steps, gate, memory, its size
    whole, count = np.zeros((3, *shape)), np.zeros(shape, dtype=np.int64)
    at = {dim: _places(events, recording, dim, kind) for dim in ("layer", "direction", "sequence", "unit")}
    onset = events["onset"].to_numpy()[events["event_kind"].to_numpy() == kind]
    for layer, direction in np.ndindex(shape[:2]) if kinds else ():
        source = Source(recording, kinds[0], (layer, direction))
        here = (at["layer"] == layer) & (at["direction"] == direction)
        for sequences, units in source.places(BLOCK):
            block = source.block(sequences, units)
            values = np.stack([np.ones(block.gate.shape), block.gate, block.memory, np.abs(block.memory)])
            values[:, ~np.isfinite(block.gate + block.memory)] = 0
            whole[:, layer, direction, units] += values[[0, 1, 3]].sum(axis=(1, 2))
            inside = here & (at["sequence"] >= sequences.start) & (at["sequence"] < sequences.stop)
            inside &= (at["unit"] >= units.start) & (at["unit"] < units.stop)
            unit, one = at["unit"][inside] - units.start, at["sequence"][inside] - sequences.start
            first = source.steps - 1 - onset[inside] if source.backward else onset[inside]
            np.add.at(count[layer, direction], unit + units.start, 1)
            for place, lag in enumerate(lags):
                step = first + lag
                there = (step >= 0) & (step < source.steps)
                found = values[:, one[there], step[there], unit[there]]
                np.add.at(sums[:, layer, direction, units, place].swapaxes(0, 1), unit[there], found.T)
    return _result(recording, events, (sums, whole, count, lags), kind)


def _places(events: xr.Dataset, recording: xr.Dataset, dim: str, kind: str) -> npt.NDArray[np.int64]:
    which = events["event_kind"].to_numpy() == kind
    values, index = events[f"event_{dim}"].to_numpy()[which], recording[dim].to_numpy()
    if dim == "direction":
        values, index = values == "backward", index == "backward"
    return places(values, index)


def _result(
    recording: xr.Dataset,
    events: xr.Dataset,
    found: tuple[Numbers, Numbers, npt.NDArray[np.int64], npt.NDArray[np.int64]],
    kind: str,
) -> xr.Dataset:
    sums, whole, count, lags = found

    def mean(part: Numbers, steps: Numbers) -> Numbers:
        return np.asarray(np.divide(part, steps, out=np.full(part.shape, np.nan), where=steps > 0))

    dims = (*UNIT_DIMS, "lag")
    about = {"units": "1"}
    data = {
        "gate": (dims, mean(sums[1], sums[0]), {"long_name": "mean of the gate", **about}),
        "memory": (dims, mean(sums[2], sums[0]), {"long_name": "mean of the memory", **about}),
        "memory_size": (dims, mean(sums[3], sums[0]), {"long_name": "mean size of the memory", **about}),
        "steps": (dims, sums[0].astype(np.int64), {"long_name": "steps that counted", **about}),
        "events": (UNIT_DIMS, count, {"long_name": "events", **about}),
        "usual_gate": (UNIT_DIMS, mean(whole[1], whole[0]), {"long_name": "mean of the gate over all steps", **about}),
        "usual_size": (UNIT_DIMS, mean(whole[2], whole[0]), {"long_name": "mean size over all steps", **about}),
    }
    coords = {dim: recording[dim].variable for dim in UNIT_DIMS} | {"lag": ("lag", lags)}
    if "block" in recording.coords:
        coords["block"] = recording["block"].variable
    result = xr.Dataset(data, coords)
    result.attrs = {key: recording.attrs[key] for key in KEPT_ATTRS if key in recording.attrs}
    result.attrs |= {"measure": "event_average", "kind": kind, "before": int(-lags[0]), "after": int(lags[-1])}
    return result.assign_attrs(reason=str(events.attrs.get("reason", "")), memory=str(events.attrs.get("memory", "")))
