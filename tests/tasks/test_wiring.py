"""How networks are wired: counts of weights, names and shapes, and what is refused."""

import math
from dataclasses import asdict
from typing import Any

import pytest

from gatescope.cells.block_network import BlockNetwork
from gatescope.tasks.wiring import CERG_WIRING, ERG_WIRING, Wiring

WIRINGS = [
    CERG_WIRING,
    ERG_WIRING,
    Wiring(shortcut=False),
    Wiring(forget=0.9, blocks=2, size=3),
    Wiring(gates_see_gates=True, output_gate=False),
    Wiring(input_gate=False, output_gate=False, forget="none", output_bias=False),
]


def test_the_papers_counts_of_weights_are_met() -> None:
    assert CERG_WIRING.weight_count == 424
    assert Wiring(shortcut=False).weight_count == 8 * 15 + 12 * 16 + 7 * 9 == 375
    assert ERG_WIRING.weight_count == 12 * (7 + 12) + 6 + 7 * 6 == 276


@pytest.mark.parametrize("wiring", WIRINGS)
def test_names_and_shapes_are_those_of_the_block_network(wiring: Wiring) -> None:
    network = BlockNetwork(**asdict(wiring))
    assert {name: tuple(weight.shape) for name, weight in network.state_dict().items()} == wiring.shapes
    assert wiring.weight_count == network.weight_count == sum(map(math.prod, wiring.shapes.values()))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"blocks": 0}, "blocks of a wiring must be a whole number of at least 1; 0 came"),
        ({"size": 2.0}, "size of a wiring must be a whole number of at least 1; 2.0 came"),
        ({"inputs": True}, "inputs of a wiring must be"),
        ({"forget": 1.5}, "'learned', 'none' or a factor between 0 and 1; 1.5 came"),
        ({"forget": "gated"}, "'gated' came"),
        ({"shortcut": 1}, "shortcut of a wiring must be True or False; 1 came"),
        (
            {"gates_see_gates": True, "forget": "none", "input_gate": False, "output_gate": False},
            "must come with a gate",
        ),
    ],
)
def test_an_impossible_wiring_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Wiring(**given)
