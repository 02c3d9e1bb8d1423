"""What an attribution explains: one number per sequence, read from a model's output or inside its recurrence."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from .layout import listed


class Unit(NamedTuple):
    """One unit's signal at one step of each sequence, as a target of `attribution`."""

    signal: str
    unit: int
    time: int
    layer: int | None
    direction: str | None
    module: str | None


Target = int | tuple[int, Any] | Sequence[int] | Callable[[Any], Tensor] | Unit | None


def unit(
    signal: str,
    *,
    unit: int,
    time: int = -1,
    layer: int | None = None,
    direction: str | None = None,
    module: str | None = None,
) -> Unit:
    """A unit's gate or state at a step, as the `target` of `attribution`: what in the input made it what it is?

    Parameters
    ----------
    signal
        Name of a signal of the cell, such as `"forget_gate"` or `"cell_state"`; with `"_preactivation"` behind it, a
        gate before its squasher.
    unit
        Which unit, from 0.
    time
        Which step of each sequence; negative numbers count back from its own last step.
    layer, direction
        Of which layer and direction; may be left out where there is one.
    module
        Path of the recurrent module; may be left out where there is one.

    Returns
    -------
    Unit
        A named tuple of these.

    Raises
    ------
    TypeError
        If `signal` is no text, or `unit` or `time` no whole number.

    Examples
    --------
    >>> unit("cell_state", unit=3).time
    -1
    """
    if not isinstance(signal, str):
        raise TypeError(
            f"signal must be the name of a signal; {type(signal).__name__} came. Give for instance 'cell_state'."
        )
    for name, number in (("unit", unit), ("time", time)):
        if not is_whole(number):
            raise TypeError(
                f"{name} must be one whole number; {type(number).__name__} came. Name one step of one unit."
            )
    return Unit(signal, int(unit), int(time), layer, direction, module)


def is_whole(number: object) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


class Reader:
    """Reads the target from outputs of the model: `reader(output, rows, batch_first)` gives one number for each row."""

    def __init__(self, target: Target, lengths: Tensor) -> None:
        self.lengths, self.sequences = lengths, len(lengths)
        self.function: Callable[[Any], Any] | None = None
        self.time: int | None = None
        self.classes: Tensor | None = None
        if target is None or isinstance(target, Unit):
            return
        if callable(target):
            self.function = target
            return
        if isinstance(target, tuple):
            if len(target) != 2 or not is_whole(target[0]):
                raise ValueError(
                    f"a target that is a tuple must be (time, class); {said(target)} came. Classes that differ from "
                    "sequence to sequence come as a list."
                )
            self.time, target = int(target[0]), target[1]
        self.classes = self.class_of_each(target)

    def class_of_each(self, target: Any) -> Tensor:
        """The class to read for each sequence."""
        if is_whole(target):
            return torch.full((self.sequences,), int(target))
        values = target.detach().cpu().numpy() if isinstance(target, Tensor) else target
        try:
            array = np.asarray(values)
        except ValueError:
            array = np.asarray(None)
        if array.dtype.kind not in "iu" or array.ndim > 1 or array.size not in (1, self.sequences):
            raise ValueError(
                "target must be a class, one class for each sequence, (time, class), a function of the output that "
                f"gives one number per sequence, gatescope.unit(...) or None; {said(target)} came for {self.sequences} "
                "sequences."
            )
        return torch.from_numpy(np.broadcast_to(array.reshape(-1), (self.sequences,)).astype(np.int64))

    def __call__(self, output: Any, rows: Tensor, batch_first: bool) -> Tensor:
        if self.function is not None:
            return self.checked(self.called(output, len(rows)), len(rows))
        shown = first_tensor(output)
        if isinstance(shown, PackedSequence):
            shown, batch_first = pad_packed_sequence(shown, batch_first=True)[0], True
        if shown.dim() == 3:
            return self.at_step(shown, rows, batch_first)
        if self.time is not None:
            raise ValueError(
                f"target (time, class) needs an output (sequence, time, class); shape {tuple(shown.shape)} came. Give "
                "the class alone."
            )
        if self.classes is None or shown.dim() != 2:
            return self.checked(shown, len(rows))
        if len(shown) != len(rows):
            raise misfit(shown, len(rows))
        return self.picked(shown, rows)

    def called(self, output: Any, rows: int) -> Any:
        """What the caller's function says of an output, which holds other rows than the caller knows."""
        if self.function is None or rows == self.sequences:
            return None if self.function is None else self.function(output)
        try:
            return self.function(output)
        except (IndexError, RuntimeError, ValueError) as error:
            raise ValueError(
                f"target must be a function for any number of sequences, in any order; with {rows} in the place of "
                f"{self.sequences} it raised {type(error).__name__}. Give classes that differ as a list instead."
            ) from error

    def at_step(self, shown: Tensor, rows: Tensor, batch_first: bool) -> Tensor:
        """The class's number at the step asked for, counted within each sequence."""
        if self.time is None:
            raise ValueError(
                f"target must be (time, class) for an output that has steps, of shape {tuple(shown.shape)}; "
                f"{'none' if self.classes is None else 'a class alone'} came. Time -1 is each sequence's last step."
            )
        if not batch_first:
            shown = shown.transpose(0, 1)
        if len(shown) != len(rows):
            raise misfit(shown, len(rows))
        steps = steps_at(self.time, self.lengths)[rows.cpu()].to(shown.device)
        return self.picked(shown[torch.arange(len(rows), device=shown.device), steps], rows)

    def picked(self, shown: Tensor, rows: Tensor) -> Tensor:
        if self.classes is None:
            raise ValueError(
                f"target must be (time, class) for an output with classes, {shown.shape[-1]} of them; no class came."
            )
        classes, width = self.classes[rows.cpu()].to(shown.device), shown.shape[-1]
        if int(classes.min()) < -width or int(classes.max()) >= width:
            wrong = int(classes.max()) if int(classes.max()) >= width else int(classes.min())
            raise ValueError(f"target must be one of the output's {width} classes, 0 to {width - 1}; {wrong} came.")
        return shown.gather(1, (classes % width).unsqueeze(1)).squeeze(1)

    def checked(self, numbers: Any, rows: int) -> Tensor:
        """What a function gave, or an output that holds one number per sequence already."""
        if isinstance(numbers, Tensor) and numbers.numel() == rows and numbers.dim() in (1, 2) and len(numbers) == rows:
            if not numbers.is_floating_point():
                raise ValueError(
                    f"target must be a number that can change little by little; {numbers.dtype} came. Take the score, "
                    "not the class that has the highest."
                )
            return numbers.reshape(rows)
        if self.function is None:
            raise misfit(numbers, rows)
        raise ValueError(
            f"target must give one number for each of the {rows} sequences of an output; {said(numbers)} came. Take "
            "for instance output[:, 3]."
        )


