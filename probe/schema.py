"""The schema of a recording: which dimensions, variables, coordinates and attributes it has, and what padding is.

Nothing here imports torch. `validate` is the one gate that saving, opening and joining go through.
"""

from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray

from ..signals import DIRECTIONS, PREACTIVATION, ROLES, SCHEMA, retention_form

SIGNAL_DIMS = ("layer", "direction", "sequence", "time", "unit")
PROJECTED_DIMS = (*SIGNAL_DIMS[:4], "projection")
LABEL_DIMS = ("sequence", "time")
STARTS = ("given", "zero", "continued", "imposed")
INDEXES = ("layer", "direction", "sequence", "time", "unit", "projection", "gate", "source")
COORDINATES = {"length": ("sequence",), "stream": ("sequence",), "start": ("sequence",), "call": LABEL_DIMS}
FIXED_DIMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "initial_hidden_state": (
        ("layer", "direction", "sequence", "unit"),
        ("layer", "direction", "sequence", "projection"),
    ),
    "initial_cell_state": (("layer", "direction", "sequence", "unit"),),
    "weight_hh": (("layer", "direction", "gate", "unit", "source"),),
    "weight_hr": (("layer", "direction", "projection", "unit"),),
}
RESERVED = frozenset({*INDEXES, *COORDINATES, *FIXED_DIMS, "block"})
TEXT_ATTRS = ("schema", "cell", "retention", "gatescope_version", "torch_version", "module", "created")
NUMBER_ATTRS = ("parity", "tolerance", "training")
SIGNAL_TEXT_ATTRS = ("long_name", "symbol", "role", "units")
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
    if is_text(array):
        return array.astype(object)
    raise SchemaError(
        f"A label must hold text, booleans or numbers, all of one kind; values of type {array.dtype} came. "
        "Turn every value into text or into a number."
    )


def plain(value: Any) -> Any:
    """An attribute's value as Python's own type: numpy's numbers and text become `int`, `float` and `str`."""
    if isinstance(value, np.generic):
        value = value.item()
    return str(value) if isinstance(value, str) else value


def normalise(dataset: xr.Dataset) -> xr.Dataset:
    """The same Dataset with text as objects, whole numbers as int64 and attributes as Python's own types.

    Reading a file back changes these kinds; the values stay as they are, and what is not loaded stays unloaded.
    """
    variables = {name: _normal(variable) for name, variable in dataset.variables.items()}
    coords = {name: variables[name] for name in dataset.coords}
    data = {name: variables[name] for name in dataset.data_vars}
    result = xr.Dataset(data, coords, {key: plain(value) for key, value in dataset.attrs.items()})
    result.set_close(dataset.close)
    return result


def _normal(variable: xr.Variable) -> xr.Variable:
    if variable.dtype.kind in "UT":
        result = xr.Variable(variable.dims, variable.values.astype(object))
    elif variable.dtype.kind in "iu" and variable.dtype != np.int64:
        result = variable.astype(np.int64)
    else:
        result = variable.copy(deep=False)
    result.attrs = {key: plain(value) for key, value in variable.attrs.items()}
    return result


def is_signal(recording: xr.Dataset, name: str) -> bool:
    """Whether a variable is one of the cell's signals or its pre-activation, not something derived from them."""
    return name in recording.data_vars and ("role" in recording[name].attrs or name.endswith(PREACTIVATION))


def signal_names(recording: xr.Dataset) -> list[str]:
    """The recording's signals (what carries an attribute `role`), without their pre-activations."""
    return [str(name) for name, variable in recording.data_vars.items() if "role" in variable.attrs]


def stepwise_names(recording: xr.Dataset) -> list[str]:
    """All data variables over sequence and time: signals, pre-activations, gradients, running sums."""
    return [str(name) for name, variable in recording.data_vars.items() if {*LABEL_DIMS} <= {*variable.dims}]


