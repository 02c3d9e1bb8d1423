"""Gradient flow as text: how much of a change of the state is left some steps later, and by which paths."""

from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from .cli import aligned

SHOWN = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)


def recorded(what: str, inputs: Path | None, module: str | None) -> xr.Dataset:
    """The recording at a path, or of a model that is named as MODULE:CALLABLE and run on the arrays of a file."""
    if Path(what).exists() and ":" not in what:
        if inputs is not None:
            raise ValueError(f"inputs must come with a model; the recording {what} came. Leave out --inputs.")
        return opened(Path(what), module)
    if ":" not in what:
        raise ValueError(
            f"WHAT must be a recording or a model as module:callable; there is no file {what}. Write a recording with "
            "`gatescope record`."
        )
    if inputs is None:
        raise ValueError(f"the model {what} must come with arrays to run it on; none came. Add --inputs ARRAYS.npz.")
    from .loading import load_inputs, load_model, run

    model = load_model(what)
    return run(model, load_inputs(inputs, model), module, (), False, {}, 1e-4)


def opened(path: Path, module: str | None) -> xr.Dataset:
    from .probe.store import open_recording

    found = open_recording(path)
    if isinstance(found, xr.Dataset):
        if module not in (None, found.attrs["module"]):
            raise ValueError(f"module must be the one in {path}, {found.attrs['module']!r}; {module!r} came.")
        return found
    names = [str(name) for name in found.children]
    if module is None and len(names) == 1:
        module = names[0]
    if module not in names:
        came = "none" if module is None else repr(module)
        raise ValueError(f"module must be one of those in {path}; {came} came. Choose from: {', '.join(names)}.")
    return found.children[module].to_dataset()


def horizons_in(steps: int, asked: list[int]) -> list[int]:
    """Those asked for, or 1, 2, 5, 10, ... and the longest that a recording of so many steps has."""
    if asked:
        return sorted(set(asked))
    return sorted({k for k in SHOWN if k < steps} | {max(1, steps - 1)})


def tables(recording: xr.Dataset, horizons: list[int]) -> str:
    """Decay by horizon, verdicts and path shares of every layer and direction."""
    from .probe.analyzers.gradient_flow import gradient_flow

    steps = int(recording["length"].max())
    wanted = horizons_in(steps, horizons)
    whole = gradient_flow(recording)
    shown = gradient_flow(recording, horizons=wanted)
    parts = [heading(whole, recording, steps), decay(shown), verdicts(whole)]
    if "path_share" in whole:
        parts.append(shares(whole))
    return "\n\n".join(parts)


def heading(result: xr.Dataset, recording: xr.Dataset, steps: int) -> str:
    count = recording.sizes["sequence"]
    said = (
        f"{result.attrs['module']} ({result.attrs['cell']}): {count} sequence{'s'[: count != 1]} of up to {steps} steps"
    )
    return f"{said}\nhow much of a change of the state is left k steps later ({result.attrs['judged_block']}, median)"


def places(result: xr.Dataset) -> list[tuple[tuple[str, str], dict[str, Any]]]:
    return [
        ((str(layer), str(direction)), {"layer": layer, "direction": direction})
        for layer in result["layer"].values.tolist()
        for direction in result["direction"].values.tolist()
    ]


def decay(result: xr.Dataset) -> str:
    block = str(result.attrs["judged_block"])
    here = {"norm": "frobenius", "block": block}
    origin = float(result["norm_at_zero"].sel(here))
    rows = [("layer", "direction", *(f"k = {k}" for k in result["horizon"].values.tolist()))]
    for names, place in places(result):
        norms = result["state_norm"].sel({**here, **place, "quantile": 0.5}).values - (
            origin if np.isfinite(origin) else 0
        )
        rows.append((*names, *map(power, norms.tolist())))
    return "\n".join(aligned(rows, left=2))


def verdicts(result: xr.Dataset) -> str:
    rows: list[tuple[str, ...]] = [
        ("layer", "direction", "half-life", "under 1 %", "under float32", "per step", "verdict")
    ]
    for names, place in places(result):
        one = result.sel(place)
        after = [float(one["half_life"]), *one["effective_horizon"].values.tolist()]
        rows.append((*names, *map(step, after), power(float(one["slope"])), str(one["verdict"].item())))
    return "\n".join(aligned(rows, left=2))


def shares(result: xr.Dataset) -> str:
    """Mean signed shares of the paths over all steps."""
    rows = [("layer", "direction", *result["path"].values.tolist())]
    mean = result["path_share"].mean(["sequence", "time"])
    for names, place in places(result):
        rows.append((*names, *(f"{round(100 * share) + 0} %" for share in mean.sel(place).values.tolist())))
    return "by which path one step carries it (shares add to 100 %)\n" + "\n".join(aligned(rows, left=2))


def power(log10: float) -> str:
    """A factor of which the log10 is given: as it is near 1, else as a power of ten.

    >>> power(-0.30103), power(-13.6), power(2.5), power(float("-inf")), power(float("nan"))
    ('0.50', '10^-13.6', '10^2.5', '0', '-')
    """
    if np.isnan(log10):
        return "-"
    if np.isinf(log10):
        return "0" if log10 < 0 else "inf"
    return f"{10**log10:.2f}" if -1.3 < log10 < 2 else f"10^{log10:.1f}"


def step(after: float) -> str:
    return "not reached" if not np.isfinite(after) else f"{after:.3g}"
