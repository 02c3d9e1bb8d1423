"""The Jacobian of one step of every cell, from what was recorded: never as a matrix, but as row factors of weights.

With the state s = (h, c), a step is linear in what the state before it was changed by. For each *path* that leads from
`h` into the memory (a gate, the candidate) this is `diag(rows) U`, where `U` is the path's block of `weight_hh`; what
is left of the old memory is `diag(keep)`. So a step needs no matrix of its own.

A cell is one function here, from its signals to its `Factors`, and one row in `CELLS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]
Signals = Mapping[str, Array]

DIRECT, OUTPUT = "direct", "via output"
VIA = {
    "forget_gate": "via forget",
    "input_gate": "via input",
    "update_gate": "via update",
    "reset_gate": "via reset",
    "candidate": "via candidate",
    "hidden_state": "recurrent",
}
"""What a path is called, by the signal through which it leads."""


class Chain(NamedTuple):
    """A path that leads through two matrices: `diag(rows) outer diag(inner) weight`; no `weight` stands for 1."""

    path: str
    rows: Array  # (sequence, time, unit)
    outer: Array  # (unit, unit)
    inner: Array  # (sequence, time, unit)
    weight: Array | None  # (unit, source)


@dataclass(frozen=True)
class Factors:
    """The factors of all steps of some sequences; arrays over steps are (sequence, time, ...).

    With m the memory (the cell state, or the hidden state where that is the memory), n what the cell shows of it before
    a projection, and `_` for the step before:

        dm = (keep + sum of peeps) dm_ + sum over paths of diag(rows) weight dh_ + chains dh_
        dn = (shown + read_peep) dm + diag(read) read_weight dh_,  dh = projection dn

    Attributes
    ----------
    states : names of the states, hidden state first.
    paths : names of the paths from `h` into the memory.
    rows : (sequence, time, path, unit). weight : (path, unit, source).
    keep : (sequence, time, unit); `None` where nothing is kept.
    peeps : (sequence, time, path, unit), what a path adds through a peephole; `None` for none.
    shown, read, read_peep : (sequence, time, unit); `None` where the memory is shown as it is, or has no such path.
    read_weight : (unit, source). projection : (projection, unit).
    chains : paths through two matrices.
    """

    states: tuple[str, ...]
    paths: tuple[str, ...]
    rows: Array
    weight: Array
    keep: Array | None = None
    peeps: Array | None = None
    shown: Array | None = None
    read: Array | None = None
    read_weight: Array | None = None
    read_peep: Array | None = None
    projection: Array | None = None
    chains: tuple[Chain, ...] = ()

    @property
    def every_path(self) -> tuple[str, ...]:
        """Names of all paths, in the order in which results list them."""
        into = {*self.paths, *(chain.path for chain in self.chains)}
        found: tuple[str, ...] = (DIRECT,) if self.keep is not None else ()
        found += tuple(path for path in VIA.values() if path in into)
        return found + ((OUTPUT,) if self.read is not None else ())

    @property
    def widths(self) -> tuple[int, ...]:
        """Width of each state."""
        return (self.weight.shape[2], *(self.weight.shape[1] for _ in self.states[1:]))

    def without(self, path: str) -> "Factors":
        """The same steps with one path cut."""
        if path == DIRECT:
            return replace(self, keep=None)
        if path == OUTPUT:
            return replace(self, read=None, read_weight=None, read_peep=None)
        left = [place for place, name in enumerate(self.paths) if name != path]
        return replace(
            self,
            paths=tuple(self.paths[place] for place in left),
            rows=self.rows[:, :, left],
            weight=self.weight[left],
            peeps=None if self.peeps is None else self.peeps[:, :, left],
            chains=tuple(chain for chain in self.chains if chain.path != path),
        )

    def kept(self) -> Array | None:
        """What multiplies the old memory in all: retention and peepholes."""
        if self.peeps is None or self.peeps.shape[2] == 0:
            return self.keep
        peeps: Array = self.peeps.sum(axis=2)
        return peeps if self.keep is None else self.keep + peeps

    def exposed(self) -> Array | None:
        """dn/dm within a step; `None` where the memory is what is shown."""
        if self.shown is None or self.read_peep is None:
            return self.shown
        exposed: Array = self.shown + self.read_peep
        return exposed


class Given(NamedTuple):
    """What a cell's function is given: signals in the order of reading, states before the first step, weights."""

    signals: Signals  # (sequence, time, unit)
    before: Signals  # (sequence, unit)
    weights: Mapping[str, Array]  # by gate, (unit, source)
    peepholes: Mapping[str, Array]  # by gate, (unit,)
    projection: Array | None
    attrs: Mapping[str, Any]

    def one_before(self, name: str) -> Array:
        """A state before each step."""
        return np.concatenate([self.before[name][:, None], self.signals[name][:, :-1]], axis=1)


class Squasher(NamedTuple):
    """A squasher of the memory with its slope, and the slope of the candidate's, from its value."""

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]  # from the squashed value
    candidate_slope: Callable[[Array], Array | float]


def tanh_slope(value: Array) -> Array:
    return 1 - value * value


TANH = Squasher(np.tanh, tanh_slope, tanh_slope)
LINEAR_SHOWN = Squasher(np.positive, np.ones_like, tanh_slope)
LINEAR_CANDIDATE = Squasher(np.tanh, tanh_slope, np.ones_like)
# 2 sigmoid(s) - 1 = tanh(s / 2), and the candidate 4 sigmoid(a) - 2 = 2 tanh(a / 2)
FIRST = Squasher(lambda s: np.tanh(s / 2), lambda value: (1 - value * value) / 2, lambda g: 1 - g * g / 4)


