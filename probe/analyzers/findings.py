"""What can be found in a recording, one kind of finding a function: a sentence, how large, and on what grounds."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from ..schema import label_names
from .alignment import alignment
from .drift import drift
from .known import Known
from .predicates import LEAST
from .runs import lengths_of
from .saturation import saturation
from .timescales import timescales
from .triggers import triggers

LEVEL = 0.05  # corrected p
SHARE = 0.1  # of the units of a layer, from which on a share of them is worth a sentence
TELLING = 0.75  # AUC from which on a unit tells a class apart, whatever its p
ALIGNED = 0.5  # F1 from which on resets are said to be at the boundaries
SURE = 0.9  # confidence from which on a role is worth a sentence
SAMPLES = 50  # of the bootstrap behind that confidence


class Finding(NamedTuple):
    """One thing that a reader should know."""

    measure: str  # that found it
    text: str
    effect: float  # 0 to 1, what of stands in `effect_of`
    effect_of: str
    p: float  # corrected; NaN where a threshold decides
    grounds: str
    layer: int = -1
    direction: str = ""
    unit: int = -1


Found = Iterator[Finding]


def left_in_training(known: Known) -> Found:
    attrs = known.recording.attrs
    dropout = float(attrs.get("dropout", 0.0))
    if int(attrs.get("training", 0)) and dropout > 0:
        text = (
            f"The model was recorded in training mode with dropout {dropout:g} between its layers: values above the "
            "first layer are those of one random draw. Call model.eval() and record again."
        )
        yield Finding("recording", text, 1.0, "certain", np.nan, "attributes training and dropout")


def not_finite(known: Known) -> Found:
    said = str(known.recording.attrs.get("nonfinite", ""))
    if said:
        yield Finding("recording", f"Values are not finite: {said}.", 1.0, "certain", np.nan, "attribute nonfinite")


def stuck_gates(known: Known) -> Found:
    result = saturation(known.recording)
    for at in _places(result):
        here = result.isel(layer=at[0], direction=at[1])
        where = _where(here)
        for signal in here["signal"].to_numpy():
            verdicts = here["verdict"].sel(signal=signal).to_numpy()
            for verdict in ("stuck open", "stuck shut"):
                share = float(np.mean(verdicts == verdict))
                if share >= SHARE:
                    text = f"{signal} is {verdict} in {share:.0%} of the units of {where}."
                    yield _in(here, "saturation", text, share, "share of units", "at one end on 95 % of the steps")
        flat = here["squash_saturated"].to_numpy() > 0.5
        if flat.mean() >= SHARE:
            share = float(flat.mean())
            text = f"{result.attrs['memory']} sits on the flat of its squasher most of the time in {share:.0%} of the "
            yield _in(here, "saturation", f"{text}units of {where}.", share, "share of units", "|squash| above 0.95")
        dead = (here["verdict"].to_numpy() == "dead").any(axis=0).mean()
        if dead >= SHARE:
            text = f"{dead:.0%} of the units of {where} are dead: their memory never moves."
            yield _in(here, "saturation", text, float(dead), "share of units", "spread at most 1e-6 of half the range")


def growing_memories(known: Known) -> Found:
    result = drift(known.recording)
    for at in _places(result):
        here = result.isel(layer=at[0], direction=at[1])
        where = _where(here)
        grows = here["verdict"].to_numpy() == "growing"
        if grows.mean() >= SHARE:
            worst = int(np.nanargmax(np.where(grows, here["growth"].to_numpy(), np.nan)))
            text = (
                f"The memory still grows late in the sequences in {grows.mean():.0%} of the units of {where}, most "
                f"in unit {_unit(here, worst)}, by {here['slope'].to_numpy()[worst]:.3g} a step."
            )
            p = float(np.nanmax(here["p_corrected"].to_numpy()[grows]))
            yield _in(here, "drift", text, float(grows.mean()), "share of units", "trend above 0", p, worst)


def time_scales(known: Known) -> Found:
    result = timescales(known.recording, jacobian=False)
    longest = int(lengths_of(known.recording, str(result.attrs["memory"])).max(initial=0))
    for at in _places(result):
        here = result.isel(layer=at[0], direction=at[1])
        where = _where(here)
        scale = here["gate_typical"].to_numpy()
        if np.isnan(scale).all():
            continue
        beyond = float(np.mean(scale > longest))
        if beyond >= SHARE:
            text = f"{beyond:.0%} of the units of {where} keep their memory longer than the longest sequence, "
            yield _in(here, "timescales", f"{text}{longest} steps.", beyond, "share of units", "typical time scale")
        heavy = float(here["heavy_tail"].to_numpy().mean())
        if heavy >= SHARE:
            text = f"{heavy:.0%} of the units of {where} keep for long and then forget at once: "
            yield _in(
                here,
                "timescales",
                f"{text}their mean is not typical.",
                heavy,
                "share of units",
                "5 % of the steps do half of the forgetting",
            )


def resets_at_boundaries(known: Known) -> Found:
    if "boundary" not in known.labels or not known.recording["boundary"].to_numpy().any() or not known.has_events:
        return
    result = alignment(known.events, tolerance=1)
    for at in _places(result):
        here = result.isel(layer=at[0], direction=at[1])
        where = _where(here)
        score, p = here["f1"].to_numpy(), here["p_adjusted"].to_numpy()
        at_them = (np.nan_to_num(score) >= ALIGNED) & (np.nan_to_num(p, nan=1.0) < LEVEL)
        if at_them.any():
            best = int(np.argmax(np.where(at_them, score, -1.0)))
            precision, recall = (float(here[name].to_numpy()[best]) for name in ("precision", "recall"))
            text = (
                f"Unit {_unit(here, best)} of {where} throws its memory away where segments begin: precision "
                f"{precision:.2f}, recall {recall:.2f} within one step"
                + (f"; {at_them.sum()} units do." if at_them.sum() > 1 else ".")
            )
            yield _in(here, "alignment", text, float(score[best]), "F1", "all circular shifts", float(p[best]), best)


def what_sets_resets_off(known: Known) -> Found:
    for name in known.texts if known.has_events else []:
        result = triggers(known.events, name if name in label_names(known.events) else known.recording[name])
        for at in _places(result):
            here = result.isel(layer=at[0], direction=at[1])
            where = _where(here)
            trigger = str(here["layer_trigger"].item())
            if not trigger:
                continue
            lift, p = (float(here[key].sel(label=trigger)) for key in ("layer_lift", "layer_p_adjusted"))
            units = int(here["units"].sel(label=trigger))
            text = (
                f"In {where}, memory is thrown away at {name} {trigger!r} {lift:.1f} times as often as on average, "
                "more than at any other; "
                + ("one unit has it as its trigger." if units == 1 else f"{units} units have it as their trigger.")
            )
            yield _in(
                here, "triggers", text, 1 - 1 / max(1.0, lift), "1 - 1 / lift", "the other label with the most", p
            )


def what_units_tell(known: Known) -> Found:
    for name in known.texts:
        result = known.selectivity(name)
        for at in _places(result):
            here = result.isel(layer=at[0], direction=at[1], lag=0)
            where = _where(here)
            steps = here["steps_of_class"].to_numpy()
            often = np.minimum(steps, steps.sum() - steps) >= LEAST
            area, p = (here[key].transpose("signal", "unit", "class").to_numpy() for key in ("auc", "p_corrected"))
            sure = often & (np.nan_to_num(p, nan=1.0) < LEVEL)
            far = np.where(sure, np.abs(np.nan_to_num(area, nan=0.5) - 0.5), -1.0)
            best = np.unravel_index(int(np.argmax(far)), far.shape)
            if far[best] + 0.5 < TELLING:
                continue
            signal, word = str(here["signal"].to_numpy()[best[0]]), str(here["class"].to_numpy()[best[2]])
            unit, effect = int(best[1]), float(2 * far[best])
            text = f"{signal} of unit {_unit(here, unit)} of {where} tells {name} {word!r} from the others with "
            text += f"AUC {0.5 + far[best]:.2f} ({'higher' if area[best] > 0.5 else 'lower'} there)."
            yield _in(here, "selectivity", text, effect, "2 |AUC - 0.5|", "all circular shifts", float(p[best]), unit)


def parts_played(known: Known) -> Found:
    names: list[str | None] = [*known.texts] or [None]
    results = [known.roles(name, SAMPLES) for name in names]
    for at in _places(results[0]):
        here = [result.isel(layer=at[0], direction=at[1]) for result in results]
        every = [_sure_of(part, "latch") for part in here]
        for name, part, mine in zip(names, here, every, strict=True):
            yield from _said(part, "latch", "latches", mine, f" for {name}" if name else "")
        latches = np.logical_or.reduce(every)
        for role, many in (("counter", "counters"), ("clock", "clocks")):  # no label makes or unmakes these
            yield from _said(here[0], role, many, _sure_of(here[0], role) & ~latches)
        index, p = float(here[0]["specialisation"]), float(here[0]["specialisation_p"])
        if index > 2 and p <= LEVEL:
            text = f"Units of {_where(here[0])} divide time scales between them: they differ {index:.3g} times as much "
            effect = 1 - 1 / index
            yield _in(here[0], "roles", f"{text}as by chance.", effect, "1 - 1 / index", "gates exchanged at random", p)


def _sure_of(here: xr.Dataset, role: str) -> npt.NDArray[np.bool_]:
    return np.asarray((here["unit_role"].to_numpy() == role) & (here["confidence"].to_numpy() >= SURE))


def _said(here: xr.Dataset, one: str, many: str, mine: npt.NDArray[np.bool_], label: str = "") -> Found:
    """Which units of a layer play a part, where any does."""
    units = np.flatnonzero(mine)
    if not units.size:
        return
    names = ", ".join(_unit(here, unit) for unit in units[:5]) + (", ..." if units.size > 5 else "")
    count = f"one {one}{label}, unit" if units.size == 1 else f"{units.size} {many}{label}, units"
    effect = float(here["confidence"].to_numpy()[units].mean())
    text = f"L{_where(here)[1:]} has {count} {names}."
    yield _in(here, "roles", text, effect, "confidence", "stated predicates", unit=int(units[0]))


def gradients(known: Known) -> Found:
    recording = known.recording
    if ("weight_hh" not in recording and "step_jacobian" not in recording) or not recording.sizes["unit"]:
        return
    try:
        result = known.gradients
    except ValueError:  # a cell, subset or stride of which no Jacobian is known
        return
    for at in _places(result):
        here = result.isel(layer=at[0], direction=at[1])
        where = _where(here)
        verdict, slope = str(here["verdict"].item()), float(here["slope"])
        if verdict not in ("vanishing", "exploding"):
            continue
        half = float(here["half_life"])
        text = f"Gradients are {verdict} in {where}: by a factor {10**slope:.3g} a step" + (
            f", half is gone after {half:.3g} steps." if verdict == "vanishing" and np.isfinite(half) else "."
        )
        effect = float(1 - 10 ** -abs(10 * slope)) if np.isfinite(slope) else 1.0
        yield _in(here, "gradient_flow", text, effect, "share changed over 10 steps", "a factor of 100 in 100 steps")


FINDERS: tuple[Callable[[Known], Found], ...] = (
    left_in_training,
    not_finite,
    stuck_gates,
    growing_memories,
    time_scales,
    resets_at_boundaries,
    what_sets_resets_off,
    what_units_tell,
    parts_played,
    gradients,
)


def _places(result: xr.Dataset) -> list[tuple[int, int]]:
    """Layers and directions, where they have units."""
    if not result.sizes.get("unit", 1):
        return []
    return [(i, j) for i in range(result.sizes["layer"]) for j in range(result.sizes["direction"])]


def _where(here: xr.Dataset) -> str:
    return f"layer {here['layer'].item()}, {here['direction'].item()}"


def _unit(here: xr.Dataset, place: int) -> str:
    return str(here["unit"].to_numpy()[place])


def _in(
    here: xr.Dataset,
    measure: str,
    text: str,
    effect: float,
    effect_of: str,
    grounds: str,
    p: float = np.nan,
    unit: int | None = None,
) -> Finding:
    chosen = -1 if unit is None else int(here["unit"].to_numpy()[unit])
    at = (int(here["layer"]), str(here["direction"].item()))
    return Finding(measure, text, min(1.0, effect), effect_of, p, grounds, *at, chosen)
