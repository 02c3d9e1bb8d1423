"""The engine computes the paper's equations: forward as the torch network, gradients as finite differences say."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast

import numpy as np
import pytest
import torch
from numba import njit
from numpy.typing import NDArray

from gatescope.cells.block_network import BlockNetwork
from gatescope.tasks import engine as loops_of
from gatescope.tasks.automaton import CONTINUAL, EMBEDDED, step
from gatescope.tasks.block_learning import learn
from gatescope.tasks.block_step import Network, all_near, build, carry, forward, most_active
from gatescope.tasks.engine import (
    Rule,
    shape_of,
    string_tests_loop,
    tables,
    training_loop,
)
from gatescope.tasks.packing import packed, unpacked
from gatescope.tasks.randomness import key
from gatescope.tasks.wiring import CERG_WIRING, ERG_WIRING, Wiring

Array = NDArray[np.float64]
Weights = dict[str, Array]
WIRINGS = {
    "1999": CERG_WIRING,
    "1997": Wiring(forget="none"),
    "constant decay": Wiring(forget=0.9),
    "no shortcut": Wiring(shortcut=False),
    "gates see gates": ERG_WIRING,
    "blocks of three": Wiring(blocks=2, size=3, gates_see_gates=True, output_gate=False),
    "no input gate": Wiring(blocks=1, size=1, input_gate=False, output_bias=False),
}
every_wiring = pytest.mark.parametrize("wiring", WIRINGS.values(), ids=WIRINGS.keys())


def some_weights(wiring: Wiring, reach: float = 1.0, seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)
    return {name: rng.uniform(-reach, reach, shape) for name, shape in wiring.shapes.items()}


def symbols_and_targets(count: int, seed: int = 3) -> tuple[list[int], list[Array]]:
    random, state, symbols, targets = key(seed), 0, [], []
    for _ in range(count):
        random, symbol, state = step(CONTINUAL.symbols, CONTINUAL.targets, CONTINUAL.branches, state, np.uint64(random))
        symbols.append(symbol)
        targets.append(CONTINUAL.allowed[state].astype(np.float64))
    return symbols, targets


def engine(wiring: Wiring, weights: Mapping[str, Array]) -> Network:
    return build(*packed(weights, wiring), wiring.decay, shape_of(wiring))


def shown(wiring: Wiring, weights: Weights, symbols: list[int]) -> Array:
    """The engine's outputs, frozen weights."""
    network, shape = engine(wiring, weights), shape_of(wiring)
    found = []
    for symbol in symbols:
        forward(network, shape, symbol)
        found.append(network.outputs[: wiring.outputs].copy())
        carry(network, shape)
    return np.array(found)


@every_wiring
def test_outputs_are_those_of_the_torch_network(wiring: Wiring) -> None:
    weights = some_weights(wiring)
    symbols, _ = symbols_and_targets(400)
    network = BlockNetwork(**asdict(wiring), dtype=torch.float64).load_weights(weights)
    with torch.no_grad():
        expected = network(torch.eye(7, dtype=torch.float64)[symbols][None])[0][0].numpy()
    np.testing.assert_allclose(shown(wiring, weights, symbols), expected, rtol=0, atol=1e-12)


@every_wiring
def test_the_gradient_is_that_of_finite_differences_where_truncation_is_exact(wiring: Wiring) -> None:
    weights = some_weights(wiring, seed=1)
    weights["cell.weight_hh"][:] = 0.0  # nothing flows back through what gates and cell inputs saw
    symbols, targets = symbols_and_targets(25, seed=5)
    network, shape = engine(wiring, weights), shape_of(wiring)
    for number, symbol in enumerate(symbols):
        last = number == len(symbols) - 1
        forward(network, shape, symbol)
        learn(network, shape, symbol, targets[number], 1.0 if last else 0.0)
        carry(network, shape)
    changed = unpacked(network.weights, network.readout, wiring)

    def error(name: str, place: tuple[int, ...], change: float) -> float:
        moved = {other: weight.copy() for other, weight in weights.items()}
        moved[name][place] += change
        return float(0.5 * ((targets[-1] - shown(wiring, moved, symbols)[-1]) ** 2).sum())

    rng = np.random.default_rng(2)
    for name, weight in weights.items():
        places = [tuple(rng.integers(size) for size in weight.shape) for _ in range(12)]
        slopes = [(error(name, place, -1e-5) - error(name, place, 1e-5)) / 2e-5 for place in places]
        moves = [changed[name][place] - weight[place] for place in places]
        np.testing.assert_allclose(moves, slopes, rtol=0, atol=1e-8, err_msg=name)
        assert np.abs(changed[name] - weight).max() > 1e-4, name


