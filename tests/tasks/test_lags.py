"""The long and the short lag of the grammars, told apart by what the strings say."""

import numpy as np
import pytest
import torch

from gatescope.tasks import CERG, ERG, Reber, lag_errors, long_steps


def test_the_long_step_of_a_string_is_the_last_but_two_and_there_is_one() -> None:
    strings = ERG(seed=3).sample(200)
    found = long_steps(strings)
    assert (found.sum(axis=1) == 1).all()
    assert (found.argmax(axis=1) == strings.lengths - 3).all()


def test_in_streams_the_next_symbol_after_a_long_step_repeats_the_second_of_its_string() -> None:
    stream = CERG(seed=4, streams=3).sample(300)
    found, symbols = long_steps(stream), stream.labels["symbol"]
    for row in range(3):
        starts = np.flatnonzero(stream.labels["boundary"][row])
        for time in np.flatnonzero(found[row]):
            second = symbols[row, starts[starts <= time][-1] + 1]
            assert stream.targets[row, time].argmax() == "BTPSXVE".index(second)
            assert stream.targets[row, time].sum() == 1
        inner = np.diff([*starts, 300])[:-1]
        assert found[row].sum() - len(inner) in (0, 1)


@pytest.mark.parametrize("size", range(1, 40))
def test_a_stream_that_is_cut_has_no_other_long_steps_than_the_whole(size: int) -> None:
    assert (long_steps(CERG(seed=5).sample(size)) == long_steps(CERG(seed=5).sample(60))[:, :size]).all()


@pytest.mark.parametrize("outputs", ["probabilities", "logits"])
def test_errors_are_shares_of_wrong_steps_of_each_kind(outputs: str) -> None:
    strings = ERG(seed=1).sample(4)
    said = strings.targets.astype(np.float64)
    wrong = np.zeros_like(strings.mask)
    wrong[0] = long_steps(strings)[0]
    wrong[1, :2] = True
    wrong[2] = True  # padding and the last symbol do not count
    said[wrong] = 1 - said[wrong]
    if outputs == "logits":
        said = np.where(said > 0.5, 5.0, -5.0)
    found = lag_errors(strings, outputs=outputs)((torch.from_numpy(said), "state"))  # type: ignore[arg-type]
    assert found["long"].tolist() == [1, 0, 1, 0]
    np.testing.assert_allclose(found["short"], [0, 2 / (strings.lengths[1] - 2), 1, 0])


def test_what_has_no_long_lag_or_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="a step of the long lag; sequence 0 has none"):
        lag_errors(Reber(seed=1).sample(3))
    with pytest.raises(ValueError, match=r"the targets' shape \(3, .*; \(2, 2\) came"):
        lag_errors(ERG(seed=1).sample(3))(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="outputs must be 'logits' or 'probabilities'"):
        lag_errors(ERG(seed=1).sample(3), outputs="odds")  # type: ignore[arg-type]
