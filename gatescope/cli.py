"""The command line: look at a model, record it, open what was recorded, train the paper's networks."""

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .ablation_verb import ablation
from .attribution_verb import attribution
from .fixed_points_verb import fixed_points
from .report_verb import report
from .signals import VERSION

if TYPE_CHECKING:
    from .probe.find import Module

USAGE_ERROR = 2

app = typer.Typer(
    help="See inside gated recurrent networks: which gates, which memories, since when.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Factory = Annotated[
    str,
    typer.Argument(
        metavar="MODULE:CALLABLE",
        help="Your own function that returns the model: package.module:callable, found from the current folder, or "
        "path/to/file.py:callable. It is called without arguments.",
    ),
]


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gatescope {VERSION}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and leave.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    pass


@app.command()
def inspect(factory: Factory) -> None:
    """List what can be observed in a model and, for what cannot, why."""
    from .loading import load_model
    from .probe.find import modules

    found = modules(load_model(factory))
    if not found:
        raise ValueError(
            f"the model must contain a recurrent module (LSTM, GRU, RNN, one of their cells or a registered class); "
            f"the one that {factory} returned has none. Return the model that holds it."
        )
    typer.echo(module_table(found))


@app.command()
def record(
    factory: Factory,
    inputs: Annotated[
        Path,
        typer.Option(
            help="An .npz file: arrays arr_0, arr_1, ... or named like forward's arguments; `lengths` marks padding, "
            "`label_NAME` is the label NAME of every step."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Where to write: run.zarr (a folder) or run.nc (one file); must be new.")],
    module: Annotated[
        str | None, typer.Option(help="The path of the module to record, as `gatescope inspect` prints it.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="A label of every step: a .npy array (sequence, time), a .json list of lists, or a .txt with a line "
            "a sequence and a character a step. May be given again.",
        ),
    ] = None,
    signal: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Record just this signal. May be given again.")
    ] = None,
    preactivations: Annotated[
        bool, typer.Option("--preactivations", help="Record also what goes into each squashing function.")
    ] = False,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="How far the rebuilt states may be from the model's own.")
    ] = 1e-4,
) -> None:
    """Run a model once on the arrays of a file and write what its gates and memories did."""
    from .loading import load_inputs, load_labels, load_model, require_new, run

    require_new(out)
    model = load_model(factory)
    if model.training:
        note(
            "the model is in training mode, as its factory left it, so any dropout acts; return model.eval() to end it."
        )
    given = load_inputs(inputs, model)
    labels = {**given.labels, **load_labels(label or [])}
    recording = run(model, given, module, signal, preactivations, labels, tolerance)
    if "nonfinite" in recording.attrs:
        note(f"the model computed {recording.attrs['nonfinite']}; the certificate holds for the others.")
    from .probe.store import save_recording

    save_recording(recording, out)
    sizes = ", ".join(f"{name} {recording.sizes[name]}" for name in ("layer", "direction", "sequence", "time", "unit"))
    typer.echo(f"module   {recording.attrs['module']} ({recording.attrs['cell']})")
    typer.echo(f"shape    {sizes}")
    typer.echo(f"parity   {recording.attrs['parity']:.1e} of the largest state (at most {tolerance:g})")
    typer.echo(f"written  {out} ({human_size(size_on_disk(out))})")
    typer.echo(f"next     gatescope dashboard {out}")


@app.command(name="gradient-flow")
def gradient_flow(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="A recording (.zarr, .nc), or a model as for `gatescope record`.")
    ],
    inputs: Annotated[
        Path | None, typer.Option(help="With a model: an .npz file to run it on, as for `gatescope record`.")
    ] = None,
    module: Annotated[str | None, typer.Option(help="The path of the module, where there are several.")] = None,
    horizon: Annotated[
        list[int] | None, typer.Option(min=1, metavar="K", help="Show K steps back. May be given again.")
    ] = None,
) -> None:
    """How much of a change of the state is left k steps later, its half-life, and by which path it gets there."""
    from .flow_table import recorded, tables

    typer.echo(tables(recorded(what, inputs, module), horizon or []))


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder for the recording and the report.")] = Path("demo"),
) -> None:
    """Record an Arabic diacritizer that others trained (extra `examples`) and write a report."""
    from .demo import run

    run(out)


