"""Lyapunov exponents of a driven recurrent network: whether small differences between states die out or grow."""

from collections.abc import Iterator
from numbers import Integral
from typing import NamedTuple

import numpy as np
import xarray as xr

from .products import Numbers, Whole
from .reading import Part, Source
from .steps import Parts, Steps

SPREAD = 30.0  # nats between columns that a QR in float64 still resolves
UNRESOLVED = 33.0  # nats below the largest from which, in one step, a column is rounding alone
MOST = 32  # most steps between two QR factorisations
TRANSIENT = 0.1  # share of each sequence in which columns turn to their directions and nothing is counted
LEAST = 10  # steps that must be counted
BLOCKS = 20  # blocks of time over all sequences together, at least one in each, that standard errors come from
SURE = 2.0  # standard errors by which the leading exponent must differ from 0 to be told from it
MEMORY = 2**26  # bytes of factors held at once
KEPT_ATTRS = ("module", "cell", "variant", "retention", "gatescope_version", "training", "created")


class Growth(NamedTuple):
    """What every sequence's columns grew by between two QR factorisations."""

    first: int  # step of reading
    steps: int
    sequences: Whole
    logs: Numbers  # (sequence, exponent), natural log


def lyapunov(recording: xr.Dataset, *, k: int = 16) -> xr.Dataset:
    """The leading Lyapunov exponents: by how many nats per step small differences of the state grow, on average.

    The state is all that the cell carries, `s = (h, c)`, driven by the inputs of the recording, with `J_t` its whole
    step Jacobian; the `i`-th exponent is the limit of `(1/T) log r_i`, with `r_i` the growth of the i-th direction
    under `J_T ... J_1`. Columns are carried forward and made orthogonal by QR, as often as their spread needs: steps
    between two factorisations times the spread of exponents stay below 30 nats in float64, and never more than 32
    steps. The first tenth of each sequence is left out. The hidden state alone has other exponents and is never used.

    Parameters
    ----------
    recording
        As for `gradient_flow`. Exponents are means over time, so long sequences are needed: hundreds of steps for a
        sign, thousands for two digits.
    k
        How many exponents, from the largest; all where the state has fewer.

    Returns
    -------
    xr.Dataset
        Over `layer`, `direction`:

        - `exponent` (index): nats per step, in falling order; -inf where differences die out in one step.
        - `standard_error` (index): of that mean, from about 20 blocks of time over all sequences; NaN for fewer than 4.
        - `kaplan_yorke`: the dimension `j + (e_1 + ... + e_j) / |e_{j+1}|`, with j the largest number of leading
          exponents whose sum is not negative; NaN unless the whole spectrum was asked for.
        - `verdict`: the network `forgets` (the leading exponent is below 0 by more than 2 standard errors), `explodes`
          (above) or `holds` (neither, so that differences neither die out nor grow for all one can tell).
        - `steps`: how many were counted.

    Raises
    ------
    ValueError
        When `k` is no whole number of at least 1, fewer than 10 steps can be counted, or as for `gradient_flow`.

    References
    ----------
    G. Benettin, L. Galgani, A. Giorgilli, J.-M. Strelcyn (1980). Lyapunov characteristic exponents for smooth dynamical
    systems and for Hamiltonian systems. Part 2: numerical application. Meccanica 15, 21-30.
    R. Engelken, F. Wolf, L. F. Abbott (2020). Lyapunov spectra of chaotic recurrent neural networks. arXiv:2006.02427.
    R. Vogt, M. Puelma Touzel, E. Shlizerman, G. Lajoie (2020). On Lyapunov exponents for RNNs. arXiv:2006.14123.

    Examples
    --------
    One rectified unit that feeds half of itself back loses log 2 at every step:

    >>> dims = ("layer", "direction", "sequence", "time", "unit")
    >>> hidden_state = xr.DataArray(np.ones((1, 1, 1, 50, 1)), dims=dims, attrs={"role": "memory"})
    >>> weight_hh = xr.DataArray(np.full((1, 1, 1, 1, 1), 0.5), dims=("layer", "direction", "gate", "unit", "source"))
    >>> recording = xr.Dataset({"hidden_state": hidden_state, "weight_hh": weight_hh}).assign_coords(
    ...     gate=["hidden_state"], direction=["forward"]
    ... )
    >>> recording.attrs = {"schema": "gatescope.recording/1", "cell": "RNNCell", "retention": "none"}
    >>> result = lyapunov(recording)
    >>> round(result["exponent"].item(), 4), result["verdict"].item()
    (-0.6931, 'forgets')
    """
    source = Source(recording, "lyapunov")
    if not isinstance(k, Integral) or isinstance(k, bool) or k < 1:
        raise ValueError(f"k must be a whole number of exponents, at least 1; {k!r} came.")
    counted = int(np.maximum(0, source.lengths - begin_of(source.lengths)).sum())
    if counted < LEAST:
        raise ValueError(
            f"lyapunov needs at least {LEAST} steps beyond the first tenth of each sequence; {counted} are there. "
            "Record longer sequences."
        )
    total = sum(source.widths)
    k = min(int(k), total)
    shape = (recording.sizes["layer"], recording.sizes["direction"])
    exponent, error = np.full((*shape, k), np.nan), np.full((*shape, k), np.nan)
    with np.errstate(invalid="ignore", over="ignore"):  # a sequence that is not finite counts for nothing
        for place in np.ndindex(shape):
            exponent[place], error[place] = summed_up(list(growths(source, *place, k)), source.lengths, k)
    return labelled(recording, exponent, error, counted, whole=k == total)


