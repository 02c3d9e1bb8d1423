"""Orders of the rows of a heatmap: by number, time scale, role, reset rate, or by what units do alike."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..probe.analyzers.predicates import ROLES
from ..probe.analyzers.resets import resets
from ..probe.analyzers.roles import roles
from ..probe.analyzers.timescales import timescales
from . import results
from .chooser import View

NUMBER, SCALE, ROLE, RATE, ALIKE = "number", "time scale", "role", "reset rate", "likeness"
ORDERS = {
    NUMBER: "",
    SCALE: "Units that keep their memory longest stand at the top: time scale that the retention implies.",
    ROLE: "Units of one role stand together.",
    RATE: "Units that reset most often stand at the top.",
    ALIKE: "Units that do the same on these steps stand together: correlation, average linkage.",
}
MOST_STEPS, MOST_UNITS = 2_000, 400  # that units are compared on; beyond so many units branches are not turned


class Order(NamedTuple):
    """Units from top to bottom, groups of them, and what to know; `code`: Python that sorts the same."""

    units: list[int]
    groups: tuple[tuple[str, int], ...] = ()
    said: str = ""
    code: tuple[str, ...] = ()


def ordered(view: View, signal: xr.DataArray, by: str, judge: str | None = None) -> Order:
    """The units of a signal (time, unit or projection) in an order of `ORDERS`; `judge`: the label that roles take."""
    units = signal[signal.dims[-1]].values.tolist()
    if by == NUMBER:
        return Order(units)
    if by == ALIKE:
        return Order([units[place] for place in alike(signal.values)])
    if signal.dims[-1] != "unit":
        return Order(units, said=f"A {signal.dims[-1]} has no {by}.")
    return _by_role(view, units, judge) if by == ROLE else {SCALE: _by_scale, RATE: _by_rate}[by](view, units)


def _by_scale(view: View, units: list[int]) -> Order:
    result = results.of(view, timescales, jacobian=False)
    if isinstance(result, str):
        return Order(units, said=result)
    return _falling(result["gate"], 'gs.timescales(here, jacobian=False)["gate"]', units, view)


def _by_rate(view: View, units: list[int]) -> Order:
    result = results.of(view, resets)
    if isinstance(result, str) or result.attrs["reason"]:
        return Order(units, said=result if isinstance(result, str) else str(result.attrs["reason"]))
    return _falling(result["rate"].isel(kind=0), 'gs.resets(here)["rate"].isel(kind=0)', units, view)


def _falling(values: xr.DataArray, code: str, units: list[int], view: View) -> Order:
    """The largest first, what has no value last."""
    numbers = values.fillna(-1).values.ravel()
    if (numbers < 0).all():
        return Order(units, said="No unit has one: this cell keeps by no gate.")
    here = f"here = recording.sel(layer=[{view.layer}], direction=[{view.direction!r}])"
    lines = (
        here,
        f"order = {code}.squeeze()",
        'order = order["unit"].values[(-order.fillna(-1).values).argsort(kind="stable")]',
    )
    return Order([units[place] for place in (-numbers).argsort(kind="stable")], code=lines)


def _by_role(view: View, units: list[int], judge: str | None) -> Order:
    result = results.of(view, roles, labels=judge)
    if isinstance(result, str):
        return Order(units, said=result)
    played = result["unit_role"].values.ravel().astype(str)
    names = [*ROLES, "none"]
    places = np.argsort([names.index(role) for role in played], kind="stable")
    groups = [(name, int((played == name).sum())) for name in names if (played == name).any()]
    said = ", ".join(f"{count:,} {name}" for name, count in groups) + "."
    return Order([units[place] for place in places], tuple(groups), said)


def alike(values: NDArray[np.floating]) -> NDArray[np.int64]:
    """Places of the columns of (time, unit) so that columns that rise and fall together are neighbours.

    >>> rising = np.arange(4.0)
    >>> order = alike(np.stack([rising, -rising, rising + 1], axis=1)).tolist()
    >>> abs(order.index(0) - order.index(2))
    1
    """
    from scipy.cluster.hierarchy import leaves_list, linkage

    steps, units = values.shape
    if units < 3 or steps < 2:
        return np.arange(units)
    some = np.nan_to_num(np.asarray(values[:: -(-steps // MOST_STEPS)], dtype=np.float64))
    centred = some - some.mean(axis=0)
    size = np.sqrt((centred**2).sum(axis=0))
    unit = np.divide(centred, size, out=np.zeros_like(centred), where=size > 0)
    apart = np.clip(1.0 - (unit.T @ unit)[np.triu_indices(units, 1)], 0.0, 2.0)
    return np.asarray(leaves_list(linkage(apart, "average", optimal_ordering=units <= MOST_UNITS)), dtype=np.int64)
