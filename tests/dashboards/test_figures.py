from itertools import pairwise

import numpy as np
import pytest

from gatescope.dashboards import figures, reduction


@pytest.fixture
def run(make_recording):
    """Sequence 1 of the usual synthetic recording, whole, without padding."""
    return make_recording().sel(layer=0, direction="forward", sequence=1).isel(time=slice(0, 12))


def test_cells_of_the_heatmap_are_the_values_at_their_step_and_unit(run):
    heatmap = figures.run_figure(run.isel(time=slice(3, 9)), "forget_gate").data[0]
    np.testing.assert_array_equal(heatmap.z, run["forget_gate"].values[3:9].T)
    np.testing.assert_array_equal(heatmap.x, np.arange(3, 9))
    np.testing.assert_array_equal(heatmap.y, np.arange(5))


@pytest.mark.parametrize("signal", ["forget_gate", "candidate", "cell_state"])
def test_colours_span_the_bounds_and_a_sign_puts_zero_in_the_middle(run, signal):
    heatmap = figures.run_figure(run, signal).data[0]
    ends = {
        "forget_gate": (0.0, 1.0),
        "candidate": (-1.0, 1.0),
        "cell_state": (-np.percentile(np.abs(run["cell_state"]), 99), np.percentile(np.abs(run["cell_state"]), 99)),
    }
    assert (heatmap.zmin, heatmap.zmax) == pytest.approx(ends[signal])
    assert len({scale[1] for scale in heatmap.colorscale}) > 5
    middle = heatmap.colorscale[len(heatmap.colorscale) // 2]
    assert (middle == (0.5, "rgb(247,247,247)")) == (signal != "forget_gate")


def test_values_that_are_not_finite_leave_gaps(run):
    run["cell_state"].values[2, 1] = np.inf
    heatmap = figures.run_figure(run, "cell_state").data[0]
    assert np.isnan(heatmap.z[1, 2])
    assert np.isnan(heatmap.z).sum() == 1
    assert np.isfinite([heatmap.zmin, heatmap.zmax]).all()


@pytest.mark.parametrize("statistic", reduction.STATISTICS)
def test_a_bin_shows_the_statistic_of_its_steps(run, statistic):
    heatmap = figures.run_figure(run, "candidate", statistic=statistic, most_cells=15).data[0]
    expected = getattr(np, statistic)(run["candidate"].values.astype(float).reshape(3, 4, 5), axis=1)
    np.testing.assert_allclose(heatmap.z, expected.T, rtol=1e-6)
    np.testing.assert_array_equal(heatmap.x, [1.5, 5.5, 9.5])
    assert f"{statistic} candidate" in heatmap.hovertemplate
    assert "4 steps around" in heatmap.hovertemplate


def test_labels_stand_at_their_steps_and_between_steps_stands_nothing(run):
    axis = figures.run_figure(run.isel(time=slice(4, 8)), "forget_gate", labels="token").layout.xaxis
    tokens = [figures.visible(token) for token in run["token"].values[4:8]]
    assert [axis.labelalias[str(step)] for step in range(4, 8)] == tokens
    assert {axis.labelalias[between] for between in ("3.5", "5.5", "7.5")} == {" "}
    first = figures.run_figure(run, "forget_gate", labels="token").layout.xaxis
    assert first.labelalias["\N{MINUS SIGN}0.5"] == " "
    assert axis.side == "top"


def test_labels_of_binned_steps_are_left_out(run):
    assert figures.run_figure(run, "forget_gate", labels="token", most_cells=15).layout.xaxis.labelalias is None


def test_the_label_the_step_the_unit_and_the_value_stand_under_the_pointer(run):
    named = figures.run_figure(run, "forget_gate", labels="token").data[0].hovertemplate
    assert all(part in named for part in ("%{x}", "time %{x:d}", "unit %{y:d}", "%{z:.4f}"))
    assert "%{x}" not in figures.run_figure(run, "forget_gate").data[0].hovertemplate


def test_a_line_stands_before_every_first_step_of_a_segment(run):
    figure = figures.run_figure(run, "forget_gate", units=[1], panels=["forget_gate", "cell_state"])
    assert [shape.path.count("M 3.5,") for shape in figure.layout.shapes] == [1, 1, 2]
    assert [shape.path.count("M ") for shape in figure.layout.shapes] == [3, 3, 6]
    assert not figures.run_figure(run.drop_vars("boundary"), "forget_gate").layout.shapes


def test_lines_so_many_that_they_would_cover_the_picture_are_left_out(make_recording):
    run = make_recording(lengths=(1_100,)).sel(layer=0, direction="forward", sequence=0)
    assert len(figures.boundary_steps(run)) == 275
    assert not figures.run_figure(run, "forget_gate").layout.shapes


def test_a_unit_has_the_same_colour_in_every_panel_and_the_panels_do_not_overlap(run):
    figure = figures.run_figure(run, "forget_gate", units=[3, 0], panels=["forget_gate", "cell_state"])
    lines = [trace for trace in figure.data if trace.type == "scatter" and trace.xaxis is None]
    assert [line.name for line in lines] == ["unit 3", "unit 0"] * 2
    assert lines[0].line.color == lines[2].line.color != lines[1].line.color
    domains = sorted(figure.layout[name].domain for name in ("yaxis", "yaxis2", "yaxis3"))
    assert all(below[1] < above[0] for below, above in pairwise(domains))


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        (" ", "␣"),
        ("", "∅"),
        ("\n", "↵"),
        ("a b", "a b"),
        ("\u064e", "◌\u064e"),
        ("\0", "�"),
        ("\ud800", "�"),
        ("x" * 40, "x" * 17 + "…"),
        (np.bool_(False), "no"),
        (np.float64(2.0), "2"),
    ],
)
def test_every_label_leaves_a_mark(label, shown):
    assert figures.visible(label) == shown


def test_names_from_a_file_are_no_markup(run):
    run["forget_gate"].attrs["long_name"] = "<a href='x'>&"
    figure = figures.run_figure(run, "forget_gate", units=[1], panels=["forget_gate"])
    assert "&lt;a href='x'&gt;&amp;" in figure.data[0].hovertemplate
    assert figure.layout.yaxis2.title.text == "&lt;a href='x'&gt;&amp;"


def test_points_of_the_scatter_are_units_with_their_verdict(make_recording):
    from gatescope.probe.analyzers.saturation import saturation

    result = saturation(make_recording()).sel(layer=1, direction="backward")
    figure = figures.saturation_figure(result, ["forget_gate"], chosen=[2])
    points = figure.data[1]
    np.testing.assert_array_equal(points.x, result["left"].sel(signal="forget_gate"))
    np.testing.assert_array_equal(points.y, result["right"].sel(signal="forget_gate"))
    assert points.customdata[2].tolist() == [2, result["verdict"].sel(signal="forget_gate", unit=2).item()]
    assert np.flatnonzero(points.marker.size == points.marker.size.max()).tolist() == [2]


def test_joiners_of_letters_stay_and_what_steers_text_does_not():
    assert figures.visible("می\u200cروم") == "می\u200cروم"
    assert figures.visible("a\u202eb") == "a�b"
