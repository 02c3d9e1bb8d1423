"""Plotly figures of averages around events."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from .figures import COLOURS, DASHES, literal

GREY = "#888888"  # readable on light and on dark
MOST_GREY = 150  # lines without a name, of the units with most events


def average_figure(result: xr.Dataset, units: Sequence[int]) -> go.Figure:
    """Mean gate above mean size of the memory around the onset of an event: chosen units in colour, others grey.

    Parameters
    ----------
    result
        What `event_average` returned, at one layer and direction.
    units
        Units that have a colour; a dashed line is such a unit's mean over all steps.
    """
    figure = go.Figure()
    counts, numbers = result["events"].to_numpy(), result["unit"].to_numpy().tolist()
    grey = [place for place in np.argsort(-counts, kind="stable") if counts[place] and numbers[place] not in units]
    lag = result["lag"].to_numpy()
    for axis, (name, usual) in (("y", ("gate", "usual_gate")), ("y2", ("memory_size", "usual_size"))):
        values, means = result[name].transpose("unit", "lag").to_numpy(), result[usual].to_numpy()
        if grey:
            some = grey[:MOST_GREY]
            figure.add_trace(
                go.Scatter(
                    x=np.tile([*lag.tolist(), None], len(some)),
                    y=np.concatenate([[*values[place], np.nan] for place in some]),
                    yaxis=axis,
                    mode="lines",
                    line={"color": GREY, "width": 0.7},
                    opacity=0.45,
                    name=f"{len(some)} other unit{'s' * (len(some) > 1)}",
                    legendgroup="others",
                    showlegend=axis == "y",
                    hoverinfo="skip",
                )
            )
        for place, unit in enumerate(units):
            at = numbers.index(unit)
            if not counts[at]:
                continue
            style = {"color": COLOURS[place % len(COLOURS)], "dash": DASHES[place // len(COLOURS) % len(DASHES)]}
            figure.add_trace(
                go.Scatter(
                    x=lag,
                    y=values[at],
                    yaxis=axis,
                    mode="lines+markers",
                    marker={"size": 4},
                    line={"width": 1.8, **style},
                    name=f"unit {unit} ({int(counts[at]):,} events)",
                    legendgroup=str(unit),
                    showlegend=axis == "y",
                    hovertemplate=f"unit {unit} · %{{x:+d}} steps<br><b>%{{y:.4f}}</b><extra></extra>",
                )
            )
            level = {"color": style["color"], "width": 0.9, "dash": "dash"}
            figure.add_shape(
                type="line",
                x0=0,
                x1=1,
                xref="x domain",
                y0=means[at],
                y1=means[at],
                yref=axis,
                line=level,
                name="usual",
            )
    figure.add_shape(type="line", x0=0, x1=0, y0=0, y1=1, yref="paper", line={"color": GREY, "width": 1, "dash": "dot"})
    memory = str(result.attrs.get("memory", "")).replace("_", " ") or "memory"
    figure.update_layout(
        height=430,
        margin={"t": 40, "b": 46, "l": 60, "r": 8},
        xaxis={
            "anchor": "y2",
            "title": {"text": "steps from the onset, in running order", "standoff": 4},
            "zeroline": False,
        },
        yaxis={"domain": [0.54, 1], "title": {"text": "mean of the gate", "standoff": 6}, "zeroline": False},
        yaxis2={
            "domain": [0, 0.46],
            "title": {"text": f"mean size, {literal(memory)}", "standoff": 6},
            "zeroline": False,
        },
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom"},
        hovermode="closest",
        dragmode="zoom",
    )
    return figure
