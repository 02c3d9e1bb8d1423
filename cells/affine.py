"""Matrix products of a cell: one step in a training loop, or all steps of a recording at once.

For many rows and nothing to differentiate, products go to oneDNN (where torch has it), which is about twice as fast as
the BLAS behind `torch.nn.functional.linear` on some processors. The operator is not public: it is looked up and checked
once, and everything falls back to `linear` where it is missing or disagrees.
"""

# ruff: noqa: F722 (shapes in annotations are jaxtyping's)
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from ..signals import Tap, no_tap

MANY_ROWS = 256
"""Rows from which the faster product pays for its set-up."""

Product = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def affine(
    x: Float[Tensor, "*batch input"], weight: Float[Tensor, "row input"], bias: Float[Tensor, " row"] | None
) -> Float[Tensor, "*batch row"]:
    """`W x + b` for any leading dims.

    >>> affine(torch.tensor([1.0, 2.0]), torch.tensor([[3.0, 4.0]]), torch.tensor([5.0]))
    tensor([16.])
    """
    return (onednn() if _many(x, weight, bias) else linear)(x, weight, bias)


def joint_affine(
    x: Float[Tensor, "*batch input"],
    h: Float[Tensor, "*batch output"],
    weight_ih: Float[Tensor, "row input"],
    weight_hh: Float[Tensor, "row output"],
    bias_ih: Float[Tensor, " row"] | None,
    bias_hh: Float[Tensor, " row"] | None,
) -> Float[Tensor, "*batch row"]:
    """`W_ih x + b_ih + W_hh h + b_hh`; for many rows as a single product.

    >>> one = torch.ones(1, 1)
    >>> joint_affine(torch.tensor([2.0]), torch.tensor([3.0]), one, 10 * one, None, None)
    tensor([32.])
    """
    if not (_many(x, weight_ih, bias_ih) and _many(h, weight_hh, bias_hh)):
        return linear(x, weight_ih, bias_ih) + linear(h, weight_hh, bias_hh)
    return onednn()(torch.cat([x, h], -1), torch.cat([weight_ih, weight_hh], -1), summed(bias_ih, bias_hh))


def summed(bias_ih: Tensor | None, bias_hh: Tensor | None) -> Tensor | None:
    """Both biases as one."""
    return bias_hh if bias_ih is None else bias_ih if bias_hh is None else bias_ih + bias_hh


def side_by_side(tap: Tap, names: Sequence[str], values: Tensor) -> Tensor:
    """Values that stand side by side in equal parts, each through the tap by its name, and as one piece again.

    >>> side_by_side(lambda name, value: 10 * value if name == "b" else value, ("a", "b"), torch.tensor([1.0, 2.0]))
    tensor([ 1., 20.])
    """
    if tap is no_tap:
        return values
    parts = values.chunk(len(names), dim=-1)  # what was tapped is gone on with, so that gradients pass it
    return torch.cat([tap(name, part) for name, part in zip(names, parts, strict=True)], dim=-1)


def _many(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    rows = x.numel() >= MANY_ROWS * x.shape[-1]
    plain = x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32
    return rows and plain and not (torch.is_grad_enabled() and any(_differentiable(x, weight, bias)))


def _differentiable(*tensors: Tensor | None) -> Iterator[bool]:
    return (tensor.requires_grad for tensor in tensors if tensor is not None)


@cache
def onednn() -> Product:
    """torch's oneDNN product if this build has one that agrees with `linear`, else `linear`."""
    try:
        product = torch.ops.mkldnn._linear_pointwise

        def fast(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return product(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]

        ramp = torch.linspace(-1, 1, 24)
        x, weight, bias = ramp.view(6, 4), ramp[:12].view(3, 4), ramp[:3]
        agrees = all(torch.allclose(fast(x, weight, b), linear(x, weight, b), atol=1e-6) for b in (None, bias))
    except (AttributeError, RuntimeError, TypeError):
        return linear
    return fast if agrees else linear
