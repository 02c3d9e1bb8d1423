"""The page of a report: a section per module, from what was found to the pictures and the code that draws them."""

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from . import report_html as html
from .probe.analyzers.describe import conclude
from .probe.analyzers.findings import FINDERS
from .probe.analyzers.known import Known
from .probe.schema import label_names
from .report_code import Refused, Space, ensure
from .report_findings import see
from .report_health import health
from .report_pictures import DRIFT, FLOW, SATURATION, WIDE, Picture, drawn, found_on_the_way, pictures
from .report_view import Part, bounded, look
from .signals import VERSION

LIMIT = 4_500_000  # bytes of all pictures of one report, written as text
RESERVED = 150_000  # of them for each picture that is still to come
RESOLUTIONS = (110, 80, 55)  # dots per inch, from the first down to what fits
FINDINGS = 20
OWN_ATTRS = ("module", "cell", "retention", "gatescope_version", "training", "created", "measure", "reason")

Say = Callable[[str], None]


class Opened(NamedTuple):
    """What a report is about: recordings by module, and the code that gives the variable `recording` for one."""

    modules: Mapping[str, xr.Dataset]
    code: Callable[[str], str]
    name: str


def page(opened: Opened, *, values: int, say: Say, notes: Sequence[str] = (), before: str = "") -> str:
    """The whole file as text; `notes` are sentences to begin with, `before` is HTML that comes before the sections."""
    names = list(opened.modules)
    title = f"gatescope report: {names[0] if len(names) == 1 else opened.name}"
    sections = []
    for number, name in enumerate(names):
        say(f"{name} ({opened.modules[name].attrs['cell']})")
        part = bounded(opened.modules[name], values)
        sections.append(Section(number, name, part, opened.code(name), LIMIT // len(names)).written(say))
    body = [f"<header><h1>{html.said(title)}</h1>", html.paragraph(opened.name, "soft")]
    body += [html.paragraph(note, "warning") for note in notes]
    body += [menu([(f"m{number}", name) for number, name in enumerate(names)]) if len(names) > 1 else "", "</header>"]
    made = f"Written by gatescope {VERSION}. Everything is in this file: it fetches nothing and runs no script."
    foot = f"<footer>{html.paragraph(made, 'soft')}</footer>"
    return html.document(title, "\n".join([*body, before, *sections, foot]))


def menu(places: Sequence[tuple[str, str]]) -> str:
    items = "".join(f'<li><a href="#{place}">{html.said(name)}</a></li>' for place, name in places)
    return f"<nav><ul>{items}</ul></nav>"


class Section(NamedTuple):
    """What is said of one module."""

    number: int
    name: str
    part: Part
    opening: str
    room: int

    def written(self, say: Say) -> str:
        recording, space = self.part.recording, Space(recording=self.part.recording)
        for line in (SATURATION, DRIFT, FLOW):
            say(f"  {line.call.removeprefix('gs.').replace('_', ' ')}")
            ensure((line,), space)
        found = described(recording, space, say)
        refusal = found if isinstance(found, str) else ""
        table = None if isinstance(found, str) else found
        view = look(recording, table)
        shown = list(pictures(recording, view, space))
        blocks = [
            f'<section id="m{self.number}"><h2>{html.said(self.name)} ({html.said(recording.attrs["cell"])})</h2>',
            html.paragraph(self.part.said, "warning") if self.part.said else "",
            html.pairs(facts(recording)),
            "<h3>Health</h3>",
            checks(recording, space),
            "<h3>Findings</h3>",
            html.paragraph(refusal) if table is None else self.findings(table, shown),
            f'<h3 id="{html.anchor("m", self.number, "pictures")}">Pictures</h3>',
            html.paragraph("The code below a picture draws it, after these lines:"),
            html.code("\n".join([self.opening, *(line.text() for line in self.part.lines)])),
            f'<div class="pictures">{"".join(self.pictures(shown, space, say))}</div>',
            "<h3>Parameters</h3>",
            parameters(space),
            "</section>",
        ]
        return "\n".join(block for block in blocks if block)

    def findings(self, found: xr.Dataset, shown: Sequence[Picture]) -> str:
        if not found.sizes["finding"]:
            return html.paragraph("No measure found anything beyond its threshold and beyond chance.")
        there = {picture.name for picture in shown}
        items = [self.finding(found.isel(finding=at), there) for at in range(found.sizes["finding"])]
        count = int(found.attrs["found"])
        more = f"{found.sizes['finding']} of {count} findings" if count > len(items) else f"{count} findings"
        intro = f"{more}, the largest effect first. Effects go from 0 to 1; p is corrected over all units."
        return html.paragraph(intro) + f'<ol class="findings">{"".join(items)}</ol>'

    def finding(self, one: xr.Dataset, there: set[str]) -> str:
        effect, p = float(one["effect"]), float(one["p"])
        grounds = f"{one['grounds'].item()}" if np.isnan(p) else f"p {p:.1g} against {one['grounds'].item()}"
        width = f"{100 * min(1.0, max(0.0, effect)):.0f}"
        meter = f'<span class="meter" aria-hidden="true"><span style="width:{width}%"></span></span>'
        name, line = see(one, self.part.recording)
        place = html.anchor("m", self.number, name)
        link = f' · <a href="#{place}">see the picture</a>' if name in there else ""
        how = f"<p><code>{html.whole(line.expression())}</code></p>" if line else ""
        about = f"effect {effect:.2f} ({one['effect_of'].item()}) · {grounds}"
        return f'<li>{html.paragraph(one["text"].item())}<p class="soft">{meter}{html.said(about)}{link}</p>{how}</li>'

    def pictures(self, shown: Sequence[Picture], space: Space, say: Say) -> list[str]:
        blocks, room = [], self.room
        for place, picture in enumerate(shown):
            say(f"  picture: {picture.title}")
            name = html.anchor("m", self.number, picture.name)
            try:
                inside = pictured(picture, space, room - RESERVED * (len(shown) - 1 - place))
            except ValueError as error:
                why = html.paragraph(f"No picture: {' '.join(str(error).split())}")
                blocks.append(html.figure(name, picture.title, why, wide=False))
                continue
            room -= len(inside)
            caption = html.paragraph(picture.reading)
            if picture.shows is not None:
                caption = html.paragraph(picture.shows(space)) + caption
            below = f"<figcaption>{caption}</figcaption>{html.code(picture.code())}"
            blocks.append(html.figure(name, picture.title, inside + below, wide=picture.size == WIDE))
        return blocks


def described(recording: xr.Dataset, space: Space, say: Say) -> xr.Dataset | str:
    """What `describe` finds, or the sentence that says why it finds nothing."""
    known, found = Known(recording), []
    if isinstance(space["flow"], xr.Dataset):
        known.gradients = space["flow"]
    try:
        for finder in FINDERS:
            say(f"  looking at {finder.__name__.replace('_', ' ')}")
            found += list(finder(known))
        space.update(found_on_the_way(known))
    except ValueError as error:
        return f"Nothing can be said: {' '.join(str(error).split())}"
    return conclude(recording, found, FINDINGS)


def pictured(picture: Picture, space: Space, room: int) -> str:
    """The picture as large as fits; where none does, a sentence."""
    figure = drawn(picture, space)
    for resolution in RESOLUTIONS:
        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a name in a script of no installed font
            figure.savefig(file, format="png", dpi=resolution, metadata={"Software": None})
        if 4 * len(file.getvalue()) / 3 <= room:
            return html.image(file.getvalue(), picture.alt)
    return html.paragraph("Left out, so that this file stays small. The code below draws it.")


def facts(recording: xr.Dataset) -> list[tuple[str, object]]:
    """The certificate in short, and what was recorded."""
    attrs, sizes = recording.attrs, recording.sizes
    parity, tolerance = float(attrs["parity"]), float(attrs["tolerance"])
    within = "within" if parity <= tolerance else "NOT within"
    steps = int(np.minimum(recording["length"].to_numpy(), sizes["time"]).sum())
    shape = [("layer", "layers"), ("direction", "directions"), ("unit", "units"), ("sequence", "sequences")]
    counted = [f"{sizes[one]:,} {one if sizes[one] == 1 else many}" for one, many in shape]
    signals = [str(name) for name, values in recording.data_vars.items() if "role" in values.attrs]
    return [
        ("parity", f"{parity:.1e} of the largest state, {within} its tolerance of {tolerance:g}"),
        ("recorded", f"{', '.join(counted)}, {steps:,} steps"),
        ("signals", ", ".join(signals)),
        ("labels", ", ".join(label_names(recording)) or "none"),
        ("memory is kept by", attrs["retention"]),
        ("created", attrs["created"]),
        ("versions", f"gatescope {attrs['gatescope_version']}, torch {attrs['torch_version']}"),
    ]


def checks(recording: xr.Dataset, space: Space) -> str:
    rows = list(health(recording, space))
    words = {"good": "✓ good", "look": "● look", "bad": "✗ bad"}
    return html.table(
        ("", "", ""),
        [(words[row.state], row.name, row.said) for row in rows],
        kinds=[row.state for row in rows],
    )


def parameters(space: Space) -> str:
    """What each measure was called with, from its result's own attributes, and what it says of itself."""
    rows = []
    for result in space.values():
        if isinstance(result, xr.Dataset) and "measure" in result.attrs:
            attrs = {key: value for key, value in result.attrs.items() if key not in OWN_ATTRS and value != ""}
            measure = str(result.attrs["measure"])
            label = str(attrs.pop("labels", ""))
            said = ", ".join(
                f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in attrs.items()
            )
            rows.append((measure + (f" ({label})" if label else ""), said))
    rows = list(dict.fromkeys(rows))
    refused = [result.why for result in space.values() if isinstance(result, Refused)]
    return html.table(("measure", "with"), rows) + "".join(
        html.paragraph(why, "soft") for why in dict.fromkeys(refused)
    )
