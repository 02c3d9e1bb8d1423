"""The findings of `describe` on a page: found one kind at a time, and each with the page that shows it."""

import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import streamlit as st
import xarray as xr

from ..probe.analyzers.describe import conclude
from ..probe.analyzers.findings import FINDERS, Finding
from ..probe.analyzers.known import Known
from ..probe.analyzers.saturation import memory_signal
from ..signals import retention_form
from . import catalogue, orders, summary
from .chooser import View

MOST = 12  # shown, as `describe` returns by default
TICK = 0.2  # seconds between two words on how far it is
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


class Search:
    """Looking for findings beside the page, finder by finder."""

    def __init__(self) -> None:
        self.lock, self.thread = threading.Lock(), threading.Thread()
        self.found: dict[str, list[Finding]] = {}
        self.followed = 0  # layers and directions whose gradients could be followed
        self.now, self.refused = "", ""
        self.error: Exception | None = None

    def begin(self, recording: xr.Dataset) -> None:
        """Start it unless that was done before; one that failed for no reason of the data's is tried again."""
        with self.lock:
            if (self.now and self.error is None) or self.thread.is_alive():
                return
            self.error = None
            self.thread = threading.Thread(target=self.run, args=(recording,), daemon=True)
            self.thread.start()

    def run(self, recording: xr.Dataset) -> None:
        known = Known(recording)
        try:
            for finder in FINDERS:
                self.now = finder.__name__
                self.found[self.now] = list(finder(known))
            self.followed = followed(known)
        except ValueError as error:
            self.refused = str(error)
        except Exception as error:  # the page raises it
            self.error = error


def look(view: View, tell: Callable[[float, str], None]) -> xr.Dataset | str:
    """What `describe` says, looked for once for everybody; or why it says nothing. `tell` hears how far it is."""
    search = _search((view.entry.name, catalogue.version(view.entry), view.module))
    search.begin(view.recording)
    while search.thread.is_alive():
        tell(len(search.found) / len(FINDERS), search.now.replace("_", " "))
        search.thread.join(TICK)
    if search.error is not None:
        raise search.error
    if search.refused:
        return search.refused
    return conclude(view.recording, [finding for some in search.found.values() for finding in some], MOST)


def followed(known: Known) -> int:
    """In how many layers and directions gradients could be followed."""
    try:
        return int((known.gradients["verdict"] != "no data").sum())
    except ValueError:  # a cell, subset or stride of which no Jacobian is known
        return 0


def gradients_followed(view: View) -> int:
    """The same, after `look`."""
    return _search((view.entry.name, catalogue.version(view.entry), view.module)).followed


def by(view: View, finder: str) -> list[Finding]:
    """What one finder has found, after `look`."""
    return _search((view.entry.name, catalogue.version(view.entry), view.module)).found.get(finder, [])


@st.cache_resource(max_entries=16, show_spinner=False)
def _search(which: tuple[str, ...]) -> Search:
    return Search()


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
