"""The page Saturation: what it shows is what `saturation` says, of all steps and of those of each value of a label."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from gatescope.dashboards import class_saturation, saturation_figures
from gatescope.probe.analyzers.saturation import saturation
from gatescope.probe.store import save_recording


@pytest.fixture
def place(tmp_path: Path, resetting: xr.Dataset) -> Path:
    save_recording(resetting, tmp_path / "run.zarr")
    return tmp_path


def test_the_page_shows_what_the_analyzer_says(opened, place, resetting, reading):
    page = reading.healthy(opened(place, view="saturation", sat_high="0.94", saturation="forget_gate"))
    result = saturation(resetting, high=0.94).isel(layer=0, direction=0).sel(signal="forget_gate")
    table = page.dataframe[0].value.set_index("unit")
    for name in ("left", "right", "mean", "verdict"):
        np.testing.assert_array_equal(table[name], result[name].values)
    points = reading.figure(page, "x + y")["data"][1]
    np.testing.assert_array_equal(reading.numbers(points["x"]), result["left"])
    for verdict in set(result["verdict"].values.tolist()):
        count = int((result["verdict"].values == verdict).sum())
        bar = next(trace for trace in reading.figure(page, verdict)["data"] if trace["name"] == verdict)
        assert reading.numbers(bar["x"]).tolist() == [count]
        assert f"{count} {verdict}" in reading.texts(page)


def test_each_value_of_a_label_has_the_shares_of_its_own_steps(opened, place, resetting, reading):
    page = reading.healthy(opened(place, view="saturation", signal="forget_gate"))
    gate = resetting["forget_gate"].isel(layer=0, direction=0).values
    shares = {value: (gate[resetting["token"].values == value] < 0.1).mean(axis=0) for value in "abc"}
    bars = {trace["name"]: trace for trace in reading.figure(page, "between")["data"]}
    order = sorted("abc", key=lambda value: -shares[value].mean())
    np.testing.assert_allclose(reading.numbers(bars["left (below 0.1)"]["x"]), [shares[v].mean() for v in order])
    assert order[0] == "b"  # at which unit 1 resets
    scatter = {trace["name"]: trace for trace in reading.figure(page, "b (")["data"]}
    name = next(name for name in scatter if name.startswith("b ("))
    np.testing.assert_allclose(reading.numbers(scatter[name]["x"]), shares["b"])
    assert name == f"b ({(resetting['token'].values == 'b').sum()} steps)"


def test_the_code_on_the_page_counts_the_same(opened, place, resetting, reading):
    page = opened(place, view="saturation", sat_low="0.2", label="boundary")
    reading.healthy(page.toggle[0].set_value(True).run())
    scope: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg"}):
        exec(page.code[0].value, scope)
        mpl.pyplot.close("all")
    xr.testing.assert_equal(scope["saturation"], saturation(resetting, low=0.2))
    bars = {trace["name"]: trace for trace in reading.figure(page, "between")["data"]}
    left = {
        value: result["left"].sel(signal="forget_gate").mean().item() for value, result in scope["by_label"].items()
    }
    np.testing.assert_allclose(sorted(reading.numbers(bars["left (below 0.2)"]["x"])), sorted(left.values()))
    assert left["True"] > 0.25 > left["False"]


def test_an_address_opens_the_view_it_was_taken_from(opened, place, reading):
    page = opened(place, view="saturation")
    page.selectbox(key="signal").set_value("output_gate")
    page.multiselect(key="values").set_value([2])
    reading.healthy(page.number_input(key="sat_low").set_value(0.3).run())
    again = reading.healthy(opened(place, view="saturation", **dict(page.query_params)))
    assert [chart.proto.spec for chart in again.get("plotly_chart")] == [
        chart.proto.spec for chart in page.get("plotly_chart")
    ]


def test_a_cell_without_gates_and_labels_is_told_what_there_is(opened, tmp_path, reading, resetting):
    names = ["hidden_state", "initial_hidden_state", "weight_hh"]
    recording = resetting[names].isel(gate=[0]).drop_vars(["token", "boundary", "value"])
    recording["hidden_state"].attrs["role"] = "memory"
    recording.attrs |= {"cell": "RNNCell", "retention": "none"}
    save_recording(recording, tmp_path / "run.zarr")
    page = reading.healthy(opened(tmp_path, view="saturation"))
    assert "no gates" in page.info[0].value
    assert "Record with labels" in page.info[1].value
    assert page.dataframe[0].value["signal"].unique().tolist() == ["hidden_state"]


def test_rows_of_the_table_by_label_are_the_results(resetting):
    found = {
        value: class_saturation.of_value(resetting, "token", value, (0.1, 0.9)).isel(layer=0, direction=0)
        for value in ("a", "b")
    }
    table = class_saturation.rows(found).set_index(["value", "signal", "unit"])
    assert len(table) == 2 * found["a"].sizes["signal"] * 4
    assert table.loc[("b", "forget_gate", 1), "left"] == found["b"]["left"].sel(signal="forget_gate", unit=1)
    shares = saturation_figures.class_shares(found, "forget_gate")
    assert list(shares) == ["b", "a"]
    assert shares["b"][2] == (resetting["token"].values == "b").sum()
