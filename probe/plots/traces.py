"""Signals of a few units as lines over one time axis, one panel per signal."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ...signals import retention_form, time_title
from .timeline import chosen_units, draw_boundaries, draw_labels, one_run, run_title

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))  # lines that lie on each other stay visible
DOTS, DENSE = 60, 300  # up to so many steps each is marked with a dot; beyond so many lines are thin


def plot_traces(
    recording: xr.Dataset,
    units: npt.ArrayLike,
    *,
    signals: Sequence[str] | None = None,
    layer: int = 0,
    direction: str = "forward",
    sequence: int = 0,
    labels: str | None = None,
    boundaries: bool = True,
    axes: Sequence[Axes] | None = None,
) -> npt.NDArray[np.object_]:
    """Signals of a few units over time, by default what keeps the memory above the memory itself.

    Every panel has the same time axis and every unit the same colour and dashes in all panels, so that a fall of the
    gate stands right above what it does to the state.

    Parameters
    ----------
    recording
        A recording, in memory or opened from disk; only the run shown is read.
    units
        One unit or several (coordinate values).
    signals
        Names of the signals, from top to bottom; by default the signal that multiplies the old memory (attribute
        `retention`) and the memory.
    layer, direction, sequence
        Coordinate values of the run to show.
    labels
        Name of a label over (sequence, time) to write above the top panel; only as many as can be read are written.
    boundaries
        Whether to draw a line before each first step of a segment (label `boundary`), where the recording marks any.
    axes
        One Axes per signal to draw in; by default a new figure with pyplot.

    Returns
    -------
    numpy.ndarray of Axes
        One per signal, from top to bottom; `axes[0].figure` is the figure. Each holds one line per unit, labelled
        `unit 3`.

    Raises
    ------
    ValueError
        When a signal, layer, direction, sequence, label or unit is not in the recording, or there are not as many
        Axes as signals.

    References
    ----------
    F. A. Gers, J. Schmidhuber, F. Cummins (2000). Learning to Forget: Continual Prediction with LSTM, figure 8.
    Neural Computation 12(10). doi 10.1162/089976600300015015.
    """
    names = list(signals) if signals is not None else gate_and_memory(recording)
    runs = [chosen_units(one_run(recording, name, layer, direction, sequence), units) for name in names]
    panels = _panels(names, axes, runs[0].sizes["time"])
    for panel, run in zip(panels, runs, strict=True):
        _draw_lines(panel, run)
        if boundaries:
            draw_boundaries(panel, run, over=False)
    time = runs[0]["time"].to_numpy()
    panels[0].set(xlim=(time[0] - 0.5, time[-1] + 0.5), title=run_title(recording, runs[0]))
    panels[0].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, handlelength=2.6)
    panels[-1].set_xlabel(time_title(recording.attrs))
    panels[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].figure.align_ylabels(panels)
    if labels is not None:
        draw_labels(panels[0], runs[0], labels)
    return panels


def gate_and_memory(recording: xr.Dataset) -> list[str]:
    """The signal that keeps the memory, where one does, and the memory; of these only what was recorded."""
    form, name = retention_form(str(recording.attrs.get("retention", "none")))
    memories = [str(key) for key, values in recording.data_vars.items() if values.attrs.get("role") == "memory"]
    wanted = [str(name)] if form in ("signal", "complement") else []
    names = [key for key in wanted + memories[:1] if key in recording.data_vars]
    if not names:
        raise ValueError(
            f"The recording must hold {[*wanted, 'a memory']}, or signals must say what to draw; it holds "
            f"{sorted(map(str, recording.data_vars))}."
        )
    return names


def _panels(names: list[str], axes: Sequence[Axes] | None, steps: int) -> npt.NDArray[np.object_]:
    if axes is None:
        from matplotlib import pyplot

        size = float(np.clip(3 + 0.16 * steps, 7.5, 13)), 1.2 + 1.7 * len(names)
        _, grid = pyplot.subplots(len(names), sharex=True, squeeze=False, figsize=size, layout="constrained")
        return np.asarray(grid[:, 0], dtype=object)
    if len(axes) != len(names) or not names:
        raise ValueError(f"axes must hold one Axes per signal, and at least one; {len(axes)} came for {names}.")
    return np.array(list(axes), dtype=object)


def _draw_lines(panel: Axes, run: xr.DataArray) -> None:
    """One line per unit, the signal's bounds as the vertical range, and zero where the signal can be on both sides."""
    time, values, dim = run["time"].to_numpy(), run.to_numpy(), str(run.dims[-1])
    for place, unit in enumerate(run[dim].to_numpy()):
        panel.plot(
            time,
            values[:, place],
            color=COLOURS[place % len(COLOURS)],
            linestyle=DASHES[place % len(DASHES)],
            marker="." if time.size <= DOTS else None,
            linewidth=1.4 if time.size <= DENSE else 0.9,
            label=f"{dim} {unit}",
            zorder=4,
        )
    lower, upper = run.attrs.get("lower"), run.attrs.get("upper")
    if lower is not None and upper is not None:
        margin = 0.05 * (float(upper) - float(lower))
        panel.set_ylim(float(lower) - margin, float(upper) + margin)
    low, high = panel.get_ylim()
    if low < 0 < high and lower != 0:
        panel.axhline(0, color="0.75", linewidth=0.8, zorder=1)
    symbol = run.attrs.get("symbol", "")
    panel.set_ylabel(f"{run.name} ({symbol})" if symbol else str(run.name))
