"""What in the input sets resets off: which symbol, which range of a number, which state."""

from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from .alignment import adjusted
from .contrasts import LabelCounts, information, label_counts, more_than_others, more_than_rest
from .event_labels import Classes, classes_of
from .saturation import KEPT_ATTRS
from .trains import Trains, require_events

UNIT_DIMS = ("layer", "direction", "unit")
LABEL_DIMS = (*UNIT_DIMS, "label")

Numbers = npt.NDArray[np.float64]


def triggers(
    events: xr.Dataset,
    labels: xr.DataArray | str,
    *,
    kind: str = "reset",
    at_least: int = 20,
    bins: int = 8,
    alpha: float = 0.05,
) -> xr.Dataset:
    """Which labels set events off, tested against the other labels: a unit that resets at many letters has no trigger.

    With k events in the n steps of a label, K in all N steps, of one unit,

        lift = (k / n) / (K / N)

        mutual_information = sum over labels and event or not of P log2(P / (P_label P_event)), in bits, less its bias

    Many units shut at many letters, so that a lift above 1, and even a significant one, says little about a letter.
    `p` is therefore that of the label having no higher rate of events than the **other label with the highest**: the
    largest p over all others, which is small only if the label stands out from each of them. `p_rest` is the milder one
    against all other steps together; two symbols that both reset a unit are found by it. Each comparison takes the
    larger of two p: one from the variance of the difference over all circular shifts of the events within each
    sequence, which knows how events and labels follow each other in time, and the exact one of two Poisson counts,
    which holds for few events. They are corrected over all units and labels (Benjamini and Hochberg).

    The label of an event is that of the step at which it begins. Labels on fewer than `at_least` steps are not tested,
    but count among the rest. Numbers with more than `bins` different values are cut into ranges of equally many steps;
    then neighbouring ranges may share a trigger, so that for every unit the one run of ranges with the smallest
    `p_rest` is chosen, and its p multiplied by how many runs there were to choose from.

    Parameters
    ----------
    events
        What `resets` returned, or some of its events.
    labels
        Name of a label that the events carry, or an array (sequence, time) of text, truth values or numbers.
    kind
        Which events: `"reset"` or `"fresh_start"`.
    at_least
        Steps that a label must have to be tested, 1 or more.
    bins
        Ranges of a number, 2 to 128; a number with at most so many different values keeps them as they are.
    alpha
        Corrected p below which a label is called a trigger, 0 < alpha < 1.

    Returns
    -------
    xr.Dataset
        Over `layer`, `direction`, `unit`, `label`: `lift`, `events`, `p`, `p_adjusted`, `p_rest`, `p_rest_adjusted`.
        Over `layer`, `direction`, `unit`: `mutual_information` (bits) and `trigger` (the label with the smallest p, or
        the range, if its corrected p is below alpha; else empty).
        Over `layer`, `direction`, `label`: `units` (how many units have it as their trigger by `p_adjusted`),
        `layer_lift` and `layer_p`, `layer_p_adjusted`: the same for the events of all units of a layer together,
        against the other label with the most; over `layer`, `direction`: `layer_trigger`.
        Of numbers also, over `layer`, `direction`, `unit`: `range_low range_high range_lift range_p range_p_adjusted`.
        Coordinate `steps(label)` counts the steps of each label; of numbers `low(label)` and `high(label)` are the
        ends. NaN for units without events, and for p where there is no other label.

    Raises
    ------
    ValueError
        When `events` is not what `resets` returned, the labels do not fit them, or a parameter is out of its range.

    References
    ----------
    R. L. Berger (1982). Multiparameter hypothesis testing and acceptance sampling. Technometrics 24(4).
    doi 10.2307/1267823.

    Examples
    --------
    Four of the five events of the only unit fall on the four steps labelled b:

    >>> steps = np.arange(40)
    >>> label = np.where(np.isin(steps, [7, 18, 26, 31]), "b", np.where(steps % 2, "a", "c")).astype(object)
    >>> events = xr.Dataset(
    ...     {"onset": ("event", [7, 13, 18, 26, 31])},
    ...     {"layer": [0], "direction": ["forward"], "unit": [0], "sequence": [0], "time": steps},
    ...     {"measure": "resets"},
    ... ).assign_coords(length=("sequence", [40]), start=("sequence", ["continued"]))
    >>> for dim, value in {"kind": "reset", "layer": 0, "direction": "forward", "sequence": 0, "unit": 0}.items():
    ...     events[f"event_{dim}"] = "event", [value] * 5
    >>> result = triggers(events, xr.DataArray([label], dims=["sequence", "time"]), at_least=4)
    >>> result["lift"].sel(label="b").item(), result["trigger"].item()                 # (4 / 4) / (5 / 40)
    (8.0, 'b')
    """
    require_events(events, "triggers", kind)
    check_parameters(at_least, bins, alpha)
    classes = classes_of(events, labels, bins, at_least)
    trains = Trains.of(events, kind)
    result = Result((*trains.shape[:2], trains.units), classes)
    for at in np.ndindex(trains.shape[:2]):
        result.take(at, label_counts(trains, at, classes.codes, len(classes.names) + 1, pooled=False))
        result.take_layer(at, label_counts(trains, at, classes.codes, len(classes.names) + 1, pooled=True))
    attrs = {key: events.attrs[key] for key in (*KEPT_ATTRS, "reason") if key in events.attrs}
    name = labels if isinstance(labels, str) else str(labels.name or "given")
    attrs |= {"measure": "triggers", "labels": name, "kind": kind, "at_least": int(at_least), "bins": int(bins)}
    dataset = xr.Dataset(result.variables(alpha), {dim: events[dim].variable for dim in UNIT_DIMS})
    return dataset.assign_coords(result.coordinates()).assign_attrs(attrs | {"alpha": float(alpha)})


