"""Where an intervention acts: a signal's layers, directions, units, steps and rows, chosen before anything runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..cells import AbstractCell
from ..signals import DIRECTIONS
from .find import choose
from .observe import observe

Index = int | Sequence[int] | slice | None


class Chosen(NamedTuple):
    """Numbers that were asked for: all of them, a list in its order, or a slice whose end may be open."""

    name: str
    wanted: tuple[int, ...] | slice | None

    @classmethod
    def of(cls, name: str, index: Any) -> "Chosen":
        """Read an index; one sentence where it is none."""
        if index is None:
            return cls(name, None)
        if isinstance(index, slice):
            bounds = [bound for bound in (index.start, index.stop, index.step) if bound is not None]
            if not all(_is_whole(bound) and bound >= 0 for bound in bounds) or index.step == 0:
                raise ValueError(
                    f"{name} must be a slice of whole numbers counted from 0; {index} came. Sequences end at different "
                    "steps: name the first and the last by number."
                )
            if index.stop is not None and index.stop <= (index.start or 0):
                raise ValueError(f"{name} must hold something; {index} came. Let it stop after it starts.")
            return cls(name, slice(index.start or 0, index.stop, index.step or 1))
        numbers = [index] if _is_whole(index) else _listed(index)
        if numbers is None or not numbers or any(not _is_whole(number) for number in numbers):
            raise TypeError(
                f"{name} must be a whole number, a list of them or a slice; {index!r} came. Leave it out for all, and "
                "give the numbers where a mask is true, numpy.flatnonzero(mask)."
            )
        numbers = [int(number) for number in numbers]
        if min(numbers) < 0 or len(set(numbers)) < len(numbers):
            what = "counted from 0" if min(numbers) < 0 else "named once each"
            raise ValueError(f"{name} must be {what}; {', '.join(map(str, numbers))} came.")
        return cls(name, tuple(numbers))

    def holds(self, number: int) -> bool:
        """Whether a number is among those asked for."""
        return self.place(number) is not None

    def place(self, number: int) -> int | None:
        """Where a number stands among those asked for."""
        if self.wanted is None:
            return number
        if isinstance(self.wanted, slice):
            first, stop, by = self.wanted.start, self.wanted.stop, self.wanted.step
            inside = number >= first and (stop is None or number < stop) and (number - first) % by == 0
            return (number - first) // by if inside else None
        return self.wanted.index(number) if number in self.wanted else None

    def within(self, count: int) -> list[int]:
        """Those that are below `count`."""
        if self.wanted is None:
            return list(range(count))
        if isinstance(self.wanted, slice):
            return list(range(count))[self.wanted]
        return [number for number in self.wanted if number < count]

    @property
    def size(self) -> int | None:
        """How many were asked for; `None` where that depends on what comes."""
        if self.wanted is None:
            return None
        if isinstance(self.wanted, slice):
            first, stop, by = self.wanted.start, self.wanted.stop, self.wanted.step
            return None if stop is None else len(range(first, stop, by))
        return len(self.wanted)

    def unmet(self, seen: Iterable[int]) -> list[int]:
        """Numbers asked for one by one that never came; for a slice its first, where none of it came."""
        seen = set(seen)
        if self.wanted is None:
            return []
        if isinstance(self.wanted, slice):
            return [] if any(self.holds(number) for number in seen) else [self.wanted.start]
        return [number for number in self.wanted if number not in seen]


class Site(NamedTuple):
    """A signal of one module and what is chosen of it."""

    path: str
    signal: str
    layers: tuple[int, ...]
    directions: tuple[str, ...]
    units: tuple[int, ...]
    width: int  # of the signal
    time: Chosen
    sequence: Chosen


def sites(
    model: nn.Module,
    signal: str,
    *,
    module: str | Sequence[str] | None,
    layer: Index,
    direction: str | Sequence[str] | None,
    unit: Index,
    block: Index,
    time: Index,
    sequence: Index,
) -> list[Site]:
    """The sites that are meant, one for each module; a `ValueError` names what exists where one does not."""
    steps, rows = Chosen.of("time", time), Chosen.of("sequence", sequence)
    found = []
    for path, part in modules_with(model, signal, module).items():
        observed = observe(path, part)
        kind = observed.kind
        width = widths(kind)[signal]
        depth = getattr(observed, "depth", 1)
        ways = DIRECTIONS[: 1 + observed.bidirectional]
        layers = tuple(existing(Chosen.of("layer", layer), depth, f"layers of {path!r}"))
        units = tuple(chosen_units(kind, width, path, unit, block))
        found.append(Site(path, signal, layers, chosen_directions(direction, ways, path), units, width, steps, rows))
    return found


def modules_with(model: nn.Module, signal: str, module: str | Sequence[str] | None) -> dict[str, nn.Module]:
    """The modules named, all of which must have the signal; the only one that has it, where none is named."""
    if not isinstance(signal, str):
        raise TypeError(f"signal must be the name of a signal; {type(signal).__name__} came.")
    candidates = choose(model, module)
    offered = {path: list(widths(observe(path, part).kind)) for path, part in candidates.items()}
    having = [path for path in candidates if signal in offered[path]]
    missing = [path for path in candidates if path not in having]
    if missing and (module is not None or not having):
        raise ValueError(
            f"signal must be one that {missing[0]!r} computes; {signal!r} came. "
            f"Choose from: {', '.join(offered[missing[0]])}."
        )
    if module is None and len(having) > 1:
        raise ValueError(
            f"module must be named where several compute {signal!r}; none came. Choose from: {', '.join(having)}."
        )
    return {path: candidates[path] for path in having}


def widths(cell: AbstractCell) -> dict[str, int]:
    """How many units each named value of a cell has, in the order it computes them."""
    found: dict[str, int] = {}

    def look(name: str, value: Tensor) -> Tensor:
        found[name] = value.shape[-1]
        return value

    like = next(cell.parameters(), torch.zeros(()))
    with torch.no_grad():
        cell.forward(like.new_zeros(cell.input_size), cell.zero_state(like), look)
    return found


def existing(chosen: Chosen, count: int, what: str) -> list[int]:
    """The numbers chosen, all of which must be below `count`."""
    found = chosen.within(count)
    beyond = [n for n in chosen.wanted if n >= count] if isinstance(chosen.wanted, tuple) else []
    if beyond or not found:
        came = ", ".join(map(str, beyond)) or str(chosen.wanted)
        raise ValueError(f"{chosen.name} must be among the {what}, 0 to {count - 1}; {came} came.")
    return found


def chosen_units(cell: AbstractCell, width: int, path: str, unit: Index, block: Index) -> list[int]:
    """The units by their own numbers or by those of their memory blocks."""
    if block is None:
        return existing(Chosen.of("unit", unit), width, f"units of {path!r}")
    if unit is not None:
        raise ValueError(f"either unit or block must be given; unit={unit} and block={block} came. Leave one out.")
    blocks = cell.unit_blocks()
    if blocks is None:
        raise ValueError(
            f"block needs units that share gates; those of {path!r}, a {type(cell).__name__}, do not. Choose by unit."
        )
    wanted = existing(Chosen.of("block", block), max(blocks) + 1, f"blocks of {path!r}")
    return [number for number, of in enumerate(blocks) if of in wanted]


def chosen_directions(direction: str | Sequence[str] | None, ways: Sequence[str], path: str) -> tuple[str, ...]:
    wanted = list(direction) if isinstance(direction, Iterable) and not isinstance(direction, str) else [direction]
    wanted = list(ways) if direction is None else wanted
    strange = [way for way in wanted if way not in ways]
    if strange or not wanted:
        came = ", ".join(map(repr, strange)) or "an empty list"
        raise ValueError(f"direction must be among those of {path!r}, {', '.join(ways)}; {came} came.")
    return tuple(way for way in ways if way in wanted)


def sites_that_exist(model: nn.Module, seen: Mapping[str, tuple[int, int]]) -> str:
    """What may be intervened on, for the end of an error: modules, signals, and the steps and rows that ran."""
    found = []
    for path, part in choose(model, None).items():
        observed = observe(path, part)
        depth, ways = getattr(observed, "depth", 1), DIRECTIONS[: 1 + observed.bidirectional]
        ran = f"{seen[path][0]} steps of {seen[path][1]} sequences ran" if path in seen else "not watched"
        found.append(f"{path!r}: {', '.join(widths(observed.kind))}; layers {depth}, {' and '.join(ways)}; {ran}")
    return ". ".join(found)


def _is_whole(number: Any) -> bool:
    return hasattr(number, "__index__") and not isinstance(number, bool) and getattr(number, "ndim", 0) == 0


def _listed(index: Any) -> list[Any] | None:
    if isinstance(index, str) or not hasattr(index, "__iter__"):
        return None
    return list(index.tolist() if hasattr(index, "tolist") else index)
