"""The result of `resets`: a table of events, a summary of every unit, and how many reset together."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from ...signals import DIRECTIONS
from ..schema import LABEL_DIMS, SIGNAL_DIMS, label_names, padding_mask, signal_names
from .gate_source import RESET, Kind, starts_of
from .levels import Levels
from .runs import lengths_of
from .saturation import KEPT_ATTRS, memory_signal
from .synchrony import NONE, coinciding_pairs
from .trains import Trains, of_blocks

TOGETHER = ("together", "synchrony", "synchrony_z", "synchrony_p", "block_count", "memory_block")
UNIT_DIMS = ("kind", "layer", "direction", "unit")
Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]
At = tuple[int, int, int]  # kind, layer, direction


@dataclass
class Columns:
    """Events of one kind, layer and direction, one entry each; sequence and unit by position."""

    sequence: Places
    unit: Places
    onset: Places
    offset: Places
    depth: Numbers
    erased: Numbers
    before: Numbers
    after: Numbers
    written: Numbers
    overwrite: npt.NDArray[np.bool_]


ABOUT = {
    "onset": ("first step of the run", "step"),
    "offset": ("last step of the run", "step"),
    "depth": ("share thrown away", "1"),
    "erased": ("thrown away, in spreads of the unit", "1"),
    "before": ("memory before the run", "1"),
    "after": ("memory after the run", "1"),
    "written": ("what was written during the run", "1"),
    "overwrite": ("whether what was written took the place of what was thrown away", "1"),
}


class EventTable:
    """Events as they are found."""

    def __init__(self, recording: xr.Dataset, kinds: list[Kind]) -> None:
        self.recording = recording
        self.kinds = np.array([kind.name for kind in kinds] or [RESET], dtype=object)
        self.parts: list[tuple[At, Columns]] = []

    def add(self, at: At, columns: Columns) -> None:
        if columns.onset.size:
            self.parts.append((at, columns))

    def column(self, name: str, dtype: str) -> npt.NDArray[Any]:
        parts = [getattr(columns, name) for _, columns in self.parts]
        return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype=dtype)

    def place(self, axis: int) -> Places:
        sizes = [columns.onset.size for _, columns in self.parts]
        return np.repeat(np.array([at[axis] for at, _ in self.parts], dtype=np.int64), np.array(sizes, dtype=np.int64))

    def variables(self) -> dict[str, xr.Variable]:
        """All columns over `event`, in the order of kind, layer, direction, sequence, unit and onset."""
        rec = self.recording
        order = self._order()
        names = rec["direction"].to_numpy().astype(object)
        found = {
            "event_kind": self.kinds[self.place(0)[order]],
            "event_direction": names[self.place(2)[order]],
            "event_layer": rec["layer"].to_numpy()[self.place(1)[order]].astype(np.int64),
        }
        for dim in ("sequence", "unit"):
            found[f"event_{dim}"] = rec[dim].to_numpy()[self.column(dim, "int64")[order]].astype(np.int64)
        if "block" in rec.coords:
            found["event_block"] = rec["block"].to_numpy()[self.column("unit", "int64")[order]].astype(np.int64)
        for column in fields(Columns)[2:]:
            dtype = {"onset": "int64", "offset": "int64", "overwrite": "bool"}.get(column.name, "float64")
            found[column.name] = self.column(column.name, dtype)[order]
        # fastpath: xarray would make a string of its own for every event of the few that are repeated
        return {name: xr.Variable("event", values, _about(name), fastpath=True) for name, values in found.items()}

    def _order(self) -> Places:
        """What sorts events by kind, layer, direction, sequence, unit and onset; one number each, to be lean."""
        rec = self.recording
        names = rec["direction"].to_numpy()
        turns = np.array([DIRECTIONS.index(name) if name in DIRECTIONS else 0 for name in names])
        ranks = {"layer": _ranks(rec["layer"]), "direction": _ranks(turns)}
        ranks |= {dim: _ranks(rec[dim]) for dim in ("sequence", "unit")}
        key = self.place(0)
        for axis, dim in enumerate(("layer", "direction"), start=1):
            key *= rec.sizes[dim]
            key += ranks[dim][self.place(axis)]
        for dim in ("sequence", "unit"):
            key *= rec.sizes[dim]
            key += ranks[dim][self.column(dim, "int64")]
        key *= max(1, rec.sizes["time"])
        key += self.column("onset", "int64")
        return np.asarray(np.argsort(key, kind="stable"), dtype=np.int64)


def _ranks(values: npt.ArrayLike) -> Places:
    """The place of each value among the sorted ones."""
    ranks = np.empty(np.size(values), dtype=np.int64)
    ranks[np.argsort(np.asarray(values), kind="stable")] = np.arange(ranks.size)
    return ranks


def _about(name: str) -> dict[str, str]:
    what, units = ABOUT.get(name, (f"{name.removeprefix('event_')} of the event", "1"))
    return {"long_name": what, "units": units}


class UnitTable:
    """Levels, spread and steps of every unit, by kind, layer and direction."""

    def __init__(self, recording: xr.Dataset, kinds: list[Kind]) -> None:
        shape = (max(1, len(kinds)), *(recording.sizes[dim] for dim in UNIT_DIMS[1:]))
        self.low, self.high, self.usual, self.spread = (np.full(shape, np.nan) for _ in range(4))
        self.steps = np.zeros(shape, dtype=np.int64)

    def note(self, at: At, levels: Levels, spread: Numbers, steps: Places) -> None:
        self.low[at], self.high[at], self.usual[at] = levels
        self.spread[at], self.steps[at] = spread, steps

    def variables(self, table: EventTable) -> dict[str, xr.Variable]:
        """What each unit did, over kind, layer, direction and unit."""
        place = np.ravel_multi_index(
            (*(table.place(axis) for axis in range(3)), table.column("unit", "int64")), self.steps.shape
        )

        def summed(weights: Numbers | None = None) -> Numbers:
            return np.bincount(place, weights, minlength=self.steps.size).reshape(self.steps.shape).astype(np.float64)

        count = summed()
        empty = np.full(count.shape, np.nan)

        def mean(name: str) -> Numbers:
            sums = summed(table.column(name, "float64"))
            return np.asarray(np.divide(sums, count, out=empty.copy(), where=count > 0))

        rate = np.divide(1000 * count, self.steps, out=empty.copy(), where=self.steps > 0)
        values: dict[str, tuple[npt.NDArray[Any], str]] = {
            "count": (count.astype(np.int64), "events"),
            "rate": (rate, "events per 1000 steps"),
            "mean_depth": (mean("depth"), "mean share thrown away"),
            "mean_erased": (mean("erased"), "mean of what was thrown away, in spreads"),
            "overwritten": (mean("overwrite"), "share of events that are overwrites"),
            "low": (self.low, "value below which the gate has fallen"),
            "high": (self.high, "value at which the gate has risen again"),
            "usual": (self.usual, "median of the gate"),
            "steps": (self.steps, "steps that counted"),
            "spread": (self.spread, "standard deviation of what the gate multiplies"),
        }
        return {
            name: xr.Variable(UNIT_DIMS, v, {"long_name": text, "units": "1"}) for name, (v, text) in values.items()
        }


def event_dataset(recording: xr.Dataset, table: EventTable, units: UnitTable) -> xr.Dataset:
    """The whole result but the parameters of the call."""
    names = [name for name in signal_names(recording) if recording[name].dims == SIGNAL_DIMS]
    lengths = lengths_of(recording, memory_signal(recording) or names[0])
    steps = int(lengths.max(initial=0))
    coords: dict[str, Any] = {dim: recording[dim].variable for dim in ("layer", "direction", "sequence", "unit")}
    variables = table.variables()
    coords |= {"kind": table.kinds, "time": np.arange(steps), "event": np.arange(variables["onset"].size)}
    coords |= {"length": ("sequence", lengths), "start": ("sequence", starts_of(recording))}
    if "block" in recording.coords:
        coords["block"] = recording["block"].variable
    cut = {"time": slice(0, steps)}
    variables |= units.variables(table)
    taken = {*variables, *coords, *TOGETHER}  # a label called `depth`, say, stays in the recording alone
    coords |= {name: recording[name].isel(cut).variable for name in label_names(recording) if name not in taken}
    result = xr.Dataset(variables, coords=coords)
    result.attrs = {key: recording.attrs[key] for key in KEPT_ATTRS if key in recording.attrs}
    result.attrs |= {"memory": memory_signal(recording), "recorded_steps": int(recording.sizes["time"])}
    return result.assign(_together(result))


def _together(result: xr.Dataset) -> dict[str, xr.Variable]:
    """How many units, or blocks where there are any, begin an event at each step, and whether that is chance."""
    shape = tuple(result.sizes[dim] for dim in UNIT_DIMS[:3])
    together = np.zeros((*shape, *(result.sizes[dim] for dim in LABEL_DIMS)), dtype=np.float32)
    together[..., padding_mask(result["length"].to_numpy(), result.sizes["time"])] = np.nan
    ratio, z, p = (np.full(shape, np.nan) for _ in range(3))
    blocks, member = np.empty(0, dtype=np.int64), None
    if "block" in result.coords:
        blocks, member = np.unique(result["block"].to_numpy(), return_inverse=True)
    count = np.zeros((*shape, len(blocks)), dtype=np.int64)
    for number, kind in enumerate(result["kind"].to_numpy()):
        trains = Trains.of(result, str(kind))
        for layer, direction in np.ndindex(shape[1:]):
            at, pairs = (number, layer, direction), NONE
            for sequence in range(result.sizes["sequence"]):
                train = trains.dense(layer, direction, sequence)
                if member is not None:
                    train = of_blocks(train, member)
                    count[at] += train.sum(axis=1).astype(np.int64)
                together[at][sequence, trains.times(direction, sequence)] = train.sum(axis=0)
                pairs = pairs.plus(coinciding_pairs(train))
            ratio[at] = pairs.found / pairs.expected if pairs.expected else np.nan
            z[at], p[at] = pairs.z, pairs.p
    dims = UNIT_DIMS[:3]
    who = "units" if member is None else "blocks"
    found = {
        "together": xr.Variable(
            (*dims, *LABEL_DIMS), together, {"long_name": f"{who} that begin an event", "units": "1"}
        ),
        "synchrony": xr.Variable(dims, ratio, {"long_name": "coinciding pairs over those expected", "units": "1"}),
        "synchrony_z": xr.Variable(dims, z, {"long_name": "z of the coinciding pairs", "units": "1"}),
        "synchrony_p": xr.Variable(dims, p, {"long_name": "p of the coinciding pairs", "units": "1"}),
    }
    if member is not None:
        found["block_count"] = xr.Variable(
            (*dims, "memory_block"), count, {"long_name": "events of a block", "units": "1"}
        )
        found["memory_block"] = xr.Variable("memory_block", np.asarray(blocks, dtype=np.int64))
    return found
