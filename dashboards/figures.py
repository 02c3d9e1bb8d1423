"""Plotly figures of a recording: labelled data in, `go.Figure` out. Nothing here knows Streamlit, files or models.

A *run* is what one module computed on one sequence, `recording.sel(layer=..., direction=..., sequence=...)`, cut to the
steps on view: its signals have the dimensions (time, unit) or (time, projection).
"""

import html
import unicodedata
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from numpy.typing import NDArray

from ..signals import time_title
from .reduction import MOST_CELLS, MOST_POINTS, bin_size, binned, thinned

JOINERS = "\u200c\u200d"  # of letters that are written apart or together, as in Persian, and of emoji
MOST_LABEL = 18  # characters of a label along the axis
MOST_TICKS = 80
MOST_BOUNDARIES = 100  # beyond, the lines would cover what they divide
MOST_MARKS, LEAST_ROW = 1_500, 6.0  # resets drawn on the heatmap, and the pixels that a row must have for them
MOST_CROSSES = 200  # resets of a trace that are marked on it
LEAST_NAMED = 18.0  # pixels of a group of rows that is named
DENSE = 80  # steps beyond which marks are smaller
ROBUST = 99.0  # percentile of |value| that the colours of an unbounded signal reach, as in `plot_signal`
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito; readable on dark too
SYMBOLS = ("circle", "triangle-up", "square", "diamond", "triangle-down", "cross")
DASHES = ("solid", "dash", "dot", "dashdot")
ROW, TRACE_HEIGHT, STRIP_HEIGHT, GAP = 14, 130, 54, 44  # pixels; a row of the heatmap is lower where there are many
LOWEST, HIGHEST = 160, 520  # of the heatmap
TOP, BOTTOM = 54, 46


def literal(text: object) -> str:
    """Text that plotly shows as it is: its small subset of HTML is made harmless.

    >>> literal("<b>")
    '&lt;b&gt;'
    """
    return html.escape(str(text), quote=False)


def printable(sign: str) -> str:
    """A sign as it may stand on a page; what would steer the text around it, or nothing shows, is replaced.

    >>> printable("a"), printable("\\n"), printable("\\u202e")
    ('a', '↵', '�')
    """
    if sign.isprintable() or sign in JOINERS:
        return sign
    return {"\n": "↵", "\t": "⇥"}.get(sign, "�")


def visible(label: object) -> str:
    """A label that can be seen and told apart on an axis: spaces, line ends, lone diacritics, numbers.

    >>> visible(" "), visible("a line\\n"), visible(""), visible(0.25), visible(True)
    ('␣', 'a line↵', '∅', '0.25', 'yes')
    """
    if isinstance(label, bool | np.bool_):
        return "yes" if label else "no"
    if isinstance(label, float | np.floating):
        return f"{label:.4g}"
    text = "".join(printable(sign) for sign in str(label))
    if not text.strip():
        return "␣" * len(text) or "∅"
    if unicodedata.combining(text[0]):
        text = "◌" + text
    return text if len(text) <= MOST_LABEL else text[: MOST_LABEL - 1] + "…"


def long_name(signal: xr.DataArray) -> str:
    """The signal's name in words."""
    return str(signal.attrs.get("long_name", "")) or str(signal.name).replace("_", " ")


def unit_dim(signal: xr.DataArray) -> Hashable:
    """`unit`, or `projection` where the hidden state is projected."""
    return signal.dims[-1]


def colour_limits(signal: xr.DataArray) -> tuple[float, float]:
    """The ends of the colour scale: the signal's bounds, or the 99th percentile of |value| either side of 0.

    >>> colour_limits(xr.DataArray([2.0, -2.0, np.nan], dims="time"))
    (-2.0, 2.0)
    """
    if "lower" in signal.attrs and "upper" in signal.attrs:
        lower, upper = float(signal.attrs["lower"]), float(signal.attrs["upper"])
        return (lower, upper) if lower >= 0 else (-max(-lower, upper), max(-lower, upper))
    values = np.abs(np.asarray(signal.values, dtype=np.float64))
    values = values[np.isfinite(values)]
    limit = float(np.percentile(values, ROBUST)) if values.size else 0.0
    return (-limit, limit) if limit else (-1.0, 1.0)


def colour_scale(limits: tuple[float, float]) -> str:
    """Viridis for what cannot be negative, blue to red around 0 for the rest; both safe for colour-blind readers."""
    return "RdBu_r" if limits[0] < 0 else "Viridis"


