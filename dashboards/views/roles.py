"""Page: what does each unit and each memory block do, how sure is that, and does the network need it?"""

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
import xarray as xr

from gatescope.dashboards import (
    choices,
    chooser,
    label_classes,
    lesion_section,
    lesions,
    results,
    role_comparison,
    role_figures,
    ways_out,
)
from gatescope.dashboards.chooser import View
from gatescope.probe.analyzers.predicates import ROLES, STATISTICS
from gatescope.probe.analyzers.roles import roles

MOST = 12  # units chosen at once
CARDS = 24  # blocks that have a card
FEW = 12  # classes of a label that is taken without being asked for
SMALL = st.column_config.NumberColumn(format="%.3f", width="small")
FORMATS: dict[str, Any] = {
    **dict.fromkeys(STATISTICS, SMALL),
    "time_scale": st.column_config.NumberColumn(format="%.1f", width="small", help="Steps, of the median retention."),
    "reset_rate": st.column_config.NumberColumn(format="%.1f", width="small", help="Resets per 1000 steps."),
    "confidence": st.column_config.NumberColumn(format="percent", width="small"),
    **dict.fromkeys(("unit", "block"), st.column_config.NumberColumn(width="small")),
}
MEANINGS = {
    "dead": "Its memory does not move.",
    "stuck": "All its gates stay at one end: nothing in it is decided.",
    "latch": "Its sign holds one of two classes until it is reset.",
    "clock": "Its memory is a line, always with the same slope.",
    "counter": "Its memory is a line between resets, each with a slope of its own.",
    "event detector": "It marks one class of the label, and has lost it two steps later.",
    "pass-through": "It keeps little and writes much: what comes in goes on.",
    "long-memory": "It keeps for much longer than the layer's mean.",
    "short-memory": "It keeps for a while, no longer than the others.",
    "none": "No predicate holds.",
}


def show(view: View) -> None:
    labels, lags = choose_options(view)
    asked: dict[str, Any] = {"lags": lags} if lags else {}
    result = results.of(view, roles, labels=labels, **asked)
    if isinstance(result, str):
        chooser.nothing("Roles cannot be told from this recording.", result)
        return
    here = result.isel(layer=0, direction=0)
    chooser.reading(
        f"Layer {view.layer}, {view.direction}: a point is a unit. To the right it keeps longer, upwards it is reset "
        "more often; colour and symbol are its role, the first whose predicate holds; small points sit on a threshold."
    )
    st.text(counts_line(here))
    st.text(specialisation_line(here))
    if result.attrs["reset_reason"]:
        st.text(f"No unit is ever reset: {result.attrs['reset_reason']}")
    units = show_map(view, here, labels)
    if "memory_block" in here.dims:
        show_cards(here)
    found = lesion_section.show(view, result)
    compared = role_comparison.show(view, result, labels)
    show_table(view, here, units, labels)
    show_meanings(here)
    show_ways_out(view, result, (labels, lags), found, compared)


def choose_options(view: View) -> tuple[str | None, tuple[int, int] | None]:
    """Label and lags by which roles are judged."""
    found = label_classes.judging(view)
    columns = st.columns([2, 1, 1, 1], vertical_alignment="bottom")
    with columns[0]:
        label = choices.choose(
            "Label that latches hold and detectors mark",
            [chooser.NO_LABEL, *found],
            name="judge",
            default=usual_label(found),
            shown=lambda name: name or "none",
        )
    with columns[1]:
        short = int(choices.choose_number("Short lag of the task", 0, 100_000, name="short", default=0, step=1))
    with columns[2]:
        long = int(choices.choose_number("Long lag", 0, 100_000, name="long", default=0, step=1))
    lags = (short, long) if 0 < short <= long else None
    if label == chooser.NO_LABEL:
        st.caption("Without a label no unit can be an event detector, and a latch is told by its sign between resets.")
    return label or None, lags


