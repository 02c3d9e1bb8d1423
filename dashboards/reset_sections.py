"""Sections of the page Resets: what happens around an event, agreement with boundaries, and triggers."""

from typing import Any, NamedTuple

import numpy as np
import streamlit as st
import xarray as xr

from ..probe.analyzers.event_average import event_average
from ..probe.analyzers.triggers import triggers
from ..probe.schema import label_names
from . import average_figures, boundary_figures, choices, chooser, event_tables, figures, results, segments
from .chooser import View

MOST = 12  # units in colour
SHARE = st.column_config.NumberColumn(format="%.3f", width="small")
FORMATS = {
    **dict.fromkeys(("precision", "recall", "f1", "layer_lift"), SHARE),
    **dict.fromkeys(("expected", "z", "lag"), st.column_config.NumberColumn(format="%.1f", width="small")),
    **dict.fromkeys(
        ("p", "p_adjusted", "layer_p", "layer_p_adjusted"),
        st.column_config.NumberColumn(format="scientific", width="small"),
    ),
    **dict.fromkeys(("what", "number", "events", "hits", "steps", "units"), st.column_config.Column(width="small")),
}


class Found(NamedTuple):
    """What the page counted, and how."""

    events: xr.Dataset
    kind: str
    options: dict[str, Any]
    rule: segments.Segments | None
    tolerance: int
    agreement: xr.Dataset | None
    why_not: str


def synchrony(events: xr.Dataset, kind: str) -> str:
    """Whether units reset together, in a sentence."""
    part = events.sel(kind=kind).isel(layer=0, direction=0)
    ratio, p = float(part["synchrony"]), float(part["synchrony_p"])
    if not np.isfinite(ratio):
        return ""
    who = "Blocks" if "memory_block" in events.dims else "Units"
    return f" {who} reset together {ratio:.1f} times as often as by chance (p {'< 1e-300' if p == 0 else f'{p:.1e}'})."


def show_averages(view: View, found: Found, units: list[int]) -> xr.Dataset | None:
    st.subheader("Around a reset", anchor=False)

    def average(events: xr.Dataset, *, kind: str) -> xr.Dataset:
        return event_average(view.here, events, kind=kind)

    result = results.of(view, average, source=found.events, kind=found.kind)
    if isinstance(result, str):
        chooser.nothing("There are no averages to show.", result)
        return None
    chooser.reading(
        "Mean gate and mean size of the memory of each unit, steps before and after its resets begin (0). Dashed: the "
        "unit's mean over all steps. A gate that dips and a memory that drops at 0 are a reset towards zero."
    )
    here = result.isel(layer=0, direction=0)
    st.plotly_chart(
        average_figures.average_figure(here, units),
        key=f"average-{view.entry.name}-{view.name}-{found.kind}-{units}",
        config={"displaylogo": False},
    )
    return result


def show_agreement(view: View, found: Found, units: list[int]) -> None:
    st.subheader("At the beginnings of segments?", anchor=False)
    if found.rule is None:
        st.info(
            "Nothing marks segments. Choose a label above, under *Segments begin where*, or record with a label "
            '`boundary`, True at the first step of each segment: `gs.record(model, batch, labels={"boundary": ...})`.'
        )
        return
    if found.agreement is None:
        chooser.nothing("Resets and boundaries cannot be compared.", found.why_not)
        return
    here = found.agreement.isel(layer=0, direction=0)
    chooser.reading(
        "Each unit's resets against the boundaries: precision is the share of its resets at one, recall the share of "
        "boundaries with a reset. p: the probability of as many hits if its resets were shifted in time, corrected "
        "over all units."
    )
    st.text(verdict(here) + hint(here, found.tolerance))
    left, right = st.columns(2)
    name = f"{view.entry.name}-{view.name}-{found.kind}-{found.rule}-{found.tolerance}"
    with left:
        st.plotly_chart(
            boundary_figures.alignment_figure(here, units),
            key=f"agreement-{name}",
            on_select=lambda: take_points(f"agreement-{name}"),
            selection_mode=("points", "box"),
            config={"displaylogo": False},
        )
    with right:
        st.plotly_chart(boundary_figures.lag_figure(here), key=f"lags-{name}", config={"displaylogo": False})
    st.dataframe(
        event_tables.agreement_rows(found.agreement),
        hide_index=True,
        height=300,
        column_config=FORMATS,
        key=f"table-{name}",
    )


def verdict(here: xr.Dataset) -> str:
    """The layer as a whole, in one line."""
    boundaries = int(here["boundaries"])
    beyond = int((here["p_adjusted"].to_numpy() < 0.05).sum())
    numbers = [float(here[f"layer_{name}"]) for name in ("precision", "recall", "p")]
    said = f"{boundaries:,} boundaries. {beyond:,} of {here.sizes['unit']:,} units agree beyond chance."
    if not np.isfinite(numbers[0]):
        return said
    chance = f", p {numbers[2]:.1e}" if np.isfinite(numbers[2]) else ""
    return f"{said} All units together: precision {numbers[0]:.2f}, recall {numbers[1]:.2f}{chance}."


def hint(here: xr.Dataset, tolerance: int) -> str:
    """What to allow for, where most resets are off by the same number of steps."""
    counts, lags = here["layer_lags"].to_numpy(), here["lag_step"].to_numpy()
    lag = int(lags[counts.argmax()])
    if not counts.any() or abs(lag) <= tolerance:
        return ""
    steps = f"{abs(lag)} step{'s' * (abs(lag) > 1)}"
    return f" The most frequent lag is {steps} {'after' if lag > 0 else 'before'} a boundary: allow for it above."


def take_points(key: str) -> None:
    points = st.session_state[key]["selection"]["points"]
    units = list(dict.fromkeys(int(point["customdata"][0]) for point in points if point.get("customdata")))
    if units:
        choices.take_several("unit", units[:MOST])


def show_triggers(view: View, found: Found) -> tuple[xr.Dataset, int] | None:
    """What in the input sets events off: a bar per value of the label."""
    st.subheader("What sets resets off?", anchor=False)
    if view.labels is None:
        what = "Choose a label in the sidebar." if label_names(view.recording) else "This recording has no labels."
        st.info(
            f"{what} Triggers are values of a label at which units reset more than at any other: "
            '`gs.record(model, batch, labels={"token": tokens})`.'
        )
        return None
    with st.columns([1, 3])[0]:
        at_least = int(choices.choose_number("Least steps of a value", 1, 1000, name="at_least", default=20, step=1))
    result = results.of(view, triggers, source=found.events, labels=view.labels, kind=found.kind, at_least=at_least)
    if isinstance(result, str):
        chooser.nothing("Triggers cannot be told.", result)
        return None
    if not result.sizes["label"]:
        chooser.nothing("No value of this label has so many steps. Lower the number above, or give longer data.")
        return None
    chooser.reading(
        "Bars: how much more often all units together reset at a value of the label than at all steps (1). Blue: it "
        "stands out from every other value. Behind the bar: how many units have it as their own trigger."
    )
    here = result.isel(layer=0, direction=0)
    found_one = figures.visible(here["layer_trigger"].item()) if here["layer_trigger"].item() else ""
    st.text(f"{found_one} stands out from all others." if found_one else "No value stands out from all others.")
    st.plotly_chart(
        boundary_figures.trigger_figure(here),
        key=f"triggers-{view.entry.name}-{view.name}-{view.labels}-{found.kind}-{at_least}",
        config={"displaylogo": False},
    )
    return result, at_least