def sigmoid_slope(gate: Array) -> Array:
    return gate * (1 - gate)


def memory_factors(given: Given, squasher: Squasher = TANH, *, coupled: bool = False, kept: float = 1.0) -> Factors:
    """Any cell with `c_t = f c_{t-1} + i g` and `h_t = o squash(c_t)`; gates that are missing count as 1 (`kept`)."""
    signals, rows = given.signals, dict[str, Array]()
    memory, candidate, before = signals["cell_state"], signals["candidate"], given.one_before("cell_state")
    one: Array = np.ones_like(memory)
    writes = signals.get("input_gate", one)
    keep: Array = 1 - writes if coupled else signals.get("forget_gate", kept * one)
    written: Array = candidate - before if coupled else candidate
    if "forget_gate" in signals:
        rows["forget_gate"] = before * sigmoid_slope(keep)
    if "input_gate" in signals:
        rows["input_gate"] = written * sigmoid_slope(writes)
    rows["candidate"] = writes * squasher.candidate_slope(candidate)
    squashed = squasher.value(memory)
    opening = signals.get("output_gate", one)
    read = squashed * sigmoid_slope(opening) if "output_gate" in signals else None
    peepholes = given.peepholes
    peeps = [rows[gate] * peepholes.get(gate, np.zeros_like(memory[0, 0])) for gate in rows] if peepholes else None
    return Factors(
        states=("hidden_state", "cell_state"),
        paths=tuple(VIA[gate] for gate in rows),
        rows=np.stack(list(rows.values()), axis=2),
        weight=np.stack([given.weights[gate] for gate in rows]),
        keep=keep,
        peeps=None if peeps is None else np.stack(peeps, axis=2),
        shown=opening * squasher.slope(squashed),
        read=read,
        read_weight=None if read is None else given.weights["output_gate"],
        read_peep=None if read is None or "output_gate" not in peepholes else read * peepholes["output_gate"],
        projection=given.projection,
    )


def lstm(given: Given) -> Factors:
    return memory_factors(given)


def peephole_lstm(given: Given) -> Factors:
    variant = given.attrs.get("variant", "vanilla")
    squasher = {"NOAF": LINEAR_SHOWN, "NIAF": LINEAR_CANDIDATE}.get(variant, TANH)
    return memory_factors(given, squasher, coupled=variant == "CIFG")


def memory_block(given: Given) -> Factors:
    retention = str(given.attrs["retention"])
    return memory_factors(given, FIRST, kept=1.0 if retention == "forget_gate" else float(retention))


def gru(given: Given) -> Factors:
    signals = given.signals
    update, reset, candidate = signals["update_gate"], signals["reset_gate"], signals["candidate"]
    into = (1 - update) * tanh_slope(candidate)
    rows = {
        "update_gate": (given.one_before("hidden_state") - candidate) * sigmoid_slope(update),
        "reset_gate": into * signals["candidate_recurrent"] * sigmoid_slope(reset),
        "candidate": into * reset,
    }
    return shown_memory(given, rows, update)


def reset_before_gru(given: Given) -> Factors:
    signals, before = given.signals, given.one_before("hidden_state")
    update, reset, candidate = signals["update_gate"], signals["reset_gate"], signals["candidate"]
    keeps = given.attrs["retention"] == "update_gate"
    keep = update if keeps else 1 - update
    into = (1 - keep) * tanh_slope(candidate)
    rows = {"update_gate": (before - candidate if keeps else candidate - before) * sigmoid_slope(update)}
    outer, inner = given.weights["candidate"], before * sigmoid_slope(reset)
    chains = (
        Chain(VIA["reset_gate"], into, outer, inner, given.weights["reset_gate"]),
        Chain(VIA["candidate"], into, outer, reset, None),
    )
    return replace(shown_memory(given, rows, keep), chains=chains)


def rnn(given: Given) -> Factors:
    hidden = given.signals["hidden_state"]
    slope = (hidden > 0).astype(hidden.dtype) if given.attrs["rectified"] else tanh_slope(hidden)
    return shown_memory(given, {"hidden_state": slope}, None)


def shown_memory(given: Given, rows: Mapping[str, Array], keep: Array | None) -> Factors:
    """A cell that shows its memory as it is."""
    return Factors(
        states=("hidden_state",),
        paths=tuple(VIA[gate] for gate in rows),
        rows=np.stack(list(rows.values()), axis=2),
        weight=np.stack([given.weights[gate] for gate in rows]),
        keep=keep,
    )


class Cell(NamedTuple):
    """A row: what a cell's function reads (what a variant lacks is left out), and the function."""

    needs: tuple[str, ...]
    factors: Callable[[Given], Factors]


GRU_SIGNALS = ("reset_gate", "update_gate", "candidate", "hidden_state")
LSTM_SIGNALS = ("input_gate", "forget_gate", "candidate", "output_gate", "cell_state")
CELLS = {
    "LSTMCell": Cell(LSTM_SIGNALS, lstm),
    "PeepholeLSTMCell": Cell(LSTM_SIGNALS, peephole_lstm),
    "MemoryBlockCell": Cell(LSTM_SIGNALS, memory_block),
    "GRUCell": Cell((*GRU_SIGNALS, "candidate_recurrent"), gru),
    "ResetBeforeGRUCell": Cell(GRU_SIGNALS, reset_before_gru),
    "RNNCell": Cell(("hidden_state",), rnn),
}
GATES_SEE_GATES = ("FGR", "gates see gates")
"""Variants whose gates are states; `weight_hh` alone does not give their Jacobian."""
