"""The contract table: one row per cell, on which every test of `test_contract.py` runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import sqrt

import numpy as np
import pytest
import torch
from torch import nn

from gatescope.cells import (
    AbstractCell,
    GRUCell,
    LSTMCell,
    MemoryBlockCell,
    PeepholeLSTMCell,
    ResetBeforeGRUCell,
    RNNCell,
)

Array = np.ndarray
NumpyTap = Callable[[str, Array], Array]
Equations = Callable[[Mapping[str, Array], Array, tuple[Array, ...], NumpyTap], tuple[Array, ...]]


@dataclass(frozen=True)
class Cell:
    """What the contract needs to know of a cell.

    `make(input_size, hidden_size, **options)` builds it; `equations(weights, x, state, tap)` is one step in numpy,
    written from the papers and torch's documentation, that taps the same names; `torch` is torch's own cell, if any;
    `interval(units)` is where first weights end, biases that do not come from there being left out.
    """

    make: Callable[..., AbstractCell]
    equations: Equations
    torch: Callable[..., nn.Module] | None
    interval: Callable[[int], float] = lambda units: 1 / sqrt(units)
    own_biases: bool = False


def sigmoid(values: Array) -> Array:
    return 1 / (1 + np.exp(-values))


def affine(weights: Mapping[str, Array], values: Array, which: str) -> Array:
    return values @ weights[f"weight_{which}"].T + weights.get(f"bias_{which}", 0.0)


def squash(name: str, values: Array, squasher: Callable[[Array], Array], tap: NumpyTap) -> Array:
    return tap(name, squasher(tap(f"{name}_preactivation", values)))


def lstm(weights: Mapping[str, Array], x: Array, state: tuple[Array, ...], tap: NumpyTap) -> tuple[Array, ...]:
    h, c = state
    i, f, g, o = np.split(affine(weights, x, "ih") + affine(weights, h, "hh"), 4, axis=-1)
    i = squash("input_gate", i, sigmoid, tap)
    f = squash("forget_gate", f, sigmoid, tap)
    g = squash("candidate", g, np.tanh, tap)
    o = squash("output_gate", o, sigmoid, tap)
    c = tap("cell_state", f * c + i * g)
    h = o * np.tanh(c)
    if "weight_hr" in weights:
        h = h @ weights["weight_hr"].T
    return tap("hidden_state", h), c


def gru(weights: Mapping[str, Array], x: Array, state: tuple[Array, ...], tap: NumpyTap) -> tuple[Array, ...]:
    (h,) = state
    x_r, x_z, x_n = np.split(affine(weights, x, "ih"), 3, axis=-1)
    h_r, h_z, h_n = np.split(affine(weights, h, "hh"), 3, axis=-1)
    r = squash("reset_gate", x_r + h_r, sigmoid, tap)
    z = squash("update_gate", x_z + h_z, sigmoid, tap)
    h_n = tap("candidate_recurrent", h_n)
    n = squash("candidate", x_n + r * h_n, np.tanh, tap)
    return (tap("hidden_state", (1 - z) * n + z * h),)


def rnn(squasher: Callable[[Array], Array]) -> Equations:
    def equations(weights: Mapping[str, Array], x: Array, state: tuple[Array, ...], tap: NumpyTap) -> tuple[Array, ...]:
        return (squash("hidden_state", affine(weights, x, "ih") + affine(weights, state[0], "hh"), squasher, tap),)

    return equations


def peephole_lstm(variant: str) -> Equations:
    """Greff et al. (2017), block by block; rows of weights stand in the order i f g o, without what is missing."""
    missing = {"NIG": "i", "NFG": "f", "NOG": "o", "CIFG": "f"}.get(variant)
    blocks = [name for name in "ifgo" if name != missing]

    def equations(weights: Mapping[str, Array], x: Array, state: tuple[Array, ...], tap: NumpyTap) -> tuple[Array, ...]:
        y, c = state[:2]
        units = y.shape[-1]
        net = {}
        for place, name in enumerate(blocks):
            rows = slice(place * units, (place + 1) * units)
            net[name] = x @ weights["weight_ih"][rows].T + y @ weights["weight_hh"][rows].T
            if "bias_ih" in weights:
                net[name] = net[name] + weights["bias_ih"][rows] + weights["bias_hh"][rows]
        peepholes = dict(
            zip([name for name in blocks if name != "g"], weights.get("weight_peephole", []), strict=False)
        )
        if variant == "FGR":
            for to, name in enumerate("ifo"):
                for source, before in enumerate(state[2:]):
                    matrix = weights["weight_gates"][
                        to * units : (to + 1) * units, source * units : (source + 1) * units
                    ]
                    net[name] = net[name] + before @ matrix.T
        ones = np.ones_like(net["g"])
        i = squash("input_gate", net["i"] + peepholes.get("i", 0) * c, sigmoid, tap) if "i" in net else ones
        if variant == "CIFG":
            f = 1 - i
        else:
            f = squash("forget_gate", net["f"] + peepholes.get("f", 0) * c, sigmoid, tap) if "f" in net else ones
        z = tap("candidate", net["g"]) if variant == "NIAF" else squash("candidate", net["g"], np.tanh, tap)
        c = tap("cell_state", z * i + c * f)
        o = squash("output_gate", net["o"] + peepholes.get("o", 0) * c, sigmoid, tap) if "o" in net else ones
        y = tap("hidden_state", (c if variant == "NOAF" else np.tanh(c)) * o)
        return (y, c, i, f, o) if variant == "FGR" else (y, c)

    return equations


def reset_before(convention: str) -> Equations:
    """Cho et al. (2014) and, for the textbook's convention, Chung et al. (2014), with the biases of torch."""

    def equations(weights: Mapping[str, Array], x: Array, state: tuple[Array, ...], tap: NumpyTap) -> tuple[Array, ...]:
        (h,) = state
        units = h.shape[-1]
        rows = {name: slice(k * units, (k + 1) * units) for k, name in enumerate("rzn")}

        def net(name: str, memory: Array) -> tuple[Array, Array]:
            zero = np.zeros(3 * units)
            driven = x @ weights["weight_ih"][rows[name]].T + weights.get("bias_ih", zero)[rows[name]]
            return driven, memory @ weights["weight_hh"][rows[name]].T + weights.get("bias_hh", zero)[rows[name]]

        r = squash("reset_gate", sum(net("r", h)), sigmoid, tap)
        z = squash("update_gate", sum(net("z", h)), sigmoid, tap)
        driven, recurrent = net("n", r * h)
        n = squash("candidate", driven + tap("candidate_recurrent", recurrent), np.tanh, tap)
        keep = z if convention == "torch" else 1 - z
        return (tap("hidden_state", keep * h + (1 - keep) * n),)

    return equations


