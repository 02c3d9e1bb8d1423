"""Labels: from what a caller has at hand to one array (sequence, time) per name."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from .arrivals import GRADIENT
from .layout import LABEL_DIMS, RESERVED, is_storable, is_unicode, padding_mask, padding_value, shortened
from .retention import SUM, ZEROS

Labels = Mapping[str, Any]
LabelSource = Labels | Callable[[tuple[Any, ...], dict[str, Any]], Labels]


class MisfitError(ValueError):
    """Labels that do not fit the steps they should stand at."""


def check_name(name: str, taken: frozenset[str] = frozenset()) -> None:
    """Raise where the recording cannot have a label of this name; `taken` are the names of its signals."""
    if not is_storable(name):
        raise ValueError(
            "labels must have printable names without '/' and without '__' in front, of at most 255 bytes and not "
            f"'zarr.json'; {shortened(name)!r} came. Call it for instance 'token'."
        )
    stem = name.removeprefix("initial_").removesuffix(GRADIENT)
    if name in RESERVED | taken | {SUM, ZEROS} or stem in taken:
        raise ValueError(
            f"labels must not take a name of the recording's own; {name!r} came. "
            f"Call it for instance {name + '_label'!r}."
        )


def check_source(labels: Any) -> None:
    if not (labels is None or isinstance(labels, Mapping) or callable(labels)):
        raise TypeError(
            f"labels must be a mapping from names to arrays, or a function; {type(labels).__name__} came. "
            "Give for instance {'token': tokens}."
        )
    for name in labels if isinstance(labels, Mapping) else ():
        if not isinstance(name, str):
            raise TypeError(f"labels must be named by text; {name!r} came. Call it for instance 'token'.")


def labels_of(source: Callable[..., Labels], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Labels:
    """What a function says of a call of the model."""
    labels = source(args, kwargs)
    if not isinstance(labels, Mapping):
        raise TypeError(
            f"labels must be a mapping from names to arrays; the function gave {type(labels).__name__}. "
            "Return for instance {'token': tokens}."
        )
    check_source(labels)
    return labels


def plain(values: Any) -> Any:
    """Tensors, DataArrays and arrays as numpy, tuples as lists, everything else as it came; what is masked is None."""
    if isinstance(values, Tensor):
        return dense(values)
    if {*getattr(values, "dims", ())} == {*LABEL_DIMS}:
        values = values.transpose(*LABEL_DIMS)
    if hasattr(values, "to_numpy"):
        return values.to_numpy()
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        if not mask.any():
            return values.data
        known = values.data.astype(object)
        known[mask] = None
        return known
    return list(values) if isinstance(values, (tuple, range)) else values


def dense(tensor: Tensor) -> np.ndarray[Any, Any]:
    try:
        values = tensor.detach().cpu()
        return np.asarray((values.double() if values.is_floating_point() else values).numpy())
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"labels and lengths must be dense tensors with values; one of type {tensor.dtype}, layout "
            f"{tensor.layout}, on {tensor.device} came. Turn it into an array."
        ) from error


def is_row(value: Any) -> bool:
    return isinstance(plain(value), (str, list)) or np.ndim(plain(value)) > 0


def rows_of(name: str, values: Any, sequences: int, steps: int) -> list[list[Any]]:
    """One list of labels per sequence; a text stands for its characters, a flat list for the one sequence or step."""
    values = plain(values)
    if isinstance(values, str):
        values = [values]
    if not isinstance(values, (list, np.ndarray)) or getattr(values, "ndim", 1) == 0:
        raise ValueError(
            f"labels {name!r} must be an array or a nested list (sequence, time); {type(values).__name__} came. "
            "Give one row per sequence."
        )
    rows = list(values)
    texts = bool(rows) and all(isinstance(row, str) for row in rows)
    flat = not any(is_row(row) for row in rows) or (texts and (steps == 1 or (sequences == 1 and len(rows) == steps)))
    if flat:
        rows = [[label] for label in rows] if steps == 1 and len(rows) == sequences else [rows]
    return [list(plain(row)) for row in rows]


def padding_of(name: str, rows: list[list[Any]]) -> tuple[type, Any]:
    """The dtype of a label and what pads it: text '', booleans False, numbers NaN."""
    labels = [label for row in rows for label in row]
    if all(isinstance(label, str) for label in labels) and labels:
        return object, ""
    if all(isinstance(label, (bool, np.bool_)) for label in labels) and labels:
        return bool, False
    if all(getattr(label, "ndim", 0) == 0 and isinstance(_number(label), (int, float)) for label in labels):
        return float, np.nan
    kinds = sorted({type(label).__name__ for label in labels})
    raise ValueError(
        f"labels {name!r} must be all text, all booleans or all numbers, one per step; {', '.join(kinds)} came. "
        "Convert them first."
    )


def _number(label: Any) -> Any:
    return np.nan if label is None else label.item() if hasattr(label, "item") else label


def _float(name: str, label: Any) -> float:
    try:
        return float(_number(label))
    except OverflowError:
        raise ValueError(
            f"labels {name!r} must be numbers that fit into float64; one above 1.8e308 came. Give it as text."
        ) from None


def fit(name: str, values: Any, lengths: np.ndarray[Any, Any], steps: int, *, known: bool) -> np.ndarray[Any, Any]:
    """Labels as an array (sequence, time), padded.

    Parameters
    ----------
    values
        Array or nested list (sequence, time), rows of equal or unequal length.
    lengths
        Steps of each sequence, (sequence,).
    steps
        Size of `time`.
    known
        Whether `lengths` marks where sequences end (then a row has that length or all `steps`); otherwise the longest
        row must have `steps` labels.

    Raises
    ------
    MisfitError
        If there is not one row per sequence, or a row does not have one label per step.
    ValueError
        If labels are of mixed or unknown kind.
    """
    sequences = len(lengths)
    whole = plain(values)
    if isinstance(whole, np.ndarray) and whole.shape == (sequences, steps) and whole.dtype.kind in "biuf":
        return checked(name, padded(whole, lengths))
    rows = rows_of(name, whole, sequences, steps)
    sizes = [len(row) for row in rows]
    if len(rows) != sequences:
        swapped = len(rows) == steps and set(sizes) == {sequences} and sequences != steps
        hint = "Transpose them: the sequence comes first." if swapped else "Give one row per sequence."
        raise MisfitError(
            f"labels {name!r} must have one row for each of {sequences} sequences; {len(rows)} came. {hint}"
        )
    for row, (size, length) in enumerate(zip(sizes, lengths.tolist(), strict=True)):
        if size not in (length, steps) and (known or size > length):
            raise MisfitError(
                f"labels {name!r} must have one label per step; sequence {row} has {length} steps and {size} labels. "
                "Give one label per step."
            )
    if not known and sizes and max(sizes) < lengths.max():
        raise MisfitError(
            f"labels {name!r} must have one label per step; the longest sequence has {lengths.max()} steps, the "
            f"longest row {max(sizes)} labels. Give one label per step."
        )
    dtype, missing = padding_of(name, rows)
    array: np.ndarray[Any, Any] = np.full((sequences, steps), missing, dtype=dtype)
    for row, (labels, length) in enumerate(zip(rows, lengths.tolist(), strict=True)):
        for step, label in enumerate(labels[:length]):
            array[row, step] = _float(name, label) if dtype is float else label
    return checked(name, array)


def padded(values: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A full array of numbers or booleans with padding beyond each sequence's length."""
    kind = bool if values.dtype.kind == "b" else np.float64
    return np.where(padding_mask(lengths, values.shape[1]), padding_value(np.dtype(kind)), values.astype(kind))


