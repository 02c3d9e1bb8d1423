"""Counts beside the page: begun once, kept, tried again after a failure, with a bar that says how far they are."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st
import xarray as xr

from gatescope.dashboards import results


@pytest.fixture
def view(make_recording, monkeypatch: pytest.MonkeyPatch) -> Any:
    recording = make_recording()
    st.cache_resource.clear()
    monkeypatch.setattr(results.catalogue, "version", lambda entry: "1")
    entry = SimpleNamespace(name="run.zarr")
    return SimpleNamespace(
        entry=entry, module="m", layer=0, direction="forward", recording=recording, here=recording.isel(layer=[0])
    )


def test_a_count_is_made_once_for_all_who_ask_for_the_same(view):
    made = []

    def measure(recording: xr.Dataset, *, low: float) -> xr.Dataset:
        made.append((recording.sizes["layer"], low))
        return recording

    first = results.of(view, measure, low=0.1)
    assert results.of(view, measure, low=0.1) is first
    results.of(view, measure, low=0.2)
    results.of(view, measure, low=0.1, everywhere=True)
    assert made == [(1, 0.1), (1, 0.2), (2, 0.1)]


def test_a_refusal_is_kept_as_a_sentence_and_a_failure_is_raised_and_tried_again(view):
    made = []

    def measure(recording: xr.Dataset, *, how: str) -> xr.Dataset:
        made.append(how)
        raise {"refused": ValueError("it must be so"), "failed": KeyError("x")}[how]

    assert [results.of(view, measure, how="refused") for _ in range(2)] == ["it must be so"] * 2
    for _ in range(2):
        with pytest.raises(KeyError):
            results.of(view, measure, how="failed")
    assert made == ["refused", "failed", "failed"]


def test_a_slow_count_has_a_bar_and_whoever_comes_meanwhile_waits_for_the_same(view, monkeypatch):
    go, said, made = threading.Event(), [], []

    def bar(*args: Any) -> SimpleNamespace:
        def progress(share: float, text: str) -> None:
            said.append((share, text))
            go.set()

        return SimpleNamespace(progress=progress, empty=lambda: said.append("gone"))

    def slow_one(recording: xr.Dataset) -> xr.Dataset:
        made.append(1)
        assert go.wait(30)
        return recording

    monkeypatch.setattr(results.st, "progress", bar)
    found: list[Any] = []
    others = [threading.Thread(target=lambda: found.append(results.of(view, slow_one))) for _ in range(2)]
    for other in others:
        other.start()
    found.append(results.of(view, slow_one))
    for other in others:
        other.join()
    assert len(made) == 1
    assert found[0] is found[1] is found[2]
    share, text = said[0]
    assert 0 < share < 1
    assert "slow one" in text
    assert "gone" in said
