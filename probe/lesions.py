"""Which lesions are asked for, and what holds them in a run: several at once, one in each copy of the batch."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import xarray as xr
from torch import Tensor

from ..cells import AbstractCell
from ..signals import DIRECTIONS, GATE_ROLES

Over = Literal["unit", "block", "gate", "unit_gate"]
To = Literal["zero", "one", "mean", "resample"]
FOREVER = np.iinfo(np.int64).max
Array = npt.NDArray[Any]


class Lesion(NamedTuple):
    """One thing taken out: some units' values of some signals, from one step to before another."""

    layer: int
    direction: str
    signals: tuple[str, ...]
    units: tuple[int, ...]
    start: int = 0
    stop: int = FOREVER


class Site(NamedTuple):
    """What a module has to take out; all its cells are alike."""

    cell: AbstractCell
    layers: int
    directions: int

    @property
    def memory(self) -> tuple[str, ...]:
        """What is held of a unit that is taken out: its memory and, where it has the same width, what it shows."""
        roles = ("memory",) if self.cell.proj_size else ("memory", "output")
        return tuple(signal.name for signal in self.cell.signals if signal.role in roles)

    @property
    def gates(self) -> tuple[str, ...]:
        return tuple(signal.name for signal in self.cell.signals if signal.role in GATE_ROLES)


class Held:
    """A tap that holds lesions: rows `s * copies + c` of every value are sequence s under lesion c (None: intact).

    It counts what it hears: `rows`, `calls` and `steps` of the run.
    """

    def __init__(self, lesions: Sequence[Lesion | None], fill: "Fill") -> None:
        self.lesions, self.fill, self.copies = lesions, fill, len(lesions)
        self.rows, self.calls, self.steps = 0, 0, 0
        self.ends = np.array([(one.start, one.stop) if one else (0, 0) for one in lesions], dtype=np.int64)
        self.timed = bool(((self.ends != (0, FOREVER)).any(axis=1) & (self.ends != 0).any(axis=1)).any())
        self.sites = {(s, one.layer, one.direction) for one in lesions if one for s in one.signals}
        self.masks: dict[tuple[str, int, str], Tensor] = {}

    def __call__(self, name: str, value: Tensor, /, *, layer: int, direction: str, time: int | Tensor) -> Tensor:
        now: int | Array = time if isinstance(time, int) else time.cpu().numpy().reshape(-1, self.copies)
        last = now if isinstance(now, int) else int(now.max())
        self.rows, self.calls, self.steps = value.shape[0], self.calls + 1, max(self.steps, last + 1)
        at = (name, layer, direction)
        if at not in self.sites:
            return value
        if at not in self.masks:
            self.masks[at] = self.mask(at, value)
        mask = self.masks[at]
        if self.timed:
            live = (self.ends[:, 0] <= now) & (now < self.ends[:, 1])
            if not live.any():
                return value
            mask = mask & torch.from_numpy(live).to(mask.device)[..., None]
        apart: Tensor = value.unflatten(0, (-1, self.copies))  # (sequence, copy, unit)
        if self.fill.constant is not None:
            changed = apart.masked_fill(mask, self.fill.constant)
        else:
            changed = torch.where(mask, self.fill.values(at, apart, now), apart)
        return changed.flatten(0, 1)

    def mask(self, at: tuple[str, int, str], value: Tensor) -> Tensor:
        """Which units each lesion holds, (copy, unit)."""
        found = torch.zeros(self.copies, value.shape[-1], dtype=torch.bool)
        for copy, lesion in enumerate(self.lesions):
            if lesion is not None and at[0] in lesion.signals and at[1:] == (lesion.layer, lesion.direction):
                found[copy, list(lesion.units)] = True
        return found.to(value.device)


