"""The raster of resets: every unit a row, every event a mark, against the boundaries of the data."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation

from ...signals import time_title
from .timeline import draw_boundaries, draw_labels, run_title

LEGEND_BELOW = 36  # points below the axes, under the label of the time axis
MARKS = {False: "|", True: "x"}  # reset to zero, overwrite


def plot_resets(
    events: xr.Dataset,
    *,
    layer: int = 0,
    direction: str = "forward",
    sequence: int = 0,
    kind: str = "reset",
    labels: str | None = None,
    boundaries: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Raster of one sequence: a mark at the onset of every event, darker the more of the memory it throws away.

    Upright strokes are resets towards zero, crosses overwrites. Lines mark the first step of each segment, where the
    recording has the label `boundary`; in the backward direction, which enters a segment at its last step, marks that
    belong to it stand to the left of the line.

    Parameters
    ----------
    events
        What `resets` returned, or some of its events.
    layer, direction, sequence
        Coordinate values of the run to show.
    kind
        Which events: `"reset"` or `"fresh_start"`.
    labels
        Name of a label over (sequence, time) to write above the picture; only as many as can be read are written.
    boundaries
        Whether to draw a line before each first step of a segment.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        One collection of points (onset, unit's row) for resets and one for overwrites, with their depth as colour.

    Raises
    ------
    ValueError
        When the result is not one of `resets`, or what was asked for is not in it.
    """
    some, run = _chosen(events, {"kind": kind, "layer": layer, "direction": direction, "sequence": sequence})
    units = events["unit"].to_numpy().tolist()
    if ax is None:
        from matplotlib import pyplot

        size = np.clip(2.5 + 0.16 * run.size, 6.5, 13), np.clip(2.0 + 0.05 * len(units), 3.0, 7)
        _, ax = pyplot.subplots(figsize=tuple(map(float, size)), layout="constrained")
    ax.set(xlim=(-0.5, max(run.size, 1) - 0.5), ylim=(len(units) - 0.5, -0.5))
    row = np.array([units.index(unit) for unit in some["event_unit"].to_numpy().tolist()], dtype=int)
    names = {False: "reset to zero", True: "overwrite"} if kind == "reset" else {False: kind.replace("_", " ")}
    overwrite = some["overwrite"].to_numpy()
    for which, name in names.items():
        part = overwrite == which
        points = ax.scatter(
            some["onset"].to_numpy()[part],
            row[part],
            c=some["depth"].to_numpy()[part],
            s=float(np.clip(4000 / max(1, len(units)), 12, 60)),
            marker=MARKS[which],
            cmap="viridis_r",
            vmin=0,
            vmax=1,
            linewidths=1.2,
            label=f"{name} ({int(part.sum())})",
            zorder=4,
        )
    ax.figure.colorbar(points, ax=ax, pad=0.02).set_label("depth (share thrown away)")
    if boundaries:
        draw_boundaries(ax, run, over=False)
    if labels is not None:
        draw_labels(ax, run, labels)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(units) <= 16:
        ax.set_yticks(range(len(units)), [str(unit) for unit in units])
    heading = "Resets" if kind == "reset" else "Fresh starts"
    ax.set(xlabel=time_title(events.attrs), ylabel="unit", title=f"{heading}: {run_title(events, run)}")
    below = ax.transAxes + ScaledTranslation(0, -LEGEND_BELOW / 72, ax.figure.dpi_scale_trans)
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=below, ncols=3, frameon=False, fontsize="small"
    )
    return ax


def _chosen(events: xr.Dataset, wanted: dict[str, int | str]) -> tuple[xr.Dataset, xr.DataArray]:
    """The events of one run and how many units have one at each of its steps, without padding."""
    if not {"together", "onset", "event_unit"} <= set(map(str, events.variables)):
        raise ValueError(f"plot_resets needs what resets returned; {sorted(map(str, events.variables))} came.")
    here = np.ones(events.sizes["event"], dtype=bool)
    run = events["together"]
    for dim, value in wanted.items():
        choices = events[dim].to_numpy().tolist()
        if value not in choices:
            raise ValueError(f"{dim} must be one of {choices}; {value!r} came.")
        here &= events[f"event_{dim}"].to_numpy() == value
        run = run.isel({dim: choices.index(value)})
    return events.isel(event=here), run.isel(time=slice(0, int(run["length"])))