def by_the_book(
    wiring: Wiring, weights: Weights, symbols: list[int], targets: list[Array], alphas: list[float]
) -> Weights:
    """Truncated learning as the paper writes it, unit by unit, for networks of 1999 with all gates."""
    w = {name: weight.copy() for name, weight in weights.items()}
    J, U = wiring.blocks, wiring.units  # noqa: N806
    block = np.arange(U) // wiring.size
    rows = {"in": slice(0, J), "phi": slice(J, 2 * J), "c": slice(2 * J, 2 * J + U), "out": slice(2 * J + U, None)}
    s, y, partial = np.zeros(U), np.zeros(U), {name: np.zeros((U, 7 + U + 1)) for name in ("in", "phi", "c")}

    def f(x: Array) -> Array:
        return 1.0 / (1.0 + np.exp(-x))

    for symbol, t, alpha in zip(symbols, targets, alphas, strict=True):
        x = np.eye(7)[symbol]
        net = w["cell.weight_ih"] @ x + w["cell.weight_hh"] @ y
        bias = w["cell.bias"]
        i, phi, o = (
            f(net[rows["in"]] + bias[:J])[block],
            f(net[rows["phi"]] + bias[J : 2 * J])[block],
            f(net[rows["out"]] + bias[2 * J :])[block],
        )
        c = f(net[rows["c"]])
        z, before = np.concatenate([x, y, [1.0]]), s
        s = phi * s + i * (4 * c - 2)
        h = 2 * f(s) - 1
        y = o * h
        shown_now = f(w["readout.weight"] @ np.concatenate([y, x]) + w["readout.bias"])
        d = (t - shown_now) * shown_now * (1 - shown_now)
        at_cells = w["readout.weight"][:, :U].T @ d
        e = o * 2 * f(s) * (1 - f(s)) * at_cells
        gains = {"c": 4 * c * (1 - c) * i, "in": (4 * c - 2) * i * (1 - i), "phi": before * phi * (1 - phi)}
        for name, gain in gains.items():
            partial[name] = phi[:, None] * partial[name] + gain[:, None] * z
        change = np.zeros((3 * J + U, 7 + U + 1))
        change[rows["c"]] = e[:, None] * partial["c"]
        for j in range(J):
            here = block == j
            change[j] = (e[:, None] * partial["in"])[here].sum(0)
            change[J + j] = (e[:, None] * partial["phi"])[here].sum(0)
            change[2 * J + U + j] = (h * at_cells)[here].sum() * (o * (1 - o))[here][0] * z
        gates = np.r_[0 : 2 * J, 2 * J + U : 3 * J + U]
        w["cell.weight_ih"] += alpha * change[:, :7]
        w["cell.weight_hh"] += alpha * change[:, 7:-1]
        w["cell.bias"] += alpha * change[gates, -1]
        w["readout.weight"] += alpha * np.outer(d, np.concatenate([y, x]))
        w["readout.bias"] += alpha * d
    return w


@pytest.mark.parametrize("wiring", [CERG_WIRING, Wiring(blocks=2, size=3)], ids=["4 x 2", "2 x 3"])
def test_weights_after_many_symbols_are_those_of_the_papers_equations(wiring: Wiring) -> None:
    weights, (symbols, targets) = some_weights(wiring, 0.5), symbols_and_targets(300)
    network, shape = engine(wiring, weights), shape_of(wiring)
    for symbol, target in zip(symbols, targets, strict=True):
        forward(network, shape, symbol)
        learn(network, shape, symbol, target, 0.5)
        carry(network, shape)
    found, expected = (
        unpacked(network.weights, network.readout, wiring),
        by_the_book(wiring, weights, symbols, targets, [0.5] * 300),
    )
    for name in weights:
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-10, err_msg=name)
        assert np.abs(found[name] - weights[name]).max() > 0.02, name


