"""Plotly figures of saturation: verdicts of each gate, and where a gate spends its time at each value of a label.

Results of `saturation` in, `go.Figure` out; each is cut to one layer and direction, whose dimensions are gone.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from .figures import COLOURS, SYMBOLS, literal, visible

GREY = "#888888"  # readable on light and on dark
VERDICTS = {
    "switching": COLOURS[2],
    "graded": COLOURS[5],
    "stuck open": COLOURS[1],
    "stuck shut": COLOURS[3],
    "dead": GREY,
    "no data": "#bbbbbb",
}
"""In the order in which they are stacked."""
ENDS = {"left": (COLOURS[0], "/"), "between": ("#b0b0b0", ""), "right": (COLOURS[4], "")}


def verdict_figure(result: xr.Dataset, gates: Sequence[str]) -> go.Figure:
    """How many units of each gate got each verdict, as one bar per gate."""
    figure = go.Figure()
    words = result["verdict"].sel(signal=list(gates)).to_numpy()
    names = [literal(gate.replace("_", " ")) for gate in gates]
    for verdict, colour in VERDICTS.items():
        counts = (words == verdict).sum(axis=1)
        if not counts.any():
            continue
        figure.add_trace(
            go.Bar(
                y=names,
                x=counts,
                orientation="h",
                name=verdict,
                marker={"color": colour, "line": {"width": 0}},
                text=[f"{count:,}" if count else "" for count in counts.tolist()],
                textposition="inside",
                insidetextanchor="middle",
                hovertemplate=f"%{{y}}<br><b>%{{x:,d}}</b> {verdict}<extra></extra>",
            )
        )
    figure.update_layout(
        height=90 + 34 * len(names),
        barmode="stack",
        bargap=0.25,
        margin={"t": 34, "b": 30, "l": 8, "r": 8},
        xaxis={"range": [0, result.sizes["unit"]], "showgrid": False, "zeroline": False},
        yaxis={"autorange": "reversed", "automargin": True},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom", "traceorder": "normal"},
        showlegend=True,
        dragmode=False,
    )
    return figure


def class_scatter(
    results: Mapping[str, xr.Dataset], signal: str, labels: Sequence[str], chosen: Sequence[int] = ()
) -> go.Figure:
    """Shares of left- and right-saturated steps of one signal, a point per unit and class of a label.

    Parameters
    ----------
    results
        What `saturation` returned of the steps of each class.
    signal
        Of which.
    labels
        The classes to show, a colour and symbol each.
    chosen
        Units drawn with a ring.
    """
    figure = go.Figure(go.Scatter(x=[0, 1], y=[1, 0], mode="lines", line={"color": "#999999", "width": 1}))
    figure.update_traces(showlegend=False, hoverinfo="skip", name="x + y = 1")
    for place, label in enumerate(labels):
        part = results[label].sel(signal=signal)
        units = np.asarray(part["unit"].values)
        ring, name = np.isin(units, list(chosen)), literal(visible(label))
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
                name=f"{name} ({int(part['steps'].max()):,} steps)",
                customdata=np.stack([units.astype(object), part["steps"].values.astype(object)], axis=1),
                hovertemplate=(
                    f"unit %{{customdata[0]}} at <b>{name}</b>, %{{customdata[1]:,d}} steps<br>"
                    "left %{x:.3f} · right %{y:.3f}<extra></extra>"
                ),
            )
        )
    low, high = _ends(results, labels)
    figure.update_layout(
        height=430,
        margin={"t": 34, "b": 50, "l": 56, "r": 8},
        xaxis={"range": [-0.03, 1.03], "title": {"text": f"left: share of steps below {low:g}", "standoff": 6}},
        yaxis={"range": [-0.03, 1.03], "title": {"text": f"right: share above {high:g}", "standoff": 6}},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom"},
        hovermode="closest",
        dragmode="zoom",
    )
    return figure


def class_bars(results: Mapping[str, xr.Dataset], signal: str) -> go.Figure:
    """Where all units of a signal together spend their steps at each class: left end, between, right end."""
    shares = class_shares(results, signal)
    low, high = _ends(results, list(results))
    texts = {"left": f"left (below {low:g})", "between": "between", "right": f"right (above {high:g})"}
    names = [f"{literal(visible(label))}  ({steps:,})" for label, (_, _, steps) in shares.items()]
    figure = go.Figure()
    for end, (colour, pattern) in ENDS.items():
        values = [
            {"left": left, "right": right, "between": 1 - left - right}[end] for left, right, _ in shares.values()
        ]
        figure.add_trace(
            go.Bar(
                y=np.arange(len(names)),
                x=values,
                orientation="h",
                name=texts[end],
                marker={"color": colour, "line": {"width": 0}, "pattern": {"shape": pattern, "fillmode": "replace"}},
                hovertemplate=f"{texts[end]}: <b>%{{x:.1%}}</b> of the units' steps<extra></extra>",
            )
        )
    figure.update_layout(
        height=int(np.clip(110 + 22 * len(names), 200, 700)),
        barmode="stack",
        bargap=0.15,
        margin={"t": 34, "b": 46, "l": 8, "r": 8},
        xaxis={
            "range": [0, 1],
            "tickformat": ".0%",
            "dtick": 0.25,
            "title": {"text": "share of the units' steps", "standoff": 6},
        },
        yaxis={
            "range": [len(names) - 0.5, -0.5],
            "tickvals": list(range(len(names))),
            "ticktext": names,
            "automargin": True,
            "showgrid": False,
        },
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom", "traceorder": "normal"},
        showlegend=True,
        dragmode=False,
    )
    return figure


def class_shares(results: Mapping[str, xr.Dataset], signal: str) -> dict[str, tuple[float, float, int]]:
    """Mean left and right share over units, and steps, of every class; those most often at the left on top."""
    found = {}
    for label, result in results.items():
        part = result.sel(signal=signal)
        if int(part["steps"].max()):
            found[label] = (float(part["left"].mean()), float(part["right"].mean()), int(part["steps"].max()))
    return dict(sorted(found.items(), key=lambda item: -item[1][0]))


def _ends(results: Mapping[str, xr.Dataset], labels: Sequence[str]) -> tuple[float, float]:
    """Where left ends and right begins, as fractions of the range."""
    attrs = results[labels[0]].attrs if labels else {}
    return float(attrs.get("low", 0.1)), float(attrs.get("high", 0.9))
