"""A table of networks for people to read, and as CSV."""

import csv
import io
from collections.abc import Iterable

import numpy as np
import xarray as xr

from .reported import NOTES, TITLES
from .tables import AGREES, BEYOND, DIFFERS, NONE, RULE, TOO_FEW, VERDICTS

HEADER = ("row", "", "networks", "perfect %", "again", "good %", "rest %", "streams until perfect", "mean")
WIDTH = 118


def table_text(table: xr.Dataset) -> str:
    """The table, ours above the report's, and below it in sentences what agrees and what does not.

    Shares stand with their 95 % intervals in brackets; the mean length of a test stream in symbols in < >.
    """
    task = str(table.attrs["task"])
    lines: list[tuple[str, ...]] = [HEADER]
    for row in table["row"].values:
        lines += row_lines(table.sel(row=row))
    head = f"{task.upper()}: {TITLES[task]}. Seed {table.attrs['seed']}."
    return "\n".join([head, "", *aligned(lines), "", *wrapped([LEGENDS[task]]), "", *wrapped(sentences(table))])


def row_lines(row: xr.Dataset) -> list[tuple[str, ...]]:
    """One line for our networks and, where the report has the row, one for its."""
    asked, n = int(row["asked"]), int(row["networks"])
    shares = [share(row, verdict) for verdict in VERDICTS]
    ours = (
        *(row["title"].item(), "here", str(n) if n == asked else f"{n} of {asked}", shares[0]),
        f"{row['retest_count'].item()} of {row['retested'].item()}" if row["retested"] else "",
        *shares[1:],
        with_interval(row["streams"].item(), row["streams_interval"].values),
        number(row["streams_mean"].item()),
    )
    if not row["reported_networks"]:
        return [ours]
    there = [
        joined(number(row["reported_percent"].sel(verdict=verdict).item()), row["reported_stream"].sel(verdict=verdict))
        for verdict in VERDICTS
    ]
    streams = number(row["reported_streams"].item())
    return [ours, ("", "report", str(row["reported_networks"].item()), there[0], "", *there[1:], "", streams)]


def share(row: xr.Dataset, verdict: str) -> str:
    """A share, its interval, and for what is not perfect the mean test stream.

    The report has no stream of perfect networks: it is that of the criterion.
    """
    here = row.sel(verdict=verdict)
    text = with_interval(here["percent"].item(), here["percent_interval"].values)
    return text if verdict == "perfect" else joined(text, here["stream"])


def joined(text: str, stream: xr.DataArray) -> str:
    return f"{text} <{number(stream.item())}>" if np.isfinite(stream.item()) else text


def with_interval(value: float, interval: "np.ndarray") -> str:
    """A value with its interval in brackets, as far as there are any.

    >>> with_interval(50.0, np.array([23.7, 76.3]))
    '50 [24, 76]'
    """
    if not np.isfinite(value):
        return ""
    ends = f" [{number(interval[0])}, {number(interval[1])}]" if np.isfinite(interval).all() else ""
    return number(value) + ends


def number(value: float) -> str:
    """A whole number with commas; nothing for what is not there.

    >>> number(18889.2), number(float("nan"))
    ('18,889', '')
    """
    return f"{value:,.0f}" if np.isfinite(value) else ""


LEGENDS = {
    "cerg": "perfect: ten test streams of 100,000 symbols without an error; again: of those networks, how many pass "
    "ten fresh streams too; good: more than 1,000 symbols on average; rest: the others. [ ]: 95 % intervals. < >: mean "
    "length of a test stream in symbols. streams until perfect: the median with its interval, then the mean.",
    "erg": "perfect: all 256 strings of the training set and all 256 of the test set right; again: of those networks, "
    "how many have ten times 256 fresh strings right too. [ ]: 95 % intervals. < >: mean number of right strings of "
    "256. streams until perfect: strings learned from, the median with its interval, then the mean.",
}
"""How to read the table of a task."""


def sentences(table: xr.Dataset) -> list[str]:
    """Which rows agree with the report and which do not, and what else must be known to read the table."""
    rows = [table.sel(row=row) for row in table["row"].values]
    found = {word: [row for row in rows if row["agreement"].item() == word] for word in WORDS}
    said = []
    for word, begin in WORDS.items():
        if word == DIFFERS and found[word]:
            said += [f"{begin}:", *(f"- {compared(row)}" for row in found[word])]
        elif found[word]:
            said.append(f"{begin}: {'; '.join(titled(row) for row in found[word])}.")
    said += shortened(table) + partial(rows) + capped(rows) + mixed(str(table.attrs["engine"]).split())
    note = NOTES.get(str(table.attrs["task"]))
    return [
        *said,
        *([note] if note else []),
        *(["The rule: " + RULE] if found[AGREES] or found[DIFFERS] or found[TOO_FEW] else []),
    ]


