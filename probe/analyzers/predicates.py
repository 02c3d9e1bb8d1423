"""The statistics that decide a unit's role, from sums, and which roles they support."""

import numpy as np
import numpy.typing as npt

from .evidence import KEEP_EDGES, SEGMENT, Sums
from .runs import Numbers

Flags = npt.NDArray[np.bool_]

ROLES = (
    "dead",
    "stuck",
    "latch",
    "clock",
    "counter",
    "event detector",
    "pass-through",
    "long-memory",
    "short-memory",
)
"""In the order in which the first that holds is a unit's role."""

DEAD = 1e-6  # spread of the memory, in half its range (of 1 where it has none)
STUCK = 0.95  # share of steps at one end of every gate
SIGN_AUC = 0.95  # between a latch's two classes
COMMON = 0.1  # share of the labelled steps that each of the two must have: rare classes have any sign by chance
PLATEAU = 0.5  # share of the memory's variance that lies between segments, not within
PURE = 0.9  # share of steps of a segment with its sign, where no label says what is latched
BOTH = 0.1  # share of segments that each sign must have then
LINE = 0.9  # R^2 of a counter's segments, each with a line of its own, and of a clock's with one slope for all
EVENT_AUC = 0.9  # of an event detector at its class
LEAST = 20  # steps that its class must have, and all others together: a few reach any AUC by chance
RETURN = 0.5  # what is left of its distance from chance two steps later
PASS_KEEP, PASS_WRITE = 0.2, 0.8  # a pass-through keeps less and writes more
LONG = 3.0  # times the layer's (geometric) mean time scale, where the task's lags are not given
LONGEST_SHORT = 5.0  # steps; no shorter time scale is long memory

STATISTICS = {
    "time_scale": "time scale of the typical (median) retention, in steps",
    "reset_rate": "resets per 1000 steps",
    "retention": "mean retention",
    "write": "mean of the gate that writes",
    "spread": "standard deviation of the memory",
    "stuck_share": "share of steps at one end, of the gate that is least at one",
    "plateau": "share of the memory's variance between segments",
    "sign_auc": "AUC between the two classes that the sign tells best, or share of pure segments without label",
    "event_auc": "AUC of the best class against the others",
    "event_left": "what is left of its distance from chance two steps later",
    "line_r2": "R^2 of lines between resets, each with its slope",
    "clock_r2": "R^2 of lines between resets with one slope",
}

MIDDLES = np.concatenate([[-np.inf], (KEEP_EDGES[1:] + KEEP_EDGES[:-1]) / 2, [np.inf]])


