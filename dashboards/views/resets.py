"""Page: when does each unit throw its memory away, is it where segments begin, and what sets it off?"""

from typing import Any

import numpy as np
import streamlit as st
import xarray as xr

from gatescope.dashboards import (
    choices,
    chooser,
    event_tables,
    figures,
    label_classes,
    reset_figures,
    reset_sections,
    results,
    segments,
    ways_out,
)
from gatescope.dashboards.chooser import View
from gatescope.probe.analyzers.alignment import alignment
from gatescope.probe.analyzers.resets import METHODS, resets
from gatescope.probe.schema import label_names

FIRST = 3  # units in colour without being asked for
NONE = "nothing"  # marks segments
MOST_VALUES = 200  # of a label, from which the reader may choose one
ORDERS = ("number", "events", "agreement")


def show(view: View) -> None:
    options = choose_options()
    events = results.of(view, resets, **options)
    if isinstance(events, str):
        chooser.nothing("Resets cannot be told from this recording.", events)
        return
    if events.attrs["reason"]:
        say_why_none(view, str(events.attrs["reason"]))
        return
    chooser.reading(
        f"Layer {view.layer}, {view.direction}. A mark is a reset: a unit's retention falls and its memory is in fact "
        "thrown away, the more the stronger the colour. Strokes end near zero, crosses are overwritten. Dotted lines "
        "stand where segments begin: marks that hug them follow the data."
    )
    view = without_clashes(view, events)
    found = agreement_of(view, events, options)
    if not (events["event_kind"].to_numpy() == found.kind).any():
        chooser.nothing(
            "No unit has such an event here. Lower the least depth or the least amount erased under *How a reset is "
            "told*, or take the absolute levels: adaptive ones look for falls that are rare in the unit's own terms."
        )
        return
    units = show_raster(view, found)
    averages = reset_sections.show_averages(view, found, units)
    reset_sections.show_agreement(view, found, units)
    cause = reset_sections.show_triggers(view, found)
    show_ways_out(view, found, units, averages, cause)


def without_clashes(view: View, events: xr.Dataset) -> View:
    """The view without labels that the result cannot hold, since it has columns of their names; the page says so."""
    clashes = [name for name in label_names(view.recording) if name not in label_names(events)]
    if not clashes:
        return view
    names = ", ".join(map(repr, clashes))
    st.text(f"⚠ Left out here, for the result has columns of the same name: label {names}. Rename it.")
    labels = None if view.labels in clashes else view.labels
    return view._replace(recording=view.recording.drop_vars(clashes), labels=labels)


def choose_options() -> dict[str, Any]:
    """Parameters of `resets` that are not as usual."""
    with st.expander("How a reset is told", icon=":material/tune:"):
        columns = st.columns(4)
        with columns[0]:
            method = choices.choose("Levels", METHODS, name="method")
        with columns[1]:
            depth = choices.choose_number("Least depth", 0.01, 1.0, name="depth", default=0.1, step=0.05)
        with columns[2]:
            erased = choices.choose_number("Least erased, in spreads", 0.0, 10.0, name="erased", default=0.1, step=0.1)
        low, high = 0.1, 0.9
        if method == "absolute":
            with columns[3]:
                low = choices.choose_number("Fallen below", 0.01, 0.98, name="low", default=0.1, step=0.05)
                high = choices.choose_number("Risen again at", low, 0.99, name="high", default=max(0.9, low), step=0.05)
    found = {"method": (method, METHODS[0]), "min_depth": (depth, 0.1), "min_erased": (erased, 0.1)}
    found |= {"low": (low, 0.1), "high": (high, 0.9)}
    return {name: value for name, (value, usual) in found.items() if value != usual}


def say_why_none(view: View, reason: str) -> None:
    chooser.nothing("This network cannot reset itself, so there are no events to show.", reason)
    st.markdown(
        "What it does instead: with a retention of 1 a memory can only grow, see **Gates and states**; how much of a "
        "change of its state is left after many steps is on **Gradient flow**. A network with a forget gate has "
        "resets: choose the example `cerg-forget`."
    )
    row = st.container(horizontal=True)
    chooser.link(row, "gates", "Gates and states")
    chooser.link(row, "gradient_flow", "Gradient flow")
    row.button(
        "Show the example cerg-forget",
        on_click=choices.take,
        args=("recording", "example: cerg-forget"),
        type="tertiary",
    )


