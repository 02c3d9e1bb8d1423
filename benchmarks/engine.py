"""How fast the engine is: beside the same learning in torch, for growing networks, and how much memory it takes.

    python benchmarks/engine.py [--quick] [--json PATH]

Symbols per second are per core, by process time. Engine and torch read the same symbols in turns, round by round;
reported are medians and quartiles of the rounds, and of the ratios within a round. That both learn the same is
checked first: their weights after some hundred symbols differ by less than 1e-9.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from _measure import can_measure_memory, load, machine, peak_beyond_start, quiet, spread, timed
from _torch_blocks import TorchBlocks
from numba import njit

from gatescope.tasks.automaton import CONTINUAL, step
from gatescope.tasks.block_learning import learn
from gatescope.tasks.block_step import all_near, build, carry, forward
from gatescope.tasks.engine import Rule, shape_of, tables, testing_loop, training_loop
from gatescope.tasks.examples import read_example
from gatescope.tasks.packing import packed, unpacked
from gatescope.tasks.randomness import key
from gatescope.tasks.wiring import CERG_WIRING, Wiring

ALPHA, MANY, BLOCKS = 0.01, 100, [1, 2, 4, 8, 16, 32]
TRAINING, TESTING, MEMORY = 1.5e6, 5e6, 400.0
IN_MEGABYTES = 1 / 2**20
WORKER = """
from dataclasses import replace
from gatescope.tasks.experiment import VARIANTS, run_network
run_network(VARIANTS["forget"], 16)
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0])
"""


class Row(NamedTuple):
    case: str
    way: str
    unit: str
    median: float
    lower: float
    upper: float
    reach: float | None = None


def symbols_and_targets(count: int) -> tuple[np.ndarray, np.ndarray]:
    random, state = key(0), 0
    symbols, states = np.empty(count, np.int64), np.empty(count, np.int64)
    for at in range(count):
        random, symbols[at], state = step(*tables(CONTINUAL)[:3], state, np.uint64(random))
        states[at] = state
    return symbols, CONTINUAL.allowed[states].astype(np.float64)


def engine_loop(wiring: Wiring, learning: bool) -> Callable[..., int]:
    """The engine's step over given symbols, without a stop at the first error."""
    shape = shape_of(wiring)

    @njit(error_model="numpy")
    def loop(weights: Any, readout: Any, decay: float, symbols: Any, targets: Any) -> int:
        network, right = build(weights, readout, decay, shape), 0
        for at in range(len(symbols)):
            forward(network, shape, symbols[at])
            right += int(all_near(network, shape, targets[at]))
            if learning:
                learn(network, shape, symbols[at], targets[at], ALPHA)
            carry(network, shape)
        return right

    return loop


def torch_loop(networks: TorchBlocks, symbols: torch.Tensor, targets: torch.Tensor, learning: bool) -> None:
    count = len(networks.one)
    with torch.no_grad():
        for x, target in zip(symbols, targets, strict=True):
            shown = networks.forward(x.expand(count, -1))
            ((target - shown).abs() < 0.49).all(1)
            if learning:
                networks.learn(shown, target, ALPHA)


def check_that_both_learn_the_same(symbols: np.ndarray, targets: np.ndarray) -> None:
    weights = read_example("cerg-forget")[0]
    inside, readout = packed(weights, CERG_WIRING)
    engine_loop(CERG_WIRING, True)(inside, readout, 1.0, symbols, targets)
    networks = TorchBlocks(weights, CERG_WIRING, 2)
    torch_loop(networks, torch.eye(7, dtype=torch.float64)[symbols], torch.from_numpy(targets), True)
    found = unpacked(inside, readout, CERG_WIRING)
    for name, other in (
        ("cell.weight_ih", networks.w[1, :, :7]),
        ("cell.weight_hh", networks.w[1, :, 7:-1]),
        ("readout.bias", networks.v[1, :, -1]),
    ):
        error, moved = abs(found[name] - other.numpy()).max(), abs(found[name] - weights[name]).max()
        if not error < 1e-9 < 1e-6 < moved:
            raise RuntimeError(f"engine and torch must learn the same; {name} differs by {error:.1g} of {moved:.1g}.")


def beside_torch(symbols: np.ndarray, targets: np.ndarray, rounds: int, steps: int) -> Iterator[Row]:
    weights = read_example("cerg-forget")[0]
    x, t = torch.eye(7, dtype=torch.float64)[symbols[:steps]], torch.from_numpy(targets[:steps])
    for kind, learning in (("training", True), ("testing", False)):
        loop = engine_loop(CERG_WIRING, learning)
        loop(*packed(weights, CERG_WIRING), 1.0, symbols[:9], targets[:9])
        rates: dict[str, list[float]] = {"engine": [], "torch": [], f"torch, {MANY} in lockstep": []}
        for _ in range(rounds):
            with quiet():
                took = timed(partial(loop, *packed(weights, CERG_WIRING), 1.0, symbols, targets))[0].cpu
                rates["engine"].append(len(symbols) / took)
                for found, count in zip(list(rates.values())[1:], (1, MANY), strict=True):
                    networks = TorchBlocks(weights, CERG_WIRING, count)
                    took = timed(partial(torch_loop, networks, x, t, learning))[0].cpu
                    found.append(steps * count / took)
        for way, found in rates.items():
            yield Row(kind, way, "million symbols/s", *spread([rate / 1e6 for rate in found]))
            if way != "engine":
                ratios = [own / other for own, other in zip(rates["engine"], found, strict=True)]
                yield Row(kind, f"engine beside {way}", "times", *spread(ratios))