@app.command()
def reproduce(
    what: Annotated[str, typer.Argument(metavar="cerg|erg|figures", help="Which table, or the paper's figures.")],
    networks: Annotated[
        int | None, typer.Option(metavar="N", help="Networks of each row: 100 for cerg, 30 for erg, unless given.")
    ] = None,
    variants: Annotated[
        str | None, typer.Option(metavar="ROW,ROW", help="Only these rows, or `all`: also those that the report lacks.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Processes that train: one a core, unless given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed makes other networks.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="The folder for networks and table; goes on with what is in it.")
    ] = None,
    max_streams: Annotated[
        int | None, typer.Option(metavar="N", help="Give a network up after so many training streams.")
    ] = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="alpha|gamma|bias|decay", help="Rows that vary one setting of the report's.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few networks: a small table in about two minutes.")] = False,
    scheduler: Annotated[
        str | None, typer.Option(metavar="tcp://HOST:PORT", help="Train on this Dask cluster (extra `scale`).")
    ] = None,
) -> None:
    """Train the networks of the forget gate's report again, and say which of its numbers they agree with."""
    from .reproduce import reproduce as run
    from .reproduce import reproduce_figures

    if what == "figures":
        given = {
            "networks": networks,
            "variants": variants,
            "jobs": jobs,
            "seed": seed or None,
            "max-streams": max_streams,
        }
        given |= {"sweep": sweep, "quick": quick or None, "scheduler": scheduler}
        reproduce_figures(out or Path("figures"), given)
        return
    run(
        what,
        out or Path("-".join([what, *([sweep] if sweep else []), *(["quick"] if quick else [])])),
        networks=networks,
        variants=[row.strip() for row in variants.split(",")] if variants is not None else (),
        sweep=sweep,
        jobs=jobs,
        scheduler=scheduler,
        seed=seed,
        max_streams=max_streams,
        quick=quick,
    )


app.command()(ablation)
app.command()(attribution)
app.command(name="fixed-points")(fixed_points)
app.command()(report)


@app.command()
def dashboard(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="[PATH]...", help="Recordings to open.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="The port to serve on.")] = None,
) -> None:
    """Open the dashboard in a browser."""
    for path in paths or []:
        if not path.exists():
            raise ValueError(f"PATH must be a recording; there is none at {path}. Write one with `gatescope record`.")
    from .dashboards.launch import launch

    raise typer.Exit(launch(paths or [], port=port))


def module_table(found: "list[Module]") -> str:
    """The observable modules as aligned columns, and a sentence for each of the others."""
    header = ("path", "kind", "input", "hidden", "proj", "layers", "directions", "parameters", "with one bias")
    rows = [
        (
            *(m.path, m.kind),
            *(str(n or "-") for n in (m.input_size, m.hidden_size, m.proj_size, m.layers, m.directions)),
            *(f"{n:,}" for n in (m.parameters, m.parameters_one_bias)),
        )
        for m in found
        if not m.reason
    ]
    lines = aligned([header, *rows], left=2) if rows else []
    if rows:
        lines.append("parameters: as torch keeps them, with two bias vectors; with one bias: the textbook's count")
    return "\n".join(lines + [f"not observable: {m.path} ({m.kind}), because {m.reason}" for m in found if m.reason])


def aligned(rows: list[tuple[str, ...]], left: int) -> list[str]:
    """Rows of text with columns of one width, the first `left` of them to the left.

    >>> aligned([("path", "input"), ("a", "3")], left=1)
    ['path  input', 'a         3']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [str.ljust] * left + [str.rjust] * (len(widths) - left)
    return ["  ".join(map(lambda side, text, n: side(text, n), sides, row, widths)).rstrip() for row in rows]


def note(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


def size_on_disk(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file())


def human_size(size: float) -> str:
    """Bytes for people, in powers of 1000.

    >>> human_size(532), human_size(1_500_000)
    ('532 B', '1.5 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def main() -> None:
    """Run the command line; every error is one sentence on stderr and exit code 2."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"] or ["--help"]
    try:
        code = app(args=arguments, prog_name="gatescope", standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except Exception as error:
        if debug:
            traceback.print_exc()
        print(f"gatescope: {sentence(error)}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    sys.exit(code if isinstance(code, int) else 0)


def sentence(error: Exception) -> str:
    """What an error says, on one line; errors that are no sentences of ours get their class's name before them."""
    said = error.format_message() if hasattr(error, "format_message") else str(error)  # typer's own errors format
    text = " ".join(said.split()) or "no message"
    plain = isinstance(error, (ValueError, TypeError, ImportError, OSError)) or hasattr(error, "format_message")
    ours = type(error).__module__.startswith("gatescope.")
    return text if plain or ours else f"{type(error).__name__}: {text} Add --debug to see where."
