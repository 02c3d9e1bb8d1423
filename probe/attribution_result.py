"""The answer to an attribution as a Dataset."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from ..signals import DIRECTIONS
from .attribution_answer import Answer, Asking, total_of
from .attribution_methods import Method, Settings
from .attribution_sources import SignalSource, StateSource
from .labels import check_name, fit

TAKEN = frozenset(
    [
        *("attribution", "by_step", "output", "baseline_output", "completeness_delta", "incomplete", "value"),
        *("baseline", "feature", "draw", "state"),
    ]
)
"""Names of the result's own."""


def numbers(values: Tensor) -> np.ndarray[Any, Any]:
    values = values.detach().cpu()
    return np.asarray((values.float() if values.dtype == torch.bfloat16 else values).numpy())  # numpy has no bfloat16


def dataset(asking: Asking, answer: Answer, method: Method, settings: Settings, baseline: Tensor | None) -> xr.Dataset:
    """Attribution, what it adds up to, and what it was given to; the baseline where it is more than one number."""
    found = {
        "output": (("sequence",), numbers(answer.output), {"long_name": "the target of each sequence", "units": "1"})
    }
    source = asking.source
    per_step = () if answer.baseline_output is None or answer.baseline_output.dim() == 1 else ("time",)
    if answer.baseline_output is not None and answer.delta is not None:
        found["baseline_output"] = (("sequence", *per_step), numbers(answer.baseline_output), {"units": "1"})
        found["completeness_delta"] = (
            ("sequence", *per_step),
            numbers(answer.delta),
            {"long_name": "sum of the attribution less the change of the target", "units": "1"},
        )
    result = xr.Dataset(found, coords={"sequence": np.arange(len(answer.output))})
    if isinstance(source, StateSource):
        shown = {"attribution": answer.values, "value": asking.chosen(source.actual)}
        if baseline is not None:
            shown["baseline"] = asking.chosen(baseline)
        for name, values in shown.items():
            result[name] = of_states(source, asking, name, values)
        return result
    unit = "unit" if isinstance(source, SignalSource) else "feature"
    dims = ("sequence", "time", unit)
    result = result.assign_coords(
        {
            "time": numbers(asking.times),
            unit: numbers(asking.units),
            "length": ("sequence", numbers(asking.real.sum(1))),
        }
    )
    if not (method.groups and settings.by_step):
        result["attribution"] = (dims, numbers(answer.values), {"units": "of the output"})
    result["by_step"] = (dims[:2], numbers(total_of(answer.values, settings)), {"units": "of the output"})
    result["value"] = (dims, numbers(asking.chosen(source.actual)), {"long_name": "what the model has there"})
    if baseline is not None:
        several = ("sequence" if len(baseline) == len(answer.output) else "draw", *dims[1:])
        result["baseline"] = (several, numbers(asking.chosen(baseline)))
    return result


def of_states(source: StateSource, asking: Asking, name: str, values: Tensor) -> xr.DataArray:
    """(sequence, 1, chosen) as (sequence, layer, direction, state, unit); NaN where a state is narrower than others."""
    whole = np.full((len(values), source.actual.shape[-1]), np.nan)
    whole[:, numbers(asking.units)] = numbers(values[:, 0])
    directions, widest = source.directions, max(source.sizes)
    shape = (len(whole), source.rows // directions, directions)
    ends = np.cumsum(source.sizes)[:-1]
    entries = np.split(whole.reshape(*shape, -1), ends, axis=-1)
    padded = [np.pad(e, ((0, 0),) * 3 + ((0, widest - e.shape[-1]),), constant_values=np.nan) for e in entries]
    found = xr.DataArray(
        np.stack(padded, axis=3),
        dims=("sequence", "layer", "direction", "state", "unit"),
        coords={
            "layer": np.arange(shape[1]),
            "direction": np.array(DIRECTIONS[:directions], dtype=object),
            "state": np.array(source.names, dtype=object),
            "unit": np.arange(widest),
        },
        name=name,
    )
    return found.isel(source.choice)


def label_coordinates(asking: Asking, labels: Mapping[str, Any] | None) -> dict[str, Any]:
    """Labels (sequence, time) as coordinates, at the steps that are asked about."""
    if not labels:
        return {}
    if isinstance(asking.source, StateSource):
        raise ValueError("labels must stand at steps, which the initial state has not. Leave labels out.")
    lengths, steps = numbers(asking.real.sum(1)), asking.real.shape[1]
    found = {}
    for name, values in labels.items():
        check_name(name, TAKEN)
        whole = fit(name, values, lengths, steps, known=bool((lengths < steps).any()))
        found[name] = (("sequence", "time"), whole[:, numbers(asking.times)])
    return found


def with_warning(result: xr.Dataset, method: Method, tolerance: float) -> xr.Dataset:
    """Marks where a method that promises to add up does not, by more than `tolerance` of what it should add up to."""
    text = ""
    if method.complete and "completeness_delta" in result:
        change = result["output"] - result["baseline_output"]
        floor = 1e-5 * max(1.0, float(np.abs(result["output"]).max()))  # rounding
        result["incomplete"] = np.abs(result["completeness_delta"]) > np.maximum(tolerance * np.abs(change), floor)
        count = int(result["incomplete"].sum())
        if count:
            more = " or ".join(name for name in ("n_steps", "n_samples") if name in method.takes)
            text = (
                f"the attribution misses the change of the target by more than {tolerance:g} of it in {count} of "
                f"{result['incomplete'].size} places; raise {more}"
            )
    return result.assign_attrs(warning=text, tolerance=tolerance, captum_version=version("captum"))
