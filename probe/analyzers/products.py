"""Norms of products of step Jacobians over any number of steps: no underflow, and no matrix kept per step.

A product is carried back in time from its last step as rows: all rows of the identity (exact), or a few that span what
survives long (range finder) and some random ones that measure the rest. Rows are brought back to a norm near 1
whenever they leave it; the scale is kept as a float64 log, so 10**-874 is as exact as 0.5.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .jacobian import Array
from .steps import Parts, Places, Steps

Numbers = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
KEEP_WITHIN = 1e8  # sums of squares are brought back to 1 when they leave 1/this and this
TINY = 1e-30  # a sum of squares below this is taken again, since squares may have underflowed
RANGE, PROBES = 16, 16  # rows of the range finder, and random rows beside them
REORTHOGONALISE = 20  # steps between two QR factorisations of the range finder
SMALL = 32  # up to this width spectral norms are taken from the singular values
TURNS, BLOCK = 300, 6  # most turns and width of the power iteration
SETTLED = 1e-11  # relative change at which it ends


class Group(NamedTuple):
    """Rows that look at one state after the product's last step and are scaled together."""

    state: int
    rows: slice
    weight: float  # of their squares: 1, or 1/count for random rows


class Carried(NamedTuple):
    """Products of `horizon` steps; only those long enough are there, which stand first."""

    horizon: int
    places: Places  # of the state before them
    rows: Parts
    scale: Numbers  # (product, group), natural log
    squares: Numbers  # (product, group, state), of the scaled rows


def carried(steps: Steps, last: Places, rows: Parts, groups: Sequence[Group], most: int) -> Iterator[Carried]:
    """Carry rows back from the steps at `last`, which stand in falling order of time, by 1 to `most` steps.

    A product of k steps ends at step `last` and begins at the state after step `last - k`.
    """
    sequence, end = last
    scale = np.zeros((len(end), len(groups)))
    most = min(most, int(end[0]) if len(end) else 0)
    counts = np.searchsorted(-end, -np.arange(1, most + 1), side="right").tolist()
    for horizon, alive in enumerate(counts, start=1):
        if alive < len(end):
            sequence, end, scale = sequence[:alive], end[:alive], scale[:alive]
            rows = tuple(part[:alive] for part in rows)
        rows = steps.pull(rows, (sequence, end - (horizon - 1)))
        squares = squares_of(rows, groups)
        whole = squares.sum(axis=2)
        if not (whole.min() > 1 / KEEP_WITHIN and whole.max() < KEEP_WITHIN):  # NaN too
            scale, squares = rescale(rows, groups, scale, whole, squares)
        yield Carried(horizon, (sequence, end - horizon), rows, scale, squares)


def squares_of(rows: Parts, groups: Sequence[Group]) -> Numbers:
    """Sums of squares, (product, group, state)."""
    found = np.empty((len(rows[0]), len(groups), len(rows)))
    for place, part in enumerate(rows):
        if len(part) == 1:
            for number, group in enumerate(groups):
                flat = part[0, group.rows].reshape(-1)
                found[0, number, place] = np.dot(flat, flat)
            continue
        each = np.einsum("prw,prw->pr", part, part)
        for number, group in enumerate(groups):
            each[:, group.rows].sum(axis=1, out=found[:, number, place], dtype=np.float64)
    return found


def rescale(
    rows: Parts, groups: Sequence[Group], scale: Numbers, whole: Numbers, squares: Numbers
) -> tuple[Numbers, Numbers]:
    """Bring rows back to a norm near 1, in place; the new scales, and the squares of the scaled rows."""
    scale = scale.copy()
    for number, group in enumerate(groups):
        size = whole[:, number]
        leaving = ~((size < KEEP_WITHIN) & (size > 1 / KEEP_WITHIN))
        if not leaving.any():
            continue
        parts = [part[:, group.rows] for part in rows]
        factor = np.where(leaving, np.sqrt(size), 1.0)
        lost = ~((size > TINY) & (size < 1 / TINY))
        if lost.any():
            highest = np.max([np.abs(part).max(axis=(1, 2), initial=0) for part in parts], axis=0)
            factor[lost] = np.where(highest[lost] > 0, highest[lost], 1.0)
        factor[~np.isfinite(factor)] = 1.0
        for place, part in enumerate(parts):
            part /= factor.astype(part.dtype)[:, None, None]
            squares[:, number, place] = np.einsum("prw,prw->p", part, part, dtype=np.float64)
        scale[:, number] += np.log(factor)
    return scale, squares


