"""The checks that make up the schema, each of which reads little and names the first thing amiss."""

from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr

from ..signals import DIRECTIONS, PREACTIVATION, ROLES, SCHEMA, retention_form
from .layout import (
    COORDINATES,
    DISK_ATTRS,
    FIXED_DIMS,
    FLOATS,
    INDEXES,
    LABEL_DIMS,
    NUMBER_ATTRS,
    PROJECTED_DIMS,
    RESERVED,
    SIGNAL_DIMS,
    SIGNAL_TEXT_ATTRS,
    STARTS,
    TEXT_ATTRS,
    SchemaError,
    is_padding,
    is_storable,
    is_text,
    listed,
    padding_mask,
    padding_value,
    shortened,
)


def is_signal(recording: xr.Dataset, name: str) -> bool:
    """Whether a variable is one of the cell's signals or its pre-activation, not something derived from them."""
    return name in recording.data_vars and ("role" in recording[name].attrs or name.endswith(PREACTIVATION))


def signal_names(recording: xr.Dataset) -> list[str]:
    """The recording's signals (what carries an attribute `role`), without their pre-activations."""
    names = [str(name) for name, variable in recording.data_vars.items() if "role" in variable.attrs]
    return [name for name in names if not name.endswith(PREACTIVATION)]


def stepwise_names(recording: xr.Dataset) -> list[str]:
    """All data variables over sequence and time: signals, pre-activations, gradients, running sums."""
    return [str(name) for name, variable in recording.data_vars.items() if {*LABEL_DIMS} <= {*variable.dims}]


def label_names(recording: xr.Dataset) -> list[str]:
    """The names of the user's labels: coordinates over (sequence, time) that the schema does not define itself."""
    return [str(k) for k, v in recording.coords.items() if v.dims == LABEL_DIMS and k not in RESERVED]


def check_version(recording: xr.Dataset) -> None:
    found = recording.attrs.get("schema", "nothing")
    if not isinstance(found, str) or found != SCHEMA:
        raise SchemaError(
            f"A recording's attribute 'schema' must be {SCHEMA!r}; {found!r} came. "
            "Record again, or use the version of gatescope that wrote it."
        )


def check_attrs(recording: xr.Dataset) -> None:
    for owner, attrs in _all_attrs(recording):
        for key, value in attrs.items():
            number = isinstance(value, Real) and not isinstance(value, bool)
            if not isinstance(key, str) or not (number or isinstance(value, str)):
                raise SchemaError(
                    f"Attributes must be numbers or text; attribute {key!r} of {owner} is a {type(value).__name__}. "
                    "Write booleans as 0 or 1 and lists as JSON text."
                )
            if isinstance(value, int) and abs(value) >= 2**64:
                raise SchemaError(f"Whole numbers in attributes must fit into 64 bits; {key!r} of {owner} does not.")
            if key in DISK_ATTRS or key.startswith("_"):
                raise SchemaError(
                    f"Attributes must not be named like what files keep there; {key!r} of {owner} is. Rename it."
                )


def check_provenance(recording: xr.Dataset) -> None:
    for key in (*TEXT_ATTRS, *NUMBER_ATTRS):
        kind, said = (str, "text") if key in TEXT_ATTRS else (Real, "a number")
        if not isinstance(recording.attrs.get(key), kind):
            came = repr(recording.attrs[key]) if key in recording.attrs else "nothing"
            raise SchemaError(f"A recording must have attribute {key!r} as {said}; {came} came.")
    try:
        retention_form(recording.attrs["retention"])
    except ValueError as error:
        raise SchemaError(f"Attribute 'retention': {error}") from None


def _all_attrs(recording: xr.Dataset) -> Iterator[tuple[str, dict[Any, Any]]]:
    yield "the recording", recording.attrs
    for name, variable in recording.variables.items():
        yield repr(name), variable.attrs


