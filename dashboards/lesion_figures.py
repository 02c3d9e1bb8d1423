"""Plotly figures of lesions: growth of two errors without each unit or block, and of one.

Results of `role_check` and `ablation` in, `go.Figure` out; each is cut to one layer and direction.
"""

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from .figures import COLOURS, literal
from .role_figures import NAMED, STYLES

GREY = "#888888"  # readable on light and on dark
MOST = 40  # rows of effects, the largest


def dim_of(result: xr.Dataset) -> str:
    return "memory_block" if "memory_block" in result.dims else "unit"


def check_figure(checked: xr.Dataset) -> go.Figure:
    """Growth of the long-lag error against that of the short-lag one, a point per unit or block, by role.

    Parameters
    ----------
    checked
        What `role_check` returned, at one layer and direction.
    """
    dim, figure = dim_of(checked), go.Figure()
    what = "block" if dim == "memory_block" else "unit"
    grown, low, high = (
        checked[name].transpose(dim, "lag").to_numpy()
        for name in ("specialisation", "specialisation_low", "specialisation_high")
    )
    ends = [float(np.nanmin(low, initial=0.0)), float(np.nanmax(high, initial=0.01))]
    line = {"color": GREY, "width": 1, "dash": "dot"}
    figure.add_trace(
        go.Scatter(x=ends, y=ends, mode="lines", line=line, name="alike", showlegend=False, hoverinfo="skip")
    )
    role, numbers = checked["role"].to_numpy(), checked[dim].to_numpy()
    for name, (colour, symbol) in STYLES.items():
        mine = role == name
        if not mine.any():
            continue
        bars = [
            {
                "type": "data",
                "symmetric": False,
                "array": high[mine, lag] - grown[mine, lag],
                "arrayminus": grown[mine, lag] - low[mine, lag],
                "color": colour,
                "thickness": 1,
                "width": 0,
            }
            for lag in (0, 1)
        ]
        figure.add_trace(
            go.Scatter(
                x=grown[mine, 1],
                y=grown[mine, 0],
                error_y=bars[0],
                error_x=bars[1],
                mode="markers+text" if role.size <= NAMED else "markers",
                text=[str(number) for number in numbers[mine]],
                textposition="top right",
                marker={"color": colour, "symbol": symbol, "size": 11},
                name=f"{name} ({int(mine.sum()):,})",
                customdata=np.stack([numbers[mine].astype(object), checked["verdict"].to_numpy()[mine]], axis=1),
                hovertemplate=(
                    f"{what} %{{customdata[0]}} · {name} · <b>%{{customdata[1]}}</b><br>long lag %{{y:+.3f}} · "
                    "short lag %{x:+.3f}<extra></extra>"
                ),
            )
        )
    room = 0.08 * (ends[1] - ends[0])
    limits = [ends[0] - room, ends[1] + room]
    figure.update_layout(
        height=400,
        margin={"t": 12, "b": 90, "l": 60, "r": 8},
        xaxis={
            "range": limits,
            "title": {"text": "growth of the error at short lags", "standoff": 6},
            "zeroline": True,
        },
        yaxis={"range": limits, "title": {"text": "growth at long lags", "standoff": 6}, "zeroline": True},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": -0.2, "yanchor": "top"},
        showlegend=True,
        hovermode="closest",
        dragmode="zoom",
    )
    return figure


def effect_figure(effects: xr.Dataset, metric: str, alpha: float = 0.05) -> go.Figure:
    """How a metric changes without each unit or block, the largest changes on top, with their intervals.

    Parameters
    ----------
    effects
        What `ablation` returned, at one layer and direction, over units or blocks.
    metric
        Its name.
    alpha
        Corrected p below which a point is filled.
    """
    dim = dim_of(effects)
    part = effects.sel(metric=metric)
    order = np.argsort(-np.abs(np.nan_to_num(part["effect"].to_numpy())), kind="stable")[:MOST]
    effect, low, high, p = (
        part[name].to_numpy()[order] for name in ("effect", "effect_low", "effect_high", "p_adjusted")
    )
    names = [f"{'block' if dim == 'memory_block' else 'unit'} {number}" for number in part[dim].to_numpy()[order]]
    figure = go.Figure(
        go.Scatter(
            x=effect,
            y=np.arange(order.size),
            mode="markers",
            error_x={
                "type": "data",
                "symmetric": False,
                "array": high - effect,
                "arrayminus": effect - low,
                "width": 0,
            },
            marker={"color": COLOURS[0], "size": 9, "symbol": np.where(p < alpha, "circle", "circle-open").tolist()},
            name=literal(metric),
            customdata=np.stack([np.array(names, dtype=object), p.astype(object)], axis=1),
            hovertemplate="%{customdata[0]}<br><b>%{x:+.4f}</b> · corrected p %{customdata[1]:.1e}<extra></extra>",
        )
    )
    figure.add_vline(x=0, line={"color": GREY, "width": 1})
    figure.update_layout(
        height=int(np.clip(100 + 20 * order.size, 180, 700)),
        margin={"t": 12, "b": 50, "l": 8, "r": 8},
        xaxis={"title": {"text": f"change of {literal(metric)} without it", "standoff": 6}},
        yaxis={
            "range": [order.size - 0.5, -0.5],
            "tickvals": list(range(order.size)),
            "ticktext": names,
            "automargin": True,
        },
        hovermode="closest",
        dragmode="zoom",
    )
    return figure
