"""Pictures of gradient flow: decay by horizon, what it is without a path, shares of paths in time, memory by unit."""

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes

from .curves import Results, labelled_results, limit_powers, places_of, style

LEVELS = {"1 %": -2.0, "float32": float(np.log10(np.finfo(np.float32).eps))}
PATHS = {
    "direct": "#0072B2",
    "via forget": "#E69F00",
    "via update": "#E69F00",
    "via input": "#56B4E9",
    "via reset": "#56B4E9",
    "via candidate": "#009E73",
    "recurrent": "#009E73",
    "via output": "#CC79A7",
}
"""Colours of paths; what stands at the same place in two kinds of cells has the same one."""


def plot_gradient_flow(
    results: Results,
    *,
    block: str | None = None,
    norm: str = "frobenius",
    layer: int | None = None,
    direction: str | None = None,
    lowest: float = -16.0,
    ax: Axes | None = None,
) -> Axes:
    """How much of a change of the state is left k steps later: median and 10-90 % band, in powers of ten over k.

    Every curve is relative to its norm at horizon 0, so cells of different kinds and widths can be compared. A straight
    line is a constant loss per step. Dotted lines mark 1 % and what float32 resolves beside 1.

    Parameters
    ----------
    results
        What `gradient_flow` returned, or a mapping from labels to several of them.
    block
        Of the state; by default the one that each result judges: the memory's total where there is one, else the whole.
    norm
        `frobenius` or `spectral` (only at the horizons at which it was taken).
    layer, direction
        Coordinate values to show alone; by default each is a curve of its own.
    lowest
        The lowest power of ten that is shown.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        A line and a band per result, layer and direction, labelled.

    Raises
    ------
    ValueError
        When a result is not one of `gradient_flow`, or the block, norm, layer or direction is not in it.
    """
    found = labelled_results(results, {"state_norm", "norm_at_zero"}, "plot_gradient_flow", "gradient_flow")
    ax = ax or _axes((7.2, 4.4))
    curves, blocks = [], set()
    for place, (label, result) in enumerate(places_of(found, layer, direction)):
        chosen = block or str(result.attrs.get("judged_block", "whole"))
        for dim, value in {"block": chosen, "norm": norm}.items():
            there = result[dim].to_numpy().tolist()
            if value not in there:
                raise ValueError(f"{dim} must be one of {there}; {value!r} came.")
        blocks.add(chosen)
        at = {"norm": result["norm"].to_numpy().tolist().index(norm), "block": _place(result, "block", chosen)}
        relative = result["state_norm"].isel(at).to_numpy() - _origin(result, at)
        horizon = result["horizon"].to_numpy()
        there = ~np.isnan(relative).all(axis=0)
        low, middle, high = (np.where(np.isfinite(v), v, np.nan) for v in relative[:, there])
        colour, line = style(place)
        ax.plot(horizon[there], middle, line, color=colour, linewidth=1.8, label=label, zorder=3)
        ax.fill_between(horizon[there], low, high, color=colour, alpha=0.18, linewidth=0, label=f"_{label}")
        curves += [low, middle, high]
    _levels(ax, lowest, curves)
    limit_powers(ax, curves, lowest)
    ax.set(xlabel="horizon (steps back)", title="How much of a change is left")
    ax.set_xlim(left=0)
    ax.set_ylabel(f"norm of d(state)/d(state k steps before)\n{' or '.join(sorted(blocks))}, relative to 0 steps")
    ax.legend(loc="best", framealpha=0.9)
    return ax


