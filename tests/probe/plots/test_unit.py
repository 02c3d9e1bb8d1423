"""All about one unit: what is drawn is what the recording and the results hold."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot

from gatescope.probe.analyzers import resets, roles, saturation, timescales
from gatescope.probe.plots import figure_unit

Make = Callable[..., xr.Dataset]
PLACE = {"layer": 1, "direction": "backward"}


@pytest.fixture
def recording(make_recording: Make) -> xr.Dataset:
    return make_recording(lengths=(400, 250))


def text(figure: pyplot.Figure) -> str:
    return "\n".join(words.get_text() for axes in figure.axes for words in axes.texts)


def test_the_traces_are_the_gate_above_the_memory_on_the_steps_asked_for(recording: xr.Dataset) -> None:
    figure = figure_unit(recording, 3, **PLACE, sequence=1, labels="token", window=(4, 15))
    run = recording.sel(**PLACE, sequence=1, unit=3).isel(time=slice(4, 16))
    for axes, name in zip(figure.axes[:2], ("forget_gate", "cell_state"), strict=True):
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), run[name].values)
        np.testing.assert_array_equal(axes.lines[0].get_xdata(), np.arange(4, 16))
    assert "Unit 3" in figure.axes[0].get_title()


def test_a_cross_stands_at_each_reset_of_the_unit_in_the_sequence(recording: xr.Dataset) -> None:
    events = resets(recording)
    here = (events["event_layer"].values == 1) & (events["event_direction"].values == "backward")
    here &= (events["event_sequence"].values == 0) & (events["event_kind"].values == "reset")
    unit = int(events["event_unit"].values[here][0])
    figure = figure_unit(recording, unit, **PLACE, sequence=0, resets=events)
    marks = next(line for line in figure.axes[0].lines if line.get_label() == "_reset")
    mine = here & (events["event_unit"].values == unit)
    np.testing.assert_array_equal(np.sort(marks.get_xdata()), np.sort(events["onset"].values[mine]))
    one = events.sel(**PLACE, unit=unit).isel(kind=0)
    assert f"Resets: {int(one['count'])}, {float(one['rate']):.3g} in 1000 steps" in text(figure)


def test_the_histograms_are_over_all_sequences_and_leave_out_padding(recording: xr.Dataset) -> None:
    figure = figure_unit(recording, 0, **PLACE)
    memory = recording["cell_state"].sel(**PLACE, unit=0).values
    finite = memory[np.isfinite(memory)]
    heights, edges = np.histogram(finite, bins=50)
    bars = figure.axes[3].patches
    np.testing.assert_allclose([bar.get_height() for bar in bars], heights / finite.size)
    np.testing.assert_allclose([bar.get_x() for bar in bars], edges[:-1], atol=1e-6)
    assert finite.size == 650


def test_the_bars_are_the_shares_of_saturation_and_the_points_are_the_time_scales(recording: xr.Dataset) -> None:
    ends, scales = saturation(recording), timescales(recording)
    figure = figure_unit(recording, 4, **PLACE, saturation=ends, timescales=scales)
    one = ends.sel(**PLACE, unit=4, signal=["input_gate", "forget_gate", "output_gate"])
    bars = figure.axes[4].patches
    np.testing.assert_allclose([bar.get_width() for bar in bars[:3]], one["left"].values)
    np.testing.assert_allclose([bar.get_width() for bar in bars[6:9]], one["right"].values)
    names = [label.get_text() for label in figure.axes[4].get_yticklabels()]
    assert names[1] == f"forget_gate\n{one['verdict'].sel(signal='forget_gate').item()}"
    drawn = [float(line.get_xdata()[0]) for line in figure.axes[5].lines if line.get_marker() == "o"]
    here = scales.sel(**PLACE, unit=4)
    values = [float(here[name]) for name in ("gate", "gate_typical", "autocorrelation", "jacobian")]
    np.testing.assert_allclose(drawn, [value for value in values if np.isfinite(value)])


def test_the_role_is_said_with_its_confidence(recording: xr.Dataset) -> None:
    result = roles(recording, samples=5)
    here = result.sel(**PLACE, unit=1)
    said = text(figure_unit(recording, 1, **PLACE, roles=result))
    assert f"Role: {here['unit_role'].item()}, confidence {float(here['confidence']):.2f}" in said


def test_what_is_not_given_is_not_measured_and_said(recording: xr.Dataset) -> None:
    said = text(figure_unit(recording, 1))
    for name in ("saturation", "timescales", "resets", "roles"):
        assert f"pass {name}=gs.{name}(recording)" in said


def test_a_result_of_another_place_is_refused_and_no_figure_is_left(recording: xr.Dataset) -> None:
    part = saturation(recording.sel(layer=[0]))
    with pytest.raises(ValueError, match=r"result given as saturation must hold the unit; it lacks layer 1"):
        figure_unit(recording, 1, layer=1, saturation=part)
    with pytest.raises(ValueError, match="units must be at least one unit"):
        figure_unit(recording, 99)
    assert pyplot.get_fignums() == []


def test_a_plain_rnn_has_a_page_too(recording: xr.Dataset) -> None:
    plain = recording.drop_vars(["input_gate", "forget_gate", "output_gate", "candidate"])
    plain.attrs |= {"retention": "none", "cell": "RNNCell"}
    figure = figure_unit(plain, 0, resets=resets(plain))
    assert figure.axes[0].get_ylabel().startswith("cell_state")
    assert "No resets: " in text(figure)
