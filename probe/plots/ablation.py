"""The map of effects: what a model loses without each unit, block or gate."""

import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from .places import COLOURS, MARKERS, chosen_places, require_dataset

SHOWN = 40  # rows of a chart of points, the largest effects; more are left out and counted
EVERY_ROW = 24  # rows and columns up to which each has its own name
ROBUST = 99.5  # percentile of |effect| that the colours reach
UNKNOWN = "0.75"  # colour of effects that are not there
KINDS = {"unit": "unit", "memory_block": "block", "gate": "gate"}


def plot_ablation(
    result: xr.Dataset,
    *,
    metric: str | None = None,
    layer: int | None = None,
    direction: str | None = None,
    alpha: float = 0.05,
    ax: Axes | None = None,
) -> Axes:
    """Effects with their intervals, the largest at the top; a map of unit by time or unit by gate where there is one.

    Along one dimension (units, blocks or gates) each has a point and the bar of its interval, for every metric in a
    colour of its own; it is filled where the corrected p is below `alpha`. With `time`, or with units and gates, it is
    a heatmap of one metric, white at no effect; a dot marks what has a corrected p below `alpha`.

    Parameters
    ----------
    result
        What `ablation` returned.
    metric
        Name of the metric to show alone. Charts of points show all by default, maps the first.
    layer, direction
        Coordinate values to show alone. By default a chart shows all, a map the first.
    alpha
        Largest corrected p that is marked.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        Points: one collection per metric, labelled with its name, in the order of the rows. A map: its only image
        holds the effects (row, column).

    Raises
    ------
    ValueError
        When the result is not one of `ablation`, or `metric`, `layer` or `direction` is not in it.
    """
    require_dataset(result, "plot_ablation", "ablation")
    if result.attrs.get("measure") != "ablation" or "effect" not in result:
        raise ValueError(f"plot_ablation needs what ablation returned; {sorted(map(str, result.variables))} came.")
    names = result["metric"].to_numpy().tolist()
    if metric is not None and metric not in names:
        raise ValueError(f"metric must be one of {', '.join(names)}; {metric!r} came.")
    inner = [str(dim) for dim in result["effect"].dims if dim not in ("metric", "layer", "direction")]
    if not inner or not {"metric", "layer", "direction"} <= set(result["effect"].dims) or not result["effect"].size:
        raise ValueError(
            f"plot_ablation needs effects over metric, layer, direction and what was taken out; "
            f"{dict(result['effect'].sizes)} came. Select with a list, [0]."
        )
    chosen = chosen_places(result if metric is None else result.sel(metric=[metric]), layer, direction)
    if len(inner) == 1:
        return _points(chosen, inner[0], alpha, ax)
    chosen = chosen.isel(metric=0, layer=slice(0, 1), direction=slice(0, 1))
    return _map(chosen, inner, alpha, ax)


def _points(chosen: xr.Dataset, dim: str, alpha: float, ax: Axes | None) -> Axes:
    """One row per unit, block or gate of every layer and direction."""
    flat = chosen.stack(row=("layer", "direction", dim), create_index=False)
    effect = flat["effect"].transpose("metric", "row").to_numpy()
    size = np.abs(effect / np.maximum(np.abs(effect).max(axis=1, keepdims=True), 1e-30)).max(axis=0)
    order = np.argsort(-size, kind="stable")[:SHOWN]
    order = order[np.argsort(-effect[0, order], kind="stable")]
    names = _names(flat, dim, order)
    metrics = flat["metric"].to_numpy().tolist()
    if ax is None:
        from matplotlib import pyplot

        height = float(np.clip(1.4 + 0.24 * len(order), 2.6, 11))
        _, ax = pyplot.subplots(figsize=(6.4, height), layout="constrained")
    ax.axvline(0, color="0.6", linewidth=1, zorder=1)
    low, high, p = (
        flat[name].transpose("metric", "row").to_numpy() for name in ("effect_low", "effect_high", "p_adjusted")
    )
    for place, name in enumerate(metrics):
        colour, marker = COLOURS[place % len(COLOURS)], MARKERS[place % len(MARKERS)]
        at = np.arange(len(order)) + 0.3 * (place - (len(metrics) - 1) / 2) / max(1, len(metrics) - 1)
        ax.hlines(at, low[place, order], high[place, order], color=colour, linewidth=1.4, zorder=2)
        sure = p[place, order] < alpha
        faces = [colour if one else "white" for one in sure]
        ax.scatter(
            effect[place, order],
            at,
            s=26,
            marker=marker,
            c=faces,
            edgecolors=colour,
            zorder=3,
            label=name,
            linewidths=1.2,
        )
    ax.set_yticks(range(len(order)), names)
    ax.set_ylim(len(order) - 0.4, -0.6)
    ax.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4))
    ax.set_xlabel("effect: metric without it, less that of the intact model")
    ax.set_ylabel(_place(chosen, dim))
    left = effect.shape[1] - len(order)
    more = f"\nthe {len(order)} largest effects; {left} smaller ones are not shown" if left else ""
    ax.set_title(_title(chosen) + more)
    if len(metrics) > 1:
        ax.legend(framealpha=0.9, title="metric")
    return ax