def checked(name: str, labels: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Labels as they are stored; `boundary` is made of booleans, also where it came as 0 and 1."""
    if labels.dtype == object and not is_unicode(labels):
        raise ValueError(
            f"labels {name!r} must be Unicode text; a lone surrogate came. Replace it, for instance by '?'."
        )
    if name != "boundary" or labels.dtype == bool:
        return labels
    if labels.dtype == object or not np.isin(labels[~np.isnan(labels)], (0, 1)).all():
        raise ValueError(
            "labels 'boundary' must be booleans, True at the first step of a segment; other values came. "
            "Give them another name."
        )
    marks: np.ndarray[Any, Any] = labels == 1
    return marks


def as_array(values: Any) -> np.ndarray[Any, Any]:
    """Values as an array; ragged ones as objects."""
    try:
        return np.asarray(plain(values))
    except ValueError:
        return np.asarray(plain(values), dtype=object)


def check_lengths(lengths: Any, sequences: int, steps: int) -> np.ndarray[Any, Any]:
    """Lengths as integers (sequence,), each between 0 and `steps`."""
    array = as_array(lengths)
    whole = array.ndim == 1 and array.dtype.kind in "iuf" and bool(np.all(array == np.floor(array)))
    if not whole or len(array) != sequences:
        raise MisfitError(
            f"lengths must be one whole number for each of {sequences} sequences; an array of shape {array.shape} and "
            f"type {array.dtype} came. Give the number of real steps of each sequence."
        )
    if sequences and (array.min() < 0 or array.max() > steps):
        raise MisfitError(
            f"lengths must lie between 0 and the {steps} steps of the call; {array.min():g} to {array.max():g} came. "
            "Give the number of real steps of each sequence."
        )
    return array.astype(np.int64)
