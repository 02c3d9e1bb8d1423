"""The page as Streamlit's own test harness runs it, on recordings saved to a temporary folder."""

import sys
from collections.abc import Callable
from pathlib import Path

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
