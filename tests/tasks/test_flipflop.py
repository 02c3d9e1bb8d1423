"""The flip-flop as data, and the trained network that holds it."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

import gatescope as gs
from gatescope.tasks import FlipFlop
from gatescope.tasks.flipflop_example import train_flipflop


def test_targets_are_the_sign_of_the_last_pulse_of_each_input() -> None:
    sample = FlipFlop(bits=4, pulse=0.2, streams=3, seed=2).sample(200)
    held = np.zeros((3, 4))
    for step in range(200):
        pulses = sample.inputs[:, step]
        held = np.where(pulses != 0, pulses, held)
        np.testing.assert_array_equal(sample.targets[:, step], held > 0)
    assert sample.mask.all()
    assert (sample.inputs.dtype, sample.targets.dtype) == (np.float32, np.float32)
    assert (sample.inputs[:, 0] != 0).all()


def test_labels_spell_the_bits_and_the_pulses() -> None:
    sample = FlipFlop(bits=3, seed=1).sample(50)
    for step in range(50):
        bits = "".join("+" if bit else "-" for bit in sample.targets[0, step])
        pulses = "".join({0: ".", 1: "+", -1: "-"}[int(value)] for value in sample.inputs[0, step])
        assert (sample.labels["held"][0, step], sample.labels["pulses"][0, step]) == (bits, pulses)


def test_pulses_come_as_often_as_asked_and_either_sign_alike() -> None:
    inputs = FlipFlop(pulse=0.3, seed=3).sample(40_000).inputs[0, 1:]
    assert (inputs != 0).mean() == pytest.approx(0.3, abs=0.01)
    assert (inputs > 0).sum() / (inputs != 0).sum() == pytest.approx(0.5, abs=0.02)
    together = np.corrcoef(inputs.T)[np.triu_indices(3, 1)]
    assert np.abs(together).max() < 0.03


def test_chunks_go_on_and_a_larger_sample_begins_with_a_smaller_one() -> None:
    task = FlipFlop(streams=2, seed=4)
    whole = task.sample(60)
    chunks = list(islice(task.chunks(20), 3))
    for name in ("inputs", "targets"):
        np.testing.assert_array_equal(np.concatenate([getattr(c, name) for c in chunks], 1), getattr(whole, name))
    np.testing.assert_array_equal(task.sample(7).inputs, whole.inputs[:, :7])


def test_streams_are_keyed_one_by_one_and_kinds_never_meet() -> None:
    third = FlipFlop(stream=5, streams=3).sample(30).inputs[2]
    np.testing.assert_array_equal(third, FlipFlop(stream=7).sample(30).inputs[0])
    training = next(FlipFlop().batches("training", first=0, streams=1, steps=30))
    assert not np.array_equal(training.inputs, FlipFlop().sample(30).inputs)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"bits": 0}, "bits must be a whole number from 1 on; 0 came"),
        ({"bits": 2.5}, "bits must be a whole number"),
        ({"pulse": 0.0}, "pulse must be a chance above 0 and at most 1; 0.0 came"),
        ({"pulse": 1.5}, "pulse must be a chance"),
        ({"streams": 0}, "streams must be a whole number from 1 on"),
        ({"seed": -1}, "seed must be a whole number from 0 on; -1 came"),
        ({"kind": "other"}, "kind must be one of"),
    ],
)
def test_numbers_out_of_range_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        FlipFlop(**given)


def test_the_shipped_network_makes_no_mistake_on_streams_it_never_read() -> None:
    model, sample = gs.load_example("flip-flop", size=300)
    assert not model.training
    assert (gs.tasks.first_errors(model, FlipFlop(), streams=4, steps=1000) == 1000).all()
    recording = gs.record(model, torch.from_numpy(sample.inputs), labels=sample.labels)
    assert recording.sizes["unit"] == 16
    assert recording["held"].values[0, 0] == sample.labels["held"][0, 0]


@pytest.mark.slow
def test_training_the_shipped_network_again_solves_the_task_and_leaves_the_generator() -> None:
    random = torch.get_rng_state()
    model, history = train_flipflop(test_steps=20_000)
    assert history.solved
    assert torch.equal(torch.get_rng_state(), random)
    assert (gs.tasks.first_errors(model, FlipFlop(), streams=4, steps=1000) == 1000).all()
