"""What a metric says of a model's output: one number a sequence, by name, checked."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

Numbers = npt.NDArray[np.float64]
Metric = Callable[[Any], Any]
ALONE = "metric"  # name of one that has none


class Measured(NamedTuple):
    """Numbers (metric, sequence); those that are one number for all stand in a row of NaN but for the first."""

    names: tuple[str, ...]
    single: tuple[bool, ...]
    values: Numbers

    @property
    def means(self) -> Numbers:
        """One number for each metric."""
        return np.array([row[0] if one else row.mean() for row, one in zip(self.values, self.single, strict=True)])


def measured(metric: Metric, output: Any, what: str, like: Measured | None = None) -> Measured:
    """What a metric says of one output; `like` is what it said of the intact model and must say again in form."""
    said = metric(output)
    named = {str(name): value for name, value in said.items()} if isinstance(said, Mapping) else {ALONE: said}
    if not named:
        raise ValueError(f"metric must return at least one number; an empty mapping came from {what}. Name one.")
    rows = {name: _row(name, value, what) for name, value in named.items()}
    sizes = {row.size for row in rows.values() if row.ndim}
    if len(sizes) > 1:
        came = ", ".join(f"{name} {row.size}" for name, row in rows.items() if row.ndim)
        raise ValueError(f"metrics must all have one number a sequence; {came} came from {what}. Average over steps.")
    values = np.full((len(rows), max(sizes, default=1)), np.nan)
    for place, row in enumerate(rows.values()):
        values[place, : row.size if row.ndim else 1] = row
    found = Measured(tuple(rows), tuple(row.ndim == 0 for row in rows.values()), values)
    if like is not None and (found.names, found.single, found.values.shape) != (
        like.names,
        like.single,
        like.values.shape,
    ):
        raise ValueError(
            f"metric must return the same of every run; {_form(found)} came from {what} and {_form(like)} from the "
            "intact model. Count sequences where none is right, too."
        )
    return found


def _row(name: str, value: Any, what: str) -> Numbers:
    """One number, or one for each sequence, as float64."""
    known = f"{name!r} of metric" if name != ALONE else "metric"
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        value = (value.double() if not value.is_complex() else value).numpy()
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{known} must return numbers; {type(value).__name__} came from {what}.") from error
    if array.dtype.kind not in "fiub":
        came = type(value).__name__ if array.dtype.kind == "O" else f"{array.dtype}"
        raise TypeError(
            f"{known} must return a number, one for each sequence, or a mapping of names to such; {came} came from "
            f"{what}. Return for instance ((output - targets) ** 2).mean((1, 2))."
        )
    if array.ndim > 1 or array.size == 0:
        raise ValueError(
            f"{known} must return one number a sequence, (sequence,), or one for all; shape {array.shape} came from "
            f"{what}. Average over the other dimensions."
        )
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        bad = f"{array.item()}" if not array.ndim else f"{array[~np.isfinite(array)][0]} for sequence {_first(array)}"
        raise ValueError(
            f"{known} must return finite numbers; {bad} came from {what}. Leave out what cannot be counted, such as "
            "sequences without the step that it asks about."
        )
    return array


def _first(array: Numbers) -> int:
    return int(np.flatnonzero(~np.isfinite(array))[0])


def _form(found: Measured) -> str:
    each = [
        f"{name} as {'one number' if one else f'{found.values.shape[1]} numbers'}"
        for name, one in zip(found.names, found.single, strict=True)
    ]
    return ", ".join(each)
