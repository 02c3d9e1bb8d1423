"""The GRU as most textbooks print it: the reset gate acts on the memory before the recurrent product."""

# ruff: noqa: F722 (shapes in annotations are jaxtyping's)
from typing import Literal, final, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..signals import Signal, Tap, no_tap
from .abstract import AbstractCell
from .affine import affine
from .scan import Remember, step

Convention = Literal["torch", "textbook"]


@final
class ResetBeforeGRUCell(AbstractCell):
    """Gated recurrent unit with `n = tanh(W_in x + b_in + W_hn (r h) + b_hn)`: each unit's memory is masked on its way.

    Weights have the names, shapes and gate order of `torch.nn.GRUCell`, whose reset gate acts after the product. The
    two conventions for the update gate are one cell: negating all weights and biases of its rows turns one into the
    other.

    Parameters
    ----------
    input_size : width of the input.
    hidden_size : number of units.
    convention : `torch`: `h = z h + (1 - z) n`, an update gate near 1 keeps, as in Cho et al. (2014) and
        `torch.nn.GRUCell`; `textbook`: `h = (1 - z) h + z n`, near 1 overwrites, as in Chung et al. (2014).
    bias : whether both biases are there.

    References
    ----------
    Cho et al. (2014), arXiv:1406.1078. Chung, Gulcehre, Cho and Bengio (2014), arXiv:1412.3555.

    >>> kept = []
    >>> for convention in ("torch", "textbook"):
    ...     cell = ResetBeforeGRUCell(1, 1, convention=convention, bias=False)
    ...     for weight in cell.parameters():
    ...         _ = nn.init.zeros_(weight)
    ...     _ = nn.init.constant_(cell.weight_ih[1:2], 100.0)  # opens the update gate
    ...     kept.append(cell(torch.ones(1), (torch.ones(1),))[0].item())
    >>> kept  # the candidate is tanh(0) = 0
    [1.0, 0.0]
    """

    signals = (
        Signal("reset_gate", "r", role="reset", bounds=(0, 1)),
        Signal("update_gate", "z", role="gate", bounds=(0, 1)),
        Signal("candidate_recurrent", "W_hn (r h) + b_hn", role="internal", bounds=None),
        Signal("candidate", "n", role="candidate", bounds=(-1, 1)),
        Signal("hidden_state", "h", role="memory", bounds=(-1, 1)),
    )
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
        convention: Convention = "torch",
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        if convention not in get_args(Convention):
            raise ValueError(
                f"convention of ResetBeforeGRUCell must be 'torch' (an update gate near 1 keeps) or 'textbook' (it "
                f"overwrites); {convention!r} came."
            )
        self.convention = convention
        self.retention = "update_gate" if convention == "torch" else "1 - update_gate"
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
        w, w_n = self.weight_hh.split([2 * self.hidden_size, self.hidden_size])
        b, b_n = (None, None) if self.bias_hh is None else self.bias_hh.split([2 * self.hidden_size, self.hidden_size])
        x_r, x_z, x_n = affine(x, self.weight_ih, self.bias_ih).chunk(3, dim=-1)
        h_r, h_z = affine(h, w, b).chunk(2, dim=-1)
        r = tap("reset_gate", tap("reset_gate_preactivation", x_r + h_r).sigmoid())
        z = tap("update_gate", tap("update_gate_preactivation", x_z + h_z).sigmoid())
        h_n = tap("candidate_recurrent", affine(r * h, w_n, b_n))
        n = tap("candidate", tap("candidate_preactivation", x_n + h_n).tanh())
        h = tap("hidden_state", step(z, (1 - z) * n, h) if self.convention == "torch" else step(1 - z, z * n, h))
        return (h,)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, convention={self.convention!r}"
