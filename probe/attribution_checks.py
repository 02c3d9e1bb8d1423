"""What must hold of a question to `attribution` before it is put to a method, each in a sentence where it does not."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .attribution_answer import Asking
from .attribution_asked import Asked
from .attribution_methods import METHODS, Method
from .attribution_sources import EmbeddingSource, SignalSource, Source, StateSource
from .attribution_target import Target, Unit, indices, is_whole, said

NUMBERS = 8_000_000
"""Values of one signal over all rows and steps of a batch, where its size is not said."""
MOST_ROWS = 512


def selected(
    asked: Asked,
    source: Source,
    method: Method,
    together: bool | None,
    layer: int | None,
    direction: str | None,
    unit: Any,
    time: Any,
) -> Asking:
    """Which steps and units are asked about, and whether steps are taken together."""
    if together not in (None, True, False):
        raise ValueError(f"together must be True, False or None; {said(together)} came. Leave it out.")
    if isinstance(source, StateSource):
        if time is not None or together is False:
            raise ValueError("time and together must be left out for the initial state, which stands before all steps.")
        return Asking(asked.runs, source, [0], source.chosen(layer, direction, unit), True)
    steps, width = source.actual.shape[1:]
    inside = isinstance(source, SignalSource)
    if not inside and not (layer is None and direction is None):
        raise ValueError("layer and direction must be left out for the input, which comes before all of them.")
    if not inside and together is False:
        raise ValueError("together must be True for the input, whose steps do not follow from each other; False came.")
    if together is None:
        together = not inside or asked.to not in asked.states
    if not together and method.attribute is METHODS["occlusion"].attribute:
        raise ValueError(
            f"method 'occlusion' slides over steps that are taken together; {asked.to!r} is asked about step by step. "
            "Take 'feature_ablation', or together=True."
        )
    ragged = asked.layout.ragged and steps == asked.layout.steps
    times, units = indices("time", time, steps, negative=not ragged), indices("unit", unit, width)
    asking = Asking(asked.runs, source, times, units, together)
    if not bool(asking.real[:, asking.times].any()):
        raise ValueError(f"time must be a step of at least one sequence; {said(time)} came, which is all padding.")
    return asking


def check_window(asking: Asking, method: Method, window: int) -> None:
    if "window" not in method.takes:
        return
    if isinstance(asking.source, StateSource):
        raise ValueError("method 'occlusion' slides over steps, which the initial state has not. Take another.")
    if window > len(asking.times):
        raise ValueError(f"window must be at most the {len(asking.times)} steps that are asked about; {window} came.")


def rows_at_once(source: Source) -> int:
    """Rows of a batch whose size is not said."""
    _, steps, width = source.actual.shape
    return max(1, min(MOST_ROWS, NUMBERS // (steps * max(width, 64))))


def is_by_step(by: str | None, method: Method, source: Source) -> bool:
    """Whether all values of a step are taken away together; numbers of an embedding mean nothing one by one."""
    if by == "step" and not method.groups:
        able = ", ".join(name for name, one in METHODS.items() if one.groups)
        raise ValueError(f"by='step' needs a method that takes values away, one of {able}; another came. Sum instead.")
    slides = "window" in method.takes
    if by == "feature" and slides:
        raise ValueError("by must be 'step' for occlusion, whose window covers whole steps; 'feature' came.")
    return method.groups and (by == "step" or slides or (by is None and isinstance(source, EmbeddingSource)))


def check_options(by: str | None, counts: Mapping[str, int | None], stdev: float, tolerance: float, seed: int) -> None:
    if by not in (None, "step", "feature"):
        raise ValueError(f"by must be 'step' or 'feature'; {said(by)} came.")
    for name, count in counts.items():
        if count is not None and (not is_whole(count) or count < 1):
            raise ValueError(f"{name} must be a whole number of at least 1; {said(count)} came.")
    for name, size in (("stdev", stdev), ("tolerance", tolerance)):
        if not (is_number(size) and size >= 0):
            raise ValueError(f"{name} must be a number of at least 0; {said(size)} came.")
    if not is_whole(seed) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0; {said(seed)} came.")


def checked_output(asked: Asked) -> Tensor:
    """The target of each sequence, which must be its own: methods run sequences again, and in other orders."""
    count = asked.layout.sequences
    rows = torch.arange(count)
    with torch.no_grad():
        own = asked.own()
        check_finite(own)
        source = asked.runs.source
        again = torch.cat([rows.flip(0), rows])
        values = (
            None
            if source is None or isinstance(source, SignalSource)
            else source.actual[again.to(source.actual.device)]
        )
        other = run_again(asked, values, again)
    allowed = torch.finfo(own.dtype).eps ** 0.5 * max(1.0, float(own.abs().max()))
    apart = float((other - own[again.to(own.device)]).abs().max())
    if not apart <= allowed:
        raise ValueError(
            f"the model must give a sequence the same target whatever stands beside it; sequences in another order "
            f"differ by {apart:.3g}. Say batch_first if the input's dims were taken for each other, or hand over "
            "arguments that have a place for each sequence."
        )
    return own


def run_again(asked: Asked, values: Tensor | None, rows: Tensor) -> Tensor:
    """A run on other rows than the caller's own, which some models cannot do."""
    try:
        return asked.runs(values, rows)
    except (RuntimeError, IndexError) as error:
        raise ValueError(
            f"the model must run on its sequences in another order, each twice; it raised {type(error).__name__}: "
            f"{' '.join(str(error).split())}. Say batch_first if the input's dims were taken for each other, and hand "
            "over what the model keeps between calls."
        ) from error


def check_weights(model: nn.Module) -> None:
    """Raise where autograd cannot use the model's weights."""
    if any(weight.is_inference() for weight in model.parameters()):
        raise ValueError(
            "the model's weights must be known to autograd; some were made under torch.inference_mode(). Make or load "
            "the model outside of it."
        )


def check_finite(*values: Tensor | None) -> None:
    if any(value is not None and bool(torch.isinf(value).any() | torch.isnan(value).any()) for value in values):
        raise ValueError(
            "the target and its gradient must be finite; NaN or infinity came. Look at inputs and baseline."
        )


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def described(target: Target) -> str:
    """The target as an attribute."""
    if callable(target):
        return str(getattr(target, "__name__", type(target).__name__))
    if isinstance(target, Unit):
        return f"{target.signal} of unit {target.unit} at step {target.time}"
    if target is None:
        return "the output"
    at = f" at step {target[0]}" if isinstance(target, tuple) else ""
    number = target[1] if isinstance(target, tuple) else target
    return (f"class {number}" if is_whole(number) else "a class for each sequence") + at
