"""Plotly figures of gradient flow: decay by horizon, what it is without a path, shares of paths, memory by unit.

Results of `gradient_flow` in, `go.Figure` out; each is cut to one layer and direction, whose dimensions are gone.
Norms are log10, and the axes say so in powers of ten.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from numpy.typing import NDArray

from .figures import COLOURS, DASHES, literal

GREY = "#888888"  # readable on light and on dark
LOWEST = -16.0  # power of ten below which nothing is shown
LEVELS = {"1 %": -2.0, "float32": float(np.log10(np.finfo(np.float32).eps))}
PATHS = {
    "direct": "#0072B2",
    "via forget": "#E69F00",
    "via update": "#E69F00",
    "via input": "#56B4E9",
    "via reset": "#56B4E9",
    "via candidate": "#009E73",
    "recurrent": "#009E73",
    "via output": "#CC79A7",
}
"""Colours of paths, as in `plot_path_share`; what stands at the same place in two kinds of cells has the same one."""
PATH_DASHES = dict(zip(PATHS, ("solid", "dash", "dash", "dot", "dot", "dashdot", "dashdot", "longdash"), strict=True))


class Curve(NamedTuple):
    """log10 of what is left over the horizons at which it is known, relative to horizon 0."""

    horizon: NDArray[np.int64]
    low: NDArray[np.float64]
    middle: NDArray[np.float64]
    high: NDArray[np.float64]


def curve_of(result: xr.Dataset, block: str, norm: str) -> Curve:
    """The quantiles of one block's norm."""
    at = {"norm": norm, "block": block}
    origin = float(result["norm_at_zero"].sel(at))
    values = result["state_norm"].sel(at).transpose("quantile", "horizon").to_numpy()
    relative = values - (origin if np.isfinite(origin) else 0.0)
    there = ~np.isnan(relative).all(axis=0)
    low, middle, high = (np.where(np.isfinite(row), row, np.nan) for row in relative[:, there])
    return Curve(result["horizon"].to_numpy()[there], low, middle, high)


