"""The picture of time scales: what a unit's gate implies against what its memory and its Jacobian say."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from .places import COLOURS, MARKERS, chosen_places, places_title

ESTIMATES = {"autocorrelation": "autocorrelation of the memory", "jacobian": "Jacobian"}


def plot_timescales(
    result: xr.Dataset, *, layer: int | None = None, direction: str | None = None, ax: Axes | None = None
) -> Axes:
    """Scatter on logarithmic axes: the time scale of the gate across, the other two estimates upwards.

    Between the dashed lines two estimates agree within a factor 2. Units with a heavy tail, which keep for long and
    then forget at once, have a dark edge.

    Parameters
    ----------
    result
        What `timescales` returned.
    layer, direction
        Coordinate values to show alone; by default the units of all layers and directions are pooled.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        One collection of points per estimate, labelled with it and how many units it could be had for.

    Raises
    ------
    ValueError
        When the result is not one of `timescales`, `layer` or `direction` is not in it, or no unit has two finite
        estimates.
    """
    if not {"gate", "heavy_tail", *ESTIMATES} <= set(map(str, result.variables)):
        raise ValueError(f"plot_timescales needs what timescales returned; {sorted(map(str, result.variables))} came.")
    chosen = chosen_places(result, layer, direction)
    gate, heavy = (chosen[name].to_numpy().ravel() for name in ("gate", "heavy_tail"))
    others = {name: chosen[name].to_numpy().ravel() for name in ESTIMATES}
    there = {name: np.isfinite(gate) & np.isfinite(value) & (gate > 0) & (value > 0) for name, value in others.items()}
    if not any(known.any() for known in there.values()):
        raise ValueError(
            "The result must hold a unit with two finite time scales; it has none. Record longer sequences, of a cell "
            "with gates."
        )
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(5.6, 5.6), layout="constrained")
    for place, (name, known) in enumerate(there.items()):
        edges = ["black" if unit else "white" for unit in heavy[known]]
        ax.scatter(
            gate[known],
            others[name][known],
            s=float(np.clip(2500 / max(1, known.sum()), 9, 28)),
            marker=MARKERS[place],
            color=COLOURS[place],
            alpha=0.75,
            edgecolors=edges,
            linewidths=0.6,
            label=f"{ESTIMATES[name]} ({known.sum()} of {gate.size})",
            zorder=3 - place,
        )
    drawn = np.concatenate([np.concatenate([gate[known], others[name][known]]) for name, known in there.items()])
    ends = np.array([drawn.min() / 1.5, drawn.max() * 1.5])
    for factor, style in ((1.0, "-"), (2.0, "--"), (0.5, "--")):
        ax.plot(ends, factor * ends, style, color="0.6", linewidth=1, zorder=1, label="_equal")
    ax.set(
        xscale="log",
        yscale="log",
        xlim=ends,
        ylim=ends,
        aspect="equal",
        title=places_title("Time scales", result, chosen),
    )
    ax.set_xlabel("time scale of the gate (steps)")
    ax.set_ylabel("time scale by another estimate (steps)")
    ax.legend(loc="upper left", framealpha=0.9)
    return ax
