"""What a unit stands for: how well a label can be told from its value, beside what chance would give."""

from collections.abc import Iterable

import numpy as np
import xarray as xr
from scipy import stats

from ..schema import SIGNAL_DIMS, signal_names
from .correction import corrected
from .decoding import decoding, groups_of
from .information import mutual_information, quantile_codes, rank_codes
from .labelled import Label, Part, parts, read_label
from .runs import Numbers, require_recording
from .saturation import KEPT_ATTRS, RESULT_DIMS
from .shifts import shifted_sums

DIMS = ("signal", "lag", *RESULT_DIMS)


def selectivity(
    recording: xr.Dataset,
    labels: str | xr.DataArray,
    *,
    signals: Iterable[str] | None = None,
    lags: Iterable[int] = (0,),
    shifts: int = 199,
    decode: bool = False,
) -> xr.Dataset:
    """How well each unit tells the classes of a label apart, or follows a numeric one, against shifted labels.

    For every class of a label of text or booleans, the area under the ROC curve of the unit's value for "this class or
    another": the probability that a step of the class has the larger value, ties counting half. For a numeric label
    Pearson's correlation. Both are compared with **all circular shifts** of the label against the values, taken over
    all labelled steps one sequence after the other; a shift keeps the autocorrelation of both and breaks what joins
    them. p is the share of shifts that lie as far from chance, two-sided, or where fewer than 10 do, Student's tail
    at z with the effective number of independent shifts; `p_corrected` is Benjamini and Hochberg's over all units,
    layers, directions and classes of a signal and lag.

    The mutual information is that of the value, in 8 classes of equal size, with the label (of a numeric one, in 8
    classes too), in bits, less its mean over `shifts` evenly spaced shifts, which is its bias.

    Parameters
    ----------
    recording
        A recording, whole or a subset, in memory or opened from disk.
    labels
        The name of one of its labels, or a label (sequence, time) for it. Text '' and numeric NaN are no label.
    signals
        Signals over `unit` to look at; by default the memory and what the cell shows.
    lags
        Steps by which the label came before the value, in the order of computation; at 2 the question is whether the
        unit still tells the label read two steps ago. Negative lags ask for labels yet to come.
    shifts
        Number of shifts for the bias and p of the mutual information.
    decode
        Whether to read the label from each layer with a linear decoder too (extra `stats`). All units of a layer are
        then held at once.

    Returns
    -------
    xr.Dataset
        Over `signal`, `lag`, `layer`, `direction`, `unit`, and for a label with classes over `class`: `auc`, `z`, `p`,
        `p_corrected`, and `sign_code`, the share of the class's steps on which the value is positive minus that on
        which it is negative: -1 and 1 for a unit that holds a class by its sign. For a numeric label `correlation`
        in place of `auc` and `sign_code`. Without `class`: `mutual_information`, `mutual_information_chance` (bits)
        and `mutual_information_p`. `steps` (lag, direction) counts what was compared, `steps_of_class` (lag, direction,
        class) each class. With `decode`, over `signal`, `lag`, `layer`, `direction`: `decoding`, the cross-validated
        balanced accuracy (of a numeric label R^2) of a linear decoder from all units, `decoding_control`, that for
        shifted labels, and `decoding_selectivity`, their difference. NaN for units with values that are not finite,
        and where a class has no steps or all.

    Raises
    ------
    ValueError
        When a label has fewer than two classes or more than 64, a signal or a label is not there, or a lag leaves no
        step.
    TypeError, SchemaError
        For what is no Dataset, or no recording.

    References
    ----------
    J. A. Hanley, B. J. McNeil (1982). The meaning and use of the area under a receiver operating characteristic
    (ROC) curve. doi:10.1148/radiology.143.1.7063747.
    J. Hewitt, P. Liang (2019). Designing and Interpreting Probes with Control Tasks. arXiv:1909.03368.

    Examples
    --------
    A unit that is positive at the letter a and negative at b:

    >>> steps = np.reshape([0.5, -0.5, 0.9, -0.1, 0.3, -0.8], (1, 1, 1, 6, 1))
    >>> memory = xr.DataArray(steps, dims=SIGNAL_DIMS, attrs={"symbol": "c", "role": "memory"})
    >>> coords = {dim: range(size) for dim, size in memory.sizes.items() if dim != "direction"}
    >>> recording = xr.Dataset({"cell_state": memory}, coords, {"schema": "gatescope.recording/1"})
    >>> recording = recording.assign_coords(direction=["forward"], letter=(("sequence", "time"), [list("ababab")]))
    >>> result = selectivity(recording, "letter")
    >>> result["auc"].sel({"class": "a"}).item(), result["sign_code"].values.ravel().tolist()
    (1.0, [1.0, -1.0])
    """
    require_recording(recording, "selectivity")
    names, chosen = _signals(recording, signals), sorted({int(lag) for lag in lags})
    label = read_label(recording, labels)
    if not chosen or shifts < 1:
        raise ValueError(f"There must be at least one lag and one shift; lags={chosen} and shifts={shifts} came.")
    columns = max(1, len(label.classes))
    shape = (len(names), len(chosen), *(recording.sizes[dim] for dim in RESULT_DIMS))
    found = {key: np.full((*shape, columns), np.nan) for key in ("value", "z", "p", "sign")}
    found |= {key: np.full(shape, np.nan) for key in ("information", "chance", "information_p")}
    steps = np.zeros((shape[1], shape[3], columns), dtype=np.int64)
    for place, name in enumerate(names):
        for part in parts(recording, name, chosen, label):
            lag, layer, direction, units = part.at
            if not len(part.label):
                raise ValueError(
                    f"A lag must leave labelled steps to compare; lag {chosen[lag]} leaves none of label "
                    f"{label.name!r}. Choose lags shorter than the sequences."
                )
            steps[lag, direction] = _counts(part, columns)
            for key, values in _measure(part, label, shifts).items():
                found[key][(place, lag, layer, direction, units)] = values
    result = _result(recording, label, found, steps)
    if decode:
        result = result.assign(_decoded(recording, names, chosen, label))
    coords = {"signal": np.array(names, dtype=object), "lag": np.array(chosen, dtype=np.int64)}
    return result.assign_coords(coords).assign_attrs(
        {"measure": "selectivity", "labels": label.name, "shifts": int(shifts), "decode": int(decode)}
    )


