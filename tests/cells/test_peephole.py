"""The peephole LSTM and its eight variants: what each changes, and that it changes nothing else."""

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from gatescope.cells import LSTMCell, PeepholeLSTMCell, Recurrent

VARIANTS = ("vanilla", "NIG", "NFG", "NOG", "NIAF", "NOAF", "CIFG", "NP", "FGR")
DOUBLE = torch.float64


def run(cell, inputs, state):
    """Every signal of every step, (time, sequence, unit)."""
    seen = {}

    def tap(name, value):
        seen.setdefault(name, []).append(value)
        return value

    for x in inputs:
        state = cell(x, state, tap)
    return {name: torch.stack(values).detach() for name, values in seen.items()}


def start(cell, *batch):
    return tuple(torch.randn(*batch, size, dtype=DOUBLE) for size in cell.state_sizes)


def test_without_peepholes_it_is_the_lstm_cell():
    lstm, np_variant = LSTMCell(3, 4, dtype=DOUBLE), PeepholeLSTMCell(3, 4, variant="NP", dtype=DOUBLE)
    np_variant.load_state_dict(lstm.state_dict())
    inputs, state = torch.randn(9, 2, 3, dtype=DOUBLE), start(lstm, 2)
    ours, theirs = run(np_variant, inputs, state), run(lstm, inputs, state)
    assert set(ours) == set(theirs)
    assert max((ours[name] - theirs[name]).abs().max() for name in ours) < 1e-12


PARTS = {  # variant -> signals that it lacks, what keeps the memory, unbounded beside the cell state
    "vanilla": ((), "forget_gate", ()),
    "NIG": (("input_gate",), "forget_gate", ()),
    "NFG": (("forget_gate",), "1.0", ()),
    "NOG": (("output_gate",), "forget_gate", ()),
    "NIAF": ((), "forget_gate", ("candidate",)),
    "NOAF": ((), "forget_gate", ("hidden_state",)),
    "CIFG": (("forget_gate",), "1 - input_gate", ()),
    "NP": ((), "forget_gate", ()),
    "FGR": ((), "forget_gate", ()),
}


@pytest.mark.parametrize(("variant", "parts"), PARTS.items(), ids=PARTS.keys())
def test_a_variant_declares_what_is_left(variant, parts):
    lacks, retention, unbounded = parts
    cell = PeepholeLSTMCell(3, 4, variant=variant)
    names = ("input_gate", "forget_gate", "candidate", "cell_state", "output_gate", "hidden_state")
    assert [signal.name for signal in cell.signals] == [name for name in names if name not in lacks]
    assert cell.retention == retention
    assert {s.name for s in cell.signals if s.bounds is None} - {"cell_state"} == set(unbounded)
    assert cell.gates == tuple(n for n in ("input_gate", "forget_gate", "candidate", "output_gate") if n not in lacks)
    seen = () if variant == "NP" else tuple(gate for gate in cell.gates if gate != "candidate")
    assert cell.peepholes == seen
    assert (cell.weight_peephole is None) == (not seen)
    assert cell.weight_peephole is None or cell.weight_peephole.shape == (len(seen), 4)


def drop(weights, gate):
    """The weights of the vanilla cell without the rows of one gate."""
    place, peephole = ("input_gate", "forget_gate", "candidate", "output_gate").index(gate), PEEPHOLE[gate]
    kept = {n: torch.cat([w[: 4 * place], w[4 * place + 4 :]]) for n, w in weights.items() if n != "weight_peephole"}
    rows = weights["weight_peephole"]
    return kept | {"weight_peephole": torch.cat([rows[:peephole], rows[peephole + 1 :]])}


PEEPHOLE = {"input_gate": 0, "forget_gate": 1, "output_gate": 2}


@pytest.mark.parametrize(("variant", "gate"), [("NIG", "input_gate"), ("NFG", "forget_gate"), ("NOG", "output_gate")])
def test_a_missing_gate_is_one_that_stands_open(variant, gate):
    vanilla, lacking = PeepholeLSTMCell(3, 4, dtype=DOUBLE), PeepholeLSTMCell(3, 4, variant=variant, dtype=DOUBLE)
    lacking.load_state_dict(drop(vanilla.state_dict(), gate))
    inputs, state = torch.randn(9, 2, 3, dtype=DOUBLE), start(vanilla, 2)

    def opened(name, value):
        return torch.ones_like(value) if name == gate else value

    expected, came = state, state
    for x in inputs:
        expected, came = vanilla(x, expected, opened), lacking(x, came)
    assert all((one - other).abs().max() < 1e-14 for one, other in zip(expected, came, strict=True))


