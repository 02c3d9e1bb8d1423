"""Which curves of gradient flow are drawn beside each other, what each says, and the code that counts them again."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from ..probe.analyzers.gradient_flow import gradient_flow
from . import catalogue, summary
from .chooser import View
from .flow_figures import Curve, curve_of

JUDGED = "what the verdict is about"
USUAL = 16  # sequences that are followed unless it costs too much or the reader wants others
BUDGET = 4e11  # operations from which fewer are followed
MOST_CURVES = 6


class Line(NamedTuple):
    """One curve: its label, the run that it is of, and its result at that layer and direction."""

    label: str
    view: View
    result: xr.Dataset


def flow(recording: xr.Dataset, *, most: int) -> xr.Dataset:
    """`gradient_flow` along the longest sequences."""
    return gradient_flow(recording.isel(sequence=longest(recording, most)))


def shares(recording: xr.Dataset, *, sequence: int) -> xr.Dataset:
    """`gradient_flow` of single steps along one sequence."""
    return gradient_flow(recording.sel(sequence=[sequence]), horizons=[1], end=-1)


def longest(recording: xr.Dataset, most: int) -> list[int]:
    """Places of the longest sequences, in their order.

    >>> longest(xr.Dataset(coords={"length": ("sequence", [3, 9, 5])}), 2)
    [1, 2]
    """
    order = np.argsort(-recording["length"].to_numpy(), kind="stable")
    return [int(at) for at in np.sort(order[:most])]


def amounts(recording: xr.Dataset) -> tuple[list[int], int]:
    """Numbers of sequences to choose from, and how many are usual: fewer where each costs much."""
    count, steps = recording.sizes["sequence"], int(recording["length"].max())
    found = [number for number in (1, 4, 16, 64, 256) if number < count]
    found = [*found, count]
    each = 128.0 * steps * (2.0 * recording.sizes["unit"]) ** 2
    fit = min(USUAL, int(BUDGET // max(1.0, each)))
    return found, max([number for number in found if number <= fit], default=found[0])


def others(view: View, entry: catalogue.Entry) -> View | str:
    """The run of another recording that compares with the one on view: same module, layer and direction if there."""
    opened = catalogue.recordings(entry)
    if opened.problem or not opened.modules:
        return opened.problem or "It holds no module."
    module = view.module if view.module in opened.modules else next(iter(opened.modules))
    recording = opened.modules[module]
    layers, directions = recording["layer"].values.tolist(), recording["direction"].values.tolist()
    return view._replace(
        entry=entry,
        tree=opened.tree,
        module=module,
        recording=recording,
        layer=view.layer if view.layer in layers else layers[0],
        direction=view.direction if view.direction in directions else directions[0],
        labels=None,
    )


def places_of(view: View) -> list[View]:
    """Every layer and direction of the recording on view, that on view first."""
    places = [
        view._replace(layer=layer, direction=direction)
        for layer in view.recording["layer"].values.tolist()
        for direction in view.recording["direction"].values.tolist()
    ]
    return sorted(places, key=lambda one: one.place != view.place)


def label_of(view: View, first: View) -> str:
    """What the legend calls a run: only what differs from the one on view, which is called by all it is."""
    parts = [view.entry.name]
    if view.tree:
        parts.append(view.module)
    if view.recording.sizes["layer"] > 1 or view.layer != first.layer:
        parts.append(f"layer {view.layer}")
    if view.recording.sizes["direction"] > 1 or view.direction != first.direction:
        parts.append(view.direction)
    return ", ".join(map(str, parts))


def curves_of(lines: Sequence[Line], block: str | None, norm: str) -> dict[str, Curve]:
    """The curves that can be drawn: of results that have the block."""
    found = {}
    for line in lines:
        chosen = block or str(line.result.attrs["judged_block"])
        if chosen in line.result["block"].values.tolist():
            found[line.label] = curve_of(line.result, chosen, norm)
    return found


def rows(lines: Sequence[Line]) -> pd.DataFrame:
    """A row per curve: half-life, horizons, slope and verdict of the block that is judged."""
    found = []
    for line in lines:
        reach = line.result["effective_horizon"].to_numpy()
        found.append(
            {
                "recording": line.label,
                "cell": str(line.result.attrs.get("cell", "")),
                "verdict": str(line.result["verdict"].item()),
                "half_life": float(line.result["half_life"]),
                "to_1_percent": float(reach[0]),
                "to_float32": float(reach[1]),
                "slope": float(line.result["slope"]),
                "longest": int(line.result["horizon"].values[-1]),
                "judged": str(line.result.attrs["judged_block"]),
            }
        )
    return pd.DataFrame(found)


def sentence(line: Line) -> str:
    """What one curve says."""
    half, slope = float(line.result["half_life"]), float(line.result["slope"])
    longest_one = int(line.result["horizon"].values[-1])
    left = (
        f"half is left after {half:,.1f} steps" if np.isfinite(half) else f"more than half is left at {longest_one:,}"
    )
    rate = f", then a factor {10**slope:.3g} per step" if np.isfinite(slope) else ""
    return f"{line.label}: {line.result['verdict'].item()}, {left}{rate}."


def code_lines(lines: Sequence[Line], most: Mapping[str, int], block: str | None, norm: str) -> list[str]:
    """Python that counts and draws the curves; `recording` is that of the first, narrowed to its place."""
    found = [
        f"longest = recording.isel(sequence={longest(lines[0].view.recording, most[lines[0].label])})",
        "flow = gs.gradient_flow(longest)",
    ]
    names = {lines[0].label: "flow"}
    for number, line in enumerate(lines[1:], start=2):
        view = line.view
        opening = [text for text in summary.opening(view.entry, view.module if view.tree else None) if text]
        opening = [text for text in opening if text != "import torch"]
        place = f"layer=[{view.layer}], direction=[{view.direction!r}], "
        found += ["", *opening, f"other = recording.sel({place[:-2]})"]
        found += [f"other = other.isel(sequence={longest(view.recording, most[line.label])})"]
        found += [f"flow_{number} = gs.gradient_flow(other)"]
        names[line.label] = f"flow_{number}"
    results = ", ".join(f"{label!r}: {name}" for label, name in names.items())
    asked = (f", block={block!r}" if block else "") + (f", norm={norm!r}" if norm != "frobenius" else "")
    return [*found, "", f"gs.plot_gradient_flow({{{results}}}{asked})"]
