"""The page Roles: what it shows is what `roles` says."""

from pathlib import Path
from typing import Any

import h5py
import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr

from gatescope.dashboards import catalogue, chooser, lesions, role_comparison, role_figures
from gatescope.probe.analyzers.role_agreement import role_agreement
from gatescope.probe.analyzers.role_check import role_check
from gatescope.probe.analyzers.roles import roles
from gatescope.probe.store import save_recording


@pytest.fixture
def blocked(resetting: xr.Dataset) -> xr.Dataset:
    return resetting.assign_coords(block=("unit", [0, 0, 1, 1]))


@pytest.fixture
def place(tmp_path: Path, blocked: xr.Dataset) -> Path:
    save_recording(blocked, tmp_path / "run.zarr")
    return tmp_path


def test_the_page_shows_what_the_analyzer_says(opened, place, blocked, reading):
    page = reading.healthy(opened(place, view="roles", judge="token", unit="1"))
    result = roles(blocked, "token").isel(layer=0, direction=0)
    table = page.dataframe[0].value.set_index("unit").sort_index()
    assert table["role"].tolist() == result["unit_role"].values.tolist()
    np.testing.assert_array_equal(table["confidence"], result["confidence"])
    for name in result["statistic"].values:
        np.testing.assert_array_equal(table[name], result["evidence"].sel(statistic=name))
    rate = result["evidence"].sel(statistic="reset_rate")
    for role in set(result["unit_role"].values.tolist()):
        spots = reading.figure(page, role)["data"]
        spot = next(trace for trace in spots if trace["name"].startswith(role))
        mine = result["unit_role"].values == role
        np.testing.assert_allclose(reading.numbers(spot["y"]), rate.values[mine])
        assert [about[0] for about in spot["customdata"]] == result["unit"].values[mine].tolist()
    said = reading.texts(page)
    assert f"Specialisation {result['specialisation'].item():,.1f}" in said
    for block in (0, 1):
        assert f"**Block {block}**" in said
        sure = f"{result['block_confidence'].values[block]:.0%}"
        assert f"{result['block_role'].values[block]}, in {sure} of the samples" in said


def test_the_code_on_the_page_finds_the_same_roles(opened, place, reading):
    page = opened(place, view="roles", judge="token", short="1", long="9")
    reading.healthy(page.toggle[0].set_value(True).run())
    scope: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg"}):
        exec(page.code[-1].value, scope)
        mpl.pyplot.close("all")
    table = page.dataframe[0].value.set_index("unit").sort_index()
    found = scope["roles"].isel(layer=0, direction=0)
    assert found["unit_role"].values.tolist() == table["role"].tolist()
    assert (found.attrs["labels"], found.attrs["lags"]) == ("token", "[1, 9]")
    np.testing.assert_array_equal(found["confidence"], table["confidence"])


def test_an_address_opens_the_view_it_was_taken_from(opened, place, reading):
    page = opened(place, view="roles")
    page.selectbox(key="judge").set_value("boundary")
    page.number_input(key="short").set_value(2)
    page.number_input(key="long").set_value(20)
    reading.healthy(page.multiselect(key="unit").set_value([3, 0]).run())
    again = reading.healthy(opened(place, view="roles", **dict(page.query_params)))
    assert [chart.proto.spec for chart in again.get("plotly_chart")] == [
        chart.proto.spec for chart in page.get("plotly_chart")
    ]
    assert again.dataframe[0].value["unit"].tolist() == [0, 3, 1, 2]


def test_a_network_without_gates_or_labels_is_told_what_that_means(opened, tmp_path, blocked, reading):
    recording = blocked.drop_vars(["token", "boundary", "value", "block"])
    recording.attrs["retention"] = "1.0"
    save_recording(recording, tmp_path / "run.zarr")
    page = reading.healthy(opened(tmp_path, view="roles"))
    said = reading.texts(page)
    assert "never throws it away" in said
    assert "Specialisation cannot be told" in said
    assert "Without a label" in said
    assert "**Block" not in said


def test_units_at_one_spot_are_named_together_and_infinite_ones_stand_at_the_edge(blocked):
    result = roles(blocked, samples=5).isel(layer=0, direction=0)
    result["evidence"].loc[{"statistic": "time_scale"}] = [4.0, 4.0, np.inf, np.nan]
    result["evidence"].loc[{"statistic": "reset_rate"}] = [10.0, 10.0, 0.0, 0.0]
    spots = role_figures.spots_of(result)
    assert spots.scale.tolist() == [4.0, 4.0, 8.0, 2.0]
    assert role_figures.spot_names(spots, [0, 1, 2, 3]) == {1: "0, 1", 2: "2", 3: "3"}
    texts = [text for trace in role_figures.role_map_figure(result).data for text in trace.text]
    assert sorted(texts) == ["", "0, 1", "2", "3"]


