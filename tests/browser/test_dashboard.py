"""The dashboard in a real browser, served as `gatescope dashboard` serves it."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import xarray as xr

from gatescope.dashboards.launch import command
from gatescope.probe.analyzers.saturation import saturation
from gatescope.probe.store import save_recording

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
TEXT = "ان العلم نور يضيء طريق الباحثين في كل زمان ومكان وقد قال"
EVIL = "<img src=x onerror=alert(1)>"
HEATMAP = ".js-plotly-plot .hm image"

try:
    from playwright.sync_api import Browser, Page, expect, sync_playwright

    missing = "" if CHROMIUM.exists() else f"there is no browser at {CHROMIUM}"
except ImportError as error:
    missing = str(error)
if missing and os.environ.get("CI") == "true":
    raise RuntimeError(f"The tests in a browser must run in CI; {missing}.")
if missing:
    pytest.skip(missing, allow_module_level=True)


def speaking(make_recording: Callable[..., xr.Dataset]) -> xr.Dataset:
    """Two sequences of Arabic letters with words as segments; the second one holds text that looks like markup."""
    recording = make_recording(lengths=(len(TEXT), 30), units=40)
    token, boundary = recording["token"].values.copy(), recording["boundary"].values.copy()
    for row, length in enumerate(recording["length"].values):
        token[row, :length] = list(TEXT[:length])
        boundary[row, :length] = [at == 0 or TEXT[at - 1] == " " for at in range(length)]
    token[1, 3], token[1, 4] = EVIL, "<b>"
    dims = ("sequence", "time")
    return recording.assign_coords(token=(dims, token), boundary=(dims, boundary))


@contextmanager
def served(*paths: Path) -> Iterator[str]:
    """The dashboard on a free port of this machine; its process is ended whatever happens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(command(paths, port=port, headless=True), stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not answers(port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the dashboard did not start; its process says {process.poll()}")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"
    finally:
        process.kill()
        process.wait()


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Holds the address of the one server of this module, which the first test starts."""
    folder = tmp_path_factory.mktemp("recordings")
    with served(folder) as address:
        yield {"folder": str(folder), "address": address}


@pytest.fixture
def recording(server: dict[str, str], make_recording: Callable[..., xr.Dataset]) -> xr.Dataset:
    made = speaking(make_recording)
    for name in ("speech.zarr", f"{EVIL}.nc"):
        if not (place := Path(server["folder"]) / name).exists():
            save_recording(made, place)
    return made


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def visit(browser: "Browser", server: dict[str, str], recording: xr.Dataset) -> "Iterator[Callable[..., Page]]":
    """Open the page; afterwards the browser must not have complained or asked another machine for anything."""
    complaints: list[str] = []
    contexts = []

    def opened(
        query: str = "recording=speech.zarr", size: tuple[int, int] = (1280, 800), scheme: str = "light"
    ) -> "Page":
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme=scheme,  # type: ignore[arg-type]
            accept_downloads=True,
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}") or dialog.dismiss())
        page.on("request", lambda sent: complaints.append(sent.url) if outside(sent.url) else None)
        page.goto(f"{server['address']}?{query}")
        drawn(page)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def outside(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme not in ("data", "blob") and parts.hostname != "127.0.0.1"


def drawn(page: "Page") -> None:
    """Wait until Streamlit has run and both pictures stand."""
    page.wait_for_selector(HEATMAP)
    page.wait_for_function("document.querySelectorAll('.js-plotly-plot .main-svg').length >= 4")
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    page.wait_for_timeout(400)


def cell(page: "Page", step: float, unit: float) -> tuple[float, float]:
    """Where on the screen a cell of the heatmap lies."""
    x, y = page.evaluate(
        """([step, unit]) => {
            const plot = document.querySelector('.js-plotly-plot'), {xaxis, yaxis} = plot._fullLayout
            const corner = plot.getBoundingClientRect()
            return [corner.x + xaxis._offset + xaxis.d2p(step), corner.y + yaxis._offset + yaxis.d2p(unit)]
        }""",
        [step, unit],
    )
    return x, y


def drag(page: "Page", begin: tuple[float, float], end: tuple[float, float]) -> None:
    page.mouse.move(*cell(page, *begin))
    page.mouse.down()
    page.mouse.move(*cell(page, *end), steps=6)
    page.mouse.up()


def ends(page: "Page", axis: str) -> list[float]:
    found: list[float] = page.evaluate(f"document.querySelector('.js-plotly-plot')._fullLayout.{axis}.range")
    return found


def asked(page: "Page") -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}


def pick(page: "Page", label: str, option: str) -> None:
    page.get_by_role("combobox", name=label).first.click()
    page.get_by_role("option", name=option, exact=True).click()


def test_the_pointer_shows_label_time_unit_and_value(visit, recording):
    page = visit()
    page.mouse.move(*cell(page, 11, 7))
    value = recording["forget_gate"].sel(layer=0, direction="forward", sequence=0, time=11, unit=7).item()
    said = page.locator(".hoverlayer .hovertext").first
    expect(said).to_have_text(f"{TEXT[11]}time 11 · unit 7forget gate {value:.4f}")


def test_every_label_along_the_axis_can_be_read_and_none_lies_on_another(visit):
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
    assert "".join(text for text, *_ in boxes) == TEXT.replace(" ", "␣")
    assert all(before[2] <= after[1] + 1 for before, after in pairwise(boxes))


def test_dragging_zooms_heatmap_and_traces_together_and_a_double_click_leads_back(visit):
    page = visit()
    whole = ends(page, "xaxis")
    drag(page, (10, 5), (20, 15))
    page.wait_for_timeout(600)
    low, high = ends(page, "xaxis")
    assert (low, high) == (pytest.approx(10, abs=0.5), pytest.approx(20, abs=0.5))
    assert ends(page, "xaxis2") == [low, high]
    page.mouse.dblclick(*cell(page, 15, 10))
    page.wait_for_timeout(600)
    assert ends(page, "xaxis") == whole


def test_a_box_chooses_units_and_steps_and_the_button_shows_all_steps_again(visit):
    page = visit()
    page.locator(".js-plotly-plot").first.hover()
    page.locator(".modebar-btn[data-title='Box Select']").first.click()
    drag(page, (10, 5), (20, 7))
    page.wait_for_url("**time=10-20*")
    drawn(page)
    assert asked(page)["unit"] == "5,6,7"
    assert ends(page, "xaxis") == [9.5, 20.5]
    page.get_by_role("button", name="Whole sequence").click()
    page.wait_for_function("!location.search.includes('time=')")
    drawn(page)
    assert ends(page, "xaxis") == [-0.5, len(TEXT) - 0.5]


def test_choices_stand_in_the_address_and_going_back_undoes_them(visit):
    page = visit()
    pick(page, "Signal", "cell_state")
    page.wait_for_url("**signal=cell_state*")
    pick(page, "Direction", "backward")
    page.wait_for_url("**direction=backward*")
    drawn(page)
    other = visit(urlsplit(page.url).query)
    expect(other.get_by_role("combobox", name="Signal").first).to_have_value("cell_state")
    assert asked(other) == asked(page)
    page.go_back()
    page.wait_for_url("**direction=forward*")
    drawn(page)
    expect(page.get_by_role("combobox", name="Direction").first).to_have_value("forward")
    expect(page.get_by_role("combobox", name="Signal").first).to_have_value("cell_state")


def test_text_that_looks_like_markup_is_shown_as_text(visit):
    page = visit("recording=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E.nc&sequence=1")
    expect(page.get_by_role("combobox", name="Recording").first).to_have_value(f"{EVIL}.nc")
    page.mouse.move(*cell(page, 4, 7))
    expect(page.locator(".hoverlayer .hovertext").first).to_contain_text("<b>time 4")
    page.mouse.move(*cell(page, 3, 7))
    expect(page.locator(".hoverlayer .hovertext").first).to_contain_text("<img src=x onerr")
    page.get_by_text("The code that draws this").click()
    expect(page.get_by_test_id("stCode")).to_contain_text(EVIL)
    assert page.locator("img[src=x], [onerror]").count() == 0


def test_downloads_hold_what_the_page_shows(visit, recording, tmp_path):
    page = visit("recording=speech.zarr&layer=1&saturation=forget_gate")
    with page.expect_download() as table:
        page.get_by_role("button", name="Saturation table (CSV)").click()
    lines = table.value.path().read_text().splitlines()
    left = saturation(recording)["left"].sel(layer=1, direction="forward", signal="forget_gate").values
    assert lines[0].startswith("unit,signal,verdict,left,right,mean")
    np.testing.assert_allclose([float(line.split(",")[3]) for line in lines[1:]], left)
    with page.expect_download() as picture:
        page.get_by_role("button", name="Heatmap (PNG)").click()
    assert picture.value.suggested_filename == "encoder.rnn-forget_gate-layer1-forward-sequence0.png"
    assert picture.value.path().read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_screen(visit, size, scheme, request):
    page = visit(size=size, scheme=scheme)
    beyond, height = page.evaluate(
        """() => {
            const main = document.querySelector('[data-testid=stMain]'), all = document.documentElement
            return [Math.max(main.scrollWidth - main.clientWidth, all.scrollWidth - innerWidth), main.scrollHeight]
        }"""
    )
    assert beyond <= 0
    background = page.evaluate("getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    assert (max(map(int, background[4:-1].split(","))) < 100) == (scheme == "dark")
    page.set_viewport_size({"width": size[0], "height": height + 20})
    page.wait_for_timeout(600)
    folder = request.config.rootpath / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"dashboard-{request.node.callspec.id}.png")


def test_a_folder_without_recordings_says_so(browser, tmp_path):
    with served(tmp_path) as address:
        page = browser.new_page()
        page.goto(address)
        expect(page.get_by_text("There are no recordings")).to_be_visible()
        page.close()


def test_a_browser_is_there_where_it_must_be():
    assert shutil.which(str(CHROMIUM))
