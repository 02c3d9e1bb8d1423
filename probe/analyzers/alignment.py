"""Are the learned resets where the data says segments begin."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.stats import false_discovery_control

from .event_labels import label_values
from .hits import HitNull
from .saturation import KEPT_ATTRS
from .trains import Trains, of_blocks, require_events

UNIT_DIMS = ("layer", "direction", "unit")
LEVELS = {"": UNIT_DIMS, "block_": ("layer", "direction", "memory_block"), "layer_": ("layer", "direction")}
FURTHEST = 10  # lags that are counted

Flags = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


def alignment(
    events: xr.Dataset, boundaries: xr.DataArray | str = "boundary", *, tolerance: int = 0, kind: str = "reset"
) -> xr.Dataset:
    """Whether events begin where segments begin: precision, recall, F1, lags, and p against all circular shifts.

    An event is a hit when it begins at most `tolerance` steps from a boundary:

        precision = hits / events                       recall = boundaries with an event near / boundaries
        f1 = 2 * precision * recall / (precision + recall)

    p is the probability of at least as many hits when the events of each sequence are turned by a circular shift of
    its own, uniform and independent between sequences. That distribution is computed, not drawn: the hits of all
    shifts of a sequence at once by FFT, the sum over sequences by convolution. A shift keeps the number of events,
    their distances and those of the boundaries. Where fewer than ten (combinations of) shifts reach as many hits, as
    with one sequence, p comes from a generalized Pareto tail fitted to the other shifts, so that it can fall below
    1 / steps and correction over thousands of units can still reject. p_adjusted is corrected over all units by
    Benjamini and Hochberg (blocks and layers each by themselves).

    A boundary is True at the first step of a segment. Everything is counted in running order: the backward direction
    enters a segment at its last step, the one before the next boundary. The first step of a run that starts from zero
    or from an imposed state is left out, since nothing can be reset there.

    Parameters
    ----------
    events
        What `resets` returned, or some of its events: `events.isel(event=~events["overwrite"].values)`.
    boundaries
        Name of a boolean label that the events carry, or an array (sequence, time), True at each segment's first step.
    tolerance
        Steps by which an event may be early or late, 0 or more.
    kind
        Which events: `"reset"` or, of cells with a reset gate, `"fresh_start"`.

    Returns
    -------
    xr.Dataset
        Over `layer`, `direction`, `unit`: `precision`, `recall`, `f1` (shares), `hits`, `expected` (by the shifts),
        `events` (counts), `lag` (median signed distance to the nearest boundary in steps of running order, positive
        when the event is late), `z`, `p`, `p_adjusted`; and `lags` over `lag_step`, how many events begin that many
        steps after (before: negative) the nearest boundary, up to 10. The same with `block_` in front over
        `memory_block`, where a block's event is one of any of its units, and with `layer_` in front for all units of a
        layer together, where every unit's event counts and a boundary is found if any unit resets there.
        Over `direction`: `boundaries` (count). NaN without events or boundaries, and for `z` and `p` also where no
        shift changes the hits.

    Raises
    ------
    ValueError
        When `events` is not what `resets` returned, boundaries do not fit its sequences and steps, are not boolean,
        or a parameter is out of range.

    References
    ----------
    Y. Benjamini, Y. Hochberg (1995). Controlling the False Discovery Rate. J. R. Stat. Soc. B 57(1).
    doi 10.1111/j.2517-6161.1995.tb02031.x.
    T. A. Knijnenburg, L. F. A. Wessels, M. J. T. Reinders, I. Shmulevich (2009). Fewer permutations, more accurate
    P-values. Bioinformatics 25(12). doi 10.1093/bioinformatics/btp211.

    Examples
    --------
    >>> steps = np.arange(12)
    >>> events = xr.Dataset(
    ...     {"onset": ("event", [3, 6, 8])},
    ...     {"layer": [0], "direction": ["forward"], "unit": [0], "sequence": [0], "time": steps, "event": [0, 1, 2]},
    ...     {"measure": "resets"},
    ... ).assign_coords(length=("sequence", [12]), start=("sequence", ["zero"]))
    >>> for dim, value in {"kind": "reset", "layer": 0, "direction": "forward", "sequence": 0, "unit": 0}.items():
    ...     events[f"event_{dim}"] = "event", [value] * 3
    >>> result = alignment(events, xr.DataArray([np.isin(steps, [0, 3, 6, 9])], dims=["sequence", "time"]))
    >>> round(result["precision"].item(), 3), round(result["recall"].item(), 3)             # 0 is the first step
    (0.667, 0.667)
    """
    require_events(events, "alignment", kind)
    if not (isinstance(tolerance, int | np.integer) and not isinstance(tolerance, bool) and tolerance >= 0):
        raise ValueError(f"tolerance must be a whole number of steps, 0 or more; {tolerance!r} came.")
    marks = boundary_flags(events, boundaries)
    trains = Trains.of(events, kind)
    member, blocks = None, np.empty(0, dtype=np.int64)
    if "block" in events.coords:
        blocks, member = np.unique(events["block"].to_numpy(), return_inverse=True)
    groups = {"": trains.units, "layer_": 1} | ({"block_": len(blocks)} if member is not None else {})
    found = {prefix: Found.empty(trains.shape[:2], size) for prefix, size in groups.items()}
    counted = np.zeros(trains.shape[1], dtype=np.int64)
    for direction in range(trains.shape[1]):
        flags = [trains.running(marks[sequence], direction, sequence) for sequence in range(trains.shape[2])]
        counted[direction] = sum(int(flag.sum()) for flag in flags)
        for layer in range(trains.shape[0]):
            pooled(trains, (layer, direction), flags, int(tolerance), member, found)
    variables: dict[str, Any] = {"boundaries": ("direction", counted, {"long_name": "boundaries", "units": "1"})}
    for prefix, part in found.items():
        variables |= part.variables(prefix, counted)
    coords: dict[str, Any] = {dim: events[dim].variable for dim in UNIT_DIMS}
    coords["lag_step"] = np.arange(-FURTHEST, FURTHEST + 1)
    if member is not None:
        coords |= {"block": events["block"].variable, "memory_block": blocks}
    attrs = {key: events.attrs[key] for key in (*KEPT_ATTRS, "reason") if key in events.attrs}
    name = boundaries if isinstance(boundaries, str) else str(boundaries.name or "given")
    attrs |= {"measure": "alignment", "tolerance": int(tolerance), "kind": kind, "boundaries": name}
    return xr.Dataset(variables, coords, attrs)


class Found(NamedTuple):
    """What was counted of units, blocks or layers, each (layer, direction, one of them)."""

    events: Numbers
    hits: Numbers
    recalled: Numbers
    lags: Numbers
    lag: Numbers
    expected: Numbers
    z: Numbers
    p: Numbers

    @classmethod
    def empty(cls, shape: tuple[int, ...], size: int) -> "Found":
        events, hits, recalled = (np.zeros((*shape, size)) for _ in range(3))
        lags = np.zeros((*shape, size, 2 * FURTHEST + 1))
        lag, expected, z, p = (np.full((*shape, size), np.nan) for _ in range(4))
        return cls(events, hits, recalled, lags, lag, expected, z, p)

    def variables(self, prefix: str, boundaries: Places) -> dict[str, Any]:
        dims = LEVELS[prefix]
        empty = np.full(self.events.shape, np.nan)
        counted = np.broadcast_to(boundaries[:, None], self.events.shape)
        known = (self.events > 0) & (counted > 0)
        precision = np.divide(self.hits, self.events, out=empty.copy(), where=known)
        recall = np.divide(self.recalled, counted, out=empty.copy(), where=known)
        both = precision + recall
        f1 = np.divide(2 * precision * recall, both, out=np.where(known, 0.0, np.nan), where=known & (both > 0))
        values = {
            "precision": (precision, "share of events near a boundary"),
            "recall": (recall, "share of boundaries near an event"),
            "f1": (f1, "harmonic mean of precision and recall"),
            "hits": (self.hits.astype(np.int64), "events near a boundary"),
            "events": (self.events.astype(np.int64), "events"),
            "expected": (self.expected, "hits by chance"),
            "lag": (self.lag, "median distance from the nearest boundary"),
            "z": (self.z, "hits in standard deviations from chance"),
            "p": (self.p, "probability of so many hits by chance"),
            "p_adjusted": (adjusted(self.p), "p corrected for their number"),
        }
        flat = dims if prefix != "layer_" else (*dims, "all")
        found = {
            prefix + name: xr.Variable(flat, value, {"long_name": text, "units": "step" if name == "lag" else "1"})
            for name, (value, text) in values.items()
        }
        found[f"{prefix}lags"] = xr.Variable(
            (*flat, "lag_step"), self.lags.astype(np.int64), {"long_name": "events at this lag", "units": "1"}
        )
        return {name: value.isel(all=0) if "all" in value.dims else value for name, value in found.items()}


def adjusted(p: Numbers) -> Numbers:
    """p corrected by Benjamini and Hochberg over all that are not NaN.

    >>> adjusted(np.array([0.01, np.nan, 0.5]))
    array([0.02,  nan, 0.5 ])
    """
    there = np.isfinite(p)
    result = np.full(p.shape, np.nan)
    if there.any():
        result[there] = false_discovery_control(p[there])
    return result


def pooled(
    trains: Trains,
    at: tuple[int, int],
    flags: list[Flags],
    tolerance: int,
    member: Places | None,
    found: dict[str, Found],
) -> None:
    """Count one layer and direction over all sequences."""
    near = [dilated(flag[None], tolerance)[0] for flag in flags]
    sums = {prefix: Sums(part, at, trains, near, tolerance) for prefix, part in found.items()}
    for sequence, (flag, close) in enumerate(zip(flags, near, strict=True)):
        train = trains.dense(*at, sequence)
        if not train.any():
            continue
        sums[""].add(train, flag, close)
        sums["layer_"].add(train.sum(axis=0, keepdims=True), flag, close)
        if member is not None:
            sums["block_"].add(of_blocks(train, member), flag, close)
    for each in sums.values():
        each.finish()


class Sums:
    """Sums over sequences of what is counted of the trains of one layer and direction."""

    def __init__(self, found: Found, at: tuple[int, int], trains: Trains, near: list[Flags], tolerance: int) -> None:
        self.found, self.at, self.tolerance = found, at, tolerance
        size = found.events.shape[-1]
        runs = [trains.at(*at, sequence)[0] for sequence in range(len(near))]
        events = [unit.size if size == 1 else np.bincount(unit).max(initial=0) for unit in runs]
        heaviest = trains.units if size == 1 else 1
        self.null = HitNull(size, np.minimum(np.array(events), heaviest * np.array([flag.sum() for flag in near])))
        self.late: list[tuple[Places, Places, Places]] = []

    def add(self, train: npt.NDArray[np.floating], flag: Flags, near: Flags) -> None:
        at, found = self.at, self.found
        found.events[at] += train.sum(axis=1)
        if not flag.any():
            return
        self.null.add(train, near)
        found.recalled[at] += (dilated(train > 0, self.tolerance) & flag).sum(axis=1)
        one, step = np.nonzero(train)
        self.late.append((one, distances(flag)[step], train[one, step].astype(np.int64)))

    def finish(self) -> None:
        at, found, hits = self.at, self.found, self.null.result()
        found.hits[at] = hits.found
        there = (found.events[at] > 0) & (self.null.mean > 0)
        for name in ("expected", "z", "p"):
            getattr(found, name)[at] = np.where(there, getattr(hits, name), np.nan)
        if self.late:
            one, lag, weight = (np.concatenate(parts) for parts in zip(*self.late, strict=True))
            close = np.abs(lag) <= FURTHEST
            place = one[close] * (2 * FURTHEST + 1) + lag[close] + FURTHEST
            size = found.lags[at].shape
            found.lags[at] = np.bincount(place, weight[close], minlength=int(np.prod(size))).reshape(size)
            found.lag[at] = medians(one, lag, weight, size[0])


def medians(one: Places, values: Places, weight: Places, size: int) -> Numbers:
    """Median (the lower of two) of the weighted values of each.

    >>> medians(np.array([0, 0, 0, 2]), np.array([5, 1, 2, 4]), np.array([1, 1, 1, 1]), 3)
    array([ 2., nan,  4.])
    """
    order = np.lexsort((values, one))
    one, values, weight = one[order], values[order], weight[order]
    running = np.cumsum(weight)
    totals = np.bincount(one, weight, minlength=size)
    before = np.concatenate([[0.0], np.cumsum(totals)[:-1]])
    place = np.searchsorted(running, before + totals / 2)
    result = np.full(size, np.nan)
    there = totals > 0
    result[there] = values[place[there]]
    return result


def dilated(flags: Flags, tolerance: int) -> Flags:
    """Flags (row, step) and their neighbours up to `tolerance` steps away.

    >>> dilated(np.array([[False, False, True, False]]), 1)
    array([[False,  True,  True,  True]])
    """
    result = flags.copy()
    for shift in range(1, min(tolerance, flags.shape[1] - 1) + 1):
        result[:, shift:] |= flags[:, :-shift]
        result[:, :-shift] |= flags[:, shift:]
    return result


def distances(flags: Flags) -> Places:
    """Steps from the nearest flag to each step, negative before it; of two equally near ones the one before counts.

    >>> distances(np.array([False, True, False, False, False, True]))
    array([-1,  0,  1,  2, -1,  0])
    """
    steps, marks = np.arange(flags.size), np.flatnonzero(flags)
    after = np.minimum(np.searchsorted(marks, steps, side="left"), marks.size - 1)
    before = np.maximum(np.searchsorted(marks, steps, side="right") - 1, 0)
    early, late = steps - marks[after], steps - marks[before]
    return np.asarray(np.where(np.abs(late) <= np.abs(early), late, early), dtype=np.int64)


def boundary_flags(events: xr.Dataset, boundaries: xr.DataArray | str) -> Flags:
    """Boundaries (sequence, time) on the events' own sequences and steps."""
    values = label_values(events, boundaries, "boundaries")
    if values.dtype != bool:
        raise ValueError(f"boundaries must be boolean, True at the first step of a segment; {values.dtype} came.")
    outside = values & (np.arange(values.shape[1]) >= events["length"].to_numpy()[:, None])
    if outside.any():
        sequence, step = np.argwhere(outside)[0]
        raise ValueError(
            f"boundaries must lie within the sequences; in sequence {events['sequence'].to_numpy()[sequence]} of "
            f"length {int(events['length'][sequence])} one is at step {step}. Set it to False there."
        )
    return np.asarray(values[:, : events.sizes["time"]])
