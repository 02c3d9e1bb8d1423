"""Our networks beside the report's, as one labelled Dataset, and what it says."""

from collections.abc import Sequence
from math import nan
from typing import Any

import numpy as np
import xarray as xr

from ..signals import VERSION
from .experiment import STRINGS, VARIANTS, Outcome, Setting
from .intervals import CONFIDENCE, difference, median, median_interval, wilson
from .reported import REPORTED, ROW_TITLES, Reported
from .results import Results

VERDICTS = ("perfect", "good", "rest")
BOUNDS = ("low", "high")
JOINT = 1 - (1 - CONFIDENCE) / len(VERDICTS)  # of each difference, so that all of a row hold with 95 %
ENOUGH = 30  # networks of a row, from which on no difference is called agreement

AGREES, DIFFERS, TOO_FEW, BEYOND, NONE = (
    "as reported",
    "not as reported",
    "no difference seen, too few networks to tell",
    "beyond the report",
    "no network yet",
)

RULE = (
    "a row is not as reported where the interval of the difference between our share and the report's (Newcombe's, "
    "from the Wilson intervals of both) leaves out zero for perfect, good or rest; the three hold together with 95 %, "
    f"so each with {100 * JOINT:.1f} %. It is as reported where all three hold zero and it has at least {ENOUGH} "
    "networks. Numbers of streams are shown and not judged: the report gives no spread."
)


def table(results: Results) -> xr.Dataset:
    """Shares, medians and their intervals of every row, beside the report's, with each network's numbers.

    Parameters
    ----------
    results
        A folder of finished networks; files in it that cannot be believed count as not there.

    Returns
    -------
    xr.Dataset
        Over `row` and `verdict` (perfect, good, rest): `count`, `percent` (of the finished `networks`) with the Wilson
        interval `percent_interval`, `stream` (mean length of a test stream in symbols, over the networks of that
        verdict), the report's `reported_percent` and `reported_stream`, and `difference_interval` (percentage points,
        ours less the report's).
        Over `row`: `networks` finished of those `asked`, `capped` among them; for the perfect ones `streams` (median
        number of training streams until then), `streams_interval` (distribution-free, at least 95 %), `streams_mean`
        and `reported_streams`; `retested`, `retest_count`, `retest_percent`, `retest_interval` and `retest_stream`:
        how many of them are perfect again on fresh streams, and how long those are; `agreement` with the report.
        Over `row` and `network`: `outcome`, `training_streams`, `training_symbols`; over `test` as well `test_stream`,
        over `retest` as well `retest_length`. Intervals lie over `bound`. What is not there is NaN.
    """
    rows = in_order(results)
    outcomes = {row: results.outcomes(row) for row in rows}
    columns = [summary(row, results, outcomes[row]) for row in rows]
    result = xr.Dataset(
        {name: stacked(name, [column[name] for column in columns]) for name in VARIABLES},
        coords={
            "row": np.array(rows, dtype=object),
            "verdict": np.array(VERDICTS, dtype=object),
            "bound": np.array(BOUNDS, dtype=object),
            "title": ("row", np.array([ROW_TITLES.get(row, row) for row in rows], dtype=object)),
        },
    )
    result = result.merge(each_network(results, outcomes))
    first = next(iter(results.settings.values()))
    if first.task == "erg":
        for name in LENGTHS:
            result[name].attrs |= {"long_name": "right strings of a test", "units": f"strings of {STRINGS}"}
    result.attrs = {
        "measure": "reproduction",
        "task": first.task,
        "seed": first.seed,
        "max_streams": first.max_streams,
        "max_streams_reported": max(each.max_streams for each in VARIANTS.values() if each.task == first.task),
        "confidence": CONFIDENCE,
        "rule": RULE,
        "engine": " ".join(results.engines()),
        "gatescope_version": VERSION,
    }
    return result


def in_order(results: Results) -> list[str]:
    """The rows as the experiment lists them, then others by name, in whatever order they were asked for."""
    places = {row: place for place, row in enumerate(VARIANTS)}
    return sorted(results.settings, key=lambda row: (places.get(row, len(places)), row))


VARIABLES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "networks": (("row",), "finished networks", "1"),
    "asked": (("row",), "networks asked for", "1"),
    "capped": (("row",), "networks that reached a limit of symbols", "1"),
    "count": (("row", "verdict"), "networks of this verdict", "1"),
    "percent": (("row", "verdict"), "share of networks", "%"),
    "percent_interval": (("row", "verdict", "bound"), "95 % interval of the share (Wilson)", "%"),
    "stream": (("row", "verdict"), "mean length of a test stream", "symbols"),
    "streams": (("row",), "median training streams until perfect", "1"),
    "streams_interval": (("row", "bound"), "95 % interval of the median (distribution-free)", "1"),
    "streams_mean": (("row",), "mean training streams until perfect", "1"),
    "retested": (("row",), "perfect networks tested again on fresh streams", "1"),
    "retest_count": (("row",), "networks perfect again on fresh streams", "1"),
    "retest_percent": (("row",), "share of perfect networks that are perfect again", "%"),
    "retest_interval": (("row", "bound"), "95 % interval of that share (Wilson)", "%"),
    "retest_stream": (("row",), "mean length of a fresh test stream of perfect networks", "symbols"),
    "reported_networks": (("row",), "networks of the report", "1"),
    "reported_percent": (("row", "verdict"), "the report's share of networks", "%"),
    "reported_stream": (("row", "verdict"), "the report's mean length of a test stream", "symbols"),
    "reported_streams": (("row",), "the report's training streams until perfect", "1"),
    "difference_interval": (
        ("row", "verdict", "bound"),
        "interval of our share less the report's (Newcombe), 95 % for the three together",
        "%",
    ),
    "agreement": (("row",), "agreement with the report", ""),
}
"""Dimensions, meaning and units of what a table says of its rows."""


