"""The picture of a contextual decomposition: what each phrase contributes, and how that lasts."""

import numpy as np
import xarray as xr
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator

from .timeline import label_text

COLOURS = "RdBu_r"  # diverging, told apart with any colour vision; red raises the output, blue lowers it
STRONG = 0.88  # where on it the colours of bars are taken


def plot_decomposition(
    result: xr.Dataset, *, output: int = 0, sequence: int = 0, labels: list[str] | None = None, ax: Axes | None = None
) -> Axes:
    """What each phrase contributes to an output: bars at one step, or over all steps as a heatmap (phrase, time).

    Bars are drawn of a result with `at`. Red raises the output, blue lowers it; in the heatmap white is 0. A phrase has
    no part in steps before it begins.

    Parameters
    ----------
    result
        What `contextual_decomposition` returned, with a readout.
    output, sequence
        Coordinate values of the output and the sequence to show.
    labels
        A text for each phrase, such as its words; by default its steps.
    ax
        Axes to draw in; by default a new figure with pyplot.

    Returns
    -------
    Axes
        A bar for each phrase, or one image.

    Raises
    ------
    ValueError
        When the result is not one of `contextual_decomposition` with outputs, the output or sequence is not in it, or
        labels are not one for each phrase.
    """
    if "output_relevant" not in result:
        raise ValueError(
            "plot_decomposition needs what contextual_decomposition returned, with a readout; "
            f"{sorted(map(str, result.data_vars))} came. Name the readout."
        )
    for dim, value in (("output", output), ("sequence", sequence)):
        choices = result[dim].to_numpy().tolist()
        if value not in choices:
            raise ValueError(f"{dim} must be one of {choices}; {value!r} came.")
    shown = result["output_relevant"].sel(output=output, sequence=sequence)
    names = labels if labels is not None else list(map(span, result["start"].to_numpy(), result["stop"].to_numpy()))
    if len(names) != result.sizes["phrase"]:
        raise ValueError(f"labels must be one for each of {result.sizes['phrase']} phrases; {len(names)} came.")
    if ax is None:
        from matplotlib import pyplot

        bars = float(np.clip(2.2 + 0.3 * len(names), 5.5, 13)), 3.2
        _, ax = pyplot.subplots(figsize=(7, 5) if "time" in shown.dims else bars, layout="constrained")
    if "time" in shown.dims:
        draw_over_time(ax, shown, int(result["length"].sel(sequence=sequence)))
        place: Axis = ax.yaxis
    else:
        values = shown.to_numpy()
        up, down = (colormaps[COLOURS](place) for place in (STRONG, 1 - STRONG))
        ax.bar(range(len(values)), values, color=[up if value >= 0 else down for value in values])
        ax.axhline(0, color="0.4", linewidth=0.8, label="_0")
        ax.set(xlabel="phrase", ylabel="contribution")
        place = ax.xaxis
    if len(names) <= 40:
        place.set_ticks(range(len(names)), list(map(label_text, names)))
    else:
        place.set_major_locator(MaxNLocator(integer=True))
    at = "" if "time" in shown.dims else f", {at_step(str(result.attrs.get('at', '')))}"
    ax.set_title(f"What phrases contribute to output {output}\n{result.attrs.get('module', '')}{at}")
    return ax


def draw_over_time(ax: Axes, shown: xr.DataArray, length: int) -> None:
    image = shown.transpose("phrase", "time").to_numpy()[:, :length]
    limit = float(np.nanmax(np.abs(image), initial=0)) or 1.0
    drawn = ax.imshow(image, aspect="auto", interpolation="nearest", cmap=COLOURS, vmin=-limit, vmax=limit)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="time (step)", ylabel="phrase")
    ax.figure.colorbar(drawn, ax=ax, label="contribution", pad=0.02)


def span(start: int, stop: int) -> str:
    """The steps of a phrase.

    >>> span(3, 4), span(3, 6)
    ('3', '3-5')
    """
    return str(start) if stop == start + 1 else f"{start}-{stop - 1}"


def at_step(at: str) -> str:
    return "at the last step" if at == "last" else f"at step {at}"