def statistics(sums: Sums, labelled: bool) -> dict[str, Numbers]:
    """Every statistic over (..., unit)."""
    steps = np.where(sums.steps > 0, sums.steps, np.nan)
    variance = np.maximum(sums.square / steps - (sums.total / steps) ** 2, 0.0)
    part = {name: sums.segments[..., place] for place, name in enumerate(SEGMENT)}
    ends = np.max(sums.ends, axis=-1) / steps[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        within = part["squares"] / part["steps"]
        found = {
            "time_scale": _time_scale(sums.keep),
            "reset_rate": 1000 * sums.resets / steps,
            "retention": _mean_keep(sums.keep),
            "write": sums.write / steps,
            "spread": np.sqrt(variance),
            "stuck_share": ends.min(axis=-1),
            "plateau": np.clip(1 - within / variance, 0.0, 1.0),
            "line_r2": part["lines"] / part["squares"],
            "clock_r2": part["slope"] ** 2 / (part["times"] * part["squares"]),
        }
        if labelled:
            found["sign_auc"] = _sign_auc(sums)
            found["event_auc"], found["event_left"] = _event_auc(sums)
        else:
            share = part["positive"] / part["count"]
            both = np.minimum(share, 1 - share) >= BOTH
            found["sign_auc"] = np.where(both, part["pure"] / part["steps"], 0.0)
            found["event_auc"] = found["event_left"] = np.full_like(within, np.nan)
    return found


def _time_scale(keep: Numbers) -> Numbers:
    """-1 / log of the median retention, from counts over classes of its logit."""
    running = np.cumsum(keep, axis=-1)
    total = running[..., -1:]
    middle = MIDDLES[np.argmax(running >= total / 2, axis=-1)]
    with np.errstate(divide="ignore"):
        log = -np.logaddexp(0.0, -middle)
        scale = np.where(log < 0, -1 / log, np.inf)
    return np.where(total[..., 0] > 0, scale, np.nan)


def _mean_keep(keep: Numbers) -> Numbers:
    values = 1 / (1 + np.exp(-np.clip(MIDDLES, -50, 50)))
    total = keep.sum(axis=-1)
    return np.asarray(np.where(total > 0, keep @ values / np.where(total > 0, total, 1.0), np.nan))


def areas(counts: npt.NDArray[np.floating]) -> Numbers:
    """AUC (..., class) of each class against all others from counts (..., class, bin), ties counting half.

    >>> areas(np.array([[0.0, 2.0], [2.0, 0.0]]))
    array([1., 0.])
    """
    every = counts.sum(axis=-2, dtype=np.float64)
    below = np.cumsum(every, axis=-1) - every / 2  # steps of any class with a smaller value, ties counting half
    own = (counts @ np.ones(counts.shape[-1], counts.dtype)).astype(np.float64)
    won = np.einsum("...cb,...b->...c", counts, below) - own**2 / 2  # less the pairs within the class
    pairs = own * (own.sum(axis=-1, keepdims=True) - own)
    return np.asarray(np.where(pairs > 0, won / np.where(pairs > 0, pairs, 1.0), np.nan))


def _sign_auc(sums: Sums) -> Numbers:
    """Between the class with most positive steps and that with most negative ones; 0 where no class has each sign."""
    counts = sums.classes
    all_signs = sums.signs.sum(axis=-1)
    steps = counts.sum(axis=-1, dtype=np.float64)
    common = (all_signs > 0) & (steps >= COMMON * steps.sum(axis=-1, keepdims=True))
    code = (sums.signs[..., 1] - sums.signs[..., 0]) / np.where(common, all_signs, np.nan)
    high = np.argmax(np.nan_to_num(code, nan=-2.0), axis=-1)
    low = np.argmin(np.nan_to_num(code, nan=2.0), axis=-1)
    pair = np.stack([low, high], axis=-1)
    two = np.take_along_axis(counts, pair[..., None], axis=-2)
    signed = (np.take_along_axis(code, high[..., None], -1) > 0.5) & (
        np.take_along_axis(code, low[..., None], -1) < -0.5
    )
    return np.asarray(np.where(signed[..., 0], np.nan_to_num(areas(two)[..., 1]), 0.0))


def _event_auc(sums: Sums) -> tuple[Numbers, Numbers]:
    now, later = (np.nan_to_num(areas(counts) - 0.5) for counts in (sums.classes, sums.classes_ago))
    steps = sums.classes.sum(axis=-1, dtype=np.float64)
    others = steps.sum(axis=-1, keepdims=True) - steps
    now = np.where(np.minimum(steps, others) >= LEAST, now, 0.0)
    best = np.argmax(np.abs(now), axis=-1)[..., None]
    here, then = (np.take_along_axis(value, best, axis=-1)[..., 0] for value in (now, later))
    return 0.5 + np.abs(here), np.abs(then) / np.where(here == 0, np.nan, np.abs(here))


def holding(found: dict[str, Numbers], half_range: float, lags: tuple[int, int] | None) -> Flags:
    """Which roles hold, (role, ..., unit)."""
    scale = found["time_scale"]
    known = np.isfinite(scale) & (scale > 0)  # a retention of 0 has a time scale of 0, whose logarithm says nothing
    logs = np.where(known, np.log(np.where(known, scale, 1.0)), 0.0)
    middle = np.exp(logs.sum(axis=-1, keepdims=True) / np.maximum(known.sum(axis=-1, keepdims=True), 1))
    least = float(lags[1]) if lags else np.maximum(LONG * middle, LONGEST_SHORT)
    alone = scale.shape[-1] == 1 and lags is None
    with np.errstate(invalid="ignore"):
        latch = (found["sign_auc"] >= (SIGN_AUC if np.isfinite(found["event_auc"]).any() else PURE)) & (
            found["plateau"] >= PLATEAU
        )
        long = (scale >= (LONGEST_SHORT if alone else least)) | (scale == np.inf)
        roles = {
            "dead": found["spread"] <= DEAD * half_range,
            "stuck": found["stuck_share"] >= STUCK,
            "latch": latch & ~(found["event_left"] <= RETURN),
            "clock": found["clock_r2"] >= LINE,
            "counter": found["line_r2"] >= LINE,
            "event detector": (found["event_auc"] >= EVENT_AUC) & (found["event_left"] <= RETURN),
            "pass-through": (found["retention"] < PASS_KEEP) & (found["write"] > PASS_WRITE),
            "long-memory": long,
            "short-memory": ~long & ~np.isnan(scale),
        }
    return np.stack([np.asarray(roles[role], dtype=bool) for role in ROLES])


def first_role(holds: Flags) -> npt.NDArray[np.int64]:
    """The first role that holds, as its place in ROLES; their number where none does."""
    return np.where(holds.any(axis=0), np.argmax(holds, axis=0), len(ROLES))
