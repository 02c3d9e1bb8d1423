"""What acting inside the recurrence costs: running openly beside the fused module, and what is built on it.

    python benchmarks/acting.py [--quick] [--part NAME ...] [--json PATH]

Process time of one thread, in one process, round by round: the bare way, ours, and the bare way again. A round gives
the ratio to the mean of its two bare ones; reported are median and quartiles.

`open`: a module inside `gatescope.opened` beside the fused one, forward without gradients, and forward with backward;
also with a tap that looks at every value and changes nothing (`intervene` of one unit of one gate).

`attribution`: integrated gradients with 20 points by `attribution` beside Captum called by hand, with its completeness
delta: on an LSTM or GRU written out as a loop, and on the fused module.

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
    Case("LSTM", 1, 200, 32, 16),
    Case("LSTM", 32, 100, 128, 2.5),
    Case("LSTM", 64, 100, 256, 2),
    Case("GRU", 32, 100, 128, 1.6),
    Case("GRU", 64, 100, 256, 1.5),
    Case("RNN", 32, 100, 128, 1.5),
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


ATTRIBUTION_CASES = (
    Case("LSTM", 1, 200, 64, 1.3),
    Case("LSTM", 8, 50, 64, 1.3),
    Case("LSTM", 16, 50, 128, 1.3),
    Case("GRU", 8, 50, 64, 1.3),
)
PATH = 20  # points of integrated gradients
ATTRIBUTION_ROUNDS = 5


def open_loop(module: nn.RNNBase, x: Tensor, gate: Tensor | None = None) -> Tensor:
    """An LSTM or GRU as one writes it out, (sequence, time, unit) in; the gate that keeps may be given. The last h."""
    state, kept = x.new_zeros(len(x), module.hidden_size), x.new_zeros(len(x), module.hidden_size)
    for time in range(x.shape[1]):
        read = x[:, time] @ module.weight_ih_l0.T + module.bias_ih_l0
        own = state @ module.weight_hh_l0.T + module.bias_hh_l0
        if module.mode == "LSTM":
            i, f, g, o = (read + own).chunk(4, 1)
            keep = f.sigmoid() if gate is None else gate[:, time]
            kept = keep * kept + i.sigmoid() * g.tanh()
            state = o.sigmoid() * kept.tanh()
        else:
            (r, z, n), (own_r, own_z, own_n) = read.chunk(3, 1), own.chunk(3, 1)
            keep = (z + own_z).sigmoid() if gate is None else gate[:, time]
            state = keep * state + (1 - keep) * (n + (r + own_r).sigmoid() * own_n).tanh()
    return state[:, 0]


def attribution_rows(quick: bool) -> Iterator[Row]:
    """`attribution` beside Captum called by hand, on a loop that is written out and on the fused module."""
    from captum.attr import IntegratedGradients

    for full in ATTRIBUTION_CASES:
        case = full.small() if quick else full
        module, x = case.module(), case.input()
        rows = x.transpose(0, 1)
        values = gs.record(module, x)[GATE[case.kind]].values[0, 0]
        gate = torch.from_numpy(values.copy())

        def ours(to: str, module: nn.RNNBase = module, x: Tensor = x) -> Callable[[], Any]:
            return lambda: gs.attribution(module, x, target=(-1, 0), to=to, n_steps=PATH)

        def by_hand(forward: Callable[..., Tensor], values: Tensor, *more: Tensor) -> Callable[[], Any]:
            method = IntegratedGradients(forward)
            return lambda: method.attribute(
                values, additional_forward_args=more or None, n_steps=PATH, return_convergence_delta=True
            )

        def loop(x: Tensor, module: nn.RNNBase = module) -> Tensor:
            return open_loop(module, x)

        def gated(gate: Tensor, x: Tensor, module: nn.RNNBase = module) -> Tensor:
            return open_loop(module, x, gate)

        def fused(x: Tensor, module: nn.RNNBase = module) -> Tensor:
            shown: Tensor = module(x.transpose(0, 1))[0][-1, :, 0]
            return shown

        for measure, bare, to, unit in (
            ("to the input", by_hand(loop, rows), "input", "of Captum on an open loop"),
            ("to the input", by_hand(fused, rows), "input", "of Captum on the fused module"),
            ("to the gate that keeps", by_hand(gated, gate, rows), GATE[case.kind], "of Captum on an open loop"),
        ):
            found = paired(bare, ours(to), QUICK_ROUNDS if quick else ATTRIBUTION_ROUNDS)
            reach = case.reach if unit.endswith("open loop") else None
            yield Row(case.name, 1, "integrated gradients", measure, unit, *spread(found), reach=reach)


PARTS: dict[str, Callable[[bool], Iterator[Row]]] = {
    "open": open_rows,
    "ablation": ablation_rows,
    "attribution": attribution_rows,
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
