"""What writing a recording as it comes costs, and how soon one can look into a large one.

    python benchmarks/streaming.py [--quick] [--json PATH] [--folder PATH]

Speed: the same signals, buffered in calls of 1 to 16 MB, are written by the store, as one raw `tofile` for every call
(no fsync), and in every fourth round by xarray's `to_zarr(append_dim=...)`, in turns within a round; reported are
medians over rounds of the ratio to the mean of the raw writes before and after, in the process's own time, which other
processes disturb least, and by the clock. What the store does with a call is timed (arranging, running sums, overview,
chunks, journal, commit, and what is done at the end), not the model. Opening: a recording of 5 GB (really
written, and removed afterwards), from `open_recording` in a fresh process that has imported all and opened a small one
before, to the first 2,000 steps of one unit. Memory: the peak of the resident set while a run much larger than the
buffer is written.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from _cases import Row
from _measure import Took, can_measure_memory, load, machine, peak_beyond_start, quiet, spread, timed
from torch import nn

import gatescope as gs
from gatescope.probe import streaming

SPEED, OPENING, MEMORY_MB = 0.7, 0.2, 100
SIGNALS = ["input_gate", "forget_gate", "candidate", "output_gate", "cell_state", "hidden_state"]


class Shape(NamedTuple):
    name: str
    sequences: int
    steps: int
    units: int
    stateful: bool = False
    sums: bool = False

    def model(self) -> nn.LSTM:
        torch.manual_seed(0)
        return nn.LSTM(8, self.units, batch_first=True).eval()


SHAPES = (
    Shape("1 MB calls, batches 4x40x256", 4, 40, 256),
    Shape("4 MB calls, batches 8x85x256", 8, 85, 256),
    Shape("16 MB calls, batches 32x85x256", 32, 85, 256),
    Shape("16 MB calls with running sums", 32, 85, 256, sums=True),
    Shape("4 MB calls, one stream of 683x256 (overview kept)", 1, 683, 256, stateful=True),
)


class Timed(NamedTuple):
    bytes: int
    store: Took
    raw: Took  # mean of before and after
    append: Took | None


def store(shape: Shape, calls: int, folder: Path) -> tuple[Took, int]:
    """What the store takes for all calls, its end included, and the bytes in them."""
    took = Took(0.0, 0.0)
    model, x = shape.model(), torch.randn(shape.sequences, shape.steps, 8)
    path = folder / "run.zarr"

    def timing(name: str) -> Callable[..., None]:
        original = getattr(streaming.Stream, name)

        def within(self: streaming.Stream, *args: Any, **more: Any) -> None:
            nonlocal took
            took = took.plus(timed(lambda: original(self, *args, **more))[0])

        setattr(streaming.Stream, name, within)
        return lambda: setattr(streaming.Stream, name, original)

    undo = [timing(name) for name in ("take", "settle", "finish")]
    try:
        with torch.no_grad(), gs.attach(model, store=path, signals=None if shape.sums else SIGNALS):
            state = None
            for _ in range(calls):
                _, state = model(x, state if shape.stateful else None)
    finally:
        for each in undo:
            each()
    recording = gs.open_recording(path)
    assert isinstance(recording, xr.Dataset)
    size = sum(v.nbytes for v in [*recording.data_vars.values(), recording["call"]] if "sequence" in v.dims)
    shutil.rmtree(path)
    return took, size


def raw(size: int, calls: int, folder: Path) -> Took:
    """What numpy takes to write as many bytes, a file for every call."""
    values = np.random.default_rng(0).random(size // calls // 8)

    def write() -> None:
        for k in range(calls):
            values.tofile(folder / f"raw{k}")

    took, _ = timed(write)
    for k in range(calls):
        (folder / f"raw{k}").unlink()
    return took


def append(shape: Shape, calls: int, folder: Path) -> Took:
    """What xarray takes to append the same signals, uncompressed."""
    recording = gs.record(shape.model(), torch.randn(shape.sequences, shape.steps, 8), signals=SIGNALS)
    dataset = recording[SIGNALS].reset_coords(drop=True)
    dataset = dataset.drop_vars([name for name in dataset.coords if name not in ("sequence", "time")])
    along = "time" if shape.stateful else "sequence"
    encoding = {name: {"compressors": None, "chunks": dataset[name].shape} for name in SIGNALS}
    path, took = folder / "append.zarr", Took(0.0, 0.0)
    for k in range(calls):
        piece = dataset.assign_coords({along: dataset[along].values + k * dataset.sizes[along]})
        how: dict[str, Any] = {"append_dim": along} if k else {"mode": "w", "encoding": encoding}
        write = partial(piece.to_zarr, path, consolidated=False, zarr_format=3, **how)
        took = took.plus(timed(write)[0])
    shutil.rmtree(path)
    return took


def speeds(shape: Shape, total: int, rounds: int, folder: Path) -> Iterator[Timed]:
    one = 24 * shape.sequences * shape.steps * shape.units
    calls = max(2, total // one)
    store(shape, 2, folder)  # warm
    for number in range(rounds):
        with quiet():
            first = raw(one * calls, calls, folder)
            took, size = store(shape, calls, folder)
            second = raw(size, calls, folder)
            few = max(2, calls // 4)
            appended = append(shape, few, folder).times(calls / few) if number % 4 == 0 else None
        yield Timed(size, took, first.times(size / (one * calls)).plus(second).times(0.5), appended)


def row(case: str, measure: str, unit: str, values: list[float], reach: float | None, *, least: bool) -> dict[str, Any]:
    """As in the other benchmarks; where more is better, `met` asks for at least the reach."""
    middle = spread(values)
    found = Row(case, 1, "store", measure, unit, *middle, reach).as_dict()
    if reach is not None:
        found["met"] = middle.median >= reach if least else middle.median <= reach
    return found


def speed_rows(shape: Shape, total: int, rounds: int, folder: Path) -> list[dict[str, Any]]:
    found = list(speeds(shape, total, rounds, folder))
    clock = [one.raw.wall / one.store.wall for one in found]
    appended = [one.append.cpu / one.store.cpu for one in found if one.append is not None]
    return [
        row(shape.name, "written", "MB/s", [one.bytes / 1e6 / one.store.cpu for one in found], None, least=True),
        row(shape.name, "raw tofile", "MB/s", [one.bytes / 1e6 / one.raw.cpu for one in found], None, least=True),
        row(shape.name, "speed", "of raw tofile", [one.raw.cpu / one.store.cpu for one in found], SPEED, least=True),
        row(shape.name, "speed by the clock", "of raw tofile", clock, None, least=True),
        row(shape.name, "speed", "of to_zarr(append_dim)", appended, 1.0, least=True),
    ]


LOOK = """
import sys, time
import gatescope as gs
try:
    import dask.array
    dask.array.zeros(3, chunks=2)[:1].compute()