def check_names(recording: xr.Dataset) -> None:
    for name in recording.variables:
        if not is_storable(name):
            raise SchemaError(
                "A variable's name must be printable text without '/' and without '__' in front, of at most 255 bytes "
                f"and not 'zarr.json'; {shortened(str(name))!r} came. Rename it."
            )


def check_indexes(recording: xr.Dataset) -> None:
    for dim in SIGNAL_DIMS:
        if dim not in recording.dims:
            raise SchemaError(
                f"A recording must have dimension {dim!r}; it has {listed(recording.dims)}. "
                f"Choose with a list or slice, as in .isel({dim}=[0]), which keeps the dimension."
            )
    for dim in INDEXES:
        if dim in recording.dims:
            check_index(recording, dim)
    steps = recording.sizes["time"]
    if not np.array_equal(recording["time"].values, np.arange(steps)):
        raise SchemaError(
            f"Coordinate 'time' must count the steps 0 to {steps - 1}; {listed(recording['time'].values)} came. "
            "A cut recording needs a new 'time' and a 'length' that fits it."
        )
    strange = set(recording["direction"].values.tolist()) - set(DIRECTIONS)
    if strange:
        raise SchemaError(f"Coordinate 'direction' must be {listed(DIRECTIONS)}; {listed(sorted(strange))} came.")


def check_index(recording: xr.Dataset, dim: str) -> None:
    if dim not in recording.coords:
        raise SchemaError(f"Dimension {dim!r} must have an index coordinate of its name; it has none.")
    index = recording.coords[dim]
    if dim in ("direction", "gate"):
        _require_text(recording, dim)
    elif index.dtype != np.int64:
        raise SchemaError(f"Coordinate {dim!r} must be int64; {index.dtype} came.")
    if len(set(index.values.tolist())) < index.size:
        raise SchemaError(f"Coordinate {dim!r} must not repeat a value; {listed(index.values)} came.")


def check_coordinates(recording: xr.Dataset) -> None:
    for name, dims in COORDINATES.items():
        if name not in recording.coords or recording[name].dims != dims:
            came = listed(recording[name].dims) if name in recording.variables else "nothing"
            raise SchemaError(f"A recording must have coordinate {name!r} over {listed(dims)}; {came} came.")
        if name == "start":
            _require_text(recording, name)
        elif recording[name].dtype != np.int64:
            raise SchemaError(f"Coordinate {name!r} must be int64; {recording[name].dtype} came.")
    block = recording.coords.get("block")
    if block is not None and (block.dims != ("unit",) or block.dtype != np.int64):
        raise SchemaError(f"Coordinate 'block' must be int64 over unit; {block.dtype} over {listed(block.dims)} came.")
    strange = set(recording["start"].values.tolist()) - set(STARTS)
    if strange:
        raise SchemaError(f"Coordinate 'start' must be one of {listed(STARTS)}; {listed(sorted(strange))} came.")


def check_lengths(recording: xr.Dataset) -> None:
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


def check_labels(recording: xr.Dataset) -> None:
    padding = padding_mask(recording["length"].values, recording.sizes["time"])
    for name in recording.coords:
        if name in RESERVED or name in recording.dims:
            continue
        label = recording[name]
        if label.dims != LABEL_DIMS:
            raise SchemaError(f"Label {name!r} must lie over {listed(LABEL_DIMS)}; {listed(label.dims)} came.")
        if label.dtype.kind not in "Ob" and label.dtype != np.float64:
            raise SchemaError(
                f"Label {name!r} must be text (object), bool or float64; {label.dtype} came. Convert it with "
                ".astype(object)."
            )
        if label.dtype.kind == "O":
            _require_text(recording, str(name))
        if not is_padding(label.values[padding]):
            raise SchemaError(
                f"Label {name!r} must be {padding_value(label.dtype)!r} where time >= length; something else came."
            )


