"""The picture of Lyapunov exponents: the spectrum, largest first, with its standard errors."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from .curves import Results, labelled_results, places_of, style
from .places import MARKERS


def plot_lyapunov(
    results: Results, *, layer: int | None = None, direction: str | None = None, ax: Axes | None = None
) -> Axes:
    """Exponents in falling order with two standard errors; above the line at 0 differences grow, below they die out.

    Parameters
    ----------
    results
        What `lyapunov` returned, or a mapping from labels to several of them.
    layer, direction
        Coordinate values to show alone; by default each has points of its own.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        A set of points per result, layer and direction, labelled with the verdict; exponents of -inf are left out.

    Raises
    ------
    ValueError
        When a result is not one of `lyapunov`, or the layer or direction is not in it.
    """
    found = labelled_results(results, {"exponent", "standard_error", "verdict"}, "plot_lyapunov", "lyapunov")
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(6.4, 4.2), layout="constrained")
    ax.axhline(0, color="0.6", linewidth=1, zorder=1, label="_0")
    for place, (label, result) in enumerate(places_of(found, layer, direction)):
        exponent, error = (result[name].to_numpy() for name in ("exponent", "standard_error"))
        there = np.isfinite(exponent)
        colour, line = style(place)
        ax.errorbar(
            result["index"].to_numpy()[there],
            exponent[there],
            yerr=2 * np.nan_to_num(error[there]),
            fmt=MARKERS[place % len(MARKERS)] + line,
            color=colour,
            markersize=4,
            linewidth=1,
            capsize=2,
            label=f"{label}: {result['verdict'].item()}",
        )
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="exponent (from the largest)", ylabel="growth (nats per step)", title="Lyapunov exponents")
    ax.legend(loc="best", framealpha=0.9)
    return ax
