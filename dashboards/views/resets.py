"""Page: when does each unit throw its memory away, is it where segments begin, and what sets it off?"""

from typing import Any, NamedTuple

import numpy as np
import streamlit as st
import xarray as xr

from gatescope.dashboards import (
    boundary_figures,
    choices,
    chooser,
    event_tables,
    figures,
    label_classes,
    reset_figures,
    results,
    segments,
    ways_out,
)
from gatescope.dashboards.chooser import View
from gatescope.probe.analyzers.alignment import alignment
from gatescope.probe.analyzers.event_average import event_average
from gatescope.probe.analyzers.resets import METHODS, resets
from gatescope.probe.analyzers.triggers import triggers
from gatescope.probe.schema import label_names

FIRST, MOST = 3, 12  # units in colour at first, and at most
NONE = "nothing"  # marks segments
MOST_VALUES = 200  # of a label, from which the reader may choose one
ORDERS = ("number", "events", "agreement")
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
    found = agreement_of(view, events, options)
    if not (events["event_kind"].to_numpy() == found.kind).any():
        chooser.nothing(
            "No unit has such an event here. Lower the least depth or the least amount erased under *How a reset is "
            "told*, or take the absolute levels: adaptive ones look for falls that are rare in the unit's own terms."
        )
        return
    units = show_raster(view, found)
    averages = show_averages(view, found, units)
    show_agreement(view, found, units)
    cause = show_triggers(view, found)
    show_ways_out(view, found, units, averages, cause)


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


def agreement_of(view: View, events: xr.Dataset, options: dict[str, Any]) -> Found:
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
        return Found(events, kind, options, None, 0, None, "")
    with next(columns):
        tolerance = int(choices.choose_number("Steps a reset may be off", 0, 20, name="tolerance", default=0, step=1))
    agreement = results.of(view, agree, source=events, rule=tuple(rule), tolerance=tolerance, kind=kind)
    if isinstance(agreement, str):
        return Found(events, kind, options, rule, tolerance, None, agreement)
    return Found(events, kind, options, rule, tolerance, agreement, "")


def agree(events: xr.Dataset, *, rule: tuple[str, str, str], tolerance: int, kind: str) -> xr.Dataset:
    """`alignment` with what the reader chose as boundaries."""
    return alignment(events, segments.flags_of(events, segments.Segments(*rule)), tolerance=tolerance, kind=kind)


def show_raster(view: View, found: Found) -> list[int]:
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
            most=MOST,
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
    st.caption(f"{at_step}{lost}.{others}{synchrony(events, found.kind)}")
    return units


def rows_of(found: Found, sequence: int, order: str) -> list[int]:
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
        reset_figures.average_figure(here, units),
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


def show_ways_out(
    view: View,
    found: Found,
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


def units_with_events(found: Found, units: list[int]) -> list[int] | None:
    """Those of the chosen units that have events; None (all that have any) where no chosen one has."""
    count = found.events["count"].sel(kind=found.kind).isel(layer=0, direction=0)
    return [unit for unit in units if int(count.sel(unit=unit))] or None


def code_lines(
    view: View, found: Found, units: list[int] | None, averaged: bool, cause: tuple[xr.Dataset, int] | None
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
