"""The LSTM with a forget gate, as torch computes it (Hochreiter and Schmidhuber 1997; Gers et al. 2000)."""

# ruff: noqa: F722 (shapes in annotations are jaxtyping's)
from collections.abc import Sequence
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import linear

from ..signals import Signal, Tap, no_tap
from .abstract import AbstractCell, Advance
from .affine import affine, joint_affine, side_by_side, summed
from .scan import Remember, step

PREACTIVATIONS = tuple(f"{name}_preactivation" for name in ("input_gate", "forget_gate", "candidate", "output_gate"))


@final
class LSTMCell(AbstractCell):
    """Long short-term memory: `c_t = f_t c_{t-1} + i_t g_t` carried, `h_t = o_t tanh(c_t)` shown.

    Weights have the names, shapes and gate order (input, forget, candidate, output) of `torch.nn.LSTMCell`. With
    `proj_size`, `h_t = W_hr (o_t tanh(c_t))` as in `torch.nn.LSTM`; it is then not bounded.

    Parameters
    ----------
    input_size : width of the input.
    hidden_size : number of units.
    bias : whether both biases are there.
    proj_size : width of the projected hidden state; 0 for no projection.

    References
    ----------
    Hochreiter and Schmidhuber (1997), doi:10.1162/neco.1997.9.8.1735;
    Gers, Schmidhuber and Cummins (2000), doi:10.1162/089976600300015015;
    projection: Sak, Senior and Beaufays (2014), arXiv:1402.1128.

    >>> cell = LSTMCell(1, 1)
    >>> for weight in cell.parameters():
    ...     _ = nn.init.zeros_(weight)
    >>> hidden_state, cell_state = cell(torch.ones(1), (torch.zeros(1), torch.full((1,), 4.0)))
    >>> cell_state.item()  # forget gate sigmoid(0) = 0.5, candidate tanh(0) = 0
    2.0
    """

    signals = (
        Signal("input_gate", "i", role="write", bounds=(0, 1)),
        Signal("forget_gate", "f", role="gate", bounds=(0, 1)),
        Signal("candidate", "g", role="candidate", bounds=(-1, 1)),
        Signal("output_gate", "o", role="read", bounds=(0, 1)),
        Signal("cell_state", "c", role="memory", bounds=None),
        Signal("hidden_state", "h", role="output", bounds=(-1, 1)),
    )
    retention = "forget_gate"
    states = ("hidden_state", "cell_state")
    gates = ("input_gate", "forget_gate", "candidate", "output_gate")

    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias_ih: nn.Parameter | None
    bias_hh: nn.Parameter | None
    weight_hr: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        bias: bool = True,
        proj_size: int = 0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias, proj_size=proj_size)
        rows = 4 * hidden_size
        if proj_size:
            self.signals = (*self.signals[:-1], self.signals[-1]._replace(bounds=None))
        shapes = {
            "weight_ih": (rows, input_size),
            "weight_hh": (rows, self.output_size),
            "bias_ih": (rows,) if bias else None,
            "bias_hh": (rows,) if bias else None,
            "weight_hr": (proj_size, hidden_size) if proj_size else None,
        }
        self.add_weights(shapes, device=device, dtype=dtype)

    def forward(
        self,
        x: Float[Tensor, "*batch input"],
        state: tuple[Float[Tensor, "*batch output"], Float[Tensor, "*initial unit"]],
        tap: Tap = no_tap,
        remember: Remember = step,
    ) -> tuple[Float[Tensor, "*batch output"], Float[Tensor, "*batch unit"]]:
        self.check(x, state)
        h, c = state
        gates = joint_affine(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        i, f, g, o = gates.chunk(4, dim=-1)
        i = tap("input_gate", tap("input_gate_preactivation", i).sigmoid())
        f = tap("forget_gate", tap("forget_gate_preactivation", f).sigmoid())
        g = tap("candidate", tap("candidate_preactivation", g).tanh())
        o = tap("output_gate", tap("output_gate_preactivation", o).sigmoid())
        c = tap("cell_state", remember(f, i * g, c))
        h = o * c.tanh()
        h = tap("hidden_state", h if self.weight_hr is None else affine(h, self.weight_hr, None))
        return h, c

    def steps(self, x: Float[Tensor, "time sequence input"]) -> tuple[Sequence[Any], Advance]:
        recurrent = self.weight_hh.t()
        projection = None if self.weight_hr is None else self.weight_hr.t()

        def advance(x: Tensor, state: tuple[Tensor, ...], tap: Tap) -> tuple[Tensor, ...]:
            h, c = state
            gates = side_by_side(tap, PREACTIVATIONS, torch.addmm(x, h, recurrent))
            i, f, _, o = gates.sigmoid().chunk(4, dim=-1)
            i, f, o = tap("input_gate", i), tap("forget_gate", f), tap("output_gate", o)
            g = tap("candidate", gates.chunk(4, dim=-1)[2].tanh())
            c = tap("cell_state", step(f, i * g, c))
            h = o * c.tanh()
            h = tap("hidden_state", h if projection is None else h @ projection)
            return h, c

        return linear(x, self.weight_ih, summed(self.bias_ih, self.bias_hh)).unbind(0), advance
