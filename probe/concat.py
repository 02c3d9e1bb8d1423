"""Join recordings of the same module, whatever the number and the length of their sequences."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .retention import SUM, ZEROS
from .schema import LABEL_DIMS, SchemaError, label_names, padding_mask, padding_value, plain, validate

SAME_ATTRS = ("cell", "retention")
SAME_INDEXES = ("layer", "direction", "unit", "projection", "gate", "source", "block")


def concat(recordings: Sequence[xr.Dataset]) -> xr.Dataset:
    """Join recordings along `sequence`; shorter ones get padding at the end of `time`.

    Sequences are numbered anew, in the order given; `stream` stays what it was in each recording. `call` goes on
    counting: calls of different recordings never share a number. A label that one recording lacks is padding there, and
    attribute `labels_left_out` says so.
    `parity`, `tolerance` and `training` are the largest, `created` and every other attribute the first recording's.
    Weights are the first recording's; where others differ, attribute `weights_changed` says so.

    Parameters
    ----------
    recordings
        Datasets with the same cell, signals, layers, directions and units.

    Returns
    -------
    Dataset
        A recording with as many sequences as all of them together and the longest `time`.

    Raises
    ------
    SchemaError
        If one of them is no recording.
    ValueError
        If there is nothing to join, or they differ in more than sequences and lengths.
    """
    parts = list(recordings)
    if not parts:
        raise ValueError("There must be at least one recording to join; none came.")
    for number, part in enumerate(parts):
        _check(number, part, parts[0])
    _check_labels(parts)
    parts = _with_zeros(parts)
    steps = max(part.sizes["time"] for part in parts)
    sequences = sum(part.sizes["sequence"] for part in parts)
    fixed = {"sequence": np.arange(sequences), "time": np.arange(steps)}
    names = list(dict.fromkeys(name for part in parts for name in part.coords if name not in fixed))
    shifted = _calls(parts)
    coords = {name: _join([part.get(name) for part in shifted], shifted, steps) for name in names}
    data = {name: _join([part[name] for part in parts], parts, steps) for name in parts[0].data_vars}
    return xr.Dataset(data, {**_first_in_order(coords, fixed, parts[0])}, _attrs(parts))


def _first_in_order(coords: dict[Any, Any], fixed: dict[str, Any], first: xr.Dataset) -> dict[Any, Any]:
    """The first recording's order of coordinates, then labels that only others have."""
    order = [*first.coords, *(name for name in coords if name not in first.coords)]
    return {name: fixed[name] if name in fixed else coords[name] for name in order}


def _check(number: int, part: xr.Dataset, first: xr.Dataset) -> None:
    if not isinstance(part, xr.Dataset):
        raise TypeError(f"Recordings to join must be Datasets; number {number} is a {type(part).__name__}.")
    try:
        validate(part)
    except SchemaError as error:
        raise SchemaError(f"Recording {number} of those to join: {error}") from None
    found = {key: (first.attrs[key], part.attrs[key]) for key in SAME_ATTRS}
    found["variant"] = (first.attrs.get("variant"), part.attrs.get("variant"))
    found |= {f"{name} coordinates": (_listed(first, name), _listed(part, name)) for name in SAME_INDEXES}
    found["signals and other variables"] = (_compared(first), _compared(part))
    for what, (expected, came) in found.items():
        if expected != came:
            raise ValueError(
                f"Recordings to join must have the same {what}; recording 0 has {_short(expected)}, "
                f"recording {number} has {_short(came)}. Join only recordings of one module."
            )


def _compared(part: xr.Dataset) -> list[str]:
    """What all must have; counts of exact zeros are there only where the retention was ever 0."""
    return sorted(str(name) for name in part.data_vars if name != ZEROS)


def _with_zeros(parts: list[xr.Dataset]) -> list[xr.Dataset]:
    """Where one recording counts exact zeros of the retention, the counts of the others, which saw none."""
    having = next((part for part in parts if ZEROS in part.data_vars), None)
    if having is None or SUM not in having.data_vars:
        return parts
    counts, order = having[ZEROS].variable, list(having.data_vars)
    found = []
    for part in parts:
        if ZEROS not in part.data_vars:
            padding = padding_mask(part["length"].values, part.sizes["time"])[..., None]
            none = np.where(padding, np.nan, np.zeros(part[SUM].shape)).astype(counts.dtype)
            part = part.assign({ZEROS: (counts.dims, none, counts.attrs)})[order]
        found.append(part)
    return found


