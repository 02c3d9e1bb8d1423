"""From a recording to the steps of one layer and direction, in the order in which that direction reads."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from ...signals import retention_form, retention_values
from ..layout import STEP_JACOBIAN as STORED
from ..schema import FIXED_DIMS, SIGNAL_DIMS, signal_names
from .jacobian import CELLS, GATES_SEE_GATES, Array, Factors, Given
from .runs import lengths_of, require_recording
from .steps import FactoredSteps, Steps, StoredSteps

STORED_DIMS = FIXED_DIMS[STORED][0]
STATES = ("hidden_state", "cell_state")
WITH_WEIGHTS = ("input_gate", "forget_gate", "output_gate", "reset_gate", "update_gate", "candidate")


class Part(NamedTuple):
    """A stretch of some sequences of one layer and direction; `first` counts steps in the order of reading."""

    layer: int
    direction: int
    sequences: npt.NDArray[np.int64]
    first: int
    last: int


class Source:
    """A recording that is read part by part; only what a part needs is loaded, one signal after another.

    Steps follow from the cell's signals and weights where those give them, else from the Jacobians that were recorded.
    """

    def __init__(self, recording: xr.Dataset, measure: str) -> None:
        require_recording(recording, measure)
        self.recording, self.measure = recording, measure
        self.cell = str(recording.attrs.get("cell", ""))
        require_steps(recording, measure)
        self.names: tuple[str, ...] = ()
        try:
            self.names = self._needed()
        except ValueError:
            if STORED not in recording:
                raise
        self.stored = not self.names
        self.lengths = lengths_of(recording, (*self.names, *signal_names(recording))[0])
        self.backward = [str(direction) == "backward" for direction in recording["direction"].to_numpy()]

    def _needed(self) -> tuple[str, ...]:
        """Names of the signals that the cell's factors are made of."""
        recording = self.recording
        if self.cell not in CELLS:
            raise ValueError(
                f"{self.measure} needs a cell whose Jacobian is known ({', '.join(CELLS)}) or stored; {self.cell!r} "
                "came. Record it with attach(..., jacobian=True)."
            )
        variant = str(recording.attrs.get("variant", ""))
        if any(name in variant for name in GATES_SEE_GATES):
            raise ValueError(
                f"{self.measure} needs steps that depend on h and c alone; the gates of {self.cell} ({variant}) also "
                "see the gates of the step before. Record it with attach(..., jacobian=True)."
            )
        require_weights(recording, self.measure)
        if "weights_changed" in recording.attrs:
            raise ValueError(
                f"{self.measure} needs one set of weights for all steps; {recording.attrs['weights_changed']}. Choose "
                "the sequences of that call and drop the attribute weights_changed, or record again."
            )
        gates, found = self.gates, signal_names(recording)
        missing = [
            name
            for name in CELLS[self.cell].needs
            if name not in found and (name in gates or name not in ("input_gate", "forget_gate", "output_gate"))
        ]
        if missing:
            raise ValueError(
                f"{self.measure} needs the signals {', '.join(CELLS[self.cell].needs)} of {self.cell}; the recording "
                f"lacks {', '.join(missing)}. Record without signals=, or with these."
            )
        needed = tuple(name for name in CELLS[self.cell].needs if name in found)
        without = [name for name in needed if name in WITH_WEIGHTS and name not in gates]
        if without:
            raise ValueError(
                f"{self.measure} needs the recurrent weights of every gate; weight_hh lacks {', '.join(without)}. "
                "Choose no gates."
            )
        return needed

    @property
    def gates(self) -> list[str]:
        return [str(name) for name in self.recording["gate"].to_numpy()]

    @property
    def precision(self) -> np.dtype[Any]:
        """What the recording was computed in; half precision is carried on in float32."""
        name = STORED if self.stored else self.names[0]
        return np.result_type(self.recording[name].dtype, np.float32)

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of each state."""
        units = self.recording.sizes["unit"]
        if not self.stored:
            hidden = self.recording.sizes["source"]
            return (hidden, units) if "cell_state" in self.names else (hidden,)
        whole = self.recording.sizes["target_state"]
        said = re.findall(r"(\d+):(\d+)", str(self.recording[STORED].attrs.get("states", "")))
        if said:  # units may have been chosen away since
            return tuple(int(end) - int(start) for start, end in said)
        hidden = self.recording.sizes.get("projection", units)
        return (whole,) if whole == hidden else (hidden, *(units for _ in range((whole - hidden) // units)))

    def part(self, layer: int, direction: int, sequences: npt.ArrayLike) -> Part:
        """Some sequences, whole."""
        chosen = np.asarray(sequences, dtype=np.int64)
        return Part(layer, direction, chosen, 0, int(self.lengths[chosen].max(initial=0)))

    def read(self, name: str, part: Part) -> Array:
        """A variable of a part, (sequence, step, ...), NaN where a sequence has ended."""
        variable = self.recording[name].isel(layer=part.layer, direction=part.direction)
        lengths = self.lengths[part.sequences]
        many = len(part.sequences) > 1
        backward = self.backward[part.direction]
        times = backward_slice(lengths, part) if backward else slice(part.first, part.last)
        values: Array = chosen(variable, part.sequences).isel(time=times).to_numpy()
        if backward:
            values = turned(values, lengths - times.start, part) if many else values[:, ::-1]
        return values

    def steps(self, part: Part, dtype: npt.DTypeLike | None = None) -> Steps:
        """The step Jacobians of a part."""
        dtype = np.dtype(dtype or self.precision)
        if self.stored:
            return StoredSteps(self.read(STORED, part).astype(dtype, copy=False), self._stored_states(), self.widths)
        return FactoredSteps(self.factors(part, dtype))

    def factors(self, part: Part, dtype: npt.DTypeLike) -> Factors:
        """The factors of a part, from its signals and the recording's weights."""
        signals = {name: self.read(name, part).astype(dtype, copy=False) for name in self.names}
        place = {"layer": part.layer, "direction": part.direction}
        weights = self.recording["weight_hh"].isel(place).to_numpy().astype(dtype)
        peepholes: Mapping[str, Array] = {}
        if "weight_peephole" in self.recording:
            values = self.recording["weight_peephole"].isel(place).to_numpy().astype(dtype)
            peepholes = dict(zip(self.gates, values, strict=True))
        projection = self.recording.get("weight_hr")
        hidden = self.recording.get("hidden_state")
        rectified = hidden is not None and "upper" not in hidden.attrs
        return CELLS[self.cell].factors(
            Given(
                signals,
                {name: self._before(name, part).astype(dtype) for name in STATES if name in signals},
                dict(zip(self.gates, weights, strict=True)),
                peepholes,
                None if projection is None else projection.isel(place).to_numpy().astype(dtype),
                {**self.recording.attrs, "rectified": rectified},
            )
        )

    def log_retention(self, part: Part) -> tuple[Array, Array] | None:
        """Log of what multiplies the memory (0 where that is 0), and where it is 0; `None` for a cell without."""
        retention = str(self.recording.attrs["retention"])
        form, name = retention_form(retention)
        if form == "none":
            return None
        if form == "constant":
            values = np.full((len(part.sequences), part.last - part.first, self.recording.sizes["unit"]), float(name))
        elif name not in self.recording:
            return None
        else:
            signals = {str(name): self.read(str(name), part).astype(np.float64)}
            values = np.asarray(retention_values(retention, signals))
        gone = values == 0
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.log(np.where(gone, 1.0, values)), gone

    def _before(self, name: str, part: Part) -> Array:
        """A state before a part's first step, (sequence, unit); NaN where it was not recorded."""
        if part.first > 0:
            return self.read(name, part._replace(first=part.first - 1, last=part.first))[:, 0]
        initial = f"initial_{name}"
        if initial not in self.recording:
            return np.full((len(part.sequences), self.recording[name].shape[-1]), np.nan)
        variable = self.recording[initial].isel(layer=part.layer, direction=part.direction)
        found: Array = chosen(variable, part.sequences).to_numpy()
        return found

    def _stored_states(self) -> tuple[str, ...]:
        return STATES[: len(self.widths)] if len(self.widths) <= 2 else tuple(map(str, range(len(self.widths))))


