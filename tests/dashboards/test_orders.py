"""Units in orders: the rows of the heatmap, the names beside them, and the code that sorts the same."""

from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

from gatescope.dashboards import figures, orders
from gatescope.probe.analyzers.resets import resets
from gatescope.probe.analyzers.timescales import timescales
from gatescope.probe.store import save_recording
from tests.dashboards.test_gates import code_switch, figure, healthy, numbers, texts


@pytest.fixture
def folder(tmp_path, resetting):
    save_recording(resetting, tmp_path / "run.zarr")
    return tmp_path


def rows(page) -> np.ndarray:
    return numbers(figure(page)["data"][0]["z"])


@pytest.mark.parametrize("by", [orders.SCALE, orders.RATE])
def test_rows_stand_in_the_order_of_the_measure_and_the_code_sorts_the_same(opened, folder, resetting, by):
    page = healthy(opened(folder, sort=by, sequence="1"))
    measured = timescales(resetting)["gate"] if by == orders.SCALE else resets(resetting)["rate"]
    order = np.argsort(-measured.values.ravel(), kind="stable")
    run = resetting["forget_gate"].values[0, 0, 1, :60]
    np.testing.assert_array_equal(rows(page), run[:, order].T)
    healthy(code_switch(page).set_value(True).run())
    scope: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg"}):
        exec(page.code[0].value, scope)
    np.testing.assert_array_equal(np.asarray(scope["axes"].images[0].get_array()), rows(page).astype(float))


def test_units_of_one_role_stand_together_and_the_page_counts_them(opened, folder, resetting):
    page = healthy(opened(folder, sort=orders.ROLE))
    names = [shape["text"] for shape in figure(page)["layout"]["annotations"]]
    assert names
    said = next(line for line in texts(page).splitlines() if line.startswith("Units of one role"))
    counted = [part.strip(" .").split(" ", 1) for part in said.split(".", 1)[1].split(",")]
    assert sum(int(count) for count, _ in counted) == 4
    assert set(names) <= {name for _, name in counted}


def test_a_sorted_row_is_named_after_its_unit_on_the_axis_and_under_the_pointer(make_recording):
    run = make_recording().sel(layer=0, direction="forward", sequence=1).isel(unit=[3, 0, 4])
    drawn = figures.run_figure(run, "forget_gate")
    assert [drawn.layout.yaxis.labelalias[str(row)] for row in range(3)] == ["3", "0", "4"]
    assert drawn.layout.yaxis.labelalias["0.5"] == " "
    assert "unit %{y}<br>" in drawn.data[0].hovertemplate
    assert figures.run_figure(run.sortby("unit").isel(unit=[0]), "forget_gate").layout.yaxis.labelalias is None


def test_units_that_do_the_same_are_neighbours():
    time = np.linspace(0, 20, 50)
    values = np.stack([np.sin(time), np.cos(time), -np.sin(time), np.sin(time) + 0.1, np.cos(time) * 2], axis=1)
    order = orders.alike(values).tolist()
    assert abs(order.index(0) - order.index(3)) == 1
    assert abs(order.index(1) - order.index(4)) == 1


def test_constant_units_and_short_runs_have_an_order_too():
    assert sorted(orders.alike(np.zeros((5, 4)))) == [0, 1, 2, 3]
    assert orders.alike(np.ones((1, 3))).tolist() == [0, 1, 2]
    assert orders.alike(np.full((4, 3), np.nan)).tolist() in ([0, 1, 2], [2, 1, 0], [0, 2, 1], [1, 2, 0])


def test_the_measured_resets_are_drawn_on_the_cells_the_traces_and_the_strip(opened, folder, resetting):
    page = healthy(opened(folder, sequence="1", unit="0,2"))
    drawn = {trace.get("name"): trace for trace in figure(page)["data"]}
    events = resets(resetting)
    here = events.isel(event=(events["event_sequence"].values == 1) & (events["event_kind"].values == "reset"))
    marked = sorted(zip(numbers(drawn["reset"]["x"]), numbers(drawn["reset"]["y"]), strict=True))
    assert marked == sorted(zip(here["onset"].values, here["event_unit"].values, strict=True))
    assert numbers(drawn["units that reset"]["y"]).sum() == here.sizes["event"]
    own = here["onset"].values[here["event_unit"].values == 0]
    np.testing.assert_array_equal(numbers(drawn["reset of unit 0"]["x"]), own)
    gate = resetting["forget_gate"].sel(layer=0, direction="forward", sequence=1, unit=0).values[own]
    np.testing.assert_array_equal(numbers(drawn["reset of unit 0"]["y"]), gate)
    healthy(page.toggle(key="marks").set_value(False).run())
    assert "reset" not in {trace.get("name") for trace in figure(page)["data"]}
    assert page.query_params["marks"] == "no"


def test_a_cell_that_keeps_by_no_gate_is_drawn_without_resets_and_says_why(opened, tmp_path, make_recording):
    recording = make_recording()
    recording.attrs |= {"retention": "none", "cell": "RNNCell"}
    save_recording(recording, tmp_path / "rnn.zarr")
    page = healthy(opened(tmp_path, sort=orders.SCALE))
    assert "this cell keeps by no gate" in texts(page)
    assert {trace["type"] for trace in figure(page)["data"]} == {"heatmap", "scatter"}


def test_all_about_one_unit_is_drawn_and_the_code_draws_it_from_the_same_results(opened, folder, resetting):
    page = healthy(opened(folder, about="yes", unit="1,0", one="0", sequence="1", sort=orders.ROLE, time="3-40"))
    assert page.get("image")
    assert page.selectbox(key="one").value == 0
    assert page.selectbox(key="judge").value == "token"
    healthy(code_switch(page).set_value(True).run())
    scope: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg"}):
        exec(page.code[0].value, scope)
    gate = resetting["forget_gate"].sel(layer=0, direction="forward", sequence=1, unit=0).values[3:41]
    np.testing.assert_array_equal(scope["figure"].axes[0].lines[0].get_ydata(), gate)
    events = resets(resetting).sel(layer=0, direction="forward", unit=0).isel(kind=0)
    assert f"Resets: {int(events['count'])}" in scope["figure"].axes[-1].texts[0].get_text()