def decay_figure(curves: Mapping[str, Curve], *, lowest: float = LOWEST) -> go.Figure:
    """How much of a change of the state is left k steps later: the median of each curve and its 10-90 % band.

    Parameters
    ----------
    curves
        By the label that the legend shows.
    lowest
        Power of ten below which nothing is shown.
    """
    figure = go.Figure()
    for place, (label, curve) in enumerate(curves.items()):
        colour = COLOURS[place % len(COLOURS)]
        dash = DASHES[(place // len(COLOURS) + place) % len(DASHES)]
        known = np.isfinite(curve.low) & np.isfinite(curve.high)
        x, low, high = curve.horizon[known], curve.low[known], curve.high[known]
        figure.add_trace(
            go.Scatter(
                x=np.concatenate([x, x[::-1]]),
                y=np.concatenate([high, low[::-1]]),
                fill="toself",
                fillcolor=_faint(colour),
                line={"width": 0},
                mode="lines",
                name=f"{literal(label)}: 10 to 90 %",
                legendgroup=label,
                showlegend=False,
                hoverinfo="skip",
            )
        )
        band = np.stack([np.power(10.0, values) for values in (curve.middle, curve.low, curve.high)], axis=1)
        figure.add_trace(
            go.Scatter(
                x=curve.horizon,
                y=curve.middle,
                mode="lines" if len(curve.horizon) > 3 else "lines+markers",
                line={"color": colour, "dash": dash, "width": 2},
                name=literal(label),
                legendgroup=label,
                customdata=band,
                hovertemplate=(
                    f"{literal(label)}<br>%{{x:,d}} steps back: <b>%{{customdata[0]:.3g}}</b> is left<br>"
                    "10 to 90 %: %{customdata[1]:.2g} to %{customdata[2]:.2g}<extra></extra>"
                ),
            )
        )
    shown = [values for curve in curves.values() for values in (curve.low, curve.middle, curve.high)]
    bottom, top = power_limits(shown, lowest)
    for name, level in LEVELS.items():
        if level > bottom:
            figure.add_hline(y=level, line={"color": GREY, "width": 1, "dash": "dot"}, name=name)
            said = {"text": name, "xref": "paper", "x": 1, "y": level, "xanchor": "right", "yanchor": "bottom"}
            figure.add_annotation(showarrow=False, font={"size": 11, "color": GREY}, **said)
    _power_axis(figure, bottom, top, "share left (log scale)")
    _curve_layout(figure, curves)
    figure.update_xaxes(range=[0, last_visible([(c.horizon, c.high) for c in curves.values()], bottom)])
    return figure


def knockout_curves(result: xr.Dataset) -> dict[str, tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """log10 of the median norm with a path cut at every step over that with none cut, by path."""
    middle = result.sel(quantile=0.5)
    ratio = (middle["knockout_norm"] - middle["knockout_reference"]).transpose("path", "horizon").to_numpy()
    horizon = result["horizon"].to_numpy()
    found = {}
    for path, values in zip(result["path"].to_numpy().tolist(), ratio, strict=True):
        there = np.isfinite(values)
        found[str(path)] = (horizon[there], values[there])
    return found


def knockout_figure(result: xr.Dataset, *, lowest: float = LOWEST) -> go.Figure:
    """Which path carries the gradient: a line per path, the norm without it relative to that with all."""
    curves, figure = knockout_curves(result), go.Figure()
    for path, (horizon, values) in curves.items():
        name = f"without {path.removeprefix('via ')}"
        figure.add_trace(
            go.Scatter(
                x=horizon,
                y=values,
                mode="lines" if len(horizon) > 3 else "lines+markers",
                line={"color": PATHS[path], "dash": PATH_DASHES[path], "width": 2},
                name=name,
                customdata=np.power(10.0, values),
                hovertemplate=f"{name}<br>%{{x:,d}} steps back: <b>%{{customdata:.3g}}</b> of it<extra></extra>",
            )
        )
    figure.add_hline(y=0, line={"color": GREY, "width": 1})
    bottom, top = power_limits([values for _, values in curves.values()], lowest)
    _power_axis(figure, bottom, top, "with the path cut / uncut")
    _curve_layout(figure, curves)
    return figure


def power_limits(curves: Sequence[NDArray[np.float64]], lowest: float) -> tuple[float, float]:
    """Every power of ten that is reached, but none below `lowest`, and some room.

    >>> power_limits([np.array([-1.0, -20.0])], -16.0)
    (-16.64, 0.64)
    """
    finite = np.concatenate([[0.0], *(curve[np.isfinite(curve)] for curve in curves)])
    bottom, top = max(lowest, float(finite.min())), float(finite.max())
    room = 0.04 * max(1.0, top - bottom)
    return bottom - room, top + room


def last_visible(curves: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]], bottom: float) -> float:
    """The horizon up to which something stands above the lower end, and some room.

    >>> last_visible([(np.array([0, 10, 100]), np.array([0.0, -5.0, -50.0]))], -16.0)
    105.0
    >>> last_visible([(np.array([0, 10, 100, 1000]), np.array([0.0, -5.0, -50.0, -500.0]))], -16.0)
    105.0
    """
    last = 1.0
    for horizon, values in curves:
        above = np.flatnonzero(values >= bottom)
        if above.size:
            last = max(last, float(horizon[min(above[-1] + 1, len(horizon) - 1)]))
    return 1.05 * last


def _power_axis(figure: go.Figure, bottom: float, top: float, title: str) -> None:
    step = next(size for size in (0.5, 1, 2, 4, 10, 50, 200, 1000) if (top - bottom) / size <= 9)
    powers = np.arange(np.ceil(bottom / step) * step, top + 1e-9, step)
    figure.update_yaxes(
        range=[bottom, top],
        tickvals=powers.tolist(),
        ticktext=[power_text(value) for value in powers],
        title={"text": title, "standoff": 6},
        zeroline=False,
    )


def power_text(power: float) -> str:
    """A power of ten as plotly writes it.

    >>> power_text(2.0), power_text(0.0), power_text(-0.5)
    ('10<sup>2</sup>', '1', '0.32')
    """
    if power == 0:
        return "1"
    return f"10<sup>{power:.0f}</sup>".replace("-", "\N{MINUS SIGN}") if power == int(power) else f"{10**power:.2g}"


def _curve_layout(figure: go.Figure, curves: Mapping[str, Any]) -> None:
    rows = -(-sum(len(label) + 8 for label in curves) // 90)
    figure.update_layout(
        height=390 + 20 * rows,
        margin={"t": 12, "b": 64 + 20 * rows, "l": 60, "r": 8},
        xaxis={"title": {"text": "horizon (steps back)", "standoff": 6}, "rangemode": "tozero", "zeroline": False},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": -0.18, "yanchor": "top"},
        showlegend=True,
        hovermode="closest",
        dragmode="zoom",
    )


def _faint(colour: str) -> str:
    """A colour with little of it.

    >>> _faint("#0072B2")
    'rgba(0,114,178,0.18)'
    """
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"
