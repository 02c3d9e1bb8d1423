"""A report of a recording as one HTML file that anybody can open: findings, health, pictures, and their code."""

import os
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import xarray as xr

from .probe.schema import validate
from .probe.store import open_recording
from .report_page import Opened, page
from .report_view import VALUES

SUFFIXES = (".html", ".htm")
MODULES = 8  # sections of one report


def report(
    recording: xr.Dataset | xr.DataTree | str | os.PathLike[str],
    *,
    out: str | os.PathLike[str],
    module: str | None = None,
    values: int = VALUES,
    overwrite: bool = False,
    say: Callable[[str], None] | None = None,
) -> Path:
    """Write what there is to see in a recording into one HTML file.

    For every module: the certificate, the findings of `describe` with effect, grounds and how to see each, what must
    be known before believing them, pictures with captions that say how to read them, the parameters of all measures,
    and below each picture the code that draws it. The file needs no network, holds no script, is under 5 MB, and
    follows the reader's light or dark theme.

    Parameters
    ----------
    recording
        A recording, a tree of them, or the path of one.
    out
        The file to write, ending in .html; it appears when it is whole.
    module
        Of a tree, the one module to report on; by default each has a section, the first 8 of them.
    values
        At most so many values of each signal are read: of a longer recording the first sequences, or the first steps
        of the first one; the report says so.
    overwrite
        Whether to replace a file that is there.
    say
        Called with a line for each thing that is done.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ValueError
        When `out` cannot be written, there is no such module, or `values` is below 1.
    FileExistsError
        When `out` exists, without `overwrite`.
    SchemaError, TypeError
        For what is no recording.
    """
    target = writable(Path(out), overwrite)
    if values < 1:
        raise ValueError(f"values must be at least 1; {values} came. Leave it out to read {VALUES:,} of each signal.")
    opened, notes = chosen(recording, module)
    text = page(opened, values=values, say=say or (lambda line: None), notes=notes)
    publish(text, target, overwrite)
    return target


def chosen(
    recording: xr.Dataset | xr.DataTree | str | os.PathLike[str], module: str | None
) -> tuple[Opened, list[str]]:
    """The recordings that are reported on, and what must be said about the others."""
    if isinstance(recording, xr.Dataset | xr.DataTree):
        found, source, name = (
            validate(recording),
            "recording = ...  # what was given to gs.report",
            "a recording in memory",
        )
    elif isinstance(recording, str | os.PathLike):
        path = os.fspath(recording)
        found, name = open_recording(path), path
        source = f"recording = gs.open_recording({path!r})"
    else:
        raise TypeError(f"report needs a recording or the path of one; {type(recording).__name__} came.")
    return take(found, f"import gatescope as gs\n\n{source}", name, module)


def take(found: xr.Dataset | xr.DataTree, opening: str, name: str, module: str | None) -> tuple[Opened, list[str]]:
    if isinstance(found, xr.Dataset):
        modules = {str(found.attrs["module"]): found}
        code = {key: opening for key in modules}
    else:
        modules = {str(key): node.to_dataset() for key, node in found.children.items()}
        node = "recording = recording[{!r}].to_dataset()  # a tree has a node per module"
        code = {key: f"{opening}\n{node.format(key)}" for key in modules}
    if module is not None and module not in modules:
        raise ValueError(f"module must be one of {', '.join(map(repr, modules))}; {module!r} came.")
    wanted = list(modules) if module is None else [module]
    notes = []
    if len(wanted) > MODULES:
        left = ", ".join(wanted[MODULES:])
        notes.append(f"Sections are about the first {MODULES} of {len(wanted)} modules. Name one to report on: {left}.")
    return Opened({key: modules[key] for key in wanted[:MODULES]}, lambda key: code[key], name), notes


def writable(target: Path, overwrite: bool) -> Path:
    """Say before the work begins that the file could not be written."""
    if target.suffix.lower() not in SUFFIXES:
        raise ValueError(f"out must end in .html; {target} came.")
    if target.is_dir():
        raise ValueError(f"out must be a file; {target} is a folder. Name a file in it.")
    if os.path.lexists(target) and not overwrite:
        raise FileExistsError(
            f"out must be a new file; {target} exists. Name another, or pass overwrite (--overwrite)."
        )
    folder = target.absolute().parent
    if not folder.is_dir():
        raise ValueError(f"out must be in a folder that exists; {target.parent} does not. Make it first.")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"out must be in a folder that may be written to; {target.parent} may not. Name another.")
    return target


def publish(text: str, target: Path, overwrite: bool) -> None:
    """Write beside the target and rename, so that half a report is never seen and an error leaves the old one."""
    partial = target.with_name(f".{target.name}.{uuid4().hex[:8]}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        writable(target, overwrite)
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
