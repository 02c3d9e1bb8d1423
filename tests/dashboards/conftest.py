"""The page as Streamlit's own test harness runs it, on recordings saved to a temporary folder."""

import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import streamlit as st
import xarray as xr
from streamlit.testing.v1 import AppTest

from gatescope.dashboards.launch import APP
from gatescope.probe.store import save_recording


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AppTest]:
    """Open the page on some folders, as `gatescope dashboard FOLDER ...` would, with an address if one is given."""

    def open_page(*folders: Path, view: str = "gates", **address: str) -> AppTest:
        monkeypatch.setattr(sys, "argv", [str(APP), *map(str, folders)])
        st.cache_resource.clear()
        page = AppTest.from_file(str(APP), default_timeout=60)
        if view != "overview":
            page.switch_page(f"views/{view}.py")
        for name, value in address.items():
            page.query_params[name] = value
        return page.run()

    return open_page


@pytest.fixture
def folder(tmp_path: Path, make_recording: Callable[..., xr.Dataset]) -> Path:
    save_recording(make_recording(), tmp_path / "run.zarr")
    return tmp_path


@pytest.fixture
def resetting(make_recording: Callable[..., xr.Dataset]) -> xr.Dataset:
    """Two sequences, begun at zero: unit 0 throws its memory away at every boundary, unit 1 at every "b"."""
    rng = np.random.default_rng(1)
    lengths, units = (90, 60), 4
    recording = make_recording(layers=1, directions=1, lengths=lengths, units=units)
    token, boundary = np.full((2, 90), "", dtype=object), np.zeros((2, 90), dtype=bool)
    gate = np.full((1, 1, 2, 90, units), np.nan)
    memory = gate.copy()
    for sequence, length in enumerate(lengths):
        token[sequence, :length] = rng.choice(["a", "b", "c"], length, p=[0.5, 0.2, 0.3])
        boundary[sequence, np.cumsum(rng.integers(2, 9, 8))] = True
        kept = rng.uniform(0.93, 0.97, (length, units))
        kept[boundary[sequence, :length], 0] = rng.uniform(0.02, 0.04, boundary[sequence].sum())
        kept[token[sequence, :length] == "b", 1] = 0.05
        state = np.zeros(units)
        for step in range(length):
            state = kept[step] * state + rng.uniform(0.5, 1.0, units)
            memory[0, 0, sequence, step] = state
        gate[0, 0, sequence, :length] = kept
    recording["forget_gate"] = recording["forget_gate"].copy(data=gate.astype(np.float32))
    recording["cell_state"] = recording["cell_state"].copy(data=memory.astype(np.float32))
    dims = ("sequence", "time")
    recording["initial_cell_state"] = 0 * recording["initial_cell_state"]
    start = np.array(["zero", "zero"], dtype=object)
    return recording.assign_coords(token=(dims, token), boundary=(dims, boundary), start=("sequence", start))


def _figure(page: AppTest, trace: str) -> dict[str, Any]:
    """The figure, as it is sent to the browser, that has a trace whose name begins so."""
    sent = [json.loads(chart.proto.spec) for chart in page.get("plotly_chart")]
    return next(spec for spec in sent if any(str(one.get("name", "")).startswith(trace) for one in spec["data"]))


def _numbers(sent: Any) -> Any:
    """Numbers of a plotly figure, which travel as base64 or as lists."""
    if not isinstance(sent, dict):
        return np.asarray(sent, dtype=np.float64)
    flat = np.frombuffer(base64.b64decode(sent["bdata"]), dtype=sent["dtype"])
    return flat.reshape([int(n) for n in sent["shape"].split(",")]) if "shape" in sent else flat


def _texts(page: AppTest) -> str:
    said = [*page.text, *page.caption, *page.markdown, *page.warning, *page.info]
    return "\n".join(str(element.value) for element in said)


def _healthy(page: AppTest) -> AppTest:
    assert not page.exception, page.exception[0].message
    return page


@pytest.fixture
def reading() -> SimpleNamespace:
    """What tests of pages read: `figure(page, trace)`, `numbers(sent)`, `texts(page)`, `healthy(page)`."""
    return SimpleNamespace(figure=_figure, numbers=_numbers, texts=_texts, healthy=_healthy)