def streams(rounds: int, length: int) -> Iterator[Row]:
    """Whole streams as in the experiment, drawn as they are read, by networks that make no error in them."""
    for case, name in (("forget gate", "cerg-forget"), ("1997, external reset", "cerg-external-reset")):
        weights, setting, _ = read_example(name)
        shape, grammar = shape_of(setting.wiring), tables(CONTINUAL)
        rule = Rule(0.0, 1.0, 1.0, setting.external_reset, False)  # all is computed; the network stays perfect
        inside, readout = packed(weights, setting.wiring)
        common = (inside, readout, setting.wiring.decay, grammar)
        train, test = training_loop(shape), testing_loop(shape)
        train(*common, rule, key(1), 1)
        test(*common, setting.external_reset, key(1), 1)
        found: dict[str, list[float]] = {"training": [], "testing": []}
        for number in range(rounds):
            took, (done, _) = timed(partial(train, *common, rule, key(2, number), length))
            found["training"].append(done / took.cpu / 1e6)
            took, done = timed(partial(test, *common, setting.external_reset, key(3, number), length))
            found["testing"].append(done / took.cpu / 1e6)
        for kind, reach in (("training", TRAINING), ("testing", TESTING)):
            yield Row(f"{kind}, {case}", "engine", "million symbols/s", *spread(found[kind]), reach / 1e6)


def growing(symbols: np.ndarray, targets: np.ndarray, rounds: int, blocks: list[int]) -> Iterator[Row]:
    for count in blocks:
        wiring = Wiring(blocks=count)
        rng = np.random.default_rng(0)
        weights = {name: rng.uniform(-0.2, 0.2, shape) for name, shape in wiring.shapes.items()}
        loop = engine_loop(wiring, True)
        loop(*packed(weights, wiring), 1.0, symbols[:9], targets[:9])
        found = []
        for _ in range(rounds):
            took = timed(partial(loop, *packed(weights, wiring), 1.0, symbols, targets))[0].cpu
            found.append(1e9 * took / len(symbols) / wiring.weight_count)
        yield Row(
            f"{count} blocks, {wiring.weight_count} weights", "engine", "ns per symbol and weight", *spread(found)
        )


def memory(lengths: tuple[int, int]) -> Iterator[Row]:
    if not can_measure_memory():
        return
    weights, setting, _ = read_example("cerg-forget")
    loop = training_loop(shape_of(setting.wiring))
    rule = Rule(0.0, 1.0, 1.0, False, False)
    for length in (lengths[0], *lengths):  # the first only warms up
        inside, readout = packed(weights, setting.wiring)
        act = partial(loop, inside, readout, 1.0, tables(CONTINUAL), rule, key(1), length)
        rise = peak_beyond_start(act) * IN_MEGABYTES
    for length in lengths:
        act = partial(loop, *packed(weights, setting.wiring), 1.0, tables(CONTINUAL), rule, key(1), length)
        rise = peak_beyond_start(act) * IN_MEGABYTES
        yield Row(f"a stream of {length:,} symbols", "engine", "MB beyond the start", rise, rise, rise)
    run = subprocess.run([sys.executable, "-c", WORKER], check=True, stdout=subprocess.PIPE, text=True)
    peak = int(run.stdout) / 1024
    yield Row("a worker that trains one network", "engine", "MB in all", peak, peak, peak, MEMORY)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and memory of the engine.")
    parser.add_argument("--quick", action="store_true", help="few symbols and rounds: tries the benchmark itself")
    parser.add_argument("--json", type=Path, help="where to write the numbers")
    given = parser.parse_args()
    torch.set_num_threads(1)
    before = load()
    count, rounds = (2_000, 2) if given.quick else (200_000, 9)
    symbols, targets = symbols_and_targets(count)
    check_that_both_learn_the_same(symbols[:300], targets[:300])
    rows = [
        *streams(rounds, count),
        *beside_torch(symbols, targets, rounds, 20 if given.quick else 1000),
        *growing(
            symbols[: count // 10], targets[: count // 10], rounds, [1, 2] if given.quick else [1, 2, 4, 8, 16, 32]
        ),
        *memory((1_000, 10_000) if given.quick else (10_000, 1_000_000)),
    ]
    about = machine() | {"load_before": before, "load_after": load()}
    print(", ".join(f"{name} {value}" for name, value in about.items()), end="\n\n")
    for row in rows:
        reach = "" if row.reach is None else f"   reach {row.reach:g}"
        print(f"{row.case:34} {row.way:34} {row.median:10.3g} ({row.lower:.3g}-{row.upper:.3g}) {row.unit}{reach}")
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        content = {"benchmark": "engine", "quick": given.quick, "machine": about}
        given.json.write_text(json.dumps(content | {"rows": [row._asdict() for row in rows]}, indent=1))


if __name__ == "__main__":
    main()
