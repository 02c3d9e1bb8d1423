"""From tracked calls to running statistics: calls are folded in and forgotten."""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from ..signals import DIRECTIONS
from .assemble import attributes, last_dim, provenance, unit_coordinates
from .labels import LabelSource
from .online import Online, Piece
from .schema import LABEL_DIMS, padding_mask
from .sinks import Sink
from .track import Chunk, Track


class Foldings(Sink):
    """What a probe with `statistics=True` keeps of its modules."""

    def __init__(self, tracks: Mapping[str, Track]) -> None:
        self.modules = {path: Folding(track) for path, track in tracks.items()}

    def take(self, path: str, chunk: Chunk) -> None:
        self.modules[path].wait(chunk)

    def settle(self) -> None:
        for folding in self.modules.values():
            folding.fold()

    def finish(self) -> None:
        for folding in self.modules.values():
            folding.fold(every_thread=True)

    def require_steps(self) -> None:
        raise ValueError(
            "a recording needs every step; a probe with statistics=True keeps none. Call statistics() in its "
            "place, or attach without statistics=True."
        )

    def require_statistics(self) -> None:
        """They are there."""

    def statistics(self, path: str) -> xr.Dataset | None:
        return self.modules[path].result()


class Folding:
    """Of one module: calls whose lengths may still come, and sums."""

    def __init__(self, track: Track) -> None:
        self.track = track
        self.waiting: list[tuple[int, Chunk]] = []  # the thread it came from
        self.online: Online | None = None

    def wait(self, chunk: Chunk) -> None:
        """Hold a call until the call of the model in which it was made has ended."""
        self.waiting.append((threading.get_ident(), chunk))
        self.track.chunks.clear()
        self.track.sequences.first.clear()
        self.track.sequences.start.clear()

    def fold(self, *, every_thread: bool = False) -> None:
        """Fold in this thread's calls, in their order."""
        here = threading.get_ident()
        ready = [chunk for thread, chunk in self.waiting if every_thread or thread == here]
        if not ready:
            return
        self.waiting = [] if every_thread else [(thread, chunk) for thread, chunk in self.waiting if thread != here]
        if self.online is None:
            self.online = Online(template(self.track, ready[0]))
        for chunk in ready:
            self.online.add(piece(chunk, self.online.names))
            chunk.rebuilt = chunk.rebuilt._replace(signals={}, infinite=None)  # the next call may have to go on from it
        recent = (chunk for chunks in self.track.recent.values() for chunk in chunks)
        going_on = [*recent, *(chunk for _, chunk in self.waiting)]
        self.online.forget({number for chunk in going_on for number in chunk.sequence.tolist()})

    def result(self) -> xr.Dataset | None:
        """The statistics so far, where any call has been folded in."""
        if self.online is None:
            return None
        result = self.online.result()
        said: dict[str, Any] = {"calls": self.track.count, "sequences": len(self.track.sequences.stream)}
        if self.track.left_out:
            said["labels_left_out"] = ", ".join(sorted(self.track.left_out))
        known = provenance(self.track, self.track.cells[0][0])
        del known["schema"]  # it is no recording
        return result.assign_attrs(known | said)


def check_folded(labels: LabelSource | None, lengths: Any, *, preactivations: bool, gradients: bool) -> None:
    """Refuse what has no meaning where no step is kept."""
    if lengths is not None or isinstance(labels, Mapping):
        raise ValueError(
            "with statistics=True lengths and labels must come call by call, for no recording is kept to lay them on; "
            "some came for the whole. Use probe.annotate(lengths=...) or a function."
        )
    if preactivations or gradients:
        name = "preactivations" if preactivations else "gradients"
        raise ValueError(
            f"with statistics=True only signals are counted; {name}=True came. Leave it out, or record the steps."
        )


def piece(chunk: Chunk, names: list[str]) -> Piece:
    """A call's signals (layer, direction, time, sequence, unit), and where its steps stand."""
    real = ~padding_mask(chunk.lengths, chunk.steps).T
    step = np.arange(chunk.steps)[:, None] + chunk.offset
    return Piece({name: chunk.rebuilt.signals[name].numpy() for name in names}, real, step, chunk.sequence)


def template(track: Track, chunk: Chunk) -> xr.Dataset:
    """A recording of the module without any step."""
    cell, signals = track.cells[0][0], chunk.rebuilt.signals
    layers, directions = chunk.rebuilt.final[0].shape[:2]
    coords: dict[str, Any] = {
        "layer": np.arange(layers),
        "direction": np.array(DIRECTIONS[:directions], dtype=object),
        "unit": np.arange(cell.hidden_size),
        **unit_coordinates(cell),
    }
    data = {
        name: (
            ("layer", "direction", *LABEL_DIMS, last_dim(cell, name)),
            np.empty((layers, directions, 0, 0, values.shape[-1]), np.float32),
            attributes(cell, name),
        )
        for name, values in signals.items()
    }
    return xr.Dataset(data, coords, provenance(track, cell))
