"""One server and one browser for all tests in this folder; every page that is visited must be free of complaints."""

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import xarray as xr

from gatescope.dashboards.launch import command
from gatescope.probe.store import save_recording

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
TEXT = "ان العلم نور يضيء طريق الباحثين في كل زمان ومكان وقد قال"
EVIL = "<img src=x onerror=alert(1)>"
PROBED = re.compile(r"/(gates|resets|roles|saturation|gradient_flow)/_stcore/(health|host-config)$")
"""Where Streamlit looks first when a page is opened by its address; that it is not there tells it to look elsewhere."""

try:
    from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

    missing = "" if CHROMIUM.exists() else f"there is no browser at {CHROMIUM}"
except ImportError as error:
    missing = str(error)
if missing and os.environ.get("CI") == "true":
    raise RuntimeError(f"The tests in a browser must run in CI; {missing}.")
if missing:
    collect_ignore_glob = ["test_*.py"]


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


def forgetting(make_recording: Callable[..., xr.Dataset]) -> xr.Dataset:
    """A sequence of segments at whose beginnings unit 0 throws its memory away; unit 1 does at every "b"."""
    rng, steps, units = np.random.default_rng(1), 160, 8
    recording = make_recording(layers=1, directions=1, lengths=(steps,), units=units, module=f"net.{EVIL}")
    token = rng.choice(["a", "b", "c"], (1, steps), p=[0.5, 0.2, 0.3]).astype(object)
    boundary = np.zeros((1, steps), dtype=bool)
    boundary[0, np.cumsum(rng.integers(3, 9, 24))] = True
    kept = rng.uniform(0.93, 0.97, (steps, units))
    kept[boundary[0], 0] = 0.03
    kept[token[0] == "b", 1] = 0.05
    memory, state = np.empty((steps, units)), np.zeros(units)
    for step in range(steps):
        state = kept[step] * state + rng.uniform(0.5, 1.0, units)
        memory[step] = state
    for name, values in (("forget_gate", kept), ("cell_state", memory)):
        recording[name] = recording[name].copy(data=values[None, None, None].astype(np.float32))
    recording["initial_cell_state"] = 0 * recording["initial_cell_state"]
    dims, start = ("sequence", "time"), np.array(["zero"], dtype=object)
    return recording.assign_coords(token=(dims, token), boundary=(dims, boundary), start=("sequence", start))


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Holds the address of the one server, and the folder that it shows."""
    folder = tmp_path_factory.mktemp("recordings")
    with served(folder) as address:
        yield {"folder": str(folder), "address": address}


@pytest.fixture
def recording(server: dict[str, str], make_recording: Callable[..., xr.Dataset]) -> xr.Dataset:
    """What `speech.zarr` holds; beside it lie one that resets, one with a name like markup, and a broken one."""
    made, folder = speaking(make_recording), Path(server["folder"])
    if not (folder / "broken.nc").exists():
        save_recording(made, folder / "speech.zarr")
        save_recording(made, folder / f"{EVIL}.nc")
        save_recording(forgetting(make_recording), folder / "resets.zarr")
        (folder / "broken.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    return made


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def contexts(browser: "Browser") -> "Iterator[Callable[[tuple[int, int], str], BrowserContext]]":
    """A window's surroundings by size and theme, each kept, so that the dashboard's own files are fetched once."""
    made: dict[tuple[tuple[int, int], str], BrowserContext] = {}

    def of(size: tuple[int, int], scheme: str) -> "BrowserContext":
        if (size, scheme) not in made:
            made[size, scheme] = browser.new_context(
                viewport={"width": size[0], "height": size[1]},
                color_scheme=scheme,  # type: ignore[arg-type]
                accept_downloads=True,
            )
        return made[size, scheme]

    yield of
    for context in made.values():
        context.close()


@pytest.fixture
def visit(
    contexts: "Callable[[tuple[int, int], str], BrowserContext]", server: dict[str, str], recording: xr.Dataset
) -> "Iterator[Callable[..., Page]]":
    """Open a page; afterwards the browser must not have complained or asked another machine for anything."""
    complaints: list[str] = []
    pages: list[Page] = []

    def watch(page: "Page") -> None:
        page.set_default_timeout(45_000)
        page.on("console", lambda said: complaints.append(said.text) if is_complaint(said) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}") or dialog.dismiss())
        page.on("request", lambda sent: complaints.append(sent.url) if is_outside(sent.url) else None)

    def opened(
        query: str = "recording=speech.zarr",
        size: tuple[int, int] = (1280, 800),
        scheme: str = "light",
        view: str = "gates",
        file: Path | None = None,
    ) -> "Page":
        page = contexts(size, scheme).new_page()
        pages.append(page)
        watch(page)
        page.goto(file.as_uri() if file else f"{server['address']}{'' if view == 'overview' else view}?{query}")
        if file is None:
            drawn(page) if view == "gates" else settled(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert complaints == []


def is_complaint(said: Any) -> bool:
    return said.type in ("error", "warning") and not PROBED.search(str(said.location.get("url", "")))


def is_outside(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme not in ("data", "blob", "file") and parts.hostname != "127.0.0.1"


def settled(page: "Page") -> None:
    """Wait until Streamlit has run."""
    page.wait_for_selector("[data-testid=stMain] h3")
    page.wait_for_function(
        """() => document.querySelector('.stApp')?.dataset.testScriptState === 'notRunning'
            && !document.querySelector('[data-stale=true], [data-testid=stSpinner], [data-testid=stProgress]')"""
    )
    page.wait_for_timeout(250)


def drawn(page: "Page") -> None:
    """Wait until Streamlit has run and a heatmap stands."""
    page.wait_for_selector(".js-plotly-plot .hm image")
    settled(page)
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)


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


def overflow(page: "Page") -> int:
    """Pixels by which something is wider than the screen."""
    beyond: int = page.evaluate(
        """() => {
            const main = document.querySelector('[data-testid=stMain]') || document.body
            const all = document.documentElement
            return Math.max(main.scrollWidth - main.clientWidth, all.scrollWidth - innerWidth)
        }"""
    )
    return beyond


def pictured(page: "Page", folder: Path, name: str) -> None:
    """A picture of the whole page."""
    size = page.viewport_size or {"width": 1280, "height": 800}
    height = page.evaluate("(document.querySelector('[data-testid=stMain]') || document.documentElement).scrollHeight")
    page.set_viewport_size({"width": size["width"], "height": min(6000, height + 20)})
    page.wait_for_timeout(500)
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{name}.png")
    page.set_viewport_size(size)


@pytest.fixture
def web() -> SimpleNamespace:
    """What tests do on a page."""
    names = (served, settled, drawn, cell, drag, ends, asked, pick, overflow, pictured, expect)
    return SimpleNamespace(**{each.__name__: each for each in names[:-1]}, expect=expect, TEXT=TEXT, EVIL=EVIL)


@pytest.fixture
def screenshots(pytestconfig: pytest.Config) -> Path:
    return pytestconfig.rootpath / "build" / "screenshots"
