"""One signal of one sequence as a heatmap."""

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ...signals import time_title
from .timeline import chosen_units, draw_boundaries, draw_labels, one_run, run_title

ROBUST = 99.0  # percentile of |value| that the colours of an unbounded signal reach
EVERY_UNIT = 16  # up to so many units each has its own tick
NO_NUMBER = "0.75"  # colour of values that are not finite


def plot_signal(
    recording: xr.Dataset,
    signal: str,
    *,
    layer: int = 0,
    direction: str = "forward",
    sequence: int = 0,
    labels: str | None = None,
    boundaries: bool = True,
    units: npt.ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Heatmap of a signal, time from left to right, one row per unit, without padding.

    Signals that cannot be negative (gates) have a sequential colour map over their bounds; all others a diverging one
    that is white at 0 and reaches the bounds or, where there are none, the 99th percentile of the absolute values
    (the colour bar's pointed ends say that values beyond exist). Values that are not finite are grey.

    Parameters
    ----------
    recording
        A recording, in memory or opened from disk; only the run shown is read.
    signal
        Name of a recorded signal, for example `"forget_gate"`.
    layer, direction, sequence
        Coordinate values of the run to show.
    labels
        Name of a label over (sequence, time) to write above the picture, step by step from left to right also where
        the script runs from right to left. Only as many as can be read are written.
    boundaries
        Whether to draw a line before each first step of a segment (label `boundary`), where the recording marks any.
    units
        Units to show (coordinate values), in this order; all by default.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        Its only image holds the values (unit, time).

    Raises
    ------
    ValueError
        When the signal, layer, direction, sequence, label or a unit is not in the recording.
    """
    run = chosen_units(one_run(recording, signal, layer, direction, sequence), units)
    values = run.to_numpy().astype(np.float64).T
    if ax is None:
        from matplotlib import pyplot

        size = np.clip(2.5 + 0.16 * values.shape[1], 6.5, 13), np.clip(1.8 + 0.05 * values.shape[0], 3.2, 7)
        _, ax = pyplot.subplots(figsize=tuple(map(float, size)), layout="constrained")
    time = run["time"].to_numpy()
    colours, low, high = _colours(values, run.attrs)
    image = ax.imshow(
        np.ma.masked_invalid(values),
        aspect="auto",
        extent=(time[0] - 0.5, time[-1] + 0.5, values.shape[0] - 0.5, -0.5),
        cmap=colormaps[colours].with_extremes(bad=NO_NUMBER),
        vmin=low,
        vmax=high,
    )
    _draw_units(ax, run)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel=time_title(recording.attrs), title=f"{signal}: {run_title(recording, run)}")
    below, beyond = bool((values < low).any()), bool((values > high).any())
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
    bar = ax.figure.colorbar(image, ax=ax, extend=extend[below, beyond], pad=0.02)
    symbol = run.attrs.get("symbol", "")
    bar.set_label(f"{signal} ({symbol})" if symbol else signal)
    if boundaries:
        draw_boundaries(ax, run, over=True)
    if labels is not None:
        draw_labels(ax, run, labels)
    return ax


def _colours(values: npt.NDArray[np.float64], attrs: dict[str, Any]) -> tuple[str, float, float]:
    """Colour map, lowest and highest value from the signal's bounds, or from the values where it has none."""
    if "lower" in attrs and "upper" in attrs:
        lower, upper = float(attrs["lower"]), float(attrs["upper"])
        if lower >= 0:
            return "viridis", lower, upper
        limit = max(abs(lower), abs(upper))
    else:
        finite = np.abs(values[np.isfinite(values)])
        limit = float(np.percentile(finite, ROBUST)) if finite.size else 0.0
    limit = limit or 1.0
    return "RdBu_r", -limit, limit


def _draw_units(ax: Axes, run: xr.DataArray) -> None:
    dim = str(run.dims[-1])
    names = run[dim].to_numpy().tolist()
    ax.set_ylabel(dim)
    if len(names) <= EVERY_UNIT:
        ax.set_yticks(range(len(names)), [str(name) for name in names])
        return
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))

    def name(position: float, _: object) -> str:
        at = round(position)
        return str(names[at]) if 0 <= at < len(names) else ""

    ax.yaxis.set_major_formatter(FuncFormatter(name))