def labelled(recording: xr.Dataset, exponent: Numbers, error: Numbers, counted: int, *, whole: bool) -> xr.Dataset:
    here, nats = ("layer", "direction"), {"units": "nats per step"}
    dimension = np.full(exponent.shape[:2], np.nan)
    verdict = np.full(exponent.shape[:2], "", object)
    for place in np.ndindex(verdict.shape):
        dimension[place] = kaplan_yorke(exponent[place]) if whole else np.nan
        verdict[place] = judged(float(exponent[place][0]), float(error[place][0]))
    result = xr.Dataset(
        {
            "exponent": ((*here, "index"), exponent, {"long_name": "Lyapunov exponent", **nats}),
            "standard_error": ((*here, "index"), error, {"long_name": "standard error from blocks of time", **nats}),
            "kaplan_yorke": (here, dimension, {"long_name": "Kaplan-Yorke dimension", "units": "1"}),
            "verdict": (here, verdict, {"long_name": "verdict on the driven network"}),
            "steps": ((), counted, {"long_name": "steps counted", "units": "1"}),
        },
        {**{dim: recording[dim].variable for dim in here}, "index": np.arange(1, exponent.shape[2] + 1)},
    )
    result.attrs = {key: recording.attrs[key] for key in KEPT_ATTRS if key in recording.attrs}
    return result.assign_attrs(measure="lyapunov", k=exponent.shape[2], transient=TRANSIENT, sure=SURE)


def begin_of(lengths: Whole) -> Whole:
    """The first step that counts of each sequence; its first step has no state before it."""
    first: Whole = np.maximum(1, np.ceil(TRANSIENT * lengths)).astype(np.int64)
    return first


