"""How long the dashboard takes to its first picture, in a real browser.

    python benchmarks/dashboard.py [--recording PATH] [--rounds N] [--quick] [--json PATH]

Without a recording it makes one of the demo's size from numbers: 3 layers, 2 directions, 32 sequences of 75 steps, 256
units. Every round starts a server and a browser of its own and reads seconds by the clock:

- command: from starting `gatescope dashboard` until a heatmap stands in a browser that is open already
- first visit: from opening the address until a heatmap stands, the first time that this server is asked
- next visit: the same in another window of the same server
- every page: from opening its address, in the same window, until all of it stands (of the overview: its findings too)
"""

import argparse
import json
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from _measure import load, machine, spread

import gatescope as gs
from gatescope.dashboards.launch import command

CHROMIUM = "/usr/bin/chromium"
GOAL = 4.0  # seconds to the first picture
HEATMAP = ".js-plotly-plot .hm image"
PAGES = ("", "gates", "resets", "roles", "saturation", "gradient_flow")
DONE = """() => document.querySelector('.stApp')?.dataset.testScriptState === 'notRunning'
    && document.querySelector('[data-testid=stMain] h3') !== null"""
FULL, QUICK = (3, 2, 32, 75, 256), (1, 1, 2, 60, 4)
DIMS = ("layer", "direction", "sequence", "time", "unit")


def recording_of(shape: tuple[int, ...], seed: int = 0) -> xr.Dataset:
    """An LSTM's signals from random numbers, with letters and boundaries."""
    rng, sequences, steps = np.random.default_rng(seed), shape[2], shape[3]
    attrs = {
        "forget_gate": {"symbol": "f", "role": "gate", "lower": 0.0, "upper": 1.0},
        "input_gate": {"symbol": "i", "role": "write", "lower": 0.0, "upper": 1.0},
        "output_gate": {"symbol": "o", "role": "read", "lower": 0.0, "upper": 1.0},
        "cell_state": {"symbol": "c", "role": "memory"},
        "hidden_state": {"symbol": "h", "role": "output", "lower": -1.0, "upper": 1.0},
    }
    data = {
        name: (DIMS, rng.random(shape, dtype=np.float32), {"long_name": name.replace("_", " "), "units": "1", **some})
        for name, some in attrs.items()
    }
    coords: dict[str, Any] = {dim: np.arange(size) for dim, size in zip(DIMS, shape, strict=True)}
    coords["direction"] = np.array(["forward", "backward"][: shape[1]], dtype=object)
    coords |= {"length": ("sequence", np.full(sequences, steps)), "stream": ("sequence", np.arange(sequences))}
    coords["start"] = ("sequence", np.array(["zero"] * sequences, dtype=object))
    coords["call"] = (("sequence", "time"), np.zeros((sequences, steps), dtype=np.int64))
    coords["boundary"] = (("sequence", "time"), rng.random((sequences, steps)) < 1 / 6)
    coords["letter"] = (("sequence", "time"), rng.choice([*"abcdefgh"], (sequences, steps)).astype(object))
    said = {"schema": "gatescope.recording/1", "cell": "LSTMCell", "retention": "forget_gate", "module": "lstm"}
    said |= {"gatescope_version": gs.__version__, "torch_version": "2", "created": "2026-01-01T00:00:00+00:00"}
    return xr.Dataset(data, coords, {**said, "parity": 1e-7, "tolerance": 1e-4, "training": 0})


def visits(path: Path) -> Iterator[tuple[str, float]]:
    """One round: what was waited for, and how long."""
    from playwright.sync_api import sync_playwright

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.set_default_timeout(180_000)
        started = time.perf_counter()
        server = subprocess.Popen(command([path], port=port, headless=True), stdout=subprocess.DEVNULL)
        try:
            wait_for(port)
            yield "server answers", time.perf_counter() - started
            yield "first visit", until(page, f"{address}gates", HEATMAP)
            yield "command", time.perf_counter() - started
            page.close()
            page = browser.new_context().new_page()
            page.set_default_timeout(180_000)
            yield "next visit", until(page, f"{address}gates", HEATMAP)
            for name in PAGES:
                yield f"page {name or 'overview'}", until(page, f"{address}{name}", None)
        finally:
            server.kill()
            server.wait()
            browser.close()


def wait_for(port: int) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise RuntimeError(f"the dashboard must answer at port {port} within two minutes; it did not.")


def until(page: Any, address: str, there: str | None) -> float:
    """Seconds from asking for an address until something on its page is to be seen, or all of it stands."""
    started = time.perf_counter()
    page.goto(address)
    page.wait_for_function(DONE) if there is None else page.wait_for_selector(there)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recording", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tiny recording, one round")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    before = load()
    took: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = given.recording or gs.save_recording(
            recording_of(QUICK if given.quick else FULL), Path(folder, "run.zarr")
        )
        for _ in range(1 if given.quick else given.rounds):
            for what, seconds in visits(path):
                took.setdefault(what, []).append(seconds)
    rows = []
    print(f"{'seconds until the picture':<28}{'median':>8}{'quartiles':>16}")
    for what, seconds in took.items():
        middle = spread(seconds)
        met = {"goal": GOAL, "met": middle.median <= GOAL} if what == "first visit" else {}
        rows.append({"what": what, **middle._asdict(), **met})
        goal = f"   goal {GOAL:g}: {'met' if met['met'] else 'NOT met'}" if met else ""
        print(f"{what:<28}{middle.median:>8.2f}{middle.lower:>9.2f}{middle.upper:>7.2f}{goal}")
    if given.json:
        given.json.write_text(json.dumps({"machine": machine(), "load": [before, load()], "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
