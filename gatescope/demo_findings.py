"""What the demo finds: certificate, stuck and switching gates, and at which characters forget gates shut.

Everything is a function of the recording; no torch.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.stats import rankdata

GATE = "forget_gate"
SPACE = " "
APART = 0.95  # a unit tells a character apart above this AUC
AT_LEAST = 20  # occurrences below which a character's AUC says little
SHUT = 0.2  # where a plain count takes a gate for shut
BEST = 8  # units listed

UNIT_DIMS = ("layer", "direction", "unit")


class Best(NamedTuple):
    """A unit chosen on one half of the texts, and what its gate does on the other half."""

    layer: int
    direction: str
    unit: int
    chosen: float
    held_out: float
    other: str
    other_held_out: float


class Findings(NamedTuple):
    """What the demo says, as numbers.

    `auc` has dims (half, character, layer, direction, unit), with `half` in all / even / odd; `shut` counts, over
    (character, layer, direction), the units whose gate is below SHUT at every occurrence. `best` are the units that
    tell spaces best in the whole model, `there` those of the layer and direction with the most such units.
    """

    auc: xr.DataArray
    shut: xr.DataArray
    best: list[Best]
    there: list[Best]


def findings(recording: xr.Dataset, *, at_least: int = AT_LEAST) -> Findings:
    """Which units' forget gates shut at spaces, and whether at any other character as many do.

    Units are chosen on the texts with even numbers and judged on those with odd numbers, so that the best of many is
    not flattered by having been chosen.
    """
    common = common_characters(recording, at_least)
    halves = {"all": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}
    parts = [shut_auc(recording.isel(sequence=half), common) for half in halves.values()]
    auc = xr.concat(parts, xr.Variable("half", np.array([*halves], dtype=object)))
    layer, direction = np.unravel_index(
        int(apart(auc).sel(character=SPACE).to_numpy().argmax()), (auc.sizes["layer"], auc.sizes["direction"])
    )
    there = best_units(auc.isel(layer=[layer], direction=[direction]))
    return Findings(auc, shut_at_every(recording, common), best_units(auc), there)


def common_characters(recording: xr.Dataset, at_least: int) -> list[str]:
    """Characters that occur at least so often, the most frequent first; the space must be among them."""
    found, counts = np.unique(steps_of(recording)[1].astype(str), return_counts=True)
    order = sorted(zip(-counts, found, strict=True))
    common = [str(character) for count, character in order if -count >= at_least]
    if SPACE not in common or len(common) < 2:
        raise ValueError(
            f"the texts must hold at least {at_least} spaces and as many of another character; {common} came so often. "
            "Give longer texts."
        )
    return common


def steps_of(recording: xr.Dataset) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.object_]]:
    """The gate (layer, direction, step, unit) and the character (step) of all texts on end, without padding."""
    real = recording["time"].to_numpy() < recording["length"].to_numpy()[:, None]
    return recording[GATE].to_numpy()[:, :, real], recording["character"].to_numpy()[real]


def shut_auc(recording: xr.Dataset, characters: list[str]) -> xr.DataArray:
    """Probability that a unit's forget gate is lower at a character than at any other step, ties counting half.

    1 means shut at this character more than anywhere else, 0.5 that the gate cannot tell, 0 open at it more than
    anywhere else. From ranks (Mann and Whitney 1947, doi 10.1214/aoms/1177730491): with n steps at the character and m
    others, `(sum of the ranks of -gate at the character - n (n + 1) / 2) / (n m)`.

    Returns
    -------
    xr.DataArray
        Over (character, layer, direction, unit); coordinate `occurrences(character)`; NaN where a character is absent.
    """
    gate, read = steps_of(recording)
    ranks = rankdata(-gate, axis=2)
    values = np.full((len(characters), *gate.shape[:2], gate.shape[3]), np.nan)
    counts = np.array([(read == character).sum() for character in characters])
    for place, (character, count) in enumerate(zip(characters, counts.tolist(), strict=True)):
        others = len(read) - count
        if count and others:
            total = ranks[:, :, read == character].sum(axis=2)
            values[place] = (total - count * (count + 1) / 2) / (count * others)
    coords = {dim: recording[dim].to_numpy() for dim in UNIT_DIMS}
    return xr.DataArray(
        values,
        dims=("character", *UNIT_DIMS),
        coords=coords | {"character": np.array(characters, dtype=object), "occurrences": ("character", counts)},
        name="auc",
    )


def shut_at_every(recording: xr.Dataset, characters: list[str]) -> xr.DataArray:
    """Units whose gate is below SHUT at every occurrence of a character: the plain count, over (character, ...)."""
    gate, read = steps_of(recording)
    counts = np.stack([(gate[:, :, read == character] < SHUT).all(axis=2).sum(axis=2) for character in characters])
    coords = {"character": np.array(characters, dtype=object)}
    return xr.DataArray(
        counts,
        dims=("character", "layer", "direction"),
        coords=coords | {dim: recording[dim].to_numpy() for dim in ("layer", "direction")},
        name="shut",
    )


def best_units(auc: xr.DataArray, *, count: int = BEST) -> list[Best]:
    """The units that tell spaces best on the even texts, with their AUC on the odd ones beside that of any other."""
    chosen = auc.sel(half="even", character=SPACE).to_numpy()
    held_out = auc.sel(half="odd")
    others = held_out.drop_sel(character=SPACE)
    best = []
    for place in np.argsort(-chosen, axis=None, kind="stable")[:count]:
        layer, direction, unit = (int(index) for index in np.unravel_index(place, chosen.shape))
        at = {"layer": layer, "direction": direction, "unit": unit}
        rival = others.isel(at)
        top = int(np.nanargmax(rival.to_numpy()))
        best.append(
            Best(
                layer=int(auc["layer"][layer]),
                direction=str(auc["direction"][direction].item()),
                unit=int(auc["unit"][unit]),
                chosen=float(chosen[layer, direction, unit]),
                held_out=float(held_out.sel(character=SPACE).isel(at)),
                other=str(rival["character"][top].item()),
                other_held_out=float(rival[top]),
            )
        )
    return best


def apart(auc: xr.DataArray, half: str = "all", *, opening: bool = False) -> xr.DataArray:
    """Units per (character, layer, direction) whose gate shuts (or opens) at the character with an AUC above APART."""
    values = auc.sel(half=half)
    return ((values < 1 - APART) if opening else (values > APART)).sum("unit")


def apart_twice(auc: xr.DataArray) -> xr.DataArray:
    """Those of `apart` that pass on the even texts and again on the odd ones."""
    return ((auc.sel(half="even") > APART) & (auc.sel(half="odd") > APART)).sum("unit")


def runner_up(counts: xr.DataArray) -> tuple[str, int]:
    """The character other than the space with the highest count, and that count; of equals the most frequent one."""
    others = counts.drop_sel(character=SPACE)
    top = int(others.argmax("character"))
    return str(others["character"][top].item()), int(others[top])


def verdict_counts(saturation: xr.Dataset) -> xr.DataArray:
    """Units by (signal, layer, direction, verdict), gates only."""
    gates = saturation["verdict"].isel(signal=np.flatnonzero((saturation["verdict"] != "").any(UNIT_DIMS)))
    verdicts = ["stuck open", "stuck shut", "switching", "graded", "dead"]
    counts = [(gates == verdict).sum("unit") for verdict in verdicts]
    return xr.concat(counts, xr.Variable("verdict", np.array(verdicts, dtype=object)))
