"""Networks whose weights were set by hand, so that time scale, limit, slope and what is held are known."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gatescope as gs

STEPS, SEGMENT = 240, 12
SHUT, OPEN = -30.0, 30.0  # in float32 the logistic function of 30 is exactly 1


def gates(*biases: tuple[float, float, float, float]) -> nn.LSTM:
    """An LSTM of three inputs without recurrence; of each unit the biases of input, forget, candidate, output gate."""
    network = nn.LSTM(3, len(biases), batch_first=True)
    with torch.no_grad():
        for weight in network.parameters():
            weight.zero_()
        network.bias_ih_l0.view(4, -1).copy_(torch.tensor(biases).T)
    return network


def logit(share: float) -> float:
    return float(np.log(share / (1 - share)))


def test_time_scale_and_limit_of_a_leaking_cell_are_those_of_its_gates() -> None:
    network = gates((logit(0.5), logit(0.9), 1.0, OPEN), (logit(0.25), logit(0.5), -1.0, OPEN))
    with torch.no_grad():
        recording = gs.record(network, torch.zeros(2, STEPS, 3))
    scales, found = gs.timescales(recording), gs.drift(recording)
    expected = [-1 / np.log(0.9), -1 / np.log(0.5)]
    np.testing.assert_allclose(scales["gate"].values.ravel(), expected, rtol=1e-4)
    np.testing.assert_allclose(scales["jacobian"].values.ravel()[0], expected[0], rtol=0.1)
    limits = [0.5 * np.tanh(1.0) / 0.1, -0.25 * np.tanh(1.0) / 0.5]
    np.testing.assert_allclose(found["limit"].values.ravel(), limits, rtol=1e-4)
    np.testing.assert_allclose(found["level"].values.ravel(), np.abs(limits), rtol=1e-4)
    assert found["verdict"].values.ravel().tolist() == ["settled", "settled"]


def test_the_limit_of_a_gru_is_its_candidate_and_its_time_scale_that_of_the_update_gate() -> None:
    network = nn.GRU(3, 1, batch_first=True)
    with torch.no_grad():
        for weight in network.parameters():
            weight.zero_()
        network.bias_ih_l0.copy_(torch.tensor([0.0, logit(0.8), 0.7]))  # r, z, n
        recording = gs.record(network, torch.zeros(1, STEPS, 3))
    assert gs.timescales(recording)["gate"].item() == pytest.approx(-1 / np.log(0.8), rel=1e-4)
    assert gs.drift(recording)["limit"].item() == pytest.approx(np.tanh(0.7), rel=1e-4)


def test_a_counter_adds_its_slope_at_every_step_and_has_no_limit() -> None:
    network = gates((logit(0.5), OPEN, 0.2, OPEN), (logit(0.25), OPEN, -0.4, OPEN))
    with torch.no_grad():
        recording = gs.record(network, torch.zeros(1, STEPS, 3))
    found = gs.drift(recording)
    np.testing.assert_allclose(found["slope"].values.ravel(), [0.5 * np.tanh(0.2), 0.25 * np.tanh(0.4)], rtol=1e-4)
    assert found["limit"].values.ravel().tolist() == [np.inf, -np.inf]
    assert set(found["verdict"].values.ravel()) == {"growing"}
    shown = np.flatnonzero(np.tanh(0.5 * np.tanh(0.2) * np.arange(1, STEPS + 1)) > 0.95)[0]
    assert found["saturated_from"].values.ravel()[0] == shown


def segments(seed: int = 0) -> tuple[Tensor, dict[str, np.ndarray]]:
    """Inputs: a mark at each segment's start, what is told there (1 or -1), and how fast to count; and labels."""
    rng = np.random.default_rng(seed)
    shape = (8, STEPS // SEGMENT)
    told, speed = rng.choice([-1.0, 1.0], shape), rng.choice([0.1, 0.2, 0.4], shape)
    start = np.broadcast_to(np.arange(STEPS) % SEGMENT == 0, (8, STEPS))
    held, fast = (np.repeat(values, SEGMENT, axis=1) for values in (told, speed))
    inputs = np.stack([start, np.where(start, held, 0.0), fast], axis=2)
    side = np.where(held > 0, "left", "right").astype(object)
    pace = np.array(["slow", "middle", "fast"], dtype=object)[np.searchsorted([0.1, 0.2, 0.4], fast)]
    return torch.tensor(inputs, dtype=torch.float32), {"side": side, "pace": pace, "boundary": start}


def test_a_latch_a_counter_and_a_clock_that_were_built_are_found_and_their_resets_too() -> None:
    network = gates((SHUT, OPEN, 0.0, OPEN), (OPEN, OPEN, 0.0, OPEN), (OPEN, OPEN, 0.1, OPEN), (0.0, 0.0, 0.0, OPEN))
    weight = network.weight_ih_l0.data.view(4, 4, 3)  # (gate, unit, input)
    weight[1, :3, 0] = 2 * SHUT  # the mark empties latch, counter and clock
    weight[0, 0, 0], weight[2, 0, 1] = 2 * OPEN, 2.0  # and has the latch take what is told there
    weight[2, 1, 2] = 1.0  # the counter adds what the third input says
    weight[2, 3, :] = 1.0  # the last unit is a leaky one of everything
    inputs, labels = segments()
    with torch.no_grad():
        recording = gs.record(network, inputs, labels=labels)
    result = gs.roles(recording, "side", samples=20)
    assert result["unit_role"].values.ravel().tolist()[:3] == ["latch", "counter", "clock"]
    assert result["confidence"].values.ravel()[:3].tolist() == [1.0, 1.0, 1.0]
    aligned = gs.alignment(gs.resets(recording)).isel(layer=0, direction=0, unit=[0, 1, 2])
    assert (aligned["precision"].values == 1).all()
    assert (aligned["recall"].values == 1).all()
    held = gs.selectivity(recording, "side", signals=["cell_state"]).squeeze()
    assert held["sign_code"].values[0].tolist() == [1.0, -1.0]
    assert held["auc"].values[0].tolist() == [1.0, 0.0]
    assert held["mutual_information"].values[0] > 0.95  # of one bit
    paced = gs.selectivity(recording, "pace", signals=["candidate"]).squeeze()
    assert paced["mutual_information"].values[1] == pytest.approx(np.log2(3), abs=0.05)
    assert gs.roles(recording, "pace", samples=5)["unit_role"].values.ravel()[0] != "latch"
