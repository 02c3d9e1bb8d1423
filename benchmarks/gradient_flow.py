"""What it costs to know how much of a gradient is left after every number of steps, beside other ways.

    python benchmarks/gradient_flow.py [--quick] [--json PATH]

Asked is the Frobenius norm of dh_T/d(h, c)_t of an LSTM, one sequence, on one thread. *Ours* gives it for every t, from
a recording (which is timed beside it). The other ways work on the model: `torch.autograd.functional.jacobian` and
`torch.func.jacrev` give it for one t only; a Python loop of cells with one backward gives, for every t, one row of the
matrix in place of all. All ways are timed in turns within a round, by process time; reported are medians over rounds of
the time and of its ratio to ours. Before that they must agree: ours in float32 with autograd in float64, for several t,
and with ours in float64 for all. Memory is the peak of the resident set beyond the start, in arrays of T x H x H.
"""

import argparse
import json
import math
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"  # numpy reads them when it is loaded

import numpy as np
import torch
import xarray as xr
from _cases import Row
from _measure import can_measure_memory, load, machine, peak_beyond_start, quiet, spread, timed
from torch import Tensor, nn

import gatescope as gs
from gatescope.probe.analyzers.norms import norms_back
from gatescope.probe.analyzers.reading import Source

ERROR = 1e-5  # nats
RATIO = "times ours"


class Case(NamedTuple):
    units: int
    steps: int
    reach: float | None = None  # times that functional.jacobian is to take longer

    @property
    def name(self) -> str:
        return f"LSTM 1x{self.steps}x{self.units}"


CASES = (Case(64, 100), Case(64, 1000, 3.0), Case(256, 100, 4.0), Case(256, 1000))
SMALL = (Case(8, 12, 3.0),)
JACREV = "func.jacrev, one start"
SLOW, SLOWEST = 64 * 64 * 1000, 256 * 256 * 100  # in units * units * steps: above, jacrev is run once, or left out


