"""Traces show the recorded numbers, the gate above the memory that it keeps."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot

from gatescope.probe.plots import plot_traces

Make = Callable[..., xr.Dataset]


def test_the_gate_stands_above_the_memory_with_the_recorded_values(make_recording: Make) -> None:
    recording = make_recording()
    panels = plot_traces(recording, [4, 1], layer=1, sequence=1)
    assert [panel.get_ylabel() for panel in panels] == ["forget_gate (f)", "cell_state (c)"]
    for panel, signal in zip(panels, ("forget_gate", "cell_state"), strict=True):
        lines = {line.get_label(): line for line in panel.lines if str(line.get_label()).startswith("unit")}
        assert list(lines) == ["unit 4", "unit 1"]
        for unit in (4, 1):
            x, y = lines[f"unit {unit}"].get_data()
            np.testing.assert_array_equal(x, np.arange(12))
            values = recording[signal].sel(layer=1, direction="forward", sequence=1, unit=unit).values
            np.testing.assert_array_equal(y, values)
    assert panels[0].get_position().y0 > panels[1].get_position().y0


def test_a_unit_looks_the_same_in_all_panels_and_unlike_the_others(make_recording: Make) -> None:
    panels = plot_traces(make_recording(), [0, 1, 2], signals=["forget_gate", "input_gate", "cell_state"])
    looks = [
        [(line.get_color(), line.get_linestyle()) for line in panel.lines if str(line.get_label())[0] == "u"]
        for panel in panels
    ]
    assert looks[0] == looks[1] == looks[2]
    assert len({colour for colour, _ in looks[0]}) == 3
    assert [line.is_dashed() for line in panels[0].lines if str(line.get_label())[0] == "u"] == [False, True, True]


def test_panels_share_their_time_axis(make_recording: Make) -> None:
    panels = plot_traces(make_recording(), 0)
    panels[1].set_xlim(2, 3)
    assert panels[0].get_xlim() == (2, 3)


def test_bounded_signals_are_drawn_over_their_bounds(make_recording: Make) -> None:
    gate, candidate = plot_traces(make_recording(), 0, signals=["forget_gate", "candidate"])
    assert gate.get_ylim() == pytest.approx((-0.05, 1.05))
    assert candidate.get_ylim() == pytest.approx((-1.1, 1.1))


def test_without_a_recorded_gate_the_memory_stands_alone(make_recording: Make) -> None:
    recording = make_recording().drop_vars("forget_gate")
    assert [panel.get_ylabel() for panel in plot_traces(recording, 0)] == ["cell_state (c)"]
    with pytest.raises(ValueError, match="signals must say what to draw"):
        plot_traces(make_recording()[["output_gate"]], 0)


def test_labels_and_boundaries_stand_at_their_steps(make_recording: Make) -> None:
    recording = make_recording()
    panels = plot_traces(recording, 0, labels="token", sequence=1)
    panels[0].figure.canvas.draw()
    (above,) = panels[0].child_axes
    tokens = [text.replace(" ", "␣") for text in recording["token"].values[1]]
    assert [text.get_text() for text in above.get_xticklabels()] == tokens
    for panel in panels:
        (lines,) = panel.collections
        assert [segment[0][0] for segment in lines.get_segments()] == [-0.5, 3.5, 7.5]
    assert not panels[1].child_axes


def test_the_title_says_where_the_run_comes_from(make_recording: Make) -> None:
    panels = plot_traces(make_recording(), 0, direction="backward", layer=1, sequence=1)
    assert panels[0].get_title() == "encoder.rnn (LSTMCell), layer 1, backward, sequence 1"
    assert panels[-1].get_xlabel() == "time (step)"


def test_given_axes_are_drawn_in_and_must_be_as_many_as_signals(make_recording: Make) -> None:
    _, axes = pyplot.subplots(2)
    assert list(plot_traces(make_recording(), 0, axes=axes)) == list(axes)
    with pytest.raises(ValueError, match="one Axes per signal"):
        plot_traces(make_recording(), 0, axes=[axes[0]])


def test_units_that_are_not_there_are_refused(make_recording: Make) -> None:
    with pytest.raises(ValueError, match=r"units must be .*; \[9\] came"):
        plot_traces(make_recording(), 9)
    with pytest.raises(ValueError, match="at least one unit"):
        plot_traces(make_recording(), [])