def agreement_of(view: View, events: xr.Dataset, options: dict[str, Any]) -> reset_sections.Found:
    """The choices of kind and of what marks segments, and how well events agree with it."""
    rules, kinds = segments.rules(view.recording), events["kind"].values.tolist()
    flag = next((one.text for one in rules if one.how == "flag"), NONE)
    columns = iter(st.columns([1, 1, 1, 1], vertical_alignment="bottom"))
    kind = "reset"
    if len(kinds) > 1:
        with next(columns):
            kind = choices.choose("Events", kinds, name="kind", shown=lambda name: name.replace("_", " "))
    with next(columns):
        names = [NONE, *(one.text for one in rules)]
        rule = segments.chosen(rules, choices.choose("Segments begin where", names, name="segments", default=flag))
    if rule is not None and rule.how == "is" and (values := list(label_classes.of(view, rule.label))[:MOST_VALUES]):
        with next(columns):
            rule = rule._replace(value=choices.choose("Value", values, name="value", shown=figures.visible))
    if rule is None:
        return reset_sections.Found(events, kind, options, None, 0, None, "")
    with next(columns):
        tolerance = int(choices.choose_number("Steps a reset may be off", 0, 20, name="tolerance", default=1, step=1))
    agreement = results.of(view, agree, source=events, rule=tuple(rule), tolerance=tolerance, kind=kind)
    if isinstance(agreement, str):
        return reset_sections.Found(events, kind, options, rule, tolerance, None, agreement)
    return reset_sections.Found(events, kind, options, rule, tolerance, agreement, "")


def agree(events: xr.Dataset, *, rule: tuple[str, str, str], tolerance: int, kind: str) -> xr.Dataset:
    """`alignment` with what the reader chose as boundaries."""
    return alignment(events, segments.flags_of(events, segments.Segments(*rule)), tolerance=tolerance, kind=kind)


def show_raster(view: View, found: reset_sections.Found) -> list[int]:
    """The raster of one sequence, and the choice of units and steps."""
    events = found.events
    steps = int(view.recording["length"].sel(sequence=view.sequence))
    left, middle, right = st.columns([3, 3, 2], vertical_alignment="bottom")
    with left:
        of = (view.entry.name, view.module, view.sequence, steps)
        window = choices.choose_window("Steps on view", steps, name="time", of=of, usual=chooser.usual(steps))
    with middle:
        units = choices.choose_several(
            "Units in colour below",
            events["unit"].values.tolist(),
            name="unit",
            default=event_tables.best_units(events, found.kind, found.agreement, FIRST),
            most=reset_sections.MOST,
        )
    with right:
        orders = ORDERS if found.agreement is not None else ORDERS[:2]
        order = choices.choose("Rows by", orders, name="rows", default="events")
    rows = rows_of(found, view.sequence, order)
    if not rows:
        chooser.nothing("No unit has such an event in this sequence. Choose another one in the sidebar.")
        return units
    raster = reset_figures.raster_of(events, kind=found.kind, sequence=view.sequence, rows=rows, window=window)
    run = events["together"].sel(kind=found.kind, sequence=view.sequence).isel(layer=0, direction=0)
    run = run.isel(time=slice(window[0], window[1] + 1)).assign_attrs(events.attrs)
    boundary = None
    if found.rule is not None:
        flags = segments.flags_of(events, found.rule).sel(sequence=view.sequence)
        boundary = "segment_begins"
        run = run.assign_coords({boundary: ("time", flags.values[window[0] : window[1] + 1])})
    st.plotly_chart(
        reset_figures.raster_figure(
            raster, run, labels=view.labels, boundary=boundary, dark=st.context.theme.type == "dark"
        ),
        key=f"raster-{view.entry.name}-{view.name}-{view.sequence}-{view.labels}-{found.kind}-{window}-{order}-{found.rule}",
        config={"displaylogo": False},
    )
    shown = raster.events.sizes["event"]
    at_step = f"{shown:,} events of {len(rows):,} units on these steps"
    lost = f"; {raster.left_out:,} that throw away less are not drawn" if raster.left_out else ""
    idle = events.sizes["unit"] - len(rows)
    others = f" {idle:,} units have none in this sequence." if idle else ""
    st.caption(f"{at_step}{lost}.{others}{reset_sections.synchrony(events, found.kind)}")
    if units:
        chooser.link(st, "gates", "See the units in colour step by step", unit=",".join(map(str, units)))
    return units


