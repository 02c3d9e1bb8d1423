"""Page: how much of a gradient is left k steps back, by which path, and how do recordings compare?"""

import sys
import time
from typing import Any

import numpy as np
import streamlit as st
import xarray as xr

from gatescope.dashboards import catalogue, choices, chooser, flow_curves, flow_figures, path_figures, results, ways_out
from gatescope.dashboards.chooser import View
from gatescope.dashboards.flow_curves import Line
from gatescope.probe.schema import label_names

SLOW = 1.0  # seconds from which the page says what a count cost
POWERS = st.column_config.NumberColumn(format="%.1f", width="small")
FORMATS: dict[str, Any] = {
    "half_life": st.column_config.NumberColumn(format="%.1f", width="small", help="Steps until half is left."),
    "to_1_percent": st.column_config.NumberColumn(format="%.1f", width="small", help="Steps until 1 % is left."),
    "to_float32": st.column_config.NumberColumn(
        format="%.1f", width="small", help="Steps until less is left than float32 resolves beside 1."
    ),
    "slope": st.column_config.NumberColumn(format="%.4f", width="small", help="Powers of ten per step."),
    "longest": st.column_config.NumberColumn(width="small", help="Longest horizon that was taken."),
    "judged": st.column_config.TextColumn(help="Block of the product that half-life and verdict are of."),
}


def show(view: View) -> None:
    count, every, compared = choose_options(view)
    lines, amounts, problems, seconds = follow(view, count, every, compared)
    for problem in problems:
        st.text(f"⚠ {problem}")
    if not lines or lines[0].view.place != view.place or lines[0].view.entry != view.entry:
        chooser.nothing(
            "Gradient flow cannot be told from this recording. It needs every step, all units, the weights, and a "
            "sequence of at least two steps: record again with `gs.record(model, batch)`, or choose another recording."
        )
        return
    chooser.reading(
        f"Layer {view.layer}, {view.direction}. What is left, k steps later, of a change of the state: a line is the "
        "median over sequences and end steps, its band holds 80 %. A straight line is a constant loss per step. Below "
        "the dotted lines is less than 1 %, and less than float32 can add to 1."
    )
    block, norm = show_decay(view, lines)
    cost = f" Counting took {seconds:.1f} s." if seconds >= SLOW else ""
    st.caption(
        f"{amounts[lines[0].label]:,} of {view.recording.sizes['sequence']:,} sequences, the longest ones; "
        f"{lines[0].result.attrs['method_used']} products.{cost} More sequences take longer."
    )
    st.text("\n".join(flow_curves.sentence(line) for line in lines))
    st.dataframe(flow_curves.rows(lines), hide_index=True, column_config=FORMATS, key="half-lives")
    first = lines[0].result
    show_knockout(view, first)
    shared = show_shares(view)
    show_cell_path(view, first)
    show_ways_out(view, lines, amounts, (block, norm), shared)


def choose_options(view: View) -> tuple[int, bool, list[str]]:
    """How many sequences are followed, and what is drawn beside the run on view."""
    numbers, usual = flow_curves.amounts(view.recording)
    entries = [*catalogue.find(sys.argv[1:]), *catalogue.embedded()]
    names = [entry.name for entry in entries if entry.name != view.entry.name and not entry.problem]
    columns = st.columns([1, 3, 1], vertical_alignment="bottom")
    with columns[0]:
        count = choices.choose("Sequences followed", numbers, name="followed", default=usual)
    with columns[1]:
        compared = choices.choose_several(
            "Compare with", names, name="with", default=[], most=flow_curves.MOST_CURVES - 1, placeholder="Recordings"
        )
    every = False
    if view.recording.sizes["layer"] * view.recording.sizes["direction"] > 1:
        with columns[2]:
            every = choices.choose_whether("All layers", name="layers", help="Every layer and direction of it.")
    return count, every, compared


def follow(
    view: View, count: int, every: bool, compared: list[str]
) -> tuple[list[Line], dict[str, int], list[str], float]:
    """Results of all runs to draw, the one on view first, with a bar; what could not be followed, and the seconds."""
    entries = {entry.name: entry for entry in [*catalogue.find(sys.argv[1:]), *catalogue.embedded()]}
    runs = flow_curves.places_of(view) if every else [view]
    problems = []
    for name in compared:
        other = flow_curves.others(view, entries[name])
        if isinstance(other, str):
            problems.append(f"{name}: {other}")
        else:
            runs.append(other)
    lines, amounts, begin = [], {}, time.perf_counter()
    said = f"Following gradients in {len(runs)} runs ..."
    bar = st.progress(0.0, said) if len(runs) > 1 else None
    for place, run in enumerate(runs):
        label = flow_curves.label_of(run, view)
        amounts[label] = min(count, flow_curves.amounts(run.recording)[1] if run.entry != view.entry else count)
        result = results.of(run, flow_curves.flow, most=amounts[label])
        if isinstance(result, str):
            problems.append(f"{label}: {result}")
        else:
            lines.append(Line(label, run, result.isel(layer=0, direction=0)))
        if bar is not None:
            bar.progress((place + 1) / len(runs), said)
    if bar is not None:
        bar.empty()
    return lines, amounts, problems, time.perf_counter() - begin


