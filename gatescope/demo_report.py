"""The demo's findings in words and short tables, the same text for the screen and for findings.md."""

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from .demo_findings import (
    APART,
    AT_LEAST,
    GATE,
    SHUT,
    SPACE,
    Best,
    Findings,
    apart,
    apart_twice,
    runner_up,
    verdict_counts,
)

Row = Sequence[Any]


def report(recording: xr.Dataset, saturated: xr.Dataset, found: Findings) -> str:
    parts = [certificate(recording), stuck_and_switching(saturated), spaces(found), units(found.best), caution(found)]
    return "\n".join(parts)


def certificate(recording: xr.Dataset) -> str:
    attrs, sizes = recording.attrs, recording[GATE].sizes
    gates = [name for name in recording["gate"].to_numpy() if name.endswith("_gate")]
    count = len(gates) * sizes["layer"] * sizes["direction"] * sizes["unit"]
    steps = int(recording["length"].sum())
    sides = f"{sizes['layer']} layers, {sizes['direction']} directions, {sizes['unit']} units"
    return f"""## Certificate

The model ran as it always does. Gates were rebuilt from its own states; put into the cell's equations they give those
states back with an error of at most {attrs["parity"]:.1e} of the largest memory ({attrs["tolerance"]:g} is allowed).

- {sizes["sequence"]} texts, {steps:,} characters; {sides}
- {count:,} gates ({", ".join(gates)}), {count * steps:,} gate values; with all states {recording.nbytes / 1e6:.0f} MB
- gatescope {attrs["gatescope_version"]}, torch {attrs["torch_version"]}
"""


def stuck_and_switching(saturated: xr.Dataset) -> str:
    counts = verdict_counts(saturated)
    gates = counts["signal"].to_numpy().tolist()
    rows = []
    for layer, direction in places(counts):
        at = counts.sel(layer=layer, direction=direction)
        cells = [
            " / ".join(str(int(at.sel(signal=gate, verdict=v))) for v in ("stuck open", "stuck shut", "switching"))
            for gate in gates
        ]
        rows.append((layer, direction, *cells))
    graded, dead = (int(counts.sel(verdict=verdict).sum()) for verdict in ("graded", "dead"))
    low, high, size = saturated.attrs["low"], saturated.attrs["high"], saturated.sizes["unit"]
    header = ("layer", "direction", *(str(gate).replace("_", " ") for gate in gates))
    return f"""## Stuck and switching gates

Units of {size}: stuck open / stuck shut / switching; open is above {high:g}, shut below {low:g}. The other gates:
{graded:,} graded, {dead:,} of dead units.

{table(header, rows)}
"""


def spaces(found: Findings) -> str:
    shuts, twice, opens = apart(found.auc), apart_twice(found.auc), apart(found.auc, opening=True)
    rows: list[Row] = []
    yes: list[str] = []
    no: list[str] = []
    for layer, direction in places(shuts):
        at: dict[str, Any] = {"layer": layer, "direction": direction}
        count, again, opening = (int(values.sel(at | {"character": SPACE})) for values in (shuts, twice, opens))
        (other, highest), (_, open_highest) = runner_up(shuts.sel(at)), runner_up(opens.sel(at))
        rows.append((layer, direction, count, again, opening, open_highest, highest, named(other) if highest else "-"))
        (yes if count > highest else no).append(f"layer {layer} {direction} ({count} against {highest})")
    occurrences = int(found.auc["occurrences"].sel(character=SPACE, half="all"))
    header = ("layer", "direction", "at spaces", "in both halves", "open at spaces", "open, highest other")
    return f"""## Which forget gates shut at spaces

Units whose forget gate is lower at a character than at other steps with an AUC above {APART:g} (0.5: cannot tell,
1: always lower). There are {occurrences} spaces; "highest other" is the character, of those that occur at least
{AT_LEAST} times, with the most such units. Few occurrences make a high AUC easier, so the comparison favours
the others. "Open" counts units that are higher at the character instead.

{table((*header, "shut, highest other", "which"), rows)}

More units shut at spaces than at any other character:

{listing(yes)}

As many or more shut at another one:

{listing(no)}
"""


def units(best: Sequence[Best]) -> str:
    rows = [
        (
            b.layer,
            b.direction,
            b.unit,
            f"{b.chosen:.3f}",
            f"{b.held_out:.3f}",
            f"{b.other_held_out:.3f}",
            named(b.other),
        )
        for b in best
    ]
    header = ("layer", "direction", "unit", "AUC, chosen on", "AUC, held out", "best other", "which")
    return f"""## The units that tell spaces best

Chosen on one half of the texts and measured on the other, beside the best AUC there of any other character.

{table(header, rows)}
"""


def caution(found: Findings) -> str:
    """Why a plain count is no finding: the same count for other characters, of those about as frequent as spaces."""
    often = found.auc["occurrences"].isel(half=0).drop_vars("half")
    frequent = often["character"].to_numpy()[often.to_numpy() >= often.sel(character=SPACE).item() / 2]
    first = found.shut.isel(layer=0)
    lines: list[str] = []
    for direction in first["direction"].to_numpy():
        counts = [
            f"{int(first.sel(direction=direction, character=character))} at every {named(character, letter=False)}"
            for character in frequent
        ]
        lines.append(f"{direction}: {', '.join(counts)}")
    return f"""## A count of shut gates alone proves nothing

Units of layer {int(first["layer"])} whose forget gate is below {SHUT:g} at every occurrence of a frequent character:

{listing(lines)}
"""


def places(counts: xr.DataArray) -> list[tuple[int, str]]:
    directions = counts["direction"].to_numpy().tolist()
    return [(int(layer), str(direction)) for layer in counts["layer"].to_numpy() for direction in directions]


def listing(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines or ("nowhere",))


def named(character: str, *, letter: bool = True) -> str:
    """A character's name and, last, itself: what follows a letter written from right to left changes its place.

    >>> named("ل"), named("ل", letter=False), named(" ")
    ('lam ل', 'lam', 'space')
    """
    name = unicodedata.name(character, f"U+{ord(character):04X}").removeprefix("ARABIC LETTER ").lower()
    return f"{name} {character}" if letter and character != SPACE else name


def table(header: Sequence[str], rows: Sequence[Row]) -> str:
    """A Markdown table whose columns are also aligned as plain text.

    >>> print(table(("unit", "AUC"), [(7, "0.99")]))
    | unit | AUC  |
    | ---- | ---- |
    | 7    | 0.99 |
    """
    texts = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = np.max([[len(text) for text in row] for row in texts], axis=0).tolist()
    texts.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |" for row in texts
    )
