"""What pictures of curves over horizons share: which results are drawn, how many powers of ten are shown."""

from collections.abc import Iterator, Mapping
from typing import cast

import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from .places import COLOURS

Results = xr.Dataset | Mapping[str, xr.Dataset]
LINES = ("-", "--", "-.", ":")


def labelled_results(results: Results, needed: set[str], plot: str, measure: str) -> dict[str, xr.Dataset]:
    """Results by label; a single one is labelled by its module and cell."""
    if isinstance(results, xr.Dataset):
        name, cell = (str(results.attrs.get(key, "")) for key in ("module", "cell"))
        found = {f"{name} ({cell})" if name and cell else name or cell or measure: results}
    elif isinstance(results, Mapping) and results:
        found = dict(cast(Mapping[str, xr.Dataset], results))
    else:
        raise ValueError(f"{plot} needs what {measure} returned, or a mapping from labels to it; {results!r:.60} came.")
    for label, result in found.items():
        if not isinstance(result, xr.Dataset) or not needed <= set(map(str, result.variables)):
            came = sorted(map(str, result.variables)) if isinstance(result, xr.Dataset) else type(result).__name__
            raise ValueError(f"{plot} needs what {measure} returned; {label!r} is {came}.")
    return found


def places_of(
    results: Mapping[str, xr.Dataset], layer: int | None, direction: str | None
) -> Iterator[tuple[str, xr.Dataset]]:
    """Each layer and direction of each result, or those asked for, with a label that tells them apart."""
    for label, result in results.items():
        result = result.expand_dims([dim for dim in ("layer", "direction") if dim not in result.dims])
        choices = {"layer": layer, "direction": direction}
        for dim, value in choices.items():
            there = result[dim].to_numpy().tolist()
            if value is not None and value not in there:
                raise ValueError(f"{dim} must be one of {there}; {value!r} came.")
        layers = result["layer"].to_numpy().tolist() if layer is None else [layer]
        directions = result["direction"].to_numpy().tolist() if direction is None else [direction]
        for this in layers:
            for way in directions:
                said = [f"layer {this}"] if result.sizes["layer"] > 1 else []
                said += [way] if result.sizes["direction"] > 1 else []
                found = result.isel(
                    layer=result["layer"].to_numpy().tolist().index(this),
                    direction=result["direction"].to_numpy().tolist().index(way),
                )
                yield ", ".join([label, *said]), found


def style(place: int) -> tuple[str, str]:
    """Colour and line of the n-th curve; both change, so that curves are told apart without colour too."""
    return COLOURS[place % len(COLOURS)], LINES[(place // len(COLOURS) + place) % len(LINES)]


def limit_powers(ax: Axes, curves: list[npt.NDArray[np.float64]], lowest: float) -> None:
    """Show every power of ten that is reached, but none below `lowest`."""
    finite = np.concatenate([[0.0], *(curve[np.isfinite(curve)] for curve in curves)])
    bottom = max(lowest, float(finite.min()))
    room = 0.04 * max(1.0, float(finite.max()) - bottom)
    ax.set_ylim(bottom - room, float(finite.max()) + room)
    ax.yaxis.set_major_formatter(lambda value, _: f"$10^{{{value:g}}}$" if value else "1")
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
