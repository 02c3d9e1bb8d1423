"""What stands below the paper's figures: what they show, and the numbers of the networks shown."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from .figure_runs import COMPARED, FORGETS, KEEPS, Found, Run
from .tasks.experiment import Outcome


def string_lengths(result: xr.Dataset) -> str:
    attrs = result.attrs
    return (
        f"**Figure 4.** Lengths of {attrs['strings']:,} strings of the embedded Reber grammar. Exact mean "
        f"{attrs['exact_mean']:.4g}, drawn {attrs['drawn_mean']:.2f} (the report says {attrs['report_mean']}); exact "
        f"standard deviation {attrs['exact_standard_deviation']:.2f}. Long strings become fewer by a factor of "
        f"{attrs['tail_rate']:.4f} per symbol. The report's fit sums to {attrs['report_sum']:.2f}."
    )


def longest_strings(result: xr.Dataset) -> str:
    last, limit = result.isel(strings=-1), result.attrs["report_longest"]
    return (
        f"**Figure 5.** The longest of N strings. Of {int(last.strings):,} it has {float(last.expected):.0f} symbols "
        f"on average, {int(last.lower)} to {int(last.upper)} in 90 % of runs, and more than {limit} in "
        f"{float(last.beyond_50):.0%}; the report says 'beyond {limit}'."
    )


def runaway(found: Found) -> str:
    unit, recording = found.growing, found.keeps.recording
    since = int(found.drift.degenerate_from[0, 0, 0, unit])
    strings = int(recording.boundary.values[0, : since + 1].sum())
    growing = int((found.drift.verdict == "growing").sum())
    return (
        f"**Figure 7.** A network of 1997, without forget gates (row '1997', network {KEEPS}, seed 0). {growing} of "
        f"{recording.sizes['unit']} states grow for as long as the stream lasts, that of unit {unit} by "
        f"{float(found.drift.slope[0, 0, unit]):.2g} per step. From step {since} on, in string {strings}, its output "
        f"squasher is saturated, and the cell shows its output gate and nothing else. {predictions(found.keeps)}"
    )


def long_memory(found: Found) -> str:
    table, block = found.blocks, found.blocks.attrs["holder"]
    row = table.sel(block=block)
    units = table.unit.values[found.forgets.recording.block.values == block]
    signs = "; ".join(
        f"the state of unit {unit} is {sign(table.sign_code, unit)} while it is T, {sign(table.sign_code_p, unit)} "
        "while it is P"
        for unit in units
    )
    return (
        f"**Figure 8.** Block {block} of a network with forget gates (row 'forget', network {FORGETS}, seed 0) holds "
        f"the symbol that must come back: {signs}. Its forget gate is {float(row.inside):.3f} on average inside "
        f"strings and falls below 0.2 at {int(row.fallen_at_ends)} of {table.attrs['ends']} string ends. "
        f"{predictions(found.forgets)}"
    )


def short_memory(found: Found) -> str:
    table = found.blocks
    row = table.sel(block=table.attrs["short"])
    return (
        f"**Figure 9.** Block {table.attrs['short']} of the same network remembers for a few symbols only: besides "
        f"{int(row.resets_at_ends)} resets at {table.attrs['ends']} string ends it resets {int(row.resets_inside)} "
        f"times inside strings; its forget gate is {float(row.inside):.2f} on average there. Whether T or P must come "
        f"back cannot be told from it (|2 AUC - 1| is {float(row.separation):.2f}; of block {table.attrs['holder']} "
        f"{float(table.separation.max()):.2f})."
    )


def training(runs: Mapping[str, Sequence[Outcome]]) -> str:
    said = []
    for name, outcomes in runs.items():
        streams = [outcome.streams for outcome in outcomes if outcome.verdict == "perfect"]
        after = f", after {np.median(streams):,.0f} streams in the median" if streams else ""
        said.append(f"{name}: {len(streams)} of {len(outcomes)} perfect{after}")
    return (
        f"**Figure 10.** Right symbols per training stream of networks {', '.join(map(str, COMPARED))} (seed 0), each "
        f"with and without a step size that decays within the stream. {'; '.join(said)}. A dot marks a network found "
        "perfect. So few networks decide nothing: see the table."
    )


def partials(found: Found) -> str:
    return (
        "**Partials.** The derivatives of a state by the weights of its cell input and its gates, as truncated "
        "real-time recurrent learning carries them. Left, the cell of figure 8 over six strings: they are multiplied "
        "by the forget gate as the state is, so at a string's end the credit for what the cell held goes with it. "
        "Right, the cell of figure 7: nothing is ever forgotten, and what long-gone strings have left goes on to count."
    )


def sign(codes: xr.DataArray, unit: int) -> str:
    """In words: `sign_code` is the share of steps above zero minus that below."""
    code = float(codes.sel(unit=unit))
    return f"{'positive' if code > 0 else 'negative'} on {(1 + abs(code)) / 2:.0%} of the steps"


def predictions(run: Run) -> str:
    steps = run.recording.sizes["time"]
    return f"It predicts {steps - run.wrong:,} of {steps:,} steps right."


CAPTIONS: dict[str, Callable[[Any], str]] = {
    "figure-4": string_lengths,
    "figure-5": longest_strings,
    "figure-7": runaway,
    "figure-8": long_memory,
    "figure-9": short_memory,
    "figure-10": training,
    "partials": partials,
}
