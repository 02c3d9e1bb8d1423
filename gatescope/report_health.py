"""What must be known before a recording is believed: a line each, with a mark that says good, look or bad."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import xarray as xr

from .report_code import Refused, Space
from .signals import GATE_ROLES

GOOD, LOOK, BAD = "good", "look", "bad"
NO_DATA = "no data"  # the verdict of a measure that had nothing to go by


class Check(NamedTuple):
    """One thing looked at: its name, how it stands, and what was seen."""

    name: str
    state: str
    said: str


def health(recording: xr.Dataset, space: Space) -> Iterator[Check]:
    """All checks of one recording; `space` holds the results of measures that were had, by name."""
    yield certificate(recording)
    yield mode(recording)
    yield finite(recording)
    yield padding(recording)
    yield from (check for check in (stride(recording),) if check)
    for name, look in {"saturation": stuck, "drift": running_away, "flow": gradients}.items():
        if name in space and not isinstance(space[name], Refused):
            yield look(space[name])


def certificate(recording: xr.Dataset) -> Check:
    parity, tolerance = float(recording.attrs["parity"]), float(recording.attrs["tolerance"])
    within = parity <= tolerance
    said = f"rebuilt gates give the model's own states back to {parity:.1e} of the largest; {tolerance:g} is allowed"
    return Check("certificate", GOOD if within else BAD, said if within else f"NOT within its tolerance: {said}")


def mode(recording: xr.Dataset) -> Check:
    training, dropout = int(recording.attrs.get("training", 0)), float(recording.attrs.get("dropout", 0.0))
    if not training:
        return Check("mode", GOOD, "recorded in evaluation mode")
    if not dropout:
        return Check("mode", GOOD, "recorded in training mode, without dropout between layers")
    said = f"recorded in training mode: dropout {dropout:g} acted, so upper layers show one random draw"
    return Check("mode", BAD, f"{said}; call model.eval() and record again")


def finite(recording: xr.Dataset) -> Check:
    said = str(recording.attrs.get("nonfinite", ""))
    if said:
        return Check("finite values", BAD, f"not all: {said}")
    infinite = [str(name) for name, v in recording.data_vars.items() if "role" in v.attrs and np.isinf(v).any()]
    if infinite:
        return Check("finite values", BAD, f"infinite values in {', '.join(infinite)}")
    return Check("finite values", GOOD, "every value of every real step is a number")


def padding(recording: xr.Dataset) -> Check:
    lengths, steps = recording["length"].to_numpy(), recording.sizes["time"]
    real, every = int(np.minimum(lengths, steps).sum()), int(lengths.size * steps)
    empty = int((lengths == 0).sum())
    said = f"{1 - real / max(1, every):.0%} of the array; it is left out of every number and picture"
    if empty:
        return Check("padding", LOOK, f"{said}; {empty:,} sequences have no step at all")
    return Check("padding", GOOD, said if real < every else "none: all sequences are equally long")


def stride(recording: xr.Dataset) -> Check | None:
    every = int(recording.attrs.get("stride", 1))
    said = f"only every {every}th step was recorded; measures that follow steps are not had"
    return Check("stride", LOOK, said) if every > 1 else None


def stuck(saturation: xr.Dataset) -> Check:
    gates = [role in GATE_ROLES for role in saturation["role"].to_numpy()]
    verdicts = saturation["verdict"].isel(signal=np.flatnonzero(gates)).to_numpy()
    if not verdicts.size:
        return Check("stuck gates", GOOD, "none: the cell has no gates")
    if (verdicts == NO_DATA).all():
        return Check("stuck gates", LOOK, "cannot be told: no gate has a finite value")
    shares = {word: float((verdicts == word).mean()) for word in ("stuck open", "stuck shut", "dead")}
    said = ", ".join(f"{share:.0%} {word}" for word, share in shares.items())
    return Check("stuck gates", LOOK if max(shares.values()) >= 0.1 else GOOD, f"of all gates {said}")


def running_away(drift: xr.Dataset) -> Check:
    verdicts = drift["verdict"].to_numpy()
    if verdicts.size and (verdicts == NO_DATA).all():
        return Check("drift", LOOK, "cannot be told: no memory has enough finite steps late in a sequence")
    growing = int((verdicts == "growing").sum())
    said = f"{growing:,} of {verdicts.size:,} memories still grow late in the sequences"
    return Check("drift", GOOD if not growing else BAD if growing >= 0.1 * verdicts.size else LOOK, said)


def gradients(flow: xr.Dataset) -> Check:
    words, counts = np.unique(flow["verdict"].to_numpy().astype(str), return_counts=True)
    of = flow["verdict"].size
    said = ", ".join(f"{word} in {count} of {of}" for word, count in zip(words.tolist(), counts.tolist(), strict=True))
    state = BAD if "exploding" in words else LOOK if {"vanishing", NO_DATA} & set(words) else GOOD
    return Check("gradients", state, f"{said} layers and directions")
