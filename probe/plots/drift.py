"""The drift picture: the late trend of every unit's memory with its interval."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from .places import COLOURS, MARKERS, chosen_places, places_title

VERDICTS = {"growing": 1, "oscillating": 3, "settled": 0}  # and their places in COLOURS
MARKED = 40  # units from which on only the outermost are named


def plot_drift(
    result: xr.Dataset, *, layer: int | None = None, direction: str | None = None, ax: Axes | None = None
) -> Axes:
    """The late trend of |memory| of every unit, from the smallest to the largest, with its confidence interval.

    A unit whose interval holds the line at 0 has settled; units far above it grow for as long as the sequence lasts.

    Parameters
    ----------
    result
        What `drift` returned.
    layer, direction
        Coordinate values to show alone; by default the units of all layers and directions are pooled.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        One set of points with error bars per verdict, labelled with it and how many units have it; units without data
        are left out. Up to 40 units are named along the axis.

    Raises
    ------
    ValueError
        When the result is not one of `drift`, or `layer` or `direction` is not in it, or no unit has data.
    """
    if not {"slope", "slope_low", "slope_high", "verdict"} <= set(map(str, result.variables)):
        raise ValueError(f"plot_drift needs what drift returned; {sorted(map(str, result.variables))} came.")
    chosen = chosen_places(result, layer, direction)
    slope, low, high, verdict = (
        chosen[name].transpose("layer", "direction", "unit").to_numpy().ravel()
        for name in ("slope", "slope_low", "slope_high", "verdict")
    )
    order = np.argsort(slope)[: np.isfinite(slope).sum()]
    if not order.size:
        raise ValueError("The result must hold a unit with a trend; all have too few steps. Record longer sequences.")
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
    ax.axhline(0, color="0.6", linewidth=1, zorder=1, label="_0")
    for word, colour in VERDICTS.items():
        rank = np.flatnonzero(verdict[order] == word)
        if rank.size:
            at = order[rank]
            bars = np.stack([slope[at] - low[at], high[at] - slope[at]])
            ax.errorbar(
                rank,
                slope[at],
                bars,
                fmt=MARKERS[colour],
                color=COLOURS[colour],
                markersize=float(np.clip(200 / order.size, 2, 5)),
                elinewidth=0.8,
                label=f"{word} ({rank.size})",
                zorder=2 + (word == "growing"),
            )
    _name_units(ax, chosen, order)
    confidence = float(result.attrs.get("confidence", np.nan))
    ax.set_ylabel(f"late trend of |memory| (1/step)\nwith {confidence:.0%} interval")
    ax.set_title(places_title("Drift", result, chosen))
    ax.legend(loc="upper left", framealpha=0.9)
    return ax


def _name_units(ax: Axes, chosen: xr.Dataset, order: np.ndarray) -> None:
    names = [str(unit) for unit in chosen["unit"].to_numpy()] * (chosen.sizes["layer"] * chosen.sizes["direction"])
    pooled = len(names) > chosen.sizes["unit"]
    if len(order) <= MARKED and not pooled:
        upright = len(order) <= MARKED // 2
        ax.set_xticks(range(len(order)), [names[unit] for unit in order], rotation=0 if upright else 90)
        ax.set_xlabel("unit, in order of trend")
    else:
        ax.set_xlabel("units in order of trend")
