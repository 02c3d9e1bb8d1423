"""The linear scan against the recurrence written out in numpy's longest floating-point type."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gatescope.cells import linear_scan, scan, step


def written_out(keep, write, initial):
    memory, result = initial.numpy().astype(np.longdouble), []
    for keep_now, write_now in zip(keep.numpy(), write.numpy(), strict=True):
        memory = keep_now * memory + write_now
        result.append(memory)
    return torch.from_numpy(np.stack(result).astype(np.float64))


def drawn(steps, sequences=2, units=3, low=0.0, high=1.0):
    shape = (steps, sequences, units)
    keep = low + (high - low) * torch.rand(shape, dtype=torch.float64)
    return keep, torch.randn(shape, dtype=torch.float64), torch.randn(shape[1:], dtype=torch.float64)


def went_in_blocks(monkeypatch):
    calls = []
    blocked = scan._blocked
    monkeypatch.setattr(scan, "_blocked", lambda *arguments: calls.append(1) or blocked(*arguments))
    return calls


@settings(max_examples=40, deadline=None)
@given(steps=st.integers(1, 300), sequences=st.integers(1, 4), units=st.integers(1, 5))
def test_both_ways_equal_the_recurrence_for_any_shape(steps, sequences, units):
    keep, write, initial = drawn(steps, sequences, units)
    true = written_out(keep, write, initial)
    for way in (linear_scan, scan._loop, scan._blocked):
        result = way(keep, write, initial)
        assert result.shape == true.shape
        assert (result - true).abs().max() < 1e-13


@pytest.mark.parametrize(
    ("steps", "units", "blocks"), [(64, 512, False), (65, 512, True), (65, 513, False), (200, 1, True)]
)
def test_blocks_are_taken_only_where_the_scan_is_long_and_narrow(monkeypatch, steps, units, blocks):
    calls = went_in_blocks(monkeypatch)
    linear_scan(*drawn(steps, 1, units))
    assert bool(calls) is blocks


def test_keep_of_exactly_zero_forgets_exactly():
    keep, write, initial = drawn(150)
    keep[[0, 37, 38, 120]] = 0
    for way in (scan._loop, scan._blocked):
        result = way(keep, write, initial)
        assert torch.equal(result[[0, 37, 38, 120]], write[[0, 37, 38, 120]])
        assert (result - written_out(keep, write, initial)).abs().max() < 1e-13


def test_products_that_underflow_leave_no_trace():
    keep, write, initial = drawn(2000, low=1e-12, high=1e-10)
    result = linear_scan(keep, write, initial)
    assert (result - written_out(keep, write, initial)).abs().max() < 1e-13


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 5e-6)])
def test_two_thousand_steps_that_keep_nearly_all_stay_accurate(dtype, tolerance):
    keep, write, initial = (values.to(dtype) for values in drawn(2000, low=0.9999, high=1.0))
    true = written_out(keep.double(), write.double() + 0.5, initial.double())
    result = linear_scan(keep, (write.double() + 0.5).to(dtype), initial)
    assert true.abs().max() > 400
    assert (result - true).abs().max() / true.abs().max() < tolerance


@pytest.mark.parametrize("way", [scan._loop, scan._blocked])
def test_gradients_equal_finite_differences_also_where_keep_is_zero(way):
    keep, write, initial = drawn(11, 1, 2)
    keep[4, 0, 0] = 0
    keep[10, 0, 1] = 0
    assert torch.autograd.gradcheck(way, [values.requires_grad_() for values in (keep, write, initial)])


@pytest.mark.parametrize("which", [0, 1, 2])
def test_one_input_that_needs_a_gradient_gets_it(which):
    inputs = list(drawn(100))
    inputs[which].requires_grad_()
    linear_scan(*inputs)[-1].sum().backward()
    assert inputs[which].grad.abs().sum() > 0


@pytest.mark.parametrize("steps", [5, 100])
def test_inputs_are_left_as_they_were_and_views_are_fine(steps):
    keep, write, initial = drawn(steps, 2, 6)
    halves = [values.chunk(2, dim=-1)[1] for values in (keep, write, initial)]
    copies = [values.clone() for values in halves]
    with torch.inference_mode():
        result = linear_scan(*halves)
    assert all(torch.equal(before, after) for before, after in zip(copies, halves, strict=True))
    assert (result - written_out(*copies)).abs().max() < 1e-13


def test_mixed_precision_is_carried_in_the_widest_type():
    keep, write, initial = drawn(100)
    result = linear_scan(keep.half(), write.half(), initial.float())
    assert result.dtype == torch.float32
    assert (result - linear_scan(keep.half().double(), write.half().double(), initial)).abs().max() < 1e-5


def test_one_step_of_the_scan_is_step():
    keep, write, initial = drawn(1)
    assert torch.allclose(linear_scan(keep, write, initial)[0], step(keep[0], write[0], initial), rtol=0, atol=1e-15)


@pytest.mark.parametrize("steps", [1, 6, 100])
@pytest.mark.parametrize("needs_gradient", [False, True])
def test_backward_in_time_is_the_scan_of_the_reversed_steps(steps, needs_gradient):
    keep, write, initial = drawn(steps)
    true = written_out(keep.flip(0), write.flip(0), initial).flip(0)
    result = linear_scan(keep.requires_grad_(needs_gradient), write, initial, backward=True)
    assert (result.detach() - true).abs().max() < 1e-13
