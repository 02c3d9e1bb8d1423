"""Memory blocks and their network: what gates share, what is counted, what a reset from outside does."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from gatescope.cells import BlockNetwork, MemoryBlockCell

DOUBLE = torch.float64
CERG = {"blocks": 4, "size": 2}
ERG = {
    "blocks": 3,
    "size": 2,
    "forget": "none",
    "gates_see_gates": True,
    "shortcut": False,
    "output_bias": False,
}


def network(**options):
    return BlockNetwork(7, 7, **{**CERG, **options}, dtype=DOUBLE)


def sequences(steps=20, rows=3):
    return torch.randn(rows, steps, 7, dtype=DOUBLE)


def seen_by(cell, x, state):
    found = {}

    def tap(name, value):
        found[name] = value
        return value

    cell(x, state, tap)
    return found


@pytest.mark.parametrize(
    ("options", "count"),
    [(CERG, 424), ({**CERG, "shortcut": False}, 375), (ERG, 276), ({**CERG, "forget": "none"}, 360)],
)
def test_the_weights_are_as_many_as_the_papers_count(options, count):
    made = BlockNetwork(7, 7, **options)
    assert made.weight_count == count
    assert sum(weight.numel() for weight in made.state_dict().values()) == count


def test_weights_have_the_names_and_shapes_in_which_they_are_trained():
    shapes = {name: tuple(weight.shape) for name, weight in BlockNetwork(7, 5, **CERG).state_dict().items()}
    assert shapes == {
        "cell.weight_ih": (4 + 4 + 8 + 4, 7),
        "cell.weight_hh": (4 + 4 + 8 + 4, 8),
        "cell.bias": (12,),
        "readout.weight": (5, 8 + 7),
        "readout.bias": (5,),
    }
    shapes = {name: tuple(weight.shape) for name, weight in BlockNetwork(7, 7, **ERG).state_dict().items()}
    assert shapes == {
        "cell.weight_ih": (3 + 6 + 3, 7),
        "cell.weight_hh": (3 + 6 + 3, 6 + 3 + 3),
        "cell.bias": (6,),
        "readout.weight": (7, 6),
    }


def test_first_biases_grow_by_block():
    cell = network().cell
    steps = torch.tensor([1.0, 2, 3, 4], dtype=DOUBLE) / 2
    assert torch.equal(cell.bias_ih, torch.cat([-steps, steps, -steps]))


def test_first_weights_of_the_network_lie_within_a_fifth():
    weights = torch.cat([w.flatten() for name, w in network().named_parameters() if "bias_ih" not in name])
    assert 0.19 < weights.abs().max() <= 0.2


def sigmoid(values):
    return 1 / (1 + np.exp(-values))


def outputs_by_hand(weights, x, options, reset=None):
    """A network one step, one block and one cell at a time, in float64; outputs (time, output)."""
    blocks, size = options["blocks"], options["size"]
    forget = options.get("forget", "learned")
    gates = ["in", "phi", "out"] if forget == "learned" else ["in", "out"]
    order = [*gates[:-1], "cell", gates[-1]]
    width = {name: blocks * size if name == "cell" else blocks for name in order}
    first = dict(zip(order, np.cumsum([0, *[width[name] for name in order[:-1]]]), strict=True))
    y, s = np.zeros(blocks * size), np.zeros(blocks * size)
    before = {name: np.zeros(blocks) for name in gates}
    shown = []
    for t, now in enumerate(x):
        if reset is not None and reset[t]:
            y, s, before = np.zeros_like(y), np.zeros_like(s), {name: np.zeros(blocks) for name in gates}
        z = np.concatenate([y, *(before[name] for name in gates if options.get("gates_see_gates"))])

        def net(row, now=now, z=z):
            return weights["cell.weight_ih"][row] @ now + weights["cell.weight_hh"][row] @ z

        y, s, after = y.copy(), s.copy(), {name: np.zeros(blocks) for name in gates}
        for j in range(blocks):
            for place, name in enumerate(gates):
                bias = weights["cell.bias"][place * blocks + j]
                after[name][j] = sigmoid(net(first[name] + j) + bias)
            keep = after["phi"][j] if forget == "learned" else 1.0 if forget == "none" else forget
            for unit in range(j * size, (j + 1) * size):
                s[unit] = keep * s[unit] + after["in"][j] * (4 * sigmoid(net(first["cell"] + unit)) - 2)
                y[unit] = after["out"][j] * (2 * sigmoid(s[unit]) - 1)
        before = after
        seen = np.concatenate([y, now]) if options.get("shortcut", True) else y
        shown.append(sigmoid(weights["readout.weight"] @ seen + weights.get("readout.bias", 0.0)))
    return np.array(shown)


WIRINGS = [CERG, ERG, {**CERG, "forget": "none"}, {**CERG, "forget": 0.9}, {**ERG, "forget": "learned", "size": 3}]


@pytest.mark.parametrize("options", WIRINGS)
def test_outputs_are_those_of_the_papers_equations(options):
    made = BlockNetwork(7, 7, **options, dtype=DOUBLE)
    for weight in made.parameters():
        nn.init.uniform_(weight, -2, 2)
    weights = {name: weight.numpy() for name, weight in made.state_dict().items()}
    x = sequences(40)
    outputs, _ = made(x)
    for row, values in zip(x, outputs, strict=True):
        by_hand = outputs_by_hand(weights, row.numpy(), options)
        assert np.abs(by_hand - values.detach().numpy()).max() < 1e-12


@pytest.mark.parametrize("options", [CERG, ERG])
def test_a_reset_from_outside_begins_anew_in_its_row_only(options):
    made = BlockNetwork(7, 7, **options, dtype=DOUBLE)
    x, reset = sequences(12, 2), torch.zeros(2, 12, dtype=torch.bool)
    reset[0, [3, 7]] = reset[1, [7]] = True
    weights = {name: weight.numpy() for name, weight in made.state_dict().items()}
    outputs, _ = made(x, reset=reset)
    for row in range(2):
        by_hand = outputs_by_hand(weights, x[row].numpy(), options, reset[row])
        assert np.abs(by_hand - outputs[row].detach().numpy()).max() < 1e-12


def test_a_reset_at_the_first_step_forgets_the_state_that_was_given():
    made, x = network(), sequences(5, 2)
    _, state = made(x)
    reset = torch.zeros(2, 5, dtype=torch.bool)
    reset[0, 0] = True
    outputs, _ = made(x, state, reset=reset)
    assert torch.equal(outputs[0], made(x)[0][0])
    assert torch.equal(outputs[1], made(x, state)[0][1])


def test_a_state_handed_back_goes_on():
    made, x = network(), sequences(9)
    first, state = made(x[:, :4])
    second, _ = made(x[:, 4:], state)
    assert (torch.cat([first, second], 1) - made(x)[0]).abs().max() < 1e-15


def test_arrays_of_another_dtype_are_read_in_the_networks_own():
    made, x, reset = network(), sequences(6).float(), np.zeros((3, 6), bool)
    reset[:, 4] = True
    assert torch.equal(made(x.numpy(), reset=reset)[0], made(x.double(), reset=torch.tensor(reset))[0])


def test_cells_of_a_block_share_its_gates_and_no_others():
    cell = network().cell
    x, state = torch.randn(7, dtype=DOUBLE), tuple(torch.randn(8, dtype=DOUBLE) for _ in range(2))
    before = seen_by(cell, x, state)
    for name in cell.block_gates:
        gate = before[name]
        assert torch.equal(gate[0::2], gate[1::2])
        assert len(set(gate.tolist())) == 4
    with torch.no_grad():
        cell.weight_ih[4 + 2] += 1.0  # the forget gate of block 2
    after = seen_by(cell, x, state)
    changed = before["forget_gate"] != after["forget_gate"]
    assert changed.tolist() == [False] * 4 + [True] * 2 + [False] * 2
    assert cell.unit_blocks() == (0, 0, 1, 1, 2, 2, 3, 3)


def test_a_forget_gate_held_at_1_makes_the_lstm_of_1997():
    learned, kept = MemoryBlockCell(7, **CERG, dtype=DOUBLE), MemoryBlockCell(7, **CERG, forget="none", dtype=DOUBLE)
    without = {name: torch.cat([w[:4], w[8:]]) for name, w in learned.state_dict().items()}
    kept.load_state_dict(without)
    x, state = torch.randn(3, 7, dtype=DOUBLE), tuple(torch.randn(3, 8, dtype=DOUBLE) for _ in range(2))
    held = learned(x, state, lambda name, value: torch.ones_like(value) if name == "forget_gate" else value)
    assert all(torch.equal(one, other) for one, other in zip(held, kept(x, state), strict=True))


@pytest.mark.parametrize(
    ("forget", "retention"),
    [("learned", "forget_gate"), ("none", "1.0"), (1, "1.0"), (0.9, "0.9"), (0, "0.0"), (1e-5, "0.00001")],
)
def test_the_retention_is_the_gate_or_the_factor(forget, retention):
    cell = MemoryBlockCell(2, blocks=2, size=2, forget=forget)
    assert cell.retention == retention
    assert ("forget_gate" in cell.gates) == (forget == "learned")


def test_gates_that_see_gates_are_states():
    cell = MemoryBlockCell(2, blocks=2, size=2, gates_see_gates=True)
    assert cell.states == ("hidden_state", "cell_state", "input_gate", "forget_gate", "output_gate")
    assert cell.weight_hh.shape == (2 + 2 + 4 + 2, 4 + 6)
    assert cell.variant == "gates see gates"


def test_a_network_without_any_gate_is_possible_and_biased_nowhere():
    cell = MemoryBlockCell(2, blocks=2, size=2, forget="none", input_gate=False, output_gate=False)
    assert cell.gates == ("candidate",)
    assert cell.bias_ih is None
    assert cell.variant == "no input gate, no output gate"
    state = cell(torch.randn(2), cell.zero_state(torch.zeros(())))
    assert torch.allclose(state[0], (state[1] / 2).tanh())


def test_gradients_of_the_network_equal_finite_differences():
    made, x = BlockNetwork(2, 2, blocks=2, size=2, dtype=DOUBLE), torch.randn(2, 4, 2, dtype=DOUBLE)
    reset = torch.zeros(2, 4, dtype=torch.bool)
    reset[1, 2] = True
    names = [name for name, _ in made.named_parameters()]

    def run(x, *weights):
        return torch.func.functional_call(made, dict(zip(names, weights, strict=True)), (x,), {"reset": reset})[0]

    sources = [x, *(weight.detach() for weight in made.parameters())]
    assert torch.autograd.gradcheck(run, [source.requires_grad_() for source in sources])


@pytest.mark.parametrize("options", [CERG, ERG])
def test_copies_and_files_keep_names_and_outputs(options, tmp_path):
    made, x = BlockNetwork(7, 7, **options, dtype=DOUBLE), sequences()
    loaded = BlockNetwork(7, 7, **options, dtype=DOUBLE)
    torch.save(made.state_dict(), tmp_path / "weights.pt")
    loaded.load_state_dict(torch.load(tmp_path / "weights.pt"))
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made)), loaded):
        assert list(twin.state_dict()) == list(made.state_dict())
        assert torch.equal(twin(x)[0], made(x)[0])
    outer, other = nn.ModuleDict({"net": made}), nn.ModuleDict({"net": BlockNetwork(7, 7, **options, dtype=DOUBLE)})
    assert "net.cell.weight_ih" in outer.state_dict()
    other.load_state_dict(outer.state_dict())
    assert torch.equal(other["net"](x)[0], made(x)[0])


def test_arrays_by_name_become_the_weights():
    arrays = {name: weight.numpy() for name, weight in network().state_dict().items()}
    made = network().load_weights(arrays)
    assert all(np.array_equal(weight, arrays[name]) for name, weight in made.state_dict().items())


def test_weights_of_another_wiring_are_refused_in_one_sentence():
    arrays = network(shortcut=False).state_dict()
    with pytest.raises(ValueError, match=r"424 in all; readout.weight is \(7, 8\) where \(7, 15\) is needed. Build"):
        network().load_weights(arrays)
    with pytest.raises(ValueError, match=r"readout.bias is missing where \(7,\) is needed"):
        network().load_weights({k: v for k, v in network().state_dict().items() if k != "readout.bias"})
    with pytest.raises(ValueError, match=r"cell.peephole is \(3,\) where nothing is needed"):
        network().load_weights({**network().state_dict(), "cell.peephole": torch.zeros(3)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"blocks": 0}, "blocks of MemoryBlockCell must be a whole number of at least 1; 0 came"),
        ({"size": 1.5}, "size of MemoryBlockCell must be a whole number of at least 1; 1.5 came"),
        ({"forget": "sometimes"}, "forget .* must be 'learned', 'none' or a factor between 0 and 1; 'sometimes' came"),
        ({"forget": 1.1}, "forget .* between 0 and 1; 1.1 came"),
        ({"forget": float("nan")}, "forget .* between 0 and 1; nan came"),
        ({"forget": None}, "forget .* between 0 and 1; None came"),
        (
            {"forget": "none", "input_gate": False, "output_gate": False, "gates_see_gates": True},
            "gates_see_gates of MemoryBlockCell must come with a gate; no gate came",
        ),
    ],
)
def test_impossible_blocks_are_refused_in_one_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        MemoryBlockCell(3, **{**CERG, **options})


def test_impossible_networks_and_calls_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="outputs of BlockNetwork must be a whole number of at least 1; 0 came"):
        BlockNetwork(7, 0, **CERG)
    made = network()
    with pytest.raises(ValueError, match=r"must be \(sequence, time, input\); shape \(5, 7\) came"):
        made(sequences(5)[0])
    for wrong in (torch.zeros(3, 5, dtype=torch.bool), torch.zeros(3, 20)):
        with pytest.raises(ValueError, match=r"must be boolean and of shape \(3, 20\)"):
            made(sequences(), reset=wrong)
    with pytest.raises(ValueError, match="must have at least one time step"):
        made(sequences(0))
