"""`gatescope attribution`: which steps of the input, a gate or a state a model's output hangs on."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    import xarray as xr

SHOWN = 5  # steps of each sequence in the table: the largest shares
SEQUENCES = 8


def attribution(
    factory: Annotated[
        str, typer.Argument(metavar="MODULE:CALLABLE", help="Your model, named as for `gatescope record`.")
    ],
    inputs: Annotated[Path, typer.Option(help="An .npz file to run it on, as for `gatescope record`.")],
    target: Annotated[
        str,
        typer.Option(
            metavar="CLASS|TIME,CLASS|SIGNAL:UNIT:TIME",
            help="What is explained: a class of the output; a step and class, where the output has steps (-1 is each "
            "sequence's last); or a unit inside, such as cell_state:3:-1.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The netCDF file to write, ending in .nc; must be new.")],
    method: Annotated[
        str,
        typer.Option(
            help="saliency, input_x_gradient, integrated_gradients, gradient_shap, feature_ablation, occlusion or "
            "shapley_value_sampling."
        ),
    ] = "integrated_gradients",
    to: Annotated[str, typer.Option(metavar="input|initial_state|SIGNAL", help="What it is given to.")] = "input",
    module: Annotated[str | None, typer.Option(help="The path of the module, where there are several.")] = None,
    layer: Annotated[int | None, typer.Option(help="The layer of a signal, where there are several.")] = None,
    direction: Annotated[str | None, typer.Option(help="forward or backward, where there are both.")] = None,
    baseline: Annotated[float, typer.Option(help="What values are compared with.")] = 0.0,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Points on the path of integrated_gradients.")] = 50,
    samples: Annotated[int, typer.Option(min=1, metavar="N", help="Draws of the methods that draw.")] = 25,
    seed: Annotated[int, typer.Option(min=0, help="Of the methods that draw.")] = 0,
) -> None:
    """Say how much of an output each step of the input, of a gate or of a state accounts for."""
    from .ablation_verb import require_new_netcdf
    from .cli import note
    from .loading import load_inputs, load_model, users_code
    from .probe.attribution import attribution as measure

    require_new_netcdf(out)
    wanted = target_of(target)
    model = load_model(factory)
    given = load_inputs(inputs, model)
    with users_code(f"running the model on {given.path}"):
        result = measure(
            model,
            tuple(given.positional),
            target=wanted,
            method=method,
            to=to,
            module=module,
            layer=layer,
            direction=direction,
            baseline=baseline,
            lengths=given.lengths,
            labels=None if to == "initial_state" else given.labels,
            inputs_kwargs=given.keyword,
            n_steps=steps,
            n_samples=samples,
            seed=seed,
        )
    if result.attrs["warning"]:
        note(f"{result.attrs['warning']}.")
    result.to_netcdf(out, engine="h5netcdf")
    typer.echo(table(result))
    typer.echo(f"written  {out}")


def target_of(text: str) -> Any:
    """A target as it is written on the command line.

    >>> target_of("3"), target_of("-1,3"), target_of("cell_state:3:-1")[:3]
    (3, (-1, 3), ('cell_state', 3, -1))
    """
    from .probe.attribution_target import unit

    signal, *numbers = text.split(":")
    try:
        if len(numbers) == 2:
            return unit(signal, unit=int(numbers[0]), time=int(numbers[1]))
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) not in (1, 2):
        raise ValueError(f"target must be CLASS, TIME,CLASS or SIGNAL:UNIT:TIME; {text!r} came. For example: 3.")
    return found[0] if len(found) == 1 else tuple(found)


def table(result: "xr.Dataset") -> str:
    """The target of each sequence and the steps that account for most of it, with a label where there is one."""
    from .cli import aligned

    attrs = result.attrs
    head = f"{attrs['module']} ({attrs['cell']}): {attrs['method']} of {attrs['target']}, given to {attrs['to']}"
    if "by_step" not in result:
        return head
    known = [name for name, values in result.coords.items() if values.dims == ("sequence", "time")]
    rows: list[tuple[str, ...]] = [("sequence", "target", "at the baseline", "largest, step: share")]
    for place in range(min(SEQUENCES, result.sizes["sequence"])):
        one = result.isel(sequence=place)
        values = one["by_step"].to_numpy()
        order = abs(values).argsort(kind="stable")[::-1][:SHOWN]
        parts = []
        for at in (int(at) for at in order if values[at] != 0):
            label = f" {one[known[0]].to_numpy()[at]}" if known else ""
            parts.append(f"{int(one['time'][at])}{label}: {values[at]:+.3g}")
        single = "baseline_output" in one and one["baseline_output"].ndim == 0
        baseline = f"{float(one['baseline_output']):.4g}" if single else "-"
        rows.append((str(one["sequence"].item()), f"{float(one['output']):.4g}", baseline, "  ".join(parts) or "none"))
    left = result.sizes["sequence"] - SEQUENCES
    return f"{head}\n" + "\n".join(aligned(rows, left=4)) + (f"\nand {left} more sequences" if left > 0 else "")
