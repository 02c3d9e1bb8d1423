"""Which products are taken: over which horizons, ending at which steps, exactly or by a range finder."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from numbers import Integral
from typing import Any

import numpy as np

from .products import Numbers, Whole
from .steps import Places

EXACT_COST = 1e11  # operations up to which products are exact, counted as sequences * steps * 8 units^3
SEVERAL_COST = 2e10  # operations up to which more than one end per sequence is taken
DOUBLE_COST = 1e10  # operations up to which a float32 recording is carried in float64
CUT_COST = 1e11  # operations spent on products with a path cut
ENDS = 16  # most ends per sequence
LONGEST = 10_000  # longest horizon unless a longer one is asked for
DENSE = 32  # horizons up to which every one is taken
PER_DECADE = 24  # horizons in each power of ten beyond that
SAMPLES, SAMPLE_VALUES = 1024, 2**24  # most (sequence, end) pairs of the cell path, and values of them over horizons
LEVELS = (0.1, 0.5, 0.9)  # of the quantiles over sequences and steps
EXACT_HORIZON = 32  # up to which the range finder's short products are exact where that can be afforded


@dataclass(frozen=True)
class Horizons:
    """Steps back in time: at which norms are taken, and at which of them also spectral ones."""

    every: Whole
    spectral: Whole

    @property
    def most(self) -> int:
        return int(self.every[-1])


def choose_horizons(asked: Any, longest: int) -> Horizons:
    """The horizons asked for, or every one up to 32 and then 24 in each power of ten; spectral norms at 1, 2, 5, ..."""
    if asked is not None:
        every = checked(asked, longest)
        return Horizons(every, every)
    longest = min(longest, LONGEST)
    decades = np.log10(max(longest, DENSE) / DENSE)
    spread = np.geomspace(DENSE, max(longest, DENSE), ceil(PER_DECADE * decades) + 1).round().astype(np.int64)
    sparse = [step * 10**power for power in range(5) for step in (1, 2, 5)]
    every = np.unique([*range(1, DENSE + 1), *spread, *sparse, longest])
    return Horizons(every[every <= longest], np.array([k for k in sparse if k <= longest], dtype=np.int64))


def checked(asked: Any, longest: int) -> Whole:
    values = np.unique(np.atleast_1d(np.asarray(asked)))
    if values.size == 0 or values.dtype.kind not in "iu" or values[0] < 1 or values[0] > longest:
        raise ValueError(
            f"horizons must be whole numbers of steps from 1 on, at least one of them not above {longest}, the steps "
            f"between the longest sequence's first and last state; {asked!r} came. Leave horizons out for a default."
        )
    return values.astype(np.int64)


def choose_method(asked: str, cost: float) -> str:
    """`exact` or `range`; `cost` counts operations as sequences * steps * 8 units^3."""
    if asked not in ("auto", "exact", "range"):
        raise ValueError(f"method must be 'auto', 'exact' or 'range'; {asked!r} came.")
    return asked if asked != "auto" else ("exact" if cost <= EXACT_COST else "range")


def choose_ends(lengths: Whole, end: Any, most: int, per_step: float) -> Places:
    """Products' last steps, (sequence, step of reading), in falling order of steps.

    Ends are spread evenly over each sequence, its last step always among them: as many as cost allows, at most 16.
    """
    if end is not None:
        return one_end(lengths, end)
    steps = float(np.minimum(np.maximum(lengths - 1, 0), most).sum())
    count = int(np.clip(SEVERAL_COST // max(1.0, steps * per_step), 1, ENDS))
    found = [
        (sequence, last)
        for sequence, length in enumerate(lengths)
        for last in np.unique(np.linspace(length - 1, 0, count, endpoint=False).round().astype(int))
        if last >= 1
    ]
    return in_order(found)


def one_end(lengths: Whole, end: Any) -> Places:
    if not isinstance(end, Integral) or isinstance(end, bool):
        raise ValueError(f"end must be a whole number, a step of reading (-1 for the last), or None; {end!r} came.")
    at = np.where(int(end) < 0, lengths + int(end), int(end))
    found = [(sequence, last) for sequence, last in enumerate(at) if 1 <= last < lengths[sequence]]
    if not found:
        raise ValueError(
            f"end must be a step with a state before it in some sequence, 1 to {int(lengths.max()) - 1} or negative "
            f"from the last; {end} came."
        )
    return in_order(found)


def in_order(found: Sequence[tuple[int, int]]) -> Places:
    """In falling order of steps, those of one step by sequence."""
    pairs = np.array(found, dtype=np.int64).reshape(-1, 2)
    pairs = pairs[np.lexsort((pairs[:, 0], -pairs[:, 1]))]
    return pairs[:, 0], pairs[:, 1]


def thinned(places: Places, count: int) -> Places:
    """At most `count` of the products, the longest ones among them, evenly chosen."""
    sequence, end = places
    if len(end) <= count:
        return places
    chosen = np.unique(np.linspace(0, len(end) - 1, max(1, count)).round().astype(int))
    return sequence[chosen], end[chosen]


def quantiles(values: Numbers, levels: Sequence[float]) -> Numbers:
    """Quantiles over axis 0, (level, ...), linear between neighbours; NaN counts for nothing, -inf is the lowest.

    >>> quantiles(np.array([[-np.inf], [1.0], [3.0], [np.nan]]), [0.25, 0.5, 0.75]).ravel()
    array([-inf,   1.,   2.])
    """
    ordered = np.sort(values, axis=0)
    count = (~np.isnan(values)).sum(axis=0)
    found = np.full((len(levels), *values.shape[1:]), np.nan)
    for number, level in enumerate(levels):
        place = level * np.maximum(count - 1, 0)
        low = np.floor(place).astype(np.int64)
        high = np.minimum(low + 1, np.maximum(count - 1, 0))
        below, above = (np.take_along_axis(ordered, at[None], axis=0)[0] for at in (low, high))
        with np.errstate(invalid="ignore"):
            between = np.where(place == low, below, below + (place - low) * (above - below))
        between = np.where(np.isneginf(below) & (place > low), -np.inf, between)
        found[number] = np.where(count > 0, between, np.nan)
    return found
