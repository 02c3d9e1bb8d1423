"""The running product of the retention: by hand, against the gates, in both directions, with exact zeros."""

import numpy as np
import torch
from torch import nn

import gatescope as gs
from gatescope.probe.retention import log_retention


def test_products_of_the_retention_are_differences_of_the_sum():
    torch.manual_seed(0)
    recording = gs.record(nn.LSTM(3, 4, num_layers=2).double(), torch.randn(9, 2, 3).double())
    gate, sums = recording.forget_gate, recording.log_retention_sum
    product = gate.isel(time=slice(3, 8)).prod("time")
    np.testing.assert_allclose(np.exp(sums.isel(time=7) - sums.isel(time=2)), product, rtol=1e-12)


def test_backward_sums_run_from_the_last_real_step():
    torch.manual_seed(0)
    packed = nn.utils.rnn.pack_padded_sequence(
        torch.randn(6, 2, 3).double(), torch.tensor([4, 6]), enforce_sorted=False
    )
    recording = gs.record(nn.GRU(3, 4, bidirectional=True).double(), packed)
    sums = recording.log_retention_sum.sel(direction="backward", sequence=0, layer=0)
    gate = recording.update_gate.sel(direction="backward", sequence=0, layer=0)
    np.testing.assert_allclose(sums.isel(time=3), np.log(gate.isel(time=3)), rtol=1e-12)
    np.testing.assert_allclose(sums.isel(time=0), np.log(gate.isel(time=slice(0, 4))).sum("time"), rtol=1e-12)
    assert np.isnan(sums.isel(time=slice(4, 6))).all()


def test_a_product_far_below_the_smallest_number_stays_finite():
    gate = np.full((1, 1, 1, 2000, 1), 0.1)
    sums = log_retention("forget_gate", {"forget_gate": gate}, np.zeros((1, 2000), bool))["log_retention_sum"][0]
    np.testing.assert_allclose(sums[..., -1, 0] / np.log(10), -2000, rtol=1e-12)


def test_exact_zeros_are_counted_apart():
    gate = np.array([0.5, 0.0, 0.5, 0.0]).reshape(1, 1, 1, 4, 1)
    found = log_retention("1 - input_gate", {"input_gate": 1 - gate}, np.zeros((1, 4), bool))
    np.testing.assert_allclose(np.exp(found["log_retention_sum"][0]).ravel(), [0.5, 0.5, 0.25, 0.25])
    assert found["retention_zeros"][0].ravel().tolist() == [0, 1, 1, 2]


def test_constant_retention_needs_no_signal_and_none_gives_nothing():
    signals = {"cell_state": np.zeros((1, 1, 1, 3, 1))}
    sums = log_retention("0.5", signals, np.zeros((1, 3), bool))["log_retention_sum"][0]
    np.testing.assert_allclose(np.exp(sums).ravel(), [0.5, 0.25, 0.125])
    assert log_retention("none", signals, np.zeros((1, 3), bool)) == {}
    assert "log_retention_sum" not in gs.record(nn.RNN(3, 4), torch.zeros(5, 2, 3))


def test_a_choice_of_signals_leaves_the_sum_out():
    recording = gs.record(nn.LSTM(3, 4), torch.zeros(5, 2, 3), signals=["forget_gate"])
    assert "log_retention_sum" not in recording
