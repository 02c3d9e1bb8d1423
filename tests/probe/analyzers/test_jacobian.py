"""Step Jacobians from recordings beside torch.func on the cell's own forward, in float64."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
import xarray as xr

import gatescope as gs
from gatescope.cells import (
    AbstractCell,
    GRUCell,
    LSTMCell,
    MemoryBlockCell,
    PeepholeLSTMCell,
    Recurrent,
    ResetBeforeGRUCell,
    RNNCell,
)
from gatescope.probe.analyzers.jacobian import CELLS, DIRECT, OUTPUT
from gatescope.probe.analyzers.paths import path_shares
from gatescope.probe.analyzers.reading import Source
from gatescope.probe.analyzers.steps import FactoredSteps, matrices

Make = Callable[[int], AbstractCell]
WIDTH, UNITS, STEPS, SEQUENCES = 3, 6, 5, 2
FLOAT64 = {"dtype": torch.float64}

TABLE: dict[str, Make] = {
    "lstm": lambda width: LSTMCell(width, UNITS, **FLOAT64),
    "lstm without bias": lambda width: LSTMCell(width, UNITS, bias=False, **FLOAT64),
    "lstm, projected": lambda width: LSTMCell(width, UNITS, proj_size=4, **FLOAT64),
    "gru": lambda width: GRUCell(width, UNITS, **FLOAT64),
    "gru without bias": lambda width: GRUCell(width, UNITS, bias=False, **FLOAT64),
    "gru, reset before, torch": lambda width: ResetBeforeGRUCell(width, UNITS, **FLOAT64),
    "gru, reset before, textbook": lambda width: ResetBeforeGRUCell(width, UNITS, convention="textbook", **FLOAT64),
    "rnn, tanh": lambda width: RNNCell(width, UNITS, **FLOAT64),
    "rnn, relu": lambda width: RNNCell(width, UNITS, nonlinearity="relu", **FLOAT64),
    **{
        f"peephole lstm, {variant}": lambda width, variant=variant: PeepholeLSTMCell(
            width, UNITS, variant=variant, **FLOAT64
        )
        for variant in ("vanilla", "NIG", "NFG", "NOG", "NIAF", "NOAF", "CIFG", "NP")
    },
    **{
        f"memory block, {name}": lambda width, options=options: MemoryBlockCell(
            width, blocks=3, size=2, **options, **FLOAT64
        )
        for name, options in {
            "1999": {},
            "1997": {"forget": "none"},
            "decay": {"forget": 0.9},
            "no input gate": {"input_gate": False},
            "no output gate": {"output_gate": False},
            "no gate": {"input_gate": False, "output_gate": False, "forget": "none"},
        }.items()
    },
}
each_cell = pytest.mark.parametrize("make", TABLE.values(), ids=TABLE)


def network(make: Make) -> Recurrent:
    torch.manual_seed(0)
    model = Recurrent.stacked(make, WIDTH, num_layers=2, bidirectional=True)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    return model


@cache
def recorded(make: Make) -> tuple[Recurrent, xr.Dataset, torch.Tensor]:
    """A network of random weights, its recording and its input (time, sequence, width)."""
    model = network(make)
    x = torch.randn(STEPS, SEQUENCES, WIDTH, **FLOAT64)
    initial = tuple(torch.randn(4, SEQUENCES, size, **FLOAT64) for size in model.first_cell.state_sizes)
    return model, gs.record(model, x, initial if len(initial) > 1 else initial[0]), x


def states(recording: xr.Dataset, cell: AbstractCell, layer: int, direction: int, sequence: int) -> list[np.ndarray]:
    """Each state of a sequence in the order of reading, the initial one first: (step, width)."""
    found = []
    for name in cell.states:
        values = recording[name].values[layer, direction, sequence]
        initial = recording[f"initial_{name}"].values[layer, direction, sequence]
        found.append(np.concatenate([initial[None], values[::-1] if direction else values]))
    return found


def inputs(recording: xr.Dataset, x: torch.Tensor, layer: int, direction: int, sequence: int) -> torch.Tensor:
    values = x[:, sequence]
    if layer:
        values = torch.tensor(np.concatenate([recording["hidden_state"].values[0, d, sequence] for d in (0, 1)], -1))
    return values.flip(0) if direction else values


def true_jacobians(model: Recurrent, recording: xr.Dataset, x: torch.Tensor, place: tuple[int, int, int]) -> np.ndarray:
    """d(state)_t / d(state)_{t-1} for all steps of a sequence, by torch.func on the cell's forward."""
    cell = model.cells[place[0]][place[1]]
    before = states(recording, cell, *place)
    widths = [state.shape[1] for state in before]

    def step(joined: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        return torch.cat(cell(read, tuple(joined.split(widths))))

    joined = torch.tensor(np.concatenate(before, axis=1)[:-1])
    read = inputs(recording, x, *place)
    found = [torch.func.jacrev(step)(state, value) for state, value in zip(joined, read, strict=True)]
    return torch.stack(found).detach().numpy()


PLACES = [(0, 1, 0), (1, 0, 1)]


@each_cell
def test_steps_are_those_of_torch_func_on_the_cell(make: Make) -> None:
    model, recording, x = recorded(make)
    source = Source(recording, "gradient_flow")
    for place in PLACES:
        steps = source.steps(source.part(*place[:2], np.arange(SEQUENCES)))
        at = (np.full(STEPS, place[2]), np.arange(STEPS))
        expected = true_jacobians(model, recording, x, place)
        np.testing.assert_allclose(matrices(steps, at), expected, rtol=0, atol=1e-12)


@each_cell
def test_columns_are_pushed_by_the_matrices_that_pull_rows(make: Make) -> None:
    _, recording, _ = recorded(make)
    source = Source(recording, "gradient_flow")
    steps = source.steps(source.part(1, 1, [0, 1]))
    at = (np.array([1, 0, 1]), np.array([4, 2, 0]))
    columns = tuple(np.random.default_rng(0).normal(size=(3, width, 2)) for width in steps.widths)
    pushed = np.concatenate(steps.push(columns, at), axis=1)
    np.testing.assert_allclose(pushed, matrices(steps, at) @ np.concatenate(columns, axis=1), rtol=0, atol=1e-12)


@each_cell
def test_cutting_every_path_in_turn_leaves_the_sum_of_the_others(make: Make) -> None:
    _, recording, _ = recorded(make)
    source = Source(recording, "gradient_flow")
    factors = source.factors(source.part(0, 0, [0, 1]), np.float64)
    at = (np.array([0, 1]), np.array([2, 3]))
    whole = matrices(FactoredSteps(factors), at)
    if factors.shown is None:
        alone = [whole - matrices(FactoredSteps(factors.without(path)), at) for path in factors.every_path]
        np.testing.assert_allclose(sum(alone), whole, rtol=0, atol=1e-12)
    nothing = factors
    for path in factors.every_path:
        nothing = nothing.without(path)
    assert nothing.every_path == ()
    np.testing.assert_array_equal(matrices(FactoredSteps(nothing), at), np.zeros_like(whole))


@each_cell
def test_what_a_change_of_the_memory_changes_in_its_own_step_is_the_derivative(make: Make) -> None:
    model, recording, x = recorded(make)
    source = Source(recording, "gradient_flow")
    steps = source.steps(source.part(0, 0, [0, 1]))
    cell = model.cells[0][0]
    if len(cell.states) == 1:
        assert (
            steps.total(tuple(np.zeros((1, 1, width)) for width in steps.widths), (np.array([0]), np.array([0])))
            is None
        )
        return
    # the whole Jacobian is [dh/dc A, ...; A, ...] in what reaches c: [dh/dc; 1] is read off the peephole-free column
    rows = np.eye(sum(steps.widths))[None]
    parts = tuple(np.split(rows, np.cumsum(steps.widths)[:-1], axis=2))
    found = steps.total(parts, (np.array([1]), np.array([3])))
    memory = torch.tensor(states(recording, cell, 0, 0, 1)[1][4])

    def shown(c: torch.Tensor) -> torch.Tensor:
        """`forward` with the memory put in by hand, where the output gate sees it."""
        hidden = torch.tensor(states(recording, cell, 0, 0, 1)[0][3])
        before = torch.tensor(states(recording, cell, 0, 0, 1)[1][3])
        return cell(x[3, 1], (hidden, before), tap=lambda name, value: c if name == "cell_state" else value)[0]

    expected = np.concatenate([torch.func.jacrev(shown)(memory).detach().numpy(), np.eye(len(memory))])
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=1e-12)


