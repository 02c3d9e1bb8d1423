"""What a few networks say about all: intervals of a share, of a difference of shares, of a median."""

from collections.abc import Sequence
from math import comb, nan, sqrt

CONFIDENCE = 0.95


def wilson(count: int, of: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The Wilson score interval of a share: all p with |count/of - p| at most z sqrt(p (1-p) / of).

    It stays within [0, 1] and says something also of 0 or all of them.

    Parameters
    ----------
    count, of
        0 <= count <= of. For none of none both ends are NaN.

    References
    ----------
    E. B. Wilson (1927), J. Am. Stat. Assoc. 22, 209-212, doi 10.1080/01621459.1927.10502953.

    Examples
    --------
    Of ten none: the upper end solves p = z sqrt(p (1-p) / 10), so p = z^2 / (10 + z^2) with z = 1.96:

    >>> low, high = wilson(0, 10)
    >>> round(low, 3), round(high, 3)
    (0.0, 0.278)
    """
    if of == 0:
        return nan, nan
    from scipy.stats import binomtest

    found = binomtest(count, of).proportion_ci(confidence, method="wilson")
    return float(found.low), float(found.high)


def difference(
    count: int, of: int, count_there: int, of_there: int, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """Newcombe's interval of count/of - count_there/of_there, from the Wilson intervals of both shares.

    With shares p, q and their intervals [l, u] and [m, v]: from p - q - sqrt((p - l)^2 + (v - q)^2) to
    p - q + sqrt((u - p)^2 + (q - m)^2).

    References
    ----------
    R. G. Newcombe (1998), Statistics in Medicine 17, 873-890 (its method 10).

    Examples
    --------
    56 of 70 and 48 of 80, as in the paper:

    >>> low, high = difference(56, 70, 48, 80)
    >>> round(low, 4), round(high, 4)
    (0.0524, 0.3339)
    """
    if not (of and of_there):
        return nan, nan
    ours, theirs = count / of, count_there / of_there
    low, high = wilson(count, of, confidence)
    low_there, high_there = wilson(count_there, of_there, confidence)
    return (
        ours - theirs - sqrt((ours - low) ** 2 + (high_there - theirs) ** 2),
        ours - theirs + sqrt((high - ours) ** 2 + (theirs - low_there) ** 2),
    )


def median(values: Sequence[float]) -> float:
    """The middle value, or the mean of both; NaN of none."""
    ordered, n = sorted(values), len(values)
    return (ordered[(n - 1) // 2] + ordered[n // 2]) / 2 if n else nan


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """An interval that holds the median of where the values came from with at least 95 %, whatever its distribution.

    From the k-th smallest to the k-th largest value, with the largest k for which fewer than k of n fair coins show
    heads with a chance of at most 2.5 %. Below six values there is none, and both ends are NaN.

    References
    ----------
    H. A. David, H. N. Nagaraja (2003), Order Statistics, section 7.1.

    Examples
    --------
    Of six values all lie on one side of the median with a chance of 2/64 = 3.1 %, so they hold it with 96.9 %:

    >>> median_interval([40, 10, 60, 20, 50, 30])
    (10, 60)
    >>> median_interval([1, 2, 3, 4, 5])
    (nan, nan)
    """
    ordered, n = sorted(values), len(values)
    k, below = 0, 0
    while k < n and (below + comb(n, k)) / 2**n <= (1 - CONFIDENCE) / 2:
        below += comb(n, k)
        k += 1
    return (ordered[k - 1], ordered[n - k]) if k else (nan, nan)
