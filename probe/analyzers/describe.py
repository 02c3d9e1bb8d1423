"""What there is to say about a recording, the largest first."""

from collections import Counter

import numpy as np
import xarray as xr

from .findings import FINDERS, LEVEL, Finding
from .known import Known
from .runs import require_recording
from .saturation import KEPT_ATTRS

MOST = 12


def describe(recording: xr.Dataset, *, most: int = MOST) -> xr.Dataset:
    """The findings of all measures that speak of this recording, ordered by the size of their effect.

    Each is a sentence with the effect it is ordered by, and the grounds it stands on: a p corrected over all units that
    were looked at (below 0.05), or a stated threshold. What concerns the recording as a whole (a model left in training
    mode with dropout, values that are not finite) comes first. Measures that need a label run on each label of text
    that has 2 to 64 classes; `boundary` says where segments begin. A measure that finds nothing is silent, and none
    crowds out the others: where there are more findings than `most`, the largest of each measure comes first, then the
    second of each, and so on.

    Parameters
    ----------
    recording
        A recording, in memory or opened from disk.
    most
        Findings that are kept, at least 1.

    Returns
    -------
    xr.Dataset
        Over `finding`: `text`, `measure` (the function that gives the numbers), `effect` (0 to 1), `effect_of` (what
        the effect is), `p` (corrected; NaN where a threshold decides), `grounds`, `layer`, `direction`, `unit` (-1 and
        '' where it is about the whole). Attribute `found` counts all, also those beyond `most`.

    Raises
    ------
    ValueError
        When `most` is below 1.
    TypeError, SchemaError
        For what is no Dataset, or no recording.

    Examples
    --------
    >>> dims, shape = ("layer", "direction", "sequence", "time", "unit"), (1, 1, 1, 40, 1)
    >>> memory = xr.DataArray(np.arange(40.0).reshape(shape), dims=dims, attrs={"symbol": "c", "role": "memory"})
    >>> gate = xr.DataArray(np.ones(shape), dims=dims, attrs={"symbol": "f", "role": "gate", "lower": 0, "upper": 1})
    >>> coords = {dim: range(size) for dim, size in memory.sizes.items() if dim != "direction"}
    >>> coords |= {"direction": ["forward"], "start": ("sequence", ["zero"]), "length": ("sequence", [40])}
    >>> attrs = {"schema": "gatescope.recording/1", "retention": "forget_gate", "cell": "LSTMCell"}
    >>> recording = xr.Dataset({"forget_gate": gate, "cell_state": memory}, coords, attrs)
    >>> for text in describe(recording, most=2)["text"].values:
    ...     print(text)
    forget_gate is stuck open in 100% of the units of layer 0, forward.
    The memory still grows late in the sequences in 100% of the units of layer 0, forward, most in unit 0, by 1 a step.
    """
    require_recording(recording, "describe")
    if most < 1:
        raise ValueError(f"most must be at least 1 finding; {most!r} came.")
    known = Known(recording)
    return conclude(recording, [finding for finder in FINDERS for finding in finder(known)], most)


def conclude(recording: xr.Dataset, found: list[Finding], most: int) -> xr.Dataset:
    """The result of `describe` from what its finders found, whoever called them."""
    result = _table(_chosen(found, most))
    result.attrs = {key: recording.attrs[key] for key in KEPT_ATTRS if key in recording.attrs}
    return result.assign_attrs({"measure": "describe", "most": int(most), "found": len(found), "level": LEVEL})


def _chosen(found: list[Finding], most: int) -> list[Finding]:
    """The largest finding of every measure, then the second of each, and so on; in the order of their effect."""

    def by_effect(finding: Finding) -> tuple[bool, float]:
        return finding.measure != "recording", -finding.effect

    seen: Counter[str] = Counter()
    ranked = []
    for finding in sorted(found, key=by_effect):
        ranked.append((seen[finding.measure], finding))
        seen[finding.measure] += 1
    ranked.sort(key=lambda pair: pair[0])
    return sorted([finding for _, finding in ranked[:most]], key=by_effect)


def _table(found: list[Finding]) -> xr.Dataset:
    kinds = {str: object, float: np.float64, int: np.int64}
    data = {
        name: ("finding", np.array([getattr(finding, name) for finding in found], dtype=kinds[kind]))
        for name, kind in Finding.__annotations__.items()
    }
    return xr.Dataset(data, {"finding": np.arange(len(found))})
