"""Gradients of a loss as a labelled Dataset: by step, by distance to the loss, by layer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from ..cells import AbstractCell
from ..signals import DIRECTIONS, PREACTIVATION, VERSION
from .arrivals import GRADIENT
from .assemble import attributes, gather, last_dim, unit_coordinates
from .capture import Layered, Taken
from .schema import LABEL_DIMS, padding_mask
from .track import Array, Track

QUANTILES = (0.1, 0.5, 0.9)
SMALLEST, LARGEST = -30.0, 37.0
"""log10 of norms between which float32 holds a gradient and its digits."""
LOWEST = {torch.float32: -36.0, torch.float64: -300.0}
"""log10 of norms below which autograd's own products lose digits, and then all."""
STEP_DIMS = ("layer", "direction", *LABEL_DIMS)
Parts = list[tuple[list[Taken], Layered]]


def summarise(parts: Parts, track: Track, lengths: Any) -> xr.Dataset:
    """The result of `loss_gradient`, from what was found of every call."""
    cell = track.cells[0][0]
    whole = max(track.sequences.length, default=0)
    distance = distances(Laid(parts, track, whole).reached())  # a loss may read what the caller calls padding
    if lengths is not None:
        track.trim(lengths)
    length = np.asarray(track.sequences.length, np.int64)
    steps = int(length.max(initial=0))
    distance = np.where(padding_mask(length, steps), np.nan, distance[..., :steps])
    laid = Laid(parts, track, steps)
    gates = list(parts[0][1].found[0][0].gates)
    states = laid.by_direction(lambda f: torch.cat([state.log10_norm() for state in f.states], -1))
    gate_norms = laid.by_direction(lambda f: torch.cat([f.gates[name].log10_norm() for name in gates], -1))
    data: dict[str, Any] = {}
    unknown = forget_underflow(states, gate_norms, distance, parts[0][0][0].own) if laid.loop else 0
    dtype = number_type(states, parts[0][0][0].own)
    for place, name in enumerate(cell.states):
        values = laid.by_direction(lambda f, place=place: f.states[place].plain(dtype))  # type: ignore[misc]
        data[name + GRADIENT] = ((*STEP_DIMS, last_dim(cell, name)), values, attributes(cell, name + GRADIENT))
    data["gradient_norm"] = (("state", *STEP_DIMS), np.moveaxis(states, -1, 0), said("gradient at each state"))
    data["gate_norm"] = (("gate", *STEP_DIMS), np.moveaxis(gate_norms, -1, 0), said("gradient at each pre-activation"))
    if not laid.loop:
        data["arriving_norm"] = (STEP_DIMS, laid.arriving(), said("gradient from outside the recurrence"))
    data["distance"] = (("direction", *LABEL_DIMS), distance, {"long_name": "distance to the loss", "units": "step"})
    quantities = [*cell.states, *(f"{gate}{PREACTIVATION}" for gate in gates)]
    profile = profiles(np.concatenate([states, gate_norms], -1), distance)
    data["profile"] = (
        ("quantity", "layer", "direction", "distance_step", "quantile"),
        profile,
        said("gradient by distance to the loss"),
    )
    data["depth_norm"] = (("layer", "sequence"), together(states[..., 0], (1, 3)), said("gradient at a layer's states"))
    data["input_norm"] = (("layer", "sequence"), together(laid.inputs(), (1, 3)), said("gradient at a layer's input"))
    coords = coordinates(track, cell, length, steps) | {
        "state": np.array(cell.states, object),
        "gate": np.array(gates, object),
        "quantity": np.array(quantities, object),
        "quantile": np.array(QUANTILES),
        "distance_step": np.arange(profile.shape[3]),
    }
    attrs: dict[str, Any] = {
        "gatescope_version": VERSION,
        "torch_version": str(torch.__version__),
        "parity": track.parity,
        "tolerance": track.tolerance,
        "training": int(track.training),
    }
    if unknown:
        attrs["underflow"] = (
            f"at {unknown} steps the gradient is too small for autograd, which carries it through a loop of cells; its "
            "norm there is NaN"
        )
    return xr.Dataset(data, coords, attrs)


def forget_underflow(states: Array, gates: Array, distance: Array, own: torch.dtype) -> int:
    """Norms at steps that autograd's numbers could not hold are unknown (NaN), and not 0; how many those are."""
    lowest = LOWEST[torch.float64 if own == torch.float64 else torch.float32]
    lost = (states.max(-1) < lowest) & np.isfinite(distance)
    states[lost] = gates[lost] = np.nan
    return int(lost.sum())


def said(what: str) -> dict[str, str]:
    return {"long_name": f"log10 of the norm of the {what}", "units": "1"}