def check_parameters(at_least: int, bins: int, alpha: float) -> None:
    if not (isinstance(at_least, int | np.integer) and at_least >= 1):
        raise ValueError(f"at_least must be a whole number of steps, 1 or more; {at_least!r} came.")
    if not (isinstance(bins, int | np.integer) and 2 <= bins <= 128):
        raise ValueError(f"bins must be a whole number from 2 to 128; {bins!r} came.")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must be a probability with 0 < alpha < 1; {alpha!r} came.")


class Result:
    """What is found of units and layers, as it comes."""

    def __init__(self, shape: tuple[int, int, int], classes: Classes) -> None:
        self.classes, size = classes, len(classes.names)
        self.steps = np.bincount(classes.codes[classes.codes >= 0].ravel(), minlength=size + 1)[:size]
        self.by_label = {name: np.full((*shape, size), np.nan) for name in ("lift", "events", "p", "p_rest")}
        self.by_unit = {"mutual_information": np.full(shape, np.nan)}
        self.by_layer = {name: np.full((*shape[:2], size), np.nan) for name in ("layer_lift", "layer_p")}
        self.member = _runs_of(size) if classes.ranges and size > 1 else np.zeros((0, size + 1), dtype=bool)
        if self.member.size:
            self.by_unit |= {f"range_{name}": np.full(shape, np.nan) for name in ("low", "high", "lift", "p")}

    def take(self, at: tuple[int, ...], counts: LabelCounts) -> None:
        size = len(self.classes.names)
        there = counts.events.sum(axis=1) > 0
        self.by_label["events"][at] = counts.events[:, :size]
        self.by_label["lift"][at] = lifts(counts, np.eye(size, size + 1, dtype=bool))
        self.by_label["p"][at] = more_than_others(counts, size, rare=True)
        self.by_label["p_rest"][at] = more_than_rest(counts, np.eye(size, size + 1, dtype=bool), rare=True)
        self.by_unit["mutual_information"][at] = np.where(there, information(counts.events, counts.steps), np.nan)
        if self.member.size and there.any():
            p = more_than_rest(counts, self.member, rare=True)
            best = np.where(np.isnan(p), np.inf, p).argmin(axis=1)
            rows = np.arange(len(best))
            first, last = self.member[best].argmax(axis=1), size - self.member[best, :size][:, ::-1].argmax(axis=1) - 1
            found = {"low": self.classes.low[first], "high": self.classes.high[last]}
            found |= {"p": np.minimum(1.0, p[rows, best] * len(self.member))}
            found |= {"lift": lifts(counts, self.member)[rows, best]}
            for name, values in found.items():
                self.by_unit[f"range_{name}"][at] = np.where(there, values, np.nan)

    def take_layer(self, at: tuple[int, ...], counts: LabelCounts) -> None:
        size = len(self.classes.names)
        self.by_layer["layer_lift"][at] = lifts(counts, np.eye(size, size + 1, dtype=bool))[0]
        self.by_layer["layer_p"][at] = more_than_others(counts, size, rare=False)[0]

    def variables(self, alpha: float) -> dict[str, Any]:
        by_label, by_unit, by_layer = (with_adjusted(part) for part in (self.by_label, self.by_unit, self.by_layer))
        names = np.array([*self.classes.names, ""], dtype=object)
        stands_out = by_label["p_adjusted"] < alpha
        trigger = names[_best(by_label["p_adjusted"], alpha)]
        if self.member.size:
            low, high = by_unit["range_low"], by_unit["range_high"]
            texts = [f"{a:.4g} to {b:.4g}" for a, b in zip(low.ravel(), high.ravel(), strict=True)]
            significant = by_unit["range_p_adjusted"] < alpha
            trigger = np.where(significant, np.array(texts, dtype=object).reshape(low.shape), "")
        events = np.nan_to_num(by_label.pop("events")).astype(np.int64)
        found: dict[str, Any] = {name: (LABEL_DIMS, values, _about(name)) for name, values in by_label.items()}
        found |= {name: (UNIT_DIMS, values, _about(name)) for name, values in by_unit.items()}
        found |= {name: ((*UNIT_DIMS[:2], "label"), values, _about(name)) for name, values in by_layer.items()}
        found["events"] = (LABEL_DIMS, events, _about("events"))
        found["units"] = ((*UNIT_DIMS[:2], "label"), stands_out.sum(axis=2), _about("units"))
        found["trigger"] = (UNIT_DIMS, trigger.astype(object), _about("trigger"))
        strongest = names[_best(by_layer["layer_p_adjusted"], alpha)].astype(object)
        found["layer_trigger"] = (UNIT_DIMS[:2], strongest, _about("layer_trigger"))
        return found

    def coordinates(self) -> dict[str, Any]:
        coords: dict[str, Any] = {"label": np.array(self.classes.names, dtype=object), "steps": ("label", self.steps)}
        if self.classes.ranges:
            coords |= {"low": ("label", self.classes.low), "high": ("label", self.classes.high)}
        return coords


