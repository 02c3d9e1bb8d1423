"""The selectivity picture shows the numbers of the table."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from gatescope.probe.analyzers import selectivity
from gatescope.probe.plots import plot_selectivity

Make = Callable[..., xr.Dataset]


def points(axes: Axes) -> dict[str, np.ndarray]:
    scatters = [artist for artist in axes.collections if isinstance(artist, PathCollection)]
    return {str(artist.get_label()).split(" (")[0]: np.asarray(artist.get_offsets()) for artist in scatters}


def latch(make_recording: Make) -> xr.Dataset:
    recording = make_recording(layers=1, directions=1, lengths=(300, 200))
    sign = np.where(recording["token"].values == "a", 1.0, -1.0)
    recording["cell_state"][0, 0, :, :, 3] = np.where(recording["token"].values == "", np.nan, sign)
    return recording


def test_every_unit_is_one_point_per_class_and_selective_ones_stand_out(make_recording: Make) -> None:
    result = selectivity(latch(make_recording), "token", signals=["cell_state", "hidden_state"])
    drawn = points(plot_selectivity(result, signal="cell_state"))
    area, p = (result[name].sel(signal="cell_state").squeeze().values for name in ("auc", "p_corrected"))
    assert np.sort(drawn["selective"][:, 1]).tolist() == np.sort(area[p < 0.05]).tolist()
    assert sum(map(len, drawn.values())) == 5 * 3
    assert 1.0 in drawn["selective"][:, 1]


def test_the_best_unit_is_named_and_spaces_are_drawn_visible(make_recording: Make) -> None:
    axes = plot_selectivity(selectivity(latch(make_recording), "token"))
    assert "3" in [text.get_text() for text in axes.texts]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["␣", "a", "b"]
    assert axes.get_xlabel() == "cell_state, label token"


def test_a_numeric_label_has_one_strip_of_correlations(make_recording: Make) -> None:
    result = selectivity(make_recording(), "value", lags=[1])
    axes = plot_selectivity(result, layer=0, direction="forward")
    assert len(np.concatenate(list(points(axes).values()))) == 5
    assert axes.get_xlabel() == "cell_state, label value 1 steps before"


def test_what_is_not_in_the_result_is_refused(make_recording: Make) -> None:
    result = selectivity(make_recording(), "token")
    with pytest.raises(ValueError, match="plot_selectivity needs what selectivity returned"):
        plot_selectivity(make_recording())
    with pytest.raises(ValueError, match="lag must be one of"):
        plot_selectivity(result, lag=4)
    with pytest.raises(ValueError, match="layer must be one of"):
        plot_selectivity(result, layer=9)
