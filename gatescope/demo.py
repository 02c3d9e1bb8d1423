"""`gatescope demo`: record a model that somebody else trained, say what its gates do, and leave the evidence."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .demo_sentences import TEXTS

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from .demo_findings import Findings

PACKAGE, IMPORTED = "arabic-diacritizer", "diacritize"

Say = Callable[[str], None]


def run(out: Path, *, texts: Sequence[str] = TEXTS, values: int | None = None, say: Say | None = None) -> None:
    """Record the diacritizer on Arabic texts, and a network of the paper; write both, pictures, findings and reports.

    Parameters
    ----------
    out
        A new or empty folder, or one that an earlier run filled: its results are replaced, anything else in it stays.
    texts
        What the model reads; the demo's own by default.
    values
        Of each signal, how many the reports read at most; by default as many as `gatescope report`.
    say
        Called with every line for the user; prints by default.

    Raises
    ------
    ModuleNotFoundError
        If the model's package is not installed.
    ValueError
        If `out` is something else.
    """
    from .demo_folder import check, results_folder

    say = say or printed
    require_model()
    check(out)
    with stage(say, "Loading the diacritizer (3-layer bidirectional LSTM, 256 units, trained by others)"):
        model = load_model()
    with stage(say, f"Recording every gate and state while it reads {len(texts)} texts, one by one"):
        recording = record_texts(model, texts)
    with stage(say, "Recording a memory-block network of the paper that gatescope trained"):
        from .demo_paper import record_example

        example = record_example()
    with results_folder(out) as folder:
        with stage(say, "Counting saturated gates; ranking every unit's forget gate at every character"):
            from .demo_findings import findings
            from .probe.analyzers.saturation import saturation

            saturated, found = saturation(recording), findings(recording)
        with stage(
            say, "Describing the network of the paper: resets, roles, gradients, what is lost without each block"
        ):
            from .demo_paper import paper_report, take_blocks_out

            lesions = take_blocks_out()
            beside = paper_report(example, lesions)
        with stage(say, "Writing the recordings, the pictures and findings.md"):
            from .demo_paper import NAME
            from .demo_report import report

            text = f"{report(recording, saturated, found)}\n{beside}"
            pictures = write_results(folder, recording, saturated, found, example, text)
            lesions.to_netcdf(folder / f"{NAME}.ablation.nc", engine="h5netcdf")  # where the dashboard looks for it
        with stage(say, "Writing report.html and cerg-latch.html: every measure on both (a minute or two)"):
            write_reports(folder, out, recording, example, (text.removesuffix(beside), beside), pictures, values)
    say("\n" + text)
    listed = ", ".join(sorted(path.name for path in out.iterdir() if not path.name.startswith(".")))
    say(f"Written to {out}: {listed}")
    say(f"Open {out / 'report.html'} in a browser: findings, pictures with how to read them, and the code of each.")
    say(
        f"Look at every unit yourself:\n\n    {dashboard_command(out)}\n\n"
        f"and, for the units that tell spaces best, add {dashboard_view(found)} to the address.\n"
    )


def printed(line: str) -> None:
    """Print a line now; what the terminal cannot show becomes question marks."""
    encoding = sys.stdout.encoding or "utf-8"
    print(line.encode(encoding, errors="replace").decode(encoding), flush=True)


@contextmanager
def stage(say: Say, what: str) -> Iterator[None]:
    """Say what begins, and how long it took."""
    say(what)
    start = time.perf_counter()
    yield
    say(f"  {time.perf_counter() - start:.1f} s")


def require_model() -> None:
    if find_spec(IMPORTED) is None:
        raise ModuleNotFoundError(
            f"the demo needs a trained model, the package {PACKAGE}; it is not installed. "
            "Install it with: pip install 'gatescope[examples]'."
        )


def load_model() -> Any:
    from diacritize.baseline.model import BiLSTMDiacritizer  # type: ignore[import-not-found,import-untyped,unused-ignore]

    return BiLSTMDiacritizer.from_pretrained()


def record_texts(model: Any, texts: Sequence[str]) -> "xr.Dataset":
    """Every gate and state of all layers and both directions, labelled with the character read and where words begin.

    Every text is a call of its own. In a padded batch the backward direction would read the padding first and come to
    the text with a memory already full, for this model passes no lengths to its LSTM.
    """
    import torch

    from .probe.attach import attach

    unknown = sorted({character for text in texts for character in text if character not in model.tokenizer.char_to_id})
    if unknown:
        raise ValueError(
            f"texts must be written with the model's alphabet; {', '.join(map(repr, unknown))} came. "
            "Write without digits, vowel marks and alif maqsura."
        )
    with attach(model) as probe, torch.no_grad():
        for text in texts:
            probe.annotate(character=text, boundary=word_starts(text))
            model(torch.tensor([model.tokenizer.encode(text, add_special=False)]))
    return probe.recording()


def word_starts(text: str) -> list[bool]:
    """Where a word begins.

    >>> word_starts("to be")
    [True, False, False, True, False]
    """
    return [character != " " and before == " " for before, character in zip(" " + text, text, strict=False)]


def write_results(
    folder: Path, recording: "xr.Dataset", saturated: "xr.Dataset", found: "Findings", example: "xr.Dataset", text: str
) -> "dict[str, Figure]":
    from . import demo_figures as figures
    from .demo_paper import NAME, figure_paper
    from .probe.store import save_recording

    save_recording(recording, folder / "recording.zarr")
    save_recording(example, folder / f"{NAME}.zarr")
    shown = figures.pictured(recording)
    pictures = {
        "saturation": figures.figure_saturation(saturated),
        "gates": figures.figure_gates(recording, found.there, shown),
        "traces": figures.figure_traces(recording, found.there[0], shown),
        "characters": figures.figure_characters(found.auc),
        NAME: figure_paper(example),
    }
    for name, figure in pictures.items():
        figure.savefig(folder / f"{name}.png", dpi=110)
    (folder / "findings.md").write_text(f"# What the gates of two networks do\n\n{text}", encoding="utf-8")
    return pictures


def write_reports(
    folder: Path,
    out: Path,
    recording: "xr.Dataset",
    example: "xr.Dataset",
    texts: tuple[str, str],
    pictures: "dict[str, Figure]",
    values: int | None,
) -> None:
    """A report of each recording, with what the demo says of it, and its pictures, before what `describe` says."""
    from .demo_html import write_report
    from .demo_paper import NAME

    own = {
        "Forget gates of the units that tell spaces best, over one text": pictures["gates"],
        "The first of them: its forget gate above its memory": pictures["traces"],
        "For every character, how many units' forget gates shut (up) or open (down) at it": pictures["characters"],
    }
    holder = {"The forget gate of the block that remembers above the states of its cells": pictures[NAME]}
    places = {"report": (recording, "recording.zarr", texts[0], own)}
    places |= {NAME: (example, f"{NAME}.zarr", texts[1], holder)}
    for name, (one, lies, text, shown) in places.items():
        write_report(one, folder / f"{name}.html", str(out / lies), text, shown, values=values)


def dashboard_command(out: Path) -> str:
    """What to type, from where the user stands, with the installation that is running."""
    script = Path(sys.executable).parent / "gatescope"
    command = [near(script)] if script.exists() else [near(Path(sys.executable)), "-m", "gatescope"]
    return shlex.join([*command, "dashboard", str(out)])


def dashboard_view(found: "Findings") -> str:
    """The end of the dashboard's address that shows the units of the report's traces over a text."""
    place, units = found.there[0], ",".join(str(best.unit) for best in found.there[:3])
    where = f"layer={place.layer}&direction={place.direction}"
    return f"gates?recording=recording.zarr&signal=forget_gate&{where}&label=character&unit={units}"


def near(path: Path) -> str:
    """The path as seen from the current folder where that is shorter."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # another drive
        return str(path)
    return relative if not relative.startswith(os.pardir) else str(path)