def with_adjusted(found: dict[str, Numbers]) -> dict[str, Numbers]:
    """The same with every p corrected beside it."""
    return found | {f"{name}_adjusted": adjusted(p) for name, p in found.items() if name.endswith(("p", "p_rest"))}


ABOUT = {
    "lift": "rate of events at the label over the rate at all steps",
    "events": "events that begin at the label",
    "p": "probability if another label had as many",
    "p_rest": "probability if all other steps had as many",
    "mutual_information": "information of an event about the label",
    "units": "units with the label as trigger",
    "trigger": "label that sets events off",
    "low": "lower end of the range",
    "high": "upper end of the range",
}


def _about(name: str) -> dict[str, str]:
    plain = name.removesuffix("_adjusted").removeprefix("layer_").removeprefix("range_")
    text = ABOUT[plain] + (", all units together" if name.startswith("layer_") else "")
    text += ", in the range" if name.startswith("range_") and plain in ("lift", "p") else ""
    return {
        "long_name": text + (", corrected" if name.endswith("_adjusted") else ""),
        "units": "bit" if name == "mutual_information" else "1",
    }


def _best(p: Numbers, alpha: float) -> npt.NDArray[np.intp]:
    """The place of the smallest p over the last axis; the place after the last where none is below alpha."""
    if not p.shape[-1]:
        return np.zeros(p.shape[:-1], dtype=np.intp)
    known = np.where(np.isnan(p), np.inf, p)
    return np.asarray(np.where(known.min(axis=-1) < alpha, known.argmin(axis=-1), p.shape[-1]), dtype=np.intp)


def _runs_of(size: int) -> npt.NDArray[np.bool_]:
    """All runs of neighbouring labels but the whole, (run, label and the rare ones)."""
    place = np.arange(size + 1)
    bounds = [(a, b) for a in range(size) for b in range(a, size) if b - a + 1 < size]
    return np.array([(place >= a) & (place <= b) for a, b in bounds])


def lifts(counts: LabelCounts, member: npt.NDArray[np.bool_]) -> Numbers:
    """Rate of events in groups of labels (group, label) over the rate at all steps, (unit, group)."""
    inside = member.astype(np.float64)
    whole = counts.events.sum(axis=1, keepdims=True) * (inside @ counts.steps)
    found = counts.events @ inside.T * counts.steps.sum()
    return np.asarray(np.divide(found, whole, out=np.full(found.shape, np.nan), where=whole > 0))
