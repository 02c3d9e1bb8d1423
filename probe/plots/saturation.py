"""The saturation scatter: for every unit of every gate, how often it is at either end of its range."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from ...signals import GATE_ROLES
from .places import COLOURS, MARKERS, chosen_places, places_title


def plot_saturation(
    result: xr.Dataset, *, layer: int | None = None, direction: str | None = None, ax: Axes | None = None
) -> Axes:
    """Scatter of the shares of left- and right-saturated steps, one point per unit and gate.

    A gate at (0, 1) is always near its upper bound, at (1, 0) always near its lower one, at (0, 0) always in between;
    on the line x + y = 1 it is always at one end or the other. Nothing can lie beyond the line, so the legend is there.

    Parameters
    ----------
    result
        What `saturation` returned.
    layer, direction
        Coordinate values to show alone; by default the units of all layers and directions are pooled.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        One collection of points per gate, labelled with its name, in the order of `signal`, `layer`, `direction`,
        `unit`; units without data are left out.

    Raises
    ------
    ValueError
        When `layer` or `direction` is not in the result, or no gate is.

    References
    ----------
    A. Karpathy, J. Johnson, L. Fei-Fei (2015). Visualizing and Understanding Recurrent Networks. arXiv 1506.02078.
    """
    if not {"left", "right", "role", "signal"} <= set(map(str, result.variables)):
        raise ValueError(f"plot_saturation needs what saturation returned; {sorted(map(str, result.variables))} came.")
    chosen = chosen_places(result, layer, direction)
    gates = [
        str(name)
        for name, role in zip(chosen["signal"].to_numpy(), chosen["role"].to_numpy(), strict=True)
        if role in GATE_ROLES
    ]
    if not gates:
        raise ValueError(
            f"The result must hold at least one gate; it holds {chosen['signal'].to_numpy().tolist()}. "
            "Record a cell with gates."
        )
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(5.6, 5.6), layout="constrained")
    ax.plot([0, 1], [1, 0], color="0.6", linewidth=1, zorder=1, label="_x + y = 1")
    for place, gate in enumerate(gates):
        shares = chosen.sel(signal=gate)
        left, right = shares["left"].to_numpy().ravel(), shares["right"].to_numpy().ravel()
        there = np.isfinite(left)
        ax.scatter(
            left[there],
            right[there],
            s=float(np.clip(2500 / max(1, left.size), 9, 28)),
            marker=MARKERS[place % len(MARKERS)],
            color=COLOURS[place % len(COLOURS)],
            alpha=0.6,
            edgecolors="white",
            linewidths=0.4,
            label=gate,
            zorder=2 + place,
        )
    ax.set(
        xlim=(-0.03, 1.03),
        ylim=(-0.03, 1.03),
        aspect="equal",
        title=places_title("Saturation of gates", result, chosen),
    )
    ax.set_xlabel(f"share of steps left-saturated (below {result.attrs.get('low', np.nan):g} of the range)")
    ax.set_ylabel(f"share of steps right-saturated (above {result.attrs.get('high', np.nan):g} of the range)")
    ax.legend(loc="upper right", framealpha=0.9)
    return ax
