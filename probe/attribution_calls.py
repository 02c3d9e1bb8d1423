"""How a model is called on other rows than it was given: which dims of its arguments are sequence and time."""

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from ..cells import Recurrent
from .labels import check_lengths

Key = int | str


class Seen(NamedTuple):
    """A call of a part of the model: sequences, steps, and what of the layout it tells."""

    sequences: int
    steps: int
    lengths: Tensor | None
    batch_first: bool | None


class Call(NamedTuple):
    """The arguments of one call of a model."""

    args: list[Any]
    kwargs: dict[str, Any]

    def at(self, key: Key) -> Any:
        return self.args[key] if isinstance(key, int) else self.kwargs[key]

    def put(self, key: Key, value: Any) -> None:
        if isinstance(key, int):
            self.args[key] = value
        else:
            self.kwargs[key] = value

    def first_input(self) -> Key:
        """Where the first tensor or packed sequence stands."""
        for key, value in [*enumerate(self.args), *self.kwargs.items()]:
            if isinstance(value, (Tensor, PackedSequence)):
                return key  # type: ignore[return-value]
        came = ", ".join(type(value).__name__ for value in (*self.args, *self.kwargs.values())) or "nothing"
        raise TypeError(
            f"inputs must hold a tensor or a PackedSequence; {came} came. A tuple holds the model's arguments."
        )


