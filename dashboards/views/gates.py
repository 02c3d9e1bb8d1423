"""Page: what did the gates and states of one layer do on one sequence, and what is there to know of one unit?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st
import xarray as xr

from gatescope.dashboards import (
    choices,
    chooser,
    figures,
    label_classes,
    orders,
    reduction,
    results,
    search,
    summary,
    ways_out,
)
from gatescope.dashboards.chooser import View
from gatescope.probe.analyzers.resets import resets
from gatescope.probe.analyzers.roles import roles
from gatescope.probe.analyzers.saturation import saturation
from gatescope.probe.analyzers.timescales import timescales
from gatescope.probe.schema import PROJECTED_DIMS, SIGNAL_DIMS, stepwise_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TRACES = 12
AT_ONCE = 2**23  # values of a signal that are read to tell its range and its telling units
SOON = 2**22  # values of a layer and direction in which resets are looked for without being asked
AROUND = 40  # steps to either side of a place that was found in such a sequence


class Run(NamedTuple):
    """What is on view of a sequence: a signal, its units from top to bottom, the first and last step."""

    signal: str
    by: str
    judge: str | None
    order: orders.Order
    window: tuple[int, int] | None  # None: all steps
    units: list[int]  # with traces
    panels: list[str]


def show(view: View) -> None:
    with st.sidebar:
        found = choose_place(view)
    st.caption(summary.escaped(" · ".join(summary.certificate(view.recording))))
    for remark in summary.remarks(view.recording):
        st.text(f"⚠ {remark}")
    run = show_run(view, found)
    pictures, lines = show_unit(view, run)
    show_ways_out(view, run, pictures, lines)


def choose_place(view: View) -> list[search.Place]:
    """Where the label reads as the reader wrote, with buttons that lead from place to place."""
    if view.labels is None:
        return []
    text = choices.write("Find in the labels", name="find", placeholder=f"a text in {view.labels!r}")
    found = search.places(view, text)
    if not text:
        return []
    if not found:
        st.caption("Found nowhere.")
        return []
    sequences = len({place.sequence for place in found})
    many = "more than " if len(found) == search.MOST_PLACES else ""
    st.caption(
        f"{many}{len(found):,} place{'s' * (len(found) != 1)} in {sequences:,} sequence{'s' * (sequences != 1)}, "
        f"{sum(place.sequence == view.sequence for place in found):,} in this one."
    )
    row = st.container(horizontal=True)
    for label, step in (("Previous", -1), ("Next", 1)):
        row.button(label, key=f"find-{label}", on_click=go_to, args=(view, found, step))
    return [place for place in found if place.sequence == view.sequence]


def go_to(view: View, found: list[search.Place], step: int) -> None:
    """Show the next place; to be called in a callback."""
    now = st.session_state.get("place")
    here = now if now in found and now.sequence == view.sequence else search.Place(view.sequence, -1, -1)
    place = search.beside(found, here, step)
    st.session_state["place"] = place
    choices.take("sequence", place.sequence)
    steps = int(view.recording["length"].sel(sequence=place.sequence))
    if steps > chooser.LONG:
        choices.ask_window("time", max(0, place.first - AROUND), min(steps - 1, place.last + AROUND))


def choose_signal(recording: xr.Dataset) -> str:
    signals = [name for name in stepwise_names(recording) if recording[name].dims in (SIGNAL_DIMS, PROJECTED_DIMS)]
    gates = [name for name in signals if recording[name].attrs.get("role") == "gate"]
    return choices.choose("Signal", signals, name="signal", default=(gates or signals)[0])


def show_run(view: View, found: Sequence[search.Place]) -> Run:
    """The heatmap and the traces, and the controls that belong to them."""
    columns = st.columns([2, 2, 3], vertical_alignment="bottom")
    with columns[0]:
        signal = choose_signal(view.recording)
    with columns[1]:
        by = choices.choose("Units sorted by", list(orders.ORDERS), name="sort")
    whole, begun = runs(view, signal)
    panels = summary.trace_panels(view.recording, signal)
    numbers = whole[signal][whole[signal].dims[-1]].values.tolist()
    with columns[2]:
        usual = summary.telling_units(begun[signal])
        units = choices.choose_several("Units as traces", numbers, name="unit", default=usual, most=MOST_TRACES)
    first, last = choose_steps(view, whole.sizes["time"])
    shown = whole.isel(time=slice(first, last + 1)).load()
    judge = label_classes.choose_judge(view) if by == orders.ROLE else None
    order = orders.ordered(view, shown[signal], by, judge)
    events = choose_marks(view)
    chooser.reading(summary.reading(view.recording, signal, view.direction, marked=events is not None))
    if sorted_how := f"{orders.ORDERS[by]} {summary.escaped(order.said)}".strip():
        st.caption(sorted_how)
    window = None if (first, last) == (0, whole.sizes["time"] - 1) else (first, last)
    run = Run(signal, by, judge, order, window, units, panels)
    draw_run(view, run, shown, figures.colour_limits(begun[signal]), events, found)
    return run


def runs(view: View, signal: str) -> tuple[xr.Dataset, xr.Dataset]:
    """What is drawn of the sequence on view, without padding; and of a very long one its beginning, in memory."""
    run = view.recording.sel(view.where)
    names = list(dict.fromkeys([signal, *summary.trace_panels(view.recording, signal)]))
    whole = run[names].isel(time=slice(0, int(run["length"])))
    most = max(1, AT_ONCE // max(1, run.sizes["unit"]))
    if whole.sizes["time"] <= most:
        loaded = whole.load()
        return loaded, loaded
    return whole, whole.isel(time=slice(0, most)).load()


def choose_steps(view: View, steps: int) -> tuple[int, int]:
    """Steps on view, with ways to the steps before and after and back to all."""
    row = st.container(horizontal=True, vertical_alignment="bottom")
    with row:
        of = (view.entry.name, view.module, view.sequence, steps)
        first, last = choices.choose_window("Steps on view", steps, name="time", of=of, usual=chooser.usual(steps))
        if (first, last) != (0, steps - 1):
            wide = last - first + 1
            for label, icon, begin in (("Earlier", "west", first - wide), ("Later", "east", first + wide)):
                begin = min(max(begin, 0), steps - wide)
                st.button(
                    label,
                    icon=f":material/{icon}:",
                    on_click=choices.take_window,
                    args=("time", begin, begin + wide - 1),
                    disabled=begin == first,
                )
            st.button(
                "Whole sequence",
                icon=":material/zoom_out_map:",
                on_click=choices.take_window,
                args=("time", 0, steps - 1),
            )
    return first, last


def choose_marks(view: View) -> figures.Resets | None:
    """The resets of the sequence on view, where a gate throws memory away and the reader wants to see it."""
    steps, units = int(view.recording["length"].sum()), view.recording.sizes["unit"]
    if not choices.choose_whether("Mark resets", name="marks", default=steps * units <= SOON):
        return None
    events = results.of(view, resets)
    if isinstance(events, str) or events.attrs["reason"]:
        st.caption(summary.escaped(events if isinstance(events, str) else events.attrs["reason"]))
        return None
    here = (events["event_sequence"].values == view.sequence) & (events["event_kind"].values == "reset")
    return figures.Resets(events["onset"].values[here], events["event_unit"].values[here])


def draw_run(
    view: View,
    run: Run,
    shown: xr.Dataset,
    limits: tuple[float, float],
    events: figures.Resets | None,
    found: Sequence[search.Place],
) -> None:
    first, last = int(shown["time"][0]), int(shown["time"][-1])
    shown = shown.sel({shown[run.signal].dims[-1]: run.order.units})
    size = reduction.bin_size(last - first + 1, len(run.order.units))
    statistic = choose_statistic(size, last - first + 1, len(run.order.units)) if size > 1 else "mean"
    figure = figures.run_figure(
        shown,
        run.signal,
        labels=view.labels,
        units=run.units,
        panels=run.panels,
        limits=limits,
        statistic=statistic,
        resets=events,
        groups=run.order.groups,
        found=[(place.first, place.last) for place in found],
    )
    spot = f"{view.name}-{run.signal}-sequence{view.sequence}-{view.labels}-{first}-{last}-{statistic}"
    key = f"run-{view.entry.name}-{spot}-{hash(tuple(run.order.units))}"
    st.plotly_chart(
        figure,
        key=key,
        on_select=lambda: take_box(key, run.order.units, first, last),
        selection_mode="box",
        config={"displaylogo": False},
    )
    if (many := len(figures.boundary_steps(shown))) > figures.MOST_BOUNDARIES:
        st.caption(f"{many:,} segments begin on these steps, too many for lines between them. Show fewer steps.")
    st.caption(
        "Drag to zoom, double-click to zoom out. With the box selection tool above the picture, the units in the box "
        "become the traces and its steps the steps on view."
    )


def choose_statistic(size: int, steps: int, units: int) -> str:
    statistic = choices.choose("Each column shows the", list(reduction.STATISTICS), name="statistic")
    fit = reduction.MOST_CELLS // units
    st.caption(
        f"{steps:,} steps of {units:,} units are more cells than a browser draws well: each column is the "
        f"{statistic} of {size} steps. Show {fit:,} steps or fewer to see every step with its label."
    )
    return statistic


def take_box(key: str, options: Sequence[int], first: int, last: int) -> None:
    """Units and steps in the box that the reader drew; a box in a panel of traces chooses steps only.

    `options` are the units from top to bottom, a row each.
    """
    boxes = st.session_state[key]["selection"]["box"]
    if not boxes:
        return
    (left, right), (low, high) = sorted(boxes[0]["x"]), sorted(boxes[0]["y"])
    if boxes[0]["yref"] == "y":
        inside = [unit for row, unit in enumerate(options) if low - 0.5 < row < high + 0.5]
        if inside:
            choices.take("unit", inside[:MOST_TRACES])
        if len(inside) > MOST_TRACES:
            st.toast(f"The box holds {len(inside)} units; the first {MOST_TRACES} became traces.")
    start, stop = max(first, int(np.ceil(left - 0.5))), min(last, int(np.floor(right + 0.5)))
    if start < stop:
        choices.take_window("time", start, stop)


def show_unit(view: View, run: Run) -> tuple[dict[str, ways_out.Draw], list[str]]:
    """All about one unit, for who asks; returned are its picture and the code that draws it."""
    if view.recording[run.signal].dims[-1] != "unit" or not run.units:
        return {}, []
    if not choices.choose_whether("All about one unit", name="about"):
        return {}, []
    left, right = st.columns([1, 2])
    with left:
        unit = choices.choose("Unit", run.units, name="one")
    with right:
        judge = run.judge if run.by == orders.ROLE else label_classes.choose_judge(view)
    given = unit_results(view, judge)
    for said in (f"{name}: {result}" for name, result in given.items() if isinstance(result, str)):
        st.text(said)
    good = {name: result for name, result in given.items() if not isinstance(result, str)}

    def draw() -> "Figure":
        from gatescope.probe.plots.unit import figure_unit

        return figure_unit(view.recording, unit, **view.where, labels=view.labels, window=run.window, **good)

    key = (view.entry.name, *map(str, (view.where, view.labels, run.window, unit, judge)), *sorted(good))
    st.image(_drawn(key, draw), width="stretch")
    code = summary.unit_code(unit, view.where, labels=view.labels, judged=judge, window=run.window)
    return {f"unit {unit}": draw}, code


@st.cache_data(max_entries=32, show_spinner="Drawing ...")
def _drawn(key: tuple[str, ...], _draw: ways_out.Draw) -> bytes:
    return ways_out.picture(_draw, "png")


def unit_results(view: View, judge: str | None) -> dict[str, Any]:
    """What `figure_unit` takes, of the layer and direction on view."""
    return {
        "saturation": results.of(view, saturation),
        "timescales": results.of(view, timescales),
        "resets": results.of(view, resets),
        "roles": results.of(view, roles, labels=judge),
    }


def show_ways_out(view: View, run: Run, pictures: dict[str, ways_out.Draw], more: list[str]) -> None:
    """Downloads, and the code that draws the same."""

    part = view.recording if run.window is None else view.recording.sel(time=slice(*run.window))

    def heatmap(ax: "Axes") -> None:
        from gatescope.probe.plots.signal import plot_signal

        plot_signal(part, run.signal, **view.where, labels=view.labels, units=run.order.units, ax=ax)

    def traces() -> "Figure":
        from gatescope.probe.plots.traces import plot_traces

        where: dict[str, Any] = {**view.where, "labels": view.labels}
        figure: Figure = plot_traces(part, run.units, signals=run.panels, **where)[0].figure
        return figure

    def table() -> pd.DataFrame:
        return on_view(view, run)[run.signal].to_dataframe()

    rows = run.order.code or ([] if run.by == orders.NUMBER else run.order.units)
    lines = summary.run_code(
        run.signal,
        view.where,
        labels=view.labels,
        order=rows,
        units=run.units,
        panels=run.panels,
        window=run.window,
    )
    ways_out.show(
        f"{view.name}-sequence{view.sequence}",
        code=view.code(*lines, *more),
        tables={run.signal: table},
        results={"run": on_view(view, run)},
        pictures={run.signal: heatmap, **({"traces": traces} if run.units else {}), **pictures},
    )


def on_view(view: View, run: Run) -> xr.Dataset:
    """The steps on view of the run, all signals."""
    whole = view.recording[stepwise_names(view.recording)].sel(view.where)
    first, last = run.window or (0, int(whole["length"]) - 1)
    return whole.isel(time=slice(first, last + 1))


if __name__ == "__main__":
    chooser.page("Gates and states", show)
