"""Plotly figures of what resets have to do with the data: agreement with boundaries, lags, triggers.

Results of the analyzers in, `go.Figure` out; each is cut to one layer and direction, whose dimensions are gone.
"""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
import xarray as xr

from .figures import COLOURS, literal, long_name, visible

GREY = "#888888"  # readable on light and on dark
MOST_LABELS = 24  # bars of triggers


def alignment_figure(result: xr.Dataset, chosen: Sequence[int] = (), level: float = 0.05) -> go.Figure:
    """Recall against precision, a point per unit, coloured where the agreement is beyond chance; lines of equal F1.

    Parameters
    ----------
    result
        What `alignment` returned, at one layer and direction.
    chosen
        Units drawn with a ring.
    level
        Corrected p below which a unit is beyond chance.
    """
    figure = go.Figure()
    for value in (0.25, 0.5, 0.75):
        x = np.linspace(value / (2 - value), 1, 60)
        line = {"color": GREY, "width": 0.8, "dash": "dot"}
        figure.add_trace(
            go.Scatter(
                x=x, y=value * x / (2 * x - value), mode="lines", line=line, name=f"F1 {value}", hoverinfo="skip"
            )
        )
        figure.add_annotation(
            x=1,
            y=value / (2 - value),
            text=f"F1 {value:g}",
            showarrow=False,
            xanchor="right",
            yanchor="top",
            font={"size": 10, "color": GREY},
        )
    figure.update_traces(showlegend=False)
    names = ("precision", "recall", "f1", "lag", "p_adjusted", "events")
    numbers = {name: result[name].to_numpy() for name in names}
    units, beyond = result["unit"].to_numpy(), numbers["p_adjusted"] < level
    for which, colour, symbol, name in (
        (False, GREY, "circle-open", "within chance"),
        (True, COLOURS[0], "circle", "beyond chance"),
    ):
        part = (beyond == which) & np.isfinite(numbers["precision"])
        ring = np.isin(units[part], list(chosen))
        figure.add_trace(
            go.Scatter(
                x=numbers["precision"][part],
                y=numbers["recall"][part],
                mode="markers",
                marker={
                    "color": colour,
                    "symbol": symbol,
                    "size": np.where(ring, 13, 8),
                    "opacity": 0.85,
                    "line": {"width": np.where(ring, 2.5, 1), "color": np.where(ring, COLOURS[1], colour)},
                },
                name=f"{name} ({int(part.sum()):,})",
                customdata=np.stack(
                    [units[part].astype(object)] + [numbers[n][part].astype(object) for n in names[2:]], axis=1
                ),
                hovertemplate=(
                    "unit %{customdata[0]} · %{customdata[4]:,d} events<br>precision %{x:.3f} · recall %{y:.3f} · "
                    "F1 <b>%{customdata[1]:.3f}</b><br>lag %{customdata[2]:+.0f} · corrected p %{customdata[3]:.1e}"
                    "<extra></extra>"
                ),
            )
        )
    figure.update_layout(
        height=400,
        margin={"t": 34, "b": 50, "l": 56, "r": 8},
        xaxis={"range": [-0.03, 1.03], "title": {"text": "precision: share of events near a boundary", "standoff": 6}},
        yaxis={"range": [-0.03, 1.05], "title": {"text": "recall: share of boundaries", "standoff": 6}},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom"},
        showlegend=True,
        hovermode="closest",
        dragmode="zoom",
    )
    return figure


def lag_figure(result: xr.Dataset, level: float = 0.05) -> go.Figure:
    """How many events begin so many steps after the nearest boundary: of units beyond chance, and upon it the others.

    Parameters
    ----------
    result
        What `alignment` returned, at one layer and direction.
    level
        Corrected p below which a unit is beyond chance.
    """
    figure = go.Figure()
    beyond = result["p_adjusted"].to_numpy() < level
    counts = result["lags"].transpose("unit", "lag_step").to_numpy()
    for which, colour, name in ((True, COLOURS[0], "units beyond chance"), (False, GREY, "other units")):
        heights = counts[beyond == which].sum(axis=0)
        figure.add_trace(
            go.Bar(
                x=result["lag_step"].to_numpy(),
                y=heights,
                marker={"color": colour, "line": {"width": 0}},
                name=f"{name} ({int(heights.sum()):,})",
                hovertemplate=f"lag %{{x:+d}}<br><b>%{{y:,d}}</b> events of {name}<extra></extra>",
            )
        )
    figure.update_layout(
        height=400,
        barmode="stack",
        bargap=0.12,
        margin={"t": 34, "b": 50, "l": 56, "r": 8},
        xaxis={
            "title": {"text": "steps after the nearest boundary, in running order", "standoff": 6},
            "zeroline": False,
        },
        yaxis={"title": {"text": "events", "standoff": 6}},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom"},
        dragmode="zoom",
    )
    return figure


def trigger_figure(result: xr.Dataset, most: int = MOST_LABELS) -> go.Figure:
    """How much more often a layer's units reset at a label than at all steps, the highest on top; ranges in order.

    Parameters
    ----------
    result
        What `triggers` returned, at one layer and direction.
    most
        Labels shown, those with the highest lift.
    """
    lift, p = (result[name].to_numpy() for name in ("layer_lift", "layer_p_adjusted"))
    known = np.nan_to_num(lift)
    order = np.arange(lift.size) if "low" in result.coords else np.argsort(-known, kind="stable")[:most]
    stands_out = p[order] < float(result.attrs["alpha"])
    units, steps = result["units"].to_numpy()[order], result["steps"].to_numpy()[order]
    names = [
        f"{literal(visible(name))}  ({count:,})"
        for name, count in zip(result["label"].values[order], steps, strict=True)
    ]
    figure = go.Figure(
        go.Bar(
            y=np.arange(order.size),
            x=known[order],
            orientation="h",
            name="lift",
            marker={"color": np.where(stands_out, COLOURS[0], GREY), "line": {"width": 0}},
            text=[f"{count:,} unit{'s' * (count != 1)}" if count else "" for count in units.tolist()],
            textposition="outside",
            cliponaxis=False,
            customdata=np.stack([p[order], steps], axis=1),
            hovertemplate=(
                "lift <b>%{x:.3f}</b> on %{customdata[1]:,d} steps<br>corrected p %{customdata[0]:.1e}<extra></extra>"
            ),
            showlegend=False,
        )
    )
    figure.add_vline(x=1, line={"color": GREY, "width": 1, "dash": "dot"})
    figure.update_layout(
        height=int(np.clip(90 + 22 * order.size, 190, 620)),
        margin={"t": 12, "b": 50, "l": 8, "r": 60},
        xaxis={
            "title": {"text": f"{long_name(result['layer_lift']).split(',')[0]}, all units", "standoff": 6},
            "range": [0, max(1.1, float(known[order].max(initial=0)) * 1.08)],
        },
        yaxis={
            "range": [order.size - 0.5, -0.5],
            "tickvals": list(range(order.size)),
            "ticktext": names,
            "automargin": True,
            "showgrid": False,
        },
        dragmode=False,
    )
    return figure
