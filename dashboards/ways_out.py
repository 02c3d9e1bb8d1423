"""What the reader can take away from a page: tables, results, pictures, and the code that draws the same."""

import inspect
import io
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st
import xarray as xr

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Draw = Callable[..., Any]
DRAWING = threading.Lock()  # matplotlib's font cache and pyplot are not made for several threads
SIZE = (11.0, 6.0)  # inches


def show(
    name: str,
    *,
    code: str,
    tables: Mapping[str, "Callable[[], pd.DataFrame]"] | None = None,
    results: Mapping[str, xr.Dataset] | None = None,
    pictures: Mapping[str, Draw] | None = None,
    size: tuple[float, float] = SIZE,
) -> None:
    """A row of downloads, and the code behind a switch. Files are made when somebody asks for them.

    Parameters
    ----------
    name
        Of the files, and of the row: one row of a name on a page.
    code
        Python that draws the same, as from `View.code`.
    tables, results
        What becomes CSV and netCDF.
    pictures
        What becomes PNG and SVG: a function that draws in the axes it is given, `lambda ax: plot_roles(result, ax=ax)`,
        or one without parameters that returns a `Figure`.
    """
    row = st.container(horizontal=True, key=f"ways-{name}")
    for what, table in (tables or {}).items():
        _offer(row, f"{what} (CSV)", partial(_csv, table), f"{what}-{name}.csv", "text/csv")
    for what, result in (results or {}).items():
        _offer(row, f"{what} (netCDF)", partial(netcdf, result), f"{what}-{name}.nc", "application/netcdf")
    for what, draw in (pictures or {}).items():
        for kind, mime in (("png", "image/png"), ("svg", "image/svg+xml")):
            _offer(
                row,
                f"{what} ({kind.upper()})",
                partial(picture, draw, kind, size),
                f"{what}-{name}.{kind}",
                mime,
            )
    if st.toggle("The code that draws this", key=f"code-{name}"):  # its highlighter takes a second: for who asks
        st.code(code, language="python", wrap_lines=True)


def _offer(row: Any, label: str, make: Callable[[], str | bytes], file: str, mime: str) -> None:
    file = file.replace("/", "-").replace(" ", "-")
    row.download_button(label, make, file_name=file, mime=mime, on_click="ignore", key=f"download-{file}")


def _csv(table: "Callable[[], pd.DataFrame]") -> str:
    text: str = table().to_csv(index=False)
    return text


def netcdf(result: xr.Dataset) -> bytes:
    """A result as a netCDF-4 file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.nc"
        result.to_netcdf(path, engine="h5netcdf")
        return path.read_bytes()


def picture(draw: Draw, kind: str, size: tuple[float, float] = SIZE) -> bytes:
    """What a function draws with matplotlib, as PNG or SVG; matplotlib is loaded when somebody asks for it."""
    from matplotlib.figure import Figure

    with DRAWING:
        if inspect.signature(draw).parameters:
            figure = Figure(figsize=size, layout="constrained")
            draw(figure.subplots())
        else:
            figure = _of_pyplot(draw)
        file = io.BytesIO()
        figure.savefig(file, format=kind, dpi=150)
    return file.getvalue()


def _of_pyplot(draw: "Callable[[], Figure]") -> "Figure":
    """The figure of a function that makes one; pyplot keeps what it makes until it is told to forget it."""
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    figure = draw()
    pyplot.close(figure)
    return figure