def usual_label(found: dict[str, int]) -> str:
    """The label with the fewest classes, if few: what a latch may hold."""
    few = {name: count for name, count in found.items() if count <= FEW and name != "boundary"}
    return min(few, key=lambda name: few[name], default=chooser.NO_LABEL)


def counts_line(here: xr.Dataset) -> str:
    counts = role_figures.role_counts(here)
    return ", ".join(f"{count:,} {role}" for role, count in counts.items()) + f" of {here.sizes['unit']:,} units."


def specialisation_line(here: xr.Dataset) -> str:
    """How much more the units differ than chance lets them, in a sentence."""
    ratio, p = float(here["specialisation"]), float(here["specialisation_p"])
    if not np.isfinite(ratio):
        return "Specialisation cannot be told: no retention varies between units."
    return (
        f"Specialisation {ratio:,.1f}: time scales of the units vary {ratio:,.1f} times as much as when units exchange "
        f"their gates at random (1 is chance, p {p:.2g})."
    )


def show_map(view: View, here: xr.Dataset, labels: str | None) -> list[int]:
    units = choices.choose_several(
        "Units with a ring", here["unit"].values.tolist(), name="unit", default=[], most=MOST
    )
    key = f"roles-{view.entry.name}-{view.name}-{labels}-{units}"
    st.plotly_chart(
        role_figures.role_map_figure(here, units),
        key=key,
        on_select=lambda: take_points(key),
        selection_mode=("points", "box"),
        config={"displaylogo": False},
    )
    if units:
        chooser.link(st, "gates", "See the units with a ring step by step", unit=",".join(map(str, units)))
    return units


def take_points(key: str) -> None:
    points = st.session_state[key]["selection"]["points"]
    units = list(dict.fromkeys(int(point["customdata"][0]) for point in points if point.get("customdata")))
    if units:
        choices.take_several("unit", units[:MOST])


def show_cards(here: xr.Dataset) -> None:
    """A card per memory block: its role, how sure, its units, and when they keep and reset."""
    st.subheader("Memory blocks", anchor=False)
    chooser.reading("Units of a block share their gates. A block has the first role that one of its units has.")
    blocks = here["memory_block"].values.tolist()
    columns = st.columns(min(4, len(blocks)))
    for place, block in enumerate(blocks[:CARDS]):
        with columns[place % len(columns)].container(border=True):
            st.markdown(f"**Block {block}**")
            for line in card(here, block):
                st.text(line)
    if len(blocks) > CARDS:
        st.caption(f"{len(blocks) - CARDS:,} more blocks are in the table.")


def card(here: xr.Dataset, block: int) -> list[str]:
    """What a block's card says."""
    mine = here.isel(unit=here["block"].to_numpy() == block)
    at = here["memory_block"].values.tolist().index(block)
    role, sure = str(here["block_role"].values[at]), float(here["block_confidence"].values[at])
    evidence = mine["evidence"].mean("unit")
    scale, rate, keep = (float(evidence.sel(statistic=name)) for name in ("time_scale", "reset_rate", "retention"))
    units = ", ".join(
        f"{unit} {word}"
        for unit, word in zip(mine["unit"].values.tolist(), mine["unit_role"].values.tolist(), strict=True)
    )
    kept = f"keeps {keep:.2f} per step" if np.isfinite(keep) else "no retention"
    lasts = f", typically {scale:,.1f} steps" if np.isfinite(scale) else ""
    resets = f"{rate:,.1f} resets per 1000 steps" if np.isfinite(rate) else "no resets"
    return [f"{role}, in {sure:.0%} of the samples", f"Units: {units}", f"{kept}{lasts}", resets]


