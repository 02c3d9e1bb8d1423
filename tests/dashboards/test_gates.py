import base64
import json
import os
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from streamlit.testing.v1 import AppTest

from gatescope.probe.store import save_recording

EVIL = ("<img src=x onerror=alert(1)>", "<b>", "&amp;", "**bold**", "%{x}", "$x$", "\0")


def figure(page: AppTest, place: int = 0) -> dict[str, Any]:
    """A plotly figure as it is sent to the browser."""
    spec: dict[str, Any] = json.loads(page.get("plotly_chart")[place].proto.spec)
    return spec


def numbers(sent: Any) -> np.ndarray:
    """Numbers of a plotly figure, which travel as base64 or as lists."""
    if not isinstance(sent, dict):
        return np.asarray(sent, dtype=np.float64)
    flat = np.frombuffer(base64.b64decode(sent["bdata"]), dtype=sent["dtype"])
    return flat.reshape([int(n) for n in sent["shape"].split(",")]) if "shape" in sent else flat


def texts(page: AppTest) -> str:
    shown = [*page.text, *page.caption, *page.markdown, *page.warning]
    return "\n".join(str(element.value).replace("\\", "") for element in shown)  # markdown with its signs escaped


def code_switch(page: AppTest) -> Any:
    return next(switch for switch in page.toggle if switch.label == "The code that draws this")


def healthy(page: AppTest) -> AppTest:
    assert not page.exception, page.exception[0].message
    return page


def test_the_heatmap_holds_the_values_of_the_run_and_no_padding(opened, folder, make_recording):
    page = healthy(opened(folder, sequence="1", layer="1", direction="backward", signal="cell_state"))
    run = make_recording()["cell_state"].sel(layer=1, direction="backward", sequence=1).isel(time=slice(0, 12))
    np.testing.assert_array_equal(numbers(figure(page)["data"][0]["z"]), run.values.T)
    np.testing.assert_array_equal(numbers(figure(page)["data"][0]["x"]), np.arange(12))


def test_traces_stand_gate_above_state_and_share_the_steps_of_the_heatmap(opened, folder, make_recording):
    spec = figure(healthy(opened(folder, unit="2,4", sequence="1", time="3-7")))
    lines = [trace for trace in spec["data"] if trace["type"] == "scatter" and trace["name"].startswith("unit")]
    assert [(line["name"], line["yaxis"]) for line in lines] == [
        ("unit 2", "y2"),
        ("unit 4", "y2"),
        ("unit 2", "y3"),
        ("unit 4", "y3"),
    ]
    run = make_recording().sel(layer=0, direction="forward", sequence=1).isel(time=slice(3, 8))
    np.testing.assert_array_equal(numbers(lines[1]["y"]), run["forget_gate"].sel(unit=4).values)
    np.testing.assert_array_equal(numbers(lines[2]["y"]), run["cell_state"].sel(unit=2).values)
    np.testing.assert_array_equal(numbers(lines[2]["x"]), np.arange(3, 8))
    assert spec["layout"]["xaxis2"]["matches"] == "x"


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("signal", "hidden_state", "hidden state"),
        ("layer", 1, "layer1"),
        ("direction", "backward", "backward"),
        ("sequence", 1, "sequence1"),
        ("label", "value", "value"),
        ("label", "", "None"),
    ],
)
def test_every_selector_changes_the_page_and_the_address(opened, folder, key, value, shown):
    page = opened(folder)
    before = [chart.proto.id + chart.proto.spec for chart in page.get("plotly_chart")]
    healthy(page.selectbox(key=key).set_value(value).run())
    assert page.query_params[key] == (str(value) or "-")
    after = [chart.proto.id + chart.proto.spec for chart in page.get("plotly_chart")]
    assert after != before
    assert shown in "".join(after)


def test_an_address_opens_the_view_it_was_taken_from(opened, folder):
    page = opened(folder)
    page.selectbox(key="sequence").set_value(1)
    page.selectbox(key="signal").set_value("output_gate")
    page.multiselect(key="unit").set_value([4, 1]).run()
    healthy(page.slider[0].set_value((2, 5)).run())
    again = healthy(opened(folder, **dict(page.query_params)))
    assert figure(again) == figure(page)
    assert (again.multiselect[0].value, again.slider[0].value) == ([4, 1], (2, 5))