def _decoded(recording: xr.Dataset, names: list[str], lags: list[int], label: Label) -> dict[str, xr.Variable]:
    """The scores of the decoder and its control, (signal, lag, layer, direction)."""
    dims = DIMS[:-1]
    scores = np.full((2, len(names), len(lags), recording.sizes["layer"], recording.sizes["direction"]), np.nan)
    for place, name in enumerate(names):
        for part in parts(recording, name, lags, label, whole=True):
            good = np.isfinite(part.values).all(axis=0)
            if good.any():
                scores[(slice(None), place, *part.at[:3])] = decoding(
                    part.values[:, good], part.label, groups_of(part.sequences)
                )
    kind = "balanced accuracy" if label.classes else "R^2"
    texts = {
        "decoding": (scores[0], f"cross-validated {kind} of a linear decoder"),
        "decoding_control": (scores[1], f"its {kind} for shifted labels"),
        "decoding_selectivity": (scores[0] - scores[1], f"{kind} beyond the control's"),
    }
    return {key: xr.Variable(dims, value, {"long_name": text, "units": "1"}) for key, (value, text) in texts.items()}


def _signals(recording: xr.Dataset, wanted: Iterable[str] | None) -> list[str]:
    """The signals asked for, or the memory and what is shown."""
    there = [name for name in signal_names(recording) if recording[name].dims == SIGNAL_DIMS]
    if wanted is None:
        names = [name for name in there if recording[name].attrs["role"] in ("memory", "output")]
    else:
        names = [wanted] if isinstance(wanted, str) else list(wanted)
    unknown = [name for name in names if name not in there]
    if unknown or not names:
        raise ValueError(
            f"signals must be signals over {SIGNAL_DIMS}; {unknown or names} came and the recording has {there}."
        )
    return names


