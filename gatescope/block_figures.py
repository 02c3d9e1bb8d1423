"""Pictures of memory blocks at work: states that run away, blocks that forget, what is learned from being forgotten."""

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .probe.plots.timeline import draw_boundaries, one_run
from .probe.plots.traces import COLOURS, plot_traces

STRINGS = 6  # shown in a window
SETTLED = 100  # steps before a window
REMEMBERED = {"T": "#F6D5B8", "P": "#C9DDF0"}
LEARNS = {"candidate": "cell input", "input_gate": "input gate", "forget_gate": "forget gate"}
TIME = "time (step); thin lines: strings begin"


def figure_runaway(recording: xr.Dataset, trend: xr.Dataset, unit: int) -> Figure:
    """Figure 7: without a forget gate states grow in straight lines until a cell shows nothing but its output gate.

    Parameters
    ----------
    recording
        Of a network of 1997 on an endless stream, one sequence.
    trend
        What `drift` says of it.
    unit
        The unit whose cell is shown below the states.

    Returns
    -------
    Figure
        Three axes: a line per unit's state, those that grow in colour and the unit's trend dashed; how far the unit's
        output squasher is open, |h(s)|; the unit's cell output and output gate. A line in all marks from when these two
        agree.
    """
    figure = Figure(figsize=(11, 7.4), layout="constrained")
    panels = figure.subplots(3, sharex=True, gridspec_kw={"height_ratios": (1.6, 0.8, 1)})
    run = one_run(recording, "cell_state", 0, "forward", 0)
    draw_states(panels[0], run, trend, unit)
    squashed = np.abs(np.tanh(run.values[:, unit] / 2))
    panels[1].plot(run["time"], squashed, color="black", linewidth=1.2, label=f"|h(s)| of unit {unit}", zorder=3)
    shown, gate = (
        one_run(recording, name, 0, "forward", 0).values[:, unit] for name in ("hidden_state", "output_gate")
    )
    panels[2].plot(run["time"], gate, color="#F0B58A", linewidth=3.5, label="its output gate", zorder=3)
    panels[2].plot(run["time"], np.abs(shown), color=COLOURS[0], linewidth=1, label="|its cell output|", zorder=4)
    since = float(trend["degenerate_from"].values[0, 0, 0, unit])
    for ax in panels:
        draw_boundaries(ax, run, over=False)
        ax.axvline(since, color="black", linewidth=1.4, label="_from here on output and gate agree")
    panels[1].annotate(
        f"from step {since:.0f} on\noutput and gate agree",
        (since, 0.08),
        (6, 0),
        textcoords="offset points",
        fontsize="small",
    )
    edges = run["time"].values[[0, -1]] + np.array([-0.5, 0.5])
    panels[0].set(ylabel="state (s_c)", xlim=edges, title=titled(recording))
    panels[1].set(ylabel="squasher |h(s)|", ylim=(-0.05, 1.05))
    panels[2].set(ylabel="output, gate", ylim=(-0.05, 1.05), xlabel=TIME)
    legends(panels)
    figure.align_ylabels(panels)
    return figure


def draw_states(ax: Axes, run: xr.DataArray, trend: xr.Dataset, unit: int) -> None:
    """All states of one run; those that grow in colour, the trend of one of them dashed."""
    time, verdict = run["time"].values, trend["verdict"].values[0, 0]
    growing = [u for u in range(run.shape[1]) if verdict[u] == "growing"]
    quiet = [u for u in range(run.shape[1]) if u not in growing]
    for place, u in enumerate(growing):
        width = 2.2 if u == unit else 1.2
        ax.plot(
            time, run.values[:, u], color=COLOURS[place % len(COLOURS)], linewidth=width, label=f"unit {u}", zorder=3
        )
    for place, u in enumerate(quiet):
        label = "_unit" if place else f"units {', '.join(map(str, quiet))}: no growth"
        ax.plot(time, run.values[:, u], color="0.7", linewidth=1, label=label, zorder=2)
    slope = float(trend["slope"].values[0, 0, unit])
    values = run.values[:, unit]
    line = np.sign(values[-1]) * (slope * (time - time.mean()) + np.abs(values).mean())
    ax.plot(
        time, line, "--", color="black", linewidth=1.1, label=f"trend of unit {unit}, {slope:.2g} per step", zorder=4
    )


def figure_block(recording: xr.Dataset, block: int) -> Figure:
    """Figures 8 and 9: the forget gate of one block above the states of its cells, over a few strings.

    Parameters
    ----------
    recording
        Of a network with forget gates, with the labels of `gatescope.tasks.CERG`.
    block
        Which block (coordinate `block`).

    Returns
    -------
    Figure
        Two axes over the same steps, symbols written above, a line where a string begins: the block's forget gate,
        and a line per cell; behind these, in two colours, while T or P must be remembered.
    """
    figure = Figure(figsize=(12.5, 5.2), layout="constrained")
    gate, states = figure.subplots(2, sharex=True, gridspec_kw={"height_ratios": (1, 1.5)})
    part = recording.isel(time=window(recording))
    units = recording["unit"].values[recording["block"].values == block].tolist()
    plot_traces(part, units[:1], signals=["forget_gate"], labels="symbol", axes=[gate])
    plot_traces(part, units, signals=["cell_state"], axes=[states])
    shade_remembered(states, part)
    gate.set(title=titled(recording), ylabel=f"forget gate\nof block {block}", xlabel="")
    states.set(title="", ylabel="states (s_c)", xlabel=TIME)
    legends([states])
    gate.get_legend().remove()
    figure.align_ylabels([gate, states])
    return figure


