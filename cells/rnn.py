"""The plain (Elman) RNN as torch computes it."""

# ruff: noqa: F722 (shapes in annotations are jaxtyping's)
from collections.abc import Sequence
from typing import Any, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from ..signals import Signal, Tap, no_tap
from .abstract import AbstractCell, Advance
from .affine import joint_affine, summed
from .scan import Remember, step

Nonlinearity = Literal["tanh", "relu"]


@final
class RNNCell(AbstractCell):
    """Plain recurrent network: `h_t = tanh(W_ih x_t + b_ih + W_hh h_{t-1} + b_hh)`, or relu in place of tanh.

    It has no gate, and so no retention; its hidden state is bounded with tanh and unbounded with relu. Weights have
    the names and shapes of `torch.nn.RNNCell`.

    Parameters
    ----------
    input_size : width of the input.
    hidden_size : number of units.
    bias : whether both biases are there.
    nonlinearity : the squasher, `"tanh"` or `"relu"`.

    References
    ----------
    Elman (1990), doi:10.1207/s15516709cog1402_1.

    >>> cell = RNNCell(1, 1, bias=False, nonlinearity="relu")
    >>> for weight in cell.parameters():
    ...     _ = nn.init.ones_(weight)
    >>> cell(torch.ones(1), (torch.full((1,), 2.0),))[0].item()  # relu(1 + 2)
    3.0
    """

    retention = "none"
    states = ("hidden_state",)
    gates = ("hidden_state",)

    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias_ih: nn.Parameter | None
    bias_hh: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        bias: bool = True,
        nonlinearity: Nonlinearity = "tanh",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"nonlinearity of RNNCell must be 'tanh' or 'relu'; {nonlinearity!r} came.")
        self.nonlinearity = nonlinearity
        bounds = (-1, 1) if nonlinearity == "tanh" else None
        self.signals = (Signal("hidden_state", "h", role="memory", bounds=bounds),)
        shapes = {
            "weight_ih": (hidden_size, input_size),
            "weight_hh": (hidden_size, hidden_size),
            "bias_ih": (hidden_size,) if bias else None,
            "bias_hh": (hidden_size,) if bias else None,
        }
        self.add_weights(shapes, device=device, dtype=dtype)

    def forward(
        self,
        x: Float[Tensor, "*batch input"],
        state: tuple[Float[Tensor, "*batch unit"]],
        tap: Tap = no_tap,
        remember: Remember = step,
    ) -> tuple[Float[Tensor, "*batch unit"]]:
        self.check(x, state)
        (h,) = state
        a = joint_affine(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        a = tap("hidden_state_preactivation", a)
        h = tap("hidden_state", a.tanh() if self.nonlinearity == "tanh" else a.relu())
        return (h,)

    def steps(self, x: Float[Tensor, "time sequence input"]) -> tuple[Sequence[Any], Advance]:
        recurrent, squash = self.weight_hh.t(), torch.tanh if self.nonlinearity == "tanh" else torch.relu

        def advance(x: Tensor, state: tuple[Tensor, ...], tap: Tap) -> tuple[Tensor, ...]:
            (h,) = state
            a = tap("hidden_state_preactivation", torch.addmm(x, h, recurrent))
            return (tap("hidden_state", squash(a)),)

        return linear(x, self.weight_ih, summed(self.bias_ih, self.bias_hh)).unbind(0), advance

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, nonlinearity={self.nonlinearity!r}"