def coordinates(track: Track, cell: AbstractCell, length: Array, steps: int) -> dict[str, Any]:
    layers, directions = track.chunks[0].rebuilt.final[0].shape[:2]
    coords: dict[str, Any] = {
        "layer": np.arange(layers),
        "direction": np.array(DIRECTIONS[:directions], dtype=object),
        "sequence": np.arange(len(length)),
        "time": np.arange(steps),
        "unit": np.arange(cell.hidden_size),
        **unit_coordinates(cell),
        "length": ("sequence", length),
        "stream": ("sequence", np.asarray(track.sequences.stream, np.int64)),
        "start": ("sequence", np.asarray(track.sequences.start, object)),
    }
    return coords | ({"projection": np.arange(cell.proj_size)} if cell.proj_size else {})


class Laid:
    """Values of all calls on the sequences that they belong to."""

    def __init__(self, parts: Parts, track: Track, steps: int) -> None:
        self.parts, self.track, self.steps = parts, track, steps
        self.loop = parts[0][0][0].loop

    def by_direction(self, value: Callable[[Any], Tensor]) -> Array:
        """(layer, direction, sequence, time, ...) of what `value` makes of one layer and direction."""
        return self.lay([stacked([[value(each) for each in row] for row in part.found]) for _, part in self.parts])

    def arriving(self) -> Array:
        return self.lay([stacked(part.arriving) for _, part in self.parts])[..., 0]

    def reached(self) -> Array:
        """(direction, sequence, time)"""
        return self.lay([stacked([part.reached]) for _, part in self.parts])[0, ..., 0]

    def inputs(self) -> Array:
        """(layer, 1, sequence, time)"""
        return self.lay([stacked([[each.log10_norm()] for each in part.input]) for _, part in self.parts])[..., 0]

    def lay(self, values: list[Tensor]) -> Array:
        if not self.loop:
            for chunk, value in zip(self.track.chunks, values, strict=True):
                chunk.rebuilt.signals.clear()
                chunk.rebuilt.signals["value"] = value
            return gather(self.track, "value", self.steps)
        chunks = self.track.chunks
        sequence = np.concatenate([chunk.sequence for chunk in chunks])
        time = np.concatenate([chunk.offset for chunk in chunks])
        real = np.concatenate([chunk.lengths for chunk in chunks]) > 0
        rows = np.concatenate([value[:, :, 0].numpy() for value in values], 2)
        result = np.full(
            (*rows.shape[:2], len(self.track.sequences.length), self.steps, rows.shape[-1]), np.nan, rows.dtype
        )
        result[:, :, sequence[real], time[real]] = rows[:, :, real]
        return result


def stacked(values: list[list[Tensor]]) -> Tensor:
    """(layer, direction, time, sequence, ...)"""
    return torch.stack([torch.stack(row) for row in values])


def number_type(norms: Array, own: torch.dtype) -> torch.dtype:
    """float32 where it holds all gradients of a float32 model."""
    finite = norms[np.isfinite(norms)]
    holds = finite.size == 0 or (finite.min() > SMALLEST and finite.max() < LARGEST)
    return torch.float32 if holds and own != torch.float64 else torch.float64


def distances(reached: Array) -> Array:
    """(direction, sequence, time): steps to the last one, in the order of computation, at which the loss is reached."""
    there = np.nan_to_num(reached) > 0
    there = np.where(there.any((1, 2), keepdims=True), there, there.any(0, keepdims=True))
    time = np.arange(there.shape[-1])
    result = np.full(there.shape, np.nan)
    for direction, rows in enumerate(there):
        if direction:
            last = np.where(rows, time, np.inf).min(-1, keepdims=True, initial=np.inf)
            result[direction] = time - last
        else:
            last = np.where(rows, time, -np.inf).max(-1, keepdims=True, initial=-np.inf)
            result[direction] = last - time
    result[~np.isfinite(result) | (result < 0)] = np.nan
    return result


def profiles(norms: Array, distance: Array) -> Array:
    """Quantiles of (layer, direction, sequence, time, quantity) over all steps at the same distance."""
    longest = 0 if np.isnan(distance).all() else int(np.nanmax(distance))
    layers, directions, sequences, _, quantities = norms.shape
    spread = np.full((quantities, layers, directions, longest + 1, sequences), np.nan)
    for direction in range(directions):
        sequence, time = np.nonzero(np.isfinite(distance[direction]))
        at = distance[direction][sequence, time].astype(int)
        spread[:, :, direction, at, sequence] = np.moveaxis(norms[:, direction, sequence, time], -1, 0)
    return observed_quantiles(spread)


def observed_quantiles(values: Array) -> Array:
    """For each of `QUANTILES` the smallest value that at least this share does not exceed, over the last axis.

    No two values are mixed, so that -inf stays what it is; NaN counts for nothing.
    """
    count = (~np.isnan(values)).sum(-1, keepdims=True)
    ranks = np.maximum(np.ceil(np.array(QUANTILES) * count).astype(int) - 1, 0)
    return np.take_along_axis(np.sort(values, -1), ranks, -1)


def together(norms: Array, axes: tuple[int, ...]) -> Array:
    """log10 of the norm of all that the log10 norms over these axes are the parts of; NaN counts for nothing."""
    known = np.where(np.isnan(norms), -np.inf, norms)
    top = known.max(axes, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(0.5 * np.log10((10.0 ** (2 * (known - top))).sum(axes)) + top.squeeze(axes))
