"""How long a small change of one unit's memory is felt in the whole state of its layer."""

import numpy as np
import numpy.typing as npt
import xarray as xr

from .correlation import E_FOLD
from .horizons import in_order, thinned
from .products import Group, Numbers, carried, identity, sketch
from .reading import Part, Source
from .steps import Parts, Places, Steps

COST = 2e10  # operations per layer and direction up to which products are exact
ENDS = 4  # products per sequence
MEMORY = 2**27  # bytes of rows that are held at once


def response_timescale(recording: xr.Dataset, most: int) -> tuple[Numbers, npt.NDArray[np.bool_], str]:
    """Steps until a change of the memory is felt 1/e as much, whether these are more than `most`, and how it was done.

    Both are (layer, direction, unit). With P the product of the step Jacobians from step t + 1 to t + k, and the column
    of unit j that says what a change of its memory at t is in the whole state at t (the memory itself, and what the
    cell shows of it in the same step), it is the k at which the norm of P times that column has fallen to 1/e of that
    at k = 0; the median over up to 4 ends per sequence. Above the stated cost P is taken by a range finder, with random
    rows for the rest.
    """
    shape = tuple(recording.sizes[dim] for dim in ("layer", "direction", "unit"))
    found, beyond = np.full(shape, np.nan), np.zeros(shape, dtype=bool)
    try:
        source = Source(recording, "the Jacobian's time scale")
    except ValueError as error:
        return found, beyond, str(error)
    if most < 1 or len(source.widths) > 2:
        return found, beyond, "not defined: too few steps" if most < 1 else "not defined: more than two states"
    total = sum(source.widths)
    if not total:
        return found, beyond, "not defined: no units"
    last = _ends(source.lengths, most)
    exact = 2.0 * total**3 * most <= COST
    last = thinned(last, max(1, int(COST // (2.0 * total**2 * (total if exact else 64) * most))))
    for layer, direction in np.ndindex(shape[:2]):
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # what is not finite becomes NaN
            every = [
                _falls(source, source.part(layer, direction, [sequence]), last[1][last[0] == sequence], most, exact)
                for sequence in np.unique(last[0])
            ]
        steps = np.concatenate(every)
        bad = np.isnan(steps).all(axis=0)
        middle = np.median(np.where(np.isnan(steps), np.inf, steps), axis=0)
        beyond[layer, direction] = np.isinf(middle) & ~bad
        found[layer, direction] = np.where(np.isfinite(middle), middle, np.nan)
    how = "exact products" if exact else "products by a range finder"
    return found, beyond, f"{how}, {len(last[0])} ends, up to {most} steps"


def _ends(lengths: npt.NDArray[np.int64], most: int) -> Places:
    """Last steps (sequence, step) of products that can be `most` steps long."""
    return in_order(
        [
            (sequence, int(last))
            for sequence, length in enumerate(lengths)
            if length - 1 >= most
            for last in np.unique(np.linspace(most, length - 1, ENDS).round())
        ]
    )


def _falls(source: Source, part: Part, ends: npt.NDArray[np.int64], most: int, exact: bool) -> Numbers:
    """Steps (end, unit) until the response is 1/e, of one sequence; infinite where it stays above, NaN for NaN."""
    steps = source.steps(part, np.float64)
    held = sum(source.widths) ** 2 * 8 * 4
    width = max(1, MEMORY // held)
    groups = [ends[first : first + width] for first in range(0, len(ends), width)]
    return np.concatenate([_fall(steps, (np.zeros(len(group), np.int64), group), most, exact) for group in groups])


def _fall(steps: Steps, last: Places, most: int, exact: bool) -> Numbers:
    rows, groups = identity(steps, len(last[0])) if exact else sketch(steps, last, most)
    first = _log_norm(steps, rows, last, groups, np.zeros((len(last[0]), len(groups))))
    units = first.shape[1]
    found, before = np.full((len(last[0]), units), np.inf), np.zeros((len(last[0]), units))
    found[np.isnan(first)] = np.nan
    for product in carried(steps, last, rows, groups, most):
        now = _log_norm(steps, product.rows, product.places, groups, product.scale) - first
        falls = np.isinf(found) & (now < np.log(E_FOLD))
        with np.errstate(invalid="ignore"):
            part = np.where(np.isneginf(now), 0.0, (before + 1) / (before - now))
        found = np.where(falls, product.horizon - 1 + part, found)
        before = now
        if not np.isinf(found).any():
            break
    return found


def _log_norm(steps: Steps, rows: Parts, at: Places, groups: list[Group], scale: Numbers) -> Numbers:
    """Log of the norm of each unit's column, (product, unit), from scaled rows."""
    columns = steps.total(rows, at)
    columns = rows[-1] if columns is None else columns
    parts = []
    for number, group in enumerate(groups):
        squares = group.weight * np.square(columns[:, group.rows].astype(np.float64)).sum(axis=1)
        with np.errstate(divide="ignore"):
            parts.append(np.log(squares) + 2 * scale[:, number, None])
    return np.asarray(np.logaddexp.reduce(parts, axis=0) / 2)
