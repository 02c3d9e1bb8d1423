"""The Reber grammars as tables: the plain one, the embedded one, and the embedded one closed to a ring.

The plain grammar is REBER_TABLE below: B opens, then come T or P, loops of S or T, crossings by X or P, and E closes.
The embedded one puts such a string between two equal symbols, `B T <string> T E` or `B P <string> P E`: what stands
second must come back as the last but one. Where two symbols can follow, each comes with chance 1/2.

References: Cleeremans, Servan-Schreiber, McClelland 1989, doi 10.1162/neco.1989.1.3.372 (the grammars and networks that
predict them); Hochreiter, Schmidhuber 1997, doi 10.1162/neco.1997.9.8.1735; Gers, Schmidhuber, Cummins 2000,
doi 10.1162/089976600300015015 (the ring).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .compiled import compiled
from .randomness import coin

SYMBOLS = "BTPSXVE"  # in the order of the inputs

Table = Mapping[int, Sequence[tuple[str, int]]]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Automaton:
    """A probabilistic automaton; every array is read-only.

    Attributes
    ----------
    symbols : (state, branch), index in SYMBOLS of what is emitted; -1 where there is no such branch.
    targets : (state, branch), the state after it; -1 where there is no such branch.
    branches : (state,), how many branches leave the state: 1, 2, or 0 at the end of a string.
    allowed : (state, symbol), whether the symbol can come next.
    remembered : (state,), index in SYMBOLS of what the string's end must still repeat; -1 where nothing.

    A string starts in state 0. A step draws a branch of the state it stands in (a coin where there are two; none
    where there is one), emits the branch's symbol and moves on. The prediction that the step asks for is `allowed` of
    the state *after* it.
    """

    symbols: Integers
    targets: Integers
    branches: Integers
    allowed: npt.NDArray[np.bool_]
    remembered: Integers

    @property
    def states(self) -> int:
        """How many states there are, with the end where there is one."""
        return len(self.branches)


@compiled
def step(
    symbols: Integers, targets: Integers, branches: Integers, state: int, random: np.uint64
) -> tuple[np.uint64, int, int]:
    """One step from `state`: the random stream's next state, the emitted symbol and the state after it."""
    branch = np.int64(0)
    following = np.uint64(random)
    if branches[state] == 2:
        following, branch = coin(following)
    return following, symbols[state, branch], targets[state, branch]


def from_table(table: Table, remembered: Mapping[int, str] | None = None) -> Automaton:
    """The automaton whose states 0, 1, ... have these branches (symbol, state after); a state without is the end."""
    states = 1 + max(max((state, *(after for _, after in branches)) for state, branches in table.items()))
    symbols = np.full((states, 2), -1)
    targets = np.full((states, 2), -1)
    allowed = np.zeros((states, len(SYMBOLS)), dtype=bool)
    held = np.full(states, -1)
    for state, branches in table.items():
        for branch, (symbol, after) in enumerate(branches):
            symbols[state, branch], targets[state, branch] = SYMBOLS.index(symbol), after
            allowed[state, SYMBOLS.index(symbol)] = True
    for state, symbol in (remembered or {}).items():
        held[state] = SYMBOLS.index(symbol)
    arrays: tuple[npt.NDArray[Any], ...] = (symbols, targets, (symbols >= 0).sum(axis=1), allowed, held)
    for array in arrays:
        array.flags.writeable = False
    return Automaton(*arrays)


REBER_TABLE: Table = {
    0: [("B", 1)],
    1: [("T", 2), ("P", 3)],
    2: [("S", 2), ("X", 4)],
    3: [("T", 3), ("V", 5)],
    4: [("X", 3), ("S", 6)],
    5: [("P", 4), ("V", 6)],
    6: [("E", 7)],
}
INNER = {"T": 2, "P": 10}  # where the inner string starts, by the symbol to remember
LAST = 18  # the state before the outer E
STRING = len(REBER_TABLE)  # states of an inner string; the one after them repeats the remembered symbol


def embedded_table(end: int) -> Table:
    """The embedded grammar: `end` is the state after the last E (0 closes the ring)."""
    table: dict[int, Sequence[tuple[str, int]]] = {0: [("B", 1)], 1: [*INNER.items()]}
    for symbol, first in INNER.items():
        for state, branches in REBER_TABLE.items():
            table[first + state] = [(emitted, first + after) for emitted, after in branches]
        table[first + STRING] = [(symbol, LAST)]
    table[LAST] = [("E", end)]
    return table


HELD = {first + state: symbol for symbol, first in INNER.items() for state in range(STRING + 1)}

REBER = from_table(REBER_TABLE)
EMBEDDED = from_table(embedded_table(LAST + 1), HELD)
CONTINUAL = from_table(embedded_table(0), HELD)
