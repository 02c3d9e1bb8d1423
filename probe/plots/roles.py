"""The map of units: how long each remembers against how often it resets, coloured by its role."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from .places import COLOURS, MARKERS, chosen_places, places_title

ROLES = (
    "long-memory",
    "latch",
    "short-memory",
    "event detector",
    "counter",
    "clock",
    "pass-through",
    "stuck",
    "dead",
    "none",
)
GREYS = ("0.45", "0.6", "0.75", "0.85")  # of roles beyond the six colours
NAMED = 24  # units up to which each is named


def plot_roles(
    result: xr.Dataset, *, layer: int | None = None, direction: str | None = None, ax: Axes | None = None
) -> Axes:
    """One point per unit: its typical time scale across, resets per 1000 steps upwards, its confidence as its size.

    Units without a time scale, as a plain RNN's, and those with an infinite one stand at the left and right edge.

    Parameters
    ----------
    result
        What `roles` returned.
    layer, direction
        Coordinate values to show alone; by default the units of all layers and directions are pooled.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        One collection of points per role that occurs, labelled with it and how many units have it. Up to 24 units are
        named.

    Raises
    ------
    ValueError
        When the result is not one of `roles`, or `layer` or `direction` is not in it.
    """
    if not {"unit_role", "confidence", "evidence"} <= set(map(str, result.variables)):
        raise ValueError(f"plot_roles needs what roles returned; {sorted(map(str, result.variables))} came.")
    chosen = chosen_places(result, layer, direction).transpose("statistic", "layer", "direction", "unit", ...)
    scale, rate = (chosen["evidence"].sel(statistic=name).to_numpy().ravel() for name in ("time_scale", "reset_rate"))
    role, sure = (chosen[name].to_numpy().ravel() for name in ("unit_role", "confidence"))
    finite = scale[np.isfinite(scale) & (scale > 0)]
    left, right = (finite.min() / 2, finite.max() * 2) if finite.size else (0.5, 2.0)
    at = np.where(np.isnan(scale), left, np.clip(scale, left, right))
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(7.2, 4.4), layout="constrained")
    styles = [(COLOURS[i], MARKERS[i]) for i in range(6)] + [(grey, "X") for grey in GREYS]
    for name, (colour, marker) in zip(ROLES, styles, strict=True):
        mine = role == name
        if mine.any():
            ax.scatter(
                at[mine],
                rate[mine],
                s=10 + 60 * np.nan_to_num(sure[mine]) ** 2,
                marker=marker,
                color=colour,
                alpha=0.8,
                edgecolors="white",
                linewidths=0.5,
                label=f"{name} ({mine.sum()})",
            )
    if role.size <= NAMED:
        units = np.tile(chosen["unit"].to_numpy(), chosen.sizes["layer"] * chosen.sizes["direction"])
        for unit, x, y in zip(units, at, rate, strict=True):
            ax.annotate(str(unit), (x, y), (5, 3), textcoords="offset points", fontsize=7, color="0.3")
    ax.set(xscale="log", title=places_title("Roles", result, chosen))
    ax.set_xlabel("typical time scale (steps)")
    ax.set_ylabel("resets per 1000 steps")
    ax.margins(y=0.12)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), framealpha=0.9)
    return ax