class Resets(NamedTuple):
    """Onsets of resets of one run, and their units."""

    steps: NDArray[np.int64]
    units: NDArray[np.int64]

    def within(self, run: xr.Dataset) -> "Resets":
        """Those on the steps on view."""
        time = np.asarray(run["time"].values)
        inside = (self.steps >= time.min()) & (self.steps <= time.max())
        return Resets(self.steps[inside], self.units[inside])


def run_figure(
    run: xr.Dataset,
    signal: str,
    *,
    labels: str | None = None,
    units: Sequence[int] = (),
    panels: Sequence[str] = (),
    limits: tuple[float, float] | None = None,
    statistic: str = "mean",
    most_cells: int = MOST_CELLS,
    resets: Resets | None = None,
    groups: Sequence[tuple[str, int]] = (),
    found: Sequence[tuple[int, int]] = (),
) -> go.Figure:
    """A signal as a heatmap of time by unit, and below it the traces of some units on the same time axis.

    Parameters
    ----------
    run
        Signals over (time, unit) or (time, projection), without padding.
    signal
        The variable of the heatmap.
    labels
        A coordinate over time: shown along the top where it fits and under the pointer.
    units
        Values of the unit coordinate to draw as traces.
    panels
        Signals drawn as traces, a panel each, from top to bottom.
    limits
        Ends of the colour scale; by default those of the steps on view.
    statistic
        `mean`, `min` or `max`: what a column shows where it stands for several steps.
    resets
        Events of this run: marks on the heatmap where its rows are high enough, how many units reset at a step in a
        strip below it, and marks on the traces.
    groups
        Name and number of rows of groups of units, from top to bottom; together they are all rows.
    found
        First and last steps of places to point out.
    """
    data = run[signal]
    panels = [name for name in panels if units]
    size = bin_size(data.shape[0], data.shape[1], most_cells)
    figure = go.Figure(_heatmap(data, limits or colour_limits(data), size, statistic, bool(labels)))
    for row, name in enumerate(panels, start=2):
        figure.add_traces(_traces(run[name], units, row, bool(labels) and size == 1))
    strip = len(panels) + 2 if resets is not None else 0
    if resets is not None:
        _resets(figure, run, signal, resets.within(run), strip)
        _marked_traces(figure, run, units, panels, resets.within(run))
    _panels(figure, run, [signal, *panels], strip)
    _unit_axis(figure, data, groups)
    _time_axes(figure, run, labels if size == 1 else None)
    _boundaries(figure, run)
    _found(figure, found, run)
    return figure


def _when(labelled: bool) -> str:
    """The first line under the pointer; a labelled axis writes the label for `%{x}` and the number for `%{x:d}`."""
    return "<b>%{x}</b><br>time %{x:d}" if labelled else "time %{x:d}"


def _heatmap(data: xr.DataArray, limits: tuple[float, float], size: int, statistic: str, labelled: bool) -> go.Heatmap:
    values = np.asarray(data.values, dtype=np.float32)
    unit = "%{y:d}" if _in_order(data) else "%{y}"
    cells = binned(values, size, statistic) if size > 1 else np.where(np.isfinite(values), values, np.nan)
    what = literal(long_name(data)) if size == 1 else f"{statistic} {literal(long_name(data))}"
    when = _when(labelled) if size == 1 else f"{size} steps around time %{{x:d}}"
    dim = unit_dim(data)
    return go.Heatmap(
        x=np.asarray(data["time"].values)[::size] + (size - 1) / 2,
        y=np.arange(data.shape[1]),
        z=cells.T,
        zmin=limits[0],
        zmax=limits[1],
        colorscale=colour_scale(limits),
        colorbar={"thickness": 10, "outlinewidth": 0, "tickfont": {"size": 11}, "ypad": 0},
        hovertemplate=f"{when} · {dim} {unit}<br>{what} <b>%{{z:.4f}}</b><extra></extra>",
        hoverongaps=False,
    )


