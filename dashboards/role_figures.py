"""Plotly figures of roles: the map of units, and how many units have each role.

Results of `roles` in, `go.Figure` out; each is cut to one layer and direction, whose dimensions are gone.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import plotly.graph_objects as go
import xarray as xr
from numpy.typing import NDArray

from ..probe.analyzers.predicates import ROLES
from .figures import COLOURS

NO_ROLE = "none"
STYLES = {
    "long-memory": (COLOURS[0], "circle"),
    "latch": (COLOURS[1], "triangle-up"),
    "short-memory": (COLOURS[2], "square"),
    "event detector": (COLOURS[3], "diamond"),
    "counter": (COLOURS[4], "triangle-down"),
    "clock": (COLOURS[5], "cross"),
    "pass-through": ("#8a8a8a", "x"),
    "stuck": ("#8a8a8a", "star"),
    "dead": ("#8a8a8a", "x-open"),
    NO_ROLE: ("#8a8a8a", "circle-open"),
}
"""Colour and symbol of each role, as in `plot_roles`; told apart without colour too."""
NAMED = 24  # units up to which each is named in the map
TOGETHER = 3  # of them that are named at one spot


class Spots(NamedTuple):
    """Where units stand in the map."""

    scale: NDArray[np.float64]  # NaN and infinite at the edges
    rate: NDArray[np.float64]
    edges: tuple[float, float]


def spots_of(result: xr.Dataset) -> Spots:
    """Time scale and reset rate of every unit; those without a time scale stand left, infinite ones right."""
    scale, rate = (result["evidence"].sel(statistic=name).to_numpy() for name in ("time_scale", "reset_rate"))
    finite = scale[np.isfinite(scale) & (scale > 0)]
    left, right = (float(finite.min()) / 2, float(finite.max()) * 2) if finite.size else (0.5, 2.0)
    return Spots(np.where(np.isnan(scale), left, np.clip(scale, left, right)), rate, (left, right))


def role_map_figure(result: xr.Dataset, chosen: Sequence[int] = ()) -> go.Figure:
    """A point per unit: time scale across, resets per 1000 steps upwards, coloured by role, sized by confidence.

    Parameters
    ----------
    result
        What `roles` returned, at one layer and direction.
    chosen
        Units drawn with a ring.
    """
    spots, figure = spots_of(result), go.Figure()
    scale = result["evidence"].sel(statistic="time_scale").to_numpy()
    role, sure = result["unit_role"].to_numpy(), np.nan_to_num(result["confidence"].to_numpy())
    units = result["unit"].to_numpy()
    blocks = result["block"].to_numpy() if "block" in result.coords else None
    names, size = spot_names(spots, units.tolist()), 4 if units.size > 64 else 6
    for name, (colour, symbol) in STYLES.items():
        mine = role == name
        if not mine.any():
            continue
        ring = np.isin(units[mine], list(chosen))
        said = [f"{value:,.1f} steps" if np.isfinite(value) else _said(value) for value in scale[mine]]
        where = [f" · block {block}" for block in blocks[mine]] if blocks is not None else [""] * int(mine.sum())
        figure.add_trace(
            go.Scatter(
                x=spots.scale[mine],
                y=spots.rate[mine],
                mode="markers+text" if units.size <= NAMED else "markers",
                text=[names.get(unit, "") for unit in units[mine].tolist()],
                textposition="top right",
                textfont={"size": 11},
                marker={
                    "color": colour,
                    "symbol": symbol,
                    "size": size + (size + 1) * sure[mine] ** 2 + 3 * ring,
                    "opacity": 0.85,
                    "line": {"width": np.where(ring, 2.5, 0.5), "color": np.where(ring, "#888888", colour)},
                },
                name=f"{name} ({int(mine.sum()):,})",
                customdata=np.stack([units[mine].astype(object), sure[mine].astype(object), said, where], axis=1),
                hovertemplate=(
                    f"unit %{{customdata[0]}}%{{customdata[3]}} · <b>{name}</b><br>in %{{customdata[1]:.0%}} of the "
                    "samples<br>time scale %{customdata[2]} · %{y:.1f} resets per 1000 steps<extra></extra>"
                ),
            )
        )
    low, high = np.log10(spots.edges[0]), np.log10(spots.edges[1])
    top = float(np.nanmax(spots.rate, initial=1.0))
    room = 0.06 * (high - low)
    figure.update_layout(
        height=440,
        margin={"t": 12, "b": 90, "l": 56, "r": 8},
        xaxis={
            "type": "log",
            "range": [low - room, high + room],
            "title": {"text": "typical time scale (steps)", "standoff": 6},
            **round_ticks(*spots.edges),
        },
        yaxis={"range": [-0.06 * top, 1.12 * top], "title": {"text": "resets per 1000 steps", "standoff": 6}},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": -0.16, "yanchor": "top", "itemsizing": "constant"},
        showlegend=True,
        hovermode="closest",
        dragmode="zoom",
    )
    return figure


def spot_names(spots: Spots, units: list[int]) -> dict[int, str]:
    """What stands beside a unit: the units at its spot, by the last of them, so that no number lies on another.

    >>> spot_names(Spots(np.array([2.0, 2.0, 8.0]), np.array([5.0, 5.0, 0.0]), (1.0, 9.0)), [4, 5, 6])
    {5: '4, 5', 6: '6'}
    """
    width, top = np.log(spots.edges[1] / spots.edges[0]), max(1.0, float(np.nanmax(spots.rate, initial=1.0)))
    at = [(round(50 * np.log(x) / width), round(25 * y / top)) for x, y in zip(spots.scale, spots.rate, strict=True)]
    groups: dict[tuple[int, int], list[int]] = {}
    for unit, place in zip(units, at, strict=True):
        groups.setdefault(place, []).append(unit)
    texts = {group[-1]: ", ".join(map(str, group[:TOGETHER])) for group in groups.values()}
    return {
        unit: texts[unit] + (" …" if len(group) > TOGETHER else "")
        for unit, group in zip(texts, groups.values(), strict=True)
    }


def round_ticks(low: float, high: float) -> dict[str, list[Any]]:
    """Ticks of a logarithmic axis at 1, 2 and 5 times powers of ten, or at the powers alone where there are many.

    >>> round_ticks(0.4, 6)
    {'tickvals': [0.5, 1.0, 2.0, 5.0], 'ticktext': ['0.5', '1', '2', '5']}
    """
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    factors = (1, 2, 5) if len(powers) < 6 else (1,)
    found = [float(f"{factor}e{power}") for power in powers for factor in factors]
    values = [value for value in found if low <= value <= high]
    return {"tickvals": values, "ticktext": [f"{value:,g}" for value in values]}


def _said(value: float) -> str:
    return "infinite" if value == np.inf else "none"


def role_counts(result: xr.Dataset) -> dict[str, int]:
    """How many units have each role, most frequent first; of equally frequent ones the order of the predicates."""
    words = result["unit_role"].to_numpy().tolist()
    counts = {role: words.count(role) for role in (*ROLES, NO_ROLE)}
    return {role: count for role, count in sorted(counts.items(), key=lambda item: -item[1]) if count}
