"""`gatescope ablation`: what a model loses without each unit, block or gate, as a table and a file."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import xarray as xr

SHOWN = 12  # rows of the table: the largest effects


def ablation(
    factory: Annotated[
        str, typer.Argument(metavar="MODULE:CALLABLE", help="Your model, named as for `gatescope record`.")
    ],
    inputs: Annotated[Path, typer.Option(help="An .npz file to run it on, as for `gatescope record`.")],
    metric: Annotated[
        str,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Your own function of the model's output, named as the model is: one number a sequence, one for all, "
            "or a dictionary of such. If it takes two arguments the second is a dictionary of the labels in the "
            ".npz file (`label_NAME`).",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The netCDF file to write, ending in .nc; must be new.")],
    over: Annotated[
        str, typer.Option(metavar="unit|block|gate|unit_gate", help="What is taken out at a time.")
    ] = "unit",
    to: Annotated[
        str | None,
        typer.Option(
            metavar="zero|one|mean|resample", help="What it is held at: zero for units, mean for gates, unless given."
        ),
    ] = None,
    module: Annotated[str | None, typer.Option(help="The path of the module, where there are several.")] = None,
    width: Annotated[
        int | None,
        typer.Option(min=1, metavar="STEPS", help="Take out only in stretches of so many steps, each apart."),
    ] = None,
    rows: Annotated[int, typer.Option(min=1, metavar="N", help="Most sequences in one pass, copies included.")] = 512,
    seed: Annotated[int, typer.Option(help="Of the intervals, and of the donors of resample.")] = 0,
) -> None:
    """Measure how a metric changes when each unit, block or gate is taken out of the recurrence."""
    from .cli import note
    from .loading import load_function, load_inputs, load_model, users_code
    from .probe.ablation import ablation as measure

    require_new_netcdf(out)
    model = load_model(factory)
    given = load_inputs(inputs, model)
    judge = of_output(load_function(metric, "metric"), given.labels, metric)
    with users_code(f"running the model on {given.path}"):
        result = measure(
            model,
            tuple(given.positional),
            judge,
            over=over,  # type: ignore[arg-type]
            to=to,  # type: ignore[arg-type]
            module=module,
            time=width,
            lengths=given.lengths,
            inputs_kwargs=given.keyword,
            rows=rows,
            seed=seed,
        )
    if result.attrs["remark"]:
        note(f"lesions ran {result.attrs['remark']}.")
    result.to_netcdf(out, engine="h5netcdf")
    typer.echo(table(result))
    typer.echo(f"written  {out}")


def require_new_netcdf(path: Path) -> None:
    """Say before the model runs that the result could not be written."""
    from .loading import require_new

    if path.suffix != ".nc":
        raise ValueError(f"out must end in .nc, which effects are written as; {path} came.")
    require_new(path)


def of_output(function: Callable[..., Any], labels: dict[str, Any], name: str) -> Callable[[Any], Any]:
    """The user's metric as a function of the output alone."""
    from inspect import Parameter, signature

    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in signature(function).parameters.values() if one.kind in kinds and one.default is one.empty]
    if not 1 <= len(needed) <= 2:
        raise ValueError(
            f"{name} must take the model's output, and the labels of the .npz file where it needs them; it takes "
            f"{len(needed)} arguments. Write def {name.rpartition(':')[2]}(output, labels)."
        )
    extra = (labels,) if len(needed) == 2 else ()

    def metric(output: Any) -> Any:
        try:
            return function(output, *extra)
        except Exception as error:
            text = " ".join(str(error).split())
            raise ValueError(
                f"calling {name} raised {type(error).__name__}: {text} (add --debug to see where)"
            ) from error

    return metric


def table(result: "xr.Dataset") -> str:
    """The largest effects, of each metric by itself."""
    from .cli import aligned

    inner = [str(dim) for dim in result["effect"].dims if dim != "metric"]
    lines = [f"{result.attrs['module']} ({result.attrs['cell']}): {result.attrs['over']} held at {result.attrs['to']}"]
    for name in result["metric"].to_numpy().tolist():
        flat = result.sel(metric=name).stack(row=inner, create_index=False)
        order = abs(flat["effect"]).to_numpy().argsort(kind="stable")[::-1][:SHOWN]
        rows: list[tuple[str, ...]] = [(*inner, "effect", "from", "to", "corrected p")]
        for at in order:
            one = flat.isel(row=int(at))
            numbers = [f"{float(one[part]):+.3g}" for part in ("effect", "effect_low", "effect_high")]
            p = float(one["p_adjusted"])
            rows.append((*(str(one[dim].item()) for dim in inner), *numbers, "-" if p != p else f"{p:.2g}"))
        left = flat.sizes["row"] - len(order)
        lines.append(f"\n{name}: {float(result['intact'].sel(metric=name)):.4g} in the intact model")
        lines.append("\n".join(aligned(rows, left=len(inner))) + (f"\nand {left} smaller ones" if left else ""))
    return "\n".join(lines)
