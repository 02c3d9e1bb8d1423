"""`gatescope fixed-points`: where a network stands still under a constant input, as a table and a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import xarray as xr


def fixed_points(
    factory: Annotated[
        str, typer.Argument(metavar="MODULE:CALLABLE", help="Your model, named as for `gatescope record`.")
    ],
    starts: Annotated[
        Path,
        typer.Option(
            metavar="RUN|ARRAYS.npz",
            help="A recording of the model, from whose states the search starts, or an .npz file to run it on first.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The netCDF file to write, ending in .nc; must be new.")],
    input: Annotated[
        str,
        typer.Option(metavar="X,X,...", help="What the module reads at every step: a number for each feature, or one."),
    ] = "0",
    module: Annotated[str | None, typer.Option(help="The path of the module, where there are several.")] = None,
    layer: Annotated[int | None, typer.Option(help="One layer alone, counted from 0.")] = None,
    direction: Annotated[str | None, typer.Option(help="forward or backward, where there are both.")] = None,
    count: Annotated[int, typer.Option(min=1, metavar="N", help="Starts.")] = 512,
    between: Annotated[float, typer.Option(min=0, max=1, help="Share of them between two recorded states.")] = 0.5,
    slow: Annotated[float, typer.Option(min=0, metavar="Q", help="Half the squared speed of slow points.")] = 1e-6,
    seed: Annotated[int, typer.Option(min=0, help="Of the starts.")] = 0,
    picture: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw the state portrait too.")] = None,
) -> None:
    """Find the states at which a network stays under a constant input, and whether they hold or repel."""
    from .ablation_verb import require_new_netcdf
    from .flow_table import recorded
    from .loading import load_model, users_code
    from .probe.fixed_points import fixed_points as find

    require_new_netcdf(out)
    if picture is not None:
        require_picture(picture)
    constant = numbers(input)
    arrays = starts.suffix == ".npz"
    recording = recorded(factory if arrays else str(starts), starts if arrays else None, module)
    model = load_model(factory)
    with users_code("looking for fixed points"):
        result = find(
            model,
            input=constant,
            starts=recording,
            module=module,
            layer=layer,
            direction=direction,
            count=count,
            between=between,
            slow=slow,
            seed=seed,
        )
    result.to_netcdf(out, engine="h5netcdf")
    typer.echo(table(result))
    if picture is not None:
        draw(result, recording, picture)
        typer.echo(f"drawn    {picture}")
    typer.echo(f"written  {out}")


def numbers(text: str) -> Any:
    """
    >>> numbers("0"), numbers("1,-0.5")
    (0.0, [1.0, -0.5])
    """
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"input must be numbers separated by commas; {text!r} came. For example: 0.") from None
    return found[0] if len(found) == 1 else found


def require_picture(path: Path) -> None:
    """Say before the search that the portrait could not be written."""
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise ValueError(f"picture must end in .png, .pdf or .svg; {path} came.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"picture must be in a folder that exists; {path.parent} does not. Make it first.")


def draw(result: "xr.Dataset", recording: "xr.Dataset", path: Path) -> None:
    from matplotlib.figure import Figure

    from .probe.plots.fixed_points import plot_fixed_points

    figure = Figure(figsize=(7, 5.6), layout="constrained")
    plot_fixed_points(result, recording, ax=figure.add_subplot())
    figure.savefig(path, dpi=120)


def table(result: "xr.Dataset") -> str:
    """How many points there are of each kind and number of unstable modes, and their time constants."""
    import numpy as np

    from .cli import aligned

    attrs, fixed = result.attrs, int((result["kind"] == "fixed").sum())
    slow = result.sizes["point"] - fixed
    head = f"{attrs['module']} ({attrs['cell']}, {attrs['direction']}, layers {attrs['layers']}): {fixed} fixed and "
    head += f"{slow} slow points from {attrs['starts']} starts"
    lost = [f"{attrs[f'{name}_starts']} {name}" for name in ("fast", "unsettled", "outlier") if attrs[f"{name}_starts"]]
    lines = [head + (f" ({', '.join(lost)})" if lost else "")]
    rows: list[tuple[str, ...]] = [
        ("kind", "stability", "unstable", "points", "starts", "time constant of the first mode")
    ]
    keys = list(zip(*(result[name].values.tolist() for name in ("kind", "stability", "unstable")), strict=True))
    for key in dict.fromkeys(keys):
        here = result.isel(point=np.array([each == key for each in keys]))
        constants = here["time_constant"].values[:, 0]
        low, high = (f"{value:.3g}" for value in (constants.min(), constants.max()))
        span = low if low == high else f"{low} to {high}"
        rows.append((key[0], key[1], str(key[2]), str(here.sizes["point"]), str(int(here["found"].sum())), span))
    return "\n".join(lines + (aligned(rows, left=2) if len(rows) > 1 else []))