def plot_knockout(
    result: xr.Dataset,
    *,
    layer: int | None = None,
    direction: str | None = None,
    lowest: float = -16.0,
    ax: Axes | None = None,
) -> Axes:
    """Which path carries the gradient: the norm with each path cut at every step, relative to that with none cut.

    A curve at 1 is a path that the gradient does without; one that falls carries it; one above 1 works against the
    others.

    Parameters
    ----------
    result
        What `gradient_flow` returned.
    layer, direction
        Of which; by default the first.
    lowest
        The lowest power of ten that is shown.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        A line per path.

    Raises
    ------
    ValueError
        When the result has no paths, or not the layer or direction.
    """
    found = labelled_results(result, {"knockout_norm", "knockout_reference"}, "plot_knockout", "gradient_flow")
    label, chosen = _first_place(found, layer, direction)
    ax = ax or _axes((7.2, 4.4))
    middle = chosen.sel(quantile=0.5)
    ratio = middle["knockout_norm"] - middle["knockout_reference"]
    ax.axhline(0, color="0.6", linewidth=1, zorder=1, label="_1")
    curves = []
    for place, path in enumerate(chosen["path"].to_numpy().tolist()):
        values = ratio.isel(path=place).to_numpy()
        curves.append(np.where(np.isfinite(values), values, np.nan))
        line = style(place)[1]
        ax.plot(
            chosen["horizon"],
            curves[-1],
            line,
            color=PATHS[path],
            linewidth=1.8,
            label=f"without {path.removeprefix('via ')} path",
        )
    limit_powers(ax, curves, lowest)
    ax.set(xlabel="horizon (steps back)", title=f"Which path carries the gradient: {label}")
    ax.set_xlim(left=0)
    ax.set_ylabel("norm with the path cut / norm with none cut")
    ax.legend(loc="best", framealpha=0.9)
    return ax


