"""The demo's pictures. They draw what was found and compute nothing but counts."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .demo_findings import APART, GATE, SPACE, Best, apart
from .probe.plots.saturation import plot_saturation
from .probe.plots.signal import plot_signal
from .probe.plots.timeline import label_text
from .probe.plots.traces import plot_traces

OURS, OTHERS = "#D55E00", "#9A9A9A"  # spaces, any other character
LONGEST = 60  # characters of the text pictured


def figure_saturation(result: xr.Dataset) -> Figure:
    """The saturation scatter of every layer (columns) and direction (rows)."""
    layers, directions = result["layer"].to_numpy().tolist(), result["direction"].to_numpy().tolist()
    figure = Figure(figsize=(3.6 * len(layers), 3.9 * len(directions)), layout="constrained")
    grid = figure.subplots(len(directions), len(layers), squeeze=False, sharex=True, sharey=True)
    for row, direction in zip(grid, directions, strict=True):
        for ax, layer in zip(row, layers, strict=True):
            plot_saturation(result, layer=layer, direction=direction, ax=ax)
            ax.set(title=f"layer {layer}, {direction}", xlabel="", ylabel="")
            if ax is not grid[0, -1]:
                ax.get_legend().remove()
    low, high = result.attrs["low"], result.attrs["high"]
    figure.supxlabel(f"share of steps left-saturated (below {low:g})")
    figure.supylabel(f"share of steps right-saturated (above {high:g})")
    figure.suptitle(f"Saturation of gates: {result.sizes['unit']} units in every layer and direction")
    return figure


def figure_gates(recording: xr.Dataset, best: list[Best], sequence: int) -> Figure:
    """The forget gates of the best units of one layer and direction over one text."""
    figure = Figure(figsize=(13, 1.9 + 0.32 * len(best)), layout="constrained")
    draw_gates(figure.subplots(), recording, best, sequence)
    return figure


def draw_gates(ax: Axes, recording: xr.Dataset, best: list[Best], sequence: int) -> Axes:
    first = best[0]
    units = [unit.unit for unit in best]
    plot_signal(
        recording,
        GATE,
        layer=first.layer,
        direction=first.direction,
        sequence=sequence,
        units=units,
        labels="character",
        ax=ax,
    )
    ax.set_title(f"{GATE}: layer {first.layer}, {first.direction}, text {sequence}, units that tell spaces best")
    return ax


def figure_traces(recording: xr.Dataset, unit: Best, sequence: int) -> Figure:
    """The forget gate of one unit above its memory, over one text."""
    figure = Figure(figsize=(13, 4.6), layout="constrained")
    axes = figure.subplots(2, sharex=True)
    plot_traces(
        recording,
        unit.unit,
        layer=unit.layer,
        direction=unit.direction,
        sequence=sequence,
        labels="character",
        axes=axes,
    )
    axes[0].set_title(f"layer {unit.layer}, {unit.direction}, unit {unit.unit}, text {sequence}")
    return figure


def figure_characters(auc: xr.DataArray, layers: list[int] | None = None) -> Figure:
    """For every character the number of units whose forget gate shuts at it; spaces stand out."""
    shown = auc if layers is None else auc.sel(layer=layers)
    counts, directions = shown["layer"].to_numpy().tolist(), shown["direction"].to_numpy().tolist()
    figure = Figure(figsize=(13, 1.3 + 2.0 * len(counts)), layout="constrained")
    grid = figure.subplots(len(counts), len(directions), squeeze=False, sharex=True, sharey="row")
    for row, layer in zip(grid, counts, strict=True):
        for ax, direction in zip(row, directions, strict=True):
            draw_characters(ax, shown, layer, direction)
        row[0].set_ylabel("units")
    grid[0, 0].legend(loc="upper right", fontsize=8)
    for ax in grid[-1]:
        ax.set_xlabel("character, the most frequent first")
    figure.suptitle(f"At which character do forget gates shut (up) or open (down)? Units with an AUC above {APART:g}")
    return figure


def draw_characters(ax: Axes, auc: xr.DataArray, layer: int, direction: str) -> Axes:
    """Bars over characters: upwards units that shut at it, downwards units that open at it."""
    part = auc.sel(layer=[layer], direction=[direction])
    shuts, opens = (apart(part, opening=opening).to_numpy().ravel() for opening in (False, True))
    characters = part["character"].to_numpy().tolist()
    places = np.arange(len(characters))
    colours = [OURS if character == SPACE else OTHERS for character in characters]
    drawn = ax.bar(places, shuts, color=colours, width=0.75, label="_shuts")
    ax.bar(places, -opens, color=colours, width=0.75, alpha=0.45, label="_opens")
    ax.axhline(0, color="black", linewidth=0.8)
    for place, character in enumerate(characters):
        if character == SPACE:
            drawn[place].set_label("space")
            ax.annotate(str(shuts[place]), (place, shuts[place]), ha="center", va="bottom", color=OURS, weight="bold")
    others = np.array([character != SPACE for character in characters])
    ax.axhline(shuts[others].max(), color="0.4", linewidth=0.8, linestyle=(0, (4, 3)), label="highest of any other")
    ax.set_xticks(places, [label_text(character) for character in characters])
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    ax.margins(y=0.15)
    ax.set_title(f"layer {layer}, {direction}", fontsize=10)
    return ax


def pictured(recording: xr.Dataset) -> int:
    """The text to show: of those with odd numbers, on which units are judged, the longest one that fits."""
    lengths = recording["length"].to_numpy()
    odd = [number for number in range(1, len(lengths), 2) if lengths[number] <= LONGEST] or [0]
    return int(recording["sequence"][max(odd, key=lambda number: int(lengths[number]))])