def check_variables(recording: xr.Dataset) -> None:
    for name, variable in recording.data_vars.items():
        if name in FIXED_DIMS:
            allowed = FIXED_DIMS[str(name)]
        elif str(name).startswith("initial_") and is_signal(recording, str(name).removeprefix("initial_")):
            allowed = FIXED_DIMS["initial_cell_state"]  # a state that only some cells carry
        elif is_signal(recording, str(name)):
            allowed = (PROJECTED_DIMS,) if _projected(recording, str(name)) else (SIGNAL_DIMS,)
        elif variable.dtype.kind in "biuf" and name not in RESERVED:
            continue  # what was derived from the signals: gradients, running sums, Jacobians
        else:
            raise SchemaError(f"Variable {name!r} must be numeric and not named like a coordinate; it is neither.")
        if variable.dims not in allowed:
            raise SchemaError(
                f"Variable {name!r} must have dimensions {listed(allowed[0])}; {listed(variable.dims)} came. "
                "Transpose it, and choose with lists or slices."
            )
        if variable.dtype.name not in FLOATS:
            raise SchemaError(f"Variable {name!r} must be one of {listed(FLOATS)}; {variable.dtype} came.")


def check_signals(recording: xr.Dataset) -> None:
    names = signal_names(recording)
    if not names:
        raise SchemaError("A recording must hold at least one signal, a variable with attribute 'role'; it has none.")
    for name in names:
        attrs = recording[name].attrs
        for key in SIGNAL_TEXT_ATTRS:
            if not isinstance(attrs.get(key), str):
                raise SchemaError(f"Signal {name!r} must have attribute {key!r} as text; {attrs.get(key)!r} came.")
        if attrs["role"] not in ROLES:
            raise SchemaError(f"Signal {name!r} must have a role of {listed(ROLES)}; {attrs['role']!r} came.")
        bounds = [attrs.get("lower"), attrs.get("upper")]
        if any(isinstance(bound, str) for bound in bounds):
            raise SchemaError(f"Signal {name!r} must have numbers as 'lower' and 'upper'; {bounds} came.")
    form, keep = retention_form(recording.attrs["retention"])
    gates = set(recording["gate"].values.tolist()) if "gate" in recording.coords else None
    if form in ("signal", "complement") and gates and gates <= set(names) and keep not in names:
        raise SchemaError(
            f"Attribute 'retention' must name a signal of the recording; {recording.attrs['retention']!r} came beside "
            f"{listed(names)}."
        )


def check_padding(recording: xr.Dataset, values: bool | None) -> None:
    if values is False:
        return
    padding = padding_mask(recording["length"].values, recording.sizes["time"])
    for name in (k for k in stepwise_names(recording) if recording[k].dims[2:4] == LABEL_DIMS):
        variable = recording[name].variable
        loaded = getattr(variable, "_in_memory", True)
        if not (variable.dtype.kind == "f" and (values or loaded)):
            continue
        if not is_padding(_read(name, variable)[:, :, padding]):
            raise SchemaError(f"Variable {name!r} must be NaN where time >= length; numbers came.")


def _read(name: str, variable: xr.Variable) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(variable[...].values)
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise SchemaError(
            f"Variable {name!r} must be whole; reading it ended in {type(error).__name__}: {said}. Copy it again."
        ) from error


def _projected(recording: xr.Dataset, name: str) -> bool:
    """A projection shortens the hidden state and nothing else."""
    return "projection" in recording.dims and name.startswith("hidden_state")


def _require_text(recording: xr.Dataset, name: str) -> None:
    values = recording[name].values
    if values.dtype != object or not is_text(values):
        raise SchemaError(f"Coordinate {name!r} must be text with dtype object; {values.dtype} came.")


CHECKS: tuple[Callable[[xr.Dataset], None], ...] = (
    check_version,
    check_names,
    check_attrs,
    check_provenance,
    check_indexes,
    check_coordinates,
    check_lengths,
    check_labels,
    check_variables,
    check_signals,
)
