"""The GRU that resets before the product: its two conventions, and how it differs from torch's."""

import pytest
import torch

from gatescope.cells import GRUCell, ResetBeforeGRUCell

DOUBLE = torch.float64


def run(cell, inputs, h):
    found = []
    for x in inputs:
        (h,) = cell(x, (h,))
        found.append(h)
    return torch.stack(found)


@pytest.mark.parametrize("bias", [True, False])
def test_negated_update_weights_turn_one_convention_into_the_other(bias):
    ours = ResetBeforeGRUCell(3, 4, bias=bias, dtype=DOUBLE)
    textbook = ResetBeforeGRUCell(3, 4, convention="textbook", bias=bias, dtype=DOUBLE)
    weights = {name: weight.clone() for name, weight in ours.state_dict().items()}
    textbook.load_state_dict(weights)
    inputs, h = torch.randn(30, 2, 3, dtype=DOUBLE), torch.randn(2, 4, dtype=DOUBLE)
    assert (run(ours, inputs, h) - run(textbook, inputs, h)).abs().max() > 0.1
    for weight in weights.values():
        weight[4:8] *= -1
    textbook.load_state_dict(weights)
    assert (run(ours, inputs, h) - run(textbook, inputs, h)).abs().max() < 1e-13


def test_the_conventions_say_what_keeps():
    assert ResetBeforeGRUCell(3, 4).retention == "update_gate"
    assert ResetBeforeGRUCell(3, 4, convention="textbook").retention == "1 - update_gate"


def test_where_nothing_is_reset_it_is_torchs_gru():
    """With reset gates of 1 the product comes before or after alike; with others it does not."""
    ours, torchs = ResetBeforeGRUCell(3, 4, dtype=DOUBLE), GRUCell(3, 4, dtype=DOUBLE)
    torchs.load_state_dict(ours.state_dict())
    inputs, h = torch.randn(9, 2, 3, dtype=DOUBLE), torch.randn(2, 4, dtype=DOUBLE)
    assert (run(ours, inputs, h) - run(torchs, inputs, h)).abs().max() > 1e-3
    with torch.no_grad():
        for cell in (ours, torchs):
            cell.bias_ih[:4] = 100.0
    assert (run(ours, inputs, h) - run(torchs, inputs, h)).abs().max() < 1e-13


def test_a_shut_reset_gate_leaves_the_recurrent_bias_alone():
    cell = ResetBeforeGRUCell(3, 4, dtype=DOUBLE)
    with torch.no_grad():
        cell.bias_ih[:4] = -1e4
    seen = {}

    def tap(name, value):
        seen[name] = value
        return value

    cell(torch.randn(3, dtype=DOUBLE), (torch.randn(4, dtype=DOUBLE),), tap)
    assert torch.equal(seen["candidate_recurrent"], cell.bias_hh[8:])


def test_an_unknown_convention_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match=r"must be 'torch' .* or 'textbook' .*; 'keras' came"):
        ResetBeforeGRUCell(3, 4, convention="keras")
