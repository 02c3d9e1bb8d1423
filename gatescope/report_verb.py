"""`gatescope report`: the findings and pictures of a recording as one HTML file."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    recording: Annotated[Path, typer.Argument(metavar="RECORDING", help="A recording: run.zarr or run.nc.")],
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
    module: Annotated[
        str | None, typer.Option(help="Where there are several modules, the one to report on; else each has a section.")
    ] = None,
    values: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Read at most N values of each signal; 4,194,304 unless given."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file where there is one.")] = False,
) -> None:
    """Write findings, health and pictures of a recording into one HTML file, with the code that draws each."""
    from .report_file import report as write
    from .report_view import VALUES

    written = write(
        recording,
        out=out,
        module=module,
        values=values or VALUES,
        overwrite=overwrite,
        say=lambda line: typer.echo(line, err=True),
    )
    typer.echo(f"written  {written} ({written.stat().st_size / 1e6:.1f} MB)")
