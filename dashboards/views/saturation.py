"""Page: which gates are stuck open or shut, which switch, and at which values of a label?"""

from typing import Any

import pandas as pd
import streamlit as st
import xarray as xr

from gatescope.dashboards import (
    choices,
    chooser,
    class_saturation,
    figures,
    label_classes,
    results,
    saturation_figures,
    summary,
    ways_out,
)
from gatescope.dashboards.chooser import View
from gatescope.probe.analyzers.saturation import saturation
from gatescope.probe.schema import label_names
from gatescope.signals import GATE_ROLES

MOST = 12  # units with a ring
CLASSES, SHOWN = 24, 6  # of a label: counted (the most frequent), and in the scatter at most
SHARES = {
    "left": "Share of steps near the lower end of the signal's range.",
    "right": "Share of steps near the upper end of the signal's range.",
    "mean": "Mean over all steps.",
    "squash_saturated": "Share of steps on which the unit's memory sits on the flat of its squasher.",
}
FORMATS: dict[str, Any] = {
    name: st.column_config.NumberColumn(name.split("_")[0], format="%.3f", help=text, width="small")
    for name, text in SHARES.items()
}


def show(view: View) -> None:
    low, high, units = choose_options(view)
    asked: dict[str, Any] = {
        name: value for name, value, usual in (("low", low, 0.1), ("high", high, 0.9)) if value != usual
    }
    result = results.of(view, saturation, **asked)
    if isinstance(result, str):
        chooser.nothing("Saturation cannot be told from this recording.", result)
        return
    here = result.isel(layer=0, direction=0)
    gates = [str(n) for n, role in zip(here["signal"].values, here["role"].values, strict=True) if role in GATE_ROLES]
    chooser.reading(
        f"Layer {view.layer}, {view.direction}, all sequences. A point is a unit of a gate: left, the share of steps "
        f"below {low:g} of its range, against right, the share above {high:g}. Upper left: always open. Lower right: "
        "always shut. On the grey line: a switch. Lower left: it scales, and decides nothing."
    )
    if not gates:
        st.info(
            "This cell has no gates, so there are no verdicts. Its bounded signals are below: a state near an end of "
            "its range hardly lets a gradient through. An LSTM or a GRU has gates: choose the example `cerg-forget`."
        )
    names = gates or [str(name) for name in here["signal"].values]
    shown = show_whole(view, here, gates, names, units)
    by_label = show_by_label(view, names, units, (low, high))
    show_ways_out(view, result, shown, by_label, (low, high))


def choose_options(view: View) -> tuple[float, float, list[int]]:
    columns = st.columns([1, 1, 3], vertical_alignment="bottom")
    with columns[0]:
        low = choices.choose_number("Left is below", 0.01, 0.49, name="sat_low", default=0.1, step=0.05)
    with columns[1]:
        high = choices.choose_number("Right is above", 0.51, 0.99, name="sat_high", default=0.9, step=0.05)
    with columns[2]:
        units = choices.choose_several(
            "Units with a ring", view.recording["unit"].values.tolist(), name="unit", default=[], most=MOST
        )
    return low, high, units


def show_whole(view: View, here: xr.Dataset, gates: list[str], names: list[str], units: list[int]) -> list[str]:
    """Verdicts, scatter and table over all steps."""
    every = "all gates" if gates else "all signals"
    bounded = [str(name) for name in here["signal"].values]
    asked = choices.choose("Signals in scatter and table", [every, *bounded], name="saturation")
    shown = names if asked == every else [asked]
    spot = f"{view.entry.name}-{view.name}-{asked}-{here.attrs['low']}-{here.attrs['high']}"
    if counted := [name for name in shown if name in gates]:
        st.text("\n".join(summary.verdict_counts(here, name) for name in counted))
        st.plotly_chart(
            saturation_figures.verdict_figure(here, counted), key=f"verdicts-{spot}", config={"displayModeBar": False}
        )
    left, right = st.columns([3, 3])
    with left:
        st.plotly_chart(
            figures.saturation_figure(here, shown, units),
            key=f"scatter-{spot}",
            on_select=lambda: take_points(f"scatter-{spot}"),
            selection_mode=("points", "box"),
            config={"displaylogo": False},
        )
    with right:
        table = summary.saturation_table(here, shown)
        st.dataframe(
            table,
            hide_index=True,
            height=430,
            key=f"table-{spot}",
            on_select=lambda: take_rows(f"table-{spot}", table),
            selection_mode="multi-row",
            column_config=FORMATS,
        )
    note = str(here["squash_saturated"].attrs.get("long_name", ""))
    st.caption("Points chosen in the picture and rows ticked in the table get a ring.")
    if note:
        st.text(f"squash: {note}")
    if units:
        chooser.link(st, "gates", "See the units with a ring step by step", unit=",".join(map(str, units)))
    return shown


