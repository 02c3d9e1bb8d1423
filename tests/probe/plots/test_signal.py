"""The heatmap shows the recorded numbers, and labels that can be read."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot
from matplotlib.axes import Axes

from gatescope.probe.plots import plot_signal

Make = Callable[..., xr.Dataset]


def written(axes: Axes) -> list[str]:
    """Texts of the labels above the picture."""
    (above,) = axes.child_axes
    return [text.get_text() for text in above.get_xticklabels()]


def with_tokens(recording: xr.Dataset, tokens: list[str]) -> xr.Dataset:
    return recording.assign_coords(token=(("sequence", "time"), np.array([tokens], dtype=object)))


@pytest.mark.parametrize("signal", ["forget_gate", "candidate", "cell_state"])
def test_the_image_is_the_recorded_values_without_padding(make_recording: Make, signal: str) -> None:
    recording = make_recording()
    axes = plot_signal(recording, signal, layer=1, direction="backward", sequence=0)
    (image,) = axes.images
    values = recording[signal].sel(layer=1, direction="backward", sequence=0).isel(time=slice(0, 7)).values.T
    np.testing.assert_array_equal(np.asarray(image.get_array()), values)
    assert image.get_extent() == [-0.5, 6.5, 4.5, -0.5]


def test_colours_run_over_the_bounds(make_recording: Make) -> None:
    recording = make_recording(units=50)
    (gate,), (candidate,), (cell,) = (
        plot_signal(recording, signal).images for signal in ("forget_gate", "candidate", "cell_state")
    )
    assert (gate.get_clim(), gate.get_cmap().name) == ((0.0, 1.0), "viridis")
    assert (candidate.get_clim(), candidate.get_cmap().name) == ((-1.0, 1.0), "RdBu_r")
    low, high = cell.get_clim()
    shown = np.abs(np.asarray(cell.get_array()))
    assert low == -high
    assert high == pytest.approx(np.percentile(shown, 99))
    assert high < shown.max()


def test_a_signal_that_is_zero_everywhere_can_be_drawn(make_recording: Make) -> None:
    recording = make_recording()
    recording["cell_state"][:] = 0.0
    axes = plot_signal(recording, "cell_state")
    axes.figure.canvas.draw()
    assert axes.images[0].get_clim() == (-1.0, 1.0)


def test_a_broken_last_step_is_shown_grey_and_not_taken_for_padding(make_recording: Make) -> None:
    recording = make_recording()
    recording["forget_gate"][0, 0, 0, 6] = np.nan
    recording["forget_gate"][0, 0, 0, 5, 1] = np.inf
    axes = plot_signal(recording, "forget_gate")
    mask = np.ma.getmaskarray(axes.images[0].get_array())
    assert mask.shape == (5, 7)
    assert mask[:, 6].all()
    assert mask[1, 5]
    assert mask.sum() == 6
    axes.figure.canvas.draw()


def test_units_can_be_chosen_and_ordered(make_recording: Make) -> None:
    recording = make_recording()
    axes = plot_signal(recording, "forget_gate", units=[3, 1])
    values = recording["forget_gate"][0, 0, 0, :7].sel(unit=[3, 1]).values.T
    np.testing.assert_array_equal(np.asarray(axes.images[0].get_array()), values)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["3", "1"]


def test_labels_are_the_tokens_step_by_step(make_recording: Make) -> None:
    recording = with_tokens(make_recording(lengths=(5,)), ["a", " ", "\n", "$", "ب"])
    axes = plot_signal(recording, "forget_gate", labels="token")
    axes.figure.canvas.draw()
    assert written(axes) == ["a", "␣", "\\n", "$", "ب"]
    np.testing.assert_array_equal(axes.child_axes[0].get_xticks(), np.arange(5))
    assert axes.child_axes[0].get_xlabel() == "token"
    assert not any(text.get_parse_math() for text in axes.child_axes[0].get_xticklabels())


def test_numbers_and_booleans_are_written_too(make_recording: Make) -> None:
    recording = make_recording(lengths=(5,))
    value = recording["value"].values[0]
    assert written(plot_signal(recording, "forget_gate", labels="value")) == [f"{number:g}" for number in value]
    assert written(plot_signal(recording, "forget_gate", labels="boundary")) == ["1", "0", "0", "0", "1"]


def test_arabic_words_marks_and_missing_glyphs_are_drawn_without_a_warning(make_recording: Make) -> None:
    tokens = ["كتاب", "\u064e", "ك\u064e", "🦉", "\u200c", "\x00", "\u00a0"]
    axes = plot_signal(with_tokens(make_recording(lengths=(7,)), tokens), "forget_gate", labels="token")
    axes.figure.canvas.draw()
    assert written(axes) == ["كتاب", "◌\u064e", "ك\u064e", "U+1F989", "U+200C", "U+0000", "U+00A0"]


@pytest.mark.parametrize("tokens", [["a", "b"], ["token", "step"]])
@pytest.mark.parametrize("steps", [10, 300, 2000])
def test_labels_do_not_overlap_however_many_steps_there_are(
    make_recording: Make, tokens: list[str], steps: int
) -> None:
    recording = with_tokens(make_recording(1, 1, (steps,), 3), tokens * (steps // 2))
    axes = plot_signal(recording, "forget_gate", labels="token")
    axes.figure.canvas.draw()
    (above,) = axes.child_axes
    boxes = [text.get_window_extent() for text in above.get_xticklabels()]
    assert len(boxes) >= min(steps, 40)
    assert all(left.x1 <= right.x0 + 1 for left, right in pairwise(boxes))
    assert (above.get_xlabel() == "token") == (len(boxes) == steps)


def test_a_line_stands_before_each_segment(make_recording: Make) -> None:
    axes = plot_signal(make_recording(), "forget_gate", sequence=1)
    (lines,) = axes.collections
    assert [segment[0][0] for segment in lines.get_segments()] == [-0.5, 3.5, 7.5]
    assert not plot_signal(make_recording(), "forget_gate", boundaries=False).collections
    assert not plot_signal(make_recording(labels=False), "forget_gate").collections


def test_the_title_says_where_the_run_comes_from(make_recording: Make) -> None:
    axes = plot_signal(make_recording(), "forget_gate", layer=1, direction="backward", sequence=2)
    assert axes.get_title() == "forget_gate: encoder.rnn (LSTMCell), layer 1, backward, sequence 2"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("time (step)", "unit")


def test_a_stretch_of_time_keeps_its_step_numbers(make_recording: Make) -> None:
    part = make_recording().isel(time=slice(4, 9))
    axes = plot_signal(part, "forget_gate", sequence=1)
    assert axes.images[0].get_extent()[:2] == [3.5, 8.5]
    assert plot_signal(part, "forget_gate", sequence=0).images[0].get_extent()[:2] == [3.5, 6.5]


def test_a_projected_state_is_drawn_over_its_projection(make_recording: Make) -> None:
    recording = make_recording()
    state = recording["hidden_state"].isel(unit=slice(0, 2)).rename(unit="projection")
    recording = recording.drop_vars("hidden_state").assign(hidden_state=state.assign_coords(projection=[0, 1]))
    axes = plot_signal(recording, "hidden_state")
    assert axes.get_ylabel() == "projection"
    assert axes.images[0].get_array().shape == (2, 7)


def test_given_axes_are_drawn_in_and_returned(make_recording: Make) -> None:
    _, axes = pyplot.subplots()
    assert plot_signal(make_recording(), "forget_gate", ax=axes) is axes
    assert len(pyplot.get_fignums()) == 1


def test_what_cannot_be_shown_is_refused(make_recording: Make) -> None:
    recording = make_recording()
    with pytest.raises(ValueError, match="'gate' came and the recording holds"):
        plot_signal(recording, "gate")
    with pytest.raises(ValueError, match=r"layer must be one of \[0, 1\]; 2 came"):
        plot_signal(recording, "forget_gate", layer=2)
    with pytest.raises(ValueError, match=r"sequence must be one of \[0, 1, 2\]; 9 came"):
        plot_signal(recording, "forget_gate", sequence=9)
    with pytest.raises(ValueError, match=r"'letter' came and it has \['boundary', 'token', 'value'\]"):
        plot_signal(recording, "forget_gate", labels="letter")
    with pytest.raises(ValueError, match=r"units must be at least one unit of the recording \(0 to 4\); \[5\] came"):
        plot_signal(recording, "forget_gate", units=[5])
    with pytest.raises(ValueError, match=r"Select with lists: layer=\[0\]"):
        plot_signal(recording.isel(layer=0), "forget_gate")
