"""Page: what is in this recording, is it sound, and what is there to find?"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pandas as pd
import streamlit as st
import xarray as xr

from gatescope.dashboards import catalogue, choices, chooser, findings, results, summary, ways_out
from gatescope.dashboards.chooser import View
from gatescope.probe.analyzers.drift import drift
from gatescope.probe.analyzers.saturation import saturation
from gatescope.report_health import BAD, GOOD, LOOK, Check, certificate, mode, padding, running_away, stride, stuck
from gatescope.tasks.examples import examples

SIGNS = {
    GOOD: ":green[:material/check_circle:]",
    LOOK: ":orange[:material/help:]",
    BAD: ":red[:material/error:]",
    "": ":gray[:material/hourglass_empty:]",
}
NAMES, WIDE = 130, 180  # pixels of the columns of names and of examples
GRADIENTS = "gradients"
MEASURED = {"stuck gates": "saturation", "drift": "gates", GRADIENTS: "gradient_flow"}


class Row(NamedTuple):
    """A row of the table of recordings."""

    recording: str
    module: str
    cell: str
    layers: int
    directions: int
    units: int
    sequences: int
    steps: int
    problem: str


def show(view: View) -> None:
    st.text(" · ".join(what_it_is(view.recording)))
    for remark in summary.remarks(view.recording):
        st.text(f"⚠ {remark}")
    late = show_health(view)
    show_findings(view, late)


def what_it_is(recording: xr.Dataset) -> list[str]:
    """Module, cell and size."""
    sizes = recording.sizes
    steps = int(recording["length"].sum())
    counts = [
        *((sizes[dim], dim) for dim in ("layer", "direction", "unit", "sequence")),
        (steps, "step"),
    ]
    parts = [f"{count:,} {what}{'s' * (count != 1)}" for count, what in counts]
    return [f"{recording.attrs['module']}: {recording.attrs['cell']}", *parts]


def show_health(view: View) -> Any:
    """What must be known before a recording is believed, at once; returned is the place of what takes longer."""
    st.subheader("Health", anchor=False)
    chooser.reading("Whether the recording can be believed, and what in the network stands out. Details: the links.")
    for check in cheap(view.recording):
        show_check(st, check)
    for check in counted(view):
        show_check(st, check)
    late = st.empty()
    with late.container():
        show_check(st, Check(GRADIENTS, "", "are looked at with the findings"))
    return late


def cheap(recording: xr.Dataset) -> Iterator[Check]:
    """What the attributes and lengths say."""
    yield certificate(recording)
    yield mode(recording)
    said = str(recording.attrs.get("nonfinite", ""))
    if said:
        yield Check("finite values", BAD, f"not all: {said}")
    else:
        yield Check("finite values", GOOD, "every value is a number")
    yield padding(recording)
    if check := stride(recording):
        yield check


def counted(view: View) -> Iterator[Check]:
    """What is counted over all steps of all layers and directions."""
    for name, measure, look in (("stuck gates", saturation, stuck), ("drift", drift, running_away)):
        result = results.of(view, measure, everywhere=True)
        yield Check(name, "", result) if isinstance(result, str) else look(result)


def show_check(container: Any, check: Check) -> None:
    row = container.container(horizontal=True, gap="small", vertical_alignment="top")
    row.markdown(f"{SIGNS[check.state]} {summary.escaped(check.name)}", width=NAMES)
    row.container(width="stretch").text(check.said)
    if check.name in MEASURED:
        page = MEASURED[check.name]
        chooser.link(row, page, f"{findings.TITLES[page]} →")


def show_findings(view: View, late: Any) -> None:
    """The findings of `describe`, each with a link to the page that shows it."""
    st.subheader("Findings", anchor=False)
    chooser.reading(
        "What all measures have to say, the largest effect first. An effect is from 0 to 1; p is corrected over all "
        "units that were looked at."
    )
    small = findings.small(view.recording)
    if not small and not choices.choose_whether("Look for findings: this may take minutes", name="look"):
        return
    bar = st.progress(0.0, "Looking ...")

    def tell(share: float, what: str) -> None:
        bar.progress(share, f"Looking at {what} ...")

    result = findings.look(view, tell)
    bar.empty()
    with late.container():
        show_check(st, gradients(view, result))
    if isinstance(result, str):
        chooser.nothing("Findings cannot be had from this recording.", result)
        return
    if not result.sizes["finding"]:
        st.info("Nothing stands out: no measure found an effect beyond chance or beyond its threshold.")
    for number in range(result.sizes["finding"]):
        show_finding(view, result.isel(finding=number))
    if (left := int(result.attrs["found"]) - result.sizes["finding"]) > 0:
        st.caption(f"{left:,} smaller findings are left out; `gs.describe(recording, most=...)` returns them.")
    ways_out.show(
        f"findings-{view.module}",
        code=view.code("found = gs.describe(recording)", "for text in found['text'].values:", "    print(text)"),
        tables={"findings": lambda: result.to_dataframe()},
        results={"findings": result},
    )


def gradients(view: View, result: xr.Dataset | str) -> Check:
    """What the findings say of gradients, in all layers and directions."""
    if "weight_hh" not in view.recording and "step_jacobian" not in view.recording:
        return Check(GRADIENTS, "", "cannot be followed: the recurrent weights were not recorded")
    found = findings.by(view, "gradients")
    if isinstance(result, str):
        return Check(GRADIENTS, "", "not looked at")
    if not findings.gradients_followed(view):
        return Check(GRADIENTS, "", "cannot be followed: no layer has two finite steps in a row and all that it takes")
    if not found:
        return Check(GRADIENTS, GOOD, "neither vanishing nor exploding where they could be followed")
    said = [finding.text.removeprefix("Gradients are ").split(":")[0] for finding in found]
    bad = any(text.startswith("exploding") for text in said)
    return Check(GRADIENTS, BAD if bad else LOOK, "; ".join(said))


def show_finding(view: View, finding: xr.Dataset) -> None:
    page, asked = findings.link(view, finding)
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        with st.container(width="stretch", gap=None):
            st.text(finding["text"].item())
            st.caption(summary.escaped(grounds(finding)))
        chooser.link(st, page, f"{findings.TITLES[page]} →", **asked)


def grounds(finding: xr.Dataset) -> str:
    """How large, and why it is said."""
    effect, p = float(finding["effect"]), float(finding["p"])
    why = finding["grounds"].item() if p != p else f"p = {p:.1e} against {finding['grounds'].item()}"
    return f"{finding['effect_of'].item()} {effect:.2f} · {why} · {finding['measure'].item()}"


def show_recordings() -> None:
    """All that can be chosen: recordings in the folders, and the examples."""
    st.subheader("Recordings", anchor=False)
    entries = catalogue.find(chooser.folders())
    rows = [row for entry in entries for row in rows_of(entry)]
    if rows:
        table = pd.DataFrame(rows)
        st.dataframe(
            table.drop(columns=[] if any(row.problem for row in rows) else ["problem"]),
            key="recordings",
            hide_index=True,
            on_select=lambda: take_recording(table),
            selection_mode="single-row",
        )
        st.caption("Tick a row to look at that recording.")
    st.text("Small trained networks that come with gatescope, recorded at once:")
    for entry in catalogue.embedded():
        row = st.container(horizontal=True, vertical_alignment="center")
        row.button(
            entry.example, key=f"take-{entry.name}", on_click=choices.take, args=("recording", entry.name), width=WIDE
        )
        row.container(width="stretch").text(examples()[entry.example])


def rows_of(entry: catalogue.Entry) -> Iterator[Row]:
    opened = catalogue.recordings(entry)
    if opened.problem:
        yield Row(entry.name, "", "", 0, 0, 0, 0, 0, opened.problem)
    for module, recording in opened.modules.items():
        layers, directions, units, sequences = (
            recording.sizes[dim] for dim in ("layer", "direction", "unit", "sequence")
        )
        steps = int(recording["length"].sum())
        yield Row(entry.name, module, recording.attrs["cell"], layers, directions, units, sequences, steps, "")


def take_recording(table: pd.DataFrame) -> None:
    rows = st.session_state["recordings"]["selection"]["rows"]
    if rows:
        choices.take("recording", table["recording"].iloc[rows[0]])
        if table["module"].iloc[rows[0]]:
            choices.take("module", table["module"].iloc[rows[0]])


if __name__ == "__main__":
    if chooser.page("Overview", show, place=False, sequence=False, labels=False):
        show_recordings()
