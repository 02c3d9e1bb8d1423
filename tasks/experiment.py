"""The paper's experiment with one network: train it stream by stream until it is perfect or time is up, then test it.

After every training stream, which ends at its first wrong prediction, weights are frozen and up to ten test streams
run; the first that fails ends the tests, for the network is then not perfect. All ten run to their own end once,
after training. A network's result depends on nothing but its setting and its number.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from .automaton import CONTINUAL, EMBEDDED, SYMBOLS, Automaton, step
from .engine import (
    GOING_ON,
    OUT_OF_STREAMS,
    OUT_OF_SYMBOLS,
    SOLVED,
    Limits,
    Rule,
    advance_loop,
    shape_of,
    string_tests_loop,
    strings_loop,
    tables,
    testing_loop,
)
from .packing import packed, unpacked
from .randomness import RETEST, TESTING, TRAINING, WEIGHTS, key, uniform
from .wiring import CERG_WIRING, ERG_WIRING, Forget, Wiring

Progress = Callable[[int, int], None]
Verdict = Literal["perfect", "good", "rest"]
QUOTA = 2_000_000  # symbols between two returns to Python, where Ctrl-C is heard
GOOD = 1000  # a network that is not perfect is good when its test streams are longer than this on average
POINTS = 300  # of a training curve
STRINGS = 256  # in the training set of ERG, in its test set, and in each of its retests


@dataclass(frozen=True)
class Setting:
    """Everything that decides a result, but for the network's number.

    Parameters
    ----------
    task : `cerg`, endless streams, or `erg`, single strings.
    variant : the row's name.
    wiring : of the network.
    external_reset : whether the network is put to rest at every start of a string: states, partials and what it would
        see of the step before. For `erg` it always is.
    alpha : step size.
    alpha_decay : alpha's factor per step; alpha starts anew with each training stream.
    weight_decay : share of every weight that is lost at every step.
    input_bias, forget_bias, output_bias : first biases of the gates, by block; None draws them like the other weights.
    weight_range : weights are drawn uniformly between minus this and this.
    max_streams, max_symbols : training ends after so many streams (for `erg`, strings), or once so many symbols were
        learned from.
    stream_length : a stream that comes so far has no error.
    tests : how many test streams must have none.
    restart_after : begin with new weights each time after so many streams; None never does.
    seed : of all random streams.
    """

    task: Literal["cerg", "erg"] = "cerg"
    variant: str = "forget"
    wiring: Wiring = CERG_WIRING
    external_reset: bool = False
    alpha: float = 0.5
    alpha_decay: float = 1.0
    weight_decay: float = 0.0
    input_bias: tuple[float, ...] | None = (-0.5, -1.0, -1.5, -2.0)
    forget_bias: tuple[float, ...] | None = (0.5, 1.0, 1.5, 2.0)
    output_bias: tuple[float, ...] | None = (-0.5, -1.0, -1.5, -2.0)
    weight_range: float = 0.2
    max_streams: int = 30_000
    max_symbols: int = 400_000_000
    stream_length: int = 100_000
    tests: int = 10
    restart_after: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.task not in ("cerg", "erg"):
            raise ValueError(f"task of a setting must be 'cerg' or 'erg'; {self.task!r} came. Give one of them.")
        if (self.wiring.inputs, self.wiring.outputs) != (len(SYMBOLS), len(SYMBOLS)):
            raise ValueError(
                f"the wiring of a setting must have 7 inputs and 7 outputs, one per symbol; {self.wiring.inputs} and "
                f"{self.wiring.outputs} came. Leave them as they are."
            )
        for name in ("max_streams", "max_symbols", "stream_length", "tests"):
            check_count(name, getattr(self, name))
        if self.restart_after is not None:
            check_count("restart_after", self.restart_after)
        for name, (lowest, highest) in RANGES.items():
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and not isinstance(value, bool) and lowest <= value <= highest):
                raise ValueError(
                    f"{name} of a setting must lie in [{lowest}, {highest}]; {value!r} came. Give a number in there."
                )
        for name in ("input_bias", "forget_bias", "output_bias"):
            values = getattr(self, name)
            if values is not None and len(values) != self.wiring.blocks:
                raise ValueError(
                    f"{name} of a setting must have one value per block, {self.wiring.blocks}; {len(values)} came. "
                    "Give as many, or None to draw them."
                )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        found = asdict(self)
        for name in ("input_bias", "forget_bias", "output_bias"):
            found[name] = None if found[name] is None else list(found[name])
        return found

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Setting":
        """The setting that `to_dict` took apart.

        Raises
        ------
        ValueError
            If a value is unknown, missing or impossible.
        """
        check_names("setting", values, Setting)
        check_names("wiring", values["wiring"], Wiring)
        plain = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        return Setting(**(plain | {"wiring": Wiring(**values["wiring"])}))


RANGES = {
    "alpha": (0.0, 100.0),
    "alpha_decay": (0.0, 1.0),
    "weight_decay": (0.0, 1.0),
    "weight_range": (0.0, 10.0),
    "seed": (0, 2**64 - 1),
}


def check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(
            f"{name} of a setting must be a whole number of at least 1; {value!r} came. Give for example 10."
        )


def check_names(what: str, values: Mapping[str, Any], owner: Any) -> None:
    wanted = {each.name for each in fields(owner)}
    if set(values) != wanted:
        wrong = ", ".join(sorted(wanted ^ set(values)))
        raise ValueError(
            f"a {what} must have exactly its own values; {wrong} is unknown or missing. Give what to_dict gave."
        )


@dataclass(frozen=True)
class Outcome:
    """What became of one network.

    Attributes
    ----------
    network : its number.
    verdict : `perfect` when all test streams were without error, `good` when they were longer than 1000 symbols on
        average, else `rest`. Networks of `erg` are `perfect` or `rest`.
    streams, symbols : how much it was trained on; for `erg`, streams are strings.
    tests : right symbols before the first error in each test stream of the last pass. For `erg`, right strings among
        the 256 of the training set and the 256 of the test set.
    retests : the same for ten fresh streams; for `erg`, right strings among ten times 256 fresh ones.
    capped : whether it was given up because it had learned from `max_symbols` symbols.
    restarts : how often it began with new weights.
    weights : by name, as in the state dict of `BlockNetwork`.
    curve : (point, 2), number of training streams and mean of right symbols per stream since the point before. Empty
        for `erg`.
    seconds : process time.
    """

    network: int
    verdict: Verdict
    streams: int
    symbols: int
    tests: tuple[int, ...]
    retests: tuple[int, ...]
    capped: bool
    restarts: int
    weights: dict[str, NDArray[np.float64]] = field(repr=False)
    curve: NDArray[np.float64] = field(repr=False)
    seconds: float


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


def run_network(setting: Setting, network: int, *, progress: Progress | None = None) -> Outcome:
    """Train and test one network; the same setting and number give the same bits.

    Parameters
    ----------
    setting : everything else that decides the result.
    network : its number, from 0.
    progress : called about every second with the number of streams and of symbols so far.

    Returns
    -------
    Outcome
        What became of it.
    """
    started = time.process_time()
    learner = (StreamLearner if setting.task == "cerg" else StringLearner)(setting, network)
    status, restarts = GOING_ON, 0
    while status == GOING_ON:
        until = setting.max_streams
        if setting.restart_after is not None:
            until = min(until, (restarts + 1) * setting.restart_after)
        status = learner.advance(until)
        if status == OUT_OF_STREAMS and learner.streams < setting.max_streams:
            restarts += 1
            learner.begin(restarts)
            status = GOING_ON
        if progress is not None:
            progress(learner.streams, learner.symbols)
    tests = learner.tests()
    return Outcome(
        network=network,
        verdict="perfect" if status == SOLVED else learner.verdict(tests),
        streams=learner.streams,
        symbols=learner.symbols,
        tests=tests,
        retests=learner.retests(),
        capped=status == OUT_OF_SYMBOLS,
        restarts=restarts,
        weights=unpacked(learner.weights, learner.readout, setting.wiring),
        curve=learner.curve(),
        seconds=time.process_time() - started,
    )


class Learner(ABC):
    """A network in training: its weights, and how much it has learned from."""

    def __init__(self, setting: Setting, network: int, automaton: Automaton) -> None:
        self.setting, self.network = setting, network
        self.shape = shape_of(setting.wiring)
        self.grammar = tables(automaton)
        self.rule = Rule(setting.alpha, setting.alpha_decay, 1.0 - setting.weight_decay, setting.external_reset)
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
        return advance_loop(self.shape)(
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
        return strings_loop(self.shape)(
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


def cerg(variant: str, **changed: Any) -> Setting:
    return Setting(variant=variant, **changed)


def without_gate(forget: Forget = "none") -> Wiring:
    return replace(CERG_WIRING, forget=forget)


def erg(variant: str, wiring: Wiring) -> Setting:
    return Setting(
        task="erg",
        variant=variant,
        wiring=wiring,
        external_reset=True,
        input_bias=None,
        output_bias=(-1.0, -2.0, -3.0),
        forget_bias=None,
        max_streams=200_000,
    )


VARIANTS: dict[str, Setting] = {
    setting.variant: setting
    for setting in (
        cerg("external-reset", wiring=without_gate(), external_reset=True),
        cerg("1997", wiring=without_gate()),
        cerg("decay-0.9", wiring=without_gate(0.9)),
        cerg("forget"),
        cerg("forget-alpha-decay", alpha_decay=0.99),
        cerg("decay-0.8", wiring=without_gate(0.8)),
        cerg("decay-0.95", wiring=without_gate(0.95)),
        cerg("decay-0.99", wiring=without_gate(0.99)),
        cerg("weight-decay", wiring=without_gate(), weight_decay=1e-5),
        cerg("restart-20000", restart_after=20_000),
        cerg("no-shortcut", wiring=replace(CERG_WIRING, shortcut=False)),
        erg("lstm", ERG_WIRING),
        erg("no-output-gate", replace(ERG_WIRING, output_gate=False)),
    )
}
"""The rows of the tables: the first five of CERG and the first of ERG are the reports' own."""
