"""How often a unit's gates sit near the ends of their range, and what that says about the gate."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import xarray as xr

from ...signals import GATE_ROLES
from ..schema import SIGNAL_DIMS as DIMS
from ..schema import signal_names
from .runs import require_recording
from .tally import Counts, Numbers, Tally, per_step

RESULT_DIMS = ("layer", "direction", "unit")
KEPT_ATTRS = ("module", "cell", "retention", "gatescope_version", "training", "created")
BLOCK = 2**22  # values read at once

STUCK_SHARE = 0.95  # a gate is stuck when it spends at least this share of its steps at one end
VISIT_SHARE = 0.001  # and less than this at the other end; from here on the other end counts as used
ENDS_SHARE = 0.5  # a gate switches when it spends at least this share at the two ends together
DEAD_SPREAD = 1e-6  # of half the memory's range (of 1 where it has no range)
FLAT = 0.95  # a squasher is flat beyond this share of its range
SQUASHERS = {"tanh": 1.0, "tanh(x/2)": 2.0}  # width w of squash(x) = tanh(x / w)


def saturation(recording: xr.Dataset, *, low: float = 0.1, high: float = 0.9) -> xr.Dataset:
    """Share of steps on which a unit's gate (or candidate, or state) is left- or right-saturated, and a verdict.

    For a signal with the range `[lower, upper]` that the recording states for it, and over the N steps of all
    sequences on which its value v is finite (padding is NaN and counts for nothing):

        left = #(v < lower + low * (upper - lower)) / N
        right = #(v > lower + high * (upper - lower)) / N

    Right-saturated means near the upper end for every signal: an update gate of a torch GRU near 1 keeps the memory,
    one of the textbook form overwrites it. The verdict of a unit's gate is the first of these that holds:

    - `"no data"`: N = 0.
    - `"dead"`: over at least two steps the unit's memory spreads over no more than 1e-6 of half its range (of 1 where
      the memory is unbounded). It stands at all gates of the unit, whatever they do.
    - `"switching"`: at least 0.5 of the steps lie at the two ends together, and at least 0.001 at each of them. A
      forget gate that is open but for one reset in a few hundred steps switches.
    - `"stuck open"`: right >= 0.95. `"stuck shut"`: left >= 0.95.
    - `"graded"`: the rest. The gate works in between, or between one end and the middle.

    Parameters
    ----------
    recording
        A recording, whole or a subset, in memory or opened from disk: it is read in blocks of a few million values.
    low, high
        Ends of the middle of the range, as fractions of it: 0 < low < high < 1.

    Returns
    -------
    xr.Dataset
        Over `signal` (every bounded signal per unit; coordinates `symbol role lower upper`), `layer`, `direction`,
        `unit`:
        `left`, `right` (shares in [0, 1], NaN where N = 0), `mean` (the signal's units), `steps` (N) and `verdict`
        (text, empty for signals that are no gates).
        Over `layer`, `direction`, `unit`: `squash_saturated`, the share of steps on which the memory named in the
        attribute `memory` sits on the flat of its squasher, and `memory_spread`, its highest minus lowest value. For
        an LSTM that is |tanh(cell_state)| > 0.95; for a memory with a range of its own, as a GRU's, a distance from
        the middle of more than 0.95 of half the range; NaN for an unbounded memory without squasher, as a ReLU RNN's.
        The attribute `squash_saturated_note` says which. Signals over `projection` have no unit and are left out.
        The parameters and thresholds of the call stand in the attributes.

    Raises
    ------
    ValueError
        When `low` and `high` are out of order, or no signal with bounds is there; `SchemaError` when the Dataset is
        no recording.
    TypeError
        For what is no Dataset.

    References
    ----------
    A. Karpathy, J. Johnson, L. Fei-Fei (2015). Visualizing and Understanding Recurrent Networks. arXiv 1506.02078.

    Examples
    --------
    Of four steps of one gate, one lies below 0.1 and two above 0.9:

    >>> steps = np.reshape([0.02, 0.95, 0.99, 0.5], (1, 1, 1, 4, 1))
    >>> forget_gate = xr.DataArray(steps, dims=["layer", "direction", "sequence", "time", "unit"])
    >>> forget_gate.attrs = {"symbol": "f", "role": "gate", "lower": 0.0, "upper": 1.0}
    >>> recording = xr.Dataset({"forget_gate": forget_gate}, attrs={"schema": "gatescope.recording/1"})
    >>> result = saturation(recording)
    >>> result["left"].item(), result["right"].item(), result["verdict"].item()
    (0.25, 0.5, 'switching')
    """
    if not 0 < low < high < 1:
        raise ValueError(
            f"low and high must be fractions of a signal's range with 0 < low < high < 1; low={low!r} and "
            f"high={high!r} came. Pass for example low=0.1, high=0.9."
        )
    names = _bounded_signals(recording)
    memory = memory_signal(recording)
    tallies = {name: _tally(recording[name], edges_of(recording, name, low, high)) for name in names}
    return conclude(recording, tallies, _tally(recording[memory], flat_edges(recording)) if memory else None, low, high)


def conclude(
    recording: xr.Dataset, tallies: dict[str, Tally], memory_tally: Tally | None, low: float, high: float
) -> xr.Dataset:
    """The result of `saturation` from what was counted: one tally per bounded signal and one of the memory.

    Of the recording only names, coordinates and attributes are read, so one without any step is enough.
    """
    names, shape = list(tallies), tuple(recording.sizes[dim] for dim in RESULT_DIMS)
    steps, left, right, total = (
        np.array([getattr(tally, part) for tally in tallies.values()]).reshape(len(names), *shape)
        for part in ("steps", "left", "right", "total")
    )
    left, right, mean = (per_step(part, steps) for part in (left, right, total))
    squash_saturated, spread, steady, note = _memory_part(recording, memory_tally, shape)
    roles = [str(recording[name].attrs["role"]) for name in names]
    verdict = _verdict(left, right, steps, steady)
    verdict[[role not in GATE_ROLES for role in roles]] = ""

    dims = ("signal", *RESULT_DIMS)
    result = xr.Dataset(
        {
            "left": (dims, left, {"long_name": "share of steps near the lower bound", "units": "1"}),
            "right": (dims, right, {"long_name": "share of steps near the upper bound", "units": "1"}),
            "mean": (dims, mean, {"long_name": "mean over steps", "units": "1"}),
            "steps": (dims, steps, {"long_name": "steps that counted", "units": "1"}),
            "verdict": (dims, verdict, {"long_name": "verdict on the gate"}),
            "squash_saturated": (RESULT_DIMS, squash_saturated, {"long_name": note, "units": "1"}),
            "memory_spread": (RESULT_DIMS, spread, {"long_name": "highest minus lowest memory", "units": "1"}),
        },
        coords=_coordinates(recording, names, roles),
    )
    thresholds = {"stuck_share": STUCK_SHARE, "visit_share": VISIT_SHARE, "ends_share": ENDS_SHARE}
    result.attrs = {key: recording.attrs[key] for key in KEPT_ATTRS if key in recording.attrs}
    result.attrs |= {"measure": "saturation", "low": float(low), "high": float(high), **thresholds}
    result.attrs |= {"dead_spread": DEAD_SPREAD, "flat": FLAT, "memory": memory_signal(recording)}
    return result.assign_attrs(squash_saturated_note=note)


def bounded_names(recording: xr.Dataset) -> list[str]:
    """Names of the signals over `unit` whose range is known, in the recording's order."""
    return [
        name
        for name in signal_names(recording)
        if recording[name].dims == DIMS and bounds_of(recording[name]) is not None
    ]


def _bounded_signals(recording: xr.Dataset) -> list[str]:
    """The signals that `saturation` counts, of what must be a recording with at least one of them."""
    require_recording(recording, "saturation")
    names = bounded_names(recording)
    if not names:
        raise ValueError(
            f"saturation needs a signal over {DIMS} with bounds (attributes lower and upper); the recording has the "
            f"signals {signal_names(recording)}. A cell without gates and squashers, as a ReLU RNN, has nothing that "
            "saturates; in a subset keep a gate, and select with lists: layer=[0]."
        )
    return names


def bounds_of(variable: xr.DataArray) -> tuple[float, float] | None:
    bounds = tuple(float(variable.attrs.get(end, np.nan)) for end in ("lower", "upper"))
    return (bounds[0], bounds[1]) if np.isfinite(bounds).all() else None


def edges_of(recording: xr.Dataset, name: str, low: float, high: float) -> tuple[float, float]:
    """Values at the fractions `low` and `high` of a bounded signal's range."""
    lower, upper = bounds_of(recording[name]) or (np.nan, np.nan)
    return lower + low * (upper - lower), lower + high * (upper - lower)


def _tally(signal: xr.DataArray, edges: tuple[float, float]) -> Tally:
    """Count over all steps of all sequences, reading block by block."""
    tally = Tally.empty(tuple(signal.sizes[dim] for dim in RESULT_DIMS), edges)
    for layer, direction in np.ndindex(*tally.steps.shape[:2]):
        for values in _blocks(signal.isel(layer=layer, direction=direction)):
            tally.add((layer, direction), values)
    return tally


def _blocks(signal: xr.DataArray) -> Iterator[npt.NDArray[np.floating]]:
    """Arrays (sequence, time, unit) of about BLOCK values: whole sequences where they are short, else stretches."""
    sequences, time, units = (max(1, signal.sizes[dim]) for dim in DIMS[2:])
    stretch = max(1, min(time, BLOCK // units))
    group = max(1, BLOCK // (stretch * units))
    for first in range(0, sequences, group):
        for start in range(0, time, stretch):
            yield signal.isel(sequence=slice(first, first + group), time=slice(start, start + stretch)).to_numpy()


def memory_signal(recording: xr.Dataset) -> str:
    """The memory whose squasher and spread are looked at: `cell_state` before any other; empty when there is none."""
    names = [
        name
        for name in signal_names(recording)
        if recording[name].dims == DIMS and recording[name].attrs["role"] == "memory"
    ]
    return "cell_state" if "cell_state" in names else (names[0] if names else "")


def _memory_part(
    recording: xr.Dataset, tally: Tally | None, shape: tuple[int, ...]
) -> tuple[Numbers, Numbers, npt.NDArray[np.bool_], str]:
    """Share of steps on the flat of the squasher, spread, whether the unit is dead, and what the share means."""
    if tally is None:
        return np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, dtype=bool), "no memory was recorded"
    known, note = _flat(recording)
    share = per_step(tally.left + tally.right, tally.steps) if known else np.full(shape, np.nan)
    lower, upper = bounds_of(recording[memory_signal(recording)]) or (-1.0, 1.0)
    steady = (tally.steps > 1) & (tally.spread <= DEAD_SPREAD * (upper - lower) / 2)
    return share, tally.spread, steady, note


def flat_edges(recording: xr.Dataset) -> tuple[float, float]:
    """Values of the memory beyond which its squasher is flat; infinite where it has none."""
    return _flat(recording)[0] or (-np.inf, np.inf)


def _flat(recording: xr.Dataset) -> tuple[tuple[float, float] | None, str]:
    """Those values, and what lies beyond them in words."""
    memory = memory_signal(recording)
    if bounds_of(recording[memory]) is not None:
        edges = edges_of(recording, memory, (1 - FLAT) / 2, (1 + FLAT) / 2)
        return edges, f"share of steps on which {memory} lies beyond {FLAT:.0%} of its range, seen from the middle"
    squashed = recording.attrs.get("cell") == "LSTMCell" or any(
        variable.dims == DIMS and variable.attrs.get("role") == "output" and bounds_of(variable) is not None
        for variable in recording.data_vars.values()
    )
    squasher = str(recording[memory].attrs.get("squasher", "tanh" if squashed else ""))
    if squasher not in SQUASHERS:
        return None, f"not defined: {memory} is unbounded and no squasher of it is known"
    edge = SQUASHERS[squasher] * float(np.arctanh(FLAT))
    return (-edge, edge), f"share of steps on which |{squasher}| of {memory} is above {FLAT}"


def _verdict(left: Numbers, right: Numbers, steps: Counts, steady: npt.NDArray[np.bool_]) -> npt.NDArray[np.object_]:
    switching = (left + right >= ENDS_SHARE) & (np.minimum(left, right) >= VISIT_SHARE)
    conditions = [steps == 0, steady & (steps > 0), switching, right >= STUCK_SHARE, left >= STUCK_SHARE]
    words = ["no data", "dead", "switching", "stuck open", "stuck shut"]
    return np.select(conditions, words, default="graded").astype(object)


def _coordinates(recording: xr.Dataset, names: list[str], roles: list[str]) -> dict[str, object]:
    bounds = [bounds_of(recording[name]) or (np.nan, np.nan) for name in names]
    symbols = [str(recording[name].attrs.get("symbol", "")) for name in names]
    coordinates: dict[str, object] = {dim: recording[dim].variable for dim in RESULT_DIMS}
    if "block" in recording.coords:
        coordinates["block"] = recording["block"].variable
    return coordinates | {
        "signal": np.array(names, dtype=object),
        "symbol": ("signal", np.array(symbols, dtype=object)),
        "role": ("signal", np.array(roles, dtype=object)),
        "lower": ("signal", np.array([lower for lower, _ in bounds])),
        "upper": ("signal", np.array([upper for _, upper in bounds])),
    }
