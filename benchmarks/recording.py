"""What recording costs: time, memory and error of the probe, beside the bare call and beside other ways.

    python benchmarks/recording.py [--quick] [--threads N ...] [--json PATH]

Times come from one process, round by round: the bare inference call, the probe, in every third round a loop of cells in
Python and Opacus' layer with hooks, and the bare call again. A round gives each way's ratio to the mean of its two bare
calls; reported are the medians of these ratios and their quartiles. All that was recorded stays alive, so that it fills
fresh memory each time (up to 5 GB). Peak memory is measured in a fresh process for each case, in which freed memory
goes back to the system at once.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import torch
import xarray as xr
from _cases import CASES, Case, Row
from _measure import Spread, Took, can_measure_memory, load, machine, peak_beyond_start, quiet, spread, timed
from _other_ways import Signals, loop_of_cells, opacus_twin, opacus_with_hooks
from torch import Tensor, nn

import gatescope as gs

LEAST_ROUNDS, MOST_ROUNDS, SECONDS_OF_BARE_CALLS, SECONDS_IN_A_ROW = 5, 40, 5.0, 0.02
OTHERS_EVERY = 3
ATTACH_MS, MEMORY, ERROR, UNTOUCHED = 5.0, 1.0, 5e-6, 1.01
RATIO = "of the bare call"
RETURN_AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}  # freed memory, in glibc
CLOCKS = {"cpu": "process time", "wall": "the clock"}


class Probed(NamedTuple):
    """One call under a probe."""

    call: Took
    attach_detach: Took
    taking: Took  # the recording out of the probe
    probe: gs.Probe
    recording: xr.Dataset


class Round(NamedTuple):
    bare: Took  # one call
    call: Took  # one call under a probe
    single: Probed
    kept: list[Any]
    others: dict[str, Took]


def probed(module: nn.RNNBase, x: Tensor) -> Probed:
    attaching, probe = timed(lambda: gs.attach(module).__enter__())
    call, _ = timed(lambda: module(x))
    detaching, _ = timed(lambda: probe.__exit__(None, None, None))
    taking, recording = timed(probe.recording)
    return Probed(call, attaching.plus(detaching), taking, probe, recording)


def one_round(module: nn.RNNBase, x: Tensor, calls: int, others: dict[str, Callable[[], Signals]]) -> Round:
    """Short calls are timed several in a row, so that all ways run with warm caches."""

    def in_a_row() -> Took:
        return timed(lambda: [module(x) for _ in range(calls)])[0].times(1 / calls)

    with quiet():
        first = in_a_row()
        single, probe = probed(module, x), None
        if calls > 1:
            with gs.attach(module) as probe:
                call = in_a_row()
        found = {way: timed(act) for way, act in others.items()}
        bare = first.plus(in_a_row()).times(0.5)
    kept = [probe, *(signals for _, signals in found.values())]
    return Round(bare, single.call if probe is None else call, single, kept, {way: t for way, (t, _) in found.items()})


def other_ways(module: nn.RNNBase, x: Tensor) -> dict[str, Callable[[], Signals]]:
    ways: dict[str, Callable[[], Signals]] = {"loop of cells": partial(loop_of_cells, module, x)}
    if importlib.util.find_spec("opacus") is not None:
        ways["Opacus"] = partial(opacus_with_hooks, opacus_twin(module), module, x)
    return ways


def times(case: Case, threads: int, most: int) -> Iterator[Row]:
    """Ratios to the bare call by process time and by the clock, and the times beside them."""
    torch.set_num_threads(threads)
    module, x = case.module(), case.input()
    others = other_ways(module, x)
    one_round(module, x, 1, others)  # kernels are built, code is loaded
    bare = timed(lambda: module(x))[0].wall
    calls = ceil(SECONDS_IN_A_ROW / bare)
    count = min(most, int(max(LEAST_ROUNDS, SECONDS_OF_BARE_CALLS / (bare * calls))))
    rounds = [one_round(module, x, calls, {} if number % OTHERS_EVERY else others) for number in range(count)]
    row = partial(Row, case.name, threads)
    for clock in Took._fields:
        base = [getattr(each.bare, clock) for each in rounds]
        yield row("bare", clock, "ms", *spread([1000 * seconds for seconds in base]))
        ratios = [getattr(each.call, clock) / seconds for each, seconds in zip(rounds, base, strict=True)]
        yield row("probe", clock, RATIO, *spread(ratios), case.reach)
        for way in ("loop of cells", "Opacus"):
            pairs = [(getattr(e.others[way], clock), s) for e, s in zip(rounds, base, strict=True) if way in e.others]
            found = spread([seconds / own for seconds, own in pairs]) if pairs else ()
            yield row(way, clock, RATIO, *found, note="" if pairs else "not installed")
    yield row("probe", "attach and detach", "ms", *milliseconds([r.single.attach_detach for r in rounds]), ATTACH_MS)
    yield row("probe", "recording()", "ms", *milliseconds([r.single.taking for r in rounds]))


def milliseconds(took: list[Took]) -> Spread:
    return spread([1000 * each.cpu for each in took])


def errors(case: Case) -> Iterator[Row]:
    """Largest difference of any signal from the equations in float64; all ways must give the same signals."""
    torch.set_num_threads(1)
    module, x = case.module(), case.input()
    exact = loop_of_cells(deepcopy(module).double(), x.double())
    recording = probed(module, x).recording
    dims = ("layer", "direction", "time", "sequence", "unit")
    found = {"probe": {name: torch.from_numpy(recording[name].transpose(*dims).values) for name in exact}}
    found |= {way: act() for way, act in other_ways(module, x).items()}
    for way, signals in found.items():
        error = max(float((signals[name] - exact[name]).abs().max()) for name in exact)
        if error > 1e-4:
            raise RuntimeError(f"{way} must give the signals of the module; it is {error:.2g} off in {case.name}.")
        yield Row(case.name, 1, way, "error", "1", error, error, error, ERROR if way == "probe" else None)


def untouched(rounds: int, calls: int) -> Row:
    """A module after its probe beside a twin that never had one, in a call so short that one hook would show."""
    torch.set_num_threads(1)
    case = Case("LSTM", 1, 1, 8, UNTOUCHED)
    module, twin, x = case.module(), case.module(), case.input()
    ratios = []
    for number in range(rounds):
        probed(module, x)
        took = {}
        with quiet():
            for each in (module, twin) if number % 2 else (twin, module):
                took[each] = timed(lambda each=each: [each(x) for _ in range(calls)])[0].cpu
        ratios.append(took[module] / took[twin])
    left = len(module._forward_hooks) + len(module._forward_pre_hooks) + torch._C._len_torch_function_stack()
    note = f"{left} hooks and modes left"
    return Row(
        case.name, 1, "after detaching", "cpu", "of a module never attached to", *spread(ratios), case.reach, note
    )


def peaks(case: Case) -> dict[str, tuple[float, float]]:
    """By way: bytes by which the resident set rises in the second of two equal calls, and bytes of what is kept."""
    torch.set_num_threads(1)
    module, x = case.module(), case.input()
    ways: dict[str, Callable[[], Any]] = {
        "bare": lambda: module(x),
        "probe": lambda: probed(module, x),
        "loop of cells": lambda: loop_of_cells(module, x),
    }
    kept = {"bare": 0, "probe": payload(probed(module, x).recording)}
    kept["loop of cells"] = sum(signal.nbytes for signal in loop_of_cells(module, x).values())
    return {way: (peak_beyond_start(act), kept[way]) for way, act in ways.items()}


def payload(recording: xr.Dataset) -> int:
    """Bytes of what is recorded of every step."""
    return sum(variable.nbytes for variable in recording.data_vars.values() if "time" in variable.dims)


def memory(cases: Sequence[Case], quick: bool) -> Iterator[Row]:
    """Peak memory beyond what is kept, in payloads; each case in a fresh process (all in one if quick)."""
    groups = [range(len(cases))] if quick else [[place] for place in range(len(cases))]
    found: list[dict[str, tuple[int, int]]] = []
    for group in groups if can_measure_memory() else []:
        command = [sys.executable, __file__, *(["--quick"] if quick else []), "--peaks", *map(str, group)]
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | RETURN_AT_ONCE)
        found += json.loads(run.stdout)
    for place, case in enumerate(cases):
        for way in ("bare", "probe", "loop of cells"):
            row = partial(Row, case.name, 1, way, "memory", "of the payload, beyond it")
            if not found:
                yield row(note="needs Linux")
                continue
            rise, kept = found[place][way]
            beyond = (rise - kept) / found[place]["probe"][1]
            yield row(beyond, beyond, beyond, MEMORY if way == "probe" else None)


def run(cases: Sequence[Case], threads: Sequence[int], quick: bool) -> Iterator[Row]:
    say("memory")
    yield from memory(cases, quick)
    for case in cases:
        say(f"errors of {case.name}")
        yield from errors(case)
    yield untouched(*((4, 20) if quick else (100, 100)))
    for count in threads:
        for case in cases:
            say(f"times of {case.name}, threads: {count}")
            yield from times(case, count, 3 if quick else MOST_ROUNDS)


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def table(rows: Sequence[Row], heads: dict[str, tuple[str, str, str]], threads: int, cases: Sequence[Case]) -> str:
    """One line per case; a head says which way and measure stand in its column and in what form."""
    found = {
        (row.case, row.way, row.measure): row
        for row in rows
        if row.threads == threads or row.measure in ("memory", "error")
    }
    lines = [["case", *heads], ["---"] * (1 + len(heads))]
    for case in cases:
        lines.append([case.name, *(found[case.name, way, what].text(form) for way, what, form in heads.values())])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines)


def show(rows: Sequence[Row], cases: Sequence[Case], threads: Sequence[int]) -> None:
    for count in threads:
        # with one thread process time is the steadier clock; with more it counts threads that wait
        first, second = ("cpu", "wall") if count == 1 else ("wall", "cpu")
        print(f"\n{count} thread{'s' * (count > 1)}: ratios to the bare call by {CLOCKS[first]}, median (quartiles)\n")
        heads = {"bare, ms": ("bare", first, ".1f"), "probe": ("probe", first, ".2f")}
        heads |= {f"probe by {CLOCKS[second]}": ("probe", second, ".2f")}
        heads |= {way: (way, first, ".2f") for way in ("loop of cells", "Opacus")}
        print(table(rows, heads, count, cases))
    print(f"\nMemory in payloads and errors with 1 thread; times with {threads[0]}\n")
    heads = {
        "memory beyond the payload": ("probe", "memory", ".2f"),
        "loop's": ("loop of cells", "memory", ".2f"),
        "bare call's own": ("bare", "memory", ".2f"),
        "error": ("probe", "error", ".1e"),
        "loop's error": ("loop of cells", "error", ".1e"),
        "attach and detach, ms": ("probe", "attach and detach", ".2f"),
        "recording(), ms": ("probe", "recording()", ".2f"),
    }
    print(table(rows, heads, threads[0], cases))
    last = next(row for row in rows if row.way == "after detaching")
    print(f"\nAfter detaching, a call of a small module takes {last.text('.3f')} {last.unit}; {last.note}.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time, memory and error of recording.")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, few rounds: tries the benchmark itself")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="threads to measure with, one by one")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    parser.add_argument("--peaks", type=int, nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    cases = [case.small() for case in CASES] if given.quick else list(CASES)
    with torch.no_grad():
        if given.peaks:
            print(json.dumps([peaks(cases[place]) for place in given.peaks]))
            return
        before = load()
        rows = list(run(cases, given.threads, given.quick))
    about = machine() | {"load_before": before, "load_after": load()}
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    show(rows, cases, given.threads)
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        content = {"benchmark": "recording", "quick": given.quick, "machine": about}
        given.json.write_text(json.dumps(content | {"rows": [row.as_dict() for row in rows]}, indent=1))


if __name__ == "__main__":
    main()
