"""What the true gradient of a loss costs, beside the model's own forward and backward pass.

    python benchmarks/loss_gradient.py [--quick] [--json PATH]

Process time of one thread, in one process, round by round: forward and backward pass of the bare model,
`loss_gradient`, and the bare passes again. A round gives the ratio to the mean of its two bare ones; reported are
median and quartiles. The loss is on the last step. Agreement: the largest difference in log10 of the gradient's norm
from float64, over all steps.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _cases import Case
from _measure import load, machine, quiet, spread, timed
from torch import Tensor, nn

import gatescope as gs

ROUNDS, QUICK_ROUNDS = 9, 1
CASES = (
    Case("LSTM", 1, 1000, 64, 5.5),
    Case("LSTM", 32, 200, 64, 5.5),
    Case("LSTM", 1, 1000, 128, 3.5),
    Case("LSTM", 8, 1000, 128, 3.5),
    Case("LSTM", 32, 200, 128, 3.5),
    Case("LSTM", 32, 200, 256, 5.5),
    Case("LSTM", 32, 200, 128, 3.5, layers=2, directions=2),
    Case("GRU", 1, 1000, 64, 2.5),
    Case("GRU", 32, 200, 128, 2.5),
    Case("GRU", 32, 200, 256, 2.5),
    Case("RNN", 32, 200, 128, 5.5),
)


def last_step(result: tuple[Tensor, Any]) -> Tensor:
    return result[0][-1].sum()


def passes(module: nn.Module, x: Tensor) -> Callable[[], None]:
    def run() -> None:
        module.zero_grad()
        last_step(module(x)).backward()  # type: ignore[no-untyped-call]

    return run


def rows(case: Case, rounds: int) -> Iterator[dict[str, Any]]:
    module, x = case.module(), case.input()
    bare = passes(module, x)

    def ours() -> Any:
        return gs.loss_gradient(module, x, last_step)

    bare()
    found = ours()
    ratios, times = [], []
    for _ in range(rounds):
        with quiet():
            before, own, after = timed(bare)[0].cpu, timed(ours)[0].cpu, timed(bare)[0].cpu
        ratios.append(2 * own / (before + after))
        times.append(500 * (before + after))
    ratio = spread(ratios)
    yield {"case": case.name, "measure": "ms of the bare passes", "median": spread(times).median}
    yield {
        "case": case.name,
        "measure": "of the bare passes",
        **ratio._asdict(),
        "reach": case.reach,
        "met": ratio.median <= case.reach,
    }
    exact = gs.loss_gradient(deepcopy(module).double(), x.double(), last_step)
    norms = exact.gradient_norm.values
    there = np.isfinite(norms)  # the backward direction has nothing before the last step
    gap = np.abs(found.gradient_norm.values[there] - norms[there]).max()
    yield {"case": case.name, "measure": "error in log10 of the norm", "median": float(gap)}
    yield {"case": case.name, "measure": "lowest log10 of the norm", "median": float(norms[there].min())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny shapes, one round: does it run?")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    before = load()
    found: list[dict[str, Any]] = []
    print("| case | passes, ms | loss_gradient, of the passes (quartiles) | reach | error, log10 | lowest norm |")
    print("|---|---|---|---|---|---|")
    for case in CASES:
        tried = case.small() if options.quick else case
        bare, ratio, error, lowest = rows(tried, QUICK_ROUNDS if options.quick else ROUNDS)
        found += [bare, ratio, error, lowest]
        quartiles = f"{ratio['median']:.2f} ({ratio['lower']:.2f}-{ratio['upper']:.2f})"
        met = f"{case.reach} {'met' if ratio['met'] else 'missed'}"
        print(
            f"| {tried.name} | {bare['median']:.1f} | {quartiles} | {met} | {error['median']:.0e} "
            f"| 1e{lowest['median']:.0f} |",
            flush=True,
        )
    said = {
        "machine": {**machine(), "load_before": before, "load_after": load()},
        "quick": options.quick,
        "rows": found,
    }
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
