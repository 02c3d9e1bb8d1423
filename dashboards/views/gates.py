"""Page: what did the gates and states of one layer do on one sequence, and which gates are stuck?"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import streamlit as st
import xarray as xr

from gatescope.dashboards import choices, chooser, figures, reduction, results, summary, ways_out
from gatescope.dashboards.chooser import View
from gatescope.probe.analyzers.saturation import saturation
from gatescope.probe.schema import PROJECTED_DIMS, SIGNAL_DIMS, stepwise_names
from gatescope.signals import GATE_ROLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_TRACES = 12
SHARES = {
    "left": "Share of steps near the lower end of the signal's range.",
    "right": "Share of steps near the upper end of the signal's range.",
    "mean": "Mean over all steps.",
    "squash_saturated": "Share of steps on which the unit's memory sits on the flat of its squasher.",
}
COLUMNS = {
    "unit": st.column_config.NumberColumn(width=46),
    "signal": st.column_config.TextColumn(width=98),
    "verdict": st.column_config.TextColumn(width=84),
    **{
        name: st.column_config.NumberColumn(name.split("_")[0], format="%.3f", help=text, width=54)
        for name, text in SHARES.items()
    },
}


def show(view: View) -> None:
    with st.sidebar:
        signal = choose_signal(view.recording)
    st.text(" · ".join(summary.certificate(view.recording)))
    for remark in summary.remarks(view.recording):
        st.text(f"⚠ {remark}")
    st.text(summary.reading(view.recording, signal, view.direction))
    window, units, panels = show_run(view, signal)
    result = results.of(view, saturation)
    table = show_saturation(view, result, units)
    show_ways_out(view, signal, table, window, units, panels)


def choose_signal(recording: xr.Dataset) -> str:
    signals = [name for name in stepwise_names(recording) if recording[name].dims in (SIGNAL_DIMS, PROJECTED_DIMS)]
    gates = [name for name in signals if recording[name].attrs.get("role") == "gate"]
    return choices.choose("Signal", signals, name="signal", default=(gates or signals)[0])


def show_run(view: View, signal: str) -> tuple[tuple[int, int] | None, list[int], list[str]]:
    """The heatmap and the traces, and the controls that belong to them."""
    run = view.recording.sel(view.where)
    steps = int(run["length"])
    panels = summary.trace_panels(view.recording, signal)
    whole = run[list(dict.fromkeys([signal, *panels]))].isel(time=slice(0, steps)).load()
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        of = (view.entry.name, view.module, view.sequence, steps)
        first, last = choices.choose_window("Steps on view", steps, name="time", of=of)
    options = whole[figures.unit_dim(whole[signal])].values.tolist()
    with right:
        units = choices.choose_several(
            "Units as traces",
            options,
            name="unit",
            default=summary.telling_units(whole[signal]),
            most=MOST_TRACES,
        )
    shown = whole.isel(time=slice(first, last + 1))
    size = reduction.bin_size(last - first + 1, len(options))
    statistic = choose_statistic(size, last - first + 1, len(options)) if size > 1 else "mean"
    narrowed = None if (first, last) == (0, steps - 1) else (first, last)
    if narrowed:
        st.button(
            "Whole sequence", icon=":material/zoom_out_map:", on_click=choices.take_window, args=("time", 0, steps - 1)
        )
    figure = figures.run_figure(
        shown,
        signal,
        labels=view.labels,
        units=units,
        panels=panels,
        limits=figures.colour_limits(whole[signal]),
        statistic=statistic,
    )
    key = f"run-{view.entry.name}-{view.name}-{signal}-sequence{view.sequence}-{view.labels}-{first}-{last}-{statistic}"
    st.plotly_chart(
        figure,
        key=key,
        on_select=lambda: take_box(key, options, first, last),
        selection_mode="box",
        config={"displaylogo": False},
    )
    if (many := len(figures.boundary_steps(shown))) > figures.MOST_BOUNDARIES:
        st.caption(f"{many:,} segments begin on these steps, too many for lines between them. Show fewer steps.")
    st.caption(
        "Drag to zoom, double-click to zoom out. With the box selection tool above the picture, the units in the box "
        "become the traces and its steps the steps on view."
    )
    return narrowed, units, panels


def choose_statistic(size: int, steps: int, units: int) -> str:
    statistic = choices.choose("Each column shows the", list(reduction.STATISTICS), name="statistic")
    fit = reduction.MOST_CELLS // units
    st.caption(
        f"{steps:,} steps of {units:,} units are more cells than a browser draws well: each column is the "
        f"{statistic} of {size} steps. Show {fit:,} steps or fewer to see every step with its label."
    )
    return statistic


def take_box(key: str, options: Sequence[int], first: int, last: int) -> None:
    """Units and steps in the box that the reader drew; a box in a panel of traces chooses steps only."""
    boxes = st.session_state[key]["selection"]["box"]
    if not boxes:
        return
    (left, right), (low, high) = sorted(boxes[0]["x"]), sorted(boxes[0]["y"])
    if boxes[0]["yref"] == "y":
        inside = [unit for unit in options if low - 0.5 < unit < high + 0.5]
        if inside:
            choices.take_several("unit", inside[:MOST_TRACES])
        if len(inside) > MOST_TRACES:
            st.toast(f"The box holds {len(inside)} units; the first {MOST_TRACES} became traces.")
    start, stop = max(first, int(np.ceil(left - 0.5))), min(last, int(np.floor(right + 0.5)))
    if start < stop:
        choices.take_window("time", start, stop)


def show_saturation(view: View, result: xr.Dataset | str, units: Sequence[int]) -> pd.DataFrame | None:
    """Table and scatter of all sequences, for the gates or one signal."""
    st.subheader("Saturation", anchor=False)
    if isinstance(result, str):
        st.text(result)
        return None
    result = result.isel(layer=0, direction=0)
    bounded = result["signal"].values.tolist()
    gates = [name for name, role in zip(bounded, result["role"].values, strict=True) if role in GATE_ROLES]
    every = "all gates" if gates else "all signals"
    low, high = result.attrs["low"], result.attrs["high"]
    st.text(
        f"Layer {view.layer}, {view.direction}, all sequences. left and right: share of steps on which the signal lies "
        f"below {low:g} or above {high:g} of its range."
    )
    asked = choices.choose("Signals in table and scatter", [every, *bounded], name="saturation")
    names = (gates or bounded) if asked == every else [asked]
    if counts := [summary.verdict_counts(result, name) for name in names if name in gates]:
        st.text("\n".join(counts))
    table = summary.saturation_table(result, names)
    spot = f"{view.entry.name}-{view.module}-{view.layer}-{view.direction}-{asked}"
    left, right = st.columns([3, 2])
    with left:
        st.dataframe(
            table,
            key=f"table-{spot}",
            hide_index=True,
            height=430,
            on_select=lambda: take_rows(f"table-{spot}", table),
            selection_mode="multi-row",
            column_config=COLUMNS,
        )
        st.caption("Click a heading to sort. Ticked rows become the traces above.")
    with right:
        st.plotly_chart(
            figures.saturation_figure(result, names, units),
            key=f"scatter-{spot}",
            on_select=lambda: take_points(f"scatter-{spot}"),
            selection_mode=("points", "box"),
            config={"displaylogo": False},
        )
    return table


def take_rows(key: str, table: pd.DataFrame) -> None:
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        choices.take_several("unit", list(dict.fromkeys(table["unit"].iloc[rows].tolist()))[:MOST_TRACES])


def take_points(key: str) -> None:
    points = st.session_state[key]["selection"]["points"]
    units = list(dict.fromkeys(int(point["customdata"][0]) for point in points if point.get("customdata")))
    if units:
        choices.take_several("unit", units[:MOST_TRACES])


def show_ways_out(
    view: View,
    signal: str,
    table: pd.DataFrame | None,
    window: tuple[int, int] | None,
    units: Sequence[int],
    panels: Sequence[str],
) -> None:
    """Downloads, and the code that draws the same."""

    def heatmap(ax: "Axes") -> None:
        from gatescope.probe.plots.signal import plot_signal

        plot_signal(view.recording, signal, **view.where, labels=view.labels, ax=ax)
        if window:
            ax.set_xlim(window[0] - 0.5, window[1] + 0.5)

    lines = summary.run_code(signal, view.where, labels=view.labels, units=units, panels=panels, window=window)
    ways_out.show(
        f"{view.module}-{signal}-layer{view.layer}-{view.direction}-sequence{view.sequence}",
        code=view.code(*lines),
        tables={} if table is None else {"saturation": lambda: table},
        pictures={"heatmap": heatmap},
    )


if __name__ == "__main__":
    chooser.page("Gates and states", show)
