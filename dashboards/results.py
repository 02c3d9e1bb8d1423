"""Results of analyzers, counted once per recording, place and parameters, and kept for all sessions."""

import json
from collections.abc import Callable
from typing import Any

import streamlit as st
import xarray as xr

from . import catalogue
from .chooser import View

KEPT = 96  # results


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
        A function of a module; its first parameter takes a recording, or `source`.
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
    with st.spinner(f"{measure.__name__.replace('_', ' ')}: reading every sequence once ...", show_time=True):
        data = source if source is not None else view.recording if everywhere else view.here
        return _counted((*key, made), measure, data, parameters)


@st.cache_resource(max_entries=KEPT, show_spinner=False)
def _counted(
    key: tuple[str, ...], _measure: Callable[..., xr.Dataset], _data: xr.Dataset, _parameters: dict[str, Any]
) -> xr.Dataset | str:
    try:
        return _measure(_data, **_parameters)
    except ValueError as error:
        return str(error)
