"""A recording that is kept in memory until it is asked for, with the labels and lengths that came for the whole."""

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from .arrivals import GRADIENT
from .assemble import assemble
from .labels import LabelSource, MisfitError
from .schema import LABEL_DIMS
from .sinks import Sink
from .track import Array, Chunk, Track


class Keeping(Sink):
    """Every call stays in its track."""

    def __init__(
        self, tracks: Mapping[str, Track], labels: LabelSource | None, lengths: Any, *, sums: bool, gradients: bool
    ) -> None:
        self.tracks, self.sums, self.gradients = tracks, sums, gradients
        self.labels: Mapping[str, Any] = labels if isinstance(labels, Mapping) else {}
        self.lengths = lengths

    def take(self, path: str, chunk: Chunk) -> None:
        """Nothing is to be done: the track has it."""

    def recordings(self, paths: Sequence[str]) -> dict[str, xr.Dataset]:
        return {path: self.recording(self.tracks[path]) for path in paths}

    def recording(self, track: Track) -> xr.Dataset:
        """Assembled, with those labels and lengths for the whole recording that fit this module."""
        laid, misfits = self.lay(track)
        recording = assemble(track, sums=self.sums).assign_coords(
            {name: (LABEL_DIMS, values) for name, values in laid.items()}
        )
        left_out = track.left_out | misfits.keys()
        if left_out:
            recording.attrs["labels_left_out"] = ", ".join(sorted(left_out))
        return recording

    def lay(self, track: Track) -> tuple[dict[str, Array], dict[str, ValueError]]:
        """What was given to `attach` for the whole recording: the labels that fit, and why the rest does not."""
        laid: dict[str, Array] = {}
        misfits: dict[str, ValueError] = {}
        if self.lengths is not None:
            try:
                track.trim(self.lengths)
            except MisfitError as misfit:
                misfits["lengths"] = misfit
        for name, values in self.labels.items():
            try:
                laid[name] = track.fit(name, values)
            except ValueError as misfit:
                misfits[name] = misfit
        return laid, misfits

    def check(self) -> None:
        """Raise where labels or lengths fit none of the modules that were called, or gradients never came."""
        first, *others = (self.lay(track)[1] for track in self.tracks.values() if track.count)
        for name, misfit in first.items():
            if all(name in other for other in others):
                raise misfit
        chunks = [chunk for track in self.tracks.values() for chunk in track.chunks]
        if self.gradients and not any(name.endswith(GRADIENT) for chunk in chunks for name in chunk.rebuilt.signals):
            raise ValueError(
                "gradients=True needs a backward pass inside the block that reaches "
                f"{', '.join(map(repr, self.tracks))}; none did. Call backward() on a loss before the block ends, with "
                "gradients enabled."
            )
