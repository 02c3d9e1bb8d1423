"""What each unit and each memory block does: one role each, with the statistics behind it and how sure it is."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from ..schema import SIGNAL_DIMS, signal_names
from .chunks import chunks
from .evidence import Chunk, Sums
from .labelled import Label, read_label
from .predicates import DEAD, LINE, PLATEAU, ROLES, SIGN_AUC, STATISTICS, STUCK, first_role, holding, statistics
from .resets import resets
from .runs import Numbers, lengths_of, require_recording
from .saturation import KEPT_ATTRS, RESULT_DIMS, bounds_of, memory_signal
from .specialisation import specialisation

GROUPS = 40  # groups of sequences, or stretches of them, that the bootstrap draws from
STRETCH = 50  # least steps of a stretch
DRAWN = 20  # samples taken at once
NO_ROLE = "none"


def roles(
    recording: xr.Dataset,
    labels: str | xr.DataArray | None = None,
    *,
    lags: tuple[int, int] | None = None,
    samples: int = 200,
    seed: int = 0,
) -> xr.Dataset:
    """The role of every unit and memory block, by stated predicates, with its confidence.

    A unit's role is the first of these whose predicate holds; `holds` says all that do:

    - `dead`: its memory spreads over no more than 1e-6 of half its range.
    - `stuck`: each of its gates spends at least 0.95 of the steps at one end, so that nothing in it is decided.
    - `latch`: its sign stands for one of two classes (AUC between them >= 0.95, one held positive, one negative, each
      on at least 0.1 of the labelled steps), it stays put between resets (at least half of its variance lies between
      segments), and two steps after its best class more than half of what told it apart is left. Without a label: at
      least 0.9 of the steps between two resets have the same sign, and both signs occur.
    - `clock`: between resets its memory is a line with one slope, R^2 >= 0.9. `counter`: lines with slopes of their
      own, R^2 >= 0.9.
    - `event detector`: AUC >= 0.9 for one class of the label with at least 20 steps, of which at most half is left two
      steps later.
    - `pass-through`: mean retention below 0.2 while the gate that writes is above 0.8.
    - `long-memory`: its typical time scale, that of the median retention, is at least the longer of the task's `lags`;
      where these are not given, 3 times the (geometric) mean of the layer's units and 5 steps.
    - `short-memory`: any other with a retention.

    A block has the first role that one of its units has. `confidence` is the share of bootstrap samples in which the
    unit has the same role: groups of whole sequences (of a few sequences, stretches of at least 50 steps) are drawn
    again with replacement and everything but the places of the resets is computed anew.

    Parameters
    ----------
    recording
        A recording with all units of a layer, in memory or opened from disk.
    labels
        A label of the recording, or one (sequence, time), with classes: what a latch may hold or an event be.
    lags
        Short and long lag of the task in steps, where it is known.
    samples
        Bootstrap samples, and of the shuffles of `specialisation` a tenth as many.
    seed
        Of both.

    Returns
    -------
    xr.Dataset
        Over `layer`, `direction`, `unit`: `unit_role` (text), `confidence`, over `statistic` too: `evidence`; over
        `role`: `holds`. With blocks over `memory_block`: `block_role`, `block_confidence`. Over `layer`, `direction`:
        `specialisation`, the variance between units of the log time scale over the mean variance when at every step
        units exchange their retentions at random, and `specialisation_p`. 1 means that units differ no more than
        chance.

    Raises
    ------
    ValueError
        When the recording holds no memory, a label is not there or numeric, or a parameter is out of range.
    TypeError, SchemaError
        For what is no Dataset, or no recording.

    References
    ----------
    A. Karpathy, J. Johnson, L. Fei-Fei (2015). Visualizing and Understanding Recurrent Networks. arXiv:1506.02078.
    G. Weiss, Y. Goldberg, E. Yahav (2018). On the Practical Computational Power of Finite Precision RNNs for Language
    Recognition. arXiv:1805.04908 (counters).

    Examples
    --------
    A memory that rises by 1 at every step is a clock:

    >>> shape = (1, 1, 1, 20, 1)
    >>> memory = xr.DataArray(np.arange(20.0).reshape(shape), dims=SIGNAL_DIMS, attrs={"symbol": "c", "role": "memory"})
    >>> coords = {dim: range(size) for dim, size in memory.sizes.items() if dim != "direction"}
    >>> coords |= {"direction": ["forward"], "start": ("sequence", ["zero"]), "length": ("sequence", [20])}
    >>> attrs = {"schema": "gatescope.recording/1", "retention": "1.0", "cell": "MemoryBlockCell"}
    >>> roles(xr.Dataset({"cell_state": memory}, coords, attrs), samples=10)["unit_role"].item()
    'clock'
    """
    require_recording(recording, "roles")
    _checked(recording, labels, lags, samples)
    return roles_from(recording, resets(recording), labels, lags=lags, samples=samples, seed=seed)


def roles_from(
    recording: xr.Dataset,
    events: xr.Dataset,
    labels: str | xr.DataArray | None,
    *,
    lags: tuple[int, int] | None = None,
    samples: int,
    seed: int = 0,
) -> xr.Dataset:
    """`roles` of a recording whose resets are known already."""
    memory, label = _checked(recording, labels, lags, samples)
    lengths = lengths_of(recording, memory)
    group, groups = _groups(recording, lengths)
    weights = np.concatenate([np.ones((1, groups)), _weights(groups, samples, seed)])
    lower, upper = bounds_of(recording[memory]) or (-1.0, 1.0)
    places = np.ndindex(recording.sizes["layer"], recording.sizes["direction"])
    judged, special = [], []
    for at in places:
        parts = chunks(recording, memory, at, lengths, group, label, events)
        judged.append(_judged(parts, weights, label is not None, (upper - lower) / 2, lags))
        special.append(specialisation(recording, at, max(10, samples // 10), seed))
    result = _result(recording, judged, np.array(special))
    attrs = {"labels": label.name if label else "", "lags": str(list(lags)) if lags else "", "samples": int(samples)}
    return result.assign_attrs(attrs | {"seed": int(seed), "groups": groups, "reset_reason": events.attrs["reason"]})


class Judged(NamedTuple):
    """One layer and direction: statistics (statistic, unit), what holds (role, unit), and roles as places."""

    evidence: Numbers
    holds: npt.NDArray[np.bool_]
    role: npt.NDArray[np.int64]  # (unit,)
    again: npt.NDArray[np.int64]  # (sample, unit)


def _judged(
    parts: Iterator[Chunk], weights: Numbers, labelled: bool, half_range: float, lags: tuple[int, int] | None
) -> Judged:
    """Statistics and roles of all units, from all groups (the first row of the weights) and from samples of them."""
    every: dict[str, list[Numbers]] = {name: [np.empty((len(weights), 0))] for name in STATISTICS}
    for chunk in (piece for part in parts for piece in part.pieces(weights.shape[1])):
        sums = Sums.of(chunk, weights.shape[1])
        some = [statistics(sums.drawn(weights[i : i + DRAWN]), labelled) for i in range(0, len(weights), DRAWN)]
        for name, found in every.items():
            found.append(np.concatenate([part[name] for part in some]))
    joined = {name: np.concatenate(found, axis=1) for name, found in every.items()}
    holds = holding(joined, half_range, lags)
    holds[:, np.isnan(joined["spread"])] = False
    role = first_role(holds)
    return Judged(np.stack([found[0] for found in joined.values()]), holds[:, 0], role[0], role[1:])


def _checked(
    recording: xr.Dataset, labels: str | xr.DataArray | None, lags: tuple[int, int] | None, samples: int
) -> tuple[str, Label | None]:
    memory = memory_signal(recording)
    if not memory:
        raise ValueError(
            f"roles needs a memory over {SIGNAL_DIMS}, a signal with the role memory; the recording has the signals "
            f"{signal_names(recording)}. Record the cell's state too."
        )
    if lags is not None and not (len(lags) == 2 and 0 < lags[0] <= lags[1]):
        raise ValueError(f"lags must be a short and a long lag in steps, as (1, 9); {lags!r} came.")
    if samples < 1:
        raise ValueError(f"samples must be at least 1; {samples!r} came.")
    label = None if labels is None else read_label(recording, labels)
    if label is not None and not label.classes:
        raise ValueError(
            f"The label of roles must have classes; {label.name!r} is numeric. Cut it into classes, or ask selectivity."
        )
    return memory, label


def _groups(recording: xr.Dataset, lengths: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Group of every (sequence, time), -1 in padding, and how many there are: sequences, or stretches of a few."""
    order = np.argsort(recording["sequence"].to_numpy(), kind="stable")
    many = len(order) >= GROUPS // 2
    found = np.full((len(lengths), recording.sizes["time"]), -1, dtype=np.int64)
    first = 0
    for rank, sequence in enumerate(order):
        length = int(lengths[sequence])
        pieces = 1 if many else int(np.clip(length // STRETCH, 1, max(1, GROUPS // max(1, len(order)))))
        if many:
            found[sequence, :length] = rank % GROUPS
            continue
        found[sequence, :length] = first + np.arange(length) * pieces // max(1, length)
        first += pieces
    return found, max(1, min(GROUPS, len(order)) if many else first)


def _weights(groups: int, samples: int, seed: int) -> Numbers:
    """How often each of `samples` bootstrap samples has each group."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(groups, np.full(groups, 1 / groups), size=samples).astype(np.float64)


def _result(recording: xr.Dataset, judged: list[Judged], special: Numbers) -> xr.Dataset:
    place = RESULT_DIMS[:2]
    sizes = tuple(recording.sizes[dim] for dim in place)

    def placed(values: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """One array per layer and direction as (layer, direction, ...)."""
        return np.stack(values).reshape(*sizes, *values[0].shape)

    role, again = placed([one.role for one in judged]), placed([one.again for one in judged])
    coords: dict[str, object] = {dim: recording[dim].variable for dim in RESULT_DIMS}
    coords |= {
        "role": np.array(ROLES, dtype=object),
        "statistic": np.array(list(STATISTICS), dtype=object),
        "statistic_text": ("statistic", np.array(list(STATISTICS.values()), dtype=object)),
    }
    sure = {"long_name": "share of samples with the same role", "units": "1"}
    beyond = {"long_name": "variance of log time scales over chance", "units": "1"}
    data: dict[str, object] = {
        "unit_role": (RESULT_DIMS, _words(role), {"long_name": "role of the unit"}),
        "confidence": (RESULT_DIMS, _sure(role, again), sure),
        "holds": ((*place, "role", "unit"), placed([one.holds for one in judged]), {"long_name": "predicate holds"}),
        "evidence": (
            (*place, "statistic", "unit"),
            placed([one.evidence for one in judged]),
            {"long_name": "evidence"},
        ),
        "specialisation": (place, special[:, 0].reshape(sizes), beyond),
        "specialisation_p": (place, special[:, 1].reshape(sizes), {"long_name": "share of shuffles with as much"}),
    }
    if "block" in recording.coords:
        block = recording["block"].to_numpy()
        names = np.unique(block)
        first, firsts = (_of_blocks(values, block, names) for values in (role, again))
        coords |= {"block": recording["block"].variable, "memory_block": names}
        data["block_role"] = ((*place, "memory_block"), _words(first), {"long_name": "role of the block"})
        data["block_confidence"] = ((*place, "memory_block"), _sure(first, firsts), sure)
    result = xr.Dataset(data, coords).transpose("role", "statistic", ...)
    result.attrs = {key: recording.attrs[key] for key in KEPT_ATTRS if key in recording.attrs}
    thresholds = {"dead": DEAD, "stuck": STUCK, "sign_auc": SIGN_AUC, "plateau": PLATEAU, "line_r2": LINE}
    return result.assign_attrs({"measure": "roles"} | {f"threshold_{key}": value for key, value in thresholds.items()})


def _words(places: npt.NDArray[np.int64]) -> npt.NDArray[np.object_]:
    return np.array([*ROLES, NO_ROLE], dtype=object)[places]


def _sure(role: npt.NDArray[np.int64], again: npt.NDArray[np.int64]) -> Numbers:
    """Share of samples (layer, direction, sample, unit) that give the same role (layer, direction, unit)."""
    return np.asarray((again == role[:, :, None]).mean(axis=2))


def _of_blocks(
    places: npt.NDArray[np.int64], block: npt.NDArray[np.int64], names: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The first role that any unit of each block has, over the last axis."""
    return np.stack([places[..., block == name].min(axis=-1) for name in names], axis=-1)