def test_a_peephole_sees_its_own_unit_only_and_the_output_gate_the_new_memory():
    cell = PeepholeLSTMCell(1, 2, bias=False, dtype=DOUBLE)
    for weight in cell.parameters():
        torch.nn.init.zeros_(weight)
    with torch.no_grad():
        cell.weight_peephole.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]))
    memory = torch.tensor([[4.0, 5.0]], dtype=DOUBLE)
    before = (torch.zeros(1, 2, dtype=DOUBLE), memory)
    seen = run(cell, torch.zeros(1, 1, 1, dtype=DOUBLE), before)
    new = memory * torch.tensor(
        [[0.5, 1 / (1 + np.exp(-10))]], dtype=DOUBLE
    )  # candidate 0; forget gates 0.5, sigmoid(2 * 5)
    torch.testing.assert_close(seen["cell_state"][0], new)
    for gate, sees in {"input_gate": [4, 0], "forget_gate": [0, 10], "output_gate": [3 * new[0, 0].item(), 0]}.items():
        torch.testing.assert_close(seen[f"{gate}_preactivation"][0, 0], torch.tensor(sees, dtype=DOUBLE))


def test_gates_that_see_gates_are_carried_and_begin_at_zero():
    cell = PeepholeLSTMCell(3, 4, variant="FGR", dtype=DOUBLE)
    assert cell.states == ("hidden_state", "cell_state", "input_gate", "forget_gate", "output_gate")
    assert all(not state.any() for state in cell.zero_state(torch.zeros((), dtype=DOUBLE), (2,)))
    vanilla = PeepholeLSTMCell(3, 4, dtype=DOUBLE)
    vanilla.load_state_dict({name: w for name, w in cell.state_dict().items() if name != "weight_gates"})
    inputs, state = torch.randn(2, 2, 3, dtype=DOUBLE), start(cell, 2)
    zero = (*state[:2], *cell.zero_state(inputs, (2,))[2:])
    first, second = (run(c, inputs, s)["hidden_state"] for c, s in ((cell, zero), (vanilla, state[:2])))
    assert torch.equal(first[0], second[0])  # no gate before the first step
    assert not torch.allclose(first[1], second[1])


def test_each_of_the_nine_gate_matrices_leads_from_its_gate_to_its_gate():
    cell = PeepholeLSTMCell(3, 2, variant="FGR", dtype=DOUBLE)
    names = ("input_gate", "forget_gate", "output_gate")
    x, state = torch.randn(1, 1, 3, dtype=DOUBLE), start(cell, 1)
    plain = run(cell, x, state)
    for to, receiver in enumerate(names):
        for source in range(3):
            moved = list(state)
            moved[2 + source] = moved[2 + source] + torch.tensor([1.0, 0.0], dtype=DOUBLE)
            seen = run(cell, x, tuple(moved))
            change = seen[f"{receiver}_preactivation"] - plain[f"{receiver}_preactivation"]
            if receiver == "output_gate":  # which also sees the memory that the other gates have moved
                change = change - cell.weight_peephole[2] * (seen["cell_state"] - plain["cell_state"])
            torch.testing.assert_close(change[0, 0], cell.weight_gates[2 * to : 2 * to + 2, 2 * source].detach())


@pytest.mark.parametrize("variant", VARIANTS)
def test_stacked_and_packed_it_runs_as_any_cell_does(variant):
    network = Recurrent.stacked(lambda width: PeepholeLSTMCell(width, 4, variant=variant), 3, bidirectional=True)
    batch = torch.randn(6, 2, 3)
    packed, state = network(pack_padded_sequence(batch, torch.tensor([6, 4])))
    alone, own = network(batch[:4, 1:])
    padded = torch.nn.utils.rnn.pad_packed_sequence(packed)[0]
    torch.testing.assert_close(padded[:4, 1:], alone)
    for together, single in zip(state, own, strict=True):
        torch.testing.assert_close(together[:, 1:], single)


def test_declarations_are_each_cells_own():
    nfg, vanilla = PeepholeLSTMCell(3, 4, variant="NFG"), PeepholeLSTMCell(3, 4)
    assert (nfg.retention, vanilla.retention) == ("1.0", "forget_gate")
    assert not hasattr(PeepholeLSTMCell, "retention")


def test_an_unknown_variant_is_refused_with_the_list():
    with pytest.raises(ValueError, match=r"variant of PeepholeLSTMCell must be one of vanilla, NIG, .*FGR; 'GRU' came"):
        PeepholeLSTMCell(3, 4, variant="GRU")


def test_its_text_names_the_variant():
    assert repr(PeepholeLSTMCell(3, 4, variant="NP")) == "PeepholeLSTMCell(3, 4, variant='NP')"
