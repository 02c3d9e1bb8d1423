"""What sets resets off: the lift of every label for a layer, and how many units have it as their trigger."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from .places import COLOURS
from .timeline import label_text, run_title

MOST = 24  # labels shown


def plot_triggers(
    result: xr.Dataset, *, layer: int = 0, direction: str = "forward", most: int = MOST, ax: Axes | None = None
) -> Axes:
    """Bars of how much more often a layer's units reset at a label than at all steps, the highest on top.

    A bar is coloured where the label stands out from every other one. Beside it stands how many units have it as their
    own trigger. The line at 1 is the rate at all steps. Ranges of a number keep their order.

    Parameters
    ----------
    result
        What `triggers` returned.
    layer, direction
        Coordinate values to show.
    most
        Labels shown, those with the highest lift.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        One bar per label, from top to bottom.

    Raises
    ------
    ValueError
        When the result is not one of `triggers`, or what was asked for is not in it.
    """
    if not {"layer_lift", "units"} <= set(map(str, result.variables)):
        raise ValueError(f"plot_triggers needs what triggers returned; {sorted(map(str, result.variables))} came.")
    for dim, value in {"layer": layer, "direction": direction}.items():
        choices = result[dim].to_numpy().tolist()
        if value not in choices:
            raise ValueError(f"{dim} must be one of {choices}; {value!r} came.")
    here = result.sel(layer=layer, direction=direction)
    lift = np.nan_to_num(here["layer_lift"].to_numpy())
    order = np.arange(lift.size) if "low" in result.coords else np.argsort(-lift, kind="stable")[:most]
    if not order.size:
        raise ValueError("At least one label must have been tested; none was. Lower at_least, or give longer data.")
    if ax is None:
        from matplotlib import pyplot

        _, ax = pyplot.subplots(figsize=(6.0, float(np.clip(1.4 + 0.24 * order.size, 2.6, 8))), layout="constrained")
    stands_out = here["layer_p_adjusted"].to_numpy() < float(result.attrs["alpha"])
    colours = [COLOURS[0] if stands_out[place] else "0.75" for place in order]
    ax.barh(np.arange(order.size), lift[order], color=colours, height=0.75)
    ax.axvline(1, color="0.3", linewidth=0.8, label="_rate at all steps")
    for row, place in enumerate(order):
        units = int(here["units"].to_numpy()[place])
        if units:
            text = f"{units} unit{'s' if units > 1 else ''}"
            ax.annotate(text, (lift[place], row), (4, 0), textcoords="offset points", va="center", fontsize=8)
    names = [label_text(name) for name in here["label"].to_numpy()[order]]
    steps = here["steps"].to_numpy()[order]
    ax.set_yticks(np.arange(order.size), [f"{name}  ({count})" for name, count in zip(names, steps, strict=True)])
    for tick in ax.get_yticklabels():
        tick.set_parse_math(False)
    ax.set(ylim=(order.size - 0.5, -0.5), xlabel="rate of resets over the rate at all steps")
    ax.set_ylabel(f"{result.attrs.get('labels', 'label')} (steps)")
    where = run_title(result, here.assign_coords(sequence=0)["units"]).removesuffix(", sequence 0")
    found = here["layer_trigger"].item()
    verdict = f"{label_text(found)} stands out from all others" if found else "no label stands out from all others"
    ax.set_title(f"What sets resets off: {where}\n{verdict}")
    return ax
