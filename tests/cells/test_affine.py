"""The faster product for many rows gives what `linear` gives, and steps aside where a gradient is needed."""

from itertools import product

import pytest
import torch
from torch.nn.functional import linear

from gatescope.cells.affine import MANY_ROWS, affine, joint_affine


def weights(bias_ih=True, bias_hh=True):
    drawn = [torch.randn(12, 5), torch.randn(12, 3), torch.randn(12), torch.randn(12)]
    return [*drawn[:2], drawn[2] if bias_ih else None, drawn[3] if bias_hh else None]


@pytest.mark.parametrize("rows", [1, MANY_ROWS - 1, MANY_ROWS, 3000])
@pytest.mark.parametrize(("bias_ih", "bias_hh"), list(product([True, False], repeat=2)))
def test_products_equal_those_in_double_precision(rows, bias_ih, bias_hh):
    x, h = torch.randn(rows, 2, 5), torch.randn(rows, 2, 3)
    weight_ih, weight_hh, b_ih, b_hh = weights(bias_ih, bias_hh)
    with torch.no_grad():
        one, both = affine(x, weight_ih, b_ih), joint_affine(x, h, weight_ih, weight_hh, b_ih, b_hh)
    double = [None if value is None else value.double() for value in (x, weight_ih, b_ih, h, weight_hh, b_hh)]
    true = linear(*double[:3])
    assert (one - true).abs().max() < 1e-5
    assert (both - true - linear(*double[3:])).abs().max() < 1e-5


@pytest.mark.parametrize("which", range(6))
def test_whatever_needs_a_gradient_gets_it(which):
    arguments = [torch.randn(MANY_ROWS, 5), torch.randn(MANY_ROWS, 3), *weights()]
    arguments[which].requires_grad_()
    joint_affine(*arguments).sum().backward()
    assert arguments[which].grad.abs().sum() > 0
