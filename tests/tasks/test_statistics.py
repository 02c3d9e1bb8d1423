"""String statistics: exact values known by hand or from the table, and what is drawn against them."""

import numpy as np
import pytest

from gatescope.tasks import CERG, ERG, longest_strings, string_lengths
from gatescope.tasks.automaton import CONTINUAL, EMBEDDED, REBER, SYMBOLS
from gatescope.tasks.statistics import (
    drawn_lengths,
    length_chances,
    longest_of,
    mean_and_deviation,
    report_chances,
    tail,
)

STRINGS = 200_000


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    assert expected.min() >= 5
    return float(((counts - expected) ** 2 / expected).sum())


def test_strings_are_12_symbols_long_on_average_and_four_less_without_the_frame() -> None:
    assert mean_and_deviation(EMBEDDED) == pytest.approx((12, 3.3665016), abs=1e-7)
    assert mean_and_deviation(REBER) == pytest.approx((8, mean_and_deviation(EMBEDDED)[1]), abs=1e-12)


def test_the_first_chances_are_those_counted_by_hand() -> None:
    chances = length_chances(EMBEDDED)
    assert chances[:9].tolist() == [0] * 9
    assert chances[9:13].tolist() == [1 / 4, 3 / 16, 1 / 8, 7 / 64]
    np.testing.assert_array_equal(length_chances(REBER)[5:100], chances[9:104])


def test_the_chances_sum_to_one_and_have_the_mean_and_deviation_that_the_inverse_gives() -> None:
    chances, lengths = length_chances(EMBEDDED), np.arange(401)
    mean, deviation = mean_and_deviation(EMBEDDED)
    assert chances.sum() == pytest.approx(1, abs=1e-12)
    assert chances @ lengths == pytest.approx(mean, abs=1e-10)
    assert chances @ (lengths - mean) ** 2 == pytest.approx(deviation**2, abs=1e-9)


def test_the_tail_is_geometric() -> None:
    coefficient, rate = tail(EMBEDDED)
    assert (coefficient, rate) == pytest.approx((0.317, 0.7328), abs=5e-4)
    chances = length_chances(EMBEDDED)
    for length in (40, 60, 120):
        assert chances[length] == pytest.approx(coefficient * rate ** (length - 9), rel=1e-4)


def test_an_automaton_without_an_end_has_no_length() -> None:
    with pytest.raises(ValueError, match="must have an end"):
        length_chances(CONTINUAL)


def test_lengths_drawn_come_as_often_as_they_should() -> None:
    lengths = drawn_lengths(STRINGS, seed=1)
    chances = length_chances(EMBEDDED)
    last = 35  # longer ones together
    expected = STRINGS * np.append(chances[9:last], chances[last:].sum())
    counts = np.bincount(np.minimum(lengths, last), minlength=last + 1)[9:]
    assert chi_square(counts, expected) < 59  # 26 degrees: above 59 in 2 of 10,000
    assert abs(lengths.mean() - 12) < 4 * 3.3665 / np.sqrt(STRINGS)


def test_both_symbols_are_remembered_equally_often_and_branches_are_fair() -> None:
    symbol, state = (CERG(seed=2).sample(STRINGS).labels[name][0] for name in ("symbol", "state"))
    before = np.append(0, state[:-1])
    for where in np.flatnonzero(CONTINUAL.branches == 2):
        drawn = symbol[before == where]
        first = (drawn == SYMBOLS[CONTINUAL.symbols[where, 0]]).sum()
        assert len(drawn) > 1000
        assert abs(first - len(drawn) / 2) < 4.5 * np.sqrt(len(drawn)) / 2


def test_streams_stand_in_each_state_as_often_as_the_stationary_chances_say() -> None:
    step = np.zeros((CONTINUAL.states, CONTINUAL.states))
    for state in range(CONTINUAL.states):
        for branch in range(CONTINUAL.branches[state]):
            step[state, CONTINUAL.targets[state, branch]] += 1 / CONTINUAL.branches[state]
    share = np.linalg.solve((np.eye(len(step)) - step + 1).T, np.ones(len(step)))
    assert share[1] == pytest.approx(1 / 12)  # a string begins every 12 symbols
    # far enough apart to count as independent: one step of each of 20,000 streams, after 200 symbols
    after = np.concatenate([CERG(seed=3, stream=first, streams=2000).sample(200).labels["state"][:, -1]
                            for first in range(0, 20_000, 2000)])  # fmt: skip
    counts = np.bincount(after, minlength=len(share))
    assert chi_square(counts, 20_000 * share) < 48  # 18 degrees: above 48 in 2 of 10,000


