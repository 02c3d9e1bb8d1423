"""The fast engine: networks of memory blocks learn from a grammar's streams, in machine code, one update per symbol.

Weights stand here as `packing` made them of weights by name. For every shape of network the loops are compiled once,
with its sizes as constants.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .automaton import Automaton, Integers, step
from .block_learning import learn, shrink
from .block_step import (
    Floats,
    Network,
    Shape,
    all_near,
    build,
    carry,
    clear,
    forward,
    most_active,
)
from .compiled import compiled, inlined
from .randomness import TESTING, TRAINING, mix
from .wiring import Wiring

Loop = Callable[..., Any]
GOING_ON, SOLVED, OUT_OF_STREAMS, OUT_OF_SYMBOLS = 0, 1, 2, 3


class Tables(NamedTuple):
    """An automaton as the loops want it."""

    symbols: Integers
    targets: Integers
    branches: Integers
    allowed: Floats


class Rule(NamedTuple):
    """How a network learns.

    Step size and its factor per step (it starts anew with each stream); what is left of every weight at each step;
    whether the network is put to rest where a string starts; whether the target is the symbol that does come next
    instead of all that can (strings only).
    """

    alpha: float
    alpha_factor: float
    weight_factor: float
    external_reset: bool
    only_next: bool


class Limits(NamedTuple):
    """When a stream, the tests and a network's training end."""

    stream_length: int
    tests: int
    max_streams: int
    max_symbols: int


def tables(automaton: Automaton) -> Tables:
    return Tables(automaton.symbols, automaton.targets, automaton.branches, automaton.allowed.astype(np.float64))


def shape_of(wiring: Wiring) -> Shape:
    return Shape(
        wiring.inputs,
        wiring.outputs,
        wiring.blocks,
        wiring.size,
        wiring.input_gate,
        wiring.learned_forget,
        wiring.output_gate,
        wiring.gates_see_gates,
        wiring.shortcut,
        wiring.output_bias,
    )


@inlined
def train_stream(
    network: Network, shape: Shape, grammar: Tables, rule: Rule, random: np.uint64, length: int
) -> tuple[int, bool]:
    """Learn from a fresh stream to its first wrong prediction and from that; how many symbols, and was it right."""
    clear(network)
    state, alpha = 0, rule.alpha
    for done in range(length):
        if rule.external_reset and state == 0:
            clear(network)
        random, symbol, state = step(grammar.symbols, grammar.targets, grammar.branches, state, random)
        target = grammar.allowed[state]
        forward(network, shape, symbol)
        right = all_near(network, shape, target)
        learn(network, shape, symbol, target, alpha)
        if rule.weight_factor != 1.0:
            shrink(network, rule.weight_factor)
        carry(network, shape)
        alpha *= rule.alpha_factor
        if not right:
            return done + 1, False
    return length, True


@inlined
def test_stream(
    network: Network, shape: Shape, grammar: Tables, external_reset: bool, random: np.uint64, length: int
) -> int:
    """How many symbols of a fresh stream are predicted right, with frozen weights, before the first error."""
    clear(network)
    state = 0
    for done in range(length):
        if external_reset and state == 0:
            clear(network)
        random, symbol, state = step(grammar.symbols, grammar.targets, grammar.branches, state, random)
        forward(network, shape, symbol)
        if not all_near(network, shape, grammar.allowed[state]):
            return done
        carry(network, shape)
    return length


@inlined
def train_string(network: Network, shape: Shape, grammar: Tables, rule: Rule, random: np.uint64) -> int:
    """Learn from one string, from rest to the symbol before its end; how many symbols that were."""
    clear(network)
    alpha, done = rule.alpha, 0
    target = np.zeros(shape.outputs)
    random, symbol, state = step(grammar.symbols, grammar.targets, grammar.branches, 0, random)
    while grammar.branches[state] > 0:
        target[:] = grammar.allowed[state]
        random, following, state = step(grammar.symbols, grammar.targets, grammar.branches, state, random)
        if rule.only_next:
            target[:] = 0.0
            target[following] = 1.0
        forward(network, shape, symbol)
        learn(network, shape, symbol, target, alpha)
        if rule.weight_factor != 1.0:
            shrink(network, rule.weight_factor)
        carry(network, shape)
        alpha *= rule.alpha_factor
        done += 1
        symbol = following
    return done