def lesioned(recording: xr.Dataset, metrics: tuple[str, ...] = ("long", "short")) -> xr.Dataset:
    """Effects of taking out each block over 12 sequences: block 0 holds the long lag, block 1 nothing."""
    rng, dims = np.random.default_rng(0), ("metric", "layer", "direction", "memory_block", "sequence")
    grown = rng.normal(0, 0.01, (len(metrics), 1, 1, 2, 12))
    grown[0, :, :, 0] += 0.7
    mean = grown.mean(axis=-1)
    data = {"effect_by_sequence": (dims, grown)}
    data |= {
        "effect": (dims[:-1], mean),
        "effect_low": (dims[:-1], mean - 0.01),
        "effect_high": (dims[:-1], mean + 0.01),
    }
    data |= {"p_adjusted": (dims[:-1], np.where(mean > 0.5, 0.001, 0.9)), "p": (dims[:-1], np.full(mean.shape, 0.5))}
    coords = {"metric": np.array(metrics, dtype=object), "per_sequence": ("metric", np.full(len(metrics), True))}
    coords |= {"layer": [0], "direction": np.array(["forward"], dtype=object), "memory_block": [0, 1]}
    attrs = {"measure": "ablation", "over": "block", "to": "zero", "module": recording.attrs["module"]}
    return xr.Dataset(data, coords, attrs)


def test_a_file_beside_the_recording_that_lacks_what_lesions_have_is_refused(opened, place, blocked, reading):
    lesioned(blocked).drop_vars("per_sequence").to_netcdf(place / "run.ablation.nc", engine="h5netcdf")
    page = reading.healthy(opened(place, view="roles"))
    assert any("do not do" in warning.value for warning in page.warning)


def test_lesions_beside_the_recording_put_its_roles_to_the_test(opened, place, blocked, reading):
    effects = lesioned(blocked)
    effects.to_netcdf(place / "run.ablation.nc", engine="h5netcdf")
    page = reading.healthy(opened(place, view="roles", judge="token"))
    assert page.selectbox(key="recording").options[0] == "run.zarr"
    assert not any("ablation" in name for name in page.selectbox(key="recording").options)
    checked = role_check(roles(blocked, "token"), effects).isel(layer=0, direction=0)
    table = page.dataframe[0].value
    assert table["finding"].tolist() == checked["finding"].values.tolist()
    spots = [t for t in reading.figure(page, "alike")["data"] if t["name"] != "alike"]
    grown = np.concatenate([reading.numbers(spot["y"]) for spot in spots])
    np.testing.assert_allclose(sorted(grown), sorted(checked["specialisation"].sel(lag="long").values))

    reading.healthy(page.toggle[0].set_value(True).run())
    scope: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg"}):
        exec(page.code[-1].value, scope)
        mpl.pyplot.close("all")
    assert scope["check"]["finding"].values.ravel().tolist() == table["finding"].tolist()


def test_lesions_of_one_metric_are_shown_as_effects(opened, place, blocked, reading):
    effects = lesioned(blocked, ("<b>loss</b>",))
    effects.to_netcdf(place / "run.ablation.nc", engine="h5netcdf")
    page = reading.healthy(opened(place, view="roles"))
    points = reading.figure(page, "&lt;b&gt;loss")["data"][0]
    np.testing.assert_allclose(reading.numbers(points["x"]), effects["effect"].values.ravel())
    assert points["marker"]["symbol"] == ["circle", "circle-open"]