def label_names(recording: xr.Dataset) -> list[str]:
    """The names of the user's labels: coordinates over (sequence, time) that the schema does not define itself."""
    return [str(k) for k, v in recording.coords.items() if v.dims == LABEL_DIMS and k not in RESERVED]


def validate(recording: xr.Dataset | xr.DataTree, *, values: bool | None = None) -> xr.Dataset | xr.DataTree:
    """Check that a Dataset, or every node of a DataTree, is a recording, and give it back unchanged.

    Parameters
    ----------
    recording
        What came from a probe, from a file or from somebody's own code.
    values
        `True` also reads every signal to check that its padding is NaN; `False` never looks at signals' values;
        by default those signals are checked that are in memory already, so a lazily opened file stays unread.

    Raises
    ------
    SchemaError
        One sentence that names the first variable, coordinate or attribute that breaks the schema.
    TypeError
        For what is neither a Dataset nor a DataTree.
    """
    if isinstance(recording, xr.DataTree):
        _check_tree(recording, values)
    elif isinstance(recording, xr.Dataset):
        for check in _CHECKS:
            check(recording)
        _check_padding(recording, values)
    else:
        raise TypeError(f"A recording must be an xarray Dataset or DataTree; {type(recording).__name__} came.")
    return recording


def _check_tree(tree: xr.DataTree, values: bool | None) -> None:
    if tree.to_dataset().variables:
        raise SchemaError("The root of a tree of recordings must be empty; it holds variables. Put them into a node.")
    if not tree.children:
        raise SchemaError("A tree of recordings must have a node per module; it has none.")
    for name, node in tree.children.items():
        if node.children:
            raise SchemaError(
                f"A tree of recordings has one level, dots staying in a node's name; node {name!r} has children. "
                "Name the node by the module's full path."
            )
        try:
            validate(node.to_dataset(), values=values)
        except SchemaError as error:
            raise SchemaError(f"Node {name!r}: {error}") from None


def _check_attrs(recording: xr.Dataset) -> None:
    found = recording.attrs.get("schema", "nothing")
    if not isinstance(found, str) or found != SCHEMA:
        raise SchemaError(
            f"A recording's attribute 'schema' must be {SCHEMA!r}; {found!r} came. "
            "Record again, or use the version of gatescope that wrote it."
        )
    for owner, attrs in _all_attrs(recording):
        for key, value in attrs.items():
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not isinstance(key, str) or not (number or isinstance(value, str)):
                raise SchemaError(
                    f"Attributes must be numbers or text; {owner} attribute {key!r} is a {type(value).__name__}. "
                    "Write booleans as 0 or 1 and lists as JSON text."
                )
    for key in (*TEXT_ATTRS, *NUMBER_ATTRS):
        kind: type = str if key in TEXT_ATTRS else Real
        if not isinstance(recording.attrs.get(key), kind):
            came = repr(recording.attrs[key]) if key in recording.attrs else "nothing"
            raise SchemaError(f"A recording must have attribute {key!r} as {_KINDS[kind]}; {came} came.")
    try:
        retention_form(recording.attrs["retention"])
    except ValueError as error:
        raise SchemaError(f"Attribute 'retention': {error}") from None


_KINDS = {str: "text", Real: "a number"}


def _all_attrs(recording: xr.Dataset) -> Iterator[tuple[str, dict[Any, Any]]]:
    yield "the recording's", recording.attrs
    for name, variable in recording.variables.items():
        yield f"{name!r}'s", variable.attrs


def _check_names(recording: xr.Dataset) -> None:
    for name in recording.variables:
        text = isinstance(name, str) and name.isprintable() and name.strip(". ") != ""
        if not text or "/" in str(name) or str(name).startswith("__"):
            raise SchemaError(
                f"A variable's name must be printable text without '/' and without '__' in front; {name!r} came. "
                "Rename it."
            )


