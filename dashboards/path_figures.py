"""Plotly figures of gradient flow by path and unit: shares of the paths in time, what each unit's memory keeps.

Results of `gradient_flow` in, `go.Figure` out; each is cut to one layer and direction, whose dimensions are gone.
"""

from typing import Any

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from numpy.typing import NDArray

from .figures import MOST_TICKS, literal, visible
from .flow_figures import GREY, PATHS, power_text
from .reset_figures import boundary_lines, time_ticks


def path_share_figure(
    run: xr.DataArray, *, labels: str | None = None, boundary: str | None = None, window: tuple[int, int] | None = None
) -> go.Figure:
    """Shares of the paths in every step of one sequence: stacked up where they help, down where they work against.

    Parameters
    ----------
    run
        `path_share` over (time, path), with labels of the recording as coordinates over time if there are any.
    labels
        A label: along the top where it fits and under the pointer.
    boundary
        A boolean label: a line stands before each of its steps.
    window
        First and last step on view.
    """
    known = run.transpose("path", "time")
    known = known.isel(time=~np.isnan(known.to_numpy()).any(axis=0))
    first, last = window or (int(run["time"].values[0]), int(run["time"].values[-1]))
    known = known.isel(time=(known["time"].values >= first) & (known["time"].values <= last))
    time, figure = known["time"].to_numpy(), go.Figure()
    texts = [literal(visible(value)) for value in known[labels].values] if labels else []
    head = "%{customdata} · " if texts else ""
    for path, values in zip(known["path"].to_numpy().tolist(), known.to_numpy(), strict=True):
        figure.add_trace(
            go.Bar(
                x=time,
                y=values,
                width=1,
                marker={"color": PATHS[path], "line": {"width": 0}},
                name=str(path),
                customdata=np.asarray(texts, dtype=object) if texts else None,
                hovertemplate=f"{head}time %{{x:d}}<br>{path} <b>%{{y:.3f}}</b><extra></extra>",
            )
        )
    values = known.to_numpy()
    above = float(np.maximum(values, 0).sum(axis=0).max(initial=1.0))
    below = float(np.minimum(values, 0).sum(axis=0).min(initial=0.0))
    room = 0.03 * (above - below)
    common: dict[str, Any] = {"range": [first - 0.5, last + 0.5], "showgrid": False, "zeroline": False}
    top: dict[str, Any] = {"showticklabels": False, "ticks": ""}
    if texts and last - first < MOST_TICKS:
        turned = 0 if max(map(len, texts)) <= 3 else -90
        top = {"tickvals": time.tolist(), "ticktext": texts, "tickangle": turned, "ticks": "", "tickfont": {"size": 13}}
    figure.add_trace(
        go.Scatter(x=time, y=[None] * len(time), xaxis="x2", hoverinfo="skip", showlegend=False, name="time")
    )
    for value in (0, 1):
        figure.add_hline(y=value, line={"color": GREY, "width": 1})
    figure.update_layout(
        height=330,
        barmode="relative",
        bargap=0,
        margin={"t": 44, "b": 84, "l": 60, "r": 8},
        xaxis={"side": "top", "anchor": "y", **common, **top},
        xaxis2={
            "side": "bottom",
            "anchor": "y",
            "overlaying": "x",
            "matches": "x",
            "title": {"text": "time (step)", "standoff": 4},
            "exponentformat": "none",
            **time_ticks(last - first + 1),
            **common,
        },
        yaxis={"range": [below - room, above + room], "title": {"text": "share", "standoff": 6}, "zeroline": False},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": -0.22, "yanchor": "top"},
        hovermode="closest",
        dragmode="zoom",
    )
    if boundary is not None:
        boundary_lines(figure, time[np.asarray(known[boundary].values, dtype=bool)])
    return figure


def cell_path_figure(result: xr.Dataset, *, lowest: float = -8.0) -> go.Figure:
    """What every unit's own memory keeps: median product of the retention, units over horizons, longest on top."""
    values = result["cell_path"].sel(quantile=0.5).transpose("unit", "horizon").to_numpy()
    units, horizon = result["unit"].to_numpy(), result["horizon"].to_numpy()
    shown = np.clip(np.where(np.isneginf(values), lowest, values), lowest, None)
    order = np.argsort(-np.nansum(shown, axis=1), kind="stable")
    rows = len(units)
    named = {"tickvals": list(range(rows)), "ticktext": [str(unit) for unit in units[order]]} if rows <= 40 else {}
    powers = np.arange(np.ceil(lowest), 1)
    figure = go.Figure(
        go.Heatmap(
            x=np.arange(len(horizon)),  # horizons lie closer the longer they are: each has a column
            y=np.arange(rows),
            z=shown[order],
            zmin=lowest,
            zmax=max(0.0, float(np.nanmax(shown, initial=0.0))),
            colorscale="Viridis",
            customdata=np.broadcast_to(units[order][:, None], shown.shape),
            text=np.broadcast_to(horizon[None], shown.shape),
            hovertemplate="unit %{customdata} · %{text} steps back<br><b>10^%{z:.2f}</b> is left<extra></extra>",
            hoverongaps=False,
            colorbar={
                "thickness": 10,
                "outlinewidth": 0,
                "tickvals": powers[::2].tolist(),
                "ticktext": [power_text(value) for value in powers[::2]],
                "title": {"text": "left", "side": "right"},
            },
        )
    )
    marks = _apart(np.searchsorted(horizon, [1, *(k for k in (2, 5, *_rounds(horizon[-1])) if k <= horizon[-1])]))
    figure.update_layout(
        height=int(np.clip(110 + 12 * rows, 240, 520)),
        margin={"t": 12, "b": 50, "l": 56, "r": 8},
        xaxis={
            "tickvals": marks.tolist(),
            "ticktext": [f"{step:,}" for step in horizon[marks]],
            "tickangle": 0,
            "title": {"text": "horizon (steps back)", "standoff": 6},
            "showgrid": False,
        },
        yaxis={
            "range": [rows - 0.5, -0.5],
            "showgrid": False,
            "showticklabels": bool(named),
            "tickfont": {"size": 11},
            "title": {"text": "unit" if named else f"{rows} units", "standoff": 6},
            **named,
        },
        dragmode="zoom",
    )
    return figure


def _apart(places: NDArray[np.int64], count: int = 12) -> NDArray[np.int64]:
    """Some of rising places, so that no two are closer than a twelfth of the last."""
    kept: list[int] = []
    for place in places.tolist():
        if not kept or place - kept[-1] >= places[-1] / count:
            kept.append(place)
    return np.array(kept, dtype=np.int64)


def _rounds(most: int) -> list[int]:
    """1, 2 and 5 times powers of ten from 10 up to a number."""
    return [step for power in range(1, 6) for step in (10**power, 2 * 10**power, 5 * 10**power) if step <= most]