def test_two_metrics_of_other_names_put_roles_to_the_test_once_it_is_said_which_is_which(
    opened, place, blocked, reading
):
    effects = lesioned(blocked, ("early", "late"))
    effects.to_netcdf(place / "run.ablation.nc", engine="h5netcdf")
    page = reading.healthy(opened(place, view="roles", judge="token"))
    points = reading.figure(page, "early")["data"][0]
    np.testing.assert_allclose(reading.numbers(points["x"]), effects["effect"].sel(metric="early").values.ravel())
    page.selectbox(key="long_error").set_value("late")
    reading.healthy(page.selectbox(key="short_error").set_value("early").run())
    expected = role_check(roles(blocked, "token"), effects, long="late", short="early")
    assert page.dataframe[0].value["finding"].tolist() == expected["finding"].values.ravel().tolist()


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ("bytes", "run.ablation.nc: "),
        ("link", "is a link that leaves the folder"),
        ("module", "of the module 'x'"),
        ("other", "it holds 'y'"),
        ("layer", "layer 0 was left whole"),
        ("size", "no more than 50,000,000 values"),
        ("pointer", "'effect' must stand in the file itself"),
        ("none", ""),
    ],
)
def test_lesions_that_do_not_do_are_refused_in_a_sentence(place, blocked, broken, said, tmp_path_factory):
    path = place / "run.ablation.nc"
    made = lesioned(blocked)
    if broken == "bytes":
        path.write_bytes(b"\x89HDF\r\n\x1a\n" + b"x" * 99)
    elif broken == "link":
        outside = tmp_path_factory.mktemp("outside") / "e.nc"
        made.to_netcdf(outside, engine="h5netcdf")
        path.symlink_to(outside)
    elif broken == "size":
        with h5py.File(path, "w") as file:
            file.create_dataset("effect", shape=(10**6, 10**6), chunks=(1, 1), dtype="f8")
    elif broken == "pointer":
        with h5py.File(path, "w") as file:
            file["effect"] = h5py.ExternalLink("/etc/passwd", "/x")
    elif broken == "layer":
        made.assign_coords(layer=[3]).to_netcdf(path, engine="h5netcdf")
    elif broken != "none":
        made = made.assign_attrs({"module": {"module": "x"}, "other": {"measure": "y"}}[broken])
        made.to_netcdf(path, engine="h5netcdf")
    entry = catalogue.Entry("run.zarr", place / "run.zarr")
    view = chooser.View(entry, False, blocked.attrs["module"], blocked, 0, "forward", 0, None)
    found = lesions.of(view)
    assert found.effects is None
    assert said in found.problem
    assert bool(said) == bool(found.problem)


def test_roles_stay_where_lesions_do_not_do_and_the_page_says_how_to_measure_them(opened, place, reading):
    page = reading.healthy(opened(place, view="roles"))
    assert "Only the network itself can tell" in reading.texts(page)
    assert "run.ablation.nc" in page.code[0].value
    (place / "run.ablation.nc").write_bytes(b"no netCDF")
    reading.healthy(page.run())
    assert "do not do" in reading.texts(page)
    assert reading.figure(page, page.dataframe[0].value["role"].iloc[0])


@pytest.mark.slow
def test_the_blocks_of_an_example_are_taken_out_on_the_spot(opened, tmp_path, reading):
    pytest.importorskip("torch")
    page = reading.healthy(opened(tmp_path, view="roles", recording="example: cerg-latch", judge="remember"))
    table = page.dataframe[0].value.set_index("block")
    assert table.loc[2, ["role", "verdict", "damage"]].tolist() == ["latch", "confirmed", "long only"]
    reading.healthy(page.toggle[0].set_value(True).run())
    scope: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg"}):
        exec(page.code[-1].value, scope)
        mpl.pyplot.close("all")
    assert scope["check"]["finding"].values.ravel().tolist() == table["finding"].tolist()


def test_no_unit_with_a_ring_leaves_the_traces_of_other_pages_alone(opened, place, reading):
    page = reading.healthy(opened(place, view="roles"))
    assert "unit" not in page.query_params
    page.multiselect(key="unit").set_value([2]).run()
    assert page.query_params["unit"] == ["2"] or page.query_params["unit"] == "2"
    page.multiselect(key="unit").set_value([]).run()
    reading.healthy(page.switch_page("views/gates.py").run())
    assert page.multiselect(key="unit").value


def test_units_of_another_network_are_paired_and_the_code_pairs_them_alike(opened, place, blocked, reading):
    other = blocked.isel(unit=[2, 0, 1], source=[2, 0, 1]).assign_coords(unit=[0, 1, 2], source=[0, 1, 2])
    save_recording(other.drop_vars(["token", "block"]), place / "z.zarr")
    page = reading.healthy(opened(place, view="roles", judge="token", beside="z.zarr"))
    expected = role_agreement(roles(blocked, "token"), roles(other)).isel(layer=0, direction=0)
    assert f"3 pairs, {expected['agreement'].item():.0%} with the same role" in reading.texts(page)
    counted = next(frame.value for frame in page.dataframe if frame.value.index.name == "here")
    assert counted.to_numpy().sum() == 3
    reading.healthy(page.toggle[0].set_value(True).run())
    scope: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg"}):
        exec(page.code[-1].value, scope)
        mpl.pyplot.close("all")
    paired = scope["agreement"].isel(layer=0, direction=0)
    np.testing.assert_array_equal(paired["matched_unit"], expected["matched_unit"])
    assert role_comparison.rows(paired)["matched_unit"].tolist() == expected["matched_unit"].values.tolist()
