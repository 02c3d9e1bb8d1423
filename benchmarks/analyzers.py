"""What the analyzers cost: seconds and peak memory on a large recording, and how both grow.

    python benchmarks/analyzers.py [--quick] [--rounds N] [--threads N] [--only MEASURE ...] [--shape ...] [--json PATH]

The recording has 2 layers, 2 directions, 64 sequences, 1000 steps and 256 units, 65.5 million values per signal, with a
reset in one step of 25. It is made from numbers, without a model; its Jacobian is that of a plain RNN. Times are
process time and by the clock.

Growth is the ratio of the process time on one layer and direction of it to that at half the steps or half the units,
the one run right after the other: 2 is linear. What needs the whole layer at once (the decoder) may grow faster with
units, and is measured on one layer and direction throughout, as is `timescales` with its Jacobian.

Peak memory is what the resident set rises by while a measure runs on the recording opened from disk, in a process of
its own, beside the size of the recording: what is below 1 did not load it whole. `resets` keeps a row of about 100
bytes for every event, whose size stands beside it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from _measure import Took, can_measure_memory, load, machine, peak_beyond_start, timed

import gatescope as gs

DIMS = ("layer", "direction", "sequence", "time", "unit")
FULL, QUICK = (2, 2, 64, 1000, 256), (1, 2, 8, 200, 16)
LIMIT = 30.0  # seconds of resets and alignment together, by the clock, on two cores
ONE = {"units": "1"}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PROVENANCE = {
    "gatescope_version": gs.__version__,
    "torch_version": "none",
    "parity": 0.0,
    "tolerance": 1.0,
    "training": 0,
    "created": "2026-01-01T00:00:00+00:00",
}
WARM = (1, 1, 2, 60, 4)  # of a first run, which loads what a measure needs


class Line(NamedTuple):
    """One measured number."""

    measure: str
    what: str
    value: float
    unit: str
    note: str = ""


class Measure(NamedTuple):
    """What is timed: of a recording and its events."""

    act: Callable[[xr.Dataset, xr.Dataset], xr.Dataset]
    one_place: bool = False  # on one layer and direction only


MEASURES = {
    "resets": Measure(lambda recording, events: gs.resets(recording)),
    "alignment": Measure(lambda recording, events: gs.alignment(events, tolerance=1)),
    "triggers": Measure(lambda recording, events: gs.triggers(events, "letter")),
    "event_average": Measure(lambda recording, events: gs.event_average(recording, events)),
    "saturation": Measure(lambda recording, events: gs.saturation(recording)),
    "drift": Measure(lambda recording, events: gs.drift(recording)),
    "timescales": Measure(lambda recording, events: gs.timescales(recording, jacobian=False)),
    "timescales, Jacobian": Measure(lambda recording, events: gs.timescales(recording, longest=200), one_place=True),
    "selectivity": Measure(lambda recording, events: gs.selectivity(recording, "letter")),
    "selectivity, decoder": Measure(
        lambda recording, events: gs.selectivity(recording, "letter", shifts=1, decode=True), one_place=True
    ),
    "roles": Measure(lambda recording, events: gs.roles(recording, "letter")),
    "describe": Measure(lambda recording, events: gs.describe(recording)),
}
WITHOUT_EVENTS = set(MEASURES) - {"alignment", "triggers", "event_average"}


def recording_of(shape: tuple[int, ...], seed: int = 0) -> xr.Dataset:
    """Random gates with falls, random memories, letters and boundaries, and weights for a Jacobian, a plain RNN's."""
    rng = np.random.default_rng(seed)
    gate, memory = np.empty(shape, np.float32), np.empty(shape, np.float32)
    for place in np.ndindex(shape[:2]):
        logit = rng.standard_normal(shape[2:], dtype=np.float32) + 3
        logit -= 6 * (rng.random(shape[2:], dtype=np.float32) < 0.04)
        gate[place] = 1 / (1 + np.exp(-logit))
        memory[place] = np.tanh(rng.standard_normal(shape[2:], dtype=np.float32))
    sequences, steps, units = shape[2:]
    coords: dict[str, Any] = {dim: np.arange(size) for dim, size in zip(DIMS, shape, strict=True)}
    coords["direction"] = np.array(["forward", "backward"][: shape[1]], dtype=object)
    coords |= {"gate": np.array(["hidden_state"], dtype=object), "source": np.arange(units)}
    coords["length"] = ("sequence", np.full(sequences, steps))
    coords["stream"] = ("sequence", np.arange(sequences))
    coords["call"] = (("sequence", "time"), np.zeros((sequences, steps), dtype=np.int64))
    coords["start"] = ("sequence", np.array(["zero"] * sequences, dtype=object))
    coords["boundary"] = (("sequence", "time"), rng.random((sequences, steps)) < 1 / 12)
    coords["letter"] = (("sequence", "time"), rng.choice([*LETTERS], (sequences, steps)).astype(object))
    weights = 0.5 * rng.standard_normal((*shape[:2], 1, units, units)).astype(np.float32) / np.sqrt(units)
    data = {
        "update_gate": (
            DIMS,
            gate,
            {"long_name": "gate", "symbol": "z", "role": "gate", "lower": 0.0, "upper": 1.0, **ONE},
        ),
        "hidden_state": (
            DIMS,
            memory,
            {"long_name": "memory", "symbol": "h", "role": "memory", "lower": -1.0, "upper": 1.0, **ONE},
        ),
        "weight_hh": (("layer", "direction", "gate", "unit", "source"), weights),
    }
    attrs = {"schema": "gatescope.recording/1", "retention": "update_gate", "cell": "RNNCell", "module": "random"}
    return xr.Dataset(data, coords, attrs | PROVENANCE)