def _check_indexes(recording: xr.Dataset) -> None:
    for dim in SIGNAL_DIMS:
        if dim not in recording.dims:
            raise SchemaError(
                f"A recording must have dimension {dim!r}; it has {_listed(recording.dims)}. "
                f"Choose with a list or slice, as in .isel({dim}=[0]), which keeps the dimension."
            )
    for dim in INDEXES:
        if dim in recording.dims:
            _check_index(recording, dim)
    steps = recording.sizes["time"]
    if not np.array_equal(recording["time"].values, np.arange(steps)):
        raise SchemaError(
            f"Coordinate 'time' must count the steps 0 to {steps - 1}; {_listed(recording['time'].values)} came. "
            "A cut recording needs a new 'time' and a 'length' that fits it."
        )
    strange = set(recording["direction"].values.tolist()) - set(DIRECTIONS)
    if strange:
        raise SchemaError(f"Coordinate 'direction' must be {_listed(DIRECTIONS)}; {_listed(sorted(strange))} came.")


def _check_index(recording: xr.Dataset, dim: str) -> None:
    if dim not in recording.coords:
        raise SchemaError(f"Dimension {dim!r} must have an index coordinate of its name; it has none.")
    index = recording.coords[dim]
    if dim in ("direction", "gate"):
        _require_text(recording, dim)
    elif index.dtype != np.int64:
        raise SchemaError(f"Coordinate {dim!r} must be int64; {index.dtype} came.")
    if len(set(index.values.tolist())) < index.size:
        raise SchemaError(f"Coordinate {dim!r} must not repeat a value; {_listed(index.values)} came.")


def _check_coordinates(recording: xr.Dataset) -> None:
    for name, dims in COORDINATES.items():
        if name not in recording.coords or recording[name].dims != dims:
            came = _listed(recording[name].dims) if name in recording.variables else "nothing"
            raise SchemaError(f"A recording must have coordinate {name!r} over {_listed(dims)}; {came} came.")
        if name == "start":
            _require_text(recording, name)
        elif recording[name].dtype != np.int64:
            raise SchemaError(f"Coordinate {name!r} must be int64; {recording[name].dtype} came.")
    block = recording.coords.get("block")
    if block is not None and (block.dims != ("unit",) or block.dtype != np.int64):
        raise SchemaError(f"Coordinate 'block' must be int64 over unit; {block.dtype} over {_listed(block.dims)} came.")
    strange = set(recording["start"].values.tolist()) - set(STARTS)
    if strange:
        raise SchemaError(f"Coordinate 'start' must be one of {_listed(STARTS)}; {_listed(sorted(strange))} came.")
    length, steps = recording["length"].values, recording.sizes["time"]
    if length.size and (length.min() < 0 or length.max() > steps):
        raise SchemaError(
            f"Coordinate 'length' must lie in 0 to {steps}, the size of 'time'; it runs from {length.min()} to "
            f"{length.max()}. Cut 'length' and 'call' together with 'time'."
        )
    wrong = (recording["call"].values < 0) != padding_mask(length, steps)
    if wrong.any():
        sequence, step = np.argwhere(wrong)[0]
        raise SchemaError(
            f"Coordinate 'call' must be -1 exactly where time >= length; sequence {sequence} of length "
            f"{length[sequence]} has {recording['call'].values[sequence, step]} at time {step}."
        )


def _check_labels(recording: xr.Dataset) -> None:
    padding = padding_mask(recording["length"].values, recording.sizes["time"])
    for name in recording.coords:
        if name in RESERVED:
            continue
        label = recording[name]
        if label.dims != LABEL_DIMS:
            raise SchemaError(f"Label {name!r} must lie over {_listed(LABEL_DIMS)}; {_listed(label.dims)} came.")
        if label.dtype.kind not in "Ob" and label.dtype != np.float64:
            raise SchemaError(
                f"Label {name!r} must be text (object), bool or float64; {label.dtype} came. Use probe.schema.as_label."
            )
        if label.dtype.kind == "O":
            _require_text(recording, str(name))
        if not _is_padding(label.values[padding]):
            raise SchemaError(
                f"Label {name!r} must be {padding_value(label.dtype)!r} where time >= length; something else came."
            )