def role_rows(here: xr.Dataset) -> pd.DataFrame:
    """A row per unit with its role, how sure it is, all other roles that hold, and the evidence."""
    columns: dict[str, Any] = {"unit": here["unit"].to_numpy()}
    if "block" in here.coords:
        columns["block"] = here["block"].to_numpy()
    columns |= {"role": here["unit_role"].to_numpy().astype(str), "confidence": here["confidence"].to_numpy()}
    holds = here["holds"].transpose("unit", "role").to_numpy()
    first = columns["role"]
    columns["holds too"] = [
        ", ".join(role for role, does in zip(ROLES, row, strict=True) if does and role != mine)
        for row, mine in zip(holds, first, strict=True)
    ]
    evidence = here["evidence"].transpose("statistic", "unit").to_numpy()
    names = here["statistic"].values.tolist()
    return pd.DataFrame(columns | {name: values for name, values in zip(names, evidence, strict=True)})


def show_table(view: View, here: xr.Dataset, units: list[int], labels: str | None) -> None:
    st.subheader("Evidence", anchor=False)
    chooser.reading("A row per unit. confidence: the share of bootstrap samples of the data that give the same role.")
    table = role_rows(here)
    chosen = table["unit"].isin(units)
    key = f"evidence-{view.entry.name}-{view.name}-{labels}"
    st.dataframe(
        pd.concat([table[chosen], table[~chosen]]),
        hide_index=True,
        height=min(400, 46 + 35 * len(table)),
        column_config=FORMATS,
        key=key,
    )


def show_meanings(here: xr.Dataset) -> None:
    with st.expander("What the roles mean", icon=":material/help:"):
        for role in role_figures.role_counts(here):
            st.text(f"{role}: {MEANINGS[role]}")
        for name, text in zip(here["statistic"].values, here["statistic_text"].values, strict=True):
            st.text(f"{name}: {text}")


def show_ways_out(
    view: View,
    result: xr.Dataset,
    asked: tuple[str | None, tuple[int, int] | None],
    found: lesion_section.Shown | None,
    compared: role_comparison.Compared | None,
) -> None:
    from gatescope.probe.plots.ablation import plot_ablation
    from gatescope.probe.plots.role_check import plot_role_check
    from gatescope.probe.plots.roles import plot_roles

    place = ", ".join(f"{name}={value!r}" for name, value in view.place.items())
    options = "".join(f", {name}={value!r}" for name, value in zip(("labels", "lags"), asked, strict=True) if value)
    lines = [f"roles = gs.roles(recording{options})", f"gs.plot_roles(roles, {place})"]
    tables: dict[str, Any] = {"roles": lambda: role_rows(result.isel(layer=0, direction=0))}
    kept = {"roles": result}
    pictures: dict[str, Any] = {"roles": lambda ax: plot_roles(result, **view.place, ax=ax)}
    if found is not None:
        lines += ["", *lesions.lines(view)]
        kept["lesions"] = found.effects
    if found is not None and found.checked is not None and found.errors is not None:
        checked, (long, short) = found.checked, found.errors
        lines += [f"check = gs.role_check(roles, lesions, long={long!r}, short={short!r})", "gs.plot_role_check(check)"]
        kept["check"] = checked
        tables["check"] = lambda: lesion_section.rows(checked.isel(layer=0, direction=0))
        pictures["check"] = lambda ax: plot_role_check(checked, ax=ax)
    elif found is not None:
        effects, metric = found.effects, found.metric
        lines.append(f"gs.plot_ablation(lesions, metric={metric!r})")
        pictures["lesions"] = lambda ax: plot_ablation(effects, metric=metric, ax=ax)
    if compared is not None:
        agreement = compared.agreement
        lines += ["", *role_comparison.lines(compared)]
        kept["agreement"] = agreement
        tables["agreement"] = lambda: role_comparison.rows(agreement.isel(layer=0, direction=0))
    ways_out.show(
        view.name,
        code=view.code(*lines, here=True),
        tables=tables,
        results=kept,
        pictures=pictures,
        size=(9.0, 5.2),
    )


if __name__ == "__main__":
    chooser.page("Roles", show, sequence=False, labels=False)
