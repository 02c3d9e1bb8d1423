"""The saturation scatter shows the numbers of the table."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection

from gatescope.probe.analyzers import saturation
from gatescope.probe.plots import plot_saturation

Make = Callable[..., xr.Dataset]


def points(axes: Axes) -> dict[str, np.ndarray]:
    scatters = [artist for artist in axes.collections if isinstance(artist, PathCollection)]
    return {str(artist.get_label()): np.asarray(artist.get_offsets()) for artist in scatters}


def test_each_gate_is_a_cloud_of_its_units_shares(make_recording: Make) -> None:
    result = saturation(make_recording())
    drawn = points(plot_saturation(result))
    assert list(drawn) == ["input_gate", "forget_gate", "output_gate"]
    for gate, offsets in drawn.items():
        shares = result.sel(signal=gate)
        np.testing.assert_array_equal(offsets[:, 0], shares["left"].values.ravel())
        np.testing.assert_array_equal(offsets[:, 1], shares["right"].values.ravel())
        assert len(offsets) == 2 * 2 * 5


def test_a_layer_and_direction_can_be_shown_alone(make_recording: Make) -> None:
    result = saturation(make_recording())
    axes = plot_saturation(result, layer=1, direction="backward")
    shares = result.sel(signal="forget_gate", layer=1, direction="backward")
    np.testing.assert_array_equal(points(axes)["forget_gate"], np.column_stack([shares["left"], shares["right"]]))
    assert "encoder.rnn (LSTMCell)" in axes.get_title()
    assert "layer 1, backward, 5 units" in axes.get_title()


def test_units_without_data_are_left_out(make_recording: Make) -> None:
    recording = make_recording()
    recording["forget_gate"][..., 2] = np.nan
    drawn = points(plot_saturation(saturation(recording)))
    assert (len(drawn["forget_gate"]), len(drawn["input_gate"])) == (16, 20)


def test_colours_and_markers_tell_the_gates_apart(make_recording: Make) -> None:
    axes = plot_saturation(saturation(make_recording()))
    scatters = [artist for artist in axes.collections if isinstance(artist, PathCollection)]
    assert len({tuple(artist.get_facecolor()[0]) for artist in scatters}) == 3
    assert len({artist.get_paths()[0].vertices.tobytes() for artist in scatters}) == 3


def test_the_legend_lies_where_no_point_can_be(make_recording: Make) -> None:
    axes = plot_saturation(saturation(make_recording()))
    axes.figure.canvas.draw()
    legend = axes.get_legend()
    assert legend is not None
    corner = axes.transData.inverted().transform(legend.get_window_extent().get_points())[0]
    assert corner.sum() > 1
    assert [text.get_text() for text in legend.get_texts()] == ["input_gate", "forget_gate", "output_gate"]


def test_given_axes_are_drawn_in_and_returned(make_recording: Make) -> None:
    _, axes = pyplot.subplots()
    assert plot_saturation(saturation(make_recording()), ax=axes) is axes
    assert len(pyplot.get_fignums()) == 1


def test_the_axes_say_which_edges_were_used(make_recording: Make) -> None:
    axes = plot_saturation(saturation(make_recording(), low=0.25, high=0.75))
    assert "below 0.25" in axes.get_xlabel()
    assert "above 0.75" in axes.get_ylabel()


def test_what_cannot_be_shown_is_refused(make_recording: Make) -> None:
    result = saturation(make_recording())
    with pytest.raises(ValueError, match=r"layer must be one of \[0, 1\]; 7 came"):
        plot_saturation(result, layer=7)
    with pytest.raises(ValueError, match="direction must be one of"):
        plot_saturation(result, direction="up")
    with pytest.raises(ValueError, match="at least one gate"):
        plot_saturation(result.sel(signal=["candidate"]))
    with pytest.raises(ValueError, match="needs what saturation returned"):
        plot_saturation(make_recording())
