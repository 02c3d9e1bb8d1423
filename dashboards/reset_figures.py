"""Plotly figures of reset events: the raster.

Results of the analyzers in, `go.Figure` out; each is cut to one layer and direction, whose dimensions are gone.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from numpy.typing import NDArray
from plotly.colors import sample_colorscale

from ..signals import time_title
from .figures import COLOURS, MOST_BOUNDARIES, MOST_TICKS, literal, round_step, visible

GREY = "#888888"  # readable on light and on dark
MOST_MARKS = 20_000  # of a raster; of more events the ones that throw away most are drawn
MARKS = {False: ("reset to zero", "line-ns-open"), True: ("overwrite", "x-thin-open")}
ROW, LOWEST, HIGHEST, BARS, GAP = 14, 170, 500, 90, 34  # pixels
MOST_NAMED = 40  # units up to which each row of the raster is named


class Raster(NamedTuple):
    """The events of one kind and sequence, the unit of each row, and how many events are not drawn."""

    kind: str
    events: xr.Dataset
    rows: list[int]
    left_out: int


def raster_of(
    events: xr.Dataset,
    *,
    kind: str,
    sequence: int,
    rows: Sequence[int],
    window: tuple[int, int],
    most: int = MOST_MARKS,
) -> Raster:
    """The events that one raster shows; of more than `most` those that throw away the largest share."""
    onset = events["onset"].to_numpy()
    here = (events["event_kind"].to_numpy() == kind) & (events["event_sequence"].to_numpy() == sequence)
    here &= np.isin(events["event_unit"].to_numpy(), list(rows)) & (onset >= window[0]) & (onset <= window[1])
    places = np.flatnonzero(here)
    if places.size > most:
        deepest = np.argsort(-events["depth"].to_numpy()[places], kind="stable")[:most]
        places = places[np.sort(deepest)]
    return Raster(kind, events.isel(event=places), list(rows), int(here.sum()) - places.size)


def depth_scale(dark: bool) -> list[str]:
    """Viridis without the end that would vanish in the background; more depth stands out more.

    >>> len(depth_scale(True)) == len(depth_scale(False))
    True
    """
    ends = np.linspace(0.3, 1.0, 9) if dark else np.linspace(0.85, 0.0, 9)
    return [str(colour) for colour in sample_colorscale("Viridis", ends.tolist())]


def raster_figure(
    raster: Raster, run: xr.DataArray, *, labels: str | None = None, boundary: str | None = None, dark: bool = False
) -> go.Figure:
    """A mark at the onset of every event, a row per unit; below it how many units begin one at each step.

    Parameters
    ----------
    raster
        What `raster_of` chose.
    run
        `together` of the events, cut to one kind, layer, direction, sequence and the steps on view.
    labels
        A label of the run: along the top where it fits and under the pointer.
    boundary
        A boolean label of the run: a line stands before each of its steps.
    dark
        Whether the background is dark.
    """
    figure = go.Figure()
    time = np.asarray(run["time"].values)
    texts = [literal(visible(label)) for label in run[labels].values] if labels else []
    row_of = {unit: row for row, unit in enumerate(raster.rows)}
    overwrite = raster.events["overwrite"].to_numpy()
    for which, (name, symbol) in MARKS.items():
        some = raster.events.isel(event=overwrite == which)
        if which and not some.sizes["event"]:
            continue
        name = name if raster.kind == "reset" else raster.kind.replace("_", " ")
        figure.add_trace(_marks(some, row_of, time, texts, name, symbol, len(raster.rows), dark))
    heights = (_height(len(raster.rows)), float(BARS))
    figure.add_trace(
        go.Bar(
            x=time,
            y=np.asarray(run.values, dtype=np.float64),
            yaxis="y2",
            width=1,
            marker={"color": COLOURS[0], "line": {"width": 0}},
            name="at once",
            showlegend=False,
            hovertemplate="time %{x:d}<br><b>%{y:d}</b> begin an event<extra></extra>",
        )
    )
    _raster_axes(figure, raster, run, heights, texts)
    if boundary is not None:
        boundary_lines(figure, time[np.asarray(run[boundary].values, dtype=bool)])
    return figure


def _height(rows: int) -> float:
    """Pixels of the raster."""
    return float(np.clip(ROW * rows, LOWEST, HIGHEST))


def _marks(
    some: xr.Dataset,
    row_of: dict[int, int],
    time: NDArray[Any],
    texts: Sequence[str],
    name: str,
    symbol: str,
    rows: int,
    dark: bool,
) -> go.Scatter:
    onset, depth = some["onset"].to_numpy(), some["depth"].to_numpy()
    said = np.asarray(texts, dtype=object)[onset - time[0]] if texts and onset.size else np.full(onset.size, "", object)
    about = [some[column].to_numpy() for column in ("event_unit", "offset", "erased", "before", "after")]
    label = "%{customdata[5]} · " if texts else ""
    return go.Scatter(
        x=onset,
        y=np.array([row_of[unit] for unit in about[0].tolist()], dtype=np.int64),
        mode="markers",
        marker={
            "symbol": symbol,
            "size": float(np.clip(0.7 * _height(rows) / max(1, rows), 6, 12)),
            "color": depth,
            "cmin": 0,
            "cmax": 1,
            "colorscale": depth_scale(dark),
            "showscale": symbol == MARKS[False][1],
            "colorbar": {
                "title": {"text": "depth", "side": "right"},
                "thickness": 10,
                "outlinewidth": 0,
                "tickfont": {"size": 11},
            },
            "line": {"width": 1.6},
        },
        name=f"{name} ({onset.size:,})",
        customdata=np.stack([*[column.astype(object) for column in about], said.astype(object)], axis=1),
        hovertemplate=(
            f"{label}time %{{x:d}} to %{{customdata[1]:d}} · unit %{{customdata[0]}}<br>"
            "<b>%{marker.color:.1%}</b> thrown away, %{customdata[2]:.2f} spreads<br>"
            f"memory %{{customdata[3]:.3f}} → %{{customdata[4]:.3f}}<extra>{name}</extra>"
        ),
    )


def _raster_axes(
    figure: go.Figure, raster: Raster, run: xr.DataArray, heights: tuple[float, float], texts: Sequence[str]
) -> None:
    time = np.asarray(run["time"].values)
    inner, rows = sum(heights) + GAP, len(raster.rows)
    named = rows <= MOST_NAMED
    units = {"tickvals": list(range(rows)), "ticktext": [str(unit) for unit in raster.rows]} if named else {}
    ends = [float(time[0]) - 0.5, float(time[-1]) + 0.5]
    common = {"range": ends, "showgrid": False, "zeroline": False, "exponentformat": "none"}
    top: dict[str, Any] = {"showticklabels": False, "ticks": ""}
    if texts and len(texts) <= 4 * MOST_TICKS:
        top = {
            "tickvals": time.tolist() if len(texts) <= MOST_TICKS else [],
            "ticktext": list(texts) if len(texts) <= MOST_TICKS else [],
            "tickangle": 0 if max(map(len, texts), default=0) <= 3 else -90,
            "ticks": "",
            "tickfont": {"size": 13},
        }
    figure.add_trace(  # an axis without a trace is not drawn
        go.Scatter(x=ends, y=[None, None], xaxis="x2", yaxis="y2", hoverinfo="skip", showlegend=False, name="time")
    )
    figure.update_layout(
        height=inner + 54 + 46,
        margin={"t": 54, "b": 46, "l": 56, "r": 8},
        xaxis={"side": "top", "anchor": "y", **common, **top},
        xaxis2={
            "side": "bottom",
            "anchor": "y2",
            "overlaying": "x",
            "matches": "x",
            "title": {"text": time_title(run.attrs), "standoff": 4},
            **time_ticks(len(time)),
            **common,
        },
        yaxis={
            "domain": [1 - heights[0] / inner, 1],
            "range": [rows - 0.5, -0.5],
            "title": {"text": "unit" if named else f"{rows} units", "standoff": 6},
            "showgrid": False,
            "zeroline": False,
            "showticklabels": named,
            "tickfont": {"size": 11},
            **units,
        },
        yaxis2={
            "domain": [0, heights[1] / inner],
            "title": {"text": "at once", "standoff": 6},
            "rangemode": "tozero",
            "zeroline": False,
            "nticks": 4,
        },
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1 - (heights[0] + 2) / inner, "yanchor": "top"},
        hovermode="closest",
        dragmode="zoom",
        bargap=0,
        separators=".",
    )
    if len(raster.events["event"]) and figure.data[0].marker.colorbar is not None:
        bar = {"len": heights[0], "lenmode": "pixels", "y": 1, "yanchor": "top", "ypad": 0}
        figure.data[0].marker.colorbar.update(bar)


def time_ticks(steps: int) -> dict[str, Any]:
    """Numbers of steps along an axis that lies over another one, whose ticks it would take else."""
    return {"tickmode": "linear", "tick0": 0, "dtick": round_step(steps), "tickangle": 0}


def boundary_lines(figure: go.Figure, steps: NDArray[Any]) -> None:
    """A line through all panels before each of some steps, as one path; none where they would cover the picture."""
    if not 0 < len(steps) <= MOST_BOUNDARIES:
        return
    path = " ".join(f"M {step - 0.5},0 V 1" for step in steps.tolist())
    line = {"width": 1, "color": GREY, "dash": "dot"}
    figure.add_shape(type="path", path=path, xref="x", yref="paper", name="boundary", line=line, layer="below")