LENGTHS = ("stream", "reported_stream", "retest_stream", "test_stream", "retest_length")  # for ERG, right strings


def stacked(name: str, values: list[Any]) -> xr.Variable:
    dims, meaning, units = VARIABLES[name]
    attrs = {"long_name": meaning} | ({"units": units} if units else {})
    return xr.Variable(dims, np.array(values, dtype=object if name == "agreement" else None), attrs)


def summary(row: str, results: Results, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """What a table says of one row."""
    n, setting = len(outcomes), results.settings[row]
    groups = {verdict: [outcome for outcome in outcomes if verdict_of(outcome) == verdict] for verdict in VERDICTS}
    counts = [len(group) for group in groups.values()]
    reported = REPORTED.get(setting.task, {}).get(row)
    streams = [outcome.streams for outcome in groups["perfect"]]
    return {
        "networks": n,
        "asked": results.networks[row],
        "capped": sum(outcome.capped for outcome in outcomes),
        "count": counts,
        "percent": [percent(count, n) for count in counts],
        "percent_interval": [in_percent(wilson(count, n)) for count in counts],
        "stream": [mean([length for outcome in group for length in outcome.tests]) for group in groups.values()],
        "streams": median(streams),
        "streams_interval": median_interval(streams),
        "streams_mean": mean(streams),
        **retests(groups["perfect"], setting),
        **beside(counts, n, reported),
    }


def verdict_of(outcome: Outcome) -> str:
    return outcome.verdict if outcome.verdict in VERDICTS else "rest"


def retests(perfect: Sequence[Outcome], setting: Setting) -> dict[str, Any]:
    """How many perfect networks are so again on fresh streams."""
    again = [outcome.retests for outcome in perfect if len(outcome.retests)]
    whole = setting.stream_length if setting.task == "cerg" else STRINGS
    passed = sum(min(lengths) >= whole for lengths in again)
    return {
        "retested": len(again),
        "retest_count": passed,
        "retest_percent": percent(passed, len(again)),
        "retest_interval": in_percent(wilson(passed, len(again))),
        "retest_stream": mean([length for lengths in again for length in lengths]),
    }


def beside(counts: Sequence[int], n: int, reported: Reported | None) -> dict[str, Any]:
    """The report's numbers, and whether ours agree with them."""
    if reported is None:
        nothing = [nan] * len(VERDICTS)
        return {
            "reported_networks": 0,
            "reported_percent": nothing,
            "reported_stream": nothing,
            "reported_streams": nan,
            "difference_interval": [(nan, nan)] * len(VERDICTS),
            "agreement": BEYOND,
        }
    percents = [reported.perfect, reported.good, reported.rest]
    there = [round(share * reported.networks / 100) for share in percents]
    apart = [difference(count, n, other, reported.networks, JOINT) for count, other in zip(counts, there, strict=True)]
    return {
        "reported_networks": reported.networks,
        "reported_percent": percents,
        "reported_stream": [nan, known(reported.good_stream), known(reported.rest_stream)],
        "reported_streams": known(reported.streams),
        "difference_interval": [in_percent(interval) for interval in apart],
        "agreement": agreement(apart, n),
    }


def agreement(apart: Sequence[tuple[float, float]], n: int) -> str:
    """What the intervals of the differences say, in words."""
    if n == 0:
        return NONE
    if any(low > 0 or high < 0 for low, high in apart):
        return DIFFERS
    return AGREES if n >= ENOUGH else TOO_FEW


def each_network(results: Results, outcomes: dict[str, list[Outcome]]) -> xr.Dataset:
    """The numbers of every network; NaN, and no text, where there is none."""
    shape = (len(outcomes), max(results.networks.values(), default=0))
    every = [outcome for found in outcomes.values() for outcome in found]
    tests = max((len(outcome.tests) for outcome in every), default=0)
    retests = max((len(outcome.retests) for outcome in every), default=0)
    words = np.full(shape, "", dtype=object)
    streams, symbols = np.full(shape, np.nan), np.full(shape, np.nan)
    lengths, again = np.full((*shape, tests), np.nan), np.full((*shape, retests), np.nan)
    for place, found in enumerate(outcomes.values()):
        for outcome in found:
            at = (place, outcome.network)
            words[at], streams[at], symbols[at] = outcome.verdict, outcome.streams, outcome.symbols
            lengths[at][: len(outcome.tests)] = outcome.tests
            again[at][: len(outcome.retests)] = outcome.retests
    dims = ("row", "network")
    return xr.Dataset(
        {
            "outcome": (dims, words, {"long_name": "verdict on the network"}),
            "training_streams": (dims, streams, {"long_name": "training streams", "units": "1"}),
            "training_symbols": (dims, symbols, {"long_name": "training symbols", "units": "1"}),
            "test_stream": ((*dims, "test"), lengths, {"long_name": "length of a test stream", "units": "symbols"}),
            "retest_length": (
                (*dims, "retest"),
                again,
                {"long_name": "length of a fresh test stream", "units": "symbols"},
            ),
        },
        coords={"network": np.arange(shape[1]), "test": np.arange(tests), "retest": np.arange(retests)},
    )


def percent(count: int, of: int) -> float:
    return 100 * count / of if of else nan


def in_percent(interval: tuple[float, float]) -> tuple[float, float]:
    return 100 * interval[0], 100 * interval[1]


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if len(values) else nan


def known(value: float | None) -> float:
    return nan if value is None else value
