"""The specialisation matrix: which kind of error the loss of each block or unit adds to."""

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes

from .places import chosen_places

WRITTEN = 32  # rows up to which numbers, roles and verdicts are written
TALL = 14  # rows up to which role and verdict stand one below the other
DARK = 0.6  # share of the largest colour from which text is white
SIGNS = {"confirmed": "confirmed", "contradicted": "contradicted", "not needed": "not needed", "no claim": ""}


def plot_role_check(
    result: xr.Dataset, *, layer: int | None = None, direction: str | None = None, ax: Axes | None = None
) -> Axes:
    """Matrix of block (or unit) by long and short lag: by how much its loss lets each error grow.

    Where corrected p is below `alpha` of the check the number is bold. Beside each row stand its role and the verdict
    on it.

    Parameters
    ----------
    result
        What `role_check` returned.
    layer, direction
        Coordinate values to show alone; by default those of all layers and directions stand one below the other.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        Its only image holds the growths (row, lag). Up to 32 rows have numbers, role and verdict written.

    Raises
    ------
    ValueError
        When the result is not one of `role_check`, or `layer` or `direction` is not in it.
    """
    if result.attrs.get("measure") != "role_check" or "specialisation" not in result:
        raise ValueError(f"plot_role_check needs what role_check returned; {sorted(map(str, result.variables))} came.")
    chosen = chosen_places(result, layer, direction)
    dim = "memory_block" if "memory_block" in chosen.dims else "unit"
    flat = chosen.stack(row=("layer", "direction", dim), create_index=False)
    grown = flat["specialisation"].transpose("row", "lag").to_numpy()
    if ax is None:
        from matplotlib import pyplot

        height = float(np.clip(1.5 + (0.42 if len(grown) <= TALL else 0.26) * len(grown), 2.8, 9.8))
        _, ax = pyplot.subplots(figsize=(6.4, height), layout="constrained")
    limit = float(np.nanmax(np.abs(grown), initial=0.0)) or 1.0
    image = ax.imshow(grown, aspect="auto", cmap=colormaps["RdBu_r"], vmin=-limit, vmax=limit, interpolation="nearest")
    ax.figure.colorbar(image, ax=ax, pad=0.02).set_label("growth of the error without it")
    ax.set_xticks([0, 1], [f"{name} lag" for name in flat["lag"].to_numpy()])
    _rows(ax, flat, dim, len(grown))
    if len(grown) <= WRITTEN:
        sure = flat["p_adjusted"].transpose("row", "lag").to_numpy() < float(result.attrs["alpha"])
        for (row, lag), value in np.ndenumerate(grown):
            ax.text(
                lag,
                row,
                _number(float(value), limit),
                ha="center",
                va="center",
                weight="bold" if sure[row, lag] else "normal",
                color="white" if abs(value) > DARK * limit else "black",
            )
    kind = "blocks" if dim == "memory_block" else "units"
    ax.set_title(_title(chosen, kind))
    return ax


def _number(value: float, limit: float) -> str:
    """A growth beside the largest: two decimals of shares, two digits of what is much smaller."""
    if limit < 0.05 and abs(value) >= 0.01 * limit:
        return f"{value:+.2g}"
    return f"{value:+.2f}" if limit >= 0.05 and abs(value) >= 0.005 else "0"


def _title(chosen: xr.Dataset, kind: str) -> str:
    parts = [f"{chosen.attrs.get('module', '')} ({chosen.attrs.get('cell', '')})"]
    for name in ("layer", "direction"):
        values = chosen[name].to_numpy().tolist()
        only = f"layer {values[0]}" if name == "layer" else str(values[0])
        parts.append(only if len(values) == 1 else f"all {name}s")
    return f"What the loss of {kind} adds to the error\n" + ", ".join(parts)


def _rows(ax: Axes, flat: xr.Dataset, dim: str, count: int) -> None:
    several = [name for name in ("layer", "direction") if len(np.unique(flat[name].to_numpy().astype(str))) > 1]
    what = "block" if dim == "memory_block" else "unit"
    if count > WRITTEN:
        ax.set_ylabel(f"{what}s")
        return
    labels = []
    for row in range(count):
        one = flat.isel(row=row)
        place = " ".join([*(str(one[name].item()) for name in several), f"{what} {one[dim].item()}"])
        said = SIGNS.get(str(one["verdict"].item()), "")
        between = "\n" if count <= TALL else ", "
        labels.append(f"{place}: {one['role'].item()}" + (between + said if said else ""))
    ax.set_yticks(range(count), labels)
