"""Bringing a label and the values of a signal together, step by step, at a lag."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from ..layout import LABEL_DIMS, as_label
from ..schema import label_names
from .runs import Numbers, lengths_of

AT_ONCE = 2**22  # values gathered at once
MOST_CLASSES = 64


class Label(NamedTuple):
    """A label over (sequence, time): the class of every step, or of a numeric label its value."""

    name: str
    values: npt.NDArray[Any]  # int64 with -1 where a step has none; of a numeric label float64 with NaN
    classes: tuple[str, ...]  # empty for a numeric label

    @property
    def labelled(self) -> npt.NDArray[np.bool_]:
        return self.values >= 0 if self.classes else np.isfinite(self.values)


class Part(NamedTuple):
    """Values and labels of the same steps, of some units of one layer and direction at one lag."""

    at: tuple[int, int, int, slice]  # lag, layer, direction, units
    values: Numbers  # (step, unit)
    label: npt.NDArray[Any]  # (step,)
    sequences: npt.NDArray[np.int64]  # (step,)


def read_label(recording: xr.Dataset, label: str | xr.DataArray) -> Label:
    """The recording's label of that name, or the label itself where an array came, with its classes."""
    if isinstance(label, str) and label not in label_names(recording):
        raise ValueError(
            f"labels must name a label of the recording or be one; {label!r} came and it has "
            f"{label_names(recording)}. Name labels with probe.annotate or record(labels=...)."
        )
    array = recording[label] if isinstance(label, str) else label
    name = label if isinstance(label, str) else str(getattr(array, "name", None) or "label")
    shape = tuple(recording.sizes[dim] for dim in LABEL_DIMS)
    if np.shape(array) != shape:
        raise ValueError(f"Label {name!r} must lie over {LABEL_DIMS} with sizes {shape}; {np.shape(array)} came.")
    values = as_label(np.asarray(array))
    if values.dtype.kind == "f":
        return Label(name, values, ())
    texts = values.astype(str)
    classes = tuple(sorted(set(texts.ravel()) - {""}))
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise ValueError(
            f"A label must have 2 to {MOST_CLASSES} classes; {name!r} has {len(classes)}. "
            "Put rare classes together, or turn the label into numbers."
        )
    codes = np.searchsorted(np.array(classes), texts)
    return Label(name, np.where(texts == "", -1, np.minimum(codes, len(classes) - 1)), classes)


def parts(recording: xr.Dataset, signal: str, lags: list[int], label: Label, *, whole: bool = False) -> Iterator[Part]:
    """The labelled steps of a signal at each lag, by sequence, a few units at a time or a whole layer."""
    lengths = lengths_of(recording, signal)
    order = np.argsort(recording["sequence"].to_numpy(), kind="stable")
    pairs = {
        (place, lag): _pairs(label.labelled, lengths, order, lag, str(direction) == "backward")
        for place, direction in enumerate(recording["direction"].to_numpy())
        for lag in lags
    }
    sizes = recording.sizes
    width = max(1, sizes["unit"]) if whole else max(1, AT_ONCE // max(1, sizes["sequence"] * sizes["time"]))
    for layer, direction in np.ndindex(sizes["layer"], sizes["direction"]):
        for first in range(0, sizes["unit"], width):
            units = slice(first, min(first + width, sizes["unit"]))
            values = recording[signal].isel(layer=layer, direction=direction, unit=units).to_numpy()
            flat = values.reshape(-1, values.shape[2])
            for place, lag in enumerate(lags):
                now, then = pairs[direction, lag]
                at = (place, layer, direction, units)
                yield Part(at, flat[now].astype(np.float64), label.values.ravel()[then], now // sizes["time"])


def _pairs(
    labelled: npt.NDArray[np.bool_],
    lengths: npt.NDArray[np.int64],
    order: npt.NDArray[np.int64],
    lag: int,
    backward: bool,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Places in (sequence, time), flattened, of values and of the labels that came `lag` steps before them."""
    steps = labelled.shape[1]
    time = np.arange(steps)
    then = time + lag if backward else time - lag
    real = (time < lengths[:, None]) & (then >= 0) & (then < lengths[:, None])
    real &= np.take(labelled, np.clip(then, 0, max(0, steps - 1)), axis=1) if steps else False
    row, now = np.nonzero(real[order])
    return order[row] * steps + now, order[row] * steps + then[now]