class Fill:
    """What stands where something was taken out: a number, the mean of a recording, or another sequence's values."""

    def __init__(self, to: To, recording: xr.Dataset | None, own: bool, seed: int) -> None:
        self.constant = {"zero": 0.0, "one": 1.0}.get(to)
        self.to, self.recording, self.own, self.seed = to, recording, own, seed
        self.draws: Sequence[int] = ()  # of each copy: which draw of donors it has
        self.kept: dict[tuple[str, int, str], Tensor] = {}
        self.donors: dict[tuple[int, int], tuple[Array, Array]] = {}

    def values(self, at: tuple[str, int, str], apart: Tensor, time: int | Array) -> Tensor:
        if at not in self.kept:
            self.kept[at] = self.read(at, apart)
        kept = self.kept[at]
        if self.to == "mean":
            return kept
        length = self.lengths()
        drawn = [self.donor(apart.shape[0], draw) for draw in self.draws]
        donor = np.stack([one for one, _ in drawn], axis=1)  # (sequence, copy)
        turn = np.stack([one for _, one in drawn], axis=1)
        when = (time + turn) % np.maximum(1, length[donor])
        return kept[torch.from_numpy(donor), torch.from_numpy(when)]

    def read(self, at: tuple[str, int, str], like: Tensor) -> Tensor:
        """Of one signal at one place: its mean (unit,), or all that was recorded (sequence, time, unit)."""
        if self.recording is None:
            raise ValueError(f"to={self.to!r} must come with a recording; none came. Give recording=.")
        place = {"layer": at[1], "direction": at[2]}
        values = self.recording[at[0]].sel(place).transpose("sequence", "time", ...).to_numpy()
        if self.to == "mean":
            values = np.asarray(np.nanmean(values, axis=(0, 1), dtype=np.float64))
        return torch.from_numpy(np.ascontiguousarray(values)).to(like)

    def lengths(self) -> Array:
        return np.ones(1, np.int64) if self.recording is None else np.asarray(self.recording["length"].to_numpy())

    def donor(self, rows: int, draw: int) -> tuple[Array, Array]:
        """For each sequence: whose values it gets in this draw, and turned by how many steps."""
        if (rows, draw) not in self.donors:
            self.donors[rows, draw] = donors(rows, self.lengths(), self.own, np.random.default_rng([self.seed, draw]))
        return self.donors[rows, draw]


def donors(rows: int, lengths: Array, own: bool, rng: np.random.Generator) -> tuple[Array, Array]:
    """Donors of `rows` sequences: of the batch itself one after another on a random ring, of another drawn freely.

    The only sequence there is gives its own values turned in time.

    >>> donor, turn = donors(3, np.array([5, 5, 5]), True, np.random.default_rng(0))
    >>> sorted(donor.tolist()), (donor == [0, 1, 2]).any().item(), turn.tolist()
    ([0, 1, 2], False, [0, 0, 0])
    """
    count = len(lengths)
    if count == 1:
        return np.zeros(rows, np.int64), np.full(rows, rng.integers(1, max(2, lengths[0])))
    if own and count == rows:
        ring, donor = rng.permutation(rows), np.empty(rows, np.int64)
        donor[ring] = np.roll(ring, -1)
        return donor, np.zeros(rows, np.int64)
    return rng.integers(0, count, rows), np.zeros(rows, np.int64)


class Wanted(NamedTuple):
    """Lesions in the order of the dims of their result, without time."""

    lesions: list[Lesion]
    dims: tuple[str, ...]
    coords: dict[str, Any]


def wanted(site: Site, over: str, chosen: Mapping[str, Any]) -> Wanted:
    """All lesions of a kind, or those chosen by layer, direction, unit, block or gate."""
    cell = site.cell
    blocks = cell.unit_blocks()
    check_kind(site, over, blocks)
    check_chosen(over, chosen)
    units = list(range(cell.hidden_size))
    names = sorted(set(blocks)) if blocks else []
    layer = choice("layer", chosen.get("layer"), list(range(site.layers)))
    direction = choice("direction", chosen.get("direction"), list(DIRECTIONS[: site.directions]))
    coords: dict[str, Any] = {"layer": np.array(layer), "direction": np.array(direction, dtype=object)}
    inner: list[tuple[tuple[str, ...], tuple[int, ...]]]
    if over == "block":
        block = choice("block", chosen.get("block"), names)
        coords["memory_block"] = np.array(block)
        inner = [(site.memory, tuple(u for u in units if blocks and blocks[u] == name)) for name in block]
    elif over == "unit":
        unit = choice("unit", chosen.get("unit"), units)
        inner = [(site.memory, (u,)) for u in unit]
    else:
        gates = choice("gate", chosen.get("gate"), list(site.gates))
        coords["gate"] = np.array(gates, dtype=object)
        unit = choice("unit", chosen.get("unit"), units) if over == "unit_gate" else []
        parts: list[tuple[int, ...]] = [(u,) for u in unit] if unit else [tuple(units)]
        inner = [((gate,), part) for gate in gates for part in parts]
    if over in ("unit", "unit_gate"):
        coords["unit"] = np.array(unit)
        if blocks:
            coords["block"] = ("unit", np.array([blocks[u] for u in unit]))
    lesions = [Lesion(at, which, names_, part) for at in layer for which in direction for names_, part in inner]
    return Wanted(lesions, tuple(name for name in coords if name != "block"), coords)


