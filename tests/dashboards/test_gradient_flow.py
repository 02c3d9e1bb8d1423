"""The page Gradient flow: what it shows is what `gradient_flow` says."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from gatescope.dashboards import flow_curves, flow_figures, path_figures
from gatescope.probe.analyzers.gradient_flow import gradient_flow
from gatescope.probe.store import save_recording


@pytest.fixture
def small(resetting: xr.Dataset) -> xr.Dataset:
    """Its first 30 steps."""
    recording = resetting.isel(time=slice(0, 30))
    return recording.assign_coords(length=("sequence", [30, 30]))


@pytest.fixture
def place(tmp_path: Path, small: xr.Dataset) -> Path:
    save_recording(small, tmp_path / "run.zarr")
    return tmp_path


def relative(result: xr.Dataset, block: str, quantile: float = 0.5) -> np.ndarray:
    at = {"norm": "frobenius", "block": block}
    here = result["state_norm"].isel(layer=0, direction=0).sel(**at, quantile=quantile)
    return (here - result["norm_at_zero"].sel(at)).values


def test_the_page_shows_what_the_analyzer_says(opened, place, small, reading):
    page = reading.healthy(opened(place, view="gradient_flow", sequence="1", time="5-20"))
    result = gradient_flow(small)
    line = next(trace for trace in reading.figure(page, "run.zarr")["data"] if trace["name"] == "run.zarr")
    np.testing.assert_allclose(reading.numbers(line["y"]), relative(result, "total c->c"))
    np.testing.assert_array_equal(reading.numbers(line["x"]), result["horizon"])
    table = page.dataframe[0].value.iloc[0]
    assert table["half_life"] == result["half_life"].item()
    assert table["verdict"] == result["verdict"].item()
    assert table["to_1_percent"] == result["effective_horizon"].values.ravel()[0]
    assert f"run.zarr: {table['verdict']}, half is left after {table['half_life']:,.1f} steps" in reading.texts(page)

    middle = result.isel(layer=0, direction=0).sel(quantile=0.5)
    cut = (middle["knockout_norm"] - middle["knockout_reference"]).sel(path="via candidate")
    line = next(t for t in reading.figure(page, "without")["data"] if t["name"] == "without candidate")
    np.testing.assert_allclose(reading.numbers(line["y"]), cut)

    shares = result["path_share"].isel(layer=0, direction=0, sequence=1, time=slice(5, 21))
    bars = next(trace for trace in reading.figure(page, "direct")["data"] if trace["name"] == "direct")
    np.testing.assert_allclose(reading.numbers(bars["y"]), shares.sel(path="direct"), rtol=1e-5)
    np.testing.assert_array_equal(reading.numbers(bars["x"]), np.arange(5, 21))


def test_the_code_on_the_page_counts_and_draws_the_same(opened, place, small, reading, make_recording):
    save_recording(make_recording(layers=1, directions=1, lengths=(20, 9)), place / 'it\'s "other".nc')
    address = {"recording": "run.zarr", "with": 'it\'s "other".nc', "followed": "1", "block": "h->h"}
    page = opened(place, view="gradient_flow", **address)
    reading.healthy(page.toggle[-1].set_value(True).run())
    scope: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg", "figure.max_open_warning": 0}):
        exec(page.code[0].value, scope)
        drawn = mpl.pyplot.gcf().axes[0]
        lines = {line.get_label(): line.get_ydata() for line in drawn.lines}
        mpl.pyplot.close("all")
    xr.testing.assert_equal(scope["flow"], gradient_flow(small.isel(sequence=[0])))
    sent = {trace["name"]: trace for trace in reading.figure(page, "run.zarr")["data"]}
    for name in ("run.zarr", 'it\'s "other".nc'):
        np.testing.assert_allclose(lines[name], reading.numbers(sent[name]["y"]))
    assert page.dataframe[0].value["recording"].tolist() == ["run.zarr", 'it\'s "other".nc']
    shares = scope["shares"]["path_share"].isel(layer=0, direction=0, sequence=0, time=slice(1, None))
    bars = next(trace for trace in reading.figure(page, "direct")["data"] if trace["name"] == "direct")
    np.testing.assert_allclose(reading.numbers(bars["y"]), shares.sel(path="direct"))


def test_all_layers_are_curves_of_their_own_and_stand_in_the_address(opened, tmp_path, make_recording, reading):
    recording = make_recording(lengths=(12, 9), units=3)
    save_recording(recording, tmp_path / "run.zarr")
    page = opened(tmp_path, view="gradient_flow", layer="1", direction="backward")
    reading.healthy(page.toggle(key="layers").set_value(True).run())
    assert page.query_params["layers"] == ["yes"] or page.query_params["layers"] == "yes"
    table, result = page.dataframe[0].value.set_index("recording"), gradient_flow(recording)
    assert table.index[0] == "run.zarr, layer 1, backward"
    for layer in (0, 1):
        for direction in ("forward", "backward"):
            here = result["half_life"].sel(layer=layer, direction=direction).item()
            assert table.loc[f"run.zarr, layer {layer}, {direction}", "half_life"] == here


@pytest.mark.parametrize("why", ["one step", "stride"])
def test_a_recording_that_does_not_do_says_what_it_needs(opened, tmp_path, make_recording, reading, why):
    recording = make_recording(layers=1, directions=1, lengths=(1,) if why == "one step" else (9,))
    if why == "stride":
        recording.attrs["stride"] = 2
    save_recording(recording, tmp_path / "run.zarr")
    page = reading.healthy(opened(tmp_path, view="gradient_flow"))
    assert "needs every step" in page.warning[0].value
    assert not page.get("plotly_chart")
    assert len(reading.texts(page).splitlines()) > 1  # and the analyzer's own sentence


def test_a_sequence_of_one_step_has_no_shares_and_the_curves_stay(opened, tmp_path, make_recording, reading):
    save_recording(make_recording(layers=1, directions=1), tmp_path / "run.zarr")
    page = reading.healthy(opened(tmp_path, view="gradient_flow", sequence="2"))
    assert "no path shares" in page.warning[0].value
    assert reading.figure(page, "run.zarr")


def test_a_band_holds_its_line_and_a_product_of_zero_leaves_a_gap(small):
    result = gradient_flow(small).isel(layer=0, direction=0)
    curve = flow_figures.curve_of(result, "whole", "frobenius")
    assert (curve.low <= curve.middle).all()
    assert (curve.middle <= curve.high).all()
    figure = flow_figures.decay_figure({"<b>": curve})
    band, line = figure.data
    assert line.name == "&lt;b&gt;"
    np.testing.assert_array_equal(band.y, [*curve.high, *curve.low[::-1]])
    np.testing.assert_allclose(np.asarray(line.customdata)[:, 0], 10**curve.middle)
    lost = result.assign(state_norm=result["state_norm"].where(result["horizon"] < 20, -np.inf))
    assert np.isnan(flow_figures.curve_of(lost, "whole", "frobenius").middle[-1])


def test_rows_of_the_cell_path_stand_by_what_they_keep(small):
    result = gradient_flow(small).isel(layer=0, direction=0)
    heat = path_figures.cell_path_figure(result, lowest=-3.0).data[0]
    kept = result["cell_path"].sel(quantile=0.5).transpose("unit", "horizon").values
    units = np.asarray(heat.customdata)[:, 0]
    np.testing.assert_array_equal(heat.z, np.maximum(kept[units], -3.0))
    assert (np.diff(np.asarray(heat.z).sum(axis=1)) <= 0).all()


@pytest.mark.parametrize(("units", "steps", "usual"), [(8, 100, 16), (4096, 2000, 1)])
def test_fewer_sequences_are_followed_where_each_costs_much(units, steps, usual):
    recording = xr.Dataset(coords={"unit": range(units), "sequence": range(20), "length": ("sequence", [steps] * 20)})
    assert flow_curves.amounts(recording) == ([1, 4, 16, 20], usual)
