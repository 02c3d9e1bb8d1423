"""How much of an old memory is left: the running product of the retention, as a sum of logs that never underflows."""

from collections.abc import Mapping
from itertools import pairwise
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
    signal = next(iter(signals.values())) if form == "constant" else signals[str(name)]
    sums = np.empty_like(signal, dtype=np.float64)  # in the signal's own order in memory, and summed in place
    zeros: Array | None = None
    for place in np.ndindex(signal.shape[:2]):
        here = {key: values[place] for key, values in signals.items() if key == name}
        keep = np.broadcast_to(np.asarray(retention_values(retention, here)), signal.shape[2:])
        order = slice(None, None, -1) if place[1] else slice(None)
        if not padding.any() and keep.min(initial=1.0) > 0:  # twice as fast
            np.log(keep, out=sums[place], dtype=np.float64)
            accumulate(sums[place][:, order])
            continue
        gone = (keep == 0) & ~padding[:, :, None]
        skipped = gone | padding[:, :, None]
        np.log(keep, out=sums[place], where=~skipped, dtype=np.float64)
        sums[place][skipped] = 0.0
        accumulate(sums[place][:, order])
        if gone.any():
            zeros = np.zeros_like(signal, dtype=np.float32) if zeros is None else zeros
            zeros[place] = gone
            accumulate(zeros[place][:, order])
    if padding.any():
        sums[:, :, padding] = np.nan
    attrs = log_retention_attrs(retention, signals)
    found: dict[str, tuple[Array, dict[str, str]]] = {SUM: (sums, attrs)}
    if zeros is not None:
        zeros[:, :, padding] = np.nan
        counted = {"long_name": "running count of retentions of exactly 0", "symbol": "count", "units": "1"}
        found[ZEROS] = (zeros, counted)
    return found


def accumulate(values: Array) -> None:
    """Running sum over time of (sequence, time, unit), in place.

    >>> values = np.ones((1, 3, 1))
    >>> accumulate(values)
    >>> values.ravel()
    array([1., 2., 3.])
    """
    steps = np.swapaxes(values, 0, 1)
    for before, now in pairwise(steps):
        now += before


def log_retention_attrs(retention: str, signals: Mapping[str, Array]) -> dict[str, str]:
    """The attributes of the running sum; empty where a cell has none."""
    form, name = retention_form(retention)
    if form == "none" or (form != "constant" and name not in signals):
        return {}
    return {"long_name": "running sum of log retention", "symbol": f"sum log({retention})", "units": "1"}
