"""All about one unit on one page: what it did on a sequence, and what the measures say of it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ...signals import GATE_ROLES
from ..schema import SIGNAL_DIMS
from .places import COLOURS
from .traces import gate_and_memory, plot_traces

SIZE = (11.0, 8.6)  # inches
BINS = 50
ESTIMATES = {
    "gate": "retention",
    "gate_typical": "typical retention",
    "autocorrelation": "autocorrelation",
    "jacobian": "Jacobian",
}
ENDS = {"left": COLOURS[0], "between": "0.8", "right": COLOURS[1]}
HATCHES = {"left": "///", "between": "", "right": "..."}
ABSENT = {
    "saturation": "No saturation: pass saturation=gs.saturation(recording).",
    "timescales": "No time scales: pass timescales=gs.timescales(recording).",
    "resets": "No resets: pass resets=gs.resets(recording).",
    "roles": "No role: pass roles=gs.roles(recording).",
}


def figure_unit(
    recording: xr.Dataset,
    unit: int,
    *,
    layer: int = 0,
    direction: str = "forward",
    sequence: int = 0,
    labels: str | None = None,
    window: tuple[int, int] | None = None,
    saturation: xr.Dataset | None = None,
    timescales: xr.Dataset | None = None,
    resets: xr.Dataset | None = None,
    roles: xr.Dataset | None = None,
) -> Figure:
    """Everything about one unit: its gate above its memory, its histograms, saturation, time scales, resets and role.

    Only what is given is drawn: nothing is measured here but the histograms, which are over all sequences.

    Parameters
    ----------
    recording
        A recording, in memory or opened from disk; of all sequences only this unit is read.
    unit
        Its coordinate value.
    layer, direction, sequence
        Coordinate values of the run whose traces are shown.
    labels
        Name of a label over (sequence, time) to write above the traces.
    window
        First and last step of the traces; by default the whole sequence.
    saturation, timescales, resets, roles
        What the measures of these names returned for the recording, or for a part of it that holds the unit. A panel
        whose result is not given says how to get it.

    Returns
    -------
    Figure
        Axes, in this order: one per trace, gate above memory; histogram of the gates; histogram of the memory; shares
        of steps at the ends of the gates; time scales; a text.

    Raises
    ------
    ValueError
        When the unit, layer, direction, sequence or label is not in the recording, or the place not in a result.
    """
    from matplotlib import pyplot

    at: dict[str, Any] = {"layer": layer, "direction": direction, "unit": unit}
    signals = gate_and_memory(recording)
    figure = pyplot.figure(figsize=SIZE, layout="constrained")
    try:
        rows = figure.add_gridspec(len(signals) + 2, 1, height_ratios=[1.0] * len(signals) + [1.2, 1.2])
        first = figure.add_subplot(rows[0])
        traces = [first, *(figure.add_subplot(rows[row], sharex=first) for row in range(1, len(signals)))]
        run: dict[str, Any] = {"layer": layer, "direction": direction, "sequence": sequence, "labels": labels}
        shown = recording if window is None else recording.sel(time=slice(*window))
        plot_traces(shown, unit, signals=signals, axes=traces, **run)
        _tidy(traces)
        middle = rows[-2].subgridspec(1, 3, width_ratios=(1, 1, 1.25))
        gates, memory, ends = (figure.add_subplot(place) for place in (middle[0], middle[1], middle[2]))
        lower = rows[-1].subgridspec(1, 2, width_ratios=(1, 1))
        scales, text = figure.add_subplot(lower[0]), figure.add_subplot(lower[1])
        _draw_gates(gates, _values(recording, _gates(recording), at))
        _draw_memory(memory, _values(recording, signals[-1:], at))
        _draw_or_say(ends, "saturation", saturation, at, _draw_ends)
        _draw_or_say(scales, "timescales", timescales, at, _draw_scales)
        said = [*_said_of_role(_place("roles", roles, at)), "", *_said_of_resets(resets, at)]
        if resets is not None:
            _mark_resets(traces[0], _events(resets, at), sequence)
    except BaseException:
        pyplot.close(figure)
        raise
    _write(text, said)
    first.set_title(f"Unit {unit}: {first.get_title()}")
    return figure


def _tidy(traces: list[Axes]) -> None:
    """One unit needs no legend, and one axis of time is enough."""
    legend = traces[0].get_legend()
    if legend is not None:
        legend.remove()
    for panel in traces[:-1]:
        panel.tick_params(labelbottom=False)


def _gates(recording: xr.Dataset) -> list[str]:
    return [
        str(name)
        for name, values in recording.data_vars.items()
        if values.dims == SIGNAL_DIMS and values.attrs.get("role") in GATE_ROLES
    ]


def _values(recording: xr.Dataset, names: list[str], at: dict[str, Any]) -> dict[str, npt.NDArray[np.float64]]:
    """The finite values of the unit over all sequences."""
    found = {}
    for name in names:
        values = recording[name].sel(at).to_numpy().ravel().astype(np.float64)
        found[name] = values[np.isfinite(values)]
    return found


def _draw_gates(axes: Axes, values: dict[str, npt.NDArray[np.float64]]) -> None:
    axes.set(title="Gates, all sequences", xlabel="value", ylabel="share of steps", xlim=(0, 1))
    for place, (name, numbers) in enumerate(values.items()):
        if numbers.size:
            axes.hist(
                numbers,
                bins=np.linspace(0, 1, BINS + 1).tolist(),
                weights=np.full(numbers.size, 1 / numbers.size),
                histtype="step",
                color=COLOURS[place % len(COLOURS)],
                linestyle=("-", "--", ":", "-.")[place % 4],
                linewidth=1.4,
                label=name,
            )
    if values:
        axes.legend(fontsize="x-small", frameon=False)


def _draw_memory(axes: Axes, values: dict[str, npt.NDArray[np.float64]]) -> None:
    for name, numbers in values.items():
        axes.set(title=f"{name}, all sequences", xlabel="value", ylabel="share of steps")
        if numbers.size:
            axes.hist(numbers, bins=BINS, weights=np.full(numbers.size, 1 / numbers.size), color="0.6")
        axes.axvline(0, color="0.4", linewidth=0.8)


def _place(name: str, result: xr.Dataset | None, at: dict[str, Any]) -> xr.Dataset | None:
    """The part of a result that is about the unit."""
    if result is None:
        return None
    missing = [dim for dim, value in at.items() if dim not in result or value not in result[dim].to_numpy().tolist()]
    if missing:
        asked = ", ".join(f"{dim} {at[dim]!r}" for dim in missing)
        raise ValueError(f"The result given as {name} must hold the unit; it lacks {asked}. Measure that part too.")
    return result.sel(at)


def _draw_or_say(
    axes: Axes, name: str, result: xr.Dataset | None, at: dict[str, Any], draw: Callable[[Axes, xr.Dataset], None]
) -> None:
    here = _place(name, result, at)
    if here is None:
        _write(axes, [ABSENT[name]])
    else:
        draw(axes, here)


def _write(axes: Axes, lines: list[str]) -> None:
    axes.axis("off")
    axes.text(0, 1, "\n".join(lines), va="top", transform=axes.transAxes, parse_math=False, linespacing=1.5, wrap=True)


def _draw_ends(axes: Axes, here: xr.Dataset) -> None:
    """A bar per gate: share of steps near the lower end, in between, near the upper end; and the verdict."""
    some = [place for place, role in enumerate(here["role"].to_numpy()) if role in GATE_ROLES]
    here = here.isel(signal=some)
    left, right = (here[name].fillna(0.0).to_numpy() for name in ("left", "right"))
    begin = np.zeros(len(some))
    for name, share in {"left": left, "between": 1 - left - right, "right": right}.items():
        axes.barh(range(len(some)), share, left=begin, color=ENDS[name], hatch=HATCHES[name], edgecolor="white")
        begin = begin + share
    axes.set(xlim=(0, 1), ylim=(len(some) - 0.5, -0.5), title="Near either end of its range")
    verdicts = here["verdict"].to_numpy().tolist()
    names = here["signal"].to_numpy().tolist()
    axes.set_yticks(range(len(some)), [f"{name}\n{verdict}" for name, verdict in zip(names, verdicts, strict=True)])
    low, high = (here.attrs.get(name, np.nan) for name in ("low", "high"))
    axes.set_xlabel(f"share of steps: below {low:g}, between, above {high:g}")


def _draw_scales(axes: Axes, here: xr.Dataset) -> None:
    """A point per estimate on a logarithmic axis; what has no finite value is named so."""
    values = [float(here[name]) for name in ESTIMATES]
    finite = [value for value in values if np.isfinite(value) and value > 0]
    low, high = (min(finite) / 3, max(finite) * 3) if finite else (0.1, 10.0)
    for row, value in enumerate(values):
        if np.isfinite(value) and value > 0:
            axes.plot([low, value], [row, row], color=COLOURS[0], linewidth=1)
            axes.plot(value, row, "o", color=COLOURS[0])
            said, x = f"  {value:.3g}", value
        else:
            said, x = ("infinite" if value == np.inf else "not reached"), low
        axes.text(x, row - 0.15, said, va="bottom", ha="left", fontsize="small")
    axes.set(xscale="log", xlim=(low, high), ylim=(len(values) - 0.5, -0.7), title="Time scales", xlabel="steps")
    axes.set_yticks(range(len(values)), list(ESTIMATES.values()))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _said_of_role(here: xr.Dataset | None) -> list[str]:
    if here is None:
        return [ABSENT["roles"]]
    lines = [f"Role: {here['unit_role'].item()}, confidence {float(here['confidence']):.2f}"]
    if "block" in here.coords:
        lines[0] += f"; memory block {int(here['block'])}"
    others = [str(name) for name in here["role"].to_numpy() if bool(here["holds"].sel(role=name))][1:]
    if others:
        lines.append(f"Also holds: {', '.join(others)}")
    return lines


def _events(resets: xr.Dataset, at: dict[str, Any]) -> xr.Dataset:
    """The resets of the unit in all sequences."""
    chosen = resets["event_kind"].to_numpy() == resets["kind"].to_numpy()[0]
    for dim, value in at.items():
        chosen &= resets[f"event_{dim}"].to_numpy() == value
    return resets.isel(event=np.flatnonzero(chosen))


def _said_of_resets(resets: xr.Dataset | None, at: dict[str, Any]) -> list[str]:
    here = _place("resets", resets, at)
    if here is None:
        return [ABSENT["resets"]]
    if here.attrs.get("reason"):
        return [f"No resets: {here.attrs['reason']}"]
    one = here.isel(kind=0)
    count = int(one["count"])
    if not count:
        return ["Resets: none."]
    lines = [f"Resets: {count:,}, {float(one['rate']):.3g} in 1000 steps"]
    return [*lines, f"Each throws away {float(one['mean_depth']):.0%} of the memory on average"]


def _mark_resets(axes: Axes, events: xr.Dataset, sequence: int) -> None:
    """A cross on the upper trace at the onset of each reset of the sequence."""
    steps = events["onset"].to_numpy()[events["event_sequence"].to_numpy() == sequence]
    line = axes.lines[0]
    time, values = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    inside = np.isin(time, steps)
    axes.plot(time[inside], values[inside], "x", color=COLOURS[1], markersize=7, label="_reset", zorder=5)