def require_steps(recording: xr.Dataset, measure: str) -> None:
    """Raise where the recording's steps do not follow one another, or are not those of one set of weights."""
    missing = [dim for dim in SIGNAL_DIMS if dim not in recording.dims]
    if missing:
        raise ValueError(
            f"{measure} needs the dimensions {', '.join(SIGNAL_DIMS)}; the recording lacks {', '.join(missing)}. "
            f"Select with lists or slices, as in .isel({missing[0]}=[0]), which keeps the dimension."
        )
    empty = [dim for dim in ("layer", "direction", "unit") if not recording.sizes[dim]]
    if empty:
        raise ValueError(f"{measure} needs at least one {empty[0]}; the recording has none. Choose fewer away.")
    times = recording["time"].to_numpy()
    if (np.diff(times) != 1).any():
        raise ValueError(
            f"{measure} needs steps that follow one another; the recording's time jumps or turns back. Choose one "
            "stretch, as in .isel(time=slice(10, 50))."
        )
    stride = int(recording.attrs.get("stride", 1))
    if stride > 1:
        raise ValueError(f"{measure} needs every step; the recording holds every {stride}th. Record with stride=1.")
    if STORED in recording and recording[STORED].dims != STORED_DIMS:
        raise ValueError(
            f"{STORED} must have dimensions {', '.join(STORED_DIMS)}; {', '.join(map(str, recording[STORED].dims))} "
            "came. Choose with lists or slices, which keep the dimensions."
        )
    if STORED in recording:
        sizes = [recording.sizes[dim] for dim in STORED_DIMS[-2:]]
        ends = [int(end) for end in re.findall(r":(\d+)", str(recording[STORED].attrs.get("states", "")))]
        if sizes[0] != sizes[1] or (ends and ends[-1] != sizes[0]):
            raise ValueError(
                f"{STORED} must have the whole state as target and as source, {max([*sizes, *ends])} numbers; "
                f"{sizes[0]} and {sizes[1]} came. Choose units from the result instead."
            )