def test_two_steps_of_a_network_of_one_cell_are_as_worked_by_hand() -> None:
    # All gates 1/2, cell input g(0) = 0, so the state stays 0 and the output f(0) = 1/2; target 1: d = 1/2 * 1/4 = 1/8.
    # E_c = V d = 1/4 and e_s = out h'(0) E_c = 1/2 * 1/2 * 1/4 = 1/16. P_c = g'(0) in = 1/2 where the symbol is.
    # Second step: P_c of the first symbol has halved. All other changes are products with s = 0 or y_c = 0.
    wiring = Wiring(inputs=2, outputs=1, blocks=1, size=1, shortcut=False, output_bias=False)
    weights = {name: np.zeros(shape) for name, shape in wiring.shapes.items()}
    weights["readout.weight"][:] = 2.0
    network, shape = engine(wiring, weights), shape_of(wiring)
    for symbol in (0, 1):
        forward(network, shape, symbol)
        learn(network, shape, symbol, np.ones(1), 1.0)
        carry(network, shape)
    expected = {name: weight.copy() for name, weight in weights.items()}
    expected["cell.weight_ih"][2] = [1 / 32 + 1 / 64, 1 / 32]  # row 2: the cell input
    for name, weight in unpacked(network.weights, network.readout, wiring).items():
        np.testing.assert_array_equal(weight, expected[name], err_msg=name)


@every_wiring
def test_weights_come_out_as_they_went_in(wiring: Wiring) -> None:
    weights = some_weights(wiring)
    back = unpacked(*packed(weights, wiring), wiring)
    assert list(back) == list(wiring.shapes)
    for name, weight in back.items():
        np.testing.assert_array_equal(weight, weights[name])


def test_weights_of_another_wiring_are_refused_by_count_and_name() -> None:
    with pytest.raises(ValueError, match=r"the 375 of the wiring; 424 came \(readout\.weight \(7, 15\), not \(7, 8\)"):
        packed(some_weights(CERG_WIRING), Wiring(shortcut=False))


@pytest.mark.parametrize(("error", "right"), [(0.4899, True), (0.4901, False), (float("nan"), False)])
def test_a_prediction_is_right_when_every_output_is_within_049(error: float, right: bool) -> None:
    network, shape = engine(CERG_WIRING, some_weights(CERG_WIRING)), shape_of(CERG_WIRING)
    target = np.array([1.0, 0, 0, 1, 0, 0, 0])
    network.outputs[:7] = target
    network.outputs[3] -= error
    assert all_near(network, shape, target) is right


def test_the_most_active_outputs_must_be_those_of_all_possible_symbols() -> None:
    network, shape = engine(ERG_WIRING, some_weights(ERG_WIRING)), shape_of(ERG_WIRING)
    target = np.array([0.0, 1, 1, 0, 0, 0, 0])
    network.outputs[:7] = [0.1, 0.3, 0.2, 0.19, 0, 0, 0]
    assert most_active(network, shape, target)
    network.outputs[3] = 0.25
    assert not most_active(network, shape, target)


# What a loop does with one stream.

GRAMMAR, SHAPE = tables(CONTINUAL), shape_of(CERG_WIRING)
PLAIN = Rule(0.5, 1.0, 1.0, False, False)


def after_one_stream(rule: Rule, weights: Weights) -> tuple[Any, Weights]:
    inside, readout = packed(weights, CERG_WIRING)
    told = training_loop(SHAPE)(inside, readout, 1.0, GRAMMAR, rule, key(3), 60)
    return told, unpacked(inside, readout, CERG_WIRING)


