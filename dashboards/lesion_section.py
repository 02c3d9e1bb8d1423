"""Section of the page Roles: does the network need what its roles say, where units or blocks were taken out."""

from typing import NamedTuple

import pandas as pd
import streamlit as st
import xarray as xr

from . import catalogue, choices, chooser, lesion_figures, lesions
from .chooser import View

UNSAID = "not said"


class Shown(NamedTuple):
    """Lesions on the page: effects and, of two errors, their check of the roles."""

    effects: xr.Dataset
    metric: str
    errors: tuple[str, str] | None
    checked: xr.Dataset | None = None


def show(view: View, result: xr.Dataset) -> Shown | None:
    """Whether the network needs what its roles say, where that was tried."""
    st.subheader("Does the network need it?", anchor=False)
    found = lesions.of(view)
    if found.effects is None:
        if found.problem:
            chooser.nothing("The lesions beside this recording do not do.", found.problem)
        else:
            say_how(view)
        return None
    effects, names = found.effects, lesions.metrics(found.effects)
    over = str(effects.attrs.get("over", ""))
    if len(names) >= 2 and over in ("unit", "block") and "time" not in effects.dims:
        return show_check(view, result, effects, names)
    if over not in ("unit", "block") or "time" in effects.dims:
        chooser.nothing("Lesions of single gates or stretches of time say nothing about roles. Take out whole units.")
        return None
    return show_effects(view, effects, over)


def show_effects(view: View, effects: xr.Dataset, over: str) -> Shown:
    """How much one metric changes without each unit or block."""
    metric = choices.choose("Metric", [str(name) for name in effects["metric"].values], name="metric")
    chooser.reading(
        f"Each point: how {metric} changes when that {over} is taken out, with its interval; filled where that is no "
        "chance. With two metrics, errors at long and at short lags, the roles themselves would be put to the test."
    )
    st.plotly_chart(
        lesion_figures.effect_figure(effects.isel(layer=0, direction=0), metric),
        key=f"effects-{view.entry.name}-{view.name}-{metric}",
        config={"displaylogo": False},
    )
    return Shown(effects, metric, None)


def say_how(view: View) -> None:
    st.info(
        "A role says what a unit does, not that the network needs it. Only the network itself can tell: take its units "
        "out one by one and save what it loses beside the recording, under the name below."
    )
    name = catalogue.beside(view.entry.path).name
    st.code(
        f'effects = gs.ablation(model, batch, error)\neffects.to_netcdf({name!r}, engine="h5netcdf")', language=None
    )


def show_check(view: View, result: xr.Dataset, effects: xr.Dataset, names: list[str]) -> Shown | None:
    """The roles against the growth of two errors; which two they are is asked where no names say it."""
    asked = [] if {"long", "short"} <= set(names) else [UNSAID]
    columns = st.columns([1, 1, 2], vertical_alignment="bottom")
    with columns[0]:
        long = choices.choose("Error at long lags", [*asked, *names], name="long_error", default="long")
    with columns[1]:
        rest = [*asked, *(name for name in names if name != long)]
        short = choices.choose("Error at short lags", rest, name="short_error", default="short")
    if UNSAID in (long, short):
        chooser.reading(
            "Say which metric is the error at long lags, and which at short ones, to put the roles to the test."
        )
        return show_effects(view, effects, str(effects.attrs["over"]))
    checked = lesions.check(view, result, effects, long, short)
    if isinstance(checked, str):
        chooser.nothing("These lesions cannot be held against the roles.", checked)
        return None
    here = checked.isel(layer=0, direction=0)
    chooser.reading(
        f"By how much both errors grow when a {effects.attrs['over']} is taken out, with intervals over sequences. "
        "Above the dotted line its loss hurts long lags more, as a latch's or long memory's must; below it, short ones."
    )
    st.text(", ".join(f"{count:,} {word}" for word, count in lesions.summary(here).items()) + ".")
    st.plotly_chart(
        lesion_figures.check_figure(here),
        key=f"check-{view.entry.name}-{view.name}-{long}-{short}",
        config={"displaylogo": False},
    )
    st.dataframe(rows(here), hide_index=True, height=min(300, 46 + 35 * here.sizes[lesion_figures.dim_of(here)]))
    return Shown(effects, "", (long, short), checked)


def rows(here: xr.Dataset) -> pd.DataFrame:
    """A row per unit or block: what its loss does, and what that says about its role."""
    dim = lesion_figures.dim_of(here)
    long, short = here["specialisation"].transpose("lag", dim).to_numpy()
    columns = {"block" if dim == "memory_block" else "unit": here[dim].to_numpy()}
    columns |= {name: here[name].to_numpy().astype(str) for name in ("role", "verdict", "damage")}
    columns |= {"long": long, "short": short, "finding": here["finding"].to_numpy().astype(str)}
    return pd.DataFrame(columns)
