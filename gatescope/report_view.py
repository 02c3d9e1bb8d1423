"""How much of a recording a report reads, and what in it its pictures look at."""

from typing import NamedTuple

import numpy as np
import xarray as xr

from .probe.schema import label_names, stepwise_names
from .report_code import Formula, Line, Name
from .signals import GATE_ROLES, retention_form

VALUES = 2**22  # of each signal that a report reads unless told otherwise
WINDOW = 120  # steps of a picture over time
RASTER = 400  # steps of a raster of resets
UNITS = 3  # traces
LABELS, CLASSES = 3, 64  # labels that measures are shown for, and classes of one


class Part(NamedTuple):
    """What is read of a recording, the code that takes it, and the sentence that says so where it is not all."""

    recording: xr.Dataset
    lines: tuple[Line, ...] = ()
    said: str = ""


class View(NamedTuple):
    """What the pictures of one recording look at."""

    layer: int
    direction: str
    sequence: int
    steps: int  # shown of this sequence, from its first on
    length: int
    signal: str
    units: tuple[int, ...]
    label: str | None

    @property
    def place(self) -> dict[str, int | str]:
        return {"layer": self.layer, "direction": self.direction}

    @property
    def run(self) -> dict[str, int | str | None]:
        labels = {} if self.label is None else {"labels": self.label}
        return {**self.place, "sequence": self.sequence, **labels}


def bounded(recording: xr.Dataset, values: int) -> Part:
    """The first sequences, or the first steps of the first one, that hold at most so many values of each signal."""
    sizes = recording.sizes
    wide = max(sizes["unit"], sizes.get("projection", 0), 1) * sizes["layer"] * sizes["direction"]
    allowed = max(1, values // wide)
    lengths = recording["length"].to_numpy()
    padded = np.maximum.accumulate(lengths) * np.arange(1, lengths.size + 1) if lengths.size else lengths
    if lengths.size * int(lengths.max(initial=0)) <= allowed:
        return Part(recording.compute())
    sequences = max(1, int((padded <= allowed).sum()))
    steps = min(int(lengths[:sequences].max()), allowed)
    taken = {"sequence": slice(0, sequences), "time": slice(0, steps)}
    lines = (Line("recording", "recording.isel", (), taken), cut_to(steps))
    read, whole = int(np.minimum(lengths[:sequences], steps).sum()), int(lengths.sum())
    first = f"the first {sequences:,} of {lengths.size:,} sequences" if sequences < lengths.size else "the sequences"
    cut = f", of each the first {steps:,} steps" if steps < int(lengths[:sequences].max()) else ""
    said = (
        f"This report reads {first}{cut}: {read:,} of {whole:,} steps, {read / max(1, whole):.1%}. Everything below is "
        "about these alone. A larger number of values reads more."
    )
    part = recording.isel(taken).compute()
    return Part(lines[1].run({"recording": part}), lines, said)


def cut_to(steps: int) -> Line:
    """No sequence is longer than the steps that are read."""
    text = f"recording['length'].clip(max={steps})"
    clipped = Formula(text, lambda space: space["recording"]["length"].clip(max=steps))
    return Line("recording", "recording.assign_coords", (), {"length": clipped})


def look(recording: xr.Dataset, found: xr.Dataset | None) -> View:
    """The place of the largest finding that has one, its telling units, and a sequence that fits a picture."""
    layer, direction = place_of(recording, found)
    sequence, length = sequence_of(recording)
    texts = [name for name in label_names(recording) if recording[name].dtype.kind in "OU"]
    return View(
        layer,
        direction,
        sequence,
        min(length, WINDOW),
        length,
        main_signal(recording),
        units_of(recording, found, layer, direction),
        texts[0] if texts else None,
    )


def place_of(recording: xr.Dataset, found: xr.Dataset | None) -> tuple[int, str]:
    if found is not None:
        placed = found.isel(finding=found["layer"].to_numpy() >= 0)
        if placed.sizes["finding"]:
            return int(placed["layer"][0]), str(placed["direction"][0].item())
    return int(recording["layer"][0]), str(recording["direction"][0].item())


def sequence_of(recording: xr.Dataset) -> tuple[int, int]:
    """The longest sequence that fits a picture, or else the first of those with steps; its number and steps."""
    steps = np.minimum(recording["length"].to_numpy(), recording.sizes["time"])
    if not steps.size or not steps.max():
        raise ValueError("a report needs a sequence with at least one step; the recording has none. Record it again.")
    fits = np.where(steps <= WINDOW, steps, 0)
    place = int(fits.argmax()) if fits.max() else int(np.flatnonzero(steps)[0])
    return int(recording["sequence"][place]), int(steps[place])


def main_signal(recording: xr.Dataset) -> str:
    """What keeps the memory; where no signal does, the first gate, else the memory, else the first signal."""
    names = [name for name in stepwise_names(recording) if "unit" in recording[name].dims]
    roles = {name: str(recording[name].attrs.get("role", "")) for name in names}
    keeps = str(retention_form(str(recording.attrs["retention"]))[1])
    gates = [name for name in names if roles[name] in GATE_ROLES and recording[name].ndim == 5]
    others = [name for name in names if roles[name] == "memory"] or [name for name in names if roles[name]] or names
    chosen = [name for name in [keeps, *gates, *others] if name in names]
    if not chosen:
        raise ValueError("a report needs a recorded signal; the recording has none. Record at least one.")
    return chosen[0]


def units_of(recording: xr.Dataset, found: xr.Dataset | None, layer: int, direction: str) -> tuple[int, ...]:
    """Units that findings name at this place, then those whose main signal is highest and lowest on average."""
    named: list[int] = []
    if found is not None:
        here = (found["layer"] == layer) & (found["direction"] == direction) & (found["unit"] >= 0)
        named = [int(unit) for unit in found["unit"].to_numpy()[here.to_numpy()]]
    values = recording[main_signal(recording)].sel(layer=layer, direction=direction).to_numpy()
    finite = np.isfinite(values)
    mean = np.where(finite, values, 0).sum(axis=(0, 1)) / np.maximum(finite.sum(axis=(0, 1)), 1)
    units = recording["unit"].to_numpy()
    extremes = [int(units[mean.argmax()]), int(units[mean.argmin()])] if units.size else []
    return tuple(dict.fromkeys([*named, *extremes]))[:UNITS]


def text_labels(recording: xr.Dataset) -> list[str]:
    """Labels of text that measures can use: with 2 to 64 classes; the first few of them."""
    found = []
    for name in label_names(recording):
        values = recording[name].to_numpy()
        if values.dtype.kind in "OU" and 2 <= len(set(values.ravel().tolist()) - {""}) <= CLASSES:
            found.append(name)
    return found[:LABELS]


def has_boundaries(recording: xr.Dataset) -> bool:
    return "boundary" in label_names(recording) and bool(recording["boundary"].to_numpy().any())


RECORDING = Name("recording")