@inlined
def test_string(network: Network, shape: Shape, grammar: Tables, random: np.uint64) -> bool:
    """Whether in one string the symbols that can come next are the most active ones at every step."""
    clear(network)
    state = 0
    while True:
        random, symbol, state = step(grammar.symbols, grammar.targets, grammar.branches, state, random)
        if grammar.branches[state] == 0:
            return True
        forward(network, shape, symbol)
        if not most_active(network, shape, grammar.allowed[state]):
            return False
        carry(network, shape)


# Loops of one shape of network. `shape` is a constant in them, so that sizes are known when they are compiled: that
# makes them about three times as fast. Weights are changed in place.


@lru_cache
def training_loop(shape: Shape) -> Loop:
    """One training stream."""

    @compiled
    def stream(
        weights: Floats, readout: Floats, decay: float, grammar: Tables, rule: Rule, random: np.uint64, length: int
    ) -> tuple[int, bool]:
        return train_stream(build(weights, readout, decay, shape), shape, grammar, rule, random, length)

    return stream


@lru_cache
def testing_loop(shape: Shape) -> Loop:
    """One test stream."""

    @compiled
    def test(
        weights: Floats, readout: Floats, decay: float, grammar: Tables, reset: bool, random: np.uint64, length: int
    ) -> int:
        return test_stream(build(weights, readout, decay, shape), shape, grammar, reset, random, length)

    return test


@lru_cache
def advance_loop(shape: Shape) -> Loop:
    """Training streams, each followed by tests until one fails, up to a limit or the quota; why it ended."""

    @compiled
    def advance(
        weights: Floats,
        readout: Floats,
        decay: float,
        grammar: Tables,
        rule: Rule,
        limits: Limits,
        key: np.uint64,
        progress: Integers,
        lengths: NDArray[np.int32],
        quota: int,
    ) -> int:
        network = build(weights, readout, decay, shape)
        training, testing = mix(key, np.uint64(TRAINING)), mix(key, np.uint64(TESTING))
        spent = 0
        while spent < quota:
            number = progress[0]
            if number >= limits.max_streams:
                return OUT_OF_STREAMS
            if progress[1] >= limits.max_symbols:
                return OUT_OF_SYMBOLS
            random = mix(training, np.uint64(number))
            done, right = train_stream(network, shape, grammar, rule, random, limits.stream_length)
            lengths[number] = done if right else done - 1
            progress[0] += 1
            progress[1] += done
            spent += done
            passed = 0
            for test in range(limits.tests):
                random = mix(mix(testing, np.uint64(number)), np.uint64(test))
                reached = test_stream(network, shape, grammar, rule.external_reset, random, limits.stream_length)
                spent += reached
                if reached < limits.stream_length:
                    break
                passed += 1
            if passed == limits.tests:
                return SOLVED
        return GOING_ON

    return advance


@lru_cache
def strings_loop(shape: Shape) -> Loop:
    """Strings of a training set, each followed by tests until one fails, up to a limit or the quota; why it ended."""

    @compiled
    def strings(
        weights: Floats,
        readout: Floats,
        decay: float,
        grammar: Tables,
        rule: Rule,
        limits: Limits,
        picks: np.uint64,
        training: NDArray[np.uint64],
        testing: NDArray[np.uint64],
        progress: Integers,
        quota: int,
    ) -> int:
        network = build(weights, readout, decay, shape)
        spent = 0
        while spent < quota:
            number = progress[0]
            if number >= limits.max_streams:
                return OUT_OF_STREAMS
            if progress[1] >= limits.max_symbols:
                return OUT_OF_SYMBOLS
            pick = mix(picks, np.uint64(number)) % np.uint64(len(training))
            done = train_string(network, shape, grammar, rule, training[pick])
            progress[0] += 1
            progress[1] += done
            spent += done
            right = 0
            for one in range(len(training) + len(testing)):
                string = training[one] if one < len(training) else testing[one - len(training)]
                spent += 10
                if not test_string(network, shape, grammar, string):
                    break
                right += 1
            if right == len(training) + len(testing):
                return SOLVED
        return GOING_ON

    return strings


@lru_cache
def string_tests_loop(shape: Shape) -> Loop:
    """How many strings are right."""

    @compiled
    def test_strings(weights: Floats, readout: Floats, decay: float, grammar: Tables, keys: NDArray[np.uint64]) -> int:
        network = build(weights, readout, decay, shape)
        right = 0
        for one in range(len(keys)):
            right += int(test_string(network, shape, grammar, keys[one]))
        return right

    return test_strings
