"""Gate and memory around the onset of an event, one line per unit."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from .places import COLOURS, chosen_places, places_title

MOST_NAMED = 6  # lines that have a colour and a name of their own
PANELS = {"gate": "usual_gate", "memory_size": "usual_size"}


def plot_event_average(
    result: xr.Dataset,
    *,
    layer: int | None = None,
    direction: str | None = None,
    units: npt.ArrayLike | None = None,
    axes: Sequence[Axes] | None = None,
) -> npt.NDArray[np.object_]:
    """Mean gate and mean size of the memory around the onset of each unit's events, one line per unit.

    Dashed lines of the same colour are the unit's means over all steps. Up to six units have colours; more are grey.

    Parameters
    ----------
    result
        What `event_average` returned.
    layer, direction
        Coordinate values to show alone; by default all layers and directions together.
    units
        Units to show (coordinate values); by default all that have events.
    axes
        Two Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    numpy.ndarray of Axes
        The gate's and the memory's, over `lag`.

    Raises
    ------
    ValueError
        When the result is not one of `event_average`, or what was asked for is not in it or has no events.
    """
    chosen = _chosen(result, layer, direction, units)
    lines = [place for place in np.ndindex(chosen["events"].shape) if chosen["events"].to_numpy()[place] > 0]
    if not lines:
        raise ValueError(f"At least one unit must have an event; none has. {result.attrs.get('reason', '')}".strip())
    if axes is None:
        from matplotlib import pyplot

        _, axes = pyplot.subplots(2, 1, figsize=(6.5, 5.6), sharex=True, layout="constrained")
    if len(axes) != 2:
        raise ValueError(f"axes must be two, for the gate and the memory; {len(axes)} came.")
    coloured = len(lines) <= MOST_NAMED
    for ax, (name, usual) in zip(axes, PANELS.items(), strict=True):
        for number, place in enumerate(lines):
            colour = COLOURS[number] if coloured else "0.45"
            style = {"color": colour, "linewidth": 1.5 if coloured else 0.7, "alpha": 1.0 if coloured else 0.5}
            ax.plot(result["lag"], chosen[name].to_numpy()[place], label=_name(chosen, place), **style)
            if coloured:
                level = chosen[usual].to_numpy()[place]
                ax.axhline(level, color=colour, linewidth=0.8, linestyle=(0, (4, 3)), label="_usual")
        ax.axvline(0, color="0.7", linewidth=0.8, zorder=0, label="_onset")
        ax.set_ylabel(str(result[name].attrs["long_name"]))
    axes[0].set_title(places_title("Around the onset of an event", result, chosen))
    axes[-1].set_xlabel("steps from the onset, in running order")
    axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    if coloured:
        axes[0].legend(fontsize="small", frameon=False)
    return np.array([*axes], dtype=object)


def _name(chosen: xr.Dataset, place: tuple[int, ...]) -> str:
    layer, direction, unit = (
        chosen[dim].to_numpy()[at] for dim, at in zip(("layer", "direction", "unit"), place, strict=True)
    )
    parts = [f"layer {layer}"] if chosen.sizes["layer"] > 1 else []
    parts += [str(direction)] if chosen.sizes["direction"] > 1 else []
    return ", ".join([*parts, f"unit {unit} ({int(chosen['events'].to_numpy()[place])} events)"])


def _chosen(result: xr.Dataset, layer: int | None, direction: str | None, units: npt.ArrayLike | None) -> xr.Dataset:
    if not {"memory_size", "usual_gate", "lag"} <= set(map(str, result.variables)):
        raise ValueError(
            f"plot_event_average needs what event_average returned; {sorted(map(str, result.variables))} came."
        )
    chosen = chosen_places(result, layer, direction)
    if units is not None:
        wanted, choices = np.atleast_1d(np.asarray(units)).tolist(), result["unit"].to_numpy().tolist()
        unknown = [unit for unit in wanted if unit not in choices]
        if unknown:
            raise ValueError(f"units must be among {min(choices)} to {max(choices)}; {unknown} came.")
        chosen = chosen.isel(unit=[choices.index(unit) for unit in wanted])
    return chosen