class Network:
    """A model, its input and its recording."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        self.case = case
        self.model = nn.LSTM(8, case.units).eval()
        self.input = torch.randn(case.steps, 1, 8)
        self.recording = self.record()

    def record(self) -> xr.Dataset:
        with torch.no_grad():
            return gs.record(self.model, self.input)

    def ours(self, *, whole: bool = False, dtype: str | None = None) -> np.ndarray:
        """log10 norms by horizon, 1 to T - 1."""
        source = Source(self.recording, "gradient_flow")
        steps = source.steps(source.part(0, 0, [0]), dtype)
        return norms_back(steps, 0, self.case.steps - 1, None if whole else [0])

    def everything(self) -> xr.Dataset:
        return gs.gradient_flow(self.recording, end=-1)

    def last(self, start: int, model: nn.LSTM, h: Tensor, c: Tensor) -> Tensor:
        """h at the end, from the state after step `start`."""
        read = self.input[start + 1 :].to(h.dtype)
        return model(read, (h.reshape(1, 1, -1), c.reshape(1, 1, -1)))[1][0].reshape(-1)

    def state(self, start: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        here = self.recording.isel(layer=0, direction=0, sequence=0, time=start)
        h, c = (torch.tensor(here[name].values, dtype=dtype) for name in ("hidden_state", "cell_state"))
        return h, c

    def functional(self, start: int = 0, dtype: torch.dtype = torch.float32) -> float:
        """log10 of the norm, by `torch.autograd.functional.jacobian`."""
        model = self.model if dtype == torch.float32 else doubled(self.model)
        found = torch.autograd.functional.jacobian(partial(self.last, start, model), self.state(start, dtype))
        return log10_norm(found)

    def jacrev(self, start: int = 0) -> float:
        return log10_norm(torch.func.jacrev(partial(self.last, start, self.model), argnums=(0, 1))(*self.state(start)))

    def loop(self) -> Tensor:
        """One row of dh_T/dh_t for every t, by one backward through a Python loop of cells."""
        cell = nn.LSTMCell(8, self.case.units)
        cell.load_state_dict({name.removesuffix("_l0"): weight for name, weight in self.model.state_dict().items()})
        state = self.state(0)
        states = []
        for read in self.input[1:, 0]:
            h, c = (value.requires_grad_() for value in state)
            states.append(h)
            state = cell(read, (h, c))
        return torch.stack(torch.autograd.grad(state[0][0], states))


def doubled(model: nn.LSTM) -> nn.LSTM:
    twin = nn.LSTM(model.input_size, model.hidden_size, dtype=torch.float64)
    twin.load_state_dict(model.state_dict())
    return twin.eval()


def log10_norm(parts: tuple[Tensor, ...]) -> float:
    """Scaled first: squares of what is below 1e-162 are 0 in float64."""
    joined = torch.cat([part.detach().double() for part in parts], dim=1)
    scale = joined.abs().max()
    return float(scale.log10() + (joined / scale).norm().log10()) if scale > 0 else -math.inf


def agreement(network: Network) -> Iterator[Row]:
    """Largest error in nats: of ours beside autograd in float64, and over all horizons beside ours in float64."""
    case, found = network.case, network.ours()
    exact = network.ours(dtype="float64")
    starts = sorted({max(0, case.steps - 1 - k) for k in (1, 2, 10, 30, 100, case.steps - 1)})
    true = np.array([network.functional(start, torch.float64) for start in starts])
    near = math.log(10) * float(np.abs(found[[case.steps - 2 - start for start in starts]] - true).max())
    double = math.log(10) * float(np.abs(exact[[case.steps - 2 - start for start in starts]] - true).max())
    if not near < 1e-3:
        raise RuntimeError(f"ours must agree with autograd; it is {near:.2g} nats off in {case.name}.")
    yield Row(case.name, 1, "ours", "error beside autograd in float64", "nats", near, near, near, ERROR)
    yield Row(case.name, 1, "ours, float64", "error beside autograd in float64", "nats", double, double, double)
    drift = math.log(10) * float(np.abs(found - exact).max())
    yield Row(case.name, 1, "ours", "error at all horizons", "nats", drift, drift, drift, ERROR)
    plain = network.functional()
    note = f"10**{found[-1]:.1f} by ours, " + ("0" if math.isinf(plain) else f"10**{plain:.1f}") + " by autograd"
    yield Row(case.name, 1, "functional.jacobian", "norm at the first step, float32", "1", note=note)


def times(network: Network, rounds: int) -> Iterator[Row]:
    case = network.case
    ways: dict[str, Callable[[], Any]] = {
        "ours": network.ours,
        "functional.jacobian, one start": network.functional,
        "Python loop, one backward, one row": network.loop,
        "ours, whole (h, c)": partial(network.ours, whole=True),
        "recording": network.record,
        "gradient_flow, all it gives": network.everything,
    }
    if case.units * case.units * case.steps <= SLOWEST:
        ways[JACREV] = network.jacrev
    once = case.units * case.units * case.steps > SLOW
    for way, act in ways.items():
        if not (once and way == JACREV):
            act()  # warm
    found: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        for way, act in ways.items():
            if way == JACREV and number >= (1 if once else 3):
                continue
            with quiet():
                found[way].append(timed(act)[0].cpu)
    for way, took in found.items():
        yield Row(case.name, 1, way, "time", "ms", *spread([1000 * seconds for seconds in took]))
        if way != "ours":
            ratios = [seconds / own for seconds, own in zip(took, found["ours"], strict=False)]
            yield Row(case.name, 1, way, "ratio", RATIO, *spread(ratios))


def reached(case: Case, row: Row) -> dict[str, Any]:
    """As in the other benchmarks; here more is better."""
    found = row.as_dict()
    if row.way.startswith("functional.jacobian") and row.measure == "ratio" and case.reach is not None:
        found |= {"reach": case.reach, "met": row.median is not None and row.median >= case.reach}
    return found


def memory(network: Network) -> Iterator[Row]:
    if not can_measure_memory():
        return
    case = network.case
    array = 4 * case.steps * case.units**2
    peak = peak_beyond_start(network.ours) / array
    yield Row(case.name, 1, "ours", "peak memory", "arrays of T x H x H", peak, peak, peak)


def show(row: dict[str, Any]) -> None:
    said = row["note"] if row["median"] is None else f"{row['median']:.3g} ({row['lower']:.3g}-{row['upper']:.3g})"
    verdict = "" if row["met"] is None else f"reach {row['reach']:g} " + ("met" if row["met"] else "MISSED")
    print(f"{row['case']:<16} {row['way']:<36} {row['measure']:<34} {said:<24} {row['unit']:<20} {verdict}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small case: tries the benchmark itself")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: list[dict[str, Any]] = []
    for case in SMALL if options.quick else CASES:
        network = Network(case)
        for part in (agreement(network), times(network, 2 if options.quick else options.rounds), memory(network)):
            for row in part:
                found.append(reached(case, row))
                show(found[-1])
    if options.json:
        said = {"machine": machine(), "load": load(), "quick": options.quick, "rows": found}
        options.json.write_text(json.dumps(said, indent=1))


if __name__ == "__main__":
    main()
