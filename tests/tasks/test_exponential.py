"""The exponential that results depend on: right to the last bit or the next, made of plain operations."""

import math
import re
from decimal import Decimal, localcontext
from typing import Any, cast

import numpy as np
import pytest
from numba import njit

from gatescope.tasks.exponential import exponential, logistic


def units_off(x: float) -> float:
    """Error in units of the last place of e^x."""
    with localcontext() as context:
        context.prec = 40
        exact = Decimal(x).exp()
        return float(abs(Decimal(exponential(x)) - exact) / Decimal(math.ulp(float(exact))))


@pytest.mark.parametrize("reach", [0.35, 3.0, 40.0, 699.0])
def test_it_is_within_one_unit_in_the_last_place(reach: float) -> None:
    points = np.random.default_rng(0).uniform(-reach, reach, 1500)
    assert max(map(units_off, points.tolist())) < 1.0


def test_whole_powers_of_two_of_the_polynomial_meet_without_a_step() -> None:
    edges = [(n + 0.5) * math.log(2.0) for n in range(-6, 6)]
    around = [x for edge in edges for x in (edge, math.nextafter(edge, -9.0), math.nextafter(edge, 9.0))]
    assert max(map(units_off, around)) < 1.0


@pytest.mark.parametrize(("x", "cut"), [(1e9, 700.0), (math.inf, 700.0), (math.nan, 700.0), (-math.inf, -700.0)])
def test_arguments_beyond_its_range_are_cut(x: float, cut: float) -> None:
    assert exponential(x) == exponential(cut) == pytest.approx(math.exp(cut), rel=1e-15)


def test_the_logistic_is_symmetric_and_saturates() -> None:
    for x in np.random.default_rng(1).uniform(-30.0, 30.0, 200).tolist():
        assert logistic(x) + logistic(-x) == pytest.approx(1.0, abs=3e-16)
    assert (logistic(0.0), logistic(800.0)) == (0.5, 1.0)
    assert 0.0 < logistic(-800.0) < 1e-300


def test_no_multiplication_is_fused_with_an_addition() -> None:
    fresh = njit(error_model="numpy")(cast(Any, exponential).py_func)  # machine code from a cache is not shown
    assert fresh(1.0) == exponential(1.0)
    (code,) = fresh.inspect_asm().values()
    assert "mulsd" in code
    assert not re.findall(r"\bv?fn?m(?:add|sub)\w*", code)
