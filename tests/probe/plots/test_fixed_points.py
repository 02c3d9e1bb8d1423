"""The state portrait and the picture of a decomposition show the numbers of their results."""

from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from matplotlib import pyplot
from matplotlib.collections import PathCollection
from torch import nn

import gatescope as gs


@pytest.fixture(autouse=True)
def close() -> Any:
    yield
    pyplot.close("all")


def inhibited() -> tuple[nn.RNN, xr.Dataset]:
    """Two units that shut each other off: points at (a, -a), (-a, a) and 0."""
    rnn = nn.RNN(1, 2, bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(torch.tensor([[0.0, -2.0], [-2.0, 0.0]]))
    states = np.random.default_rng(0).uniform(-1, 1, (40, 2))
    return rnn, gs.fixed_points(rnn, input=0.0, starts=states)


def drawn(axes: Any) -> dict[str, PathCollection]:
    return {str(each.get_label()): each for each in axes.collections if isinstance(each, PathCollection)}


def test_points_stand_where_they_are_in_the_components_of_the_recorded_states() -> None:
    rnn, found = inhibited()
    torch.manual_seed(0)
    recording = gs.record(rnn, 3 * torch.randn(30, 4, 1))
    axes = gs.plot_fixed_points(found, recording)
    clouds = drawn(axes)
    assert list(clouds) == ["stable (2)", "2 unstable modes (1)"]
    states = recording["hidden_state"].values[0, 0].reshape(-1, 2).astype(float)
    middle = states.mean(axis=0)
    for name, cloud in clouds.items():
        here = found["position"].values[(found["unstable"] == (2 if "unstable" in name else 0)).values]
        flat = np.asarray(cloud.get_offsets())
        np.testing.assert_allclose(  # a rotation about the states' mean
            np.linalg.norm(flat, axis=1), np.linalg.norm(here - middle, axis=1), atol=1e-9
        )
    assert len([line for line in axes.lines if len(line.get_xdata()) == 30]) == 4
    along = np.concatenate([np.asarray(line.get_xdata()) for line in axes.lines])
    assert np.var(along) == pytest.approx(np.linalg.eigvalsh(np.cov(states.T, bias=True)).max())


def test_stable_points_are_filled_and_others_hollow() -> None:
    _, found = inhibited()
    clouds = drawn(gs.plot_fixed_points(found))
    faces = {name: tuple(np.asarray(cloud.get_facecolors())[0]) for name, cloud in clouds.items()}
    edges = {name: tuple(np.asarray(cloud.get_edgecolors())[0]) for name, cloud in clouds.items()}
    assert faces["stable (2)"] == edges["stable (2)"]
    assert faces["2 unstable modes (1)"][:3] == (1, 1, 1)
    assert edges["2 unstable modes (1)"] != edges["stable (2)"]


def test_slow_points_are_told_from_fixed_ones() -> None:
    _, found = inhibited()
    found["kind"][2] = "slow"
    assert "slow, 2 unstable modes (1)" in drawn(gs.plot_fixed_points(found))


def test_three_components_are_drawn_in_space() -> None:
    torch.manual_seed(0)
    gru = nn.GRU(2, 3)
    recording = gs.record(gru, torch.randn(20, 2, 2))
    axes = gs.plot_fixed_points(gs.fixed_points(gru, input=0.0, starts=recording), recording, components=3)
    assert axes.name == "3d"
    assert axes.get_zlabel().startswith("component 3")


def test_what_cannot_be_drawn_is_refused() -> None:
    rnn, found = inhibited()
    with pytest.raises(ValueError, match="needs what fixed_points returned"):
        gs.plot_fixed_points(found.drop_vars("kind"))
    with pytest.raises(ValueError, match="components must be 2 or 3; 4 came"):
        gs.plot_fixed_points(found, components=4)
    with pytest.raises(ValueError, match="a point or a recording; neither came"):
        gs.plot_fixed_points(found.isel(point=[]))
    with pytest.raises(ValueError, match="with 2 states; 3 came"):
        gs.plot_fixed_points(found, gs.record(nn.RNN(1, 3), torch.zeros(2, 1, 1)))
    with pytest.raises(ValueError, match="must have hidden_state of layer 0, backward"):
        gs.plot_fixed_points(found.assign_attrs(direction="backward"), gs.record(rnn, torch.zeros(2, 1, 1)))


def parts(**options: Any) -> xr.Dataset:
    torch.manual_seed(0)
    return gs.contextual_decomposition(
        nn.LSTM(2, 3), torch.randn(6, 2, 2), readout=nn.Linear(3, 2), lengths=[6, 4], **options
    )


def test_bars_are_the_contributions_of_the_phrases() -> None:
    found = parts(at="last", phrase=[(0, 1), (1, 4)])
    axes = gs.plot_decomposition(found, output=1, sequence=1)
    heights = [bar.get_height() for bar in axes.patches]
    np.testing.assert_array_equal(heights, found["output_relevant"].sel(output=1, sequence=1))
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "1-3"]
    assert "at the last step" in axes.get_title()


def test_over_time_the_image_has_a_row_for_each_phrase_and_no_padding() -> None:
    found = parts()
    (image,) = gs.plot_decomposition(found, sequence=1, labels=list("abcdef")).images
    shown = found["output_relevant"].sel(output=0, sequence=1).transpose("phrase", "time").values[:, :4]
    np.testing.assert_array_equal(image.get_array(), shown)
    assert image.get_clim()[1] == np.abs(shown).max() == -image.get_clim()[0]


def test_a_decomposition_without_output_and_strangers_are_refused() -> None:
    found = parts()
    with pytest.raises(ValueError, match="with a readout"):
        gs.plot_decomposition(found.drop_vars("output_relevant"))
    with pytest.raises(ValueError, match=r"output must be one of \[0, 1\]; 2 came"):
        gs.plot_decomposition(found, output=2)
    with pytest.raises(ValueError, match="labels must be one for each of 6 phrases; 1 came"):
        gs.plot_decomposition(found, labels=["a"])