def _listed(part: xr.Dataset, name: str) -> list[Any] | None:
    return part[name].values.tolist() if name in part.coords else None


def _check_labels(parts: list[xr.Dataset]) -> None:
    kinds: dict[str, tuple[int, np.dtype[Any]]] = {}
    for number, part in enumerate(parts):
        for name in label_names(part):
            first, kind = kinds.setdefault(name, (number, part[name].dtype))
            if part[name].dtype != kind:
                raise ValueError(
                    f"Label {name!r} must be of one kind in all recordings to join; it is {kind} in recording {first} "
                    f"and {part[name].dtype} in recording {number}. Rename one, or bring them to one kind."
                )


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 120 else f"{text[:80]} ... {text[-20:]}"


def _calls(parts: list[xr.Dataset]) -> list[xr.Dataset]:
    """The recordings with their calls counted on; padding stays -1."""
    shifted, offset = [], 0
    for part in parts:
        call = part["call"].values
        shifted.append(part.assign_coords(call=(LABEL_DIMS, np.where(call < 0, -1, call + offset))))
        offset += int(call.max(initial=-1)) + 1
    return shifted


def _join(arrays: list[xr.DataArray | None], parts: list[xr.Dataset], steps: int) -> xr.Variable:
    """One variable of all recordings; where there is no `sequence` to join along, the first one."""
    template = next(array for array in arrays if array is not None).variable
    if "sequence" not in template.dims:
        return template.copy()
    dtype = np.result_type(*(array.dtype for array in arrays if array is not None))
    sizes = {**template.sizes, "sequence": sum(part.sizes["sequence"] for part in parts)}
    if "time" in sizes:
        sizes["time"] = steps
    joined: NDArray[Any] = np.full(tuple(sizes.values()), padding_value(dtype), dtype)
    start = 0
    for array, part in zip(arrays, parts, strict=True):
        stop = start + part.sizes["sequence"]
        if array is not None:
            place = {"sequence": slice(start, stop), "time": slice(part.sizes["time"])}
            joined[tuple(place.get(str(dim), slice(None)) for dim in template.dims)] = array.variable[...].values
        start = stop
    return xr.Variable(template.dims, joined, template.attrs)


def _attrs(parts: list[xr.Dataset]) -> dict[str, Any]:
    attrs = dict(parts[0].attrs)
    for key in ("parity", "tolerance", "training", "dropout"):
        values = [part.attrs[key] for part in parts if key in part.attrs]
        attrs |= {key: plain(np.max(values))} if values else {}
    modules = dict.fromkeys(part.attrs["module"] for part in parts)
    attrs["module"] = " + ".join(modules)
    for key, added in (("nonfinite", []), ("labels_left_out", _labels_lacking(parts))):
        texts = dict.fromkeys([*(part.attrs[key] for part in parts if key in part.attrs), *added])
        attrs |= {key: "; ".join(texts)} if texts else {}
    changed = _weights_changed(parts)
    return {**attrs, "weights_changed": changed} if changed else attrs


def _labels_lacking(parts: list[xr.Dataset]) -> list[str]:
    names = dict.fromkeys(name for part in parts for name in label_names(part))
    lacking = {name: [str(k) for k, part in enumerate(parts) if name not in part.coords] for name in names}
    return [f"{name!r} in joined recording {', '.join(numbers)}" for name, numbers in lacking.items() if numbers]


def _weights_changed(parts: list[xr.Dataset]) -> str:
    """Which recordings were made with other weights than the first; what the first says of itself stays."""
    said = [parts[0].attrs["weights_changed"]] if "weights_changed" in parts[0].attrs else []
    for name, weight in parts[0].data_vars.items():
        if "sequence" in weight.dims:
            continue
        numbers = [str(k) for k, part in enumerate(parts) if not _equal(part[name], weight)]
        if numbers:
            said.append(f"{name} of joined recording {', '.join(numbers)} differs; recording 0's is kept")
    said += [
        f"recording {k}: {p.attrs['weights_changed']}"
        for k, p in enumerate(parts[1:], 1)
        if "weights_changed" in p.attrs
    ]
    return "; ".join(said)


def _equal(weight: xr.DataArray, other: xr.DataArray) -> bool:
    return np.array_equal(weight.values, other.values, equal_nan=True)
