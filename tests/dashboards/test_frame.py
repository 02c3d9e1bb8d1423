"""What all pages share: choices go from page to page, results are counted once, and everything can be taken away."""

import shutil

import numpy as np
import pytest
import xarray as xr

from gatescope.dashboards import results, summary, ways_out
from gatescope.dashboards.catalogue import Entry
from gatescope.dashboards.chooser import View
from gatescope.dashboards.launch import APP
from gatescope.probe.analyzers.alignment import alignment
from gatescope.probe.analyzers.resets import resets
from gatescope.probe.analyzers.saturation import saturation
from gatescope.probe.store import open_recording, save_recording
from tests.dashboards.test_gates import figure, healthy

PAGES = sorted(file.stem for file in APP.with_name("views").glob("[a-z]*.py"))
MARKUP = "<img src=x onerror=alert(1)> **b** [a](http://x) `c` $d$ :red[e] _f_"


@pytest.fixture
def view(folder):
    recording = open_recording(folder / "run.zarr")
    entry = Entry("run.zarr", folder / "run.zarr")
    return View(entry, False, "encoder.rnn", recording, 1, "backward", 0, None)


def test_choices_survive_going_to_another_page_and_back(opened, folder):
    page = healthy(opened(folder, layer="1", sequence="1", signal="cell_state", unit="3,1"))
    healthy(page.slider[0].set_value((2, 6)).run())
    before = figure(page)
    for file in ("views/roles.py", "views/gates.py"):
        page.query_params.clear()  # as the menu does
        page.switch_page(file)
        healthy(page.run())
        assert page.query_params["layer"] == "1"
    assert page.slider[0].value == (2, 6)
    assert figure(page) == before


def test_a_link_to_another_page_says_all_and_what_it_leaves_out_is_as_usual(opened, folder):
    page = healthy(opened(folder, layer="1", sequence="1", time="2-6", signal="cell_state"))
    page.query_params.clear()
    page.query_params.update({"recording": "run.zarr", "layer": "0"})
    page.switch_page("views/roles.py")
    healthy(page.run())
    assert page.query_params["layer"] == "0"
    page.query_params.clear()
    page.switch_page("views/gates.py")
    healthy(page.run())
    assert page.selectbox(key="signal").value == "forget_gate"
    assert "time" not in page.query_params


def test_a_result_is_counted_once_for_its_place_and_parameters(view, monkeypatch):
    calls = []

    def measured(recording: xr.Dataset, **parameters: float) -> xr.Dataset:
        calls.append((recording["layer"].values.tolist(), parameters))
        return saturation(recording, **parameters)

    first = results.of(view, measured)
    assert results.of(view._replace(sequence=1), measured) is first
    results.of(view, measured, low=0.2)
    results.of(view, measured, everywhere=True)
    results.of(view._replace(layer=0), measured)
    assert calls == [([1], {}), ([1], {"low": 0.2}), ([0, 1], {}), ([0], {})]
    xr.testing.assert_identical(first, saturation(view.here))


def test_a_measure_of_a_result_is_known_by_how_that_was_made(view):
    strict, usual = results.of(view, resets, min_depth=0.9), results.of(view, resets)
    found = [results.of(view, alignment, source=source, tolerance=1) for source in (usual, strict)]
    xr.testing.assert_identical(found[0], alignment(usual, tolerance=1))
    xr.testing.assert_identical(found[1], alignment(strict, tolerance=1))


def test_a_refusal_is_a_sentence_and_not_an_exception(view):
    assert "0 < low < high < 1" in results.of(view, saturation, low=2.0)


def test_results_leave_as_netcdf_and_pictures_as_png_and_svg(view, tmp_path):
    for measure in (saturation, resets):
        result = results.of(view, measure)
        (tmp_path / "result.nc").write_bytes(ways_out.netcdf(result))
        with xr.open_dataset(tmp_path / "result.nc", engine="h5netcdf") as again:
            for name in ("verdict", "onset"):
                if name in result:
                    np.testing.assert_array_equal(again[name].values.astype(result[name].dtype), result[name].values)
    assert ways_out.picture(lambda ax: ax.plot([1, 2]), "png").startswith(b"\x89PNG")
    assert b"<svg" in ways_out.picture(lambda ax: ax.plot([1, 2]), "svg")


def test_a_figure_made_with_pyplot_leaves_and_is_forgotten():
    from matplotlib import pyplot

    assert ways_out.picture(lambda: pyplot.figure(figsize=(1, 1)), "png").startswith(b"\x89PNG")
    assert pyplot.get_fignums() == []


def test_escaped_text_is_what_markdown_shows():
    from markdown_it import MarkdownIt

    shown = MarkdownIt("commonmark").render(summary.escaped(MARKUP))
    assert shown == f"<p>{MARKUP.replace('<', '&lt;').replace('>', '&gt;')}</p>\n"


def test_every_page_opens_on_a_folder_without_recordings_and_says_what_to_do(opened, tmp_path):
    for name in PAGES:
        page = healthy(opened(tmp_path, view=name))
        assert "no recordings" in page.info[0].value


@pytest.mark.slow
def test_every_page_shows_an_unreadable_recording_as_a_sentence(opened, tmp_path, make_recording):
    (tmp_path / "broken.nc").write_bytes(b"")
    save_recording(make_recording(), tmp_path / "good.nc")
    assert len(PAGES) == 6
    for name in PAGES:
        page = healthy(opened(tmp_path, view=name, recording="broken.nc"))
        assert "cannot be shown" in page.warning[0].value
        assert any("broken.nc: " in text.value for text in page.text)


def test_sequences_follow_each_other_round_the_end(opened, folder):
    page = healthy(opened(folder, sequence="1"))
    for label, number in (("After", "2"), ("After", "0"), ("Before", "2")):
        healthy(next(button for button in page.button if button.label == label).click().run())
        assert page.query_params["sequence"] == number


def test_a_recording_that_went_away_is_not_replaced_without_a_word(opened, folder, make_recording, reading):
    save_recording(make_recording(), folder / "gone.zarr")
    page = reading.healthy(opened(folder, view="saturation", recording="gone.zarr"))
    assert "no longer" not in reading.texts(page)
    shutil.rmtree(folder / "gone.zarr")
    assert "'gone.zarr' here, or no longer" in reading.texts(reading.healthy(page.run()))
