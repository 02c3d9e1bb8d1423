"""The selectivity picture: for every class of a label, how well each unit tells it from the others."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from .places import COLOURS, chosen_places, places_title
from .timeline import label_text

WIDTH = 0.35  # half the width of a class's strip
NAMED = 2  # units named per class


def plot_selectivity(
    result: xr.Dataset,
    *,
    signal: str | None = None,
    lag: int | None = None,
    layer: int | None = None,
    direction: str | None = None,
    level: float = 0.05,
    ax: Axes | None = None,
) -> Axes:
    """One point per unit and class: the area under the ROC curve (or correlation), coloured where it is no chance.

    Units lie side by side within a class, in their own order. The two units farthest from chance are named.

    Parameters
    ----------
    result
        What `selectivity` returned.
    signal, lag
        Which to show; by default the first of each.
    layer, direction
        Coordinate values to show alone; by default the units of all layers and directions are pooled.
    level
        Corrected p below which a point is coloured.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        Two collections of points, labelled with how many there are: units within chance, and others.

    Raises
    ------
    ValueError
        When the result is not one of `selectivity`, or what was asked for is not in it.
    """
    measure = next((name for name in ("auc", "correlation") if name in result.data_vars), None)
    if measure is None or "p_corrected" not in result:
        raise ValueError(
            f"plot_selectivity needs what selectivity returned; {sorted(map(str, result.variables))} came."
        )
    chosen = chosen_places(result, layer, direction)
    for dim, wanted in {"signal": signal, "lag": lag}.items():
        choices = result[dim].to_numpy().tolist()
        if wanted is not None and wanted not in choices:
            raise ValueError(f"{dim} must be one of {choices}; {wanted!r} came.")
        chosen = chosen.isel({dim: 0 if wanted is None else choices.index(wanted)})
    label = str(result.attrs.get("labels", "label"))
    if "class" not in chosen.dims:
        chosen = chosen.expand_dims({"class": np.array([label], dtype=object)})
    dims = ("class", "layer", "direction", "unit")
    value, p = (
        chosen[name].transpose(*dims).to_numpy().reshape(chosen.sizes["class"], -1) for name in (measure, "p_corrected")
    )
    if ax is None:
        from matplotlib import pyplot

        width = float(np.clip(1.2 + 0.55 * len(value), 4.2, 12))
        _, ax = pyplot.subplots(figsize=(width, 4.2), layout="constrained")
    at = np.arange(len(value))[:, None] + np.linspace(-WIDTH, WIDTH, value.shape[1] + 2)[1:-1]
    chance = 0.5 if measure == "auc" else 0.0
    ax.axhline(chance, color="0.6", linewidth=1, zorder=1, label="_chance")
    found = p < level
    size = float(np.clip(3000 / max(1, value.shape[1]), 5, 24))
    for points, colour, text in (
        (~found & np.isfinite(value), "0.65", "within chance"),
        (found, COLOURS[0], "selective"),
    ):
        ax.scatter(at[points], value[points], s=size, color=colour, linewidths=0, label=f"{text} ({points.sum()})")
    _name_best(ax, chosen, at, np.where(found, value, np.nan), chance)
    names = [label_text(name) for name in chosen["class"].to_numpy()]
    ax.set_xticks(range(len(names)), names)
    where = f"{chosen['signal'].item()}, label {label}"
    steps = int(chosen["lag"])
    ax.set_xlabel(where + (f" {steps} steps before" if steps > 0 else f" {-steps} steps after" if steps < 0 else ""))
    ax.set_ylabel("AUC: this class against the others" if measure == "auc" else "correlation with the label")
    ax.set_ylim((-0.04, 1.16) if measure == "auc" else (-1.08, 1.35))  # room for the legend
    ax.set_title(places_title("Selectivity", result, chosen))
    ax.legend(loc="upper center", ncols=2, framealpha=0.9, fontsize="small")
    return ax


def _name_best(ax: Axes, chosen: xr.Dataset, at: np.ndarray, value: np.ndarray, chance: float) -> None:
    """Write the unit beside the points farthest from chance."""
    places = chosen.sizes["layer"] * chosen.sizes["direction"]
    units = np.tile(chosen["unit"].to_numpy(), places)
    for across, up in zip(at, value, strict=True):
        order = np.argsort(-np.abs(np.nan_to_num(up, nan=chance) - chance))[:NAMED]
        for unit in order[np.isfinite(up[order])]:
            ax.annotate(
                str(units[unit]), (across[unit], up[unit]), (3, 2), textcoords="offset points", fontsize=7, color="0.2"
            )
