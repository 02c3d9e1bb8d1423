"""The demo's second model: a network of *Learning to Forget*, with what is known about it beside what is found."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from .block_figures import figure_block
from .block_findings import block_findings
from .probe.analyzers.describe import describe

NAME = "cerg-latch"
SAID = 6  # findings that are printed
STREAMS, STEPS = 32, 250  # of fresh strings on which its blocks are taken out


def record_example() -> xr.Dataset:
    """Every gate and state of the shipped network while it reads a stream that it never saw."""
    import torch

    from .probe.attach import record
    from .tasks.examples import load_example

    model, sample = load_example(NAME)
    with torch.no_grad():
        return record(model, torch.from_numpy(sample.inputs), labels=dict(sample.labels))


def take_blocks_out() -> xr.Dataset:
    """How many more predictions go wrong without each block: T or P at the ends of strings (long), and the others."""
    import torch

    from .probe.ablation import ablation
    from .tasks.examples import load_example
    from .tasks.grammar import CERG
    from .tasks.lags import lag_errors

    model, _ = load_example(NAME)
    sample = CERG(streams=STREAMS).sample(STEPS)
    return ablation(model, torch.from_numpy(sample.inputs), lag_errors(sample), over="block")


def lesions_said(lesions: xr.Dataset, holder: int) -> str:
    """What the loss of the block that remembers does, beside that of each other one, in percentage points."""
    effects = 100 * lesions["effect"].squeeze(["layer", "direction"], drop=True)
    long, short = effects.sel(metric="long"), effects.sel(metric="short")
    others = [
        f"block {block}: {float(long.sel(memory_block=block)):.1f} and {float(short.sel(memory_block=block)):.1f}"
        for block in effects["memory_block"].values.tolist()
        if block != holder
    ]
    return (
        f"Taken out of the recurrence (`gs.ablation`, {STREAMS} fresh streams), that block costs "
        f"{float(long.sel(memory_block=holder)):.1f} percentage points of T or P at the ends of strings, and "
        f"{float(short.sel(memory_block=holder)):.1f} of all other predictions. "
        f"The same of the others: {'; '.join(others)}."
    )


def paper_report(recording: xr.Dataset, lesions: xr.Dataset) -> str:
    """What the network does, in words: what one block is for, what is lost without it, the findings of all measures."""
    blocks, steps = block_findings(recording), int(recording["length"].sum())
    holder, ends = int(blocks.attrs["holder"]), int(blocks.attrs["ends"])
    held = blocks.sel(block=holder)
    inside, fallen, separation = (float(held[name]) for name in ("inside", "fallen_at_ends", "separation"))
    counts = blocks[["resets_at_ends", "resets_inside"]].drop_sel(block=holder).astype(int)
    others = [
        f"block {name}: {at_ends} and {within}"
        for name, at_ends, within in zip(
            counts["block"].values, counts["resets_at_ends"].values, counts["resets_inside"].values, strict=True
        )
    ]
    return f"""## A network of Learning to Forget

`gs.load_example("{NAME}")` was trained by gatescope's own engine on an endless stream of strings of the embedded Reber
grammar; nothing marks where one ends (Gers, Schmidhuber and Cummins 2000). Here it reads {steps:,} symbols of a stream
that it never saw; gates were rebuilt to {recording.attrs["parity"]:.1e} of the largest memory.

Block {holder} holds what must be remembered, T or P, to the end of each string. Its forget gate is {inside:.2f} on
average inside strings and falls below 0.2 at {fallen:.0f} of {ends} ends; its best cell tells T from P with an AUC of
{0.5 + separation / 2:.3f}. Resets of the others, at ends and inside strings: {"; ".join(others)}.

{lesions_said(lesions, holder)}

What `gs.describe` says of it, the largest effect first:

{spoken(describe(recording, most=SAID))}
"""


def spoken(found: xr.Dataset) -> str:
    """Findings as a list, with effect and p."""
    lines = []
    for text, effect, p in zip(*(found[name].to_numpy() for name in ("text", "effect", "p")), strict=True):
        lines.append(f"- {text} (effect {effect:.2f}" + (")" if np.isnan(p) else f", p {p:.1g})"))
    return "\n".join(lines)


def figure_paper(recording: xr.Dataset) -> Figure:
    """The forget gate of the block that remembers above the states of its cells."""
    return figure_block(recording, int(block_findings(recording).attrs["holder"]))
