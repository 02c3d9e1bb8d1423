"""What analyzers of resets cost: seconds and peak memory on a large recording, and how both grow.

    python benchmarks/analyzers.py [--quick] [--rounds N] [--threads N] [--json PATH]

The recording has 2 layers, 2 directions, 64 sequences, 1000 steps and 256 units, 65.5 million values per signal, with a
reset in one step of 25. It is made from numbers, without a model. Times are process time and by the clock; peak memory
is what the resident set rises by while a measure runs, in a process of its own, beside the size of the recording.
Growth is the ratio of the time at full size to that at half the steps or half the units, measured in one process: 2 is
linear.
"""

import argparse
import json
import os
import subprocess
import sys
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
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Line(NamedTuple):
    """One measured number."""

    measure: str
    what: str
    value: float
    unit: str
    note: str = ""


def recording_of(shape: tuple[int, ...], seed: int = 0) -> xr.Dataset:
    """Random gates with falls, random memories, letters and boundaries."""
    rng = np.random.default_rng(seed)
    gate, memory = np.empty(shape, np.float32), np.empty(shape, np.float32)
    for place in np.ndindex(shape[:2]):
        logit = rng.standard_normal(shape[2:], dtype=np.float32) + 3
        logit -= 6 * (rng.random(shape[2:], dtype=np.float32) < 0.04)
        gate[place] = 1 / (1 + np.exp(-logit))
        memory[place] = rng.standard_normal(shape[2:], dtype=np.float32)
    sequences, steps = shape[2:4]
    coords: dict[str, Any] = {dim: np.arange(size) for dim, size in zip(DIMS, shape, strict=True)}
    coords["direction"] = np.array(["forward", "backward"][: shape[1]], dtype=object)
    coords["length"] = ("sequence", np.full(sequences, steps))
    coords["start"] = ("sequence", np.array(["zero"] * sequences, dtype=object))
    coords["boundary"] = (("sequence", "time"), rng.random((sequences, steps)) < 1 / 12)
    coords["letter"] = (("sequence", "time"), rng.choice([*LETTERS], (sequences, steps)).astype(object))
    data = {
        "forget_gate": (DIMS, gate, {"role": "gate", "lower": 0.0, "upper": 1.0}),
        "cell_state": (DIMS, memory, {"role": "memory"}),
    }
    attrs = {"schema": "gatescope.recording/1", "retention": "forget_gate", "cell": "LSTMCell", "module": "random"}
    return xr.Dataset(data, coords, attrs)


def measures(recording: xr.Dataset) -> dict[str, Callable[[], xr.Dataset]]:
    """What is timed; `resets` runs once before, for the others."""
    events = gs.resets(recording)
    return {
        "resets": lambda: gs.resets(recording),
        "alignment": lambda: gs.alignment(events, tolerance=1),
        "triggers": lambda: gs.triggers(events, "letter"),
        "event_average": lambda: gs.event_average(recording, events),
    }


def times(recording: xr.Dataset, rounds: int) -> dict[str, Took]:
    """The median of a few runs of each measure."""
    found: dict[str, Took] = {}
    for name, act in measures(recording).items():
        runs = [timed(act)[0] for _ in range(rounds)]
        found[name] = Took(median(run.cpu for run in runs), median(run.wall for run in runs))
    return found


def halves(recording: xr.Dataset) -> dict[str, xr.Dataset]:
    """The recording with half its steps and with half its units, copied."""
    steps, units = recording.sizes["time"] // 2, recording.sizes["unit"] // 2
    fewer = recording.isel(time=slice(0, steps)).assign_coords(
        length=("sequence", np.full(recording.sizes["sequence"], steps))
    )
    return {"steps": fewer.copy(deep=True), "units": recording.isel(unit=slice(0, units)).copy(deep=True)}


def peaks(shape: tuple[int, ...]) -> dict[str, tuple[int, int]]:
    """Bytes by which the resident set rises in each measure, and bytes of its result."""
    recording = recording_of(shape)
    return {name: (peak_beyond_start(act), act().nbytes) for name, act in measures(recording).items()}


def lines(shape: tuple[int, ...], rounds: int) -> list[Line]:
    recording = recording_of(shape)
    whole = times(recording, rounds)
    found = [Line(name, "process time", took.cpu, "s") for name, took in whole.items()]
    found += [Line(name, "by the clock", took.wall, "s") for name, took in whole.items()]
    both = whole["resets"].wall + whole["alignment"].wall
    found.append(Line("resets + alignment", "by the clock", both, "s", f"limit {LIMIT:g} s"))
    for half, part in halves(recording).items():
        for name, took in times(part, rounds).items():
            found.append(Line(name, f"growth with {half}", whole[name].cpu / took.cpu, "1", "2 is linear"))
    return found


def memory_lines(shape: tuple[int, ...], quick: bool) -> list[Line]:
    if not can_measure_memory():
        return [Line("all", "peak memory", float("nan"), "MB", "this system does not tell")]
    command = [sys.executable, __file__, "--peaks", *(["--quick"] if quick else [])]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    size = 2 * 4 * float(np.prod(shape)) / 1e6
    found = [Line("recording", "size", size, "MB")]
    for name, (peak, kept) in json.loads(result.stdout).items():
        found.append(Line(name, "peak memory", peak / 1e6, "MB", f"{peak / 1e6 / size:.2f} of the recording"))
        found.append(Line(name, "result", kept / 1e6, "MB"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small recording, one round: whether it runs")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each measure, of which the median is told")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peaks", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    shape = QUICK if options.quick else FULL
    if options.peaks:
        print(json.dumps(peaks(shape)))
        return
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    start = load()
    found = lines(shape, 1 if options.quick else options.rounds) + memory_lines(shape, options.quick)
    print(
        f"(layer, direction, sequence, time, unit) = {shape}; processes wanting a core: {start} before, {load()} after"
    )
    for line in found:
        print(f"{line.measure:20s} {line.what:20s} {line.value:10.2f} {line.unit:3s} {line.note}")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        about = {"machine": machine(), "shape": shape, "load": [start, load()]}
        options.json.write_text(json.dumps(about | {"lines": [line._asdict() for line in found]}, indent=1))


if __name__ == "__main__":
    main()
