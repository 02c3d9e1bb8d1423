"""Results of analyzers, counted once per recording, place and parameters, and kept for all sessions.

A count runs beside the page, which shows how far it probably is. Who goes elsewhere meanwhile does not wait for it, and
finds it done, or under way, on coming back.
"""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import streamlit as st
import xarray as xr

from . import catalogue
from .chooser import View

KEPT = 96  # results
SOON = 0.3  # seconds for which nothing is said
SLOW = 5e-6  # seconds a value, for a measure that was not taken before
RATES: dict[str, float] = {}  # seconds a value that measures took so far


class Count:
    """One count, its thread and what came of it."""

    def __init__(self) -> None:
        self.lock, self.thread, self.begun = threading.Lock(), threading.Thread(), 0.0
        self.result: xr.Dataset | str = ""
        self.error: Exception | None = None

    def begin(self, measure: Callable[..., xr.Dataset], data: xr.Dataset, parameters: dict[str, Any]) -> None:
        """Start it unless that was done before; one that failed for no reason of the data's is tried again."""
        with self.lock:
            if self.begun and self.error is None:
                return
            self.begun, self.error = time.monotonic(), None
            self.thread = threading.Thread(target=self.run, args=(measure, data, parameters), daemon=True)
            self.thread.start()

    def run(self, measure: Callable[..., xr.Dataset], data: xr.Dataset, parameters: dict[str, Any]) -> None:
        try:
            self.result = measure(data, **parameters)
        except ValueError as error:
            self.result = str(error)
        except Exception as error:  # the page raises it
            self.error = error


def of(
    view: View,
    measure: Callable[..., xr.Dataset],
    *,
    source: xr.Dataset | None = None,
    everywhere: bool = False,
    **parameters: Any,
) -> xr.Dataset | str:
    """What an analyzer says of the recording on view, or the sentence that says why it says nothing.

    Parameters
    ----------
    view
        What is on view. The analyzer reads all sequences.
    measure
        A function of a module; its first parameter takes a recording, or `source`. It must draw nothing on the page.
    source
        A result, as of `resets`, which the analyzer takes instead of the recording. Its attributes must say how it was
        made, as those of every analyzer do: they are what it is known by here.
    everywhere
        Whether to look at all layers and directions; by default at the ones on view, as if nothing else had been
        recorded.
    parameters
        Further parameters of the analyzer: numbers, texts, tuples or None.
    """
    made = json.dumps(source.attrs, sort_keys=True, default=str) if source is not None else ""
    which = "everywhere" if everywhere else f"{view.layer} {view.direction}"
    name = f"{measure.__module__}.{measure.__qualname__}"
    key = (name, view.entry.name, catalogue.version(view.entry), view.module, which, repr(sorted(parameters.items())))
    count = _count((*key, made))
    count.begin(measure, source if source is not None else view.recording if everywhere else view.here, parameters)
    if count.thread.is_alive():
        count.thread.join(SOON)
    if count.thread.is_alive():
        _wait(count, name, measure.__name__.replace("_", " "), _values(view, everywhere))
    if count.error is not None:
        raise count.error
    return count.result


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def _count(key: tuple[str, ...]) -> Count:
    return Count()


def _wait(count: Count, name: str, said: str, values: int) -> None:
    """A bar until it is done, by what the measure took for so many values before."""
    expected = max(1.0, RATES.get(name, SLOW) * values)
    bar = st.progress(0.0)
    while count.thread.is_alive():
        spent = time.monotonic() - count.begun
        bar.progress(share(spent, expected), f"Counting {said}: {spent:.0f} of about {max(expected, spent):.0f} s")
        count.thread.join(0.2)
    bar.empty()
    RATES[name] = (time.monotonic() - count.begun) / max(1, values)


def share(spent: float, expected: float) -> float:
    """How full the bar is: it runs towards 0.9 as expected, and then ever slower.

    >>> share(2.0, 4.0), share(4.0, 4.0), share(40.0, 4.0)
    (0.45, 0.9, 0.99)
    """
    return 0.9 * spent / expected if spent < expected else 1 - 0.1 * expected / spent


def _values(view: View, everywhere: bool) -> int:
    """Values of one signal that are read."""
    recording = view.recording
    places = recording.sizes["layer"] * recording.sizes["direction"] if everywhere else 1
    return int(recording["length"].sum()) * recording.sizes["unit"] * places
