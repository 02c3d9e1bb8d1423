"""Reber strings as data: one by one (Reber, ERG) and one after another without an end (CERG)."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from . import randomness
from .automaton import CONTINUAL, EMBEDDED, REBER, SYMBOLS, Automaton, Integers, step
from .compiled import compiled
from .randomness import key

KINDS = {
    "training": randomness.TRAINING,
    "testing": randomness.TESTING,
    "retest": randomness.RETEST,
    "sample": randomness.SAMPLE,
}
FIRST = 1  # the state after a string's first symbol; nothing else leads there


@dataclass(frozen=True, eq=False)
class Sample:
    """What a network reads, and what it should say; padding is 0, False, -1 and ''.

    Attributes
    ----------
    inputs : (sequence, time, symbol), float32; the symbol read at each step, one-hot.
    targets : (sequence, time, symbol), float32; 1 for every symbol that can come next.
    mask : (sequence, time), bool; steps on which a prediction counts.
    lengths : (sequence,), int64; steps of each sequence.
    labels : name -> (sequence, time); what is known about the steps, for `probe.annotate(**sample.labels)`.
    """

    inputs: npt.NDArray[np.float32]
    targets: npt.NDArray[np.float32]
    mask: npt.NDArray[np.bool_]
    lengths: Integers
    labels: Mapping[str, npt.NDArray[Any]]

    def __repr__(self) -> str:
        sequences, time = self.mask.shape
        return f"Sample({sequences} sequences, {time} steps, labels {', '.join(self.labels)})"


@dataclass(frozen=True, kw_only=True)
class GrammarTask(ABC):
    """Predict the set of possible next symbols of strings of a grammar; concrete tasks are final.

    What is drawn depends on these numbers and on nothing else:

    Attributes
    ----------
    seed, network, stream, test : whole numbers from 0 on that key the random stream.
    kind : what the stream is for, `"sample"`, `"training"`, `"testing"` or `"retest"`: streams that never meet.
    """

    seed: int = 0
    network: int = 0
    stream: int = 0
    test: int = 0
    kind: str = "sample"

    automaton: ClassVar[Automaton]
    endless: ClassVar[bool]  # whether chunks continue the same sequences

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}; {self.kind!r} came. Take 'sample'.")
        for name in ("seed", "network", "stream", "test"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise TypeError(f"{name} must be a whole number from 0 on; {value!r} came. Give for instance 0.")
        self.random(0)

    def random(self, row: int) -> np.uint64:
        """The start state of the random stream `stream + row`."""
        return key(self.seed, self.network, KINDS[self.kind], self.stream + row, self.test)

    @abstractmethod
    def chunks(self, size: int) -> Iterator[Sample]:
        """Consecutive samples of this size, without end; together they equal one long sample."""

    @abstractmethod
    def batches(self, kind: str, *, first: int, streams: int, steps: int) -> Iterator[Sample]:
        """What a trainer or a test of this kind reads: `streams` sequences at a time, from stream `first` on.

        Endless streams go on by `steps` symbols each time; strings are whole.
        """

    def sample(self, size: int) -> Sample:
        """The first `size` strings, or symbols of endless streams; always the same, and a larger sample begins with it.

        Parameters
        ----------
        size
            Strings (`Reber`, `ERG`) or symbols of each stream (`CERG`), at least 1.

        Raises
        ------
        ValueError
            When `size` is below 1.
        """
        return next(self.chunks(size))


class _Strings(GrammarTask):
    """A sequence is one string from its first to its last symbol."""

    endless = False

    def chunks(self, size: int) -> Iterator[Sample]:
        return self._chunks(_counted(size, "strings"))

    def batches(self, kind: str, *, first: int, streams: int, steps: int) -> Iterator[Sample]:
        return replace(self, kind=kind, stream=self.stream + first).chunks(streams)

    def _chunks(self, strings: int) -> Iterator[Sample]:
        tables, random = _tables(self.automaton), self.random(0)
        while True:
            lengths = np.zeros(strings, np.int64)
            measure(*tables, random, lengths)
            symbols = np.full((strings, lengths.max()), -1, np.int8)
            states = np.full(symbols.shape, -1, np.int16)
            random = np.uint64(write_strings(*tables, random, symbols, states))
            yield _sample(self.automaton, symbols, states, lengths)


class Reber(_Strings):
    """Strings of the Reber grammar: 5 symbols or more, 8 on average; local dependencies only.

    `Reber(seed=0).sample(n)` gives n strings as a `Sample` with the labels of `ERG`; `remember` is empty. Parameters
    as for every task of this module: `seed`, `network`, `stream`, `test`, `kind` (see `GrammarTask`).

    Examples
    --------
    >>> strings = Reber(seed=1).sample(3)
    >>> ["".join(symbols) for symbols in strings.labels["symbol"]]
    ['BTXSE', 'BPVVE', 'BPVPSE']
    """

    automaton = REBER


class ERG(_Strings):
    """Strings of the embedded Reber grammar: the second symbol, T or P, must come back as the last but one.

    Strings have 9 symbols or more, 12 on average. `ERG(seed=0).sample(n)` gives n strings as a `Sample`: padded to the
    longest, `lengths` says how many symbols each has. No prediction is asked for at the last symbol, E, after which
    nothing comes: `mask` is False there, as in padding.

    Labels, each (sequence, time) and about the step that reads the symbol:

    - `symbol`: text.
    - `state`: where the automaton stands *after* the symbol, as an index of `automaton.EMBEDDED`; -1 in padding. The
      target of the step is what that state allows.
    - `boundary`: True at a string's first symbol.
    - `remember`: T or P while the network must still know it after the step, from the second symbol to the last
      but two, else empty.

    Parameters
    ----------
    seed, network, stream, test, kind
        What keys the random stream (see `GrammarTask`).

    Examples
    --------
    >>> strings = ERG(seed=1).sample(2)
    >>> ["".join(symbols) for symbols in strings.labels["symbol"]]
    ['BTBPVVETE', 'BPBPVVEPE']
    """

    automaton = EMBEDDED


@dataclass(frozen=True, kw_only=True)
class CERG(GrammarTask):
    """The continual embedded Reber grammar: strings of ERG one after another, without a mark, without an end.

    `CERG(seed=0).sample(n)` gives n symbols of each of `streams` endless streams as a `Sample` (sequence = stream);
    `chunks(n)` goes on with n more each time. Streams are keyed one by one: row 2 of `CERG(stream=5, streams=3)` is
    `CERG(stream=7)`. Every step counts (`mask` is True everywhere): at a string's last symbol the target is B. Labels
    as for `ERG`, with the states of `automaton.CONTINUAL`; `boundary` is True at the first symbol of each string.

    Parameters
    ----------
    seed, network, stream, test, kind
        What keys the random streams (see `GrammarTask`).
    streams
        How many streams run side by side: `stream`, `stream + 1`, ...

    References
    ----------
    F. A. Gers, J. Schmidhuber, F. Cummins (2000). Learning to Forget: Continual Prediction with LSTM. Neural
    Computation 12 (10), 2451-2471. doi 10.1162/089976600300015015.

    Examples
    --------
    >>> stream = CERG(seed=1).sample(30)
    >>> "".join(stream.labels["symbol"][0])
    'BTBPVVETEBPBPVVEPEBTBPTVPXVVET'
    """

    streams: int = 1

    automaton = CONTINUAL
    endless = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _counted(self.streams, "streams")

    def chunks(self, size: int) -> Iterator[Sample]:
        return self._chunks(_counted(size, "symbols"))

    def batches(self, kind: str, *, first: int, streams: int, steps: int) -> Iterator[Sample]:
        return replace(self, kind=kind, stream=self.stream + first, streams=streams).chunks(steps)

    def _chunks(self, steps: int) -> Iterator[Sample]:
        tables = _tables(self.automaton)
        random = np.array([self.random(row) for row in range(self.streams)])
        state = np.zeros(self.streams, np.int64)
        while True:
            symbols = np.empty((self.streams, steps), np.int8)
            states = np.empty(symbols.shape, np.int16)
            continue_streams(*tables, random, state, symbols, states)
            yield _sample(self.automaton, symbols, states, np.full(self.streams, steps))


@compiled
def measure(
    symbols: Integers, targets: Integers, branches: Integers, random: np.uint64, lengths: Integers
) -> np.uint64:
    """Fill in the lengths of the next strings; returns the random stream's state after them."""
    for string in range(len(lengths)):
        state, length = 0, 0
        while branches[state] > 0:
            random, _, state = step(symbols, targets, branches, state, random)
            length += 1
        lengths[string] = length
    return random


