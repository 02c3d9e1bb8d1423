"""Networks in training: one that learns from endless streams, one that learns from single strings."""

from abc import ABC, abstractmethod
from typing import Literal, final

import numpy as np
from numpy.typing import NDArray

from .automaton import CONTINUAL, EMBEDDED, Automaton, step
from .engine import Limits, Rule, advance_loop, shape_of, string_tests_loop, strings_loop, tables, testing_loop
from .packing import packed
from .randomness import RETEST, TESTING, TRAINING, WEIGHTS, key, uniform
from .setting import Setting

Verdict = Literal["perfect", "good", "rest"]
QUOTA = 2_000_000  # symbols between two returns to Python, where Ctrl-C is heard
GOOD = 1000  # a network that is not perfect is good when its test streams are longer than this on average
POINTS = 300  # of a training curve
STRINGS = 256  # in the training set of ERG, in its test set, and in each of its retests


def initial_weights(setting: Setting, network: int, restart: int = 0) -> dict[str, NDArray[np.float64]]:
    """The weights that a network begins with: all drawn in the order of their names, then the given biases put in."""
    random = key(setting.seed, network, WEIGHTS, restart)
    found = {}
    for name, shape in setting.wiring.shapes.items():
        weight = np.empty(shape)
        for place in np.ndindex(shape):
            random, drawn = uniform(np.uint64(random))
            weight[place] = setting.weight_range * (2.0 * drawn - 1.0)
        found[name] = weight
    given = {"input_gate": setting.input_bias, "forget_gate": setting.forget_bias, "output_gate": setting.output_bias}
    for number, gate in enumerate(setting.wiring.gates):
        biases = given[gate]
        if biases is not None:
            found["cell.bias"][number * setting.wiring.blocks :][: setting.wiring.blocks] = biases
    return found


class Learner(ABC):
    """A network in training: its weights, and how much it has learned from."""

    def __init__(self, setting: Setting, network: int, automaton: Automaton) -> None:
        self.setting, self.network = setting, network
        self.shape = shape_of(setting.wiring)
        self.grammar = tables(automaton)
        self.rule = Rule(
            setting.alpha,
            setting.alpha_decay,
            1.0 - setting.weight_decay,
            setting.external_reset,
            setting.target == "next",
        )
        self.counts = np.zeros(2, np.int64)
        self.begin(0)

    def begin(self, restart: int) -> None:
        """With new weights."""
        first = initial_weights(self.setting, self.network, restart)
        self.weights, self.readout = packed(first, self.setting.wiring)

    def limits(self, max_streams: int) -> Limits:
        return Limits(self.setting.stream_length, self.setting.tests, max_streams, self.setting.max_symbols)

    def key(self, *parts: int) -> np.uint64:
        return key(self.setting.seed, self.network, *parts)

    @property
    def streams(self) -> int:
        return int(self.counts[0])

    @property
    def symbols(self) -> int:
        return int(self.counts[1])

    @abstractmethod
    def advance(self, max_streams: int) -> int:
        """Go on for about a second; why it ended."""

    @abstractmethod
    def tests(self) -> tuple[int, ...]:
        """The last pass of tests, each to its own end."""

    @abstractmethod
    def retests(self) -> tuple[int, ...]:
        """The same on fresh streams."""

    @abstractmethod
    def verdict(self, tests: tuple[int, ...]) -> Verdict:
        """Of a network that is not perfect."""

    @abstractmethod
    def curve(self) -> NDArray[np.float64]:
        """How training went."""


@final
class StreamLearner(Learner):
    """Learns from endless streams."""

    def __init__(self, setting: Setting, network: int) -> None:
        super().__init__(setting, network, CONTINUAL)
        self.lengths = np.zeros(setting.max_streams, np.int32)

    def advance(self, max_streams: int) -> int:
        return advance_loop(self.shape)(  # type: ignore[no-any-return]  # compiled code is untyped
            self.weights,
            self.readout,
            self.setting.wiring.decay,
            self.grammar,
            self.rule,
            self.limits(max_streams),
            self.key(),
            self.counts,
            self.lengths,
            QUOTA,
        )

    def tests(self) -> tuple[int, ...]:
        return self.test(TESTING)

    def retests(self) -> tuple[int, ...]:
        return self.test(RETEST)

    def test(self, kind: int) -> tuple[int, ...]:
        common = (self.weights, self.readout, self.setting.wiring.decay, self.grammar, self.setting.external_reset)
        keys = [self.key(kind, self.streams - 1, test) for test in range(self.setting.tests)]
        return tuple(int(testing_loop(self.shape)(*common, random, self.setting.stream_length)) for random in keys)

    def verdict(self, tests: tuple[int, ...]) -> Verdict:
        return "good" if sum(tests) > GOOD * len(tests) else "rest"

    def curve(self) -> NDArray[np.float64]:
        lengths = self.lengths[: self.streams]
        edges = np.unique(np.linspace(0, len(lengths), min(POINTS, len(lengths)) + 1).astype(np.int64))
        means = np.add.reduceat(lengths.astype(np.int64), edges[:-1]) / np.diff(edges)
        return np.stack([edges[1:].astype(np.float64), means], axis=1)


@final
class StringLearner(Learner):
    """Learns from single strings, picked from a training set, until it has that and a test set right."""

    def __init__(self, setting: Setting, network: int) -> None:
        super().__init__(setting, network, EMBEDDED)
        self.training = [self.key(TRAINING, string) for string in range(STRINGS)]
        self.known = {self.spelled(string) for string in self.training}
        self.testing = self.unknown(TESTING, 0)

    def spelled(self, random: np.uint64) -> tuple[int, ...]:
        """The symbols of a string."""
        state, found = 0, []
        while self.grammar.branches[state]:
            random, symbol, state = step(*self.grammar[:3], state, np.uint64(random))
            found.append(symbol)
        return tuple(found)

    def unknown(self, kind: int, test: int) -> list[np.uint64]:
        """256 strings that are not in the training set."""
        found: list[np.uint64] = []
        number = 0
        while len(found) < STRINGS:
            random = self.key(kind, test, number)
            number += 1
            if self.spelled(random) not in self.known:
                found.append(random)
        return found

    def advance(self, max_streams: int) -> int:
        return strings_loop(self.shape)(  # type: ignore[no-any-return]  # compiled code is untyped
            self.weights,
            self.readout,
            self.setting.wiring.decay,
            self.grammar,
            self.rule,
            self.limits(max_streams),
            self.key(TRAINING, STRINGS),
            np.array(self.training),
            np.array(self.testing),
            self.counts,
            QUOTA,
        )

    def right(self, strings: list[np.uint64]) -> int:
        common = (self.weights, self.readout, self.setting.wiring.decay, self.grammar)
        return int(string_tests_loop(self.shape)(*common, np.array(strings)))

    def tests(self) -> tuple[int, ...]:
        return (self.right(self.training), self.right(self.testing))

    def retests(self) -> tuple[int, ...]:
        return tuple(self.right(self.unknown(RETEST, test)) for test in range(self.setting.tests))

    def verdict(self, tests: tuple[int, ...]) -> Verdict:
        return "rest"

    def curve(self) -> NDArray[np.float64]:
        return np.zeros((0, 2))
