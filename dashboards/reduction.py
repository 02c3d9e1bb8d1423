"""Fewer numbers for the browser, without hiding what they do: bins of steps, and traces that keep every spike."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_CELLS = 300_000
MOST_POINTS = 4_000
STATISTICS = ("mean", "min", "max")


def binned(values: NDArray[Any], size: int, statistic: str) -> NDArray[np.float32]:
    """Every `size` steps of (time, unit) as one: mean, min or max of the finite values, NaN where there is none.

    >>> binned(np.array([[1.0], [3.0], [np.nan]]), 2, "mean").ravel()
    array([ 2., nan], dtype=float32)
    """
    finite = np.isfinite(values)
    edges = np.arange(0, len(values), size)
    count = np.add.reduceat(finite.astype(np.int64), edges, axis=0)
    empty = {"mean": 0.0, "min": np.inf, "max": -np.inf}[statistic]
    reduce = {"mean": np.add, "min": np.minimum, "max": np.maximum}[statistic]
    result = reduce.reduceat(np.where(finite, values, empty).astype(np.float64), edges, axis=0)
    if statistic == "mean":
        result = result / np.maximum(count, 1)
    return np.where(count > 0, result, np.nan).astype(np.float32)


def bin_size(steps: int, units: int, most_cells: int = MOST_CELLS) -> int:
    """How many steps share a column of the heatmap, so that no more than `most_cells` cells go to the browser.

    >>> bin_size(60, 256), bin_size(20_000, 64)
    (1, 5)
    """
    columns = max(1, most_cells // max(1, units))
    return -(-steps // columns) if steps else 1


def thinned(values: NDArray[Any], most_points: int = MOST_POINTS) -> NDArray[np.int64]:
    """Steps to draw of a long trace: the lowest and the highest of every bin, so that no spike is lost.

    >>> thinned(np.array([0.0, 9.0, 1.0, 0.0, -5.0, 0.0, 0.0, 0.0]), 4).tolist()
    [0, 1, 4, 5]
    """
    steps = len(values)
    if steps <= most_points:
        return np.arange(steps)
    size = -(-2 * steps // most_points)
    full = steps // size
    blocks = np.nan_to_num(values[: full * size].reshape(full, size))
    start = np.arange(full) * size
    kept = np.concatenate([start + blocks.argmin(axis=1), start + blocks.argmax(axis=1), np.arange(full * size, steps)])
    return np.unique(kept)
