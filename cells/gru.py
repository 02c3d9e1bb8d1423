"""The GRU as torch computes it: the reset gate acts after the recurrent product, the update gate keeps."""

# ruff: noqa: F722 (shapes in annotations are jaxtyping's)
from collections.abc import Sequence
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from ..signals import Signal, Tap, no_tap
from .abstract import AbstractCell, Advance
from .affine import affine, side_by_side
from .scan import Remember, step

PREACTIVATIONS = ("reset_gate_preactivation", "update_gate_preactivation")


@final
class GRUCell(AbstractCell):
    """Gated recurrent unit: `h_t = z_t h_{t-1} + (1 - z_t) n_t`; an update gate near 1 *keeps*.

    Weights have the names, shapes and gate order (reset, update, candidate) of `torch.nn.GRUCell`. The paper's form
    has the opposite convention in some editions, and resets `h_{t-1}` before the recurrent product; torch resets
    `W_hn h_{t-1} + b_hn`, which is therefore a signal of its own, `candidate_recurrent`.

    Parameters
    ----------
    input_size : width of the input.
    hidden_size : number of units.
    bias : whether both biases are there.

    References
    ----------
    Cho et al. (2014), arXiv:1406.1078.

    >>> cell = GRUCell(1, 1)
    >>> for weight in cell.parameters():
    ...     _ = nn.init.zeros_(weight)
    >>> cell(torch.ones(1), (torch.ones(1),))[0].item()  # update gate sigmoid(0) = 0.5, candidate tanh(0) = 0
    0.5
    """

    signals = (
        Signal("reset_gate", "r", role="reset", bounds=(0, 1)),
        Signal("update_gate", "z", role="gate", bounds=(0, 1)),
        Signal("candidate_recurrent", "W_hn h + b_hn", role="internal", bounds=None),
        Signal("candidate", "n", role="candidate", bounds=(-1, 1)),
        Signal("hidden_state", "h", role="memory", bounds=(-1, 1)),
    )
    retention = "update_gate"
    states = ("hidden_state",)
    gates = ("reset_gate", "update_gate", "candidate")

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
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        rows = 3 * hidden_size
        shapes = {
            "weight_ih": (rows, input_size),
            "weight_hh": (rows, hidden_size),
            "bias_ih": (rows,) if bias else None,
            "bias_hh": (rows,) if bias else None,
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
        x_r, x_z, x_n = affine(x, self.weight_ih, self.bias_ih).chunk(3, dim=-1)
        h_r, h_z, h_n = affine(h, self.weight_hh, self.bias_hh).chunk(3, dim=-1)
        r = tap("reset_gate", tap("reset_gate_preactivation", x_r + h_r).sigmoid())
        z = tap("update_gate", tap("update_gate_preactivation", x_z + h_z).sigmoid())
        h_n = tap("candidate_recurrent", h_n)
        n = tap("candidate", tap("candidate_preactivation", x_n + r * h_n).tanh())
        h = tap("hidden_state", step(z, (1 - z) * n, h))
        return (h,)

    def steps(self, x: Float[Tensor, "time sequence input"]) -> tuple[Sequence[Any], Advance]:
        weight, bias = self.weight_hh, self.bias_hh
        gates = 2 * self.hidden_size

        def advance(x: tuple[Tensor, Tensor], state: tuple[Tensor, ...], tap: Tap) -> tuple[Tensor, ...]:
            (h,) = state
            x_rz, x_n = x
            h_rz, h_n = linear(h, weight, bias).tensor_split((gates,), dim=-1)
            r, z = side_by_side(tap, PREACTIVATIONS, x_rz + h_rz).sigmoid().chunk(2, dim=-1)
            r, z = tap("reset_gate", r), tap("update_gate", z)
            h_n = tap("candidate_recurrent", h_n)
            n = tap("candidate", tap("candidate_preactivation", x_n + r * h_n).tanh())
            h = tap("hidden_state", step(z, (1 - z) * n, h))
            return (h,)

        reads = linear(x, self.weight_ih, self.bias_ih)
        return list(zip(reads[..., :gates].unbind(0), reads[..., gates:].unbind(0), strict=True)), advance
