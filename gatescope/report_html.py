"""HTML of one self-contained file. Whatever comes from a recording goes through `said`, so that it is text."""

import base64
from collections.abc import Iterable, Sequence
from html import escape

MOST_LETTERS = 600  # of one text

# No script runs and nothing is fetched, also if something slipped through `said`.
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

STYLE = """
:root {color-scheme: light dark; --page: #ffffff; --card: #f6f7f9; --text: #1a1d21; --soft: #59626d; --line: #d9dde3;
  --link: #0b5cad; --good: #006b4f; --look: #8a5a00; --bad: #b3261e}
@media (prefers-color-scheme: dark) {:root {--page: #15181c; --card: #1f2429; --text: #e8eaed; --soft: #a6afb9;
  --line: #3a414a; --link: #7db8f0; --good: #5fcfa8; --look: #f0bd5a; --bad: #ff8a80}}
* {box-sizing: border-box}
html {-webkit-text-size-adjust: 100%}
body {margin: 0 auto; max-width: 74rem; padding: 1.5rem 1.25rem 4rem; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  overflow-wrap: anywhere}
h1 {font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem}
h2 {font-size: 1.35rem; line-height: 1.25; margin: 2.5rem 0 .75rem; padding-top: .75rem;
  border-top: 1px solid var(--line)}
h3 {font-size: 1.08rem; margin: 1.75rem 0 .5rem}
p {margin: .5rem 0; max-width: 52rem}
a {color: var(--link)}
.soft, figcaption p.soft {color: var(--soft)}
nav ul {display: flex; flex-wrap: wrap; gap: .25rem 1.1rem; list-style: none; padding: 0; margin: .75rem 0}
dl {display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .2rem 1.1rem; margin: .75rem 0}
dt {color: var(--soft)} dd {margin: 0}
ol.findings {padding: 0; margin: 0; list-style: none; counter-reset: finding}
ol.findings > li {counter-increment: finding; position: relative; padding: .6rem 0 .7rem 2.3rem;
  border-bottom: 1px solid var(--line)}
ol.findings > li::before {content: counter(finding); position: absolute; left: 0; top: .6rem; color: var(--soft);
  font-variant-numeric: tabular-nums}
ol.findings p {margin: 0 0 .2rem}
.meter {display: inline-block; width: 4.5rem; height: .5rem; border: 1px solid var(--soft); border-radius: .25rem;
  margin-right: .45rem; overflow: hidden; vertical-align: baseline}
.meter span {display: block; height: 100%; background: var(--link)}
table {border-collapse: collapse; margin: .5rem 0; font-variant-numeric: tabular-nums}
th, td {overflow-wrap: break-word; text-align: left; vertical-align: top;
  padding: .3rem .9rem .3rem 0; border-bottom: 1px solid var(--line)}
th {font-weight: 600; white-space: nowrap}
.scroll {overflow-x: auto}
.good {color: var(--good)} .look {color: var(--look)} .bad {color: var(--bad)}
td.good, td.look, td.bad {font-weight: 600; white-space: nowrap}
.warning {border-left: .25rem solid var(--look); background: var(--card); padding: .5rem .9rem; margin: .75rem 0}
.pictures {display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 1.25rem; align-items: start;
  grid-auto-flow: dense; margin-top: 1.25rem}
.pictures > figure {min-width: 0}
.pictures > figure.wide {grid-column: 1 / -1}
figure {margin: 0; padding: 1rem; background: var(--card); border: 1px solid var(--line); border-radius: .5rem}
figure h3 {margin: 0 0 .6rem}
figure .scroll {background: #fff; border-radius: .3rem}
figure img {display: block; width: 100%; height: auto}
figcaption {font-size: .95rem}
pre {margin: .6rem 0 0; padding: .6rem .75rem; background: var(--page); border: 1px solid var(--line);
  border-radius: .3rem; white-space: pre-wrap; overflow-wrap: anywhere}
pre, code {font: .84rem/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace}
@media (max-width: 52rem) {
  body {padding: 1rem .8rem 3rem}
  .pictures {grid-template-columns: minmax(0, 1fr)}
  figure {padding: .7rem}
  figure.wide img {min-width: 44rem}
  dl {grid-template-columns: minmax(0, 1fr); gap: 0}
  dd {margin-bottom: .4rem}
}
@media print {
  :root {--page: #fff; --card: #fff; --text: #000; --soft: #444; --line: #bbb; --link: #000}
  body {max-width: none; padding: 0; font-size: 10pt}
  nav {display: none}
  h2, h3 {break-after: avoid}
  figure, ol.findings > li, tr {break-inside: avoid}
  .scroll {overflow: visible}
  figure.wide img {min-width: 0}
}
"""


def said(value: object) -> str:
    """Anything as text of a page: no markup, nothing that prints elsewhere or turns the line around, not endless.

    >>> said("<b>&")
    '&lt;b&gt;&amp;'
    """
    text = str(value)
    return whole(text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}...")


def code(text: str) -> str:
    """Code as a block; its line ends stay."""
    lines = "\n".join(map(whole, text.split("\n")))
    return f"<pre><code>{lines}</code></pre>"


def whole(line: str) -> str:
    """A line as text, however long.

    >>> whole("a\\u202eb") == "a\N{REPLACEMENT CHARACTER}b"
    True
    """
    return escape("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line))


def anchor(*parts: object) -> str:
    """A name for a place on the page, of ASCII letters, digits, dashes and underscores alone.

    >>> anchor("m", 0, "triggers-<x>")
    'm-0-triggers-u3cxu3e'
    """
    letters = "-".join(map(str, parts))
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else f"u{ord(c):x}" for c in letters)


def paragraph(value: object, kind: str = "") -> str:
    return f'<p class="{kind}">{said(value)}</p>' if kind else f"<p>{said(value)}</p>"


def pairs(rows: Iterable[tuple[str, object]]) -> str:
    return "<dl>" + "".join(f"<dt>{said(name)}</dt><dd>{said(value)}</dd>" for name, value in rows) + "</dl>"


def table(header: Sequence[str], rows: Iterable[Sequence[object]], *, kinds: Sequence[str] = ()) -> str:
    """A table; `kinds` are classes of the cells of the first column, row by row."""
    head = "".join(f'<th scope="col">{said(name)}</th>' for name in header)
    lines = []
    for place, row in enumerate(rows):
        first = f' class="{kinds[place]}"' if kinds else ""
        cells = [f"<td{first if not at else ''}>{said(cell)}</td>" for at, cell in enumerate(row)]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def image(png: bytes, alt: str) -> str:
    data = base64.b64encode(png).decode("ascii")
    return f'<div class="scroll"><img alt="{said(alt)}" src="data:image/png;base64,{data}"></div>'


def figure(name: str, title: str, inside: str, *, wide: bool) -> str:
    kind = ' class="wide"' if wide else ""
    return f'<figure{kind} id="{name}"><h3>{said(title)}</h3>{inside}</figure>'


def document(title: str, body: str) -> str:
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{said(title)}</title>
<style>{STYLE}</style>
</head>
<body>
{body}
</body>
</html>
"""