def test_the_two_equal_symbols_are_three_less_than_the_length_apart() -> None:
    sample = ERG(seed=4).sample(2000)
    held = (sample.labels["remember"] != "").sum(axis=1)  # steps from the one to the step before the other
    np.testing.assert_array_equal(held, sample.lengths - 3)
    symbols, rows = sample.labels["symbol"], np.arange(2000)
    assert (symbols[rows, 1] == symbols[rows, sample.lengths - 2]).all()
    assert held.min() == 6
    assert abs(held.mean() - 9) < 4 * 3.3665 / np.sqrt(2000)


def test_the_longest_of_many_is_worked_out_as_by_hand() -> None:
    coin = np.array([0, 0.5, 0.5])  # length 1 or 2
    np.testing.assert_allclose(longest_of(coin, [1, 3]), [[0, 0.5, 1], [0, 0.125, 1]])


def test_the_longest_of_80000_strings_is_47_on_average() -> None:
    result = longest_strings(strings=[80_000], runs=40, seed=5).isel(strings=0)
    assert float(result["expected"]) == pytest.approx(47, abs=0.5)
    assert (int(result["lower"]), int(result["upper"])) == (42, 55)
    assert float(result["beyond_50"]) == pytest.approx(0.18, abs=0.005)
    drawn = result["drawn"].values
    assert abs(drawn.mean() - float(result["expected"])) < 4 * 4.3 / np.sqrt(
        40
    )  # its deviation is about pi / sqrt(6) / 0.31
    assert ((drawn >= 42) & (drawn <= 55)).sum() >= 29  # 36 of 40 expected; fewer than 29 in 1 of 10,000


def test_the_longest_grows_like_the_logarithm() -> None:
    result = longest_strings(strings=[1000, 10_000, 100_000], runs=3, seed=6)
    steps = np.diff(result["expected"].values)
    np.testing.assert_allclose(steps, np.log(10) / -np.log(tail()[1]), rtol=0.01)
    assert (np.diff(result["drawn"].values, axis=1) >= 0).all()
    np.testing.assert_array_equal(
        result["drawn"].values[1], [drawn_lengths(n, seed=6, stream=1).max() for n in (1000, 10_000, 100_000)]
    )


def test_the_report_s_fit_is_no_distribution_and_the_dataset_says_so() -> None:
    result = string_lengths(strings=50_000, seed=7)
    assert result.attrs["report_sum"] == pytest.approx(1.1425, abs=1e-3)
    assert report_chances(np.array([8, 9])).tolist() == [0, 3 / 11]
    assert float(result["exact"].sum()) == pytest.approx(1, abs=1e-6)
    assert result.attrs["exact_mean"] == pytest.approx(12)
    assert result.attrs["drawn_mean"] == drawn_lengths(50_000, seed=7).mean()
    np.testing.assert_allclose(result["drawn"], result["exact"], atol=4 * np.sqrt(0.25 * 0.75 / 50_000))


@pytest.mark.parametrize("strings", [[], [3, 2], [0, 5], [[1, 2]]])
def test_numbers_of_strings_out_of_order_are_refused(strings: list[int]) -> None:
    with pytest.raises(ValueError, match="ascending whole numbers from 1 on"):
        longest_strings(strings=strings)


@pytest.mark.parametrize("options", [{"strings": 0}, {"strings": -1}, {"strings": "a"}, {"longest": 3}])
def test_impossible_numbers_are_refused_in_a_sentence(options: dict) -> None:
    with pytest.raises(ValueError, match=rf"{next(iter(options))} must be a whole number from [19] on; .* came"):
        string_lengths(**options)


@pytest.mark.parametrize("options", [{"runs": 0}, {"runs": 1.5}, {"strings": "a"}, {"strings": [1.5]}])
def test_impossible_numbers_of_runs_and_strings_are_refused(options: dict) -> None:
    with pytest.raises(ValueError, match=rf"{next(iter(options))} must be .*whole numbers? from 1 on; .* came"):
        longest_strings(**options)
