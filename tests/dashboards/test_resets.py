"""The page Resets: what it shows is what the analyzers say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from gatescope.dashboards import event_tables, reset_figures, segments
from gatescope.probe.analyzers.alignment import alignment
from gatescope.probe.analyzers.event_average import event_average
from gatescope.probe.analyzers.resets import resets
from gatescope.probe.analyzers.triggers import triggers
from gatescope.probe.store import save_recording


@pytest.fixture
def place(tmp_path: Path, resetting: xr.Dataset) -> Path:
    save_recording(resetting, tmp_path / "run.zarr")
    return tmp_path


def test_the_page_shows_what_the_analyzers_say(opened, place, resetting, reading):
    page = reading.healthy(opened(place, view="resets", sequence="1", unit="0,1"))
    events = resets(resetting)
    marks = [trace for trace in reading.figure(page, "reset to zero")["data"] if "marker" in trace and "x" in trace]
    here = events.isel(event=events["event_sequence"].values == 1)
    onsets = np.concatenate([reading.numbers(trace["x"]) for trace in marks if trace["type"] == "scatter"])
    assert sorted(onsets) == sorted(here["onset"].values)
    together = next(trace for trace in reading.figure(page, "at once")["data"] if trace["name"] == "at once")
    np.testing.assert_array_equal(reading.numbers(together["y"]), here["together"].values.ravel()[90:150])

    average = event_average(resetting, events).isel(layer=0, direction=0)
    lines = {trace["name"]: trace for trace in reading.figure(page, "unit 0")["data"] if trace.get("yaxis") == "y2"}
    line = next(trace for name, trace in lines.items() if name.startswith("unit 1"))
    np.testing.assert_allclose(reading.numbers(line["y"]), average["memory_size"].sel(unit=1))

    agreement = alignment(events, tolerance=1)
    table = page.dataframe[0].value.set_index("number").sort_index()
    for name in ("precision", "recall", "f1", "lag", "p_adjusted"):
        np.testing.assert_array_equal(table[name].dropna(), agreement[name].values.ravel()[:2], err_msg=name)
    beyond = next(t for t in reading.figure(page, "beyond chance")["data"] if t["name"] == "beyond chance (1)")
    assert (reading.numbers(beyond["x"]).item(), reading.numbers(beyond["y"]).item()) == (1.0, 1.0)

    cause = triggers(events, "token").isel(layer=0, direction=0)
    bars = reading.figure(page, "lift")["data"][0]
    np.testing.assert_allclose(sorted(reading.numbers(bars["x"])), sorted(cause["layer_lift"].values))
    assert f"{agreement['boundaries'].item()} boundaries. 1 of 4 units agree beyond chance." in reading.texts(page)


def test_the_code_on_the_page_counts_and_draws_the_same(opened, place, resetting, reading):
    page = opened(place, view="resets", segments="token is", value="b", tolerance="1", depth="0.5", at_least="5")
    reading.healthy(page.toggle[0].set_value(True).run())
    scope: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg", "figure.max_open_warning": 0}):
        exec(page.code[0].value, scope)
        mpl.pyplot.close("all")
    expected = resets(resetting, min_depth=0.5)
    xr.testing.assert_identical(scope["events"].drop_attrs(), expected.drop_attrs())
    begins = (resetting["token"] == "b").rename("begins")
    table = page.dataframe[0].value.set_index("number").sort_index()
    for mine in (scope["alignment"], alignment(expected, begins, tolerance=1)):
        np.testing.assert_array_equal(table["precision"], mine["precision"].values.ravel())
    xr.testing.assert_equal(scope["average"], event_average(resetting, expected))
    assert scope["triggers"]["layer_trigger"].item() == triggers(expected, "token", at_least=5)["layer_trigger"].item()


def test_where_resets_are_off_by_a_step_the_page_says_what_to_allow_for(opened, tmp_path, resetting, reading):
    late = resetting["boundary"].shift(time=-2, fill_value=False)
    save_recording(resetting.assign_coords(boundary=late), tmp_path / "run.zarr")
    page = reading.healthy(opened(tmp_path, view="resets"))
    assert "2 steps after a boundary: allow for it" in reading.texts(page)
    reading.healthy(page.number_input(key="tolerance").set_value(2).run())
    assert "allow for it" not in reading.texts(page)


def test_an_address_opens_the_view_it_was_taken_from(opened, place, reading):
    page = opened(place, view="resets")
    page.selectbox(key="segments").set_value("token changes").run()
    page.selectbox(key="rows").set_value("number")
    page.number_input(key="tolerance").set_value(3)
    page.multiselect(key="unit").set_value([1])
    reading.healthy(page.selectbox(key="method").set_value("absolute").run())
    again = reading.healthy(opened(place, view="resets", **dict(page.query_params)))
    sent = [[chart.proto.spec for chart in each.get("plotly_chart")] for each in (page, again)]
    assert sent[0] == sent[1]
    assert again.query_params == page.query_params


@pytest.mark.parametrize("address", [{"segments": "<b>", "method": "7"}, {"tolerance": "-5", "value": "x", "rows": ""}])
def test_an_address_that_fits_nothing_opens_the_usual_view(opened, place, reading, address):
    page = reading.healthy(opened(place, view="resets", **address))
    assert page.selectbox(key="segments").value == "boundary"
    assert page.number_input(key="tolerance").value == (0 if "tolerance" in address else 1)  # the nearest there is


@pytest.mark.parametrize(
    ("retention", "said"), [("1.0", "never throws it away"), ("none", "has no gate that could fall")]
)
def test_a_network_that_cannot_reset_is_said_to_and_why(opened, tmp_path, make_recording, reading, retention, said):
    recording = make_recording()
    recording.attrs["retention"] = retention
    save_recording(recording, tmp_path / "run.zarr")
    page = reading.healthy(opened(tmp_path, view="resets"))
    assert "cannot reset itself" in page.warning[0].value
    assert said in reading.texts(page)
    assert not page.get("plotly_chart")


def test_without_labels_the_page_says_what_to_record(opened, tmp_path, resetting, reading):
    save_recording(resetting.drop_vars(["token", "boundary", "value"]), tmp_path / "run.zarr")
    page = reading.healthy(opened(tmp_path, view="resets"))
    assert "Nothing marks segments" in page.info[0].value
    assert "has no labels" in page.info[1].value
    assert len(page.get("plotly_chart")) == 2  # raster and averages


def test_a_recording_that_could_reset_and_does_not_says_what_to_try(opened, tmp_path, resetting, reading):
    open_gate = resetting["forget_gate"].where(resetting["forget_gate"].isnull(), 0.95)
    save_recording(resetting.assign(forget_gate=open_gate), tmp_path / "run.zarr")
    page = reading.healthy(opened(tmp_path, view="resets"))
    assert "absolute levels" in page.warning[0].value
    assert not page.get("plotly_chart")


def test_labels_are_text_in_every_picture_and_never_markup(opened, tmp_path, resetting, reading):
    evil = "<img src=x onerror=alert(1)>"
    token = resetting["token"].copy(data=np.where(resetting["token"].values == "b", evil, resetting["token"].values))
    save_recording(resetting.assign_coords(token=token), tmp_path / "run.zarr")
    page = reading.healthy(opened(tmp_path, view="resets", time="0-40", segments="token is", value=evil))
    for chart in page.get("plotly_chart"):
        assert "<img" not in chart.proto.spec
    assert page.selectbox(key="value").value == evil
    assert not any(element.allow_html for element in page.markdown)


def test_fresh_starts_of_a_gru_are_a_kind_of_their_own(opened, tmp_path, reading):
    torch = pytest.importorskip("torch")
    from gatescope.probe.attach import record

    torch.manual_seed(0)
    gru = torch.nn.GRU(3, 6, batch_first=True)
    with torch.no_grad():
        for parameter in gru.parameters():
            parameter.mul_(8)
    recording = record(gru, torch.randn(3, 80, 3))
    save_recording(recording, tmp_path / "run.zarr")
    kind = "fresh_start"
    page = reading.healthy(opened(tmp_path, view="resets", kind=kind))
    assert page.selectbox(key="kind").options == ["reset", "fresh start"]
    count = int(resets(recording)["count"].sel(kind=kind).sum())
    marked = [t for t in reading.figure(page, "at once")["data"] if t["type"] == "scatter" and "marker" in t]
    events = resets(recording)
    here = (events["event_kind"].values == kind) & (events["event_sequence"].values == 0)
    assert count > 0
    assert sum(len(reading.numbers(trace["x"])) for trace in marked) == here.sum()
    assert all(trace["name"].startswith("fresh start") for trace in marked)


def test_of_too_many_events_the_deepest_are_drawn(resetting):
    events = resets(resetting)
    raster = reset_figures.raster_of(events, kind="reset", sequence=0, rows=[1, 0], window=(0, 89), most=5)
    here = events["event_sequence"].values == 0
    assert raster.left_out == here.sum() - 5
    np.testing.assert_array_equal(np.sort(raster.events["depth"]), np.sort(events["depth"].values[here])[-5:])


def test_a_row_of_the_raster_is_the_unit_that_its_mark_names(resetting):
    events = resets(resetting)
    raster = reset_figures.raster_of(events, kind="reset", sequence=0, rows=[1, 0], window=(10, 30))
    run = events["together"].sel(kind="reset", sequence=0).isel(layer=0, direction=0, time=slice(10, 31))
    figure = reset_figures.raster_figure(raster, run, labels="token", boundary="boundary")
    marks = [trace for trace in figure.data if trace.customdata is not None]
    assert sum(len(trace.x) for trace in marks) == raster.events.sizes["event"] > 0
    for trace in marks:
        assert [raster.rows[int(row)] for row in trace.y] == [about[0] for about in trace.customdata]
        assert [run["token"].sel(time=step).item() for step in trace.x] == [about[5] for about in trace.customdata]
    assert figure.layout.shapes[0].path.count("M ") == int(run["boundary"].sum()) > 0
    assert (figure.layout.xaxis.range, figure.layout.yaxis.ticktext) == ((9.5, 30.5), ("1", "0"))


@pytest.mark.parametrize("how", ["flag", "is", "changes"])
def test_the_code_for_boundaries_makes_the_flags_that_are_counted(resetting, how):
    rule = segments.Segments("boundary" if how == "flag" else "token", how, "b")
    lines, expression = segments.lines_of(rule)
    scope: dict[str, Any] = {"recording": resetting}
    exec("\n".join(lines), scope)
    made = resetting[eval(expression)] if how == "flag" else eval(expression, scope)
    np.testing.assert_array_equal(made, segments.flags_of(resetting, rule))
    assert not made.values[1, 60:].any()


def test_the_units_to_look_at_first_agree_with_the_boundaries(resetting):
    events = resets(resetting)
    assert event_tables.best_units(events, "reset", alignment(events), 3) == [0, 1]
    assert event_tables.best_units(events, "reset", None, 1) == [int(events["count"].argmax("unit").item())]


def test_tables_hold_every_event_and_every_block(resetting, make_recording: Callable[..., xr.Dataset]):
    blocked = resetting.assign_coords(block=("unit", [0, 0, 1, 1]))
    events = resets(blocked)
    table = event_tables.event_rows(events, "reset")
    np.testing.assert_array_equal(table["onset"], events["onset"])
    np.testing.assert_array_equal(table["block"], 0)
    rows = event_tables.agreement_rows(alignment(events))
    assert rows["what"].tolist() == ["block"] * 2 + ["unit"] * 4
    assert rows["events"].sum() == int(events["block_count"].sum() + events["count"].sum())


def test_labels_called_like_columns_of_the_result_are_left_out_with_a_word(opened, tmp_path, resetting, reading):
    save_recording(resetting.rename(token="depth", boundary="low"), tmp_path / "run.zarr")
    page = reading.healthy(opened(tmp_path, view="resets", label="depth"))
    assert "label 'depth', 'low'" in reading.texts(page)
    assert reading.figure(page, "reset to zero")
