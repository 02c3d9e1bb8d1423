"""Reading what `resets` looks at: a gate, what it multiplies and the memory, block by block in running order."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from ...signals import retention_form
from ..schema import SIGNAL_DIMS as DIMS
from ..schema import signal_names
from .runs import lengths_of, times_of
from .saturation import memory_signal

RESET, FRESH_START = "reset", "fresh_start"
CANDIDATE_RECURRENT = "candidate_recurrent"  # what a reset gate applied after the product multiplies

Values = npt.NDArray[np.floating]
Places = npt.NDArray[np.int64]


class Kind(NamedTuple):
    """A kind of event: the signal whose fall it is, whether one minus it is meant, and what that multiplies."""

    name: str
    signal: str
    complement: bool
    target: str  # of the same step; empty: the memory before


class Block(NamedTuple):
    """Arrays (sequence, time, unit) in running order; `initial` is the memory before each sequence's step `begin`."""

    sequences: slice
    units: slice
    gate: Values
    memory: Values
    initial: Values
    begin: Places


def starts_of(recording: xr.Dataset) -> npt.NDArray[np.object_]:
    if "start" in recording.coords:
        return np.asarray(recording["start"].to_numpy(), dtype=object)
    return np.full(recording.sizes["sequence"], "zero", dtype=object)


def kinds_of(recording: xr.Dataset) -> tuple[list[Kind], str]:
    """The kinds of events that the cell can have, and why there can be none where there are none."""
    form, what = retention_form(str(recording.attrs.get("retention", "none")))
    names = [name for name in signal_names(recording) if recording[name].dims == DIMS]
    cell = recording.attrs.get("cell", "the cell")
    if form == "none":
        return [], f"{cell} has no retention: nothing multiplies its old memory, so it has no gate that could fall."
    if form == "constant":
        kept = "never throws it away" if float(what) == 1 else "throws away the same share at every step"
        return [], f"The retention of {cell} is constant, {what:g}: it multiplies the memory by that and {kept}."
    if what not in names or not memory_signal(recording):
        missing = "the memory (role memory)" if what in names else f"{what!r}, which multiplies the memory"
        raise ValueError(f"resets needs {missing}, over {DIMS}; the recording has the signals {names}. Keep it.")
    kinds = [Kind(RESET, str(what), form == "complement", "")]
    target = CANDIDATE_RECURRENT if CANDIDATE_RECURRENT in names else ""
    masks = [name for name in names if recording[name].attrs["role"] == "reset"]
    return kinds + [Kind(FRESH_START, name, False, target) for name in masks[:1]], ""


class Source:
    """The signals of one kind of event in one layer and direction."""

    def __init__(self, recording: xr.Dataset, kind: Kind, place: tuple[int, ...]) -> None:
        layer, direction = place
        self.kind = kind
        self.lengths = lengths_of(recording, kind.signal)
        self.starts = starts_of(recording)
        self.steps = int(self.lengths.max(initial=0))
        here = recording.isel(layer=layer, direction=direction, time=slice(0, self.steps))
        memory = memory_signal(recording)
        self.backward = str(recording["direction"].to_numpy()[direction]) == "backward"
        self.gate, self.memory = here[kind.signal], here[memory]
        self.target = here[kind.target] if kind.target else None
        self.initial = here[f"initial_{memory}"] if f"initial_{memory}" in here.data_vars else None
        self.begin = self.steps - self.lengths if self.backward else np.zeros_like(self.lengths)
        self.cut = self._cut(recording)

    def _cut(self, recording: xr.Dataset) -> npt.NDArray[np.bool_]:
        """Sequences whose first step is not there, so that the memory before what is there is not known."""
        time = times_of(recording)
        if time is None or not time.size or "length" not in recording.coords:
            return np.zeros(self.lengths.shape, dtype=bool)
        whole = recording["length"].to_numpy()
        return np.asarray(whole > time[-1] + 1 if self.backward else np.full(whole.shape, time[0] > 0))

    def places(self, most: int) -> Iterator[tuple[slice, slice]]:
        """Sequences and units of blocks of at most so many values: of all units, or of few in one long sequence."""
        sequences, units = self.gate.sizes["sequence"], self.gate.sizes["unit"]
        width = max(1, min(units, most // max(1, self.steps)))
        group = max(1, most // max(1, self.steps * width))
        for first in range(0, sequences, group):
            for left in range(0, units, width):
                yield slice(first, min(first + group, sequences)), slice(left, min(left + width, units))

    def read(self, variable: xr.DataArray, sequences: slice, units: slice) -> Values:
        values = variable.isel(sequence=sequences, unit=units).to_numpy()
        self._require_padding(values, sequences, variable)
        return values[:, ::-1] if self.backward else values

    def _require_padding(self, values: Values, sequences: slice, variable: xr.DataArray) -> None:
        """Raise where a sequence has values beyond its length."""
        padding = np.arange(values.shape[1]) >= self.lengths[sequences, None]
        if padding.any() and np.isfinite(values[padding]).any():
            row, step = np.argwhere(np.isfinite(values).any(axis=2) & padding)[0]
            name, length = variable["sequence"].to_numpy()[sequences][row], self.lengths[sequences][row]
            raise ValueError(
                f"Padding must be NaN; {variable.name} has a value at step {step} of sequence {name}, whose length is "
                f"{length}. Set it to NaN there, or correct the coordinate length."
            )

    def gate_values(self, sequences: slice, units: slice) -> Values:
        values = self.read(self.gate, sequences, units)
        return 1 - values if self.kind.complement else values

    def block(self, sequences: slice, units: slice) -> Block:
        memory = self.read(self.memory, sequences, units)
        sequence, _, unit = (int(size) for size in memory.shape)
        shape = (sequence, unit)
        given = self.initial
        initial = np.full(shape, np.nan) if given is None else given.isel(sequence=sequences, unit=units).to_numpy()
        if self.cut[sequences].any():
            initial = np.where(self.cut[sequences, None], np.nan, initial)
        gate, begin = self.gate_values(sequences, units), self.begin[sequences]
        return Block(sequences, units, gate, memory, initial, begin)

    def multiplied(self, block: Block) -> Values:
        """The signal that the gate multiplies: at the same step, or the memory before the step."""
        if self.target is not None:
            return self.read(self.target, block.sequences, block.units)
        return previous(block)


def previous(block: Block) -> Values:
    """The memory before each step."""
    before = np.full(block.memory.shape, np.nan, dtype=block.memory.dtype)
    before[:, 1:] = block.memory[:, :-1]
    there = np.flatnonzero(block.begin < block.memory.shape[1])
    before[there, block.begin[there]] = block.initial[there]
    return before