def test_a_view_without_label_and_traces_has_an_address_too(opened, folder):
    page = opened(folder)
    page.selectbox(key="label").set_value("")
    healthy(page.multiselect[0].set_value([]).run())
    again = healthy(opened(folder, **dict(page.query_params)))
    assert (again.selectbox(key="label").value, again.multiselect[0].value) == ("", [])
    assert {trace.get("yaxis", "y") for trace in figure(again)["data"] if trace["type"] == "scatter"} == {"y"}


def test_an_older_address_in_the_same_session_shows_the_older_view(opened, folder):
    page = opened(folder)
    older, first = dict(page.query_params), figure(page)
    page.selectbox(key="signal").set_value("cell_state").run()
    page.slider[0].set_value((1, 3)).run()
    page.query_params.clear()
    page.query_params.update(older)
    assert figure(healthy(page.run())) == first


@pytest.mark.parametrize(
    "address",
    [
        {"recording": "../../etc/passwd", "signal": "nothing", "layer": "99", "sequence": "-1", "label": "<b>"},
        {"time": "9-1", "unit": "1,1,x,999999,-3", "statistic": "sum", "saturation": "weight_hh"},
        {"time": "5", "unit": "-", "direction": "0"},
    ],
)
def test_an_address_that_fits_nothing_opens_the_usual_view(opened, folder, address):
    page = healthy(opened(folder, **address))
    assert page.query_params["recording"] == "run.zarr"
    assert page.selectbox(key="layer").value == 0


def test_a_button_leads_back_to_the_whole_sequence(opened, folder):
    page = opened(folder, sequence="1")
    assert "Whole sequence" not in [button.label for button in page.button]
    healthy(page.slider[0].set_value((2, 5)).run())
    assert page.query_params["time"] == "2-5"
    healthy(next(button for button in page.button if button.label == "Whole sequence").click().run())
    assert page.slider[0].value == (0, 11)
    assert "time" not in page.query_params


def test_another_sequence_is_shown_whole(opened, folder):
    page = opened(folder, sequence="0", time="2-4")
    assert page.slider[0].value == (2, 4)
    healthy(page.selectbox(key="sequence").set_value(1).run())
    assert page.slider[0].value == (0, 11)


def test_a_sequence_of_one_step_has_a_picture_and_no_slider(opened, folder):
    page = healthy(opened(folder, sequence="2"))
    assert not page.slider
    assert numbers(figure(page)["data"][0]["z"]).shape == (5, 1)


def test_a_folder_without_recordings_says_how_to_make_one(opened, tmp_path):
    page = healthy(opened(tmp_path))
    assert "no recordings" in page.info[0].value
    assert "gs.save_recording" in page.code[0].value


def test_a_broken_recording_stands_beside_a_good_one_with_its_sentence(opened, folder):
    (folder / "broken.nc").write_bytes(b"not a recording")
    page = healthy(opened(folder))
    assert page.selectbox(key="recording").value == "run.zarr"
    assert "neither a zarr folder nor a netCDF-4 file" in texts(page)
    healthy(page.selectbox(key="recording").set_value("broken.nc").run())
    assert "cannot be shown" in page.warning[0].value
    assert not page.get("plotly_chart")
    healthy(page.selectbox(key="recording").set_value("run.zarr").run())
    assert page.get("plotly_chart")


def test_the_modules_of_a_tree_are_chosen_by_name(opened, tmp_path, make_recording):
    names = ["encoder.rnn", "decoder.rnn"]
    tree = xr.DataTree.from_dict(
        {name: make_recording(units=n + 3, seed=n, module=name) for n, name in enumerate(names)}
    )
    save_recording(tree, tmp_path / "two.nc")
    page = healthy(opened(tmp_path))
    assert page.selectbox(key="module").options == names
    healthy(page.selectbox(key="module").set_value("decoder.rnn").run())
    assert numbers(figure(page)["data"][0]["z"]).shape == (4, 7)
    assert "decoder.rnn: LSTMCell" in texts(page)


