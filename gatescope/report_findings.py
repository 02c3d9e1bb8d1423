"""How to see each finding: the picture of the report that shows it, and the line of code that draws it."""

import xarray as xr

from .report_code import Line
from .report_pictures import ALIGNMENT, DRIFT, EVENTS, FLOW, SAMPLES, SATURATION, SCALES, SHIFTS
from .report_view import RECORDING, text_labels


def see(finding: xr.Dataset, recording: xr.Dataset) -> tuple[str, Line | None]:
    """The name of the picture, and a line that draws it for the finding's own layer and direction."""
    measure, label = str(finding["measure"].item()), label_of(finding, recording)
    layer, direction = int(finding["layer"]), str(finding["direction"].item())
    place: dict[str, int | str] = {} if layer < 0 else {"layer": layer, "direction": direction}
    whole = {"saturation": SATURATION, "drift": DRIFT, "timescales": SCALES, "gradient_flow": FLOW}
    if measure in whole:
        return measure.replace("_", "-"), Line("", f"gs.plot_{measure}", (nested(whole[measure]),), place)
    events = nested(EVENTS)
    if measure == "alignment":
        aligned = Line("", ALIGNMENT.call, (events,), ALIGNMENT.options)
        return measure, Line("", "gs.plot_alignment", (aligned,), place)
    if measure == "roles":
        given = (RECORDING,) if label is None else (RECORDING, label)
        return measure, Line("", "gs.plot_roles", (Line("", "gs.roles", given, {"samples": SAMPLES}),), place)
    if measure == "triggers" and label is not None:
        found = Line("", "gs.triggers", (events, label))
        return f"triggers-{label}", Line("", "gs.plot_triggers", (found,), place)
    if measure == "selectivity" and label is not None:
        return f"selectivity-{label}", selective(label, place, str(finding["text"].item()))
    return "", None


def selective(label: str, place: dict[str, int | str], text: str) -> Line:
    """The picture of the signal that the finding names first."""
    measured = Line("", "gs.selectivity", (RECORDING, label), {"shifts": SHIFTS})
    return Line("", "gs.plot_selectivity", (measured,), {"signal": text.split(" ", 1)[0], **place})


def nested(line: Line) -> Line:
    return Line("", line.call, line.given, line.options)


def label_of(finding: xr.Dataset, recording: xr.Dataset) -> str | None:
    """The label that a finding speaks of, which stands as a word in its text; else the first one."""
    labels, text = text_labels(recording), str(finding["text"].item())
    named = [label for label in labels if f" {label} " in text or f" {label}," in text]
    return max(named, key=len) if named else labels[0] if labels else None