def require_weights(recording: xr.Dataset, measure: str) -> None:
    """Raise where the recurrent weights are missing, or are no longer those of all units."""
    if "weight_hh" not in recording:
        raise ValueError(
            f"{measure} needs the recurrent weights, variable weight_hh; the recording has none. Record with a version "
            "that stores them, and keep weight_hh in a subset."
        )
    shown = recording["projection" if "weight_hr" in recording else "unit"].to_numpy()
    sources = recording["source"].to_numpy()
    if not np.array_equal(shown, sources):
        raise ValueError(
            f"{measure} needs all units, and in weight_hh the same ones as sources, since each acts on all others; "
            f"{len(shown)} units and {len(sources)} sources came. Choose units from the result instead."
        )
    if "left_out" in recording.attrs and "unit" in str(recording.attrs["left_out"]):
        raise ValueError(
            f"{measure} needs all units, since each acts on all others; {recording.attrs['left_out']}. Record without "
            "units=."
        )


def chosen(variable: xr.DataArray, sequences: npt.NDArray[np.int64]) -> xr.DataArray:
    """Some sequences of a variable; as a slice where they follow one another, which copies nothing."""
    if len(sequences) and np.array_equal(sequences, np.arange(sequences[0], sequences[-1] + 1)):
        return variable.isel(sequence=slice(int(sequences[0]), int(sequences[-1]) + 1))
    return variable.isel(sequence=sequences)


def backward_slice(lengths: npt.NDArray[np.int64], part: Part) -> slice:
    """The input's steps that a stretch of reading backwards covers."""
    return slice(max(0, int(lengths.min()) - part.last), max(0, int(lengths.max()) - part.first))


def turned(values: Array, lengths: npt.NDArray[np.int64], part: Part) -> Array:
    """Sequences of different lengths, each turned round within its own: step j of reading is input length - 1 - j."""
    steps = np.arange(part.first, part.last)
    place = lengths[:, None] - 1 - steps
    found: Array = values[np.arange(len(values))[:, None], np.maximum(place, 0)]
    found[place < 0] = np.nan
    return found