def figure_partials(shown: Sequence[tuple[xr.Dataset, xr.Dataset, int]]) -> Figure:
    """What a state owes its weights is forgotten together with the state, or never.

    Parameters
    ----------
    shown
        For each column a recording, what `state_partials` says of it, and the unit. Of one with forget gates a few
        strings are shown, of others all.

    Returns
    -------
    Figure
        Three rows of axes: what multiplies the state, the state, and the norm of its partial derivatives by the weights
        of its cell input and its gates, one line each.
    """
    figure = Figure(figsize=(13, 6.6), layout="constrained")
    grid = figure.subplots(3, len(shown), sharex="col", squeeze=False, gridspec_kw={"height_ratios": (0.8, 1, 1.4)})
    for (recording, partials, unit), column in zip(shown, grid.T, strict=True):
        steps = window(recording) if "forget_gate" in recording else slice(None)
        draw_partials(column.tolist(), recording.isel(time=steps), partials.isel(sequence=0, time=steps), unit)
        column[0].set_title(f"{titled(recording)}, unit {unit}")
    for ax, text in zip(grid[:, 0], ("what multiplies\nthe state", "state (s_c)", "norm of ds/dw"), strict=True):
        ax.set_ylabel(text)
    figure.align_ylabels(grid[:, 0])
    return figure


def draw_partials(column: list[Axes], part: xr.Dataset, partials: xr.Dataset, unit: int) -> None:
    """One column, from top to bottom."""
    run = one_run(part, "cell_state", 0, "forward", 0).sel(unit=unit)
    time, keep = run["time"].values, part.attrs["retention"]
    kept = part[keep].sel(unit=unit).values.ravel() if keep in part else np.full(time.size, float(keep))
    column[0].plot(time, kept, color=COLOURS[0], linewidth=1.4, label="what multiplies the state", zorder=3)
    column[1].plot(time, run.values, color="black", linewidth=1.4, label="state", zorder=3)
    for place, (name, learns) in enumerate(LEARNS.items()):
        if name in partials:
            values = partials[name].sel(unit=unit).values
            label = f"by the weights of the {learns}"
            column[2].plot(time, values, color=COLOURS[place], linewidth=1.4, label=label, zorder=3)
    column[2].legend(frameon=False, loc="upper left", ncols=2, fontsize="small")
    column[2].set(xlabel=TIME, ylim=(0, 1.35 * column[2].get_ylim()[1]))  # room for the legend
    column[0].set(ylim=(-0.05, 1.05), xlim=(time[0] - 0.5, time[-1] + 0.5))
    for ax in column:
        draw_boundaries(ax, run, over=False)


def window(recording: xr.Dataset) -> slice:
    """Steps of a few whole strings once a stream has gone on for a while, as many of them with T as with P."""
    begins = np.flatnonzero(recording["boundary"].values[0])
    holds = recording["symbol"].values[0][np.minimum(begins + 1, recording.sizes["time"] - 1)]
    last = max(0, len(begins) - 1 - STRINGS)
    first = min(int(np.searchsorted(begins, SETTLED)), last)
    while first < last and (holds[first : first + STRINGS] == "T").sum() != STRINGS // 2:
        first += 1
    return slice(int(begins[first]), int(begins[min(first + STRINGS, len(begins) - 1)]))


def shade_remembered(ax: Axes, part: xr.Dataset) -> None:
    """Behind the lines, a colour while T or P must be remembered."""
    time, position, named = part["time"].values, 0, set[str]()
    for symbol, steps in groupby(part["remember"].values[0].tolist()):
        end = position + len(list(steps))
        if symbol in REMEMBERED:
            label = f"_{symbol}" if symbol in named else f"{symbol} to be remembered"
            ax.axvspan(time[position] - 0.5, time[end - 1] + 0.5, color=REMEMBERED[symbol], label=label, zorder=0)
            named.add(symbol)
        position = end


def titled(recording: xr.Dataset) -> str:
    """Which network it is."""
    kept = {"forget_gate": "forget gates learned", "1.0": "no forget gates (1997)"}
    keep = recording.attrs["retention"]
    return f"Memory blocks, {kept.get(keep, f'state decay {keep}')}"


def legends(panels: Sequence[Axes]) -> None:
    """To the right of each panel; what all of them show is named once."""
    named: set[str] = set()
    for ax in panels:
        entries = [pair for pair in zip(*ax.get_legend_handles_labels(), strict=True) if pair[1] not in named]
        handles, labels = zip(*entries, strict=True)
        ax.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        named.update(labels)
