"""The LSTM with peepholes, and the eight single changes to it that Greff et al. compared."""

# ruff: noqa: F722 (shapes in annotations are jaxtyping's)
from math import tanh
from typing import Literal, final, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..signals import Signal, Tap, no_tap
from .abstract import AbstractCell
from .affine import affine, joint_affine
from .scan import Remember, step

Variant = Literal["vanilla", "NIG", "NFG", "NOG", "NIAF", "NOAF", "CIFG", "NP", "FGR"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
GATES = ("input_gate", "forget_gate", "candidate", "output_gate")
PEEPHOLES = ("input_gate", "forget_gate", "output_gate")
WITHOUT = {"NIG": "input_gate", "NFG": "forget_gate", "NOG": "output_gate", "CIFG": "forget_gate"}
RETENTION = {"NFG": "1.0", "CIFG": "1 - input_gate"}


@final
class PeepholeLSTMCell(AbstractCell):
    """LSTM whose input and forget gates see `c_{t-1}` and whose output gate sees `c_t`, each unit its own.

    Rows of the weights stand in torch's gate order (input, forget, candidate, output), without the gate that a variant
    lacks. What a variant lacks is no signal of it; a missing gate counts as 1.

    Parameters
    ----------
    input_size : width of the input.
    hidden_size : number of units.
    variant : `vanilla`, or what is changed: `NIG`, `NFG`, `NOG` no input, forget or output gate; `NIAF` the candidate,
        `NOAF` the shown memory without tanh; `CIFG` the forget gate is 1 - input gate; `NP` no peepholes, which is
        `LSTMCell`; `FGR` every gate also sees all gates of the step before, which it therefore carries as states.
    bias : whether both biases are there.

    Attributes
    ----------
    weight_peephole : (gate, unit); `peepholes` names its gates.
    weight_gates : FGR's nine matrices as one, (gate x unit, gate x unit) in the order of `peepholes`: rows receive.

    References
    ----------
    Greff, Srivastava, Koutnik, Steunebrink and Schmidhuber (2017), arXiv:1503.04069. FGR is as in the authors' library
    pylstm: the gates before the first step are 0, and the output gate's peephole sees `c_t`.
    Peepholes: Gers, Schraudolph and Schmidhuber (2002), Journal of Machine Learning Research 3, 115-143.

    >>> cell = PeepholeLSTMCell(1, 1, variant="NFG")
    >>> for weight in cell.parameters():
    ...     _ = nn.init.zeros_(weight)
    >>> hidden_state, cell_state = cell(torch.ones(1), (torch.zeros(1), torch.full((1,), 4.0)))
    >>> cell_state.item()  # kept whole, and the candidate is tanh(0) = 0
    4.0
    >>> [signal.name for signal in cell.signals]
    ['input_gate', 'candidate', 'cell_state', 'output_gate', 'hidden_state']
    """

    parallel = False

    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias_ih: nn.Parameter | None
    bias_hh: nn.Parameter | None
    weight_peephole: nn.Parameter | None
    weight_gates: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        variant: Variant = "vanilla",
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias=bias)
        if variant not in VARIANTS:
            raise ValueError(f"variant of PeepholeLSTMCell must be one of {', '.join(VARIANTS)}; {variant!r} came.")
        self.variant: Variant = variant
        self.gates = tuple(gate for gate in GATES if gate != WITHOUT.get(variant))
        self.peepholes = () if variant == "NP" else tuple(gate for gate in self.gates if gate in PEEPHOLES)
        self.parallel = variant == "NP"  # else gates depend on the memory itself
        self.retention = RETENTION.get(variant, "forget_gate")
        self.states = ("hidden_state", "cell_state", *(PEEPHOLES if variant == "FGR" else ()))
        self.signals = tuple(signal for signal in signals_of(variant) if signal.name != WITHOUT.get(variant))
        rows, recurrent = len(self.gates) * hidden_size, len(PEEPHOLES) * hidden_size
        shapes = {
            "weight_ih": (rows, input_size),
            "weight_hh": (rows, hidden_size),
            "bias_ih": (rows,) if bias else None,
            "bias_hh": (rows,) if bias else None,
            "weight_peephole": (len(self.peepholes), hidden_size) if self.peepholes else None,
            "weight_gates": (recurrent, recurrent) if variant == "FGR" else None,
        }
        self.add_weights(shapes, device=device, dtype=dtype)

    def forward(
        self,
        x: Float[Tensor, "*batch input"],
        state: tuple[Float[Tensor, "... unit"], ...],
        tap: Tap = no_tap,
        remember: Remember = step,
    ) -> tuple[Float[Tensor, "*batch unit"], ...]:
        self.check(x, state)
        h, c, *gates_before = state
        rows = joint_affine(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        a = dict(zip(self.gates, rows.chunk(len(self.gates), dim=-1), strict=True))
        p = {} if self.weight_peephole is None else dict(zip(self.peepholes, self.weight_peephole, strict=True))
        if self.weight_gates is not None:
            recurrent = affine(torch.cat(gates_before, dim=-1), self.weight_gates, None).chunk(3, dim=-1)
            a |= {name: a[name] + row for name, row in zip(PEEPHOLES, recurrent, strict=True)}

        def gate(name: str, c: Tensor) -> Tensor:
            if name not in a:
                return torch.ones_like(a["candidate"])
            z = a[name] + p[name] * c if name in p else a[name]
            opening: Tensor = tap(name, tap(f"{name}_preactivation", z).sigmoid())
            return opening

        i = gate("input_gate", c)
        f = 1 - i if self.variant == "CIFG" else gate("forget_gate", c)
        g = a["candidate"] if self.variant == "NIAF" else tap("candidate_preactivation", a["candidate"]).tanh()
        g = tap("candidate", g)
        c = tap("cell_state", remember(f, i * g, c))
        o = gate("output_gate", c)
        h = tap("hidden_state", o * (c if self.variant == "NOAF" else c.tanh()))
        return (h, c, i, f, o) if self.variant == "FGR" else (h, c)

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}, variant={self.variant!r}"


def signals_of(variant: str) -> tuple[Signal, ...]:
    """All signals with their bounds in this variant, those that it lacks too.

    A coupled memory is a mean of what it was and the candidate, so it ends at -1 and 1 and shows at most tanh(1).
    """
    coupled = variant == "CIFG"
    shown = tanh(1) if coupled else 1.0
    return (
        Signal("input_gate", "i", role="write", bounds=(0, 1)),
        Signal("forget_gate", "f", role="gate", bounds=(0, 1)),
        Signal("candidate", "g", role="candidate", bounds=None if variant == "NIAF" else (-1, 1)),
        Signal("cell_state", "c", role="memory", bounds=(-1, 1) if coupled else None),
        Signal("output_gate", "o", role="read", bounds=(0, 1)),
        Signal("hidden_state", "h", role="output", bounds=None if variant == "NOAF" else (-shown, shown)),
    )
