"""The drift picture shows the slopes of the table."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

from gatescope.probe.analyzers import drift
from gatescope.probe.plots import plot_drift

Make = Callable[..., xr.Dataset]


def test_every_unit_with_a_trend_is_drawn_once_with_its_interval(make_recording: Make) -> None:
    result = drift(make_recording(lengths=(40, 60)))
    axes = plot_drift(result)
    drawn = np.concatenate([np.asarray(container[0].get_xydata()) for container in axes.containers])
    drawn = drawn[np.argsort(drawn[:, 0])]
    np.testing.assert_allclose(drawn[:, 1], np.sort(result["slope"].values.ravel()))
    np.testing.assert_array_equal(drawn[:, 0], np.arange(20))
    bars = np.concatenate([c[2][0].get_segments() for c in axes.containers])[:, :, 1]
    expected = np.stack([result["slope_low"].values.ravel(), result["slope_high"].values.ravel()], axis=1)
    np.testing.assert_allclose(bars[np.argsort(bars[:, 0])], expected[np.argsort(expected[:, 0])])


def test_units_of_one_layer_are_named_in_the_order_of_their_trends(make_recording: Make) -> None:
    result = drift(make_recording(lengths=(40, 60)))
    axes = plot_drift(result, layer=1, direction="backward")
    order = np.argsort(result["slope"].sel(layer=1, direction="backward").values)
    assert [text.get_text() for text in axes.get_xticklabels()] == [str(unit) for unit in order]
    assert "layer 1, backward, 5 units" in axes.get_title()


def test_the_legend_counts_the_verdicts(make_recording: Make) -> None:
    recording = make_recording(layers=1, directions=1, lengths=(80,))
    recording["cell_state"][..., 2] = np.arange(80)[None, None, None]
    legend = plot_drift(drift(recording)).get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {"growing (1)", "settled (4)"}


def test_what_has_no_trend_is_refused(make_recording: Make) -> None:
    with pytest.raises(ValueError, match="plot_drift needs what drift returned"):
        plot_drift(make_recording())
    with pytest.raises(ValueError, match="Record longer sequences"):
        plot_drift(drift(make_recording(lengths=(2,))))
