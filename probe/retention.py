"""How much of an old memory is left: the running product of the retention, as a sum of logs that never underflows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..signals import retention_form, retention_values

Array = NDArray[Any]
SUM, ZEROS = "log_retention_sum", "retention_zeros"


def log_retention(
    retention: str, signals: Mapping[str, Array], padding: Array
) -> dict[str, tuple[Array, dict[str, str]]]:
    """Running sum of the log of what multiplies the memory, from the start of each sequence, with its attributes.

    The product of the retention over the steps (s, t] is `exp(sum_t - sum_s)`, whatever its size; in the backward
    direction sums run from the last step to the first. Factors of exactly 0 count nothing in the sum and one in
    `retention_zeros`, which is there where they occur.

    Parameters
    ----------
    retention
        A cell's retention, such as `"forget_gate"` or `"1 - update_gate"`.
    signals
        Signals by name, dims (layer, direction, sequence, time, unit).
    padding
        (sequence, time), True in padding.

    Returns
    -------
    dict
        `log_retention_sum` (float64) and, where the retention is exactly 0 somewhere, `retention_zeros`; both have the
        signals' dims and NaN in padding. Empty where the cell has no retention or its signal is missing.

    Examples
    --------
    >>> gate = np.array([0.5, 0.25, 0.0]).reshape(1, 1, 1, 3, 1)
    >>> found = log_retention("forget_gate", {"forget_gate": gate}, np.zeros((1, 3), bool))
    >>> np.exp(found["log_retention_sum"][0].ravel()), found["retention_zeros"][0].ravel()
    (array([0.5  , 0.125, 0.125]), array([0., 0., 1.], dtype=float32))
    """
    form, name = retention_form(retention)
    if form == "none" or (form != "constant" and name not in signals):
        return {}
    shape = next(iter(signals.values())).shape if form == "constant" else signals[str(name)].shape
    sums, zeros = np.empty(shape), np.zeros(shape, np.float32)
    for place in np.ndindex(shape[:2]):
        here = {key: values[place] for key, values in signals.items() if key == name}
        keep = np.broadcast_to(np.asarray(retention_values(retention, here), np.float64), shape[2:])
        gone = (keep == 0) & ~padding[:, :, None]
        logs = np.log(np.where(gone | padding[:, :, None], 1.0, keep))
        order = slice(None, None, -1) if place[1] else slice(None)
        sums[place] = logs[:, order].cumsum(1)[:, order]
        if gone.any():
            zeros[place] = gone[:, order].cumsum(1, dtype=np.float32)[:, order]
    sums[:, :, padding], some = np.nan, bool(zeros.any())
    zeros[:, :, padding] = np.nan
    attrs = log_retention_attrs(retention, signals)
    found: dict[str, tuple[Array, dict[str, str]]] = {SUM: (sums, attrs)}
    if some:
        counted = {"long_name": "running count of retentions of exactly 0", "symbol": "count", "units": "1"}
        found[ZEROS] = (zeros, counted)
    return found


def log_retention_attrs(retention: str, signals: Mapping[str, Array]) -> dict[str, str]:
    """The attributes of the running sum; empty where a cell has none."""
    form, name = retention_form(retention)
    if form == "none" or (form != "constant" and name not in signals):
        return {}
    return {"long_name": "running sum of log retention", "symbol": f"sum log({retention})", "units": "1"}
