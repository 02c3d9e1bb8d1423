"""Events as trains: for every sequence, at which of its steps each unit has an event, in the running order."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import xarray as xr

Places = npt.NDArray[np.int64]
Train = npt.NDArray[np.float32]

CARRIED = ("given", "continued")  # starts at which the memory held something that the network itself had put there


@dataclass
class Trains:
    """Where events begin, by layer, direction and sequence.

    Steps count in running order from the first at which an event can begin: a sequence that starts from zero, or from
    a state that somebody imposed, has nothing of its own to lose at its first step, so that step is left out.
    """

    shape: tuple[int, int, int]
    units: int
    backward: tuple[bool, ...]
    length: Places
    skip: Places
    bounds: Places
    unit: Places
    step: Places

    @classmethod
    def of(cls, events: xr.Dataset, kind: str) -> Self:
        """The trains of one kind of event in what `resets` returned, in the layers, units and sequences left of it."""
        which = events["event_kind"].to_numpy() == kind
        for dim in ("layer", "direction", "sequence", "unit"):
            which &= np.isin(events[f"event_{dim}"].to_numpy(), events[dim].to_numpy())
        layer, sequence, unit = (
            places(events[f"event_{dim}"].to_numpy()[which], events[dim].to_numpy())
            for dim in ("layer", "sequence", "unit")
        )
        backward = tuple(name == "backward" for name in events["direction"].to_numpy())
        here = events["event_direction"].to_numpy()[which] == "backward"
        direction = np.where(here, *(backward.index(turn) if turn in backward else 0 for turn in (True, False)))
        length, onset = events["length"].to_numpy(), events["onset"].to_numpy()[which]
        skip = first_steps(events["start"].to_numpy())
        step = np.where(here, length[sequence] - 1 - onset, onset) - skip[sequence]
        shape = (events.sizes["layer"], events.sizes["direction"], events.sizes["sequence"])
        cell = np.ravel_multi_index((layer, direction, sequence), shape) if layer.size else layer
        order = np.argsort(cell, kind="stable")
        bounds = np.searchsorted(cell[order], np.arange(int(np.prod(shape)) + 1))
        steps = np.maximum(length - skip, 0)
        return cls(shape, events.sizes["unit"], backward, steps, skip, bounds, unit[order], step[order])

    def at(self, layer: int, direction: int, sequence: int) -> tuple[Places, Places]:
        """Unit and step of each event of one run."""
        cell = np.ravel_multi_index((layer, direction, sequence), self.shape)
        here = slice(self.bounds[cell], self.bounds[cell + 1])
        return self.unit[here], self.step[here]

    def dense(self, layer: int, direction: int, sequence: int) -> Train:
        """Trains (unit, step) of ones and zeros of one run."""
        train = np.zeros((self.units, int(self.length[sequence])), dtype=np.float32)
        train[self.at(layer, direction, sequence)] = 1
        return train

    def times(self, direction: int, sequence: int) -> Places:
        """The place on the time axis of each step of a run."""
        length, skip = int(self.length[sequence]), int(self.skip[sequence])
        steps = np.arange(length)
        return length - 1 - steps if self.backward[direction] else steps + skip

    def running(self, flags: npt.NDArray[np.bool_], direction: int, sequence: int) -> npt.NDArray[np.bool_]:
        """First steps of segments (time,) as those of one run: backwards, a segment is entered at its last step."""
        length, skip = int(self.length[sequence]), int(self.skip[sequence])
        real = flags[: length + skip]
        if self.backward[direction]:
            real = np.concatenate([np.zeros(1, dtype=bool), real[::-1]])[: length + skip]
        return real[skip:]


def require_events(events: xr.Dataset, measure: str, kind: str) -> None:
    """Raise where what came is not what `resets` returned, or has no such kind of event."""
    if not isinstance(events, xr.Dataset) or events.attrs.get("measure") != "resets" or "event_kind" not in events:
        what = events.attrs.get("measure", "a Dataset") if isinstance(events, xr.Dataset) else type(events).__name__
        raise ValueError(f"{measure} needs what resets returned; {what} came. Call resets(recording) first.")
    kinds = events["kind"].to_numpy().tolist() if "kind" in events.coords else ["reset"]
    if kind not in kinds:
        raise ValueError(f"kind must be one of {kinds}, which the events have; {kind!r} came.")


def first_steps(start: npt.NDArray[np.object_]) -> Places:
    """The first step of each sequence at which something can be lost: 0 where it carries a memory on, else 1.

    >>> first_steps(np.array(["zero", "continued", "imposed"], dtype=object))
    array([1, 0, 1])
    """
    return np.array([0 if name in CARRIED else 1 for name in start], dtype=np.int64)


def places(values: npt.NDArray[np.generic], index: npt.NDArray[np.generic]) -> Places:
    """Where each value stands in an index.

    >>> places(np.array([7, 3, 7]), np.array([7, 5, 3]))
    array([0, 2, 0])
    """
    order = np.argsort(index, kind="stable")
    at = np.minimum(np.searchsorted(index[order], values), max(0, index.size - 1))
    found = order[at] if index.size else np.zeros(values.shape, dtype=np.int64)
    if values.size and not np.array_equal(index[found], values):
        strange = np.setdiff1d(values, index)[:5].tolist()
        raise ValueError(
            f"Events must lie in the units, layers and sequences of the result; {strange} came beside them."
        )
    return np.asarray(found, dtype=np.int64)


def of_blocks(train: Train, member: Places) -> Train:
    """Trains (block, step) that have an event where any unit of the block has one; `member` is each unit's block."""
    blocks = np.zeros((int(member.max(initial=-1)) + 1, train.shape[1]), dtype=train.dtype)
    np.maximum.at(blocks, member, train)
    return blocks
