"""The attribution picture shows the numbers of the result."""

import numpy as np
import pytest
import torch
import xarray as xr
from matplotlib import pyplot
from torch import nn

import gatescope as gs

LENGTHS = torch.tensor([4, 6])


def attributed(**options: object) -> xr.Dataset:
    torch.manual_seed(0)
    rnn, x = nn.GRU(3, 5, batch_first=True), torch.randn(2, 6, 3)
    asked = {"target": (-1, 2), "lengths": LENGTHS, "labels": {"token": ["abcd", "a b_$x"]}, "n_steps": 5, **options}
    return gs.attribution(rnn, x, **asked)  # type: ignore[arg-type]


def test_bars_are_what_each_step_accounts_for_without_padding() -> None:
    result = attributed()
    axes = gs.plot_attribution(result, sequence=0, labels="token")
    heights = [bar.get_height() for bar in axes.patches]
    np.testing.assert_allclose(heights, result.by_step[0, :4])
    colours = np.array([bar.get_facecolor() for bar in axes.patches])
    assert (colours[:, 0] > colours[:, 2]).tolist() == (result.by_step[0, :4] >= 0).values.tolist()  # red is upward
    above = next(one for one in axes.child_axes)
    assert [text.get_text() for text in above.get_xticklabels()] == list("abcd")
    assert "class 2 at step -1" in axes.get_title()
    assert f"{float(result.output[0]):.3g}" in axes.get_title()


def test_the_heatmap_holds_every_feature_with_white_at_0() -> None:
    result = attributed(to="update_gate")
    figure = gs.figure_attribution(result, sequence=1)
    image = figure.axes[1].images[0]
    np.testing.assert_allclose(np.asarray(image.get_array()), result.attribution[1].T)
    low, high = image.get_clim()
    assert -low == high == pytest.approx(np.percentile(np.abs(result.attribution[1]), 99.5))
    assert figure.axes[1].get_ylabel() == "unit"


def test_steps_that_were_not_asked_about_are_grey() -> None:
    result = attributed(lengths=None, labels=None, time=[1, 4])
    image = gs.figure_attribution(result).axes[1].images[0].get_array()
    assert np.ma.getmaskarray(image).all(0).tolist() == [False, True, True, False]


def test_an_attribution_that_misses_the_change_says_so() -> None:
    result = attributed(n_steps=1)
    result["incomplete"][:] = True
    title = gs.plot_attribution(result).get_title()
    assert f"incomplete, bars add up to {float(result.by_step[0].sum()):.3g}" in title
    assert "each step against the baseline" in gs.plot_attribution(attributed(to="hidden_state")).get_title()


def test_bars_are_drawn_in_given_axes_and_of_results_by_step() -> None:
    _, ax = pyplot.subplots()
    result = attributed(method="occlusion")
    assert gs.plot_attribution(result, ax=ax) is ax
    with pytest.raises(ValueError, match="needs features told apart; the result is by step"):
        gs.figure_attribution(result)


def test_what_cannot_be_drawn_is_said_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="An initial state has no steps"):
        gs.plot_attribution(attributed(to="initial_state", labels=None))
    with pytest.raises(ValueError, match=r"sequence must be one of \[0, 1\]; 2 came"):
        gs.plot_attribution(attributed(), sequence=2)
    with pytest.raises(ValueError, match="sequence 0 has none of them"):
        gs.plot_attribution(attributed(time=[4, 5]), sequence=0)
    with pytest.raises(ValueError, match="labels must name a label of the recording; 'word' came"):
        gs.plot_attribution(attributed(), labels="word")