def identity(steps: Steps, count: int, states: Sequence[int] | None = None) -> tuple[Parts, list[Group]]:
    """The rows of an exact product: all of the state, or only those that look at some states."""
    chosen = range(len(steps.widths)) if states is None else states
    total = sum(steps.widths[state] for state in chosen)
    parts = tuple(np.zeros((count, total, width), steps.dtype) for width in steps.widths)
    groups, first = [], 0
    for state in chosen:
        width = steps.widths[state]
        parts[state][:, first + np.arange(width), np.arange(width)] = 1
        groups.append(Group(state, slice(first, first + width), 1.0))
        first += width
    return parts, groups


def sketch(steps: Steps, last: Places, most: int, seed: int = 0) -> tuple[Parts, list[Group]]:
    """Rows of a range finder for each state, and random ones for what it misses.

    Random columns are pushed forward over the product's steps, which leaves what survives; rows that span it are then
    carried back. Random rows at right angles to them give the rest without bias.
    """
    rng = np.random.default_rng(seed)
    count, widths = len(last[0]), steps.widths
    reached = forward_range(steps, last, most, rng)
    parts: list[list[Array]] = [[] for _ in widths]
    groups: list[Group] = []
    first = 0
    for state, width in enumerate(widths):
        basis = np.linalg.qr(reached[state])[0]  # (product, width, column)
        wide = rng.standard_normal((count, width, PROBES)).astype(steps.dtype)
        wide -= basis @ (np.swapaxes(basis, 1, 2) @ wide)
        for rows, weight in ((basis, 1.0), (wide, 1 / PROBES)):
            number = rows.shape[2]
            groups.append(Group(state, slice(first, first + number), weight))
            first += number
            for other, other_width in enumerate(widths):
                empty = np.zeros((count, number, other_width), steps.dtype)
                parts[other].append(np.ascontiguousarray(np.swapaxes(rows, 1, 2)) if other == state else empty)
    return tuple(np.concatenate(part, axis=1) for part in parts), groups


def looking_at(parts: Parts, groups: list[Group], states: Sequence[int] | None) -> tuple[Parts, list[Group]]:
    """Of some rows those that look at some states; all where no states are given."""
    if states is None:
        return parts, groups
    kept = [group for group in groups if group.state in states]
    places = [np.arange(group.rows.start, group.rows.stop) for group in kept]
    ends = np.cumsum([0, *(len(place) for place in places)])
    chosen = np.concatenate(places)
    moved = [group._replace(rows=slice(int(a), int(b))) for group, a, b in zip(kept, ends[:-1], ends[1:], strict=True)]
    return tuple(np.ascontiguousarray(part[:, chosen]) for part in parts), moved


def forward_range(steps: Steps, last: Places, most: int, rng: np.random.Generator) -> Parts:
    """Columns per state that span what the last `most` steps let through, (product, width, column)."""
    sequence, end = last
    total = sum(steps.widths)
    width = min(RANGE, total)
    joined = rng.standard_normal((len(end), total, width)).astype(steps.dtype)
    cuts = np.cumsum(steps.widths)[:-1]
    for back in range(min(most, int(end[0])), 0, -1):
        time = np.maximum(end - back + 1, 1)  # products that begin later wait at their first step
        moved = np.concatenate(steps.push(tuple(np.split(joined, cuts, axis=1)), (sequence, time)), axis=1)
        begun = end - back + 1 >= 1
        joined = moved if begun.all() else np.where(begun[:, None, None], moved, joined)
        if back % REORTHOGONALISE == 0 or back == 1:
            joined = np.linalg.qr(joined)[0] if np.isfinite(joined).all() else joined
    return tuple(np.split(joined, cuts, axis=1))


def spectral_norm(values: Array) -> Numbers:
    """Largest singular values of matrices (product, row, column), by block power iteration until nothing moves."""
    scale = np.abs(values).max(axis=(1, 2), initial=0).astype(np.float64)
    usable = (scale > 0) & np.isfinite(scale)
    found = np.where(np.isfinite(scale), 0.0, np.nan)
    if not usable.any():
        return found
    matrices = values[usable] / scale[usable, None, None]
    if min(matrices.shape[1:]) <= SMALL:
        largest = np.linalg.svd(matrices, compute_uv=False)[:, 0]
    else:
        largest = np.array([largest_singular(matrix) for matrix in matrices])
    found[usable] = scale[usable] * largest
    return found


def largest_singular(matrix: Numbers) -> float:
    """The largest singular value of a matrix with entries near 1, from a block of columns that it turns into itself."""
    columns = np.random.default_rng(0).standard_normal((matrix.shape[1], BLOCK))
    value = before = 0.0
    for _ in range(TURNS):
        basis = np.linalg.qr(matrix @ columns)[0]
        columns = matrix.T @ basis
        value = float(np.linalg.norm(columns, 2))
        if abs(value - before) <= SETTLED * value:
            break
        before = value
    return value