WORDS = {
    AGREES: "As reported",
    DIFFERS: "Not as reported",
    TOO_FEW: "No difference seen, but too few networks to tell",
    BEYOND: "Beyond the report",
    NONE: "No network yet",
}


def titled(row: xr.Dataset) -> str:
    return str(row["title"].item())


def compared(row: xr.Dataset) -> str:
    """Both sides' shares, and by which of them the row differs.

    The difference counts where its interval leaves out zero.
    """
    parts = []
    for verdict in VERDICTS:
        here = row.sel(verdict=verdict)
        low, high = here["difference_interval"].values
        text = f"{verdict} {number(here['percent'].item())} % here, {number(here['reported_percent'].item())} % there"
        parts.append(text if low <= 0 <= high else f"{text} (difference {low:+.0f} to {high:+.0f})")
    return f"{titled(row)}: {', '.join(parts)}"


def shortened(table: xr.Dataset) -> list[str]:
    """That networks were given up earlier than the report's."""
    most, reported = (table.attrs.get(name) for name in ("max_streams", "max_streams_reported"))
    if most is None or most >= reported:
        return []
    what = "strings" if table.attrs["task"] == "erg" else "training streams"
    return [
        f"Given up early: after {most:,} {what}, where the report goes on to {reported:,}. Networks that would have "
        "learned later count as not perfect, so that a difference to the report may be no more than that."
    ]


def partial(rows: Iterable[xr.Dataset]) -> list[str]:
    """Which rows are not finished, and what that does to them."""
    some = [row for row in rows if int(row["networks"]) < int(row["asked"])]
    if not some:
        return []
    listed = "; ".join(f"{titled(row)} {row['networks'].item()} of {row['asked'].item()}" for row in some)
    return [f"Partial: {listed}. Networks that end early are the quick ones, so shares and medians will still move."]


def mixed(engines: list[str]) -> list[str]:
    if len(engines) < 2:
        return []
    return [
        f"Mixed: the networks were trained by {len(engines)} states of the engine's code, which may differ in bits."
    ]


def capped(rows: Iterable[xr.Dataset]) -> list[str]:
    some = [row for row in rows if int(row["capped"])]
    if not some:
        return []
    listed = "; ".join(f"{row['capped'].item()} of {titled(row)}" for row in some)
    return [f"Capped, and counted as what they were when they reached the limit of training symbols: {listed}."]


def table_csv(table: xr.Dataset) -> str:
    """A line for every row; NaN is left empty."""
    file = io.StringIO()
    writer: csv.DictWriter[str] | None = None
    for name in table["row"].values:
        line = csv_line(table.sel(row=name))
        if writer is None:
            writer = csv.DictWriter(file, list(line), lineterminator="\n")
            writer.writeheader()
        writer.writerow(line)
    return file.getvalue()


def csv_line(row: xr.Dataset) -> dict[str, object]:
    line: dict[str, object] = {name: row[name].item() for name in ("row", "title", "networks", "asked", "capped")}
    for verdict in VERDICTS:
        here = row.sel(verdict=verdict)
        line[f"{verdict}_networks"] = here["count"].item()
        line[f"{verdict}_percent"] = csv_number(here["percent"].item())
        line |= ends(f"{verdict}_percent", here["percent_interval"])
        line[f"{verdict}_percent_reported"] = csv_number(here["reported_percent"].item())
        line |= ends(f"{verdict}_percent_difference", here["difference_interval"])
        line[f"{verdict}_stream"] = csv_number(here["stream"].item())
        line[f"{verdict}_stream_reported"] = csv_number(here["reported_stream"].item())
    for name in ("streams", "streams_mean"):
        line[f"{name}_until_perfect"] = csv_number(row[name].item())
    line |= ends("streams_until_perfect", row["streams_interval"])
    line["streams_until_perfect_reported"] = csv_number(row["reported_streams"].item())
    line |= {"retested": row["retested"].item(), "retest_perfect": row["retest_count"].item()}
    line["retest_percent"] = csv_number(row["retest_percent"].item())
    line |= ends("retest_percent", row["retest_interval"])
    line["retest_stream"] = csv_number(row["retest_stream"].item())
    return line | {"reported_networks": row["reported_networks"].item(), "agreement": row["agreement"].item()}


def ends(name: str, interval: xr.DataArray) -> dict[str, object]:
    return {f"{name}_{bound}": csv_number(interval.sel(bound=bound).item()) for bound in ("low", "high")}


def csv_number(value: float) -> float | str:
    return round(value, 4) if np.isfinite(value) else ""


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows of text with columns of one width; names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(n) if place < 2 else text.rjust(n)
            for place, (text, n) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def wrapped(paragraphs: Iterable[str]) -> list[str]:
    import textwrap

    return [line for text in paragraphs for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]