@compiled
def write_strings(
    symbols: Integers,
    targets: Integers,
    branches: Integers,
    random: np.uint64,
    emitted: npt.NDArray[np.int8],
    states: npt.NDArray[np.int16],
) -> np.uint64:
    """Write the next strings, one a row; returns the random stream's state after them."""
    for string in range(len(emitted)):
        state, time = 0, 0
        while branches[state] > 0:
            random, emitted[string, time], state = step(symbols, targets, branches, state, random)
            states[string, time] = state
            time += 1
    return random


@compiled
def continue_streams(
    symbols: Integers,
    targets: Integers,
    branches: Integers,
    random: npt.NDArray[np.uint64],
    state: Integers,
    emitted: npt.NDArray[np.int8],
    states: npt.NDArray[np.int16],
) -> None:
    """Go on with every stream by as many steps as there are columns; `random` and `state` are moved on."""
    for stream in range(len(emitted)):
        following, stands = random[stream], state[stream]
        for time in range(emitted.shape[1]):
            following, emitted[stream, time], stands = step(symbols, targets, branches, stands, following)
            states[stream, time] = stands
        random[stream], state[stream] = following, stands


def _counted(count: int, what: str) -> int:
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)):
        raise TypeError(f"the number of {what} must be a whole number; {count!r} came. Give for instance 100.")
    if count < 1:
        raise ValueError(f"there must be at least 1 of the {what}; {count} came. Give for instance 100.")
    return int(count)


def _tables(automaton: Automaton) -> tuple[Integers, Integers, Integers]:
    return automaton.symbols, automaton.targets, automaton.branches


def _padded(values: npt.NDArray[Any], padding: Any) -> npt.NDArray[Any]:
    """One row more, which index -1 finds."""
    return np.concatenate([values, np.full((1, *values.shape[1:]), padding, values.dtype)])


TEXTS = np.array([*SYMBOLS, ""], dtype=object)
ONE_HOT = _padded(np.eye(len(SYMBOLS), dtype=np.float32), 0)


def _sample(
    automaton: Automaton, symbols: npt.NDArray[np.int8], states: npt.NDArray[np.int16], lengths: Integers
) -> Sample:
    """What follows from the emitted symbols and the states after them, both -1 in padding."""
    labels = {
        "symbol": TEXTS[symbols],
        "state": states.astype(np.int64),
        "boundary": states == FIRST,
        "remember": TEXTS[_padded(automaton.remembered, -1)[states]],
    }
    return Sample(
        inputs=ONE_HOT[symbols],
        targets=_padded(automaton.allowed.astype(np.float32), 0)[states],
        mask=_padded(automaton.branches > 0, False)[states],
        lengths=lengths,
        labels=MappingProxyType(labels),
    )
