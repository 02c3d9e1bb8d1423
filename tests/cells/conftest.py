"""The contract table: one row per cell, on which every test of `test_contract.py` runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from gatescope.cells import AbstractCell, GRUCell, LSTMCell, PeepholeLSTMCell, RNNCell

Array = np.ndarray
NumpyTap = Callable[[str, Array], Array]
Equations = Callable[[Mapping[str, Array], Array, tuple[Array, ...], NumpyTap], tuple[Array, ...]]


@dataclass(frozen=True)
class Cell:
    """What the contract needs to know of a cell.

    `make(input_size, hidden_size, **options)` builds it; `equations(weights, x, state, tap)` is one step in numpy,
    written from the papers and torch's documentation, that taps the same names; `torch` is torch's own cell, if any.
    """

    make: Callable[..., AbstractCell]
    equations: Equations
    torch: Callable[..., nn.Module] | None


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


VARIANTS = ("vanilla", "NIG", "NFG", "NOG", "NIAF", "NOAF", "CIFG", "NP", "FGR")
CELLS = {
    "LSTMCell": Cell(LSTMCell, lstm, nn.LSTMCell),
    "LSTMCell-projection": Cell(projected_lstm, lstm, None),  # torch projects in nn.LSTM only: test_recurrent.py
    "GRUCell": Cell(GRUCell, gru, nn.GRUCell),
    "RNNCell-tanh": Cell(RNNCell, rnn(np.tanh), nn.RNNCell),
    "RNNCell-relu": Cell(relu_rnn, rnn(relu), torch_relu_rnn),
    **{f"PeepholeLSTMCell-{variant}": peephole_row(variant) for variant in VARIANTS},
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