def take_points(key: str) -> None:
    points = st.session_state[key]["selection"]["points"]
    units = list(dict.fromkeys(int(point["customdata"][0]) for point in points if point.get("customdata")))
    if units:
        choices.take_several("unit", units[:MOST])


def take_rows(key: str, table: pd.DataFrame) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        choices.take_several("unit", list(dict.fromkeys(table["unit"].iloc[rows].tolist()))[:MOST])


def show_by_label(
    view: View, names: list[str], units: list[int], levels: tuple[float, float]
) -> dict[str, xr.Dataset] | None:
    """The same, of the steps of each value of a label by themselves."""
    st.subheader("By label", anchor=False)
    if view.labels is None or view.recording[view.labels].dtype not in (object, bool):
        texts = [name for name in label_names(view.recording) if view.recording[name].dtype in (object, bool)]
        do = "Choose a label of text in the sidebar" if texts else "Record with labels"
        st.info(
            f"{do} to see at which of its values a gate is open or shut: "
            '`gs.record(model, batch, labels={"token": tokens})`.'
        )
        return None
    every = label_classes.of(view, view.labels)
    found = class_saturation.of(view, view.labels, list(every)[:CLASSES], levels)
    if not found:
        chooser.nothing("No gate is finite on any step at which this label has a value. Choose another label.")
        return None
    columns = st.columns([1, 2], vertical_alignment="bottom")
    with columns[0]:
        signal = choices.choose("Signal by label", names, name="signal", default=keeping(view.recording, names))
    if not saturation_figures.class_shares(found, signal):
        chooser.nothing("This signal has no finite value on the steps of this label.")
        return None
    with columns[1]:
        values = list(found)  # which may hold anything: they stand in the address by their rank
        places = choices.choose_several(
            "Values in the scatter",
            list(range(len(values))),
            name="values",
            default=[values.index(value) for value in first_values(found, signal)],
            most=SHOWN,
            shown=lambda place: figures.visible(values[place]),
            placeholder="None: choose values",
        )
        shown = [values[place] for place in places]
    chooser.reading(
        f"{signal} at each value of {view.labels}. Bars: where all units together spend its steps, most often at the "
        "left end on top. Points: units, at the values chosen; a unit whose points lie apart tells them apart."
    )
    key = f"{view.entry.name}-{view.name}-{view.labels}-{signal}-{levels}"
    left, right = st.columns(2)
    with left:
        st.plotly_chart(
            saturation_figures.class_bars(found, signal), key=f"bars-{key}", config={"displayModeBar": False}
        )
    with right:
        st.plotly_chart(
            saturation_figures.class_scatter(found, signal, shown, units),
            key=f"classes-{key}-{shown}",
            on_select=lambda: take_points(f"classes-{key}-{shown}"),
            selection_mode=("points", "box"),
            config={"displaylogo": False},
        )
    if len(every) > CLASSES:
        st.caption(f"The {CLASSES} most frequent of {len(every):,} values.")
    return found


def first_values(found: dict[str, xr.Dataset], signal: str) -> list[str]:
    """The values at which the signal is most and least often at the left end."""
    ordered = list(saturation_figures.class_shares(found, signal))
    return list(dict.fromkeys([ordered[0], ordered[-1]]))


def keeping(recording: xr.Dataset, names: list[str]) -> str:
    """The gate that multiplies the old memory, or the first signal."""
    retention = str(recording.attrs["retention"]).removeprefix("1 - ")
    return retention if retention in names else names[0]


def show_ways_out(
    view: View,
    result: xr.Dataset,
    asked: list[str],
    by_label: dict[str, xr.Dataset] | None,
    levels: tuple[float, float],
) -> None:
    from gatescope.probe.plots.saturation import plot_saturation

    here = result.isel(layer=0, direction=0)
    place = ", ".join(f"{name}={value!r}" for name, value in view.place.items())
    lines = [f"saturation = gs.saturation(recording, low={levels[0]}, high={levels[1]})"]
    gated = any(role in GATE_ROLES for role in here["role"].values)
    lines += [f"gs.plot_saturation(saturation, {place})"] if gated else []
    tables: dict[str, Any] = {"saturation": lambda: summary.saturation_table(here, asked)}
    if by_label is not None and view.labels is not None:
        lines += ["", *class_saturation.lines(view.labels, list(by_label), levels)]
        tables["by-label"] = lambda: class_saturation.rows(by_label)
    ways_out.show(
        view.name,
        code=view.code(*lines, here=True),
        tables=tables,
        results={"saturation": result},
        pictures={"saturation": lambda ax: plot_saturation(result, **view.place, ax=ax)} if gated else {},
        size=(6.4, 6.0),
    )


if __name__ == "__main__":
    chooser.page("Saturation", show, sequence=False)