def _traces(data: xr.DataArray, units: Sequence[int], row: int, labelled: bool) -> list[go.Scatter]:
    dim, time = unit_dim(data), np.asarray(data["time"].values)
    what = f"{literal(long_name(data))} <b>%{{y:.4f}}</b><extra></extra>"
    lines = []
    for place, unit in enumerate(units):
        values = np.asarray(data.sel({dim: unit}).values, dtype=np.float32)
        kept = thinned(values)
        lines.append(
            go.Scatter(
                x=time[kept],
                y=values[kept],
                yaxis=f"y{row}",
                mode="lines+markers" if len(kept) < 3 else "lines",
                line={
                    "color": COLOURS[place % len(COLOURS)],
                    "dash": DASHES[place // len(COLOURS) % len(DASHES)],
                    "width": 1.6,
                },
                name=f"{dim} {unit}",
                legendgroup=str(unit),
                showlegend=row == 2,
                hovertemplate=f"{_when(labelled)} · {dim} {unit}<br>{what}",
            )
        )
    return lines


def _in_order(data: xr.DataArray) -> bool:
    """Whether the units are 0, 1, 2, ... from top to bottom, so that rows need no names."""
    return bool(np.array_equal(data[unit_dim(data)].values, np.arange(data.shape[1])))


def _heatmap_height(data: xr.DataArray) -> int:
    return min(max(ROW * data.shape[1], LOWEST), HIGHEST)


def _panels(figure: go.Figure, run: xr.Dataset, names: Sequence[str], strip: int) -> None:
    """Stack the heatmap, the strip of resets if there is one, and the panels of traces, at their heights in pixels."""
    heights = [_heatmap_height(run[names[0]]), *[TRACE_HEIGHT] * (len(names) - 1)]
    above = STRIP_HEIGHT + GAP // 2 if strip else 0
    inner = sum(heights) + GAP * (len(heights) - 1) + above
    top = float(inner)
    for row, (name, height) in enumerate(zip(names, heights, strict=True), start=1):
        data = run[name]
        axis: dict[str, Any] = {
            "domain": [max(0.0, (top - height) / inner), top / inner],
            "title": {"text": literal(str(unit_dim(data)) if row == 1 else long_name(data)), "standoff": 6},
            "anchor": "x",
            "zeroline": row > 1,
        }
        if row == 1:
            axis |= {"range": [data.shape[1] - 0.5, -0.5], "showgrid": False}
        elif "lower" in data.attrs and "upper" in data.attrs:
            margin = 0.04 * (float(data.attrs["upper"]) - float(data.attrs["lower"]))
            axis |= {"range": [float(data.attrs["lower"]) - margin, float(data.attrs["upper"]) + margin]}
        figure.update_layout({"yaxis" if row == 1 else f"yaxis{row}": axis})
        if row == 1:
            figure.update_traces(
                {"colorbar": {"len": height, "lenmode": "pixels", "y": 1, "yanchor": "top"}}, {"type": "heatmap"}
            )
        top -= height + GAP
        if row == 1 and strip:
            ends = [max(0.0, (top + GAP // 2 - STRIP_HEIGHT) / inner), (top + GAP // 2) / inner]
            text = {"text": "resets", "standoff": 6}
            figure.update_layout({f"yaxis{strip}": {"domain": ends, "anchor": "x", "title": text, "nticks": 3}})
            top -= above
    figure.update_layout(
        height=inner + TOP + BOTTOM,
        margin={"t": TOP, "b": BOTTOM, "l": 56, "r": 8},
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1 - (heights[0] + above + 4) / inner,
            "yanchor": "top",
        },
        hovermode="closest",
        dragmode="zoom",
        separators=".",  # no comma in 10000: the texts of ticks are keys of `labelalias`
    )


def _time_axes(figure: go.Figure, run: xr.Dataset, labels: str | None) -> None:
    """Labels along the top of the heatmap, numbers of steps along the bottom; both zoom as one.

    The axis at the top is the one of every trace, and `labelalias` renames its ticks: the label under the pointer
    costs nothing per cell, and ticks that were left out appear on zooming in.
    """
    time = np.asarray(run["time"].values)
    ends = [float(time.min()) - 0.5, float(time.max()) + 0.5]
    common = {"range": ends, "exponentformat": "none", "separatethousands": False, "showgrid": False, "zeroline": False}
    named: dict[str, Any] = {"showticklabels": False, "ticks": ""}
    if labels:
        texts = [visible(label) for label in run[labels].values]
        named = {
            "labelalias": _aliases(time, texts),
            "tickangle": 0 if max(map(len, texts)) <= 3 else -90,
            "nticks": MOST_TICKS,
            "ticks": "",
            "tickfont": {"size": 13},
        }
    lowest = min(_y_axes(figure), key=lambda name: figure.layout[name]["domain"][0])
    figure.add_trace(  # an axis without a trace is not drawn
        go.Scatter(x=ends, y=[None, None], xaxis="x2", yaxis="y", hoverinfo="skip", showlegend=False, name="time")
    )
    bottom = {
        "anchor": lowest.replace("axis", ""),
        "title": {"text": time_title(run.attrs), "standoff": 4},
        "tickmode": "linear",
        "tick0": 0,
        "dtick": round_step(len(time)),
        "tickangle": 0,
    }
    figure.update_layout(
        xaxis={"side": "top", "anchor": "y", **common, **named},
        xaxis2={"side": "bottom", "matches": "x", "overlaying": "x", **bottom, **common},
    )


def round_step(steps: int) -> int:
    """1, 2 or 5 times a power of ten, so that a dozen ticks or fewer stand along the axis.

    >>> [round_step(steps) for steps in (1, 24, 60, 20_000)]
    [1, 2, 5, 2000]
    """
    power = int("1" + "0" * (len(str(max(1, steps // 12))) - 1))
    return next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power * 12 >= steps)


def _aliases(time: NDArray[Any], texts: Sequence[str]) -> dict[str, str]:
    """What the axis writes at a step; nothing at the ticks that plotly sets between two steps on zooming in."""
    names = {str(step): literal(text) for step, text in zip(time.tolist(), texts, strict=True)}
    if len(names) <= MOST_POINTS:
        before = str(int(time[0]) - 1) if time[0] else "\N{MINUS SIGN}0"
        names |= {f"{step}.{tenth}": " " for step in (before, *time.tolist()) for tenth in range(1, 10)}
    return names


def _y_axes(figure: go.Figure) -> list[str]:
    return [str(name) for name in figure.layout if str(name).startswith("yaxis")]


def _unit_axis(figure: go.Figure, data: xr.DataArray, groups: Sequence[tuple[str, int]]) -> None:
    """Names of rows where units are sorted or chosen; lines between groups of them, and their names."""
    names = [str(unit) for unit in data[unit_dim(data)].values.tolist()]
    if not _in_order(data):
        aliases = {str(place): name for place, name in enumerate(names)}
        if len(names) <= MOST_POINTS:
            aliases |= {f"{place}.{tenth}": " " for place in range(-1, len(names)) for tenth in range(1, 10)}
        figure.update_layout(yaxis={"labelalias": aliases, "exponentformat": "none", "separatethousands": False})
    first, line = 0, {"width": 1.0, "color": "#ffffff"}
    for name, rows in groups:
        at = first - 0.5
        if first:
            figure.add_shape(type="line", x0=0, x1=1, xref="x domain", y0=at, y1=at, name="group", line=line)
        if rows * _heatmap_height(data) >= LEAST_NAMED * data.shape[1]:
            figure.add_annotation(
                text=literal(name),
                x=1,
                xref="x domain",
                xanchor="right",
                y=at,
                yanchor="top",
                showarrow=False,
                bgcolor="rgba(255,255,255,0.7)",
                font={"size": 11, "color": "#202020"},
                borderpad=1,
            )
        first += rows


def _resets(figure: go.Figure, run: xr.Dataset, signal: str, resets: Resets, strip: int) -> None:
    """How many units reset at each step, as bars; and a mark on each such cell of the heatmap, where they fit."""
    data = run[signal]
    steps, counts = np.unique(resets.steps, return_counts=True)
    figure.add_trace(
        go.Bar(
            x=steps,
            y=counts,
            yaxis=f"y{strip}",
            width=1.0,
            marker={"color": COLOURS[1], "line": {"width": 0}},
            name="units that reset",
            showlegend=False,
            hovertemplate="time %{x:d}<br><b>%{y}</b> units reset<extra></extra>",
        )
    )
    rows = {int(unit): place for place, unit in enumerate(data[unit_dim(data)].values.tolist())}
    shown = [(step, rows[unit]) for step, unit in zip(*map(np.ndarray.tolist, resets), strict=True) if unit in rows]
    room, diverging = _heatmap_height(data) / data.shape[1], colour_limits(data)[0] < 0
    if unit_dim(data) != "unit" or len(shown) > MOST_MARKS or room < LEAST_ROW:
        return
    figure.add_trace(
        go.Scatter(
            x=[step for step, _ in shown],
            y=[row for _, row in shown],
            mode="markers",
            marker={
                "symbol": "x",
                "size": 6 if data.shape[0] <= DENSE else 4,
                "color": "#202020" if diverging else "#ffffff",
                "line": {"width": 0.5 if diverging else 1.0, "color": "#ffffff" if diverging else "#202020"},
            },
            name="reset",
            showlegend=False,
            hoverinfo="skip",
        )
    )


def _marked_traces(
    figure: go.Figure, run: xr.Dataset, units: Sequence[int], panels: Sequence[str], resets: Resets
) -> None:
    """The resets of each trace, as marks on its gate."""
    if not panels or unit_dim(run[panels[0]]) != "unit":
        return
    for place, unit in enumerate(units):
        steps = resets.steps[resets.units == unit]
        if len(steps) > MOST_CROSSES:
            continue
        figure.add_trace(
            go.Scatter(
                x=steps,
                y=run[panels[0]].sel(unit=unit, time=steps).values.astype(np.float32),
                yaxis="y2",
                mode="markers",
                marker={"symbol": "x", "size": 7, "color": COLOURS[place % len(COLOURS)]},
                name=f"reset of unit {unit}",
                legendgroup=str(unit),
                showlegend=False,
                hoverinfo="skip",
            )
        )


def _found(figure: go.Figure, found: Sequence[tuple[int, int]], run: xr.Dataset) -> None:
    """A bar along the top of the heatmap over each place that was looked for."""
    time = np.asarray(run["time"].values)
    for first, last in found:
        if last >= time.min() and first <= time.max():
            ends = {"x0": max(first, time.min()) - 0.5, "x1": min(last, time.max()) + 0.5}
            line = {"width": 2, "color": COLOURS[1]}
            figure.add_shape(type="rect", y0=0, y1=1, yref="y domain", name="found", line=line, **ends)


def boundary_steps(run: xr.Dataset) -> NDArray[np.int64]:
    """The first steps of segments, if the recording marks any."""
    if "boundary" not in run.coords:
        return np.empty(0, dtype=np.int64)
    return np.asarray(run["time"].values[run["boundary"].values.astype(bool)], dtype=np.int64)


def _boundaries(figure: go.Figure, run: xr.Dataset) -> None:
    """A line through every panel before each first step of a segment: one path, whatever their number."""
    steps = boundary_steps(run).tolist()
    if len(steps) > MOST_BOUNDARIES:
        return
    axes = [figure.layout[name]["domain"] for name in _y_axes(figure)]
    heatmap, *traces = sorted(axes, reverse=True)
    for panels, width, colour, dash in (
        ([heatmap], 2.0, "rgba(255,255,255,0.6)", "solid"),
        ([heatmap], 1.0, "#202020", "dot"),
        (traces, 1.0, "#888888", "dot"),
    ):
        path = " ".join(f"M {step - 0.5},{low:.4f} V {high:.4f}" for low, high in panels for step in steps)
        line = {"width": width, "color": colour, "dash": dash}
        if path:
            figure.add_shape(type="path", path=path, xref="x", yref="paper", name="boundary", line=line)


def saturation_figure(result: xr.Dataset, gates: Sequence[str], chosen: Sequence[int] = ()) -> go.Figure:
    """Shares of left- and right-saturated steps, a point per unit, one colour and symbol per gate.

    Parameters
    ----------
    result
        What `saturation` returned, at one layer and direction: left and right over (signal, unit).
    gates
        Signals to show.
    chosen
        Units drawn with a ring.
    """
    figure = go.Figure(go.Scatter(x=[0, 1], y=[1, 0], mode="lines", line={"color": "#999999", "width": 1}))
    figure.update_traces(showlegend=False, hoverinfo="skip", name="x + y = 1")
    units = np.asarray(result["unit"].values)
    ring = np.isin(units, list(chosen))
    for place, gate in enumerate(gates):
        part = result.sel(signal=gate)
        figure.add_trace(
            go.Scatter(
                x=np.asarray(part["left"].values),
                y=np.asarray(part["right"].values),
                mode="markers",
                marker={
                    "size": np.where(ring, 11, 7),
                    "symbol": SYMBOLS[place % len(SYMBOLS)],
                    "color": COLOURS[place % len(COLOURS)],
                    "opacity": np.where(ring, 1.0, 0.65),
                    "line": {"width": np.where(ring, 2, 0), "color": "#808080"},
                },
                name=literal(gate.replace("_", " ")),
                customdata=np.stack([units.astype(object), part["verdict"].values], axis=1),
                hovertemplate=(
                    f"unit %{{customdata[0]}} · {literal(gate.replace('_', ' '))}<br>left %{{x:.3f}} · right %{{y:.3f}}"
                    "<br><b>%{customdata[1]}</b><extra></extra>"
                ),
            )
        )
    low, high = (float(result.attrs.get(end, share)) for end, share in (("low", 0.1), ("high", 0.9)))
    figure.update_layout(
        height=430,
        margin={"t": 34, "b": 50, "l": 56, "r": 8},
        xaxis={
            "range": [-0.03, 1.03],
            "title": {"text": f"left: share of steps below {low:g} of the range", "standoff": 6},
        },
        yaxis={"range": [-0.03, 1.03], "title": {"text": f"right: share above {high:g}", "standoff": 6}},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom"},
        hovermode="closest",
        dragmode="zoom",
    )
    return figure
