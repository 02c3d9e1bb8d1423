"""Synthetic recordings whose truth is built, not recorded: numpy only, no model and no torch."""

from collections.abc import Callable
from datetime import UTC, datetime

import numpy as np
import pytest
import xarray as xr

from gatescope.signals import SCHEMA, VERSION

BOUNDED = {"lower": 0.0, "upper": 1.0}
SQUASHED = {"lower": -1.0, "upper": 1.0}
SIGNAL_ATTRS: dict[str, dict[str, str | float]] = {
    "input_gate": {"symbol": "i", "role": "write", **BOUNDED},
    "forget_gate": {"symbol": "f", "role": "gate", **BOUNDED},
    "candidate": {"symbol": "g", "role": "candidate", **SQUASHED},
    "output_gate": {"symbol": "o", "role": "read", **BOUNDED},
    "cell_state": {"symbol": "c", "role": "memory"},
    "hidden_state": {"symbol": "h", "role": "output", **SQUASHED},
}
GATES = ["input_gate", "forget_gate", "candidate", "output_gate"]


def lstm_recording(
    layers: int = 2,
    directions: int = 2,
    lengths: tuple[int, ...] = (7, 12, 1),
    units: int = 5,
    seed: int = 0,
    labels: bool = True,
    module: str = "encoder.rnn",
) -> xr.Dataset:
    """A recording of an LSTM with random gates that obeys c = f c + i g and h = o tanh(c) exactly."""
    rng = np.random.default_rng(seed)
    n, steps = len(lengths), max(lengths)
    shape = (layers, directions, n, steps, units)
    dims = ("layer", "direction", "sequence", "time", "unit")
    values = {name: rng.uniform(0.0, 1.0, shape) for name in ("input_gate", "forget_gate", "output_gate")}
    values["candidate"] = rng.uniform(-1.0, 1.0, shape)
    initial = rng.normal(size=(layers, directions, n, units))
    cell = np.full(shape, np.nan)
    for direction in range(directions):
        for sequence, length in enumerate(lengths):
            memory = initial[:, direction, sequence]
            for t in range(length) if direction == 0 else reversed(range(length)):
                at = (slice(None), direction, sequence, t)
                memory = values["forget_gate"][at] * memory + values["input_gate"][at] * values["candidate"][at]
                cell[at] = memory
    values |= {"cell_state": cell, "hidden_state": values["output_gate"] * np.tanh(cell)}
    padding = np.arange(steps)[None, :] >= np.asarray(lengths)[:, None]
    for array in values.values():
        array[:, :, padding] = np.nan
    data = {
        name: (dims, values[name].astype(np.float32), {"long_name": name.replace("_", " "), "units": "1", **attrs})
        for name, attrs in SIGNAL_ATTRS.items()
    }
    recording = xr.Dataset(
        data,
        coords={
            "layer": np.arange(layers),
            "direction": np.array(["forward", "backward"][:directions], dtype=object),
            "sequence": np.arange(n),
            "time": np.arange(steps),
            "unit": np.arange(units),
            "gate": np.array(GATES, dtype=object),
            "source": np.arange(units),
            "length": ("sequence", np.asarray(lengths)),
            "stream": ("sequence", np.arange(n)),
            "start": ("sequence", np.array(["given"] * n, dtype=object)),
            "call": (("sequence", "time"), np.where(padding, -1, 0)),
        },
        attrs={
            "schema": SCHEMA,
            "cell": "LSTMCell",
            "retention": "forget_gate",
            "gatescope_version": VERSION,
            "torch_version": "2.13.0",
            "module": module,
            "parity": 1e-7,
            "tolerance": 1e-4,
            "training": 0,
            "created": datetime(2026, 1, 1, tzinfo=UTC).isoformat(),
        },
    )
    recording["initial_cell_state"] = (("layer", "direction", "sequence", "unit"), initial.astype(np.float32))
    recording["initial_hidden_state"] = (("layer", "direction", "sequence", "unit"), np.zeros_like(initial, np.float32))
    weights = rng.normal(size=(layers, directions, 4, units, units)).astype(np.float32)
    recording["weight_hh"] = (("layer", "direction", "gate", "unit", "source"), weights)
    if labels:
        letters = rng.choice(list("ab "), size=(n, steps)).astype(object)
        letters[padding] = ""
        recording = recording.assign_coords(
            token=(("sequence", "time"), letters),
            boundary=(("sequence", "time"), (np.arange(steps) % 4 == 0)[None, :] & ~padding),
            value=(("sequence", "time"), np.where(padding, np.nan, rng.normal(size=(n, steps)))),
        )
    return recording


@pytest.fixture
def make_recording() -> Callable[..., xr.Dataset]:
    return lstm_recording
