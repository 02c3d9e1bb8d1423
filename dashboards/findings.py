"""The findings of `describe` on a page: found one kind at a time, and each with the page that shows it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import streamlit as st
import xarray as xr

from ..probe.analyzers.describe import conclude
from ..probe.analyzers.findings import FINDERS, Finding, gradients
from ..probe.analyzers.known import Known
from ..probe.analyzers.saturation import memory_signal
from ..signals import retention_form
from . import catalogue, orders, summary
from .chooser import View

__all__ = ["MOST", "PAGES", "TITLES", "Link", "by", "gradients", "link", "look", "small"]

MOST = 12  # shown, as `describe` returns by default
VALUES = 2**22  # of each signal that are looked at without being asked
PAGES = {
    "saturation": "saturation",
    "alignment": "resets",
    "triggers": "resets",
    "roles": "roles",
    "gradient_flow": "gradient_flow",
}  # of the measures; all others are on "gates"
TITLES = {
    "gates": "Gates and states",
    "resets": "Resets",
    "roles": "Roles",
    "saturation": "Saturation",
    "gradient_flow": "Gradient flow",
}


class Link(NamedTuple):
    """A page, and what must be chosen there."""

    page: str
    choices: dict[str, object]


def small(recording: xr.Dataset) -> bool:
    """Whether looking for findings takes seconds rather than minutes."""
    size = np.prod([recording.sizes[dim] for dim in ("layer", "direction", "sequence", "time", "unit")], dtype=float)
    return bool(size <= VALUES)


def look(view: View, tell: Callable[[float, str], None]) -> xr.Dataset | str:
    """What `describe` says, finder by finder, so that what was found once is kept; or why it says nothing."""
    found: list[Finding] = []
    for number, finder in enumerate(FINDERS):
        tell(number / len(FINDERS), finder.__name__.replace("_", " "))
        some = by(view, finder)
        if isinstance(some, str):
            return some
        found += some
    return conclude(view.recording, found, MOST)


def by(view: View, finder: Callable[[Known], Iterator[Finding]]) -> list[Finding] | str:
    """What one finder finds, looked for once; or why it finds nothing."""
    which = (view.entry.name, catalogue.version(view.entry), view.module)
    return _found(which, finder.__name__, _known(which, view.recording))


@st.cache_resource(max_entries=4, show_spinner=False)
def _known(which: tuple[str, ...], _recording: xr.Dataset) -> Known:
    """What finders share: events of resets and the like."""
    return Known(_recording)


@st.cache_resource(max_entries=128, show_spinner=False)
def _found(which: tuple[str, ...], finder: str, _known: Known) -> list[Finding] | str:
    try:
        return list(next(each for each in FINDERS if each.__name__ == finder)(_known))
    except ValueError as error:
        return str(error)


def link(view: View, finding: xr.Dataset) -> Link:
    """Where a finding can be seen: page, layer, direction, unit, sequence, signal and label."""
    measure, text = str(finding["measure"].item()), str(finding["text"].item())
    page = PAGES.get(measure, "gates")
    layer, direction, unit = int(finding["layer"]), str(finding["direction"].item()), int(finding["unit"])
    asked: dict[str, object] = {} if layer < 0 else {"layer": layer, "direction": direction}
    label = label_of(view.recording, text) if measure in ("selectivity", "triggers", "roles") else None
    if label:
        asked |= {"label": label} | ({"judge": label} if measure == "roles" else {})
    signal = signal_of(view.recording, measure, text)
    if page == "gates" and signal:
        asked["signal"] = signal
    if measure == "timescales":
        asked["sort"] = orders.SCALE
    if unit >= 0:
        asked |= {"unit": unit, "sequence": telling_sequence(view.recording, signal, layer, direction, unit)}
    return Link(page, asked)


def label_of(recording: xr.Dataset, text: str) -> str | None:
    """The label that a finding speaks of, which stands as a word in its text."""
    named = [name for name in summary.text_labels(recording) if f" {name} " in text or f" {name}," in text]
    return max(named, key=len) if named else None


def signal_of(recording: xr.Dataset, measure: str, text: str) -> str:
    """The signal that a finding speaks of: by name, else the memory that drifts, else what keeps the memory."""
    first = text.split(" ", 1)[0]
    if first in recording.data_vars:
        return first
    _, keep = retention_form(str(recording.attrs["retention"]))
    return memory_signal(recording) if measure == "drift" or keep not in recording.data_vars else str(keep)


def telling_sequence(recording: xr.Dataset, signal: str, layer: int, direction: str, unit: int) -> int:
    """The sequence on which the unit's signal spreads most, of the longer half of all."""
    lengths = recording["length"].values
    numbers = recording["sequence"].values
    if not signal or recording[signal].dims[-1] != "unit":
        return int(numbers[lengths.argmax()])
    values = recording[signal].sel(layer=layer, direction=direction, unit=unit).values.astype(np.float64)
    real = np.isfinite(values)
    count = np.maximum(real.sum(axis=1), 1)
    mean = np.where(real, values, 0).sum(axis=1) / count
    spread = (np.where(real, values - mean[:, None], 0) ** 2).sum(axis=1) / count
    return int(numbers[np.where(lengths >= np.median(lengths), spread, -1.0).argmax()])
