"""Whether a memory grows beyond what it settles to, and from when its cell has nothing more to say."""

import numpy as np
import xarray as xr

from ...signals import retention_form, retention_values
from ..schema import SIGNAL_DIMS, signal_names
from .runs import Numbers, require_recording, runs
from .saturation import KEPT_ATTRS, RESULT_DIMS, flat_edges, memory_signal
from .trend import BLOCKS, Flags, Ranges, Trend

GROWTH = 0.1  # a memory grows when its trend adds at least this share of its level over the late part
RHYTHM = 0.5  # a memory oscillates when one frequency with its neighbours holds this share of the late power
HOLD = 10  # steps to the end of the sequence that a cell must stay saturated or degenerate


def drift(
    recording: xr.Dataset,
    *,
    late: float = 0.5,
    confidence: float = 0.95,
    epsilon: float = 0.01,
    training_length: int = 0,
) -> xr.Dataset:
    """Trend of the memory's magnitude |s| over the late part of each sequence, and what it leads to.

    The late part of every sequence (its last `late` of the steps, in the order of computation) is cut into up to 16
    stretches, and the mean of |s| over each is regressed on time, with a level for every sequence and one slope for
    the unit:

        slope = sum (x - x_seq) (y - y_seq) / sum (x - x_seq)^2

    Its interval is Student's, with the variance and the degrees of freedom corrected for the lag-1 autocorrelation r
    of the residuals by (1 + r) / (1 - r). A memory that has settled has slope 0; only one that does not forget, or that
    writes ever more, still grows late in a sequence. The limit of a unit is the value at which it would rest with the
    gates it has, from the means over all steps of retention k and of what is written, w_t = s_t - k_t s_{t-1}:

        limit = mean(w) / (1 - mean(k)),    infinite for k = 1 (the LSTM of 1997)

    The verdict is the first of these that holds:

    - `"no data"`: no sequence has a late part of at least 4 finite steps.
    - `"growing"`: the slope is positive with Benjamini-Hochberg-corrected p < 1 - confidence over the units of the
      layer, and adds at least 0.1 of the memory's level over the late part.
    - `"oscillating"`: one frequency, of at least 3 cycles in the late part, holds with its two neighbours at least
      half of the power of the memory around its trend.
    - `"settled"`: the rest.

    Parameters
    ----------
    recording
        A recording, whole or a subset, in memory or opened from disk: it is read a few million values at a time.
    late
        Share of each sequence whose trend counts, in (0, 1].
    confidence
        Of the interval of the slope, and of the verdict.
    epsilon
        A cell has degenerated to its output gate o when |h| > (1 - epsilon) o for its shown state h = o squash(s).
    training_length
        Length in steps of the sequences that the network was trained on; 0 when it is not known. With it the largest
        memory within that many steps and beyond them are compared.

    Returns
    -------
    xr.Dataset
        Over `layer`, `direction`, `unit`: `slope`, `slope_low`, `slope_high` (memory per step), `p` (two-sided) and
        `p_corrected`, `growth` (what the trend adds over the late part, in levels), `level` (late mean of |s|),
        `limit` (signed), `rhythm` (share of power at the leading frequency) and `period` (steps), `verdict` (text),
        `range_trained` and `range_beyond` (largest |s|; NaN without `training_length`).
        Over `layer`, `direction`, `sequence`, `unit`: `saturated_from`, the first step from which the output squasher
        stays on its flat (|squash(s)| > 0.95) to the end, for at least 10 steps, and `degenerate_from`, the
        same for the cell that shows its output gate and nothing else; NaN where there is no such step.
        Steps count in the order of computation: in the backward direction step 0 is the last input. The parameters
        and thresholds of the call stand in the attributes; `nonfinite` counts the sequences of units left out for
        values that are not finite.

    Raises
    ------
    ValueError
        When a parameter is out of range, or the recording holds no memory over `unit`.
    TypeError, SchemaError
        For what is no Dataset, or no recording.

    References
    ----------
    F. A. Gers, J. Schmidhuber, F. Cummins (2000). Learning to Forget. doi:10.1162/089976600300015015 (growing states).

    Examples
    --------
    A memory that gains 0.5 at each of 40 steps, with a retention of 1, has no limit:

    >>> steps = 0.5 * np.arange(1, 41).reshape(1, 1, 1, 40, 1)
    >>> memory = xr.DataArray(steps, dims=SIGNAL_DIMS, attrs={"symbol": "c", "role": "memory"})
    >>> coords = {dim: range(size) for dim, size in memory.sizes.items() if dim != "direction"}
    >>> coords["direction"] = ["forward"]
    >>> attrs = {"schema": "gatescope.recording/1", "retention": "1.0", "cell": "MemoryBlockCell"}
    >>> result = drift(xr.Dataset({"cell_state": memory}, coords, attrs))
    >>> result["slope"].item(), result["limit"].item(), result["verdict"].item()
    (0.5, inf, 'growing')
    """
    _check(late, confidence, epsilon, training_length)
    require_recording(recording, "drift")
    memory = memory_signal(recording)
    if not memory:
        raise ValueError(
            f"drift needs a memory over {SIGNAL_DIMS}, a signal with the role memory; the recording has the signals "
            f"{signal_names(recording)}. Record the cell's state too."
        )
    gate, shown = _with_role(recording, "read"), _with_role(recording, "output")
    keeper = _keeper(recording)
    names = dict.fromkeys([memory, *([keeper] if keeper else []), *([gate, shown] if gate and shown else [])])
    shape = tuple(recording.sizes[dim] for dim in RESULT_DIMS)
    trend, ranges = Trend.empty(shape), Ranges.empty(shape)
    saturated = np.full((*shape[:2], recording.sizes["sequence"], shape[2]), np.nan)
    degenerate = saturated.copy()
    (lower, upper), left_out = flat_edges(recording), 0
    for run in runs(recording, list(names)):
        at, values = run[:2], run.values[memory]
        good = np.asarray(np.isfinite(values).all(axis=0))
        left_out += int((~good).sum())
        trend.add(at, np.where(good, values, 0.0), good, late)
        keep = None if keeper is None else retention_values(str(recording.attrs["retention"]), run.values)
        ranges.add(at, np.where(good, values, 0.0), keep, good, training_length)
        saturated[run[:3]] = np.where(good, _stays((values < lower) | (values > upper)), np.nan)
        if gate and shown:
            bare = np.abs(run.values[shown]) > (1 - epsilon) * run.values[gate]
            degenerate[run[:3]] = np.where(good, _stays(bare), np.nan)
    found = trend.conclude(confidence) | ranges.conclude()
    result = _result(recording, found, saturated, degenerate).assign(verdict=_verdict(found, confidence))
    parameters = {"late": float(late), "confidence": float(confidence), "epsilon": float(epsilon)}
    parameters |= {"training_length": int(training_length)}
    return result.assign_attrs(parameters | {"nonfinite": left_out, "memory": memory})