def test_a_projected_state_is_drawn_over_its_own_units(opened, tmp_path, make_recording):
    recording = make_recording()
    projected = recording["hidden_state"].isel(unit=slice(0, 2)).rename(unit="projection")
    initial = recording["initial_hidden_state"].isel(unit=slice(0, 2)).rename(unit="projection")
    recording = recording.drop_vars(["hidden_state", "initial_hidden_state", "weight_hh"])
    save_recording(recording.assign(hidden_state=projected, initial_hidden_state=initial), tmp_path / "p.zarr")
    page = healthy(opened(tmp_path, unit="4"))
    healthy(page.selectbox(key="signal").set_value("hidden_state").run())
    spec = figure(page)
    assert numbers(spec["data"][0]["z"]).shape == (2, 7)
    assert spec["layout"]["yaxis"]["title"]["text"] == "projection"
    assert set(page.multiselect[0].value) <= {0, 1}
    assert {trace["name"] for trace in spec["data"] if trace.get("yaxis") == "y2"} == {"projection 0", "projection 1"}


def test_a_link_that_leaves_the_folder_is_refused(opened, tmp_path, make_recording):
    (tmp_path / "shown").mkdir()
    save_recording(make_recording(), tmp_path / "secret.zarr")
    (tmp_path / "shown" / "inside.zarr").symlink_to(tmp_path / "secret.zarr")
    page = healthy(opened(tmp_path / "shown"))
    assert "is a link that leaves it" in texts(page)
    assert not page.get("plotly_chart")


def test_a_link_out_of_the_inside_of_a_recording_is_refused(opened, folder):
    (folder.parent / "outside").write_text("secret")
    os.symlink(folder.parent / "outside", folder / "run.zarr" / "leak")
    page = healthy(opened(folder))
    assert "must be whole in itself" in texts(page)


def test_texts_of_a_recording_are_shown_and_never_obeyed(opened, tmp_path, make_recording):
    recording = make_recording()
    token = recording["token"].values.copy()
    token[1, : len(EVIL)] = EVIL
    recording = recording.assign_coords(token=(("sequence", "time"), token))
    recording.attrs |= {
        "module": "<script>x</script>",
        "cell": "![](http://example.org/x.png)",
        "nonfinite": "<b>1</b>",
    }
    recording["forget_gate"].attrs["long_name"] = "<a href='http://example.org'>gate</a>"
    save_recording(recording, tmp_path / "<img src=x onerror=alert(1)>.zarr")
    page = healthy(opened(tmp_path, sequence="1"))
    spec = figure(page)
    aliases = spec["layout"]["xaxis"]["labelalias"]
    assert [aliases[str(n)] for n in range(6)] == [
        "&lt;img src=x onerro…",
        "&lt;b&gt;",
        "&amp;amp;",
        "**bold**",
        "%{x}",
        "$x$",
    ]
    ours = ("<b>", "</b>", "<br>", "<extra></extra>")
    for trace in spec["data"]:
        template = str(trace.get("hovertemplate", ""))
        for tag in ours:
            template = template.replace(tag, "")
        assert "<" not in template
    assert "<" not in json.dumps(spec["layout"]["yaxis2"]["title"])
    assert "![](http://example.org/x.png)" in texts(page)
    for element in (*page.markdown, *page.caption):
        assert "](" not in element.value
        assert not element.allow_html


def test_the_code_on_the_page_draws_the_same(opened, folder, make_recording):
    page = opened(folder, sequence="1", layer="1", direction="backward", unit="1,3", time="2-6")
    healthy(code_switch(page).set_value(True).run())
    scope: dict[str, Any] = {}
    with mpl.rc_context({"backend": "agg"}):
        exec(page.code[0].value, scope)
    image = np.asarray(scope["axes"].images[0].get_array())
    run = make_recording()["forget_gate"].sel(layer=1, direction="backward", sequence=1).isel(time=slice(2, 7))
    np.testing.assert_array_equal(image, run.values.T.astype(float))
    np.testing.assert_array_equal(image, numbers(figure(page)["data"][0]["z"]).astype(float))
    assert scope["axes"].get_xlim() == (1.5, 6.5)
    assert [line.get_label() for line in scope["panels"][0].lines][:2] == ["unit 1", "unit 3"]
    np.testing.assert_array_equal(scope["panels"][0].lines[1].get_ydata(), run.sel(unit=3))


def test_the_code_for_a_tree_runs(opened, tmp_path, make_recording):
    tree = xr.DataTree.from_dict({name: make_recording(module=name) for name in ("a.b", "c")})
    save_recording(tree, tmp_path / 'it\'s "two".zarr')
    page = opened(tmp_path, module="c")
    healthy(code_switch(page).set_value(True).run())
    scope: dict[str, Any] = {}
    exec(page.code[0].value, scope)
    assert scope["recording"].attrs["module"] == "c"


