"""What `ablation` was asked: the module to act on, how the model is called, and whether the parameters can be meant."""

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import xarray as xr
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..cells import AbstractCell, Recurrent
from .calls import shadow
from .find import TORCH_CELLS, TORCH_STACKS, choose, registration
from .lesions import Site

FILLS = ("zero", "one", "mean", "resample")
RANGES = {"rows": (1, np.inf), "draws": (1, 100_000), "samples": (100, 1_000_000), "seed": (0, np.inf)}


def recurrent_site(model: nn.Module, module: str | None) -> tuple[str, Site]:
    """The path of the recurrent module to act on, and what it has to take out."""
    found = choose(model, module)
    if len(found) > 1:
        raise ValueError(f"module must be named where a model has several; none came. Choose from: {', '.join(found)}.")
    path, owner = next(iter(found.items()))
    known = registration(owner)
    if isinstance(owner, Recurrent):
        return path, Site(owner.first_cell, owner.num_layers, 1 + owner.bidirectional)
    if known is not None:
        return path, Site(known.as_cell(owner), 1, 1)
    if isinstance(owner, AbstractCell):
        return path, Site(owner, 1, 1)
    if isinstance(owner, TORCH_STACKS):
        return path, Site(shadow(owner, owner.input_size), owner.num_layers, 1 + owner.bidirectional)
    if isinstance(owner, TORCH_CELLS):
        return path, Site(shadow(owner, owner.input_size), 1, 1)
    raise TypeError(f"module must be recurrent; {path} is a {type(owner).__name__}.")


def called_with(inputs: Any, inputs_kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments of the model."""
    if inputs_kwargs is not None and not isinstance(inputs_kwargs, Mapping):
        raise TypeError(
            f"inputs_kwargs must be a mapping of names to arguments; {type(inputs_kwargs).__name__} came. Give for "
            "instance {'lengths': lengths}."
        )
    kwargs = dict(inputs_kwargs or {})
    if isinstance(inputs, Mapping):
        return (), {**inputs, **kwargs}
    if isinstance(inputs, (list, tuple)) and not isinstance(inputs, PackedSequence) and not is_data(inputs):
        return tuple(inputs), kwargs
    return (inputs,), kwargs


def is_data(inputs: Sequence[Any]) -> bool:
    """Whether a list is one argument, of numbers or of lists, rather than several arguments."""
    return isinstance(inputs, list) and not any(
        isinstance(entry, (Tensor, np.ndarray, PackedSequence)) for entry in inputs
    )


def check(metric: object, over: str, to: str, confidence: float, batch_dim: int | None, counts: dict[str, int]) -> None:
    """Raise for the first parameter that is out of range; `counts` are those that must be whole."""
    if not callable(metric):
        raise TypeError(
            f"metric must be a function of the model's output; {type(metric).__name__} came. "
            "Give for instance lambda output: ((output - targets) ** 2).mean((1, 2))."
        )
    if to not in FILLS:
        raise ValueError(f"to must be one of {', '.join(map(repr, FILLS))}; {to!r} came. Take 'zero'.")
    if to == "one" and "gate" not in over:
        raise ValueError(
            f"to='one' must come with over='gate' or 'unit_gate'; over={over!r} came. Hold units at 'zero'."
        )
    for name, value in counts.items():
        least, most = RANGES[name]
        if not is_whole(value) or not least <= value <= most:
            span = f"from {least} on" if most == np.inf else f"from {least} to {most:,}"
            raise ValueError(f"{name} must be a whole number {span}; {value!r} came.")
    if batch_dim is not None and not is_whole(batch_dim):
        raise ValueError(f"batch_dim must be the number of a dimension, or None; {batch_dim!r} came. Leave it out.")
    if not isinstance(confidence, Real) or not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1; {confidence!r} came. Take 0.95.")


def is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_recording(recording: object, site: Site, names: Sequence[str]) -> None:
    """Raise where a recording is not of such a module."""
    if not isinstance(recording, xr.Dataset):
        raise TypeError(f"recording must be what gatescope.record returned; {type(recording).__name__} came.")
    lacking = [name for name in names if name not in recording]
    sizes = {"layer": site.layers, "direction": site.directions, "unit": site.cell.hidden_size}
    came = {name: recording.sizes.get(name, 0) for name in sizes}
    if lacking or came != sizes:
        said = f"it lacks {lacking[0]}" if lacking else f"it has {came}"
        raise ValueError(
            f"recording must be of this module, {sizes} with {', '.join(names)}; {said}. Record the model itself."
        )
