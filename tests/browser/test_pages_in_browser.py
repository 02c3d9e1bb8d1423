"""Every page in a real browser: the main paths, on wide and narrow screens, light and dark, with a picture of each."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

import gatescope as gs

VIEWS = ("overview", "gates", "resets", "roles", "saturation", "gradient_flow")
DESKTOP, PHONE = (1280, 800), (390, 844)
LOOKS = {"desktop-light": (DESKTOP, "light"), "phone-dark": (PHONE, "dark")}
OTHERS = {"desktop-dark": (DESKTOP, "dark"), "phone-light": (PHONE, "light")}
QUERY = "recording=resets.zarr&tolerance=1"


def check_look(visit, web, screenshots: Path, view: str, look: str) -> None:
    size, scheme = (LOOKS | OTHERS)[look]
    page = visit(QUERY, size=size, scheme=scheme, view=view)
    if view != "overview":
        page.wait_for_selector(".js-plotly-plot .main-svg")
    assert web.overflow(page) <= 0
    assert page.locator("img[src=x], [onerror]").count() == 0
    assert page.get_by_test_id("stException").count() == 0
    background = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    assert (max(map(int, background[4:-1].split(","))) < 100) == (scheme == "dark")
    web.pictured(page, screenshots, f"{view}-{look}")


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_page_fits_its_screen_and_is_light_or_dark_as_asked(visit, web, screenshots, view, look):
    check_look(visit, web, screenshots, view, look)


@pytest.mark.slow
@pytest.mark.parametrize("look", OTHERS)
@pytest.mark.parametrize("view", VIEWS)
def test_so_it_does_on_every_other_screen(visit, web, screenshots, view, look):
    check_look(visit, web, screenshots, view, look)


def test_a_finding_leads_to_the_page_that_shows_it(visit, web):
    page = visit("recording=resets.zarr", view="overview")
    finding = page.get_by_test_id("stMain").get_by_role("link", name="Resets").first
    finding.click()
    page.wait_for_url("**/resets?*")
    page.wait_for_selector(".js-plotly-plot .main-svg")
    web.settled(page)
    asked = web.asked(page)
    assert asked["recording"] == "resets.zarr"
    web.expect(page.get_by_test_id("stMain").get_by_text("agree beyond chance").first).to_contain_text("24 boundaries")
    page.go_back()
    page.wait_for_function("!location.pathname.includes('resets')")
    web.settled(page)
    web.expect(page.get_by_text("Findings", exact=True)).to_be_visible()


def test_a_table_is_downloaded_as_it_is_counted(visit, web, server):
    page = visit("recording=resets.zarr", view="resets")
    with page.expect_download() as table:
        page.get_by_role("button", name="events (CSV)").click()
    lines = table.value.path().read_text().splitlines()
    events = gs.resets(gs.open_recording(Path(server["folder"]) / "resets.zarr"))
    onset = lines[0].split(",").index("onset")
    assert [int(line.split(",")[onset]) for line in lines[1:]] == events["onset"].values.tolist()


def test_a_result_is_downloaded_as_netcdf(visit, server, tmp_path):
    page = visit("recording=resets.zarr", view="saturation")
    with page.expect_download() as file:
        page.get_by_role("button", name="saturation (netCDF)").click()
    shutil.copy(file.value.path(), tmp_path / "saturation.nc")
    with xr.open_dataset(tmp_path / "saturation.nc", engine="h5netcdf") as found:
        expected = gs.saturation(gs.open_recording(Path(server["folder"]) / "resets.zarr"))
        np.testing.assert_allclose(found["left"].values.ravel(), expected["left"].values.ravel())


def test_going_from_page_to_page_keeps_the_recording(visit, web):
    page = visit("recording=resets.zarr", view="roles")
    page.get_by_test_id("stSidebarNav").get_by_role("link", name="Saturation").click()
    page.wait_for_url("**/saturation?*")
    web.settled(page)
    assert web.asked(page)["recording"] == "resets.zarr"
    web.expect(page.get_by_role("combobox", name="Recording").first).to_have_value("resets.zarr")


def test_a_broken_recording_says_why_and_another_can_be_chosen(visit, web):
    page = visit("recording=broken.nc", view="saturation")
    web.expect(page.get_by_test_id("stMain")).to_contain_text("This recording cannot be shown")
    web.expect(page.get_by_test_id("stMain")).to_contain_text("broken.nc")
    web.pick(page, "Recording", "resets.zarr")
    page.wait_for_selector(".js-plotly-plot .main-svg")
    web.settled(page)
    assert page.get_by_test_id("stException").count() == 0


def test_an_address_opens_nothing_but_what_is_listed(visit, web):
    page = visit("recording=..%2F..%2Fetc%2Fpasswd")
    assert web.asked(page)["recording"] in ("speech.zarr", f"{web.EVIL}.nc", "resets.zarr")


def test_a_folder_without_recordings_says_so(browser, web, tmp_path):
    with web.served(tmp_path) as address:
        page = browser.new_page()
        page.goto(address)
        web.expect(page.get_by_text("There are no recordings")).to_be_visible(timeout=45_000)
        page.close()


def test_a_browser_is_there_where_it_must_be():
    assert shutil.which("/usr/bin/chromium")