def check_kind(site: Site, over: str, blocks: tuple[int, ...] | None) -> None:
    kinds = ("unit", "block", "gate", "unit_gate")
    name = type(site.cell).__name__
    if over not in kinds:
        raise ValueError(f"over must be one of {', '.join(map(repr, kinds))}; {over!r} came. Take 'unit'.")
    if over == "block" and blocks is None:
        raise ValueError(f"over='block' needs a cell whose units share gates in blocks; {name} has none. Take 'unit'.")
    if "gate" in over and not site.gates:
        raise ValueError(f"over={over!r} needs a cell with gates; {name} has none. Take 'unit'.")
    if "gate" not in over and not site.memory:
        raise ValueError(f"over={over!r} needs a cell with a memory; {name} has none.")


def check_chosen(over: str, chosen: Mapping[str, Any]) -> None:
    """Raise where something is chosen that is not taken out."""
    used = {"unit": ("unit",), "block": ("block",), "gate": ("gate",), "unit_gate": ("unit", "gate")}[over]
    for name in ("unit", "block", "gate"):
        if chosen.get(name) is not None and name not in used:
            raise ValueError(f"{name} must be left out with over={over!r}; {chosen[name]!r} came. Take over={name!r}.")


def choice(what: str, asked: Any, there: list[Any]) -> list[Any]:
    """Those asked for, in their order, or all; each must be there."""
    if asked is None:
        return there
    if isinstance(asked, slice):
        asked = there[asked]
    if hasattr(asked, "tolist"):  # an array or a tensor
        asked = asked.tolist()
    values = list(asked) if isinstance(asked, Iterable) and not isinstance(asked, str) else [asked]
    if any(isinstance(value, (bool, np.bool_)) for value in values):
        raise TypeError(
            f"{what} must be of the module's by name or number, a list of such or a slice; {asked!r} came. Give the "
            "numbers where a mask is true, numpy.flatnonzero(mask)."
        )
    missing = [value for value in values if value not in there]
    if missing or not values:
        known = f"{there[0]} to {there[-1]}" if len(there) > 8 else ", ".join(map(str, there))
        came = ", ".join(map(repr, missing)) or "none"
        raise ValueError(f"{what} must be of the module's: {known}; {came} came. Choose of those.")
    return [there[there.index(value)] for value in dict.fromkeys(values)]


def windows(time: Any, steps: int) -> list[tuple[int, int]]:
    """Stretches of time, as their first step and the one after their last.

    >>> windows(4, 10), windows([slice(0, 3), slice(7, None)], 10)
    ([(0, 4), (4, 8), (8, 10)], [(0, 3), (7, 10)])
    """
    if isinstance(time, (int, np.integer)) and not isinstance(time, bool):
        if not 1 <= time <= steps:
            raise ValueError(f"time must be a width of 1 to {steps} steps, which the run had; {time} came.")
        return [(first, min(first + int(time), steps)) for first in range(0, steps, int(time))]
    parts = list(time) if isinstance(time, (list, tuple)) else [time]
    found = []
    for part in parts:
        if not isinstance(part, slice) or part.step not in (None, 1) or not _whole_ends(part):
            raise TypeError(f"time must be a width in steps, a slice or several; {part!r} came. Take slice(0, 10).")
        start, stop = part.start or 0, steps if part.stop is None else part.stop
        if not 0 <= start < stop <= steps:
            raise ValueError(f"time must lie within the {steps} steps of the run, 0 to {steps}; {part} came.")
        found.append((int(start), int(stop)))
    if not found:
        raise ValueError("time must hold at least one stretch; none came. Leave it out for all steps.")
    return found


def _whole_ends(part: slice) -> bool:
    """Whether a slice begins and ends at whole numbers, where it says so."""
    ends = [end for end in (part.start, part.stop) if end is not None]
    return all(isinstance(end, (int, np.integer)) and not isinstance(end, bool) for end in ends)