def plot_path_share(
    result: xr.Dataset,
    *,
    sequence: int | None = None,
    layer: int | None = None,
    direction: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Shares of the paths in every step of one sequence: stacked up where they help, down where they work against it.

    Parameters
    ----------
    result
        What `gradient_flow` returned.
    sequence, layer, direction
        Of which; by default the first.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        An area per path; those above 0 less those below add to 1 in every step.

    Raises
    ------
    ValueError
        When the result has no path shares, or not the sequence, layer or direction.
    """
    found = labelled_results(result, {"path_share"}, "plot_path_share", "gradient_flow")
    label, chosen = _first_place(found, layer, direction)
    sequences = result["sequence"].to_numpy().tolist()
    sequence = sequences[0] if sequence is None else sequence
    if sequence not in sequences:
        raise ValueError(f"sequence must be one of {sequences}; {sequence!r} came.")
    shares = chosen["path_share"].isel(sequence=sequences.index(sequence)).transpose("path", "time").to_numpy()
    there = ~np.isnan(shares).any(axis=0)
    if not there.any():
        raise ValueError(f"sequence {sequence} must have a step with known shares; it has none. Choose a longer one.")
    ax = ax or _axes((8.4, 3.4))
    time, shares = result["time"].to_numpy()[there], shares[:, there]
    above, below = np.zeros(time.size), np.zeros(time.size)
    for path, values in zip(chosen["path"].to_numpy().tolist(), shares, strict=True):
        up, down = np.maximum(values, 0), np.minimum(values, 0)
        edges: dict[str, Any] = {"step": "mid", "color": PATHS[path], "linewidth": 0}
        ax.fill_between(time, above, above + up, label=path, **edges)
        ax.fill_between(time, below, below + down, label=f"_{path}", **edges)
        above, below = above + up, below + down
    for value in (0, 1):
        ax.axhline(value, color="black", linewidth=0.7, zorder=3)
    room = 0.03 * (above.max() - below.min())
    ax.set(xlim=(time[0] - 0.5, time[-1] + 0.5), ylim=(min(0, below.min()) - room, above.max() + room))
    ax.set(xlabel="time (step)", ylabel="share of the step's Jacobian")
    ax.set_title(f"By which path a change of the memory goes on: {label}, sequence {sequence}")
    ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1), borderaxespad=0)
    return ax


def plot_cell_path(
    result: xr.Dataset,
    *,
    layer: int | None = None,
    direction: str | None = None,
    lowest: float = -8.0,
    ordered: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """What every unit's own memory keeps, as a heatmap of units over horizons: the median product of the retention.

    Parameters
    ----------
    result
        What `gradient_flow` returned.
    layer, direction
        Of which; by default the first.
    lowest
        Power of ten at and below which everything has the last colour.
    ordered
        Whether units stand by how much they keep, those that keep longest on top; else by number.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        A mesh of units by horizons on a logarithmic axis, and the line at which a unit has kept half.

    Raises
    ------
    ValueError
        When the cell has no retention, or the layer or direction is not in the result.
    """
    found = labelled_results(result, {"cell_path"}, "plot_cell_path", "gradient_flow")
    label, chosen = _first_place(found, layer, direction)
    values = chosen["cell_path"].sel(quantile=0.5).transpose("unit", "horizon").to_numpy()
    horizon, units = chosen["horizon"].to_numpy(), chosen["unit"].to_numpy()
    shown = np.clip(np.where(np.isneginf(values), lowest, values), lowest, None)
    order = np.argsort(np.nansum(shown, axis=1), kind="stable") if ordered else np.arange(len(units))[::-1]
    ax = ax or _axes((7.2, 4.6))
    edges = np.concatenate([[horizon[0] * 0.75], np.sqrt(horizon[1:] * horizon[:-1]), [horizon[-1] * 1.15]])
    rows = np.arange(len(units) + 1) - 0.5
    highest = float(np.nanmax(shown, initial=0.0))
    mesh = ax.pcolormesh(edges, rows, shown[order], cmap="viridis", vmin=lowest, vmax=highest, rasterized=True)
    half = np.log10(0.5)
    kept = [horizon[row > half].max(initial=0) for row in values[order]]
    ax.step([*kept, kept[-1]], rows, where="post", color="black", linewidth=1.2, label="half is kept")
    ax.set(xscale="log", xlim=(edges[0], edges[-1]), ylim=(rows[0], rows[-1]))
    ax.set(xlabel="horizon (steps back)", title=f"What each unit's memory keeps: {label}")
    _name_units(ax, units[order], ordered)
    bar = ax.figure.colorbar(mesh, ax=ax, label="product of the retention, median")
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"$10^{{{value:g}}}$" if value else "1")
    ax.legend(loc="lower left", framealpha=0.6)
    return ax


def _name_units(ax: Axes, units: npt.NDArray[np.int64], ordered: bool) -> None:
    if len(units) <= 32:
        ax.set_yticks(range(len(units)), [str(unit) for unit in units], fontsize=7)
        ax.set_ylabel("unit")
    else:
        ax.set_yticks([])
        ax.set_ylabel(f"{len(units)} units, " + ("those that keep longest on top" if ordered else "by number"))


def _first_place(found: dict[str, xr.Dataset], layer: int | None, direction: str | None) -> tuple[str, xr.Dataset]:
    (label, result), *_ = places_of(found, layer, direction)
    return label, result


def _place(result: xr.Dataset, dim: str, value: str) -> int:
    place: int = result[dim].to_numpy().tolist().index(value)
    return place


def _origin(result: xr.Dataset, at: dict[str, int]) -> float:
    """The norm at horizon 0; 0 where a block is zero there, so that it stands as it is."""
    origin = float(result["norm_at_zero"].isel(at))
    return origin if np.isfinite(origin) else 0.0


def _levels(ax: Axes, lowest: float, curves: list[npt.NDArray[np.float64]]) -> None:
    """Dotted lines at the levels that curves come near."""
    reached = min((float(np.nanmin(curve)) for curve in curves if np.isfinite(curve).any()), default=0.0)
    for name, level in LEVELS.items():
        if level > max(lowest, reached - 1):
            ax.axhline(level, color="0.45", linewidth=0.9, linestyle=":", zorder=1, label=f"_{name}")
            said: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
            ax.annotate(name, (1, level), xytext=(3, 0), va="center", fontsize=8, color="0.35", **said)


def _axes(size: tuple[float, float]) -> Axes:
    from matplotlib import pyplot

    _, ax = pyplot.subplots(figsize=size, layout="constrained")
    return ax
