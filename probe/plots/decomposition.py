"""The picture of a contextual decomposition: what each phrase contributes, and how that lasts."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator

from .timeline import label_text

COLOURS = ("#0072B2", "#D55E00")  # raises, lowers


def plot_decomposition(
    result: xr.Dataset, *, output: int = 0, sequence: int = 0, labels: list[str] | None = None, ax: Axes | None = None
) -> Axes:
    """What each phrase contributes to an output: bars at one step, or over all steps as a heatmap (phrase, time).

    Bars (of a result with `at`) are blue where the phrase raises the output and orange where it lowers it. In the
    heatmap red raises and blue lowers, white is 0; a phrase has no part in steps before it begins.

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

        _, ax = pyplot.subplots(figsize=(7, 3.6 if "time" not in shown.dims else 5), layout="constrained")
    if "time" in shown.dims:
        draw_over_time(ax, shown, int(result["length"].sel(sequence=sequence)))
        place: Axis = ax.yaxis
    else:
        values = shown.to_numpy()
        ax.bar(range(len(values)), values, color=[COLOURS[int(value < 0)] for value in values])
        ax.axhline(0, color="0.4", linewidth=0.8, label="_0")
        ax.set(xlabel="phrase", ylabel="contribution")
        place = ax.xaxis
    if len(names) <= 40:
        place.set_ticks(range(len(names)), list(map(label_text, names)))
    else:
        place.set_major_locator(MaxNLocator(integer=True))
    at = "" if "time" in shown.dims else f", {at_step(str(result.attrs.get('at', '')))}"
    ax.set_title(f"What phrases contribute to output {output}: {result.attrs.get('module', '')}{at}")
    return ax


def draw_over_time(ax: Axes, shown: xr.DataArray, length: int) -> None:
    image = shown.transpose("phrase", "time").to_numpy()[:, :length]
    limit = float(np.nanmax(np.abs(image), initial=0)) or 1.0
    drawn = ax.imshow(image, aspect="auto", interpolation="nearest", cmap="RdBu_r", vmin=-limit, vmax=limit)
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