def _counts(part: Part, columns: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Steps of each class; of a numeric label all steps."""
    if part.label.dtype.kind == "f":
        return np.array([len(part.label)])
    return np.bincount(part.label, minlength=columns)


def _measure(part: Part, label: Label, shifts: int) -> dict[str, Numbers]:
    """All measures of some units: (unit, column), and (unit) of the information."""
    good = np.isfinite(part.values).all(axis=0)
    values = np.where(good, part.values, 0.0)
    ranks = stats.rankdata(values, axis=0)
    counts = _counts(part, max(1, len(label.classes)))
    if label.classes:
        indicator = (part.label[:, None] == np.arange(len(counts))).astype(np.float64)
        centred = ranks - (len(values) + 1) / 2
        _, null = shifted_sums(indicator - indicator.mean(axis=0), centred)
        pairs = (counts * (len(part.label) - counts))[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            value = np.where(pairs > 0, 0.5 + indicator.T @ centred / pairs, np.nan)
            sign = indicator.T @ np.sign(values) / np.where(counts > 0, counts, np.nan)[:, None]
        codes = part.label
    else:
        numbers = part.label - part.label.mean()
        sums, null = shifted_sums(numbers[:, None], values - values.mean(axis=0))
        scale = np.sqrt((numbers**2).sum() * ((values - values.mean(axis=0)) ** 2).sum(axis=0))
        value = np.where(scale > 0, sums / np.where(scale > 0, scale, 1.0), np.nan)
        sign, codes = np.full_like(value, np.nan), quantile_codes(part.label[:, None])[:, 0]
    information, chance, information_p = mutual_information(rank_codes(ranks), codes, shifts)
    there = np.isfinite(value) & good
    by_column = {"value": value, "z": null.z, "p": null.p, "sign": np.where(np.isfinite(sign), sign, np.nan)}
    by_unit = {"information": information, "chance": chance, "information_p": information_p}
    return {key: np.where(there, array, np.nan).T for key, array in by_column.items()} | {
        key: np.where(good, array, np.nan) for key, array in by_unit.items()
    }


def _result(
    recording: xr.Dataset,
    label: Label,
    found: dict[str, Numbers],
    steps: np.ndarray[tuple[int, ...], np.dtype[np.int64]],
) -> xr.Dataset:
    by_column = (*DIMS, "class") if label.classes else DIMS
    shaped = {key: found[key] if label.classes else found[key][..., 0] for key in ("value", "z", "p", "sign")}
    adjusted = corrected(found["p"])
    texts = {
        "z": (shaped["z"], "distance from chance in standard deviations of shifted labels"),
        "p": (shaped["p"], "two-sided p against all circular shifts of the label"),
        "p_corrected": (adjusted if label.classes else adjusted[..., 0], "p corrected (Benjamini-Hochberg)"),
    }
    if label.classes:
        texts = {
            "auc": (shaped["value"], "area under the ROC curve: this class against the others"),
            "sign_code": (shaped["sign"], "share of positive minus share of negative values in the class"),
        } | texts
    else:
        texts = {"correlation": (shaped["value"], "Pearson's correlation with the label")} | texts
    data = {name: (by_column, values, {"long_name": text, "units": "1"}) for name, (values, text) in texts.items()}
    bits = {
        "mutual_information": ("information", "mutual information less its chance level", "bit"),
        "mutual_information_chance": ("chance", "mean mutual information with shifted labels", "bit"),
        "mutual_information_p": ("information_p", "share of shifts with at least as much", "1"),
    }
    data |= {name: (DIMS, found[key], {"long_name": text, "units": unit}) for name, (key, text, unit) in bits.items()}
    coords: dict[str, object] = {dim: recording[dim].variable for dim in RESULT_DIMS}
    if "block" in recording.coords:
        coords["block"] = recording["block"].variable
    if label.classes:
        coords["class"] = np.array(label.classes, dtype=object)
    result = xr.Dataset(data, coords)
    result["steps"] = (("lag", "direction"), steps.sum(axis=2), {"long_name": "steps compared", "units": "1"})
    if label.classes:
        result["steps_of_class"] = (("lag", "direction", "class"), steps, {"long_name": "steps of each class"})
    result.attrs = {key: recording.attrs[key] for key in KEPT_ATTRS if key in recording.attrs}
    return result
