"""The attribution picture: how much of a target each step accounts for, and by which features."""

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from .places import require_dataset
from .timeline import draw_labels, label_text

COLOURS = "RdBu_r"  # diverging, told apart with any colour vision; red raises the target, blue lowers it
STRONG = 0.88  # where on it the colour of bars is taken
NO_NUMBER = "0.75"
ROBUST = 99.5  # percentile of the absolute values that the colours reach
EVERY = 16  # up to so many features each has its own tick


def plot_attribution(
    result: xr.Dataset, *, sequence: int = 0, labels: str | None = None, ax: Axes | None = None
) -> Axes:
    """Bars of what every step of a sequence accounts for, over time: red raises the target, blue lowers it.

    The title says what the target is and what it is at the baseline, and by how much the bars miss the difference
    where the attribution is marked as incomplete. Padding is left out.

    Parameters
    ----------
    result
        What `attribution` returned.
    sequence
        Coordinate value of the sequence to show.
    labels
        Name of a label over (sequence, time), such as the tokens, to write above the picture.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        One bar per step.

    Raises
    ------
    ValueError
        When the result is not one of `attribution` over time, or the sequence or label is not in it.
    """
    run = one_sequence(result, sequence)
    if ax is None:
        from matplotlib import pyplot

        width = float(np.clip(2.2 + 0.22 * run.sizes["time"], 5.5, 13))
        _, ax = pyplot.subplots(figsize=(width, 3.2), layout="constrained")
    time, height = run["time"].to_numpy(), run["by_step"].to_numpy().astype(float)
    up, down = (colormaps[COLOURS](place) for place in (STRONG, 1 - STRONG))
    ax.bar(time, height, width=0.85, color=[up if value >= 0 else down for value in height])
    ax.axhline(0, color="0.3", linewidth=0.8, label="_zero")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    what = "change of the target" if "completeness_delta" in run else "attribution"
    ax.set(xlabel="time (step)", ylabel=what, xlim=(time[0] - 0.6, time[-1] + 0.6))
    ax.set_title(title(result, run))
    if labels is not None:
        draw_labels(ax, run["by_step"], labels)
    return ax


def figure_attribution(result: xr.Dataset, *, sequence: int = 0, labels: str | None = None) -> Figure:
    """The bars of `plot_attribution`, and below them a heatmap of every feature (or unit) over the same steps.

    Colours are white at 0 and alike in both directions up to the 99.5th percentile of the absolute values; the colour
    bar's pointed ends say that values beyond exist.

    Parameters
    ----------
    result
        What `attribution` returned, with features told apart.
    sequence, labels
        As for `plot_attribution`.

    Returns
    -------
    Figure
        Its first axes hold the bars, its second the image (feature, time).

    Raises
    ------
    ValueError
        As `plot_attribution`, and when the result does not tell features apart.
    """
    from matplotlib import pyplot

    run = one_sequence(result, sequence)
    if "attribution" not in run:
        raise ValueError(
            "figure_attribution needs features told apart; the result is by step. Draw it with plot_attribution, or "
            "ask with by='feature'."
        )
    values = run["attribution"].transpose("time", ...)
    unit = str(values.dims[1])
    steps = np.arange(run["time"].to_numpy()[0], run["time"].to_numpy()[-1] + 1)
    image = values.reindex(time=steps).to_numpy().astype(float).T
    size = np.clip(2.2 + 0.22 * steps.size, 5.5, 13), np.clip(4.2 + 0.06 * len(image), 4.6, 8)
    figure, (above, below) = pyplot.subplots(
        2, 1, figsize=tuple(map(float, size)), sharex=True, layout="constrained", height_ratios=(1, 1.4)
    )
    plot_attribution(result, sequence=sequence, labels=labels, ax=above)
    above.set_xlabel("")
    finite = np.abs(image[np.isfinite(image)])
    limit = float(np.percentile(finite, ROBUST)) or float(finite.max()) or 1.0
    drawn = below.imshow(
        np.ma.masked_invalid(image),
        aspect="auto",
        interpolation="nearest",
        extent=(steps[0] - 0.5, steps[-1] + 0.5, len(image) - 0.5, -0.5),
        cmap=colormaps[COLOURS].with_extremes(bad=NO_NUMBER),
        vmin=-limit,
        vmax=limit,
    )
    bar = figure.colorbar(drawn, ax=below, extend="both" if finite.max() > limit else "neither", pad=0.02)
    bar.set_label("attribution")
    names = [label_text(name) for name in run[unit].to_numpy()]
    if len(names) <= EVERY:
        below.set_yticks(range(len(names)), names)
    else:
        below.yaxis.set_major_locator(MaxNLocator(integer=True))
    below.set(xlabel="time (step)", ylabel=unit)
    return figure


def one_sequence(result: xr.Dataset, sequence: int) -> xr.Dataset:
    """One sequence without its padding."""
    require_dataset(result, "plot_attribution", "attribution")
    if not {"by_step", "output", "length"} <= set(map(str, result.variables)):
        raise ValueError(
            f"plot_attribution needs what attribution returned over time; {sorted(map(str, result.variables))} came. "
            "An initial state has no steps."
        )
    choices = result["sequence"].to_numpy().tolist()
    if sequence not in choices:
        raise ValueError(f"sequence must be one of {choices}; {sequence!r} came.")
    run = result.isel(sequence=choices.index(sequence))
    places = np.flatnonzero(run["time"].to_numpy() < int(run["length"]))
    if not places.size:
        raise ValueError(f"sequence must have at least one of the steps; sequence {sequence} has none of them.")
    return run.isel(time=places)


def title(result: xr.Dataset, run: xr.Dataset) -> str:
    """What is explained by what, and whether it adds up."""
    attrs = result.attrs
    method, to = (str(attrs.get(name, "")).replace("_", " ") for name in ("method", "to"))
    head = f"{attrs.get('target', 'target')}, sequence {run['sequence'].item()}\n{method}, given to the {to}"
    said = f"target {float(run['output']):.3g}"
    if "baseline_output" in run and "time" not in run["baseline_output"].dims:
        said += f", {float(run['baseline_output']):.3g} at the baseline"
        if "incomplete" in run and bool(run["incomplete"]):
            said += f"; incomplete, bars add up to {float(run['by_step'].sum()):.3g}"
    elif "baseline_output" in run:
        said += "; each step against the baseline by itself"
    return f"{head}\n{said}"