def misfit(shown: Any, rows: int) -> ValueError:
    return ValueError(
        f"the target must fit the model's output, which must hold {rows} sequences; {said(shown)} came. Give target "
        "as a class, as (time, class), or as a function of the output that gives one number per sequence."
    )


def steps_at(time: int, lengths: Tensor) -> Tensor:
    """The step of each sequence that `time` means; one sentence where a sequence does not have it."""
    shortest = int(lengths.min())
    if not -shortest <= time < shortest:
        raise ValueError(
            f"time of the target must be a step of every sequence; {time} came, the shortest has {shortest}. Negative "
            "numbers count back from each sequence's last step."
        )
    return lengths + time if time < 0 else torch.full_like(lengths, time)


def first_tensor(output: Any) -> Tensor | PackedSequence:
    """The output itself, or what stands first in a tuple or list, as torch's recurrent modules give it."""
    while isinstance(output, (tuple, list)) and not isinstance(output, PackedSequence) and output:
        output = output[0]
    if isinstance(output, (Tensor, PackedSequence)):
        return output
    raise ValueError(
        f"target must be a function of the output where that is no tensor; {type(output).__name__} came out of the "
        "model. Give for instance lambda output: output['logits'][:, 3]."
    )


def said(value: Any) -> str:
    """A value as it stands in a message."""
    if isinstance(value, (Tensor, np.ndarray)):
        return f"an array of shape {tuple(value.shape)} and type {value.dtype}"
    text = repr(value)
    return text if len(text) <= 60 else f"{type(value).__name__} {text[:50]}..."


def indices(name: str, wanted: Any, count: int, *, negative: bool = True) -> list[int]:
    """Which steps or units are meant by a whole number, several of them, or a slice; all by default."""
    if wanted is None:
        return list(range(count))
    if isinstance(wanted, slice):
        found = list(range(count))[wanted]
    else:
        numbers = np.atleast_1d(np.asarray(wanted)).tolist()
        if not numbers or not all(is_whole(number) for number in numbers):
            raise TypeError(f"{name} must be a whole number, several, or a slice; {said(wanted)} came.")
        outside = [n for n in numbers if not (-count if negative else 0) <= n < count]
        if outside:
            hint = "" if negative else " Negative numbers need sequences of one length."
            raise ValueError(f"{name} must lie between 0 and {count - 1}; {listed(outside)} came.{hint}")
        found = [number % count for number in numbers]
    if not found or len({*found}) != len(found):
        raise ValueError(f"{name} must name at least one, each once; {said(wanted)} came. There are {count}.")
    return found
