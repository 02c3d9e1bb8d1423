"""Events against boundaries: precision and recall of every unit, lags, and a table of the best."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .places import COLOURS, chosen_places, places_title

NAMED, ROWS = 3, 8  # units named in the scatter, rows of the table


class Row(NamedTuple):
    """One unit or block of the table."""

    name: str
    precision: float
    recall: float
    f1: float
    lag: float
    p: float


def plot_alignment(
    result: xr.Dataset,
    *,
    layer: int | None = None,
    direction: str | None = None,
    level: float = 0.05,
    ax: Axes | None = None,
) -> Axes:
    """Recall against precision, one point per unit, coloured where the agreement is no chance.

    Upper right: events at all boundaries and nowhere else. Lower right: only at boundaries, but not at all of them.
    Upper left: at all boundaries and elsewhere too. Lines are where F1 is 0.25, 0.5 and 0.75. The best three are named.

    Parameters
    ----------
    result
        What `alignment` returned.
    layer, direction
        Coordinate values to show alone; by default the units of all layers and directions are pooled.
    level
        Corrected p below which a point is coloured.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        Two collections of points, labelled with how many there are: within chance, and others.

    Raises
    ------
    ValueError
        When the result is not one of `alignment`, or what was asked for is not in it.
    """
    chosen = _checked(result, "plot_alignment", layer, direction)
    precision, recall, p = (chosen[name].to_numpy().ravel() for name in ("precision", "recall", "p_adjusted"))
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(5.4, 5.4), layout="constrained")
    for value in (0.25, 0.5, 0.75):
        x = np.linspace(value / (2 - value) + 1e-6, 1, 100)
        ax.plot(x, value * x / (2 * x - value), color="0.85", linewidth=1, zorder=1, label=f"_F1 {value}")
    significant = p < level
    for which, colour, name in ((False, "0.6", "within chance"), (True, COLOURS[0], "beyond chance")):
        part = (significant == which) & np.isfinite(precision)
        ax.scatter(
            precision[part],
            recall[part],
            s=24,
            color=colour,
            alpha=0.7,
            edgecolors="white",
            linewidths=0.4,
            label=f"{name} ({int(part.sum())})",
            zorder=2 + which,
        )
    for row in table_of(chosen, NAMED, level):
        shift = (-5, 4) if row.precision > 0.75 else (5, 4)
        side = "right" if row.precision > 0.75 else "left"
        ax.annotate(row.name, (row.precision, row.recall), shift, textcoords="offset points", fontsize=8, ha=side)
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.05), aspect="equal")
    ax.set(xlabel="precision (share of events near a boundary)", ylabel="recall (share of boundaries near an event)")
    steps = int(result.attrs["tolerance"])
    near = f"at most {steps} step{'s' if steps > 1 else ''} away" if steps else "at the very step"
    ax.set_title(places_title(f"Resets at boundaries, {near}", result, chosen))
    ax.legend(loc="upper left", framealpha=0.9, fontsize="small")
    return ax


def plot_lags(
    result: xr.Dataset,
    *,
    layer: int | None = None,
    direction: str | None = None,
    level: float = 0.05,
    ax: Axes | None = None,
) -> Axes:
    """Histogram of the steps from the nearest boundary to each event: of units beyond chance, and of the others.

    Parameters
    ----------
    result
        What `alignment` returned.
    layer, direction
        Coordinate values to show alone; by default all are pooled.
    level
        Corrected p below which a unit is beyond chance.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        Two sets of bars, one upon the other.

    Raises
    ------
    ValueError
        When the result is not one of `alignment`, or what was asked for is not in it.
    """
    chosen = _checked(result, "plot_lags", layer, direction)
    counts, steps = chosen["lags"].to_numpy(), result["lag_step"].to_numpy()
    significant = chosen["p_adjusted"].to_numpy() < level
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(5.4, 3.6), layout="constrained")
    below = np.zeros(steps.size)
    for which, colour, name in ((True, COLOURS[0], "units beyond chance"), (False, "0.75", "other units")):
        heights = counts[significant == which].sum(axis=0)
        ax.bar(steps, heights, bottom=below, width=0.9, color=colour, label=f"{name} ({int(heights.sum())} events)")
        below = below + heights
    ax.set(xlabel="steps after the nearest boundary, in running order", ylabel="events")
    ax.set_title(places_title("Lag of resets", result, chosen))
    ax.legend(fontsize="small", frameon=False)
    return ax


def figure_alignment(
    result: xr.Dataset, *, layer: int | None = None, direction: str | None = None, level: float = 0.05
) -> Figure:
    """Precision and recall of all units, their lags, and a table of the best units and blocks.

    Parameters are those of `plot_alignment`. The table lists the units, and the blocks where there are any, with the
    highest F1 among those beyond chance.

    Returns
    -------
    Figure
        Three axes: scatter, histogram, table.
    """
    from matplotlib import pyplot

    chosen = _checked(result, "figure_alignment", layer, direction)
    figure = pyplot.figure(figsize=(11.5, 6.2), layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=(1, 1.05), height_ratios=(1, 1.1))
    left, upper, lower = (figure.add_subplot(place) for place in (grid[:, 0], grid[0, 1], grid[1, 1]))
    plot_alignment(result, layer=layer, direction=direction, level=level, ax=left)
    plot_lags(result, layer=layer, direction=direction, level=level, ax=upper)
    lower.axis("off")
    rows = [*table_of(chosen, ROWS, level, blocks=True), *table_of(chosen, ROWS, level)][:ROWS]
    cells = [[row.name, *(f"{v:.2f}" for v in row[1:4]), f"{row.lag:+.0f}", f"{row.p:.1e}"] for row in rows]
    columns = ["", "precision", "recall", "F1", "lag", "corrected p"]
    table = lower.table(cells or [["none beyond chance", *[""] * 5]], colLabels=columns, loc="upper center")
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    table.auto_set_column_width(range(6))
    return figure


def table_of(chosen: xr.Dataset, most: int, level: float, *, blocks: bool = False) -> list[Row]:
    """The units, or blocks, beyond chance with the highest F1."""
    prefix, dim = ("block_", "memory_block") if blocks else ("", "unit")
    if blocks and "memory_block" not in chosen.dims:
        return []
    f1 = np.where(chosen[f"{prefix}p_adjusted"].to_numpy() < level, chosen[f"{prefix}f1"].to_numpy(), -1.0)
    rows = []
    for place in np.argsort(-f1, axis=None, kind="stable")[:most]:
        at = np.unravel_index(place, f1.shape)
        if f1[at] < 0:
            break
        layer, direction, one = (
            chosen[name].to_numpy()[i] for name, i in zip(("layer", "direction", dim), at, strict=True)
        )
        where = f"layer {layer} {direction} " if chosen.sizes["layer"] * chosen.sizes["direction"] > 1 else ""
        numbers = (
            float(chosen[prefix + name].to_numpy()[at]) for name in ("precision", "recall", "f1", "lag", "p_adjusted")
        )
        rows.append(Row(f"{where}{'block' if blocks else 'unit'} {one}", *numbers))
    return rows


def _checked(result: xr.Dataset, asked: str, layer: int | None, direction: str | None) -> xr.Dataset:
    if not {"precision", "lags", "p_adjusted"} <= set(map(str, result.variables)):
        raise ValueError(f"{asked} needs what alignment returned; {sorted(map(str, result.variables))} came.")
    return chosen_places(result, layer, direction)
