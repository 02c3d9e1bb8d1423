"""Several copies of a batch in one: inputs repeated along their sequences, outputs taken apart again.

Copies stand side by side, sequence by sequence: row `s * copies + c` is copy `c` of sequence `s`. So what was sorted by
length stays sorted, and copy `c` of anything is every `copies`-th row from `c` on.
"""

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from itertools import islice, product
from numbers import Number
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

DEEPEST = 3  # the sequences are one of so many leading dims
LAYOUTS = 24  # ways to repeat the inputs that are tried


class Split(NamedTuple):
    """Where the copies stand in one leaf of an output: along `dim`, in runs of `inner` entries; or it is for all."""

    dim: int | None
    inner: int = 1


def each_leaf(value: Any, act: Callable[[Any], Any]) -> Any:
    """The same structure with `act` of every leaf: tensors, arrays, packed sequences, lists of numbers, others."""
    if isinstance(value, (Tensor, np.ndarray, PackedSequence, str)) or _is_numbers(value):
        return act(value)
    if isinstance(value, dict):
        items = {key: each_leaf(entry, act) for key, entry in value.items()}
        return items if type(value) is dict else type(value)(**items)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(each_leaf(entry, act) for entry in value))
    if isinstance(value, (list, tuple)):
        return type(value)(each_leaf(entry, act) for entry in value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {field.name: each_leaf(getattr(value, field.name), act) for field in fields(value) if field.init}
        return replace(value, **changed)
    return act(value)


def leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    each_leaf(value, lambda leaf: found.append(leaf) or leaf)  # type: ignore[func-returns-value]
    return found


def _is_numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) > 0 and all(isinstance(entry, Number) for entry in value)


def layouts(inputs: Any, rows: int, given: int | None) -> Iterator[list[int | None]]:
    """Dims along which each leaf of the inputs may be repeated, None for those that are for all sequences."""
    choices = [_candidates(leaf, rows, given) for leaf in leaves(inputs)]
    return islice((list(dims) for dims in product(*choices)), LAYOUTS)


def _candidates(leaf: Any, rows: int, given: int | None) -> list[int | None]:
    if isinstance(leaf, PackedSequence):
        return [0 if int(leaf.batch_sizes[0]) == rows else None]
    if _is_numbers(leaf):
        return [0 if len(leaf) == rows else None]
    if not isinstance(leaf, (Tensor, np.ndarray)):
        return [None]
    dims = range(leaf.ndim) if given is None else [given % leaf.ndim] if -leaf.ndim <= given < leaf.ndim else []
    found: list[int | None] = [dim for dim in islice(dims, DEEPEST) if leaf.shape[dim] == rows]
    return found or [None]


def repeated(inputs: Any, dims: list[int | None], copies: int) -> Any:
    """The inputs with every sequence `copies` times."""
    place = iter(dims)
    return each_leaf(inputs, lambda leaf: _repeat(leaf, next(place), copies))


def _repeat(leaf: Any, dim: int | None, copies: int) -> Any:
    if dim is None:
        return leaf
    if isinstance(leaf, PackedSequence):
        return _packed(leaf, leaf.data.repeat_interleave(copies, 0), leaf.batch_sizes * copies, copies)
    if isinstance(leaf, Tensor):
        return leaf.repeat_interleave(copies, dim)
    if isinstance(leaf, np.ndarray):
        return leaf.repeat(copies, dim)
    return type(leaf)(entry for entry in leaf for _ in range(copies))


def _packed(leaf: PackedSequence, data: Tensor, sizes: Tensor, copies: int) -> PackedSequence:
    if leaf.sorted_indices is None or leaf.unsorted_indices is None:
        return PackedSequence(data, sizes)
    several = torch.arange(copies, device=leaf.sorted_indices.device)
    orders = [(order[:, None] * copies + several).flatten() for order in (leaf.sorted_indices, leaf.unsorted_indices)]
    return PackedSequence(data, sizes, *orders)