def _check(late: float, confidence: float, epsilon: float, training_length: int) -> None:
    for name, value, top in (("late", late, 1.0), ("confidence", confidence, 0.9999), ("epsilon", epsilon, 0.9999)):
        if not 0 < value <= top:
            raise ValueError(f"{name} must lie above 0 and {'up to' if top == 1 else 'below'} 1; {value!r} came.")
    if training_length < 0:
        raise ValueError(f"training_length must be a number of steps, or 0 when not known; {training_length!r} came.")


def _keeper(recording: xr.Dataset) -> str | None:
    """The signal that makes the retention; empty where that is a constant, None where there is none of it."""
    form, name = retention_form(str(recording.attrs.get("retention", "none")))
    if form == "constant":
        return ""
    return str(name) if form != "none" and name in recording.data_vars else None


def _with_role(recording: xr.Dataset, role: str) -> str:
    found = [
        name
        for name in signal_names(recording)
        if recording[name].dims == SIGNAL_DIMS and recording[name].attrs["role"] == role
    ]
    return found[0] if found else ""


def _stays(true: Flags) -> Numbers:
    """First step (unit) from which a condition (step, unit) holds to the end, for at least HOLD steps; else NaN."""
    steps = len(true)
    first = (
        steps - np.where(true.all(axis=0), steps, np.argmin(true[::-1], axis=0)) if steps else np.zeros(true.shape[1])
    )
    return np.where(steps - first >= HOLD, first, np.nan)


def _verdict(found: dict[str, Numbers], confidence: float) -> xr.Variable:
    grows = (found["slope"] > 0) & (found["p_corrected"] < 1 - confidence) & (found["growth"] >= GROWTH)
    conditions = [np.isnan(found["slope"]), grows, found["rhythm"] >= RHYTHM]
    words = np.select(conditions, ["no data", "growing", "oscillating"], default="settled").astype(object)
    return xr.Variable(RESULT_DIMS, words, {"long_name": "verdict on the memory"})


TEXTS = {
    "slope": ("trend of the memory's magnitude late in a sequence", "1/step"),
    "slope_low": ("lower end of the slope's interval", "1/step"),
    "slope_high": ("upper end of the slope's interval", "1/step"),
    "p": ("two-sided p of slope 0", "1"),
    "p_corrected": ("p corrected over the layer's units (Benjamini-Hochberg)", "1"),
    "growth": ("what the trend adds over the late part, in levels", "1"),
    "level": ("late mean of the memory's magnitude", "1"),
    "rhythm": ("share of power at the leading frequency", "1"),
    "period": ("period of the leading frequency", "step"),
    "limit": ("where the memory would rest with its mean gates", "1"),
    "range_trained": ("largest magnitude within the trained length", "1"),
    "range_beyond": ("largest magnitude beyond the trained length", "1"),
}


def _result(recording: xr.Dataset, found: dict[str, Numbers], saturated: Numbers, degenerate: Numbers) -> xr.Dataset:
    by_sequence = (*RESULT_DIMS[:2], "sequence", "unit")
    data = {
        name: (RESULT_DIMS, found[name], {"long_name": text, "units": unit}) for name, (text, unit) in TEXTS.items()
    }
    coords = {dim: recording[dim].variable for dim in by_sequence}
    if "block" in recording.coords:
        coords["block"] = recording["block"].variable
    result = xr.Dataset(data, coords)
    for name, values, text in (
        ("saturated_from", saturated, "step from which the output squasher stays on its flat"),
        ("degenerate_from", degenerate, "step from which the cell shows its output gate alone"),
    ):
        result[name] = (by_sequence, values, {"long_name": text, "units": "step"})
    result.attrs = {key: recording.attrs[key] for key in KEPT_ATTRS if key in recording.attrs}
    thresholds = {"blocks": BLOCKS, "growth_threshold": GROWTH, "rhythm_threshold": RHYTHM, "hold": HOLD}
    return result.assign_attrs({"measure": "drift"} | thresholds)
