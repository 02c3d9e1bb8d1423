"""The tables of the grammars, against the grammars as they are printed."""

import re

import numpy as np
import pytest

from gatescope.tasks.automaton import CONTINUAL, EMBEDDED, REBER, SYMBOLS, Automaton, step
from gatescope.tasks.randomness import key

# The graph as a regular expression: from the lower node T loops, V leaves, and P X comes back to it.
LOWER = "(T*VPX)*T*V(V|PS)"
REBER_STRING = f"B(TS*X(S|X{LOWER})|P{LOWER})E"
EMBEDDED_STRING = f"B(T{REBER_STRING}T|P{REBER_STRING}P)E"
ALL = pytest.mark.parametrize("automaton", [REBER, EMBEDDED, CONTINUAL], ids=["reber", "embedded", "continual"])


def strings(automaton: Automaton, longest: int) -> set[str]:
    """Every string of at most `longest` symbols, by walking all branches."""
    ended, open_ = set(), [("", 0)]
    while open_:
        text, state = open_.pop()
        if automaton.branches[state] == 0:
            ended.add(text)
        elif len(text) < longest:
            for branch in range(automaton.branches[state]):
                symbol = SYMBOLS[automaton.symbols[state, branch]]
                open_.append((text + symbol, int(automaton.targets[state, branch])))
    return ended


def every_text(length: int, alphabet: str = SYMBOLS) -> list[str]:
    return [""] if length == 0 else [text + symbol for text in every_text(length - 1, alphabet) for symbol in alphabet]


def test_the_plain_grammar_has_the_strings_of_the_printed_graph_and_no_others() -> None:
    inner = {"B" + text + "E" for length in range(7) for text in every_text(length, "TPSXV")}
    assert strings(REBER, 8) == {text for text in inner if re.fullmatch(REBER_STRING, text)}
    assert strings(REBER, 5) == {"BTXSE", "BPVVE"}


def test_the_embedded_grammar_puts_a_string_between_two_equal_symbols() -> None:
    plain = strings(REBER, 8)
    assert strings(EMBEDDED, 12) == {f"B{held}{text}{held}E" for text in plain for held in "TP"}
    assert all(re.fullmatch(EMBEDDED_STRING, text) for text in strings(EMBEDDED, 14))


def test_the_ring_is_the_embedded_grammar_whose_end_is_its_beginning() -> None:
    assert EMBEDDED.states == CONTINUAL.states + 1
    end = CONTINUAL.states
    assert EMBEDDED.branches[end] == 0
    assert np.array_equal(np.where(EMBEDDED.targets[:end] == end, 0, EMBEDDED.targets[:end]), CONTINUAL.targets)
    for name in ("symbols", "branches", "allowed", "remembered"):
        assert np.array_equal(getattr(EMBEDDED, name)[:end], getattr(CONTINUAL, name))


@ALL
def test_allowed_is_what_the_branches_emit(automaton: Automaton) -> None:
    for state in range(automaton.states):
        emitted = automaton.symbols[state, : automaton.branches[state]]
        assert set(np.flatnonzero(automaton.allowed[state])) == set(emitted)
        assert (automaton.symbols[state, automaton.branches[state] :] == -1).all()
        assert (automaton.targets[state, automaton.branches[state] :] == -1).all()


def test_something_is_remembered_from_the_second_symbol_until_it_is_repeated() -> None:
    for text in strings(EMBEDDED, 12):
        state, held = 0, []
        for symbol in text:
            branch = [SYMBOLS[i] for i in EMBEDDED.symbols[state]].index(symbol)
            state = int(EMBEDDED.targets[state, branch])
            held.append(EMBEDDED.remembered[state])
        assert held == [-1] + [SYMBOLS.index(text[1])] * (len(text) - 3) + [-1, -1]
    assert (REBER.remembered == -1).all()


@ALL
def test_the_tables_cannot_be_written(automaton: Automaton) -> None:
    for array in (automaton.symbols, automaton.targets, automaton.branches, automaton.allowed, automaton.remembered):
        with pytest.raises(ValueError, match="read-only"):
            array.flat[0] = 0


def test_a_step_throws_a_coin_only_where_two_branches_leave() -> None:
    random = key(3)
    tables = (CONTINUAL.symbols, CONTINUAL.targets, CONTINUAL.branches)
    following, symbol, state = step(*tables, 0, random)
    assert (np.uint64(following), SYMBOLS[symbol], state) == (random, "B", 1)
    taken = {step(*tables, 1, key(seed))[1:] for seed in range(20)}
    assert {(SYMBOLS[symbol], state) for symbol, state in taken} == {("T", 2), ("P", 10)}
    assert np.uint64(step(*tables, 1, random)[0]) != random
