"""The trained networks that come with gatescope: made again bit by bit, and each shows what its line says."""

from typing import Any

import numpy as np
import pytest
import torch

import gatescope as gs
from gatescope.tasks.examples import EXAMPLES, read_example, train_example
from gatescope.tasks.experiment import VARIANTS


def read(name: str, size: int = 2000) -> tuple[Any, gs.tasks.Sample, np.ndarray, Any]:
    """Model, sample, whether each step's prediction is right, and the recording."""
    model, sample = gs.load_example(name, size=size)
    reset = torch.from_numpy(sample.labels["boundary"]) if name == "cerg-external-reset" else None
    with torch.no_grad(), gs.attach(model) as probe:
        outputs, _ = model(torch.from_numpy(sample.inputs), reset=reset)
    right = (np.abs(outputs.numpy() - sample.targets) < 0.49).all(-1)[0]
    return model, sample, right, probe.recording()


@pytest.mark.parametrize("name", ["cerg-forget", "cerg-external-reset"])
def test_training_an_example_again_gives_the_same_bits(name: str) -> None:
    weights, setting, network = read_example(name)
    assert (setting, network) == (VARIANTS[EXAMPLES[name].row], EXAMPLES[name].network)
    outcome = train_example(name)
    assert outcome.tests == outcome.retests == (100_000,) * 10
    for entry, weight in outcome.weights.items():
        np.testing.assert_array_equal(weight, weights[entry], err_msg=entry)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cerg-latch", "cerg-partial", "cerg-1997"])
def test_training_the_other_examples_again_gives_the_same_bits(name: str) -> None:
    weights, setting, network = read_example(name)
    assert (setting, network) == (VARIANTS[EXAMPLES[name].row], EXAMPLES[name].network)
    for entry, weight in train_example(name).weights.items():
        np.testing.assert_array_equal(weight, weights[entry], err_msg=entry)


def test_every_example_is_listed_with_a_line_and_loads_the_same_each_time() -> None:
    assert set(gs.examples()) == {*EXAMPLES, "flip-flop"}
    for name, line in gs.examples().items():
        assert 40 < len(line) < 90
        (model, sample), (again, other) = gs.load_example(name, size=50), gs.load_example(name, size=80)
        assert not model.training
        assert {weight.dtype for weight in model.parameters()} == {torch.float32}
        assert all(map(torch.equal, model.parameters(), again.parameters()))
        np.testing.assert_array_equal(sample.inputs, other.inputs[:, :50])


def gates_at_ends(sample: gs.tasks.Sample, recording: Any) -> tuple[np.ndarray, np.ndarray]:
    """Forget gates (step, block): the lower of a string's last and the next one's first step, and all other steps."""
    gate = recording["forget_gate"].squeeze(["layer", "direction", "sequence"]).values[:, ::2]
    starts = np.flatnonzero(sample.labels["boundary"][0])[1:]
    others = np.ones(len(gate), bool)
    others[starts] = others[starts - 1] = False
    return np.minimum(gate[starts], gate[starts - 1]), gate[others]


def tells_t_from_p(sample: gs.tasks.Sample, recording: Any, unit: int) -> bool:
    """Whether one threshold on a cell's state, where the symbol is needed at last, separates the two."""
    held = sample.labels["remember"][0]
    last = np.flatnonzero((held != "") & (np.append(held[1:], "") == ""))
    state = recording["cell_state"].isel(unit=unit).squeeze().values[last]
    t, p = state[held[last] == "T"], state[held[last] == "P"]
    return bool(t.min() > p.max() or p.min() > t.max())


def test_one_block_of_the_clean_example_resets_at_every_end_and_nowhere_else() -> None:
    _, sample, right, recording = read("cerg-forget")
    ends, others = gates_at_ends(sample, recording)
    assert right.all()
    assert len(ends) > 150
    assert ends[:, 2].max() < 0.05
    assert others[:, 2].min() > 0.5
    assert others[:, 2].mean() > 0.98
    assert [unit for unit in range(8) if tells_t_from_p(sample, recording, unit)] == [5]  # a cell of that block


def test_a_cell_of_the_latch_example_holds_t_and_p_by_its_sign_and_is_reset_at_every_end() -> None:
    _, sample, right, recording = read("cerg-latch")
    ends, others = gates_at_ends(sample, recording)
    held, state = sample.labels["remember"][0], recording["cell_state"].isel(unit=5).squeeze().values
    assert right.all()
    assert (state[held == "T"] > 0).mean() > 0.98
    assert (state[held == "P"] < 0).mean() > 0.98
    assert ends[:, 2].max() < 0.2
    assert others[:, 2].mean() > 0.95
    role = gs.roles(recording.assign_coords(remember=(("sequence", "time"), held[None])), "remember", samples=20)
    assert role["block_role"].values.ravel()[2] == "latch"
    assert role["unit_role"].values.ravel()[5] == "latch"


def test_the_holding_block_of_the_partial_example_keeps_a_part() -> None:
    _, sample, right, recording = read("cerg-partial")
    ends, others = gates_at_ends(sample, recording)
    assert right.all()
    assert 0.1 < ends[:, 3].min() < ends[:, 3].max() < 0.3
    assert others[:, 3].min() > 0.5
    assert tells_t_from_p(sample, recording, 6) or tells_t_from_p(sample, recording, 7)


def test_states_of_the_1997_example_run_away_and_its_predictions_go_wrong() -> None:
    _, _, right, recording = read("cerg-1997")
    state = recording["cell_state"].squeeze().values
    line = np.corrcoef(np.arange(len(state)), state[:, 0])[0, 1]
    assert line**2 > 0.99
    assert abs(state[-1, 0]) > 1000
    assert right[:50].all()
    assert right[-500:].mean() < 0.85


def test_the_external_reset_example_is_right_only_with_its_resets() -> None:
    model, sample, right, recording = read("cerg-external-reset")
    assert right.all()
    assert recording.sizes["sequence"] == sample.labels["boundary"].sum()
    with torch.no_grad():
        alone = model(torch.from_numpy(sample.inputs))[0].numpy()
    assert (np.abs(alone - sample.targets) < 0.49).all(-1).mean() < 0.9


def test_an_unknown_example_is_refused() -> None:
    with pytest.raises(ValueError, match=r"name must be one of 'cerg-forget', .*; 'cerg' came"):
        gs.load_example("cerg")