def splits(one: Any, many: Any, copies: int) -> list[list[Split]] | None:
    """For each leaf of an output, how its copies may stand in that of the repeated batch; None where they cannot."""
    ones, manys = leaves(one), leaves(many)
    if len(ones) != len(manys):
        return None
    found = [_splits(first, several, copies) for first, several in zip(ones, manys, strict=True)]
    return found if all(found) else None


def _splits(one: Any, many: Any, copies: int) -> list[Split]:
    if type(one) is not type(many):
        return []
    if isinstance(one, PackedSequence):
        return [Split(0)] if len(many.data) == copies * len(one.data) else []
    if _is_numbers(one):
        return [Split(0)] if len(many) == copies * len(one) else [Split(None)]
    if not isinstance(one, (Tensor, np.ndarray)):
        return [Split(None)]
    if one.shape == many.shape:
        return [Split(None)]
    if one.ndim != many.ndim:
        return []
    apart = [dim for dim in range(one.ndim) if many.shape[dim] != one.shape[dim]]
    if len(apart) != 1 or many.shape[apart[0]] != copies * one.shape[apart[0]]:
        return []
    size = one.shape[apart[0]]
    inner = [1, *(n for n in range(2, size + 1) if size % n == 0)] if size <= 100_000 else [1]
    return [Split(apart[0], n) for n in inner]


def copy_of(output: Any, how: list[Split], copies: int, which: int) -> Any:
    """One copy out of the output of the repeated batch."""
    place = iter(how)
    return each_leaf(output, lambda leaf: take(leaf, next(place), copies, which))


def take(leaf: Any, how: Split, copies: int, which: int) -> Any:
    if how.dim is None:
        return leaf
    if isinstance(leaf, PackedSequence):
        data, sizes = leaf.data[which::copies], torch.div(leaf.batch_sizes, copies, rounding_mode="floor")
        if leaf.sorted_indices is None or leaf.unsorted_indices is None:
            return PackedSequence(data, sizes)
        orders = (
            torch.div(order[::copies], copies, rounding_mode="floor")
            for order in (leaf.sorted_indices, leaf.unsorted_indices)
        )
        return PackedSequence(data, sizes, *orders)
    if not isinstance(leaf, (Tensor, np.ndarray)):
        return type(leaf)(leaf[which::copies])
    shape = leaf.shape
    runs = shape[how.dim] // (copies * how.inner)
    apart = leaf.reshape(*shape[: how.dim], runs, copies, how.inner, *shape[how.dim + 1 :])
    mine = apart[(slice(None),) * (how.dim + 1) + (which,)]
    return mine.reshape(*shape[: how.dim], runs * how.inner, *shape[how.dim + 1 :])


def alike(first: Any, second: Any, tolerance: float) -> bool:
    """Whether two outputs of one structure have the same numbers, to a tolerance relative to the largest."""
    ones, others = leaves(first), leaves(second)
    return len(ones) == len(others) and all(map(lambda a, b: same(a, b, tolerance), ones, others))


def same(one: Any, other: Any, tolerance: float) -> bool:
    if isinstance(one, PackedSequence) and isinstance(other, PackedSequence):
        return torch.equal(one.batch_sizes, other.batch_sizes) and same(one.data, other.data, tolerance)
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray) and one.dtype.kind in "fiub":
        one, other = torch.from_numpy(np.ascontiguousarray(one)), torch.from_numpy(np.ascontiguousarray(other))
    if not (isinstance(one, Tensor) and isinstance(other, Tensor)):
        return _equal(one, other)
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if not one.is_floating_point() or not one.numel():
        return torch.equal(one, other)
    finite = one.isfinite()
    if not torch.equal(finite, other.isfinite()):
        return False
    a, b = (torch.where(finite, part, 0).detach().double() for part in (one, other))
    return bool((a - b).abs().max() <= tolerance * max(float(a.abs().max()), 1e-30))


def _equal(one: Any, other: Any) -> bool:
    """Whether two leaves that are no tensors are equal; things that cannot say so count as equal."""
    if isinstance(one, (str, Number, list, tuple)) or one is None:
        return bool(one == other)
    return type(one) is type(other)