def growths(source: Source, layer: int, direction: int, k: int) -> Iterator[Growth]:
    """How columns grow in every sequence, factor by factor, the transient left out."""
    units, longest = source.recording.sizes["unit"], int(source.lengths.max())
    width = (sum(source.widths) ** 2 if source.stored else 8 * units) * 8
    group = max(1, MEMORY // (min(longest, 64) * width))
    order = np.argsort(-source.lengths, kind="stable")
    order = order[source.lengths[order] > 1]
    for first in range(0, len(order), group):
        sequences = np.sort(order[first : first + group])
        sequences = sequences[np.argsort(-source.lengths[sequences], kind="stable")]
        stretch = max(64, MEMORY // (len(sequences) * width))
        yield from Carrier(source, layer, direction, sequences, k, stretch).run()


class Carrier:
    """Columns of some sequences, the longest first, on their way forward in time."""

    def __init__(self, source: Source, layer: int, direction: int, sequences: Whole, k: int, stretch: int) -> None:
        self.source, self.place, self.sequences, self.stretch = source, (layer, direction), sequences, stretch
        self.lengths = source.lengths[sequences]
        self.cuts = np.cumsum(source.widths)[:-1]
        start = np.random.default_rng(0).standard_normal((sum(source.widths), k))
        self.columns = np.repeat(np.linalg.qr(start)[0][None], len(sequences), axis=0)

    def run(self) -> Iterator[Growth]:
        ends = {*self.lengths.tolist(), *begin_of(self.lengths).tolist()}
        time, interval = 1, 1
        part, steps = self._read(time)
        while time < self.lengths[0]:
            if time >= part.last:
                part, steps = self._read(time)
            until = min([end for end in ends if end > time] + [part.last, time + interval])
            alive = int(np.searchsorted(-self.lengths, -time, side="left"))
            moved, logs = self._move(steps, alive, time - part.first, until - part.first)
            spread = spread_of(logs)
            if spread > SPREAD and until - time > 1:
                interval = max(1, (until - time) // 2)
                continue
            logs[logs < logs.max(axis=1, keepdims=True) - UNRESOLVED] = -np.inf
            self.columns[:alive] = moved
            counts = begin_of(self.lengths[:alive]) <= time
            if counts.any():
                yield Growth(time, until - time, self.sequences[:alive][counts], logs[counts])
            per_step = spread / (until - time)
            interval = int(np.clip(0.5 * SPREAD / max(per_step, 1e-9), 1, min(MOST, 2 * interval)))
            time = until

    def _read(self, first: int) -> tuple[Part, Steps]:
        alive = self.sequences[: int(np.searchsorted(-self.lengths, -first, side="left"))]
        last = min(int(self.lengths[0]), first + self.stretch)
        part = Part(*self.place, alive, first, last)
        return part, self.source.steps(part, np.float64)

    def _move(self, steps: Steps, alive: int, first: int, last: int) -> tuple[Numbers, Numbers]:
        """Columns after some steps, made orthogonal, and the logs of what they grew by."""
        columns: Parts = tuple(np.split(self.columns[:alive], self.cuts, axis=1))
        for time in range(first, last):
            columns = steps.push(columns, (np.arange(alive), np.full(alive, time)))
        basis, triangle = np.linalg.qr(np.concatenate(columns, axis=1))
        with np.errstate(divide="ignore"):
            logs: Numbers = np.log(np.abs(np.diagonal(triangle, axis1=1, axis2=2)))
        return basis, logs


def spread_of(logs: Numbers) -> float:
    """The largest distance between the largest and the smallest growth of a sequence; infinite where a column is 0."""
    with np.errstate(invalid="ignore"):
        spread = logs.max(axis=1) - logs.min(axis=1)
    return float(np.max(spread[~np.isnan(spread)], initial=0.0))


def summed_up(found: list[Growth], lengths: Whole, k: int) -> tuple[Numbers, Numbers]:
    """Exponents in falling order and their standard errors, from what was found of one layer and direction."""
    begins = begin_of(lengths)
    counted = np.maximum(0, lengths - begins)
    size = max(1, int(np.ceil(counted.sum() / BLOCKS)))
    blocks: dict[tuple[int, int], tuple[int, Numbers]] = {}
    for growth in found:
        for sequence, logs in zip(growth.sequences.tolist(), growth.logs, strict=True):
            if np.isnan(logs).any():
                continue
            key = (sequence, int(growth.first - begins[sequence]) // min(size, int(counted[sequence])))
            before, total = blocks.get(key, (0, np.zeros(k)))
            blocks[key] = (before + growth.steps, total + logs)
    if not blocks:
        return np.full(k, np.nan), np.full(k, np.nan)
    steps = np.array([count for count, _ in blocks.values()], dtype=np.float64)
    sums = np.array([total for _, total in blocks.values()])
    exponent = sums.sum(axis=0) / steps.sum()
    error = np.full(k, np.nan)
    if len(steps) >= 4:
        with np.errstate(invalid="ignore"):
            apart = steps[:, None] * (sums / steps[:, None] - exponent)
        error = np.sqrt((apart**2).sum(axis=0) * len(steps) / (len(steps) - 1)) / steps.sum()
    order = np.argsort(-exponent, kind="stable")
    return exponent[order], error[order]


def kaplan_yorke(exponents: Numbers) -> float:
    """The dimension in which volumes neither grow nor shrink, from a whole spectrum in falling order.

    >>> kaplan_yorke(np.array([0.5, -0.25, -1.0]))
    2.25
    """
    sums = np.cumsum(exponents)
    held = int((sums >= 0).sum()) if not np.isnan(sums).any() else -1
    if held <= 0:
        return float(held) if held == 0 else float("nan")
    if held == len(exponents):
        return float(held)
    return float(held + sums[held - 1] / abs(exponents[held]))


def judged(leading: float, error: float) -> str:
    if np.isnan(leading):
        return "no data"
    margin = 0.0 if np.isnan(error) else SURE * error
    return "forgets" if leading < -margin else "explodes" if leading > margin else "holds"