@each_cell
def test_shares_are_inner_products_of_whole_terms_and_add_to_one(make: Make) -> None:
    _, recording, _ = recorded(make)
    source = Source(recording, "gradient_flow")
    factors = source.factors(source.part(1, 0, [0, 1]), np.float64)
    found = path_shares(factors)
    if factors.shown is not None:
        assert np.isnan(found[:, 0]).all()
    np.testing.assert_allclose(found[:, 1:].sum(axis=-1), 1, rtol=0, atol=1e-12)
    for t in (1, STEPS - 1):
        terms = dense_terms(factors, 1, t)
        whole = sum(terms.values())
        expected = [np.vdot(terms[path], whole) / np.vdot(whole, whole) for path in factors.every_path]
        np.testing.assert_allclose(found[1, t], expected, rtol=0, atol=1e-12)


def dense_terms(factors, sequence, t):
    """Every path's term of d(shown, memory)_t / d memory_{t-1} as a matrix."""
    units = factors.rows.shape[-1]
    into = {
        path: np.diag(factors.rows[sequence, t, place]) @ factors.weight[place]
        for place, path in enumerate(factors.paths)
    }
    for chain in factors.chains:
        weight = np.eye(units) if chain.weight is None else chain.weight
        into[chain.path] = np.diag(chain.rows[sequence, t]) @ chain.outer @ np.diag(chain.inner[sequence, t]) @ weight
    if factors.shown is None:
        return into | ({DIRECT: np.diag(factors.keep[sequence, t])} if factors.keep is not None else {})
    projection = np.eye(units) if factors.projection is None else factors.projection
    exposed = factors.exposed()
    before = projection @ np.diag(exposed[sequence, t - 1])
    memory = {path: matrix @ before for path, matrix in into.items()}
    if factors.peeps is not None:
        memory = {path: memory[path] + np.diag(factors.peeps[sequence, t, p]) for p, path in enumerate(factors.paths)}
    memory[DIRECT] = np.diag(factors.keep[sequence, t])
    terms = {p: np.vstack([np.diag(factors.shown[sequence, t]) @ matrix, matrix]) for p, matrix in memory.items()}
    if factors.read is not None:
        shown = np.diag(factors.read[sequence, t]) @ factors.read_weight @ before
        if factors.read_peep is not None:
            shown = shown + np.diag(factors.read_peep[sequence, t]) @ sum(memory.values())
        terms[OUTPUT] = np.vstack([shown, np.zeros((units, units))])
    return terms


def test_every_cell_with_a_jacobian_is_in_the_table() -> None:
    named = {type(make(WIDTH)).__name__ for make in TABLE.values()}
    assert named == set(CELLS)


@pytest.mark.parametrize(
    "make",
    [
        lambda width: PeepholeLSTMCell(width, UNITS, variant="FGR", **FLOAT64),
        lambda width: MemoryBlockCell(width, blocks=3, size=2, gates_see_gates=True, **FLOAT64),
    ],
    ids=["FGR", "gates see gates"],
)
def test_gates_that_are_states_are_refused_by_name_with_the_way_out(make: Make) -> None:
    _, recording, _ = recorded(make)
    with pytest.raises(ValueError, match=r"the gates of .* also see the gates .*jacobian=True"):
        Source(recording, "gradient_flow")
