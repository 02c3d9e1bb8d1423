"""Section of the page Roles: do the units of another network play the same parts."""

import sys
from typing import NamedTuple

import pandas as pd
import streamlit as st
import xarray as xr

from ..probe.analyzers.role_agreement import role_agreement
from ..probe.analyzers.roles import roles
from ..probe.schema import label_names
from . import catalogue, choices, chooser, flow_curves, results, summary
from .chooser import View

NONE = ""  # no recording is named so


class Compared(NamedTuple):
    """The agreement, and the run that was compared with."""

    agreement: xr.Dataset
    other: View
    labels: str | None


def show(view: View, result: xr.Dataset, labels: str | None) -> Compared | None:
    """The choice of another recording, and how its units pair with those on view."""
    entries = {entry.name: entry for entry in [*catalogue.find(sys.argv[1:]), *catalogue.embedded()]}
    names = [name for name, entry in entries.items() if name != view.entry.name and not entry.problem]
    st.subheader("Beside another network", anchor=False)
    with st.columns([1, 1])[0]:
        name = choices.choose(
            "Compare with", [NONE, *names], name="beside", default=NONE, shown=lambda text: text or "none"
        )
    if name == NONE:
        st.caption("Choose a recording of another network: its units are paired with these by what they do.")
        return None
    other = flow_curves.others(view, entries[name])
    if isinstance(other, str):
        chooser.nothing("The other recording cannot be shown.", other)
        return None
    theirs = labels if labels in label_names(other.recording) else None
    second = results.of(other, roles, labels=theirs)
    agreement = second if isinstance(second, str) else agree(result, second)
    if isinstance(agreement, str):
        chooser.nothing("The two cannot be compared.", agreement)
        return None
    here = agreement.isel(layer=0, direction=0)
    chooser.reading(
        "Each unit is paired with the unit of the other network that does most nearly the same. A row per role here, a "
        "column per role there: pairs on the diagonal play the same part."
    )
    st.text(sentence(here))
    st.dataframe(table(here), key=f"beside-{view.entry.name}-{view.name}-{name}-{labels}")
    return Compared(agreement, other, theirs)


def agree(first: xr.Dataset, second: xr.Dataset) -> xr.Dataset | str:
    """`role_agreement`, or the sentence that says why there is none."""
    try:
        return role_agreement(first, second)
    except ValueError as error:
        return str(error)


def sentence(here: xr.Dataset) -> str:
    """How often pairs have the same role, in a line."""
    pairs, share, kappa = int((here["matched_unit"] >= 0).sum()), float(here["agreement"]), float(here["kappa"])
    beyond = f"kappa {kappa:.2f}: 1 is all, 0 what the frequencies of the roles give" if kappa == kappa else "all alike"
    return f"{pairs:,} pairs, {share:.0%} with the same role ({beyond})."


def table(here: xr.Dataset) -> pd.DataFrame:
    """Pairs by role here (rows) and there (columns)."""
    paired = here["matched_unit"].to_numpy() >= 0
    ours, theirs = (here[name].to_numpy()[paired].astype(str) for name in ("role", "matched_role"))
    return pd.crosstab(pd.Series(ours, name="here"), pd.Series(theirs, name="there"))


def rows(here: xr.Dataset) -> pd.DataFrame:
    """A row per unit with the one that it was paired with."""
    names = ("unit", "role", "matched_unit", "matched_role", "distance")
    return pd.DataFrame({name: here[name].to_numpy() for name in names})


def lines(compared: Compared) -> list[str]:
    """Python that compares `roles` with those of the other recording."""
    view = compared.other
    opening = [text for text in summary.opening(view.entry, view.module if view.tree else None) if text]
    labels = f", labels={compared.labels!r}" if compared.labels else ""
    return [
        *opening,
        f"other = gs.roles(recording.sel(layer=[{view.layer}], direction=[{view.direction!r}]){labels})",
        "agreement = gs.role_agreement(roles, other)",
    ]