except ImportError:
    pass
gs.open_recording(sys.argv[2])
begin = time.perf_counter()
recording = gs.open_recording(sys.argv[1])
values = recording["cell_state"][0, 0, 0, :2000, 7].values
print(time.perf_counter() - begin, values.size)
"""


def fill(path: Path, sequences: int, steps: int, units: int, calls: int) -> int:
    """A large store, its calls made of one that is repeated; the bytes in it."""
    model, x = Shape("", sequences, steps, units).model(), torch.randn(sequences, steps, 8)
    with torch.no_grad(), gs.attach(model, store=path, signals=SIGNALS):
        state = None
        for _ in range(calls):
            _, state = model(x, state)
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*") if file.is_file())


def opening_rows(folder: Path, quick: bool, rounds: int) -> Iterator[dict[str, Any]]:
    for name, sequences, steps, calls in (("batches", 32, 200, 1), ("one stream", 1, 2000, 1)):
        one = 24 * sequences * steps * 256
        calls = max(2, (50_000_000 if quick else 5_000_000_000) // one)
        path, other = folder / "large.zarr", folder / "small.zarr"
        fill(other, 2, 10, 4, 2)
        size = fill(path, sequences, steps, 256, calls)
        times = []
        for _ in range(rounds):
            done = subprocess.run(
                [sys.executable, "-c", LOOK, str(path), str(other)], capture_output=True, text=True, check=True
            )
            times.append(float(done.stdout.split()[0]))
        shutil.rmtree(path)
        shutil.rmtree(other)
        case = f"{size / 1e9:.1f} GB, {name}"
        yield row(case, "opening to 2,000 steps of a unit", "s", times, OPENING, least=False)


def memory_row(folder: Path, quick: bool) -> Iterator[dict[str, Any]]:
    if not can_measure_memory():
        return
    calls = 20 if quick else 250

    def run() -> None:
        fill(folder / "memory.zarr", 8, 85, 256, calls)

    fill(folder / "memory.zarr", 8, 85, 256, 3)
    shutil.rmtree(folder / "memory.zarr")
    peak = peak_beyond_start(run) / 1e6
    shutil.rmtree(folder / "memory.zarr")
    case = f"{calls * 24 * 8 * 85 * 256 / 1e9:.2f} GB in 4 MB calls"
    yield row(case, "peak memory beyond the start", "MB", [peak], MEMORY_MB, least=False)


def show(found: list[dict[str, Any]]) -> None:
    for one in found:
        verdict = "" if one["met"] is None else "met" if one["met"] else "MISSED"
        reach = "" if one["reach"] is None else f"reach {one['reach']:g}"
        quartiles = f"({one['lower']:.3g}-{one['upper']:.3g})"
        print(
            f"{one['case']:<52} {one['measure']:<32} {one['median']:>8.3g} {quartiles:<16} {one['unit']:<24}"
            f"{reach:<10} {verdict}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes: tries the benchmark itself")
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--folder", type=Path, help="where to write; the system's folder for temporary files by default"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    rounds, total = (2, 8_000_000) if options.quick else (7, 400_000_000)
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        for shape in SHAPES:
            found += speed_rows(shape, total, rounds, folder)
            show(found[-5:])
        for part in (memory_row(folder, options.quick), opening_rows(folder, options.quick, 2 if options.quick else 7)):
            for one in part:
                found.append(one)
                show([one])
    if options.json:
        said = {"machine": machine(), "load": load(), "quick": options.quick, "rows": found}
        options.json.write_text(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
