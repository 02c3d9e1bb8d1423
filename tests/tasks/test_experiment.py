"""The experiment with one network: same setting and number, same bits; what is perfect; what is refused."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gatescope.tasks.experiment import VARIANTS, Outcome, Setting, run_network
from gatescope.tasks.learners import StreamLearner, StringLearner, initial_weights
from gatescope.tasks.wiring import CERG_WIRING

SHORT: dict[str, Setting] = {
    row: replace(VARIANTS[row], max_streams=6000, stream_length=2000, tests=3) for row in VARIANTS
}
# Of all weights of network 104 after at most 6000 streams: the same on every x86-64 machine.
BITS = {
    "external-reset": "ee8fdb44f5b4",
    "1997": "25ae3bde9531",
    "decay-0.9": "392fa19f505d",
    "forget": "928589f8efea",
    "forget-alpha-decay": "fb8dae7364a5",
    "weight-decay": "10574fa3132b",
    "lstm": "484fa779834a",
}


def bits(outcome: Outcome) -> str:
    digest = sha256()
    for weight in outcome.weights.values():
        digest.update(np.ascontiguousarray(weight).tobytes())
    return digest.hexdigest()[:12]


@pytest.mark.parametrize("row", BITS)
def test_a_seed_gives_the_weights_that_it_always_gave(row: str) -> None:
    assert bits(run_network(SHORT[row], 104)) == BITS[row]


@pytest.mark.slow
def test_bits_do_not_depend_on_the_width_of_the_processors_vectors(tmp_path: Path) -> None:
    code = (
        "from dataclasses import replace; from gatescope.tasks.experiment import *; from hashlib import sha256\n"
        "setting = replace(VARIANTS['forget'], max_streams=6000, stream_length=2000, tests=3)\n"
        "weights = run_network(setting, 104).weights.values()\n"
        "print(sha256(b''.join(weight.tobytes() for weight in weights)).hexdigest()[:12])"
    )
    other = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | other, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == BITS["forget"]


def same(first: Outcome, second: Outcome) -> bool:
    return bits(first) == bits(second) and (first.streams, first.symbols, first.tests, first.retests) == (
        second.streams,
        second.symbols,
        second.tests,
        second.retests,
    )


def test_networks_depend_on_their_number_and_the_seed_and_nothing_else() -> None:
    setting = replace(SHORT["forget"], max_streams=50)
    first = run_network(setting, 3)
    run_network(setting, 4)
    assert same(first, run_network(setting, 3))
    assert not same(first, run_network(setting, 4))
    assert not same(first, run_network(replace(setting, seed=1), 3))


def test_how_many_tests_there_are_changes_nothing_in_training() -> None:
    setting = replace(SHORT["forget"], max_streams=300)
    assert bits(run_network(setting, 0)) == bits(run_network(replace(setting, tests=1), 0))


def test_training_is_the_same_however_often_it_pauses() -> None:
    setting = replace(SHORT["forget"], max_streams=400)
    learner = StreamLearner(setting, 5)
    for until in range(1, 401):
        learner.advance(until)
    outcome = run_network(setting, 5)
    assert learner.symbols == outcome.symbols
    assert learner.tests() == outcome.tests


def test_the_forget_gate_learns_what_the_1997_network_cannot() -> None:
    """Network 106 of the table's first seed: perfect, and still on most of ten fresh streams."""
    learned, lost = run_network(VARIANTS["forget"], 106), run_network(VARIANTS["1997"], 106)
    assert (learned.verdict, learned.tests) == ("perfect", (100_000,) * 10)
    assert (learned.streams, learned.symbols) == (7687, 924_185)
    assert np.mean(learned.retests) > 50_000
    assert lost.verdict == "rest"
    assert max(lost.tests) < 1000


def test_the_curve_tells_how_long_streams_were_on_average() -> None:
    outcome = run_network(replace(SHORT["forget"], max_streams=1000), 0)
    streams, means = outcome.curve.T
    assert len(streams) == 300
    assert streams[-1] == outcome.streams == 1000
    total = (means * np.diff(streams, prepend=0)).sum()
    assert total == pytest.approx(outcome.symbols - 1000)  # the wrong symbol of each stream does not count


