"""Weights by name, in the shapes of `BlockNetwork`'s state dict, and as the two arrays that the engine works on."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .automaton import Integers
from .block_step import Floats, filled, readout_count, row_count, source_count
from .engine import shape_of
from .wiring import Wiring

FIRST = {"input_gate": 0, "forget_gate": 1, "candidate": 3, "output_gate": 2}
"""By the order of rows by name: after how many times `blocks` rows a kind begins inside."""

Weights = Mapping[str, NDArray[np.float64]]


def packed(weights: Weights, wiring: Wiring) -> tuple[Floats, Floats]:
    """Weights by name as the two arrays of `block_step`: (source, row) and (cell, input, bias; output).

    Raises
    ------
    ValueError
        If a weight is missing, unknown or of another shape.
    """
    check_weights(weights, wiring)
    shape = shape_of(wiring)
    inside = np.zeros((source_count(shape), filled(row_count(shape))))
    readout = np.zeros((readout_count(shape), filled(wiring.outputs)))
    for part, name, there, here in places(wiring):
        (inside, readout)[part][here] = np.asarray(weights[name])[there].T
    return inside, readout


def unpacked(inside: Floats, readout: Floats, wiring: Wiring) -> dict[str, NDArray[np.float64]]:
    """The weights by name, as new arrays."""
    found = {name: np.zeros(shape) for name, shape in wiring.shapes.items()}
    for part, name, there, here in places(wiring):
        found[name][there] = (inside, readout)[part][here].T
    return found


def places(wiring: Wiring) -> list[tuple[int, str, Any, Any]]:
    """For each weight by name: the array inside that holds it, its places by name, and its places inside."""
    cells = np.array([c % wiring.blocks * wiring.size + c // wiring.blocks for c in range(wiring.units)])
    rows, rows_inside = rows_of(wiring, cells)
    seen = wiring.shapes["cell.weight_hh"][1]
    inputs, outputs = np.arange(wiring.inputs), np.arange(wiring.outputs)
    sources = np.concatenate([cells, np.arange(wiring.units, seen)])
    entries = np.concatenate([cells, np.arange(wiring.units, wiring.units + wiring.shortcut * wiring.inputs)])
    found: list[tuple[int, str, Any, Any]] = [
        (0, "cell.weight_ih", np.ix_(rows, inputs), np.ix_(inputs, rows_inside)),
        (0, "cell.weight_hh", np.ix_(rows, sources), np.ix_(wiring.inputs + np.arange(seen), rows_inside)),
        (1, "readout.weight", np.ix_(outputs, entries), np.ix_(np.arange(len(entries)), outputs)),
    ]
    gates = rows_inside < FIRST["candidate"] * wiring.blocks
    if gates.any():
        found.append((0, "cell.bias", slice(None), (wiring.inputs + seen, rows_inside[gates])))
    if wiring.output_bias:
        found.append((1, "readout.bias", slice(None), (wiring.units + wiring.inputs, outputs)))
    return found


def rows_of(wiring: Wiring, cells: Integers) -> tuple[Integers, Integers]:
    """Row of each gate and cell input by name, and its row inside."""
    outside, inside, start = [], [], 0
    for kind, first in FIRST.items():
        order = cells if kind == "candidate" else np.arange(wiring.blocks)
        if kind == "candidate" or kind in wiring.gates:
            outside.append(start + order)
            inside.append(first * wiring.blocks + np.arange(len(order)))
            start += len(order)
    return np.concatenate(outside), np.concatenate(inside)


def check_weights(weights: Weights, wiring: Wiring) -> None:
    shapes = wiring.shapes
    came = {name: np.shape(weight) for name, weight in weights.items()}
    if came != shapes:
        wrong = sorted(name for name in {*came, *shapes} if came.get(name) != shapes.get(name))
        said = "; ".join(f"{name} {came.get(name, 'is missing')}, not {shapes.get(name, 'there')}" for name in wrong)
        raise ValueError(
            f"the weights must be the {wiring.weight_count} of the wiring; {sum(np.size(w) for w in weights.values())} "
            f"came ({said}). Give the wiring that the weights were made for."
        )