def cells_per_block(units: int) -> int:
    """The smallest factor above 1: 4 units are 2 blocks of 2, 3 are one block, 15 are 5 blocks of 3."""
    return next((size for size in range(2, units + 1) if units % size == 0), 1)


def memory_blocks(input_size: int, hidden_size: int, **options: object) -> AbstractCell:
    size = cells_per_block(hidden_size)
    return MemoryBlockCell(input_size, blocks=hidden_size // size, size=size, **options)


def memory_block(*, forget: object = "learned", without: str = "", gates_see_gates: bool = False) -> Equations:
    """Gers, Schmidhuber and Cummins (2000), one block and one of its cells at a time."""
    decay = {"learned": None, "none": 1.0}.get(forget, forget)

    def equations(weights: Mapping[str, Array], x: Array, state: tuple[Array, ...], tap: NumpyTap) -> tuple[Array, ...]:
        y, s = state[:2]
        units = y.shape[-1]
        size = cells_per_block(units)
        blocks = units // size
        gates = [name for name in ("input_gate", "forget_gate", "output_gate") if name != without]
        gates = [name for name in gates if name != "forget_gate" or decay is None]
        order = [*gates, "candidate"] if without == "output_gate" else [*gates[:-1], "candidate", gates[-1]]
        seen = [x, y]
        if gates_see_gates:
            for gate in state[2:]:
                seen += [sum(gate[..., j * size + v] for v in range(size))[..., None] / size for j in range(blocks)]
        z = np.concatenate(seen, axis=-1)
        w = np.concatenate([weights["weight_ih"], weights["weight_hh"]], axis=1)
        net, row, place = {}, 0, 0
        for name in order:
            net[name] = np.empty((*x.shape[:-1], units))
            for j in range(blocks):
                for v in range(size):
                    of = row + (j * size + v if name == "candidate" else j)
                    net[name][..., j * size + v] = z @ w[of]
                    if name != "candidate" and "bias_ih" in weights:
                        net[name][..., j * size + v] += weights["bias_ih"][place + j]
            row += units if name == "candidate" else blocks
            place += 0 if name == "candidate" else blocks
        ones = np.ones((*x.shape[:-1], units))
        i = squash("input_gate", net["input_gate"], sigmoid, tap) if "input_gate" in net else ones
        f = squash("forget_gate", net["forget_gate"], sigmoid, tap) if decay is None else decay * ones
        g = squash("candidate", net["candidate"], lambda a: 4 * sigmoid(a) - 2, tap)
        s = tap("cell_state", f * s + i * g)
        o = squash("output_gate", net["output_gate"], sigmoid, tap) if "output_gate" in net else ones
        y = tap("hidden_state", o * (2 * sigmoid(s) - 1))
        found = {"input_gate": i, "forget_gate": f, "output_gate": o}
        return (y, s, *(found[name] for name in gates if gates_see_gates))

    return equations


def relu(values: Array) -> Array:
    return np.maximum(values, 0)


def projected_lstm(input_size: int, hidden_size: int, **options: object) -> AbstractCell:
    return LSTMCell(input_size, hidden_size, proj_size=hidden_size - 1, **options)


def relu_rnn(input_size: int, hidden_size: int, **options: object) -> AbstractCell:
    return RNNCell(input_size, hidden_size, nonlinearity="relu", **options)


def torch_relu_rnn(input_size: int, hidden_size: int, **options: object) -> nn.Module:
    return nn.RNNCell(input_size, hidden_size, nonlinearity="relu", **options)


def peephole_row(variant: str) -> "Cell":
    make = partial(PeepholeLSTMCell, variant=variant)
    return Cell(make, peephole_lstm(variant), nn.LSTMCell if variant == "NP" else None)


def block_row(**options: object) -> "Cell":
    without = str(options.pop("without", ""))
    make = partial(memory_blocks, **options, **({without: False} if without else {}))
    return Cell(make, memory_block(without=without, **options), None, lambda units: 0.2, own_biases=True)


VARIANTS = ("vanilla", "NIG", "NFG", "NOG", "NIAF", "NOAF", "CIFG", "NP", "FGR")
CELLS = {
    "LSTMCell": Cell(LSTMCell, lstm, nn.LSTMCell),
    "LSTMCell-projection": Cell(projected_lstm, lstm, None),  # torch projects in nn.LSTM only: test_recurrent.py
    "GRUCell": Cell(GRUCell, gru, nn.GRUCell),
    "RNNCell-tanh": Cell(RNNCell, rnn(np.tanh), nn.RNNCell),
    "RNNCell-relu": Cell(relu_rnn, rnn(relu), torch_relu_rnn),
    **{f"PeepholeLSTMCell-{variant}": peephole_row(variant) for variant in VARIANTS},
    "ResetBeforeGRUCell-torch": Cell(ResetBeforeGRUCell, reset_before("torch"), None),
    "ResetBeforeGRUCell-textbook": Cell(
        partial(ResetBeforeGRUCell, convention="textbook"), reset_before("textbook"), None
    ),
    "MemoryBlockCell-1999": block_row(),
    "MemoryBlockCell-1997": block_row(forget="none"),
    "MemoryBlockCell-decay": block_row(forget=0.9),
    "MemoryBlockCell-no-input-gate": block_row(without="input_gate"),
    "MemoryBlockCell-no-output-gate": block_row(without="output_gate"),
    "MemoryBlockCell-gates-see-gates": block_row(gates_see_gates=True),
    "MemoryBlockCell-gates-see-gates-1997": block_row(forget="none", gates_see_gates=True),
}


def only(holds: Callable[[Cell, AbstractCell], bool]) -> list[object]:
    """The rows for which something holds of the row and a cell it makes."""
    return [pytest.param(row, id=name) for name, row in CELLS.items() if holds(row, row.make(2, 3))]


@pytest.fixture(params=only(lambda row, cell: True))
def row(request: pytest.FixtureRequest) -> Cell:
    return request.param


@pytest.fixture(params=only(lambda row, cell: row.torch is not None))
def row_in_torch(request: pytest.FixtureRequest) -> Cell:
    return request.param


@pytest.fixture(params=only(lambda row, cell: cell.parallel))
def row_in_parallel(request: pytest.FixtureRequest) -> Cell:
    return request.param


@pytest.fixture(params=only(lambda row, cell: cell.retention != "none"))
def row_that_retains(request: pytest.FixtureRequest) -> Cell:
    return request.param


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
