"""The classes of labels, counted once per recording."""

import numpy as np
import streamlit as st
import xarray as xr

from ..probe.schema import label_names
from . import catalogue, choices
from .chooser import NO_LABEL, View

MOST = 64  # classes by which roles and units can be judged
FEW = 12  # classes of a label that is taken without being asked for


def of(view: View, label: str) -> dict[str, int]:
    """The values of a label of text or truth values, as texts, and their steps; most frequent first."""
    key = (view.entry.name, str(catalogue.version(view.entry)), view.module, label)
    return _counted(key, view.recording)


@st.cache_data(max_entries=128, show_spinner=False)
def _counted(key: tuple[str, ...], _recording: xr.Dataset) -> dict[str, int]:
    values = _recording[key[-1]].to_numpy()
    if values.dtype == bool:
        lengths = _recording["length"].to_numpy()
        values = values[np.arange(values.shape[1]) < lengths[:, None]]
    texts, counts = np.unique(values.astype(str), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {str(texts[at]): int(counts[at]) for at in order if texts[at] != ""}


def judging(view: View) -> dict[str, int]:
    """Labels by which roles can be judged, with the number of their classes."""
    found = {}
    for name in label_names(view.recording):
        if view.recording[name].dtype in (object, bool) and 2 <= (count := len(of(view, name))) <= MOST:
            found[name] = count
    return found


def usual(found: dict[str, int]) -> str:
    """The label with the fewest classes, if few: what a latch may hold."""
    few = {name: count for name, count in found.items() if count <= FEW and name != "boundary"}
    return min(few, key=lambda name: few[name], default=NO_LABEL)


def choose_judge(view: View) -> str | None:
    """The label by which roles are judged, the same on all pages."""
    found = judging(view)
    label = choices.choose(
        "Label that latches hold and detectors mark",
        [NO_LABEL, *found],
        name="judge",
        default=usual(found),
        shown=lambda name: name or "none",
    )
    return label or None