def half_taught() -> Weights:
    """Says what follows B, and B after T and P, which is right at first: its first error is the fourth step."""
    weights = some_weights(CERG_WIRING, 0.1)
    taught = np.full((7, 3), -5.0)  # (next, symbol B T P)
    taught[[1, 2, 0, 0], [0, 0, 1, 2]] = 5.0
    weights["readout.weight"][:, 8:11] = taught
    return weights


@pytest.mark.parametrize("factor", [1.0, 0.75], ids=["constant alpha", "alpha decay"])
def test_a_training_stream_ends_at_its_first_wrong_prediction_and_learns_from_it(factor: float) -> None:
    weights = half_taught()
    told, learned = after_one_stream(PLAIN._replace(alpha_factor=factor), weights)
    expected = by_the_book(CERG_WIRING, weights, *symbols_and_targets(4), [0.5 * factor**step for step in range(4)])
    assert told == (4, False)
    for name in weights:
        np.testing.assert_allclose(learned[name], expected[name], rtol=0, atol=1e-14)


def test_a_stream_that_comes_to_its_length_is_right() -> None:
    inside, readout = packed(half_taught(), CERG_WIRING)
    assert training_loop(SHAPE)(inside, readout, 1.0, GRAMMAR, PLAIN, key(3), 3) == (3, True)


def test_weight_decay_shrinks_every_weight_after_its_update() -> None:
    weights = some_weights(CERG_WIRING)  # wrong at once: one update
    (done, _), plain = after_one_stream(PLAIN, weights)
    shrunk = after_one_stream(PLAIN._replace(weight_factor=0.75), weights)[1]
    assert done == 1
    for name in weights:
        np.testing.assert_array_equal(shrunk[name], 0.75 * plain[name])


def test_a_test_stream_counts_right_symbols_before_the_first_error_and_changes_no_weight() -> None:
    inside, readout = packed(half_taught(), CERG_WIRING)
    before = inside.copy(), readout.copy()
    test = loops_of.testing_loop(SHAPE)
    assert [test(inside, readout, 1.0, GRAMMAR, False, key(3), length) for length in (100, 2)] == [3, 2]
    np.testing.assert_array_equal(inside, before[0])
    np.testing.assert_array_equal(readout, before[1])


def test_an_external_reset_puts_the_network_to_rest_at_every_start_of_a_string() -> None:
    # An accumulating network (1997): with the reset its outputs repeat whenever the same string comes again.
    wiring = Wiring(forget="none")
    weights = some_weights(wiring)
    symbols, targets = symbols_and_targets(200)
    network, shape = engine(wiring, weights), shape_of(wiring)
    starts = {0}
    after_reset, state, random = [], 0, key(3)
    for number, symbol in enumerate(symbols):
        if state == 0:
            loops_of.clear(network)
            starts.add(number)
        random, _, state = step(CONTINUAL.symbols, CONTINUAL.targets, CONTINUAL.branches, state, np.uint64(random))
        forward(network, shape, symbol)
        learn(network, shape, symbol, targets[number], 0.0)
        if number in starts:
            after_reset.append((network.outputs.copy(), network.input_partials.copy()))
        carry(network, shape)
    assert len(after_reset) > 10
    for outputs, partials in after_reset:
        np.testing.assert_array_equal(outputs, after_reset[0][0])
        np.testing.assert_array_equal(partials, after_reset[0][1])


def test_no_multiplication_in_the_loops_is_fused_with_an_addition() -> None:
    loop = njit(error_model="numpy")(cast(Any, training_loop(SHAPE)).py_func)  # machine code from a cache is not shown
    loop(*packed(half_taught(), CERG_WIRING), 1.0, GRAMMAR, PLAIN, key(3), 1)
    (code,) = loop.inspect_asm().values()
    assert "mulpd" in code
    assert not re.findall(r"\bv?fn?m(?:add|sub)\w*", code)


def test_an_untrained_network_has_no_string_right() -> None:
    strings = np.array([key(4, number) for number in range(20)])
    inside, readout = packed(some_weights(ERG_WIRING, 0.2), ERG_WIRING)
    assert string_tests_loop(shape_of(ERG_WIRING))(inside, readout, 1.0, tables(EMBEDDED), strings) == 0
