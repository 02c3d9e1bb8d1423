"""How much more the units of a layer differ in time scale than chance lets them."""

import numpy as np
import numpy.typing as npt
import xarray as xr

from ...signals import retention_form, retention_values
from .runs import READ, Numbers, lengths_of

STEPS = 20_000  # of the layer that are looked at; more say little more
SMALLEST = 1e-12


def specialisation(recording: xr.Dataset, at: tuple[int, int], shuffles: int, seed: int) -> tuple[float, float]:
    """Variance between units of the log time scale, over its mean when units exchange retentions at random, and p.

    The time scale is -1 / (mean log retention). In a shuffle the retentions of all units are permuted among them at
    every step by itself, so that all units are alike; what variance is left then is chance. p is one plus the number
    of shuffles with at least as much variance, over one plus their number. NaN where no retention varies.
    """
    form, name = retention_form(str(recording.attrs.get("retention", "none")))
    if form not in ("signal", "complement") or name not in recording.data_vars or recording.sizes["unit"] < 2:
        return np.nan, np.nan
    signal = recording[str(name)].isel(layer=at[0], direction=at[1])
    values, good = _some_steps(signal, lengths_of(recording, str(name)), recording["sequence"].to_numpy())
    rows = np.asarray(retention_values(str(recording.attrs["retention"]), {str(name): values}))[:, good]
    if min(rows.shape) < 2:
        return np.nan, np.nan
    logs = np.log(np.clip(rows, SMALLEST, 1 - SMALLEST))
    found, rng = _variance(logs), np.random.default_rng(seed)
    logs.sort(axis=1)  # so that the order of units decides nothing
    chance = np.array([_variance(rng.permuted(logs, axis=1)) for _ in range(shuffles)])
    if not chance.mean() > 0:
        return np.nan, np.nan
    return float(found / chance.mean()), float((1 + (chance >= found).sum()) / (1 + shuffles))


def _some_steps(
    signal: xr.DataArray, lengths: npt.NDArray[np.int64], sequences: npt.NDArray[np.int64]
) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """Values (step, unit) of evenly chosen steps, and which units are finite, from a few sequences at a time."""
    time, units = signal.sizes["time"], signal.sizes["unit"]
    order = np.argsort(sequences, kind="stable")  # which decides which steps are looked at
    row, step = np.nonzero(np.arange(time) < lengths[order, None])
    every = max(1, -(-len(row) // STEPS))
    row, step = order[row[::every]], step[::every]
    found, good = np.empty((len(row), units)), np.ones(units, dtype=bool)
    group = max(1, READ // max(1, time * units))
    for first in range(0, len(lengths), group):
        part = slice(first, first + group)
        values = signal.isel(sequence=part).to_numpy()
        padding = np.arange(time) >= lengths[part, None]
        good &= (np.isfinite(values) | padding[:, :, None]).all(axis=(0, 1))
        here = (row >= first) & (row < first + group)
        found[here] = values[row[here] - first, step[here]]
    return found, good


def _variance(logs: np.ndarray) -> float:
    """Variance over units of the log of the time scale."""
    return float(np.var(np.log(-logs.mean(axis=0))))
