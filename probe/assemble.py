"""From the tracked calls of one module to its recording: one labelled Dataset."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
import xarray as xr

from ..cells import AbstractCell
from ..signals import DIRECTIONS, PREACTIVATION, SCHEMA, VERSION, Signal
from .arrivals import GRADIENT
from .retention import log_retention
from .schema import FIXED_DIMS, LABEL_DIMS, SIGNAL_DIMS, STEP_JACOBIAN, padding_mask, padding_value
from .track import Array, Chunk, Track


def assemble(track: Track, *, sums: bool = True) -> xr.Dataset:
    """The recording of one module; every call's rows stand in the sequences that they belong to."""
    runs, cell = track.sequences, track.cells[0][0]
    length = np.asarray(runs.length, np.int64)
    steps = int(length.max(initial=0))
    first = track.chunks[0].rebuilt
    layers, directions = first.final[0].shape[:2]
    unit = cell.hidden_size
    coords: dict[str, Any] = {
        "layer": np.arange(layers),
        "direction": np.array(DIRECTIONS[:directions], dtype=object),
        "sequence": np.arange(len(length)),
        "time": np.arange(steps),
        "unit": np.arange(unit),
        "length": ("sequence", length),
        "stream": ("sequence", np.asarray(runs.stream, np.int64)),
        "start": ("sequence", np.asarray(runs.start, object)),
        "call": (LABEL_DIMS, calls(track, steps)),
    }
    coords |= unit_coordinates(cell)
    if cell.proj_size:
        coords["projection"] = np.arange(cell.proj_size)
    data: dict[str, Any] = {}
    for name in dict.fromkeys(name for chunk in track.chunks for name in chunk.rebuilt.signals):
        values = gather(track, name, steps)
        if name == STEP_JACOBIAN:
            size = sum(cell.state_sizes)
            data[name] = (FIXED_DIMS[name][0], values.reshape(*values.shape[:-1], size, size), jacobian_attrs(cell))
            coords |= {"target_state": np.arange(size), "source_state": np.arange(size)}
            continue
        data[name] = (("layer", "direction", *LABEL_DIMS, last_dim(cell, name)), values, attributes(cell, name))
    if sums:
        signals = {name: variable[1] for name, variable in data.items() if name != STEP_JACOBIAN}
        found = log_retention(cell.retention, signals, padding_mask(length, steps))
        data |= {name: (SIGNAL_DIMS, *array_and_attrs) for name, array_and_attrs in found.items()}
    data |= initial_states(track, cell)
    for name, values in track.weights.items():
        data[name] = (FIXED_DIMS[name][0], values)
        if name == "weight_hh":
            coords |= {"gate": np.array(cell.gates, dtype=object), "source": np.arange(values.shape[-1])}
    for name, values in labels(track, steps):
        coords[name] = (LABEL_DIMS, values)
    return xr.Dataset(data, coords=coords, attrs=provenance(track, cell))


def unit_coordinates(cell: AbstractCell) -> dict[str, tuple[str, Array]]:
    """What is said of each unit: `block`, which units share gates, for cells with memory blocks."""
    blocks = cell.unit_blocks()
    return {} if blocks is None else {"block": ("unit", np.array(blocks, np.int64))}


def last_dim(cell: AbstractCell, name: str) -> str:
    return "projection" if cell.proj_size and name.removesuffix(GRADIENT) == cell.states[0] else "unit"


def places(chunk: Chunk) -> tuple[Array, Array, Array, Array]:
    """For every real step of a call: its row and step in the call, its sequence and step in the recording."""
    row, step = np.nonzero(~padding_mask(chunk.lengths, chunk.steps))
    return row, step, chunk.sequence[row], chunk.offset[row] + step


def gather(track: Track, name: str, steps: int) -> Array:
    """One signal of all calls, (layer, direction, sequence, time, unit); padding is NaN; one call is not copied."""
    having = [chunk for chunk in track.chunks if name in chunk.rebuilt.signals]
    values = [chunk.rebuilt.signals[name].numpy() for chunk in having]
    if len(track.chunks) == 1:
        only, chunk = np.swapaxes(values[0], 2, 3), having[0]
        padding = padding_mask(chunk.lengths, chunk.steps)
        if padding.any():
            only[:, :, padding] = np.nan
        return only[:, :, :, :steps]
    layers, directions, _, _, width = values[0].shape
    dtype = np.result_type(*{value.dtype for value in values})
    shape = (layers, directions, len(track.sequences.length), steps, width)
    result = np.full(shape, np.nan, dtype=dtype)
    for value, chunk in zip(values, having, strict=True):
        start = chunk.sequence[0] if len(chunk.sequence) else 0
        plain = not chunk.offset.any() and bool((chunk.lengths == chunk.steps).all())
        if plain and np.array_equal(chunk.sequence, np.arange(start, start + len(chunk.sequence))):
            result[:, :, start : start + len(chunk.sequence), : chunk.steps] = np.swapaxes(value, 2, 3)
        else:
            row, step, sequence, time = places(chunk)
            result[:, :, sequence, time] = value[:, :, step, row]
    return result


def calls(track: Track, steps: int) -> Array:
    result = np.full((len(track.sequences.length), steps), -1, np.int64)
    for number, chunk in enumerate(track.chunks):
        _, _, sequence, time = places(chunk)
        result[sequence, time] = number
    return result


