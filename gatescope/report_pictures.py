"""The pictures of a report: for each the code that draws it, how to read it, and what it shows here."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import xarray as xr
from matplotlib.figure import Figure
from matplotlib.text import Text

from . import report_numbers as numbers
from .probe.analyzers.known import Known
from .report_captions import reading
from .report_code import Formula, Line, Name, Refused, Space, ensure
from .report_html import anchor
from .report_view import RASTER, RECORDING, View, has_boundaries, text_labels
from .signals import GATE_ROLES, retention_form

SAMPLES, SHIFTS = 50, 1  # of roles and selectivity, as `describe` takes them
MOST_LINES = 6  # of averages around resets
WIDE, SQUARE, BROAD = (11.5, 4.6), (6.6, 6.4), (7.6, 5.2)

PART, EVENTS_FOUND = Name("part"), Name("events")
SATURATION = Line("saturation", "gs.saturation", (RECORDING,))
EVENTS = Line("events", "gs.resets", (RECORDING,))
ALIGNMENT = Line("alignment", "gs.alignment", (EVENTS_FOUND,), {"tolerance": 1})
DRIFT = Line("drift", "gs.drift", (RECORDING,))
FLOW = Line("flow", "gs.gradient_flow", (RECORDING,))
SCALES = Line("timescales", "gs.timescales", (RECORDING,), {"jacobian": False})


class Picture(NamedTuple):
    """One picture: `lines` give what `draw` draws; `reading` says how to read it, `shows` what is to be seen."""

    name: str
    title: str
    lines: tuple[Line, ...]
    draw: Line
    reading: str
    alt: str
    size: tuple[float, float] = BROAD
    panels: int = 0  # Axes that the call takes as `axes`; where 0, it takes one as `ax`
    shows: Callable[[Space], str] | None = None

    def code(self) -> str:
        return "\n".join(line.text() for line in (*self.lines, self.draw))


def drawn(picture: Picture, space: Space) -> Figure:
    """Draw a picture on a figure of its own; ValueError where there is nothing to draw, with the reason."""
    ensure(picture.lines, space)
    figure = Figure(figsize=picture.size, layout="constrained")
    if picture.panels:
        grid = figure.subplots(picture.panels, sharex=True, squeeze=False)
        picture.draw.run(space, axes=list(grid[:, 0]))
    else:
        picture.draw.run(space, ax=figure.subplots())
    for text in figure.findobj(Text):
        words = text.get_text()
        if "$" in words and not words.startswith("$\\mathdefault{") and not words.startswith("$10^{"):
            text.set_parse_math(False)  # somebody's name is no formula
    return figure


def pictures(recording: xr.Dataset, view: View, space: Space) -> Iterator[Picture]:
    """What is worth a look in this recording, from the signals themselves to what measures make of them."""
    labels = text_labels(recording)
    ensure((EVENTS,), space)
    has_events = not isinstance(space["events"], Refused) and space["events"].sizes["event"] > 0
    yield heatmap(recording, view)
    if view.units:
        yield traces(recording, view)
    yield resets(recording, view)
    if has_boundaries(recording) and has_events:
        yield alignment()
    if has_events:
        yield around(view, numbers.busiest(space["events"], view.place, MOST_LINES))
        yield from (triggers(view, label) for label in labels)
    yield from (selectivity(label) for label in labels)
    if any(values.attrs.get("role") in GATE_ROLES for values in recording.data_vars.values()):
        yield saturation()
    yield timescales()
    yield roles(labels[0] if labels else None)
    yield drift()
    yield gradient_flow()
    if retention_form(str(recording.attrs["retention"]))[0] != "none":
        yield cell_path(view)


def heatmap(recording: xr.Dataset, view: View) -> Picture:
    form, name = retention_form(str(recording.attrs["retention"]))
    keep = {"signal": " At 1 the old memory is kept, at 0 dropped.", "complement": " At 0 the old memory is kept."}
    return Picture(
        "heatmap",
        f"{view.signal} over time",
        window(view),
        Line("axes", "gs.plot_signal", (PART, view.signal), view.run),
        reading("heatmap", keep=keep[form] if name == view.signal else "", boundaries=notes(recording, view)),
        f"Heatmap of {view.signal} of layer {view.layer}, {view.direction}, sequence {view.sequence}: "
        f"{recording.sizes['unit']} units over {view.steps} steps.",
        WIDE,
    )


def window(view: View) -> tuple[Line, ...]:
    return (Line("part", "recording.isel", (), {"time": slice(0, view.steps)}),)


def notes(recording: xr.Dataset, view: View, *, steps: int = 0) -> str:
    """What else must be known to read a picture over time."""
    shown = steps or view.steps
    said = " Lines stand before steps at which a segment begins." if has_boundaries(recording) else ""
    said += " This direction reads from right to left." if view.direction == "backward" else ""
    return said + (f" These are the first {shown} of {view.length:,} steps." if shown < view.length else "")


def traces(recording: xr.Dataset, view: View) -> Picture:
    units = [int(unit) for unit in view.units]
    return Picture(
        "traces",
        "Telling units over time",
        window(view),
        Line("panels", "gs.plot_traces", (PART, units), view.run),
        reading("traces", boundaries=notes(recording, view)),
        f"Lines of unit{'s' * (len(units) > 1)} {', '.join(map(str, units))} of layer {view.layer}, {view.direction}, "
        f"over {view.steps} steps of sequence {view.sequence}: what keeps the memory above the memory.",
        WIDE,
        panels=trace_panels(recording),
    )


def trace_panels(recording: xr.Dataset) -> int:
    """How many panels `plot_traces` draws by itself."""
    form, name = retention_form(str(recording.attrs["retention"]))
    gate = form in ("signal", "complement") and name in recording
    memory = any(values.attrs.get("role") == "memory" for values in recording.data_vars.values())
    return max(1, int(gate) + int(memory))


def saturation() -> Picture:
    return Picture(
        "saturation",
        "Which gates are stuck",
        (SATURATION,),
        Line("axes", "gs.plot_saturation", (Name("saturation"),)),
        reading("saturation"),
        "Scatter of the shares of steps on which each unit's gates are nearly shut and nearly open.",
        SQUARE,
        shows=numbers.verdicts,
    )


def resets(recording: xr.Dataset, view: View) -> Picture:
    steps = min(view.length, RASTER)
    among = Formula(f"events['onset'].values < {steps}", lambda space: space["events"]["onset"].to_numpy() < steps)
    early = {"time": slice(0, steps), "event": among}
    cut = (Line("early", "events.isel", (), early),) if steps < view.length else ()
    return Picture(
        "resets",
        "When units throw their memory away",
        (EVENTS, *cut),
        Line("axes", "gs.plot_resets", (Name("early") if cut else EVENTS_FOUND,), view.run),
        reading("resets", boundaries=notes(recording, view, steps=steps)),
        f"Raster of reset events of layer {view.layer}, {view.direction}, sequence {view.sequence}.",
        WIDE,
        shows=numbers.events,
    )


def alignment() -> Picture:
    return Picture(
        "alignment",
        "Are resets where segments begin",
        (EVENTS, ALIGNMENT),
        Line("axes", "gs.plot_alignment", (Name("alignment"),)),
        reading("alignment"),
        "Scatter of precision and recall of every unit's resets against the boundaries of segments.",
        SQUARE,
        shows=numbers.aligned,
    )


def around(view: View, units: list[int]) -> Picture:
    options = {**view.place, "units": units} if units else view.place
    return Picture(
        "around",
        "Around a reset",
        (EVENTS, Line("average", "gs.event_average", (RECORDING, EVENTS_FOUND))),
        Line("panels", "gs.plot_event_average", (Name("average"),), options),
        reading("around"),
        f"Mean gate and memory around the onset of resets in layer {view.layer}, {view.direction}.",
        SQUARE,
        panels=2,
    )


def triggers(view: View, label: str) -> Picture:
    found = variable_of("triggers", label)
    return Picture(
        f"triggers-{label}",
        f"What sets resets off: {label}",
        (EVENTS, Line(found, "gs.triggers", (EVENTS_FOUND, label))),
        Line("axes", "gs.plot_triggers", (found,), view.place),
        reading("triggers"),
        f"Bars: how often units of layer {view.layer}, {view.direction} reset at each {label}.",
    )


def found_on_the_way(known: Known) -> Space:
    """Results of lines below that the findings needed too."""
    labels = text_labels(known.recording)
    role = known.roles(labels[0] if labels else None, SAMPLES)
    return {
        "events": known.events,
        "roles": role,
        **{variable_of("selectivity", label): known.selectivity(label) for label in labels},
    }


def variable_of(measure: str, label: str) -> Name:
    """A variable for what a measure says of a label, whatever the label is called."""
    return Name(f"{measure}_of_{anchor(label).replace('-', '_')}")


def selectivity(label: str) -> Picture:
    found = variable_of("selectivity", label)
    return Picture(
        f"selectivity-{label}",
        f"What units stand for: {label}",
        (Line(found, "gs.selectivity", (RECORDING, label), {"shifts": SHIFTS}),),
        Line("axes", "gs.plot_selectivity", (found,)),
        reading("selectivity"),
        f"Points: how well each unit tells each {label} from the others.",
        WIDE,
    )


def timescales() -> Picture:
    return Picture(
        "timescales",
        "How long units remember",
        (SCALES,),
        Line("axes", "gs.plot_timescales", (Name("timescales"),)),
        reading("timescales"),
        "Scatter of the time scale of each unit's gate and the autocorrelation of its memory.",
        SQUARE,
    )


def roles(label: str | None) -> Picture:
    given = (RECORDING,) if label is None else (RECORDING, label)
    return Picture(
        "roles",
        "Parts that units play",
        (Line("roles", "gs.roles", given, {"samples": SAMPLES}),),
        Line("axes", "gs.plot_roles", (Name("roles"),)),
        reading("roles"),
        "Map of units: time scale across, resets per 1000 steps upwards, coloured by role.",
        shows=numbers.parts,
    )


def drift() -> Picture:
    return Picture(
        "drift",
        "Do memories run away",
        (DRIFT,),
        Line("axes", "gs.plot_drift", (Name("drift"),)),
        reading("drift"),
        "Trend of the size of every unit's memory late in the sequences, with confidence intervals.",
        shows=numbers.growing,
    )


def gradient_flow() -> Picture:
    return Picture(
        "gradient-flow",
        "How far gradients reach",
        (FLOW,),
        Line("axes", "gs.plot_gradient_flow", (Name("flow"),)),
        reading("gradient-flow"),
        "Curves of how much of a change of the state is left, over the number of steps back.",
        shows=numbers.reach,
    )


def cell_path(view: View) -> Picture:
    return Picture(
        "cell-path",
        "What each unit's own memory keeps",
        (FLOW,),
        Line("axes", "gs.plot_cell_path", (Name("flow"),), view.place),
        reading("cell-path"),
        f"Heatmap of what the memory of each unit of layer {view.layer}, {view.direction} keeps over the steps.",
    )
