"""How soon networks of 16 torch units solve the continual embedded Reber grammar, and whether they have.

    python benchmarks/training.py [--seeds 10] [--only TEXT] [--quick] [--json PATH]

Each row trains one cell on one task from several seeds with `gatescope.train` as it comes (Adam 0.01, chunks of 32
steps of 32 streams, the state carried on, restarts) until the paper's criterion is met: ten fresh streams of 100,000
symbols, or 256 strings, without an error. Reported are how many seeds met it, medians and quartiles over those of the
symbols read and of the seconds (processor time of one thread, tests included; by the clock), and how many passed again
on ten streams, or 256 strings, that neither training nor a test had read.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from _measure import load, machine, spread
from torch import nn

import gatescope as gs
from gatescope.tasks import CERG, ERG, SequenceModel, first_errors

UNITS = 16
ROWS = (
    ("CERG, LSTM", CERG, nn.LSTM, {}),
    ("CERG, GRU", CERG, nn.GRU, {}),
    ("CERG, tanh RNN", CERG, nn.RNN, {}),
    ("ERG, LSTM", ERG, nn.LSTM, {}),
    ("CERG, LSTM, clipped at 1", CERG, nn.LSTM, {"clip": 1.0}),
    ("CERG, LSTM, no restarts", CERG, nn.LSTM, {"restart": 0.0}),
)


def one(task: Any, kind: type[nn.RNNBase], seed: int, options: dict[str, float], max_symbols: int) -> dict[str, Any]:
    torch.manual_seed(seed)
    model = SequenceModel(kind(7, UNITS, batch_first=True), 7)
    began, clock = time.process_time(), time.perf_counter()
    history = gs.train(model, task(seed=seed), seed=seed, max_symbols=max_symbols, **options)
    took = {"cpu": time.process_time() - began, "clock": time.perf_counter() - clock}
    streams = 10 if task.endless else 256
    right = first_errors(model, task(seed=seed), streams=streams) if history.solved else None
    asked = 100_000 if task.endless else task(seed=seed, kind="retest").sample(streams).mask.sum(1)
    again = None if right is None else bool((right == asked).all())
    found = {"seed": seed, "symbols": history.solved_at, "again": again, "clipped": history.clipped_share, **took}
    return found | {"tests": history.tests.sizes["test"], "restarts": history.restarts}


def text(values: list[float], form: str) -> str:
    if not values:
        return "-"
    median, lower, upper = spread(values)
    return f"{median:{form}} ({lower:{form}}-{upper:{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default="", help="only rows whose name contains this")
    parser.add_argument("--max-symbols", type=int, default=10_000_000)
    parser.add_argument("--quick", action="store_true", help="one seed, few symbols: tries the benchmark itself")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.max_symbols = 1, 4000
    torch.set_num_threads(1)
    print("| task and cell | solved | symbols, million | processor, s | by the clock, s | passed again |")
    print("| --- | --- | --- | --- | --- | --- |")
    rows = []
    for name, task, kind, settings in (row for row in ROWS if options.only in row[0]):
        runs = [one(task, kind, seed, settings, options.max_symbols) for seed in range(options.seeds)]
        solved = [run for run in runs if run["symbols"] is not None]
        millions = text([run["symbols"] / 1e6 for run in solved], ".2f")
        cpu, clock = (text([run[which] for run in solved], ".1f") for which in ("cpu", "clock"))
        again = f"{sum(run['again'] for run in solved)} of {len(solved)}"
        print(f"| {name} | {len(solved)} of {len(runs)} | {millions} | {cpu} | {clock} | {again} |", flush=True)
        rows.append({"row": name, "units": UNITS, "runs": runs})
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "load": load(), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
