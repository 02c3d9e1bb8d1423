"""What the schema is made of: names, dimensions, kinds of values, and what stands in padding."""

import re
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

SIGNAL_DIMS = ("layer", "direction", "sequence", "time", "unit")
PROJECTED_DIMS = (*SIGNAL_DIMS[:4], "projection")
LABEL_DIMS = ("sequence", "time")
STEP_JACOBIAN = "step_jacobian"
STARTS = ("given", "zero", "continued", "imposed")
INDEXES = (
    *("layer", "direction", "sequence", "time", "unit", "projection", "gate", "source"),
    *("target_state", "source_state"),
)
COORDINATES = {"length": ("sequence",), "stream": ("sequence",), "start": ("sequence",), "call": LABEL_DIMS}
FIXED_DIMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "initial_hidden_state": (
        ("layer", "direction", "sequence", "unit"),
        ("layer", "direction", "sequence", "projection"),
    ),
    "initial_cell_state": (("layer", "direction", "sequence", "unit"),),
    "weight_hh": (("layer", "direction", "gate", "unit", "source"),),
    "weight_hr": (("layer", "direction", "projection", "unit"),),
    "weight_peephole": (("layer", "direction", "gate", "unit"),),
    STEP_JACOBIAN: ((*SIGNAL_DIMS[:4], "target_state", "source_state"),),
}
RESERVED = frozenset({*INDEXES, *COORDINATES, *FIXED_DIMS, "block"})
TEXT_ATTRS = ("schema", "cell", "retention", "gatescope_version", "torch_version", "module", "created")
NUMBER_ATTRS = ("parity", "tolerance", "training")
SIGNAL_TEXT_ATTRS = ("long_name", "symbol", "role", "units")
DISK_ATTRS = ("contents", "coordinates", "stored", "modules", "dtype")
CHUNK_NAME = re.compile(r"(c(\.\d+)*\.)?\d+")
"""Name of a file of data in a zarr folder: the last number of its place, or all of them."""
FLOATS = ("float16", "float32", "float64")


class SchemaError(ValueError):
    """A Dataset, DataTree or file that is not a recording of this schema; the message names the first thing amiss."""


def padding_mask(length: NDArray[np.int64], steps: int) -> NDArray[np.bool_]:
    """Which steps (sequence, time) are padding.

    >>> padding_mask(np.array([1, 3]), 3)
    array([[False,  True,  True],
           [False, False, False]])
    """
    return np.asarray(np.arange(steps) >= np.asarray(length)[:, None])


def padding_value(dtype: np.dtype[Any]) -> Any:
    """What stands in padding: '' for text, False for booleans, -1 for counts, NaN for numbers.

    >>> [padding_value(np.dtype(kind)) for kind in (object, bool, "int64", "float32")]
    ['', False, -1, nan]
    """
    return {"O": "", "b": False, "i": -1, "u": 0}.get(dtype.kind, np.nan)


def is_text(values: NDArray[Any]) -> bool:
    """Whether an array holds text and nothing else, as objects or in one of numpy's own text types."""
    if values.dtype.kind in "UT":
        return True
    return values.dtype.kind == "O" and (
        values.size == 0 or pd.api.types.infer_dtype(values.ravel(), skipna=False) == "string"
    )


def as_label(values: Any) -> NDArray[Any]:
    """Bring the values of a label to one of the three kinds: text (object), booleans, numbers (float64).

    >>> as_label(np.array([["a", "bc"]])).dtype, as_label([[True]]).dtype, as_label([[1, 2]]).dtype
    (dtype('O'), dtype('bool'), dtype('float64'))
    """
    array = np.asarray(values)
    if array.dtype.kind == "b":
        return array
    if array.dtype.kind in "iuf":
        return array.astype(np.float64)
    if is_text(array) and is_unicode(array):
        return array.astype(object)
    raise SchemaError(
        f"A label must hold Unicode text, booleans or numbers, all of one kind; values of type {array.dtype} came. "
        "Turn every value into text or into a number, and replace lone surrogates in text."
    )


def is_unicode(texts: NDArray[Any]) -> bool:
    """Whether texts have a UTF-8 form, which lone surrogates have not."""
    try:
        "".join(texts.ravel().tolist()).encode()
    except UnicodeEncodeError:
        return False
    return True


def is_storable(name: Any) -> bool:
    """Whether both formats on disk can hold something of this name.

    >>> [is_storable(name) for name in ("token", "a/b", "__token", "..", "zarr.json", "x" * 300)]
    [True, False, False, False, False, False]
    """
    text = isinstance(name, str) and name.isprintable() and name.strip(". ") != "" and "/" not in name
    return text and not name.startswith("__") and fits_a_file(name)


def fits_a_file(name: str) -> bool:
    """Whether a name is Unicode text of at most 255 bytes, without NUL, that a zarr folder does not use itself."""
    return (
        "\0" not in name
        and name != "zarr.json"
        and len(name.encode(errors="surrogatepass")) <= 255
        and is_unicode(np.array([name], object))
    )


def shortened(text: str) -> str:
    """A name as it stands in a message."""
    return text if len(text) <= 80 else f"{text[:70]}..."


def plain(value: Any) -> Any:
    """An attribute's value as Python's own type: numpy's numbers and text become `int`, `float` and `str`."""
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, str) else value


def is_padding(values: NDArray[Any]) -> bool:
    """Whether an array holds nothing but padding."""
    value = padding_value(values.dtype)
    return bool(np.isnan(values).all() if value is np.nan else (values == value).all())


def listed(values: Any) -> str:
    """A few values as they stand in a message."""
    items = [str(value) for value in values]
    shown = items if len(items) <= 8 else [*items[:6], "...", items[-1]]
    return ", ".join(shown) or "nothing"
