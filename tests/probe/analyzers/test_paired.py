"""Intervals of means over sequences and sign flips, against scipy and against what holds by construction."""

import numpy as np
import pytest
from scipy import stats

from gatescope.probe.analyzers.paired import mean_interval, sign_flip_p


def test_signs_of_few_differences_are_all_tried_as_scipy_does() -> None:
    rng = np.random.default_rng(0)
    differences = rng.normal(0.4, 1, (5, 8))
    for greater, side in ((False, "two-sided"), (True, "greater")):
        expected = stats.permutation_test(
            (differences,), lambda x, axis: x.mean(axis), permutation_type="samples", alternative=side, axis=1
        ).pvalue
        found = sign_flip_p(differences, 0, greater=greater)
        np.testing.assert_allclose(found, np.minimum(1, expected), atol=1e-12)


def test_signs_of_many_differences_are_drawn_and_p_is_never_0() -> None:
    differences = np.stack([np.ones(40), np.where(np.arange(40) % 2, 1.0, -1.0), np.zeros(40)])
    assert sign_flip_p(differences, 0).tolist() == [1e-4, 1.0, 1.0]
    assert sign_flip_p(-differences, 0, greater=True)[0] == 1.0


def test_p_is_uniform_where_nothing_was_done() -> None:
    rng = np.random.default_rng(1)
    for count in (10, 30):
        p = sign_flip_p(rng.standard_t(4, (2000, count)), 0)
        for level in (0.05, 0.2, 0.5):
            assert (p <= level).mean() == pytest.approx(level, abs=4 * np.sqrt(level * (1 - level) / 2000))


@pytest.mark.parametrize("count", [6, 20])
def test_intervals_of_few_sequences_hold_the_truth_nearly_as_often_as_they_say(count: int) -> None:
    rng = np.random.default_rng(2)
    held = 0
    for repeat in range(10):
        low, high = mean_interval(rng.normal(3.0, 1.0, (200, count)), 0.95, 2000, repeat)
        held += int(((low <= 3.0) & (high >= 3.0)).sum())
    assert 0.93 < held / 2000 < 0.975


def test_one_sequence_and_missing_differences_have_neither() -> None:
    single = np.array([[1.0]])
    assert np.isnan([*mean_interval(single, 0.95, 100, 0), sign_flip_p(single, 0)]).all()
    holed = np.array([[1.0, np.nan, 2.0]])
    assert np.isnan([*mean_interval(holed, 0.95, 100, 0), sign_flip_p(holed, 0)]).all()
