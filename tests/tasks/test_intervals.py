"""Intervals against values worked out by hand or printed by others."""

from math import comb, isnan, sqrt

import numpy as np
import pytest

from gatescope.tasks.intervals import difference, median, median_interval, wilson

Z = 1.959963984540054


def test_wilson_of_five_of_ten_is_symmetric_about_a_half() -> None:
    half_width = Z / (1 + Z**2 / 10) * sqrt(0.25 / 10 + Z**2 / 400)
    assert wilson(5, 10) == pytest.approx((0.5 - half_width, 0.5 + half_width), abs=1e-12)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=5e-5)


@pytest.mark.parametrize("of", [1, 6, 100])
def test_wilson_of_none_and_all_ends_where_the_quadratic_says(of: int) -> None:
    assert wilson(0, of) == pytest.approx((0.0, Z**2 / (of + Z**2)), abs=1e-12)
    assert wilson(of, of) == pytest.approx((of / (of + Z**2), 1.0), abs=1e-12)


@pytest.mark.parametrize(("count", "of"), [(1, 7), (18, 100), (74, 100), (99, 100)])
def test_wilsons_ends_are_the_shares_that_lie_just_z_standard_errors_away(count: int, of: int) -> None:
    for end in wilson(count, of):
        assert abs(count / of - end) == pytest.approx(Z * sqrt(end * (1 - end) / of), rel=1e-9)


def test_wilson_covers_the_true_share_in_about_95_of_100_samples() -> None:
    n, truth = 100, 0.18
    chance = [comb(n, k) * truth**k * (1 - truth) ** (n - k) for k in range(n + 1)]
    covered = sum(p for k, p in enumerate(chance) if wilson(k, n)[0] <= truth <= wilson(k, n)[1])
    assert 0.93 < covered < 0.97


@pytest.mark.parametrize(
    ("counts", "expected"),  # Newcombe 1998, table II, method 10
    [
        ((56, 70, 48, 80), (0.0524, 0.3339)),
        ((9, 10, 3, 10), (0.1705, 0.8090)),
        ((10, 10, 0, 20), (0.6791, 1.0)),
        ((0, 10, 0, 20), (-0.1611, 0.2775)),
    ],
)
def test_differences_are_those_that_newcombe_prints(
    counts: tuple[int, int, int, int], expected: tuple[float, float]
) -> None:
    assert difference(*counts) == pytest.approx(expected, abs=5e-5)


def test_a_difference_the_other_way_round_is_the_same_with_the_other_sign() -> None:
    low, high = difference(3, 10, 74, 100)
    assert difference(74, 100, 3, 10) == pytest.approx((-high, -low))


def test_more_confidence_makes_wider_intervals() -> None:
    assert difference(5, 10, 5, 10, 0.99)[1] > difference(5, 10, 5, 10)[1]


@pytest.mark.parametrize(
    ("n", "place"),  # the k-th smallest and largest: from tables of the sign test
    [(5, 0), (6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (20, 6), (25, 8), (100, 40)],
)
def test_the_median_lies_between_the_order_statistics_of_the_sign_test(n: int, place: int) -> None:
    values = [10 * value for value in range(1, n + 1)]
    low, high = median_interval(values[::-1])
    if place == 0:
        assert isnan(low)
        assert isnan(high)
    else:
        assert (low, high) == (10 * place, 10 * (n + 1 - place))


@pytest.mark.parametrize("n", [6, 7, 17, 40])
def test_a_median_interval_holds_with_95_percent_and_the_next_narrower_one_does_not(n: int) -> None:
    low, _ = median_interval(list(range(1, n + 1)))
    outside = [2 * sum(comb(n, k) for k in range(int(place))) / 2**n for place in (low, low + 1)]
    assert outside[0] <= 0.05 < outside[1]


def test_the_median_interval_covers_a_skewed_distributions_median() -> None:
    rng = np.random.default_rng(0)
    hits = 0
    for values in rng.exponential(size=(1000, 15)):
        low, high = median_interval(values.tolist())
        hits += low <= np.log(2) <= high
    assert 0.95 < hits / 1000 < 0.99  # 15 values allow 96.5 %, no less


def test_medians_are_the_middle_or_the_mean_of_both() -> None:
    assert (median([3, 1, 2]), median([4, 1, 2, 3])) == (2, 2.5)
    assert isnan(median([]))


def test_intervals_of_nothing_are_nan() -> None:
    assert all(isnan(end) for end in (*wilson(0, 0), *median_interval([]), *difference(0, 0, 1, 2)))
