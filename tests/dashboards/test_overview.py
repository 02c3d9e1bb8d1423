"""The overview: health, findings and the pages that they lead to, examples."""

from urllib.parse import parse_qs

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from gatescope.dashboards import catalogue, findings
from gatescope.probe.analyzers.describe import describe
from gatescope.probe.analyzers.drift import drift
from gatescope.probe.analyzers.saturation import saturation
from gatescope.probe.store import save_recording
from gatescope.report_health import running_away, stuck
from gatescope.tasks.examples import examples
from tests.dashboards.test_gates import code_switch, healthy


@pytest.fixture
def folder(tmp_path, resetting):
    save_recording(resetting, tmp_path / "run.zarr")
    return tmp_path


def said(page) -> list[str]:
    return [element.value for element in page.text]


def links(page) -> list[tuple[str, dict[str, str]]]:
    """Page and choices of every link, but for those of the menu."""
    protos = [element.proto for element in page.get("page_link")]
    return [(proto.page, {k: v[0] for k, v in parse_qs(proto.query_string).items()}) for proto in protos]


def test_health_is_what_the_attributes_and_the_analyzers_say(opened, folder, resetting):
    lines = said(healthy(opened(folder, view="overview")))
    assert "encoder.rnn: LSTMCell · 1 layer · 1 direction · 4 units · 2 sequences · 150 steps" in lines
    assert any("1.0e-07" in line for line in lines)
    assert any("17% of the array" in line for line in lines)
    assert stuck(saturation(resetting)).said in lines
    assert running_away(drift(resetting)).said in lines


def test_the_findings_are_those_of_describe_in_its_order(opened, folder, resetting):
    page = healthy(opened(folder, view="overview"))
    texts = describe(resetting)["text"].values.tolist()
    assert texts
    assert [line for line in said(page) if line in texts] == texts


def test_every_finding_leads_to_a_page_that_opens_with_what_it_is_about(opened, folder, resetting):
    page = healthy(opened(folder, view="overview"))
    result = describe(resetting)
    about = links(page)[-result.sizes["finding"] :]
    assert len(about) == result.sizes["finding"]
    for number, (name, asked) in enumerate(about):
        one = result.isel(finding=number)
        assert name.split("/")[-1] == findings.PAGES.get(one["measure"].item(), "gates")
        assert asked["recording"] == "run.zarr"
        if int(one["unit"]) >= 0:
            assert asked["unit"] == str(one["unit"].item())
            assert int(asked["sequence"]) in (0, 1)
    name, asked = next((name, asked) for name, asked in about if "unit" in asked)
    shown = healthy(opened(folder, view=name.split("/")[-1], **asked))
    assert {key: shown.query_params[key] for key in ("recording", "unit", "layer")} == {
        key: asked[key] for key in ("recording", "unit", "layer")
    }


def test_a_finding_names_signal_label_and_sequence(make_recording):
    recording = make_recording(lengths=(9, 12, 3))
    recording["cell_state"][1, 0, 0, :, 3] = 50 * np.arange(12) * np.where(np.arange(12) < 9, 1, np.nan)
    finding = xr.Dataset(
        {
            "measure": "selectivity",
            "text": "cell_state of unit 3 of layer 1, forward tells token 'a' from the others with AUC 1.00.",
            "layer": 1,
            "direction": "forward",
            "unit": 3,
        }
    )
    view = type("View", (), {"recording": recording})
    page, asked = findings.link(view, finding)
    assert page == "gates"
    assert asked == {
        "layer": 1,
        "direction": "forward",
        "label": "token",
        "signal": "cell_state",
        "unit": 3,
        "sequence": 0,
    }


def test_the_code_on_the_page_finds_the_same(opened, folder, resetting, capsys):
    page = opened(folder, view="overview")
    healthy(code_switch(page).set_value(True).run())
    scope: dict[str, xr.Dataset] = {}
    exec(page.code[0].value, scope)
    shown = [line for line in said(page) if line in scope["found"]["text"].values]
    assert capsys.readouterr().out.splitlines() == shown
    assert shown


def test_a_recording_that_is_not_sound_says_so(opened, tmp_path, make_recording):
    recording = make_recording()
    recording.attrs |= {"parity": 0.5, "training": 1, "dropout": 0.3, "nonfinite": "<b>cell_state</b>: 2"}
    save_recording(recording, tmp_path / "bad.zarr")
    page = healthy(opened(tmp_path, view="overview"))
    lines = said(page)
    assert any(line.startswith("NOT within its tolerance") for line in lines)
    assert any("dropout 0.3 acted" in line for line in lines)
    assert "not all: <b>cell_state</b>: 2" in lines
    assert sum("error" in element.value for element in page.markdown) >= 3


def test_all_recordings_are_listed_with_their_sizes_and_a_ticked_row_is_opened(opened, folder, make_recording):
    save_recording(make_recording(module="other"), folder / "second.nc")
    (folder / "broken.nc").write_bytes(b"no recording")
    page = healthy(opened(folder, view="overview"))
    table = page.dataframe[0].value
    assert isinstance(table, pd.DataFrame)
    assert table["recording"].tolist() == ["broken.nc", "run.zarr", "second.nc"]
    assert table["steps"].tolist() == [0, 150, 20]
    assert "neither a zarr folder" in table["problem"][0]
    assert page.selectbox(key="recording").value == "run.zarr"


def test_an_example_is_recorded_at_once_and_is_there_on_every_page(opened, tmp_path):
    page = healthy(opened(tmp_path, view="overview"))
    assert "no recordings" in page.info[0].value
    healthy(page.button(key="take-example: cerg-latch").click().run())
    assert page.query_params["recording"] == "example: cerg-latch"
    assert any("8 units" in line for line in said(page))
    assert any("latch" in line for line in said(page))
    page.query_params.clear()
    page.switch_page("views/gates.py")
    healthy(page.run())
    assert page.query_params["recording"] == "example: cerg-latch"
    assert page.get("plotly_chart")


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(examples()))
def test_every_example_is_recorded_and_the_code_records_the_same(name):
    from gatescope.dashboards.summary import opening

    entry = next(entry for entry in catalogue.embedded() if entry.example == name)
    recording = next(iter(catalogue.recordings(entry).modules.values()))
    scope: dict[str, xr.Dataset] = {}
    exec("\n".join(["import gatescope as gs", *opening(entry, None)]), scope)
    xr.testing.assert_equal(scope["recording"], recording)


def test_gradients_that_could_not_be_followed_are_not_called_good(opened, tmp_path, make_recording):
    save_recording(make_recording(layers=1, directions=1, lengths=(1, 1)), tmp_path / "short.nc")
    lines = said(healthy(opened(tmp_path, view="overview")))
    assert any(line.startswith("cannot be followed") for line in lines)
    assert not any("neither vanishing nor exploding" in line for line in lines)
