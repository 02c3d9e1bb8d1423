"""How long a unit remembers, measured in three ways that need not agree."""

import numpy as np
import numpy.typing as npt
import xarray as xr

from ...signals import retention_form, retention_values
from ..schema import SIGNAL_DIMS, signal_names
from .correlation import autocorrelation, e_fold
from .response import response_timescale
from .runs import Numbers, lengths_of, require_recording
from .saturation import KEPT_ATTRS, RESULT_DIMS, memory_signal

AT_ONCE = 2**20  # values worked on at once
AGREE = 2.0  # estimates agree when the largest is at most so many times the smallest
TAIL = 0.05  # of the steps, those that forget most
TAIL_SHARE = 0.5  # of all forgetting that these must make up for the mean to be untypical
TYPICAL = 2.0  # and how much longer the typical time scale then is


def timescales(recording: xr.Dataset, *, jacobian: bool = True, longest: int = 0) -> xr.Dataset:
    """Three time scales of every unit, in steps: so long until 1/e of its memory is left.

    - `gate`: what the retention k implies, `-1 / mean(log k)`, since over many steps the product decides. Beside it
      `gate_of_mean = -1 / log(mean k)`, never shorter, and `gate_typical = -1 / log(median k)`.
    - `autocorrelation`: the lag at which the autocorrelation of the memory has fallen to 1/e. It says how slowly the
      memory moves, whatever the reason: an input that changes slowly makes a forgetful unit slow.
    - `jacobian`: the number of steps after which a small change of the unit's memory is felt 1/e as much in the whole
      state of its layer, in Euclidean norm; the median over starts. Through the recurrent weights a unit can outlive
      its gate, or be overwritten before it shuts.

    `agree` is true where all estimates there are (at least two) lie within a factor 2. `heavy_tail` warns that the
    mean is not typical: the 5 % of steps that forget most make up at least half of all forgetting, and `gate_typical`
    is more than twice `gate`. Such a unit, at 0.99 but for a reset now and then, keeps for long and then forgets at
    once.

    Parameters
    ----------
    recording
        A recording, whole or a subset, in memory or opened from disk.
    jacobian
        Whether to take the third estimate, which needs the recurrent weights of all units and most of the time. Where
        the cell has no known Jacobian it is NaN and the attribute `jacobian_note` says why.
    longest
        Longest lag in steps of the autocorrelation and the Jacobian; 0 for half of the longest sequence.

    Returns
    -------
    xr.Dataset
        Over `layer`, `direction`, `unit`: `gate`, `gate_of_mean`, `gate_typical`, `autocorrelation`, `jacobian`
        (steps), `agree`, `heavy_tail` (booleans), and `gate_zeros`, the share of steps on which the retention is
        exactly 0; these do not count in `gate`. A retention of 1 throughout gives an infinite time scale. NaN: a cell
        without retention, a memory that is constant, an estimate not reached within `longest` (then
        `autocorrelation_beyond` or `jacobian_beyond` is true), or values that are not finite.

    Raises
    ------
    ValueError
        When the recording holds no memory over `unit`, or `longest` is negative.
    TypeError, SchemaError
        For what is no Dataset, or no recording.

    References
    ----------
    C. Tallec, Y. Ollivier (2018). Can recurrent neural networks warp time? arXiv:1804.11188 (gates as time scales).

    Examples
    --------
    Every step keeps 0.5, so after 1 / log(2) = 1.44 steps 1/e is left:

    >>> keep = xr.DataArray(np.full((1, 1, 1, 9, 1), 0.5), dims=SIGNAL_DIMS, attrs={"symbol": "f", "role": "gate"})
    >>> memory = xr.DataArray(np.zeros((1, 1, 1, 9, 1)), dims=SIGNAL_DIMS, attrs={"symbol": "c", "role": "memory"})
    >>> coords = {dim: range(size) for dim, size in keep.sizes.items() if dim != "direction"}
    >>> attrs = {"schema": "gatescope.recording/1", "retention": "forget_gate"}
    >>> recording = xr.Dataset({"forget_gate": keep, "cell_state": memory}, coords | {"direction": ["forward"]}, attrs)
    >>> round(timescales(recording, jacobian=False)["gate"].item(), 2)
    1.44
    """
    require_recording(recording, "timescales")
    memory = memory_signal(recording)
    if not memory:
        raise ValueError(
            f"timescales needs a memory over {SIGNAL_DIMS}, a signal with the role memory; the recording has the "
            f"signals {signal_names(recording)}. Record the cell's state too."
        )
    if longest < 0:
        raise ValueError(f"longest must be a number of steps, or 0 for a default; {longest!r} came.")
    lengths = lengths_of(recording, memory)
    most = min(longest or int(lengths.max(initial=0)) // 2, max(0, int(lengths.max(initial=0)) - 1))
    shape = tuple(recording.sizes[dim] for dim in RESULT_DIMS)
    found = {name: np.full(shape, np.nan) for name in TEXTS}
    flags = {name: np.zeros(shape, dtype=bool) for name in FLAGS}
    width = max(1, AT_ONCE // max(1, recording.sizes["sequence"] * recording.sizes["time"]))
    for layer, direction in np.ndindex(shape[:2]):
        for first in range(0, shape[2], width):
            at = (layer, direction, slice(first, first + width))
            part = recording.isel(layer=layer, direction=direction, unit=at[2])
            for name, values in _gate(part, lengths).items():
                (flags if name in FLAGS else found)[name][at] = values
            curve = autocorrelation(part[memory].to_numpy().astype(np.float64), lengths, most)
            found["autocorrelation"][at] = e_fold(curve)
            flags["autocorrelation_beyond"][at] = np.isfinite(curve).all(axis=0) & np.isnan(
                found["autocorrelation"][at]
            )
    note = "left out, as asked"
    if jacobian:
        found["jacobian"], flags["jacobian_beyond"], note = response_timescale(recording, most)
    flags["agree"] = _agree(found)
    return _result(recording, found, flags).assign_attrs(
        {"measure": "timescales", "jacobian": int(jacobian), "longest": int(longest), "lags": most, "memory": memory}
        | {"jacobian_note": note, "agree_within": AGREE, "tail": TAIL, "tail_share": TAIL_SHARE}
    )


def _gate(part: xr.Dataset, lengths: npt.NDArray[np.int64]) -> dict[str, Numbers]:
    """What the retention says of some units of one layer and direction."""
    form, name = retention_form(str(part.attrs.get("retention", "none")))
    if form == "none" or (form != "constant" and name not in part.data_vars):
        return {}
    units = part.sizes["unit"]
    if form == "constant":
        keep = np.full((1, units), float(name))
    else:
        values = np.asarray(retention_values(str(part.attrs["retention"]), {str(name): part[str(name)].to_numpy()}))
        keep = values[np.arange(values.shape[1]) < lengths[:, None]].astype(np.float64)
    if not len(keep):
        return {}
    good = np.isfinite(keep).all(axis=0)
    keep = np.where(good, np.clip(keep, 0.0, None), 1.0)
    zero = keep == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(zero, 0.0, np.log(keep))
        gate = _scale(logs.sum(axis=0) / np.maximum((~zero).sum(axis=0), 1))
        typical, of_mean = _scale(np.log(np.median(keep, axis=0))), _scale(np.log(keep.mean(axis=0)))
        tail = np.sort(logs, axis=0)[: max(1, round(TAIL * len(logs)))].sum(axis=0) / logs.sum(axis=0)
    heavy = good & (tail >= TAIL_SHARE) & (typical > TYPICAL * gate)
    every = {"gate": gate, "gate_of_mean": of_mean, "gate_typical": typical, "gate_zeros": zero.mean(axis=0)}
    every["gate"] = np.where(zero.all(axis=0), 0.0, gate)
    return {key: np.where(good, values, np.nan) for key, values in every.items()} | {"heavy_tail": heavy}


def _scale(log: Numbers) -> Numbers:
    """Steps until 1/e is left of what changes by `log` at each; infinite where nothing changes."""
    return np.asarray(np.where(log < 0, -1 / log, np.inf))


def _agree(found: dict[str, Numbers]) -> npt.NDArray[np.bool_]:
    estimates = np.stack([found[name] for name in ("gate", "autocorrelation", "jacobian")])
    known = np.isfinite(estimates) & (estimates > 0)
    highest = np.where(known, estimates, -np.inf).max(axis=0)
    lowest = np.where(known, estimates, np.inf).min(axis=0)
    infinite = (estimates == np.inf).any(axis=0)
    return np.asarray((known.sum(axis=0) >= 2) & (highest <= AGREE * lowest) & ~infinite)


TEXTS = {
    "gate": ("time scale that the retention implies", "step"),
    "gate_of_mean": ("time scale of the mean retention", "step"),
    "gate_typical": ("time scale of the median retention", "step"),
    "gate_zeros": ("share of steps with a retention of exactly 0", "1"),
    "autocorrelation": ("lag at which the memory's autocorrelation is 1/e", "step"),
    "jacobian": ("steps after which a change of the memory is felt 1/e as much", "step"),
}
FLAGS = {
    "agree": "whether the estimates lie within a factor 2",
    "heavy_tail": "whether few steps make up most of the forgetting",
    "autocorrelation_beyond": "whether the autocorrelation stays above 1/e at all lags",
    "jacobian_beyond": "whether a change is still felt after all lags",
}


def _result(recording: xr.Dataset, found: dict[str, Numbers], flags: dict[str, npt.NDArray[np.bool_]]) -> xr.Dataset:
    data = {
        name: (RESULT_DIMS, found[name], {"long_name": text, "units": unit}) for name, (text, unit) in TEXTS.items()
    } | {name: (RESULT_DIMS, flags[name], {"long_name": text}) for name, text in FLAGS.items()}
    coords = {dim: recording[dim].variable for dim in RESULT_DIMS}
    if "block" in recording.coords:
        coords["block"] = recording["block"].variable
    result = xr.Dataset(data, coords)
    result.attrs = {key: recording.attrs[key] for key in KEPT_ATTRS if key in recording.attrs}
    return result