class Watch:
    """For a `with` block: what the recurrent parts of a model and its embeddings are called with."""

    def __init__(self, parts: Iterable[nn.Module], others: Iterable[nn.Module]) -> None:
        self.parts, self.others = list(parts), list(others)
        self.seen: dict[int, list[Seen]] = {}
        self.given: dict[int, list[tuple[Any, Any]]] = {}
        self.stack = ExitStack()

    def __enter__(self) -> "Watch":
        for part in self.parts:
            self.stack.callback(part.register_forward_pre_hook(self.before, with_kwargs=True).remove)
        for other in self.others:
            self.stack.callback(other.register_forward_hook(self.after).remove)
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def before(self, part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = next((v for v in (*args, *kwargs.values()) if isinstance(v, (Tensor, PackedSequence))), None)
        if given is not None:
            self.seen.setdefault(id(part), []).append(seen(part, given))

    def after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self.given.setdefault(id(module), []).append((args[0] if args else None, output))

    def first(self) -> tuple[nn.Module, list[Seen]] | None:
        return next(((part, self.seen[id(part)]) for part in self.parts if id(part) in self.seen), None)


def seen(part: nn.Module, given: Tensor | PackedSequence) -> Seen:
    """What a call of a recurrent module tells: stacks read (time, sequence, feature), cells one step."""
    if isinstance(given, PackedSequence):
        sizes = given.batch_sizes
        ends = torch.stack([sizes > row for row in range(int(sizes[0]))]).sum(1)
        if given.unsorted_indices is not None:
            ends = ends[given.unsorted_indices.cpu()]
        return Seen(int(sizes[0]), len(sizes), ends, None)
    stack = isinstance(part, (nn.RNNBase, Recurrent))
    if given.dim() < (3 if stack else 2):
        raise ValueError(
            f"inputs must be a batch of sequences; one without that dimension came to {type(part).__name__}, of shape "
            f"{tuple(given.shape)}. Add one of size 1."
        )
    if not stack:
        return Seen(len(given), 1, None, None)
    batch_first = bool(part.batch_first)
    sequences, steps = given.shape[:2] if batch_first else (given.shape[1], given.shape[0])
    return Seen(sequences, steps, None, batch_first)


class Layout(NamedTuple):
    """Sequences and steps of a call; `batch_first` is of the model's own input, which may be packed."""

    sequences: int
    steps: int
    lengths: Tensor
    batch_first: bool
    sorting: Tensor
    """What sequences are sorted by, the largest first, as models that pack them may need it."""

    @property
    def ragged(self) -> bool:
        return bool((self.lengths < self.steps).any())


def layout_of(call: Call, key: Key, calls: list[Seen], lengths: Any, batch_first: bool | None) -> Layout:
    """What is sequence and what time in the model's input, from what came to its recurrent module."""
    given, first = call.at(key), calls[0]
    if isinstance(given, PackedSequence):
        if lengths is not None:
            raise ValueError("lengths must be left out where the input is packed; both came. The packing knows them.")
        own = seen(nn.Module(), given)
        ends = torch.as_tensor(own.lengths)
        return Layout(own.sequences, own.steps, ends, True, ends)
    if given.dim() < 2 or 0 in given.shape[:2]:
        raise ValueError(
            f"inputs must hold at least one sequence of at least one step; shape {tuple(given.shape)} came."
        )
    read = sum(one.steps for one in calls)
    shape = tuple(given.shape[:2])
    if batch_first is None:
        batch_first = orientation(shape, first.sequences, read, first.batch_first)
    sequences, steps = shape if batch_first else shape[::-1]
    packed = first.lengths if first.lengths is not None and len(first.lengths) == sequences else None
    if lengths is not None:
        ends = torch.from_numpy(check_lengths(lengths, sequences, steps))
    elif packed is not None and (read == steps or is_argument(packed, call)):
        ends = packed
    else:
        ends = torch.full((sequences,), steps)
    if int(ends.min()) < 1:
        raise ValueError("every sequence must have at least one step; one of length 0 came. Leave it out.")
    return Layout(sequences, steps, ends, batch_first, ends if packed is None else packed)


def is_argument(lengths: Tensor, call: Call) -> bool:
    """Whether the model is told these lengths: then they count steps of its input, which may all be shorter."""
    for value in (*call.args, *call.kwargs.values()):
        if isinstance(value, (Tensor, np.ndarray, list, tuple)) and len(value) == len(lengths):
            found = value.tolist() if isinstance(value, (Tensor, np.ndarray)) else list(value)
            if found == lengths.tolist():
                return True
    return False


def orientation(shape: tuple[int, ...], sequences: int, steps: int, own: bool | None) -> bool:
    """Whether the input has sequences first: by both sizes, or where steps differ by that of sequences alone."""
    fits = [first for first, wanted in ((True, (sequences, steps)), (False, (steps, sequences))) if shape == wanted]
    if not fits and shape.count(sequences) == 1:
        fits = [shape[0] == sequences]
    if len(fits) == 1:
        return fits[0]
    if fits and own is not None:
        return own
    raise ValueError(
        f"batch_first must say what the first two dims of the input, {shape}, are; the recurrent module reads "
        f"{sequences} sequences of {steps} steps. Add batch_first=True if sequences come first, else False."
    )


def taken(value: Any, rows: Tensor, sequences: int, dim: int) -> Any:
    """An argument for other rows: what has a place for each sequence is picked, in `dim` if that fits."""
    if isinstance(value, PackedSequence):
        padded, lengths = pad_packed_sequence(value, batch_first=True)
        return packed(padded[rows.to(padded.device)], lengths[rows])
    if isinstance(value, (Tensor, np.ndarray)):
        places = [place for place in (dim, 1 - dim) if value.ndim > place and value.shape[place] == sequences]
        if value.ndim == 0 or not places:
            return value
        if isinstance(value, np.ndarray):
            return value.take(rows.numpy(), places[0])
        return value.index_select(places[0], rows.to(value.device))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(taken(entry, rows, sequences, dim) for entry in value))
    if isinstance(value, (list, tuple)):
        if len(value) == sequences and not any(isinstance(entry, (Tensor, PackedSequence)) for entry in value):
            return type(value)(value[row] for row in rows.tolist())
        return type(value)(taken(entry, rows, sequences, dim) for entry in value)
    if isinstance(value, dict):
        return {key: taken(entry, rows, sequences, dim) for key, entry in value.items()}
    return value


def packed(padded: Tensor, lengths: Tensor) -> PackedSequence:
    """Rows (sequence, time, ...) packed; they come sorted, the longest first."""
    return pack_padded_sequence(padded, lengths.cpu(), batch_first=True, enforce_sorted=True)