def corner(recording: xr.Dataset) -> xr.Dataset:
    """One layer and direction."""
    return recording.isel(layer=[0], direction=[0])


def events_of(recording: xr.Dataset, names: list[str]) -> xr.Dataset:
    return xr.Dataset() if set(names) <= WITHOUT_EVENTS else gs.resets(recording)


def took(measure: Measure, recording: xr.Dataset, events: xr.Dataset, rounds: int) -> Took:
    """The median of a few runs."""
    runs = [timed(lambda: measure.act(recording, events))[0] for _ in range(rounds)]
    return Took(median(run.cpu for run in runs), median(run.wall for run in runs))


def halves(recording: xr.Dataset) -> dict[str, xr.Dataset]:
    """The recording with half its steps and with half its units, copied."""
    steps, units = recording.sizes["time"] // 2, recording.sizes["unit"] // 2
    fewer = recording.isel(time=slice(0, steps)).assign_coords(
        length=("sequence", np.full(recording.sizes["sequence"], steps))
    )
    half = recording.isel(unit=slice(0, units), source=slice(0, units))
    return {"steps": fewer.copy(deep=True), "units": half.copy(deep=True)}


def lines(shape: tuple[int, ...], names: list[str], rounds: int) -> list[Line]:
    recording, warm = recording_of(shape), recording_of(WARM)
    events, little = events_of(recording, names), events_of(warm, names)
    one = corner(recording).copy(deep=True)
    sizes = {"whole": one} | halves(one)
    events_by_size = {size: events_of(part, names) for size, part in sizes.items()}
    found = []
    for name in names:
        measure = MEASURES[name]
        measure.act(warm, little)
        if measure.one_place:
            whole = took(measure, one, events_by_size["whole"], rounds)
        else:
            whole = took(measure, recording, events, rounds)
        where = "one layer and direction" if measure.one_place else ""
        found.append(Line(name, "process time", whole.cpu, "s", where))
        found.append(Line(name, "by the clock", whole.wall, "s", where))
        cost = {size: took(measure, part, events_by_size[size], rounds).cpu for size, part in sizes.items()}
        for half in ("steps", "units"):
            found.append(Line(name, f"growth with {half}", cost["whole"] / cost[half], "1", "2 is linear"))
        print_lines(found[-4:])
    clock = {line.measure: line.value for line in found if line.what == "by the clock"}
    if {"resets", "alignment"} <= set(clock):
        both = clock["resets"] + clock["alignment"]
        found.append(Line("resets + alignment", "by the clock", both, "s", f"limit {LIMIT:g} s"))
        print_lines(found[-1:])
    return found


def peak(path: Path, name: str) -> tuple[int, int, int]:
    """Bytes by which the resident set rises in one measure, bytes of its result and of what it was measured on."""
    measure, warm = MEASURES[name], recording_of(WARM)
    measure.act(warm, events_of(warm, [name]))
    recording = gs.open_recording(path)
    assert isinstance(recording, xr.Dataset)
    if measure.one_place:
        recording = corner(recording)
    events, kept = events_of(recording, [name]), []
    rise = peak_beyond_start(lambda: kept.append(measure.act(recording, events)))
    return rise, kept[0].nbytes, sum(recording[signal].nbytes for signal in ("update_gate", "hidden_state"))


def memory_lines(shape: tuple[int, ...], names: list[str]) -> list[Line]:
    if not can_measure_memory():
        return [Line("all", "peak memory", float("nan"), "MB", "this system does not tell")]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "recording.zarr"
        gs.save_recording(recording_of(shape), path)
        for name in names:
            command = [sys.executable, __file__, "--peak", name, "--path", str(path)]
            result = subprocess.run(command, capture_output=True, text=True, check=True)
            rise, kept, size = json.loads(result.stdout)
            text = f"{rise / size:.2f} of the {size / 1e6:.0f} MB on disk; its result {kept / 1e6:.1f} MB"
            found.append(Line(name, "peak memory", rise / 1e6, "MB", text))
            print_lines(found[-1:])
    return found


def print_lines(found: list[Line]) -> None:
    for line in found:
        print(f"{line.measure:22s} {line.what:20s} {line.value:10.2f} {line.unit:3s} {line.note}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small recording, one round: whether it runs")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each measure, of which the median is told")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", choices=list(MEASURES), default=list(MEASURES), metavar="MEASURE")
    parser.add_argument("--shape", nargs=5, type=int, help="layers, directions, sequences, steps and units of another")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print(json.dumps(peak(options.path, options.peak)))
        return
    shape = tuple(options.shape or (QUICK if options.quick else FULL))
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    start = load()
    print(f"(layer, direction, sequence, time, unit) = {shape}; processes wanting a core: {start}")
    found = lines(shape, options.only, options.rounds) + memory_lines(shape, options.only)
    print(f"processes wanting a core: {start} before, {load()} after")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        about = {"machine": machine(), "shape": shape, "load": [start, load()]}
        options.json.write_text(json.dumps(about | {"lines": [line._asdict() for line in found]}, indent=1))


if __name__ == "__main__":
    main()
