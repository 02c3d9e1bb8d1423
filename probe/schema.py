"""The schema of a recording: which dimensions, variables, coordinates and attributes it has, and what padding is.

Nothing here imports torch. `validate` is the one gate that saving, opening and joining go through.
"""

import numpy as np
import xarray as xr

from .checks import CHECKS, check_padding, is_signal, label_names, signal_names, stepwise_names
from .layout import (
    COORDINATES,
    DISK_ATTRS,
    FIXED_DIMS,
    FLOATS,
    INDEXES,
    LABEL_DIMS,
    PROJECTED_DIMS,
    RESERVED,
    SIGNAL_DIMS,
    STARTS,
    STEP_JACOBIAN,
    SchemaError,
    as_label,
    fits_a_file,
    padding_mask,
    padding_value,
    plain,
    shortened,
)

__all__ = [
    "COORDINATES",
    "DISK_ATTRS",
    "FIXED_DIMS",
    "FLOATS",
    "INDEXES",
    "LABEL_DIMS",
    "PROJECTED_DIMS",
    "RESERVED",
    "SIGNAL_DIMS",
    "STARTS",
    "STEP_JACOBIAN",
    "SchemaError",
    "as_label",
    "is_signal",
    "label_names",
    "normalise",
    "padding_mask",
    "padding_value",
    "plain",
    "signal_names",
    "stepwise_names",
    "validate",
]


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
        for check in CHECKS:
            check(recording)
        check_padding(recording, values)
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
        if not fits_a_file(name):
            raise SchemaError(
                "A node's name must be Unicode text without NUL, of at most 255 bytes and not 'zarr.json'; "
                f"{shortened(name)!r} came. Rename it."
            )
        try:
            validate(node.to_dataset(), values=values)
        except SchemaError as error:
            raise SchemaError(f"Node {name!r}: {error}") from None