def rows_of(found: reset_sections.Found, sequence: int, order: str) -> list[int]:
    """Units that have events in a sequence, in the order asked for."""
    events, numbers = found.events, found.events["unit"].to_numpy()
    here = (events["event_kind"].to_numpy() == found.kind) & (events["event_sequence"].to_numpy() == sequence)
    units, counts = np.unique(events["event_unit"].to_numpy()[here], return_counts=True)
    count = np.zeros(numbers.size, dtype=np.int64)
    count[[numbers.tolist().index(unit) for unit in units.tolist()]] = counts
    by = np.zeros(count.size)
    if order == "events":
        by = -count.astype(np.float64)
    elif order == "agreement" and found.agreement is not None:
        by = -np.nan_to_num(found.agreement["f1"].isel(layer=0, direction=0).to_numpy())
    ordered = np.argsort(by, kind="stable")
    return [int(numbers[at]) for at in ordered if count[at]]


def show_ways_out(
    view: View,
    found: reset_sections.Found,
    units: list[int],
    averages: xr.Dataset | None,
    cause: tuple[xr.Dataset, int] | None,
) -> None:
    """Downloads, and the code that counts and draws the same."""
    from gatescope.probe.plots.alignment import figure_alignment
    from gatescope.probe.plots.event_average import plot_event_average
    from gatescope.probe.plots.resets import plot_resets
    from gatescope.probe.plots.triggers import plot_triggers

    events, kind = found.events, found.kind
    drawn = units_with_events(found, units)
    tables: dict[str, Any] = {
        "events": lambda: event_tables.event_rows(events, kind),
        "units": lambda: event_tables.unit_rows(events, kind),
    }
    kept = {"resets": events}
    pictures: dict[str, Any] = {
        "raster": lambda ax: plot_resets(events, **view.where, kind=kind, labels=view.labels, ax=ax)
    }
    if averages is not None:
        kept["average"] = averages
        pictures["average"] = lambda: plot_event_average(averages, units=drawn)[0].figure
    if found.agreement is not None:
        agreement = found.agreement
        tables["alignment"] = lambda: event_tables.agreement_rows(agreement)
        kept["alignment"] = agreement
        pictures["alignment"] = lambda: figure_alignment(agreement)
    if cause is not None:
        result = cause[0]
        tables["triggers"] = lambda: event_tables.trigger_rows(result)
        kept["triggers"] = result
        pictures["triggers"] = lambda ax: plot_triggers(result, **view.place, ax=ax)
    ways_out.show(
        view.name,
        code=view.code(*code_lines(view, found, drawn, averages is not None, cause), here=True),
        tables=tables,
        results=kept,
        pictures=pictures,
    )


def units_with_events(found: reset_sections.Found, units: list[int]) -> list[int] | None:
    """Those of the chosen units that have events; None (all that have any) where no chosen one has."""
    count = found.events["count"].sel(kind=found.kind).isel(layer=0, direction=0)
    return [unit for unit in units if int(count.sel(unit=unit))] or None


def code_lines(
    view: View,
    found: reset_sections.Found,
    units: list[int] | None,
    averaged: bool,
    cause: tuple[xr.Dataset, int] | None,
) -> list[str]:
    """Lines of Python after the recording is opened and narrowed to the layer and direction."""
    options = "".join(f", {name}={value!r}" for name, value in found.options.items())
    kind = f", kind={found.kind!r}" if found.kind != "reset" else ""
    place = ", ".join(f"{name}={value!r}" for name, value in view.place.items())
    run = ", ".join(f"{name}={value!r}" for name, value in view.where.items())
    labels = f", labels={view.labels!r}" if view.labels else ""
    lines = [f"events = gs.resets(recording{options})", f"gs.plot_resets(events, {run}{kind}{labels})"]
    if averaged:
        chosen = f", units={units}" if units else ""
        lines += ["", f"average = gs.event_average(recording, events{kind})", f"gs.plot_event_average(average{chosen})"]
    if found.agreement is not None and found.rule is not None:
        more, flags = segments.lines_of(found.rule)
        asked = f"events, {flags}, tolerance={found.tolerance}{kind}"
        lines += ["", *more, f"alignment = gs.alignment({asked})", "gs.figure_alignment(alignment)"]
    if cause is not None:
        asked = f"events, {view.labels!r}, at_least={cause[1]}{kind}"
        lines += ["", f"triggers = gs.triggers({asked})", f"gs.plot_triggers(triggers, {place})"]
    return lines


if __name__ == "__main__":
    chooser.page("Resets", show)