def test_a_network_is_given_up_when_it_has_learned_from_too_many_symbols() -> None:
    outcome = run_network(replace(SHORT["forget"], max_symbols=500), 0)
    assert outcome.capped
    assert outcome.verdict == "rest"
    assert 500 <= outcome.symbols < 2500


def test_a_restart_begins_with_new_weights_and_goes_on_with_the_next_stream() -> None:
    setting = replace(SHORT["forget"], max_streams=25, restart_after=10)
    outcome = run_network(setting, 0)
    assert (outcome.restarts, outcome.streams) == (2, 25)
    learner = StreamLearner(setting, 0)
    learner.counts[0] = 20
    learner.begin(2)
    learner.advance(25)
    assert learner.tests() == outcome.tests
    first, third = initial_weights(setting, 0), initial_weights(setting, 0, 2)
    assert not np.array_equal(first["cell.weight_ih"], third["cell.weight_ih"])


def test_first_weights_are_uniform_and_biases_as_given() -> None:
    drawn = initial_weights(VARIANTS["forget"], 0)
    assert list(drawn) == list(CERG_WIRING.shapes)
    expected = [-0.5, -1, -1.5, -2, 0.5, 1, 1.5, 2, -0.5, -1, -1.5, -2]
    np.testing.assert_array_equal(drawn["cell.bias"], expected)
    others = np.concatenate([weight.ravel() for name, weight in drawn.items() if name != "cell.bias"])
    assert 0.19 < np.abs(others).max() <= 0.2
    assert abs(others.mean()) < 0.02
    erg = initial_weights(VARIANTS["lstm"], 0)["cell.bias"]
    assert np.abs(erg[:3]).max() <= 0.2  # input gates' biases are drawn
    np.testing.assert_array_equal(erg[3:], [-1, -2, -3])


def test_single_strings_are_picked_from_a_training_set_that_no_test_string_is_in() -> None:
    learner = StringLearner(VARIANTS["lstm"], 0)
    test, fresh = learner.testing, learner.unknown(3, 0)
    assert len(learner.training) == len(test) == len(fresh) == 256
    spelled = [{learner.spelled(string) for string in strings} for strings in (learner.training, test, fresh)]
    assert not spelled[0] & (spelled[1] | spelled[2])
    assert all(string[0] == 0 and string[1] == string[-2] and string[-1] == 6 for string in spelled[1])


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    outcome = run_network(replace(SHORT["1997"], max_streams=20), 0, progress=lambda *counts: told.append(counts))
    assert told[-1] == (outcome.streams, outcome.symbols)


@pytest.mark.parametrize("row", VARIANTS)
def test_a_setting_comes_back_from_json(row: str) -> None:
    setting = VARIANTS[row]
    assert setting.variant == row
    assert Setting.from_dict(json.loads(json.dumps(setting.to_dict()))) == setting


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"task": "reber"}, "task of a setting must be 'cerg' or 'erg'; 'reber' came"),
        ({"target": "next"}, "must be 'possible', or for 'erg' also 'next'; 'next' came"),
        ({"tests": 0}, "tests of a setting must be a whole number of at least 1; 0 came"),
        ({"restart_after": 1.5}, "restart_after of a setting must be a whole number"),
        ({"alpha": -0.1}, r"alpha of a setting must lie in \[0\.0, 100\.0\]; -0\.1 came"),
        ({"alpha_decay": float("nan")}, "alpha_decay of a setting must lie in"),
        ({"forget_bias": (1.0,)}, "forget_bias of a setting must have one value per block, 4; 1 came"),
        ({"wiring": replace(CERG_WIRING, inputs=8)}, "must have 7 inputs and 7 outputs, one per symbol; 8 and 7 came"),
    ],
)
def test_an_impossible_setting_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Setting(**given)


def test_a_setting_with_unknown_or_missing_values_is_refused() -> None:
    values = VARIANTS["forget"].to_dict()
    with pytest.raises(ValueError, match="a setting must have exactly its own values; momentum is unknown or missing"):
        Setting.from_dict(values | {"momentum": 0.9})
    with pytest.raises(ValueError, match="a wiring must have exactly its own values; blocks"):
        Setting.from_dict(values | {"wiring": {k: v for k, v in values["wiring"].items() if k != "blocks"}})
