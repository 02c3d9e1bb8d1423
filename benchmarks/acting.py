"""What acting inside the recurrence costs: running openly beside the fused module, and what is built on it.

    python benchmarks/acting.py [--quick] [--part NAME ...] [--json PATH]

Process time of one thread, in one process, round by round: the bare way, ours, and the bare way again. A round gives
the ratio to the mean of its two bare ones; reported are median and quartiles.

`open`: a module inside `gatescope.opened` beside the fused one, forward without gradients, and forward with backward;
also with a tap that looks at every value and changes nothing (`intervene` of one unit of one gate).

`ablation`: units held at zero in as few passes as 512 rows allow, beside one by one.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from _cases import Case, Row
from _measure import load, machine, quiet, spread, timed
from torch import Tensor, nn

import gatescope as gs

ROUNDS, QUICK_ROUNDS = 9, 1
OPEN_CASES = (
    Case("LSTM", 1, 200, 32, 20),
    Case("LSTM", 32, 100, 128, 4),
    Case("LSTM", 64, 100, 256, 4),
    Case("GRU", 32, 100, 128, 2),
    Case("GRU", 64, 100, 256, 2),
    Case("RNN", 32, 100, 128, 2),
    Case("LSTM", 32, 100, 64, 4, layers=2, directions=2),
)
GATE = {"LSTM": "forget_gate", "GRU": "update_gate", "RNN": "hidden_state"}


def paired(bare: Callable[[], Any], ours: Callable[[], Any], rounds: int) -> list[float]:
    """Our time by the bare one's, once a round."""
    bare()
    ours()
    ratios = []
    for _ in range(rounds):
        with quiet():
            before, own, after = timed(bare)[0].cpu, timed(ours)[0].cpu, timed(bare)[0].cpu
        ratios.append(2 * own / max(before + after, 1e-9))
    return ratios


def forward(module: nn.Module, x: Tensor) -> Callable[[], None]:
    def run() -> None:
        with torch.no_grad():
            module(x)

    return run


def both(module: nn.Module, x: Tensor) -> Callable[[], None]:
    def run() -> None:
        module.zero_grad()
        module(x)[0].sum().backward()

    return run


def open_rows(quick: bool) -> Iterator[Row]:
    """A module inside `opened` beside the fused one."""
    for full in OPEN_CASES:
        case = full.small() if quick else full
        module, x = case.module(), case.input()
        for measure, make in (("forward", forward), ("forward and backward", both)):
            bare = make(module, x)

            def opened(bare: Callable[[], None] = bare, module: nn.Module = module) -> None:
                with gs.opened(module):
                    bare()

            found = paired(bare, opened, QUICK_ROUNDS if quick else ROUNDS)
            yield Row(case.name, 1, "opened", measure, "of the fused", *spread(found), reach=case.reach)

            def changed(
                bare: Callable[[], None] = bare, module: nn.Module = module, signal: str = GATE[case.kind]
            ) -> None:
                with gs.intervene(module, signal, 0.5, unit=0):
                    bare()

            found = paired(opened, changed, QUICK_ROUNDS if quick else ROUNDS)
            yield Row(case.name, 1, "one unit clamped", measure, "of the opened", *spread(found))


ABLATION_CASES = (
    Case("LSTM", 1, 100, 256, 0.2),
    Case("GRU", 1, 100, 256, 0.2),
    Case("LSTM", 8, 50, 256, 1.0),
    Case("LSTM", 32, 20, 256, 1.0),
    Case("LSTM", 64, 20, 256, 1.0),
    Case("LSTM", 64, 20, 64, 1.0),
    Case("LSTM", 128, 10, 256, 1.0),  # too many to repeat: one by one either way
)
LESIONED, ABLATION_ROUNDS = 64, 3  # units, of batches of several sequences


def ablation_rows(quick: bool) -> Iterator[Row]:
    """Every unit held at zero, in as few passes as rows allow beside one by one."""
    for full in ABLATION_CASES:
        case = full.small() if quick else full
        module, x = case.module(), case.input()
        units = range(case.units if case.sequences == 1 else min(LESIONED, case.units))

        def last(output: Any) -> Tensor:
            shown: Tensor = output[0]
            return shown[-1].square().mean(1)

        def ways(rows: int, module: nn.Module = module, x: Tensor = x, units: range = units) -> Callable[[], Any]:
            return lambda: gs.ablation(module, x, last, unit=units, rows=rows)

        found = paired(ways(1), ways(512), QUICK_ROUNDS if quick else ABLATION_ROUNDS)
        yield Row(
            case.name, 1, "batched", f"ablation of {len(units)} units", "of one by one", *spread(found), case.reach
        )


PARTS: dict[str, Callable[[bool], Iterator[Row]]] = {
    "open": open_rows,
    "ablation": ablation_rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny shapes, one round: does it run?")
    parser.add_argument("--part", action="append", choices=list(PARTS), help="only these parts; all by default")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    before = load()
    rows: list[Row] = []
    print("| case | what | measure | median (quartiles), reach | unit |")
    print("|---|---|---|---|---|")
    for part in options.part or PARTS:
        for row in PARTS[part](options.quick):
            rows.append(row)
            print(f"| {row.case} | {row.way} | {row.measure} | {row.text()} | {row.unit} |", flush=True)
    said = {
        "machine": {**machine(), "load_before": before, "load_after": load()},
        "quick": options.quick,
        "rows": [row.as_dict() for row in rows],
    }
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
