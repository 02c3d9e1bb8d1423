"""Saturation of the steps of each value of a label by themselves, counted once and kept, with a bar meanwhile."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st
import xarray as xr

from ..probe.analyzers.saturation import saturation
from . import catalogue
from .chooser import View

LOADED = 2**30  # bytes up to which a recording is held while it is counted


def of(view: View, label: str, values: Sequence[str], levels: tuple[float, float]) -> dict[str, xr.Dataset]:
    """By value, the result at the layer and direction on view; values without a finite step are left out."""
    key = (view.entry.name, str(catalogue.version(view.entry)), view.module, view.layer, view.direction, label, levels)
    kept = _kept(key)
    missing = [value for value in values if value not in kept]
    if missing:
        said = f"Reading the steps of {len(missing)} values of the label ..."
        bar = st.progress(0.0, said)
        recording = view.here if view.here.nbytes > LOADED else view.here.load()
        for place, value in enumerate(missing):
            kept[value] = _counted(recording, label, value, levels)
            bar.progress((place + 1) / len(missing), said)
        bar.empty()
    found = {value: kept[value] for value in values}
    return {value: result for value, result in found.items() if result is not None}


@st.cache_resource(max_entries=16, show_spinner=False)
def _kept(key: tuple[object, ...]) -> dict[str, xr.Dataset | None]:
    """What was counted so far, for all sessions."""
    return {}


def _counted(recording: xr.Dataset, label: str, value: str, levels: tuple[float, float]) -> xr.Dataset | None:
    result = of_value(recording, label, value, levels).isel(layer=0, direction=0)
    return result if int(result["steps"].max()) else None


def of_value(recording: xr.Dataset, label: str, value: str, levels: tuple[float, float]) -> xr.Dataset:
    """`saturation` of the steps on which a label has a value."""
    here = recording[label].astype(str) == value
    names = [name for name, data in recording.data_vars.items() if {"sequence", "time"} <= {*data.dims}]
    some = recording.assign({name: recording[name].where(here) for name in names})
    return saturation(some, low=levels[0], high=levels[1])


def lines(label: str, values: Sequence[str], levels: tuple[float, float]) -> list[str]:
    """Python that makes the same of `recording`: `by_label`, a result for each value."""
    return [
        "def at(value):",
        f"    here = recording[{label!r}].astype(str) == value",
        '    names = [name for name, data in recording.data_vars.items() if {"sequence", "time"} <= {*data.dims}]',
        "    some = recording.assign({name: recording[name].where(here) for name in names})",
        f"    return gs.saturation(some, low={levels[0]}, high={levels[1]})",
        "",
        f"by_label = {{value: at(value) for value in {list(values)!r}}}",
    ]


def rows(found: dict[str, xr.Dataset]) -> pd.DataFrame:
    """A row per value, signal and unit."""
    parts = []
    for value, result in found.items():
        part = result[["left", "right", "mean", "steps"]].drop_vars(
            ["layer", "direction", "symbol", "role"], errors="ignore"
        )
        parts.append(
            part.to_dataframe().reset_index()[["signal", "unit", "left", "right", "mean", "steps"]].assign(value=value)
        )
    return pd.concat(parts, ignore_index=True)
