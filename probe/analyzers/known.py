"""A recording and what several findings about it rest on, each measured once."""

from functools import cached_property

import xarray as xr

from ..schema import label_names
from .gradient_flow import gradient_verdict
from .resets import resets
from .roles import roles_from
from .selectivity import selectivity

MOST_CLASSES = 64


class Known:
    """What is known of a recording; a measure runs when its result is first asked for."""

    def __init__(self, recording: xr.Dataset) -> None:
        self.recording = recording
        self._had: dict[tuple[object, ...], xr.Dataset] = {}

    @cached_property
    def labels(self) -> list[str]:
        """All labels, by name."""
        return label_names(self.recording)

    @cached_property
    def texts(self) -> list[str]:
        """Labels of text with at least two and not too many classes."""
        found = []
        for name in self.labels:
            values = self.recording[name].to_numpy()
            if values.dtype.kind in "OU" and 2 <= len(set(values.ravel().tolist()) - {""}) <= MOST_CLASSES:
                found.append(name)
        return found

    @cached_property
    def events(self) -> xr.Dataset:
        """Resets and fresh starts of all units."""
        return resets(self.recording)

    @property
    def has_events(self) -> bool:
        return not self.events.attrs["reason"] and self.events.sizes["event"] > 0

    @cached_property
    def gradients(self) -> xr.Dataset:
        """Half-life, slope and verdict of the gradient flow."""
        return gradient_verdict(self.recording)

    def roles(self, label: str | None, samples: int) -> xr.Dataset:
        key = ("roles", label, samples)
        if key not in self._had:
            self._had[key] = roles_from(self.recording, self.events, label, samples=samples)
        return self._had[key]

    def selectivity(self, label: str) -> xr.Dataset:
        key = ("selectivity", label)
        if key not in self._had:
            self._had[key] = selectivity(self.recording, label, shifts=1)
        return self._had[key]