def _map(chosen: xr.Dataset, inner: list[str], alpha: float, ax: Axes | None) -> Axes:
    """Rows are units, blocks or gates; columns stretches of time or gates."""
    columns = "time" if "time" in inner else "gate"
    rest = [dim for dim in inner if dim != columns]
    flat = chosen.squeeze(["layer", "direction"]).stack(row=rest, create_index=False)
    effect = flat["effect"].transpose("row", columns).to_numpy()
    if ax is None:
        from matplotlib import pyplot

        size = np.clip(3.2 + 0.5 * effect.shape[1], 6.4, 12), np.clip(1.8 + 0.14 * effect.shape[0], 3.0, 8)
        _, ax = pyplot.subplots(figsize=tuple(map(float, size)), layout="constrained")
    finite = np.abs(effect[np.isfinite(effect)])
    limit = float(np.percentile(finite, ROBUST)) if finite.size else 0.0
    limit = limit or float(finite.max(initial=0.0)) or 1.0
    image = ax.imshow(
        np.ma.masked_invalid(effect),
        aspect="auto",
        cmap=colormaps["RdBu_r"].with_extremes(bad=UNKNOWN),
        vmin=-limit,
        vmax=limit,
        interpolation="nearest",
    )
    beyond = {(False, False): "neither", (True, False): "min", (False, True): "max", (True, True): "both"}
    slack = limit * (1 + 1e-9)
    ends = beyond[bool((effect < -slack).any()), bool((effect > slack).any())]
    ax.figure.colorbar(image, ax=ax, extend=ends, pad=0.02).set_label(f"effect on {chosen['metric'].item()}")
    sure = flat["p_adjusted"].transpose("row", columns).to_numpy() < alpha
    if effect.size <= 4000:
        up, across = np.nonzero(sure)
        ax.scatter(across, up, s=6, color="black", zorder=3, label=f"_corrected p < {alpha:g}")
    _ticks(ax, flat, columns, rest)
    ax.set_title(_title(chosen) + (f"\ndots: corrected p < {alpha:g}" if sure.any() else ""))
    return ax


def _ticks(ax: Axes, flat: xr.Dataset, columns: str, rest: list[str]) -> None:
    rows = [
        " ".join(str(name).removesuffix("_gate") for name in entry)
        for entry in zip(*(flat[dim].to_numpy() for dim in rest), strict=True)
    ]
    if len(rows) <= EVERY_ROW:
        ax.set_yticks(range(len(rows)), rows)
    else:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylabel(" of ".join(KINDS.get(dim, dim) for dim in rest))
    names = [str(name).removesuffix("_gate") for name in flat[columns].to_numpy()]
    every = max(1, -(-len(names) // EVERY_ROW))
    ax.set_xticks(range(0, len(names), every), names[::every])
    ax.set_xlabel("held in steps from" if columns == "time" else "gate")


def _names(flat: xr.Dataset, dim: str, order: npt.NDArray[np.int64]) -> list[str]:
    """Names of the rows: the unit, block or gate, with layer and direction where there are several."""
    several = [name for name in ("layer", "direction") if len(np.unique(flat[name].to_numpy().astype(str))) > 1]
    parts = [[str(value).removesuffix("_gate") for value in flat[name].to_numpy()[order]] for name in (*several, dim)]
    return [" ".join(entry) for entry in zip(*parts, strict=True)]


def _place(chosen: xr.Dataset, dim: str) -> str:
    several = [name for name in ("layer", "direction") if chosen.sizes[name] > 1]
    return ", ".join([*several, KINDS.get(dim, dim)])


def _title(chosen: xr.Dataset) -> str:
    attrs = chosen.attrs
    over = str(attrs.get("over", "")).replace("unit_gate", "gate of each unit")
    held = {"zero": "0", "one": "1", "mean": "its mean", "resample": "values of another sequence"}
    parts = [f"{attrs.get('module', '')} ({attrs.get('cell', '')})"]
    for name in ("layer", "direction"):
        values = chosen[name].to_numpy().tolist()
        only = f"layer {values[0]}" if name == "layer" else str(values[0])
        parts.append(only if len(values) == 1 else f"all {name}s")
    return f"Each {over} held at {held.get(str(attrs.get('to', '')), '?')}\n" + ", ".join(parts)