def _check_variables(recording: xr.Dataset) -> None:
    for name, variable in recording.data_vars.items():
        if name in FIXED_DIMS:
            allowed = FIXED_DIMS[str(name)]
        elif is_signal(recording, str(name)):
            allowed = (PROJECTED_DIMS,) if _projected(recording, str(name)) else (SIGNAL_DIMS,)
        elif variable.dtype.kind in "biuf" and name not in RESERVED:
            continue  # what was derived from the signals: gradients, running sums, Jacobians
        else:
            raise SchemaError(f"Variable {name!r} must be numeric and not named like a coordinate; it is neither.")
        if variable.dims not in allowed:
            raise SchemaError(
                f"Variable {name!r} must have dimensions {_listed(allowed[0])}; {_listed(variable.dims)} came. "
                "Transpose it, and choose with lists or slices."
            )
        if variable.dtype.name not in FLOATS:
            raise SchemaError(f"Variable {name!r} must be one of {_listed(FLOATS)}; {variable.dtype} came.")
    _check_signals(recording)


def _check_signals(recording: xr.Dataset) -> None:
    names = signal_names(recording)
    if not names:
        raise SchemaError("A recording must hold at least one signal, a variable with attribute 'role'; it has none.")
    for name in names:
        attrs = recording[name].attrs
        for key in SIGNAL_TEXT_ATTRS:
            if not isinstance(attrs.get(key), str):
                raise SchemaError(f"Signal {name!r} must have attribute {key!r} as text; {attrs.get(key)!r} came.")
        if attrs["role"] not in ROLES:
            raise SchemaError(f"Signal {name!r} must have a role of {_listed(ROLES)}; {attrs['role']!r} came.")
        bounds = [attrs.get("lower"), attrs.get("upper")]
        if any(isinstance(bound, str) for bound in bounds):
            raise SchemaError(f"Signal {name!r} must have numbers as 'lower' and 'upper'; {bounds} came.")
    form, keep = retention_form(recording.attrs["retention"])
    gates = set(recording["gate"].values.tolist()) if "gate" in recording.coords else None
    if form in ("signal", "complement") and gates and gates <= set(names) and keep not in names:
        raise SchemaError(
            f"Attribute 'retention' must name a signal of the recording; {recording.attrs['retention']!r} came beside "
            f"{_listed(names)}."
        )


def _check_padding(recording: xr.Dataset, values: bool | None) -> None:
    if values is False:
        return
    padding = padding_mask(recording["length"].values, recording.sizes["time"])
    for name in (k for k in stepwise_names(recording) if recording[k].dims[2:4] == LABEL_DIMS):
        variable = recording[name].variable
        loaded = getattr(variable, "_in_memory", True)
        if variable.dtype.kind == "f" and (values or loaded) and not _is_padding(variable.values[:, :, padding]):
            raise SchemaError(f"Variable {name!r} must be NaN where time >= length; numbers came.")


_CHECKS: tuple[Callable[[xr.Dataset], None], ...] = (
    _check_attrs,
    _check_names,
    _check_indexes,
    _check_coordinates,
    _check_labels,
    _check_variables,
)


def _projected(recording: xr.Dataset, name: str) -> bool:
    """A projection shortens the hidden state and nothing else."""
    return "projection" in recording.dims and name.startswith("hidden_state")


def _is_padding(values: NDArray[Any]) -> bool:
    value = padding_value(values.dtype)
    return bool(np.isnan(values).all() if value is np.nan else (values == value).all())


def _require_text(recording: xr.Dataset, name: str) -> None:
    values = recording[name].values
    if values.dtype != object or not is_text(values):
        raise SchemaError(f"Coordinate {name!r} must be text with dtype object; {values.dtype} came.")


def _listed(values: Any) -> str:
    items = [str(value) for value in values]
    shown = items if len(items) <= 8 else [*items[:6], "...", items[-1]]
    return ", ".join(shown) or "nothing"
