"""The one recurrence that gated memories share: `memory_t = keep_t * memory_{t-1} + write_t`."""

# ruff: noqa: F722 (shapes in annotations are jaxtyping's)
from math import isqrt
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

BLOCKED_UP_TO = 512
"""Width (sequences times units) up to which the scan is bound by the number of calls and goes in blocks."""
BLOCKED_FROM = 64
"""Steps above which blocks pay."""


@runtime_checkable
class Remember(Protocol):
    """How a cell carries its memory on: `step` by one step, `linear_scan` through all steps."""

    def __call__(self, keep: Tensor, write: Tensor, memory: Tensor, /) -> Tensor: ...


def step(
    keep: Float[Tensor, "*batch unit"], write: Float[Tensor, "*batch unit"], memory: Float[Tensor, "*batch unit"]
) -> Float[Tensor, "*batch unit"]:
    """Memory after one step, `keep * memory + write`.

    >>> step(torch.tensor([0.5]), torch.tensor([1.0]), torch.tensor([4.0]))
    tensor([3.])
    """
    return keep * memory + write


def linear_scan(
    keep: Float[Tensor, "time sequence unit"],
    write: Float[Tensor, "time sequence unit"],
    initial: Float[Tensor, "sequence unit"],
    *,
    backward: bool = False,
) -> Float[Tensor, "time sequence unit"]:
    """Memory after every step of `memory_t = keep_t * memory_{t-1} + write_t`.

    Narrow and long recurrences go in about `sqrt(T)` blocks that are scanned side by side and then chained. Nothing is
    divided by a product of keep factors, so factors of exactly 0 and products that underflow are safe.

    Parameters
    ----------
    keep : factor on the old memory at each step, dims (time, sequence, unit).
    write : what each step adds, same dims.
    initial : memory before the first step, dims (sequence, unit).
    backward : whether the first step is the last in time; the result is on the same time axis as the arguments.

    Returns
    -------
    Memory after each step, dims (time, sequence, unit); differentiable in all three arguments.

    >>> keep, write = torch.tensor([0.5, 1.0, 0.0]), torch.tensor([1.0, 1.0, 7.0])
    >>> linear_scan(keep.view(3, 1, 1), write.view(3, 1, 1), torch.tensor([[4.0]])).flatten()
    tensor([3., 4., 7.])
    """
    dtype = torch.promote_types(torch.promote_types(keep.dtype, write.dtype), initial.dtype)
    keep, write, initial = keep.to(dtype), write.to(dtype), initial.to(dtype)
    steps = write.shape[0]
    if steps > BLOCKED_FROM and write[0].numel() <= BLOCKED_UP_TO:
        return _blocked(keep.flip(0), write.flip(0), initial).flip(0) if backward else _blocked(keep, write, initial)
    return _loop(keep, write, initial, backward=backward)


def _loop(keep: Tensor, write: Tensor, initial: Tensor, *, backward: bool = False) -> Tensor:
    """The recurrence step by step; leading dims after the first are free."""
    order = slice(None, None, -1) if backward else slice(None)
    memory = initial
    if torch.is_grad_enabled() and (keep.requires_grad or write.requires_grad or initial.requires_grad):
        memories = []
        for keep_now, write_now in zip(keep.unbind(0)[order], write.unbind(0)[order], strict=True):
            memory = torch.addcmul(write_now, keep_now, memory)
            memories.append(memory)
        return torch.stack(memories[order])
    result = write.clone(memory_format=torch.contiguous_format)
    for keep_now, result_now in zip(keep.unbind(0)[order], result.unbind(0)[order], strict=True):
        memory = result_now.addcmul_(keep_now, memory)
    return result


def _blocked(keep: Tensor, write: Tensor, initial: Tensor) -> Tensor:
    """Scan equal blocks side by side from zero memory, chain their ends, then add what entered each block."""
    steps = write.shape[0]
    length = isqrt(steps)
    count = steps // length
    head = count * length
    keep_blocks = keep[:head].reshape(count, length, *keep.shape[1:]).transpose(0, 1)
    write_blocks = write[:head].reshape(count, length, *write.shape[1:]).transpose(0, 1)
    nothing = torch.zeros_like(keep_blocks)
    kept = _loop(keep_blocks, nothing, torch.ones_like(keep_blocks[0]))
    local = _loop(keep_blocks, write_blocks, torch.zeros_like(write_blocks[0]))
    ends = _loop(kept[-1], local[-1], initial)
    entering = torch.cat([initial.unsqueeze(0), ends[:-1]])
    memory = torch.addcmul(local, kept, entering).transpose(0, 1).flatten(0, 1)
    if head == steps:
        return memory
    return torch.cat([memory, _loop(keep[head:], write[head:], memory[-1])])
