"""The page "Gates and states" in a real browser, served as `gatescope dashboard` serves it."""

from itertools import pairwise
from urllib.parse import quote, urlsplit

import numpy as np
import pytest


def test_the_pointer_shows_label_time_unit_and_value(visit, web, recording):
    page = visit()
    page.mouse.move(*web.cell(page, 11, 7))
    value = recording["forget_gate"].sel(layer=0, direction="forward", sequence=0, time=11, unit=7).item()
    said = page.locator(".hoverlayer .hovertext").first
    web.expect(said).to_contain_text(f"{web.TEXT[11]}time 11 · unit 7forget gate {value:.4f}")


def test_every_label_along_the_axis_can_be_read_and_none_lies_on_another(visit, web):
    page = visit()
    boxes = (
        page.locator(".js-plotly-plot")
        .first.locator(".xaxislayer-above .xtick text")
        .evaluate_all(
            "all => all.filter(t => t.textContent.trim()).map(t => [t.textContent, t.getBoundingClientRect()])"
            ".map(([text, box]) => [text, box.left, box.right])"
        )
    )
    boxes.sort(key=lambda box: box[1])
    assert "".join(text for text, *_ in boxes) == web.TEXT.replace(" ", "␣")
    assert all(before[2] <= after[1] + 1 for before, after in pairwise(boxes))


def test_dragging_zooms_heatmap_and_traces_together_and_a_double_click_leads_back(visit, web):
    page = visit()
    whole = web.ends(page, "xaxis")
    web.drag(page, (10, 5), (20, 15))
    page.wait_for_timeout(600)
    low, high = web.ends(page, "xaxis")
    assert (low, high) == (pytest.approx(10, abs=0.5), pytest.approx(20, abs=0.5))
    assert web.ends(page, "xaxis2") == [low, high]
    page.mouse.dblclick(*web.cell(page, 15, 10))
    page.wait_for_timeout(600)
    assert web.ends(page, "xaxis") == whole


def test_a_box_chooses_units_and_steps_and_the_button_shows_all_steps_again(visit, web):
    page = visit()
    page.locator(".js-plotly-plot").first.hover()
    page.locator(".modebar-btn[data-title='Box Select']").first.click()
    web.drag(page, (10, 5), (20, 7))
    page.wait_for_url("**time=10-20*")
    web.drawn(page)
    assert web.asked(page)["unit"] == "5,6,7"
    assert web.ends(page, "xaxis") == [9.5, 20.5]
    page.get_by_role("button", name="Whole sequence").click()
    page.wait_for_function("!location.search.includes('time=')")
    web.drawn(page)
    assert web.ends(page, "xaxis") == [-0.5, len(web.TEXT) - 0.5]


def test_choices_stand_in_the_address_and_going_back_undoes_them(visit, web):
    page = visit()
    web.pick(page, "Signal", "cell_state")
    page.wait_for_url("**signal=cell_state*")
    web.pick(page, "Direction", "backward")
    page.wait_for_url("**direction=backward*")
    web.drawn(page)
    other = visit(urlsplit(page.url).query)
    web.expect(other.get_by_role("combobox", name="Signal").first).to_have_value("cell_state")
    assert web.asked(other) == web.asked(page)
    page.go_back()
    page.wait_for_url("**direction=forward*")
    web.drawn(page)
    web.expect(page.get_by_role("combobox", name="Direction").first).to_have_value("forward")
    web.expect(page.get_by_role("combobox", name="Signal").first).to_have_value("cell_state")


def test_text_that_looks_like_markup_is_shown_as_text(visit, web):
    page = visit(f"recording={quote(web.EVIL)}.nc&sequence=1")
    web.expect(page.get_by_role("combobox", name="Recording").first).to_have_value(f"{web.EVIL}.nc")
    page.mouse.move(*web.cell(page, 4, 7))
    web.expect(page.locator(".hoverlayer .hovertext").first).to_contain_text("<b>time 4")
    page.mouse.move(*web.cell(page, 3, 7))
    web.expect(page.locator(".hoverlayer .hovertext").first).to_contain_text("<img src=x onerr")
    page.get_by_text("The code that draws this").click()
    web.expect(page.get_by_test_id("stCode")).to_contain_text(web.EVIL)
    assert page.locator("img[src=x], [onerror]").count() == 0


def test_downloads_hold_what_the_page_shows(visit, web, recording):
    page = visit("recording=speech.zarr&layer=1")
    with page.expect_download() as table:
        page.get_by_role("button", name="forget_gate (CSV)").click()
    lines = table.value.path().read_text().splitlines()
    column = lines[0].split(",").index("forget_gate")
    rows = [line.split(",") for line in lines[1:]]
    values = recording["forget_gate"].sel(layer=1, direction="forward", sequence=0).values[: len(web.TEXT)]
    np.testing.assert_allclose(sorted(float(row[column]) for row in rows), np.sort(values.ravel()), rtol=1e-6)
    with page.expect_download() as picture:
        page.get_by_role("button", name="forget_gate (PNG)").click()
    assert picture.value.suggested_filename.endswith(".png")
    assert picture.value.path().read_bytes().startswith(b"\x89PNG")
