"""What looking for fixed points and decomposing outputs cost.

    python benchmarks/fixed_points.py [--quick] [--json PATH]

Process time of one thread. Fixed points: seconds for 512 starts on the flip-flop network and on untrained ones, and how
many times as long gradient descent on q takes (Adam, 1000 steps on all starts, written out by hand), with the median q
that each gets to. Decomposition: each step as a phrase, all phrases together beside one by one.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from _measure import load, machine, timed
from torch import Tensor, nn

import gatescope as gs
from gatescope.probe.state_map import StateMap, chosen_layers, constant_input

Row = dict[str, Any]


def networks(quick: bool) -> Iterator[tuple[str, nn.Module, Tensor]]:
    model, sample = gs.load_example("flip-flop", size=200 if quick else 1000)
    yield "flip-flop, LSTM 16", model, torch.from_numpy(sample.inputs)
    sizes = [("GRU", 4, 1)] if quick else [("GRU", 64, 1), ("LSTM", 64, 1), ("GRU", 128, 1), ("LSTM", 64, 2)]
    for kind, units, layers in sizes:
        torch.manual_seed(0)
        yield f"{kind} {units}, {layers} layers, untrained", getattr(nn, kind)(3, units, layers), torch.randn(200, 4, 3)


def adam(model: nn.Module, starts: Tensor, steps: int) -> Tensor:
    """q of each start after gradient descent."""
    chosen = chosen_layers(model, None, None, None)
    dynamics = StateMap(chosen.cells, chosen.layers, constant_input(0.0, 3, "it"))
    points = starts.clone().requires_grad_()
    optimizer = torch.optim.Adam([points], lr=0.01)
    for _ in range(steps):
        q = (dynamics.step(points) - points).square().sum(-1) / 2
        optimizer.zero_grad()
        q.sum().backward()
        optimizer.step()
    return q.detach()


def search_rows(quick: bool) -> Iterator[Row]:
    for name, model, x in networks(quick):
        with torch.no_grad():
            recording = gs.record(model, x)
        count = 32 if quick else 512

        def find(model: nn.Module = model, recording: Any = recording, count: int = count) -> Any:
            return gs.fixed_points(model, input=0.0, starts=recording, count=count)

        find()
        took, found = timed(find)
        names = dict.fromkeys(found["signal"].values.tolist())
        each = [
            torch.from_numpy(recording[name].values[:, 0]).double() for name in names
        ]  # (layer, sequence, time, unit)
        joined = torch.cat(each, -1).permute(1, 2, 0, 3).flatten(0, 1).flatten(1)  # layer by layer, as the map has them
        starts = joined[torch.randperm(len(joined), generator=torch.Generator().manual_seed(0))[:count]]
        by_hand, q = timed(lambda: adam(model, starts, 5 if quick else 1000))  # noqa: B023
        yield {
            "case": name,
            "seconds": took.cpu,
            "points": found.sizes["point"],
            "largest q": float(found["q"].max()),
            "Adam, times as long": by_hand.cpu / took.cpu,
            "Adam, median q": float(q.median()),
        }


def phrase_rows(quick: bool) -> Iterator[Row]:
    for steps, units in [(6, 4)] if quick else [(100, 64), (100, 256), (400, 64)]:
        torch.manual_seed(0)
        lstm, x = nn.LSTM(8, units), torch.randn(steps, 1, 8)
        some = range(0, steps, max(1, steps // 10))

        def together(lstm: nn.Module = lstm, x: Tensor = x) -> Any:
            return gs.contextual_decomposition(lstm, x, at="last")

        def apart(lstm: nn.Module = lstm, x: Tensor = x, some: range = some) -> Any:
            return [gs.contextual_decomposition(lstm, x, phrase=[(t, t + 1)], at="last") for t in some]

        together()
        pairs = [(timed(together)[0].cpu, timed(apart)[0].cpu * steps / len(some)) for _ in range(1 if quick else 5)]
        yield {
            "case": f"decomposition, {steps} steps, LSTM {units}",
            "seconds": statistics.median(own for own, _ in pairs),
            "one by one, times as long": statistics.median(other / own for own, other in pairs),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny shapes: does it run?")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    options = parser.parse_args()
    torch.set_num_threads(1)
    before, rows = load(), []
    for row in (*search_rows(options.quick), *phrase_rows(options.quick)):
        rows.append(row)
        print("; ".join(f"{name} {value:.3g}" if name != "case" else value for name, value in row.items()), flush=True)
    if options.json is not None:
        said = {"machine": {**machine(), "load_before": before, "load_after": load()}, "rows": rows}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
