"""What a stored run will take, from one measured call."""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import nn

from .arguments import named_arguments
from .attach import attach
from .probe import Modules, Probe
from .storing import check_units, chosen

WRITING = 3e8
"""Bytes that a modest disk takes in a second."""


SHORT = 5.0
"""Seconds below which a call is measured again: the first one also warms things up."""


class Estimate(NamedTuple):
    """Size and time of a run; printed, it is a sentence."""

    bytes: int
    seconds: float
    calls: int

    def __str__(self) -> str:
        calls = "1 call" if self.calls == 1 else f"{self.calls:,} calls"
        return f"{calls}: {readable(self.bytes)}, about {self.seconds:.3g} s"


def estimate(
    model: nn.Module,
    *inputs: Any,
    inputs_kwargs: Mapping[str, Any] | None = None,
    calls: int = 1,
    modules: Modules = None,
    signals: Sequence[str] | None = None,
    preactivations: bool = False,
    dtype: Literal["float16"] | None = None,
    stride: int = 1,
    every: int = 1,
    units: Sequence[int] | None = None,
    tolerance: float = 1e-4,
) -> Estimate:
    """How many bytes and seconds a run of equal calls will take with `attach(model, store=...)`; nothing is written.

    The model is called under a probe, in the mode it is in: once, or up to three times where that is short, and the
    fastest counts. Random numbers are afterwards those of before.
    Bytes are those of what is stored: signals, running sums, call numbers, states at the start, weights once. A store
    adds the part of its last chunks that is padding, labels and, for long recordings, an overview of a twentieth.
    Seconds are those of the call, the probe included, times `calls`, and of writing at 300 MB/s.

    Parameters
    ----------
    model, inputs, inputs_kwargs
        The call: `model(*inputs, **inputs_kwargs)`.
    calls
        Number of such calls.
    modules, signals, preactivations, dtype, stride, every, units, tolerance
        As for `attach`.

    Returns
    -------
    Estimate
        `bytes` (int), `seconds` (float) and `calls`.

    Raises
    ------
    ValueError, TypeError, ParityError
        As for `attach`.

    Examples
    --------
    A thousand calls of 10 sequences of 100 steps: a million steps of 50 units, each 6 signals of 4 bytes and a sum of 8
    (1600 MB), a number of 8 bytes for every step (8 MB), and 10,000 states at the start (4 MB).

    >>> estimate(nn.LSTM(3, 50), torch.zeros(100, 10, 3), calls=1000).bytes // 10**6
    1612
    """
    if type(calls) is not int or calls < 1:
        raise ValueError(f"calls must be a whole number of at least 1; {calls!r} came. Give the number of batches.")
    storing = chosen("estimate.zarr", dtype=dtype, stride=stride, every=every, units=units)
    took: list[float] = []
    named = named_arguments(inputs_kwargs)
    while len(took) < 3 and sum(took) < SHORT:
        probe = attach(model, modules, signals=signals, preactivations=preactivations, tolerance=tolerance)
        check_units(storing.units, probe.tracks)
        with torch.random.fork_rng(), probe:
            begin = time.perf_counter()
            model(*inputs, **named)
            took.append(time.perf_counter() - begin)
    growing = fixed = 0
    for variable in kept(probe, stride, every, units):
        size = variable.size * (2 if dtype and "role" in variable.attrs else variable.dtype.itemsize)
        growing += size if "sequence" in variable.dims else 0
        fixed += 0 if "sequence" in variable.dims else size
    total = growing * calls + fixed
    return Estimate(total, min(took) * calls + total / WRITING, calls)


def kept(probe: Probe, stride: int, every: int, units: Sequence[int] | None) -> list[Any]:
    """All numbers of one call that would be stored."""
    found = []
    for node in probe.tree().children.values():
        recording = node.to_dataset().isel(time=slice(None, None, stride), sequence=slice(None, None, every))
        if units is not None:
            recording = recording.isel(unit=list(units))
        variables = [*recording.data_vars.values(), recording["call"]]
        found += [v for v in variables if v.dtype.kind in "fi"]
    return found


def readable(size: float) -> str:
    """A size in words.

    >>> readable(1234), readable(5.6e9)
    ('1.23 kB', '5.6 GB')
    """
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:,.3g} TB"
