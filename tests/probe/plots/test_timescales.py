"""The picture of time scales shows the numbers of the table."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import PathCollection

from gatescope.probe.analyzers import timescales
from gatescope.probe.plots import plot_timescales

Make = Callable[..., xr.Dataset]


def test_each_estimate_is_a_cloud_against_the_gate(make_recording: Make) -> None:
    result = timescales(make_recording(lengths=(60, 50)))
    axes = plot_timescales(result)
    for artist, name in zip(axes.collections, ("autocorrelation", "jacobian"), strict=True):
        assert isinstance(artist, PathCollection)
        gate, other = result["gate"].values.ravel(), result[name].values.ravel()
        there = np.isfinite(other)
        np.testing.assert_array_equal(artist.get_offsets(), np.column_stack([gate[there], other[there]]))
        assert f"({there.sum()} of 20)" in str(artist.get_label())
    assert (axes.get_xscale(), axes.get_xlim()) == ("log", axes.get_ylim())


def test_heavy_tails_have_a_dark_edge(make_recording: Make) -> None:
    recording = make_recording(layers=1, directions=1, lengths=(200,))
    recording["forget_gate"][..., 2] = np.where(np.arange(200) % 50, 0.99, 0.01)
    (cloud, *_) = plot_timescales(timescales(recording, jacobian=False)).collections
    dark = (np.asarray(cloud.get_edgecolors())[:, :3] == 0).all(axis=1)
    assert dark.tolist() == [False, False, True, False, False]


def test_what_cannot_be_drawn_is_refused(make_recording: Make) -> None:
    with pytest.raises(ValueError, match="plot_timescales needs what timescales returned"):
        plot_timescales(make_recording())
    with pytest.raises(ValueError, match="Record longer sequences"):
        plot_timescales(timescales(make_recording(lengths=(1,)), jacobian=False))
