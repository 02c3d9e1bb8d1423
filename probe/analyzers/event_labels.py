"""Labels beside events: on the events' own sequences, and in classes."""

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from ..layout import LABEL_DIMS, as_label, listed

RARE = "(rare)"
MOST_LABELS = 128  # that are told apart, the most frequent ones

Codes = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


class Classes(NamedTuple):
    """The class of every step (sequence, time), -1 where it has none; the last class is that of rare labels.

    `low` and `high` are the ends of a numeric label's ranges (NaN for what are no ranges); `ranges` says whether
    neighbouring classes are neighbouring values.
    """

    codes: Codes
    names: tuple[str, ...]  # without the rare ones
    low: Numbers
    high: Numbers
    ranges: bool


def label_values(events: xr.Dataset, label: xr.DataArray | str, what: str) -> npt.NDArray[Any]:
    """A label (sequence, time) on the events' own sequences; it may have more steps than they."""
    given = label
    if isinstance(given, str):
        names = [str(name) for name, values in events.coords.items() if values.dims == LABEL_DIMS]
        if given not in names:
            raise ValueError(
                f"{what} must name a label of the recording or be an array over {LABEL_DIMS}; {given!r} came and the "
                f"labels are {listed(names)}. Annotate it while recording, or pass an array."
            )
        given = events[given]
    if not isinstance(given, xr.DataArray) or {*given.dims} != {*LABEL_DIMS}:
        came = given.dims if isinstance(given, xr.DataArray) else type(given).__name__
        raise ValueError(f"{what} must be a label's name or a DataArray over {LABEL_DIMS}; {came} came.")
    given, wanted = given.transpose(*LABEL_DIMS), events["sequence"].to_numpy()
    if "sequence" in given.coords:
        missing = np.setdiff1d(wanted, given["sequence"].to_numpy())
        if missing.size:
            raise ValueError(f"{what} must cover every sequence of the events; {listed(missing)} are missing.")
        given = given.sel(sequence=wanted)
    least = events.sizes["time"]  # without steps that are padding in all sequences, which a label may have
    most = int(events.attrs.get("recorded_steps", given.shape[1]))
    if given.shape[0] != wanted.size or not least <= given.shape[1] <= max(least, most):
        raise ValueError(
            f"{what} must cover {wanted.size} sequences of {least} steps; {given.shape[0]} of {given.shape[1]} came. "
            "Give it the sequences and steps of the recording."
        )
    return np.asarray(given.to_numpy())


def classes_of(events: xr.Dataset, label: xr.DataArray | str, bins: int, at_least: int) -> Classes:
    """The classes of a label: its texts or truth values, or ranges of a number that hold equally many steps."""
    values = as_label(label_values(events, label, "labels"))[:, : events.sizes["time"]]
    real = np.arange(values.shape[1]) < events["length"].to_numpy()[:, None]
    real &= np.isfinite(values) if values.dtype.kind == "f" else values != "" if values.dtype == object else True
    if not real.any():
        raise ValueError("labels must be there on at least one step; all are empty or NaN.")
    found, codes = np.unique(values[real] if values.dtype != object else values[real].astype(str), return_inverse=True)
    if values.dtype.kind == "f" and found.size > bins:
        return _ranges(values, real, bins)
    every = np.full(values.shape, -1, dtype=np.int64)
    counts = np.bincount(codes)
    often = np.argsort(-counts, kind="stable")[:MOST_LABELS]
    kept = np.sort(often[counts[often] >= at_least])
    place = np.full(found.size, kept.size, dtype=np.int64)
    place[kept] = np.arange(kept.size)
    every[real] = place[codes]
    names = tuple(_name(found[one]) for one in kept)
    value = found[kept].astype(np.float64) if values.dtype.kind == "f" else np.full(kept.size, np.nan)
    return Classes(every, names, value, value, values.dtype.kind == "f")


def _ranges(values: npt.NDArray[Any], real: npt.NDArray[np.bool_], bins: int) -> Classes:
    inside = values[real]
    edges = np.unique(np.quantile(inside, np.linspace(0, 1, bins + 1), method="inverted_cdf"))
    place = np.clip(np.searchsorted(edges, inside, side="right") - 1, 0, max(0, edges.size - 2))
    every = np.full(values.shape, -1, dtype=np.int64)
    every[real] = place
    low, high = edges[:-1], edges[1:]
    names = tuple(f"{low:.4g} to {high:.4g}" for low, high in pairwise(edges))
    return Classes(every, names, low, high, True)


def _name(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
