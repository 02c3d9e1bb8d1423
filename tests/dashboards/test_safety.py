"""What nobody may do to the dashboard, on every page: put markup into it, leave its folders, or spoil it for others."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from gatescope.dashboards import catalogue
from gatescope.probe.store import save_recording

VIEWS = ("overview", "gates", "resets", "roles", "saturation", "gradient_flow")
EVIL = ("<img src=x onerror=alert(1)>", "<script>alert(2)</script>", "[x](javascript:alert(3))", "$\\frac$", ":red[x]")
MARKUP = re.compile(r"(?<!\\)(<img|<script|\]\(javascript:|:red\[x)")  # with no backslash before it


@pytest.fixture
def hostile(tmp_path: Path, resetting: xr.Dataset) -> Path:
    """A recording whose file name, module, attributes, label, classes and descriptions look like markup."""
    recording = resetting.isel(sequence=[0], time=slice(0, 90))
    token = np.random.default_rng(0).choice(np.array(EVIL, dtype=object), (1, 90))
    recording = recording.assign_coords(token=(("sequence", "time"), token)).rename(token=EVIL[0])
    recording.attrs |= {"module": EVIL[1], "created": EVIL[2], "torch_version": EVIL[0], "nonfinite": EVIL[4]}
    recording["forget_gate"].attrs |= {"long_name": EVIL[0], "symbol": EVIL[2]}
    save_recording(recording, tmp_path / f"{EVIL[0]}.nc")
    return tmp_path


def markdown_of(page) -> list[str]:
    """Everything that the browser would read as markdown or HTML."""
    found = [str(element.value) for kind in ("markdown", "caption", "subheader", "title") for element in page.get(kind)]
    found += [str(element.value) for kind in ("info", "warning", "error", "success") for element in page.get(kind)]
    return found


@pytest.mark.parametrize("view", VIEWS)
def test_texts_of_a_recording_are_no_markup_on_any_page(opened, hostile, reading, view):
    page = reading.healthy(opened(hostile, view=view))
    assert page.query_params["recording"] == [f"{EVIL[0]}.nc"] or page.query_params["recording"] == f"{EVIL[0]}.nc"
    for text in markdown_of(page):
        assert not MARKUP.search(text), text
    for chart in page.get("plotly_chart"):
        spec = json.loads(chart.proto.spec)
        words = json.dumps({"layout": spec["layout"], "names": [one.get("name") for one in spec["data"]]})
        assert "<img" not in words
        assert "<script" not in words


ASKED = ("../secret.nc", "/etc/passwd", "run.zarr/../../secret.nc", "outside.nc", "..\\secret.nc", "file:///etc/passwd")


@pytest.mark.parametrize("asked", ASKED)
def test_an_address_opens_nothing_outside_the_folder(opened, tmp_path, make_recording, reading, monkeypatch, asked):
    shown = tmp_path / "shown"
    shown.mkdir()
    save_recording(make_recording(module="public"), shown / "run.zarr")
    save_recording(make_recording(module="secret"), tmp_path / "secret.nc")
    (shown / "outside.nc").symlink_to(tmp_path / "secret.nc")
    looked: list[Path] = []
    open_one = catalogue.open_recording
    monkeypatch.setattr(catalogue, "open_recording", lambda path: (looked.append(Path(path)), open_one(path))[1])
    page = reading.healthy(opened(shown, view="gates", recording=asked))
    assert "secret:" not in reading.texts(page)
    assert {path.resolve().relative_to(shown.resolve()).name for path in looked} == {"run.zarr"}


@pytest.mark.parametrize("view", VIEWS)
def test_a_broken_recording_says_why_on_every_page_and_another_stays_usable(opened, tmp_path, resetting, reading, view):
    save_recording(resetting, tmp_path / "good.zarr")
    (tmp_path / "bad.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(64))
    page = reading.healthy(opened(tmp_path, view=view, recording="bad.nc"))
    assert any("cannot be shown" in warning.value for warning in page.warning)
    assert "bad.nc" in "\n".join(text.value for text in page.text)
    page = reading.healthy(page.selectbox(key="recording").set_value("good.zarr").run())
    assert not any("cannot be shown" in warning.value for warning in page.warning)