def show_decay(view: View, lines: list[Line]) -> tuple[str | None, str]:
    first = lines[0].result
    columns = st.columns([2, 1, 2], vertical_alignment="bottom")
    with columns[0]:
        options = [flow_curves.JUDGED, *map(str, first["block"].values)]
        text = choices.choose("Of what to what", options, name="block")
    with columns[1]:
        norm = choices.choose("Norm", [str(name) for name in first["norm"].values], name="norm")
    block = None if text == flow_curves.JUDGED else text
    curves = flow_curves.curves_of(lines, block, norm)
    st.plotly_chart(
        flow_figures.decay_figure(curves),
        key=f"decay-{view.entry.name}-{view.name}-{block}-{norm}-{list(curves)}-{first.attrs['products']}",
        config={"displaylogo": False},
    )
    if missing := [line.label for line in lines if line.label not in curves]:
        st.text(f"Without a curve, since they have no block {block!r}: {', '.join(missing)}.")
    return block, norm


def show_knockout(view: View, first: xr.Dataset) -> None:
    if "knockout_norm" not in first:
        return
    st.subheader("By which path", anchor=False)
    if first.sizes["path"] == 1:
        st.text(f"This cell has only one path, {first['path'].values[0]}: without it nothing is left.")
        return
    chooser.reading(
        "The same with one path cut at every step, relative to none cut. A line at 1: the gradient does without that "
        "path. One that falls: this path carries it. One above 1: it works against the others."
    )
    st.plotly_chart(
        flow_figures.knockout_figure(first),
        key=f"knockout-{view.entry.name}-{view.name}-{first.attrs['products']}",
        config={"displaylogo": False},
    )


def show_shares(view: View) -> xr.Dataset | None:
    """Path shares along one sequence."""
    result = results.of(view, flow_curves.shares, sequence=view.sequence)
    if isinstance(result, str):
        st.subheader("Path shares over time", anchor=False)
        chooser.nothing("This sequence has no path shares. Choose a longer one in the sidebar.", result)
        return None
    if "path_share" not in result:
        st.info("The paths of this cell are not known, so there are no shares; its whole Jacobian was recorded.")
        return None
    if result.sizes["path"] == 1:
        return None
    st.subheader("Path shares over time", anchor=False)
    chooser.reading(
        f"Sequence {view.sequence}: by which path a change of the memory reaches the next state, step by step. Bars "
        "above 0 less those below add to 1; a path below 0 works against the others."
    )
    steps = int(view.recording["length"].sel(sequence=view.sequence))
    of = (view.entry.name, view.module, view.sequence, steps)
    window = choices.choose_window("Steps on view", steps, name="time", of=of, usual=chooser.usual(steps))
    run = result["path_share"].isel(layer=0, direction=0, sequence=0)
    labels = {name: view.recording[name].sel(sequence=view.sequence) for name in label_names(view.recording)}
    run = run.assign_coords({name: ("time", one.values[: run.sizes["time"]]) for name, one in labels.items()})
    boundary = "boundary" if "boundary" in run.coords else None
    if np.isnan(run.to_numpy()).all():
        st.text("No step of this sequence has finite shares.")
        return None
    st.plotly_chart(
        path_figures.path_share_figure(run, labels=view.labels, boundary=boundary, window=window),
        key=f"shares-{view.entry.name}-{view.name}-{view.sequence}-{view.labels}-{window}",
        config={"displaylogo": False},
    )
    return result


def show_cell_path(view: View, first: xr.Dataset) -> None:
    if "cell_path" not in first:
        return
    st.subheader("What each unit keeps by itself", anchor=False)
    chooser.reading(
        "The median product of the retention over k steps, a row per unit, those that keep longest on top: what its "
        "own memory holds of a change when nothing is fed back. Yellow is kept, dark is gone."
    )
    st.plotly_chart(
        path_figures.cell_path_figure(first),
        key=f"cells-{view.entry.name}-{view.name}-{first.attrs['products']}",
        config={"displaylogo": False},
    )


def show_ways_out(
    view: View, lines: list[Line], amounts: dict[str, int], asked: tuple[str | None, str], shared: xr.Dataset | None
) -> None:
    from gatescope.probe.plots import gradient_flow as plots

    block, norm = asked
    first = lines[0].result
    shown = {line.label: line.result for line in lines}
    place = ", ".join(f"{name}={value!r}" for name, value in view.place.items())
    code = flow_curves.code_lines(lines, amounts, block, norm)
    pictures: dict[str, Any] = {
        "decay": lambda ax: plots.plot_gradient_flow(shown, block=block, norm=norm, ax=ax),
    }
    kept = {"gradient-flow": first}
    more = []
    if "knockout_norm" in first and first.sizes["path"] > 1:
        pictures["paths"] = lambda ax: plots.plot_knockout(first, ax=ax)
        more.append("gs.plot_knockout(flow)")
    if "cell_path" in first:
        pictures["units"] = lambda ax: plots.plot_cell_path(first, ax=ax)
        more.append("gs.plot_cell_path(flow)")
    if shared is not None:
        kept["shares"] = shared
        pictures["shares"] = lambda ax: plots.plot_path_share(shared, sequence=view.sequence, ax=ax)
        begin = f"shares = gs.gradient_flow(recording.sel(sequence=[{view.sequence}]), horizons=[1], end=-1)"
        more += [begin, f"gs.plot_path_share(shares, sequence={view.sequence}, {place})"]
    ways_out.show(
        view.name,
        code=view.code(*code[:2], *more, *code[2:], here=True),
        tables={"half-life": lambda: flow_curves.rows(lines)},
        results=kept,
        pictures=pictures,
    )


if __name__ == "__main__":
    chooser.page("Gradient flow", show)