def labels(track: Track, steps: int) -> Iterator[tuple[str, Array]]:
    """Each label laid on its steps; calls without it are padded."""
    for name, dtype in track.kinds.items():
        result = np.full((len(track.sequences.length), steps), padding_value(dtype), dtype=dtype)
        for chunk in track.chunks:
            if name in chunk.labels:
                row, step, sequence, time = places(chunk)
                result[sequence, time] = chunk.labels[name][row, step]
        yield name, result


def initial_states(track: Track, cell: AbstractCell) -> dict[str, Any]:
    """`initial_*` (layer, direction, sequence, unit): the state before each sequence's first step."""
    found = {}
    for place, name in enumerate(cell.states):
        rows = [track.chunks[c].rebuilt.initial[place][:, :, r] for c, r in track.sequences.first]
        values = torch.stack(rows, 2) if rows else track.chunks[0].rebuilt.initial[place]
        if values.dtype in (torch.bfloat16, torch.float16):
            values = values.float()
        found[f"initial_{name}"] = (("layer", "direction", "sequence", last_dim(cell, name)), values.numpy())
    return found


def attributes(cell: AbstractCell, name: str) -> dict[str, str | float]:
    """What a signal is: name, symbol, role, bounds and units."""
    base = name.removesuffix(PREACTIVATION).removesuffix(GRADIENT)
    signal: Signal = next(s for s in cell.signals if s.name == base)
    if name.endswith(GRADIENT):
        return {
            "long_name": f"gradient of the loss at the {base.replace('_', ' ')}",
            "symbol": f"dL/d{signal.symbol}",
            "units": "1",
        }
    if name != base:
        return {
            "long_name": f"{base.replace('_', ' ')} before its squasher",
            "symbol": f"{signal.symbol} before squashing",
            "units": "1",
        }
    found: dict[str, str | float] = {
        "long_name": name.replace("_", " "),
        "symbol": signal.symbol,
        "role": signal.role,
        "units": "1",
    }
    if name in cell.squashers:
        found["squasher"] = cell.squashers[name]
    if signal.bounds is not None:
        found |= {"lower": float(signal.bounds[0]), "upper": float(signal.bounds[1])}
    return found


def jacobian_attrs(cell: AbstractCell) -> dict[str, str]:
    """What stands at which places of the full state: `hidden_state 0:4, cell_state 4:8`."""
    stops = np.cumsum(cell.state_sizes).tolist()
    places = zip(cell.states, [0, *stops], stops, strict=False)
    return {
        "long_name": "Jacobian of the whole state after a step by that before it",
        "symbol": "ds_t/ds_{t-1}",
        "units": "1",
        "states": ", ".join(f"{name} {start}:{stop}" for name, start, stop in places),
    }


def provenance(track: Track, cell: AbstractCell) -> dict[str, str | float | int]:
    """The recording's attributes: what was recorded, with what, and how exact it is."""
    found: dict[str, str | float | int] = {
        "schema": SCHEMA,
        "cell": type(cell).__name__,
        "retention": cell.retention,
        "gatescope_version": VERSION,
        "torch_version": str(torch.__version__),
        "module": track.observed.path,
        "parity": track.parity,
        "tolerance": track.tolerance,
        "training": int(track.training),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if isinstance(variant := getattr(cell, "variant", None), str):
        found["variant"] = variant
    if track.training and track.observed.dropout:
        found["dropout"] = track.observed.dropout
    if track.intervened:
        found["intervened"] = 1
    if track.weights_changed:
        found["weights_changed"] = track.weights_changed
    nonfinite = first_nonfinite(track)
    if nonfinite:
        found["nonfinite"] = nonfinite
    return found


def first_nonfinite(track: Track) -> str:
    """Where NaN or Inf first stands in a state that the model computed, and how many sequences it reaches."""
    found: dict[int, tuple[int, int, int]] = {}
    for chunk in track.chunks:
        for sequence, at in nonfinite_in(chunk).items():
            found[sequence] = min(found.get(sequence, at), at)
    return nonfinite_text(found, len(track.sequences.length)) if found else ""


def nonfinite_in(chunk: Chunk) -> dict[int, tuple[int, int, int]]:
    """Sequence -> (step, layer, direction) of the first NaN or Inf that it shows in a call."""
    if chunk.rebuilt.infinite is None:
        return {}
    found: dict[int, tuple[int, int, int]] = {}
    row, step, sequence, time = places(chunk)
    bad = chunk.rebuilt.infinite.numpy()[:, :, step, row]
    for layer, direction, place in zip(*np.nonzero(bad), strict=True):
        at = (int(time[place]), int(layer), int(direction))
        number = int(sequence[place])
        found[number] = min(found.get(number, at), at)
    return found


def nonfinite_text(found: dict[int, tuple[int, int, int]], sequences: int, *, more: int = 0) -> str:
    """What the recording says of them; `more` sequences are not finite besides those found."""
    first = min(found, key=lambda s: (found[s][0], s))
    step, layer, direction = found[first]
    return (
        f"NaN or Inf in {len(found) + more} of {sequences} sequences, first at step {step} of sequence "
        f"{first} in layer {layer}, {DIRECTIONS[direction]}"
    )