def test_the_certificate_says_when_the_gates_do_not_hold(opened, tmp_path, make_recording: Callable[..., xr.Dataset]):
    recording = make_recording()
    recording.attrs |= {"parity": 0.5, "training": 1, "dropout": 0.3, "nonfinite": "cell_state: 2 values"}
    save_recording(recording, tmp_path / "bad.zarr")
    said = texts(healthy(opened(tmp_path)))
    for part in ("5.0e-01", "NOT within", "1e-04", "training mode", "dropout 0.3", "cell_state: 2 values", "20 steps"):
        assert part in said


def test_a_long_sequence_is_binned_and_the_page_says_so(opened, tmp_path, make_recording):
    recording = make_recording(layers=1, directions=1, lengths=(70_000,), units=5)
    save_recording(recording, tmp_path / "long.zarr")
    page = healthy(opened(tmp_path, time="0-69999"))
    sent = numbers(figure(page)["data"][0]["z"])
    assert sent.size <= 300_000
    values = recording["forget_gate"].values[0, 0, 0].astype(np.float64)
    np.testing.assert_allclose(sent[:, 0], values[:2].mean(axis=0), rtol=1e-6)
    assert "each column is the mean of 2 steps" in texts(page)
    healthy(page.selectbox(key="statistic").set_value("max").run())
    np.testing.assert_array_equal(
        numbers(figure(page)["data"][0]["z"])[:, 0], values[:2].max(axis=0).astype(np.float32)
    )
    healthy(page.slider[0].set_value((100, 500)).run())
    assert numbers(figure(page)["data"][0]["z"]).shape == (5, 401)
    assert "each column is" not in texts(page)


def test_a_recording_saved_anew_under_the_same_name_is_read_anew(opened, folder, make_recording):
    import shutil

    page = opened(folder)
    before = figure(page)["data"][0]["z"]
    shutil.rmtree(folder / "run.zarr")
    save_recording(make_recording(seed=9), folder / "run.zarr")
    assert figure(healthy(page.run()))["data"][0]["z"] != before


@pytest.mark.parametrize(
    ("kind", "options", "panels"),
    [
        ("GRU", {}, ["update gate", "hidden state"]),
        ("RNN", {"nonlinearity": "relu"}, ["hidden state"]),
        ("RNN", {"nonlinearity": "tanh"}, ["hidden state"]),
        ("LSTM", {"num_layers": 2, "bidirectional": True}, ["forget gate", "cell state"]),
    ],
)
def test_recordings_of_torch_modules_are_shown_whatever_their_cell(opened, tmp_path, kind, options, panels):
    torch = pytest.importorskip("torch")
    from gatescope.probe.attach import record

    torch.manual_seed(0)
    recording = record(getattr(torch.nn, kind)(3, 4, **options), torch.randn(6, 2, 3))
    save_recording(recording, tmp_path / "model.zarr")
    page = healthy(opened(tmp_path))
    layout = figure(page)["layout"]
    assert [layout[f"yaxis{row}"]["title"]["text"] for row in range(2, len(panels) + 2)] == panels
    for signal in page.selectbox(key="signal").options:
        healthy(page.selectbox(key="signal").set_value(signal).run())
        assert page.get("plotly_chart")


def test_a_recording_without_units_is_said_to_have_none(opened, tmp_path, make_recording):
    save_recording(make_recording().isel(unit=[], source=[]), tmp_path / "run.zarr")
    assert "needs a unit" in texts(healthy(opened(tmp_path)))


def test_of_a_very_long_sequence_only_the_beginning_and_the_steps_on_view_are_read(monkeypatch, tmp_path):
    from gatescope.dashboards.chooser import View
    from gatescope.dashboards.views import gates
    from gatescope.probe.store import open_recording
    from tests.conftest import lstm_recording

    made = lstm_recording(layers=1, directions=1, lengths=(500,))
    save_recording(made, tmp_path / "run.zarr")
    monkeypatch.setattr(gates, "AT_ONCE", 100)
    recording = open_recording(tmp_path / "run.zarr")
    whole, begun = gates.runs(View(None, False, "m", recording, 0, "forward", 0, None), "forget_gate")
    assert (whole.sizes["time"], begun.sizes["time"]) == (500, 20)
    assert not whole["forget_gate"].variable._in_memory
    np.testing.assert_array_equal(begun["forget_gate"], made["forget_gate"][0, 0, 0, :20])
