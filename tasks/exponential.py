"""An exponential and a logistic of our own: their bits are decided by additions, multiplications and one division.

With the C library's `exp` the same seed gives other networks on other machines: its last bit differs, and in
hundreds of thousands of updates that is enough. IEEE 754 fixes those of what is used here.
"""

import numpy as np

from .compiled import compiled

LARGEST = 700.0  # beyond it (and its negative) the argument is cut: e^700 is 1e304, still a normal number
PER_LOG2 = 1.4426950408889634  # 1 / ln 2
# ln 2 in two parts; the first has 21 trailing zero bits, so that its product with a whole number below 2^21 is exact
LOG2_HIGH, LOG2_LOW = 0.6931471803691238, 1.9082149292705877e-10
ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it leaves no bits behind the point
BIAS, FRACTION = 1023, 52  # of a float64's exponent; bits of its fraction

C2, C3, C4, C5 = 1 / 2, 1 / 6, 1 / 24, 1 / 120
C6, C7, C8, C9 = 1 / 720, 1 / 5040, 1 / 40320, 1 / 362880
C10, C11, C12, C13 = 1 / 3628800, 1 / 39916800, 1 / 479001600, 1 / 6227020800


@compiled
def exponential(x: float) -> float:
    """`e^x`, off by less than one unit in the last place; arguments beyond +-700 (and NaN) are cut to 700 or -700.

    `x = n ln 2 + r` with a whole number n and |r| <= ln 2 / 2; e^r is its Taylor polynomial of degree 13, summed in
    pairs (Estrin), and 2^n is written straight into the exponent.

    Examples
    --------
    >>> exponential(0.0), exponential(1e9) == exponential(700.0)
    (1.0, True)
    """
    x = max(-LARGEST, min(LARGEST, x))  # in this order NaN becomes LARGEST
    shifted = x * PER_LOG2 + ROUND
    whole = shifted - ROUND
    r = (x - whole * LOG2_HIGH) - whole * LOG2_LOW
    r2 = r * r
    r4 = r2 * r2
    low = (C2 + C3 * r) + (C4 + C5 * r) * r2
    middle = (C6 + C7 * r) + (C8 + C9 * r) * r2
    high = (C10 + C11 * r) + (C12 + C13 * r) * r2
    series = (low + (middle + high * r4) * r4) * r2 + r  # e^r - 1: the largest term last
    power = (np.float64(shifted).view(np.int64) + BIAS) << FRACTION  # the whole number stands in the lowest bits
    return (1.0 + series) * np.int64(power).view(np.float64)


@compiled
def logistic(x: float) -> float:
    """`1 / (1 + e^-x)`, which squashes to (0, 1).

    Examples
    --------
    >>> logistic(0.0), logistic(-1000.0) < 1e-300, logistic(1000.0)
    (0.5, True, 1.0)
    """
    return 1.0 / (1.0 + exponential(-x))
