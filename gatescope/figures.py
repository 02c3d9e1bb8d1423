"""The figures of *Learning to Forget*, from networks of our own, through the probe and the plots."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from .block_figures import figure_block, figure_partials, figure_runaway
from .figure_captions import CAPTIONS
from .figure_runs import found, holding_unit, trained
from .probe.plots.traces import COLOURS
from .tasks.experiment import Outcome
from .tasks.statistics import longest_strings, string_lengths

__all__ = [
    "Picture",
    "figure_block",
    "figure_longest_strings",
    "figure_partials",
    "figure_runaway",
    "figure_string_lengths",
    "figure_training",
    "figures",
    "pictures",
]


class Picture(NamedTuple):
    name: str
    figure: Figure
    caption: str


def figures(out: Path, *, say: Callable[[str], None] | None = None) -> list[Path]:
    """Draw all figures into a folder, each as PNG and SVG, and their captions into `captions.md`.

    Parameters
    ----------
    out
        A folder; it is made where there is none, and pictures of the same name in it are replaced.
    say
        Called with one line for each picture as soon as it is written.

    Returns
    -------
    list of Path
        What was written.
    """
    out.mkdir(parents=True, exist_ok=True)
    written, text = [], ["# The figures of *Learning to Forget*, from our own networks"]
    for picture in pictures():
        written += drawn(picture, out)
        if say is not None:
            say(f"wrote {written[-2]} and {written[-1].name}")
        text += [f"![{picture.name}]({picture.name}.png)", picture.caption]
    written.append(out / "captions.md")
    written[-1].write_text("\n\n".join(text) + "\n", encoding="utf-8")
    return written


def drawn(picture: Picture, out: Path) -> list[Path]:
    """The files of one picture; the same picture gives the same SVG."""
    written = []
    for suffix, metadata in (("png", None), ("svg", {"Date": None})):
        written.append(out / f"{picture.name}.{suffix}")
        with mpl.rc_context({"svg.hashsalt": picture.name}):
            picture.figure.savefig(written[-1], dpi=130, metadata=metadata)
        picture.figure.set_layout_engine("none")  # it stays as it has been laid out
    return written


def pictures() -> Iterator[Picture]:
    """One after the other; networks are trained when they are needed."""
    lengths, longest = string_lengths(), longest_strings()
    yield Picture("figure-4", figure_string_lengths(lengths), CAPTIONS["figure-4"](lengths))
    yield Picture("figure-5", figure_longest_strings(longest), CAPTIONS["figure-5"](longest))
    here = found()
    kept, forgets = here.keeps.recording, here.forgets.recording
    yield Picture("figure-7", figure_runaway(kept, here.drift, here.growing), CAPTIONS["figure-7"](here))
    for name, block in (("figure-8", here.blocks.attrs["holder"]), ("figure-9", here.blocks.attrs["short"])):
        yield Picture(name, figure_block(forgets, block), CAPTIONS[name](here))
    runs = trained()
    yield Picture("figure-10", figure_training(runs), CAPTIONS["figure-10"](runs))
    unit = holding_unit(here.blocks, forgets["unit"])
    partials = figure_partials([(forgets, here.partials, unit), (kept, here.kept_partials, here.growing)])
    yield Picture("partials", partials, CAPTIONS["partials"](here))


def figure_string_lengths(result: xr.Dataset) -> Figure:
    """Figure 4: how often each length comes among strings of the embedded Reber grammar.

    Parameters
    ----------
    result
        What `gatescope.tasks.string_lengths` returned.

    Returns
    -------
    Figure
        One axes: points for what was drawn, a line each for the exact chances and the report's fit, on a log scale.
    """
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    ax = figure.subplots()
    length = result["length"].values
    drawn = result["drawn"].where(result["drawn"] > 0)
    ax.plot(length, drawn, "o", color=COLOURS[0], markersize=4, label=f"drawn, {result.attrs['strings']:,} strings")
    ax.plot(
        length, result["exact"], color="black", linewidth=1.2, label=f"exact, mean {result.attrs['exact_mean']:.4g}"
    )
    fit = f"report's fit, 3/11 exp(-3/11 (l - 9)), sum {result.attrs['report_sum']:.2f}"
    ax.plot(length, result["report"], "--", color=COLOURS[1], linewidth=1.2, label=fit)
    ax.set(yscale="log", ylim=(1e-6, 0.5), xlabel="length l of a string (symbols)", ylabel="share of strings")
    ax.set_title("Lengths of strings of the embedded Reber grammar")
    ax.legend(frameon=False)
    return figure


def figure_longest_strings(result: xr.Dataset) -> Figure:
    """Figure 5: the longest of N strings grows like log N.

    Parameters
    ----------
    result
        What `gatescope.tasks.longest_strings` returned.

    Returns
    -------
    Figure
        One axes over N, log scale: points for what was drawn, a line for the exact mean, its band from 5 % to 95 %.
    """
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    ax = figure.subplots()
    strings = result["strings"].values
    ax.fill_between(strings, result["lower"], result["upper"], color="0.88", label="exact, 5 % to 95 %")
    ax.plot(strings, result["expected"], color="black", linewidth=1.2, label="exact mean")
    ax.plot(strings, result["report"], "--", color=COLOURS[1], linewidth=1.2, label="mean from the report's fit")
    each = np.tile(strings, result.sizes["run"])
    label = f"drawn, {result.sizes['run']} runs"
    ax.plot(each, result["drawn"].values.ravel(), "o", color=COLOURS[0], markersize=3, alpha=0.5, label=label)
    ax.set(xscale="log", xlabel="number of strings N", ylabel="length of the longest (symbols)")
    ax.set_title("The longest of N strings of the embedded Reber grammar")
    ax.legend(frameon=False, loc="upper left")
    return figure


def figure_training(runs: Mapping[str, Sequence[Outcome]]) -> Figure:
    """Figure 10: how long streams last in training.

    Parameters
    ----------
    runs
        For each row the outcomes of its networks; the first row has one colour, the second another.

    Returns
    -------
    Figure
        One axes with a line per network over the training streams: right symbols before a stream's first error, as
        means. A dot where it was found perfect.
    """
    figure = Figure(figsize=(8.2, 4.6), layout="constrained")
    ax = figure.subplots()
    for place, (name, outcomes) in enumerate(runs.items()):
        perfect = sum(outcome.verdict == "perfect" for outcome in outcomes)
        for number, outcome in enumerate(outcomes):
            streams, symbols = outcome.curve.T
            label = f"{name}: {perfect} of {len(outcomes)} perfect" if number == 0 else f"_{name} {number}"
            ax.plot(streams, np.maximum(symbols, 1), color=COLOURS[place], linewidth=1, alpha=0.8, label=label)
            if outcome.verdict == "perfect":
                ax.plot(streams[-1], max(symbols[-1], 1), "o", color=COLOURS[place], label=f"_{name} {number} perfect")
    ax.set(yscale="log", xlabel="training streams", ylabel="right symbols per stream (mean)")
    ax.set_title("Training on the continual embedded Reber grammar, forget gates")
    ax.legend(frameon=False, loc="lower right")
    return figure
