"""The demo's reports: what the general report says, with the demo's own findings before it."""

import io
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

import xarray as xr
from matplotlib.figure import Figure

from . import report_html as html
from .report_file import take
from .report_page import page
from .report_view import VALUES

DPI = 80  # of the demo's own pictures in the page


def write_report(
    recording: xr.Dataset,
    path: Path,
    shown: str,
    text: str,
    figures: Mapping[str, Figure],
    *,
    values: int | None = None,
) -> None:
    """Write the report of a recording that will lie at `shown`, with a text in Markdown and pictures by caption."""
    opening = f"import gatescope as gs\n\nrecording = gs.open_recording({shown!r})"
    opened, notes = take(recording, opening, shown, None)
    own = "".join([*blocks(text), *(pictured(caption, figure) for caption, figure in figures.items())])
    before = f"<section><h2>What the demo looked for</h2>{own}</section>"
    written = page(opened, values=values or VALUES, say=lambda line: None, notes=notes, before=before)
    path.write_text(written, encoding="utf-8")


def pictured(caption: str, figure: Figure) -> str:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI, metadata={"Software": None})
    return html.figure(html.anchor("demo", caption), caption, html.image(file.getvalue(), caption), wide=True)


def blocks(text: str) -> Iterator[str]:
    """The Markdown that the demo writes, as HTML: headings, paragraphs, lists and tables; all else is text.

    >>> list(blocks("## A\\n\\none\\ntwo <b>\\n\\n- x\\n- y"))
    ['<h3>A</h3>', '<p>one two &lt;b&gt;</p>', '<ul><li>x</li><li>y</li></ul>']
    """
    lines = text.splitlines()
    for kind, group in groupby(lines, key=kind_of):
        some = list(group)
        if kind == "#":
            yield from (f"<h3>{html.said(line.lstrip('# '))}</h3>" for line in some)
        elif kind == "-":
            yield f"<ul>{''.join(f'<li>{html.said(line[2:])}</li>' for line in some)}</ul>"
        elif kind == "|":
            header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in some)
            yield html.table(header, rows)
        elif kind:
            yield html.paragraph(" ".join(some))


def kind_of(line: str) -> str:
    return next((sign for sign in ("#", "- ", "|") if line.startswith(sign)), "text" if line.strip() else "").strip()
