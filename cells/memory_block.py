"""Memory blocks: the LSTM of 1997 and of 1999, in which several cells share their gates."""

# ruff: noqa: F722 (shapes in annotations are jaxtyping's)
from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from types import MappingProxyType
from typing import Any, Literal, final

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..signals import Signal, Tap, no_tap
from .abstract import AbstractCell
from .affine import joint_affine
from .scan import Remember, step

GATES = ("input_gate", "forget_gate", "candidate", "output_gate")
Forget = Literal["learned", "none"] | float
WEIGHTS = 0.2
"""Ends of the interval from which weights are drawn at first."""
BIASES = {"input_gate": -0.5, "forget_gate": 0.5, "output_gate": -0.5}
"""First bias of the gates of block 0; of block 1 it is twice that, and so on."""


@final
class MemoryBlockCell(AbstractCell):
    """Blocks of cells that share an input, a forget and an output gate, with the squashers of the first LSTM papers.

    `s_t = phi s_{t-1} + i g(net)` and `y = o h(s)`, where `g(x) = 4 sigmoid(x) - 2` and `h(s) = 2 sigmoid(s) - 1`.
    Unit `block * size + v` is cell `v` of its block. Gates are signals of every unit, the same throughout a block. Only
    gates have biases.

    Parameters
    ----------
    input_size : width of the input.
    blocks : number of memory blocks.
    size : cells in each block.
    forget : `learned` for the forget gate of 1999; `none` for the LSTM of 1997, which keeps its state whole; a number
        between 0 and 1 for a state that decays by this factor at every step.
    input_gate, output_gate : whether the blocks have one; a missing gate counts as 1.
    gates_see_gates : whether gates and cell inputs also see all gates of the step before, which are then states.
    bias : whether the gates have biases.

    Attributes
    ----------
    weight_ih, weight_hh : rows are the input gates by block, the forget gates, the cell inputs by unit and the output
        gates, without what is missing. Columns of `weight_hh` are the units, then with `gates_see_gates` the gates by
        block in the same order.
    bias_ih : of the gates' rows only.

    References
    ----------
    Hochreiter and Schmidhuber (1997), Neural Computation 9(8), 1735-1780. Gers, Schmidhuber and Cummins (2000), Neural
    Computation 12(10), doi 10.1162/089976600300015015, and as technical report IDSIA-01-99.

    >>> cell = MemoryBlockCell(1, blocks=2, size=1, forget=0.5)
    >>> for weight in cell.parameters():
    ...     _ = nn.init.zeros_(weight)
    >>> hidden_state, cell_state = cell(torch.ones(1), (torch.zeros(2), torch.tensor([4.0, 2.0])))
    >>> cell_state.tolist()  # half is kept, and the cell input is 4 sigmoid(0) - 2 = 0
    [2.0, 1.0]
    """

    squashers = MappingProxyType({"cell_state": "tanh(x/2)"})  # 2 sigmoid(s) - 1 is that

    weight_ih: nn.Parameter
    weight_hh: nn.Parameter
    bias_ih: nn.Parameter | None

    def __init__(
        self,
        input_size: int,
        *,
        blocks: int,
        size: int,
        forget: Forget = "learned",
        input_gate: bool = True,
        output_gate: bool = True,
        gates_see_gates: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        check_sizes(type(self).__name__, blocks=blocks, size=size)
        super().__init__(input_size, blocks * size, bias=bias)
        self.blocks, self.size, self.forget, self.gates_see_gates = blocks, size, forget, gates_see_gates
        self.decay = check_forget(forget)
        absent = {
            "input_gate": not input_gate,
            "forget_gate": forget != "learned",
            "candidate": False,
            "output_gate": not output_gate,
        }
        self.gates = tuple(
            name for name in ("input_gate", "forget_gate", "candidate", "output_gate") if not absent[name]
        )
        self.block_gates = tuple(name for name in self.gates if name != "candidate")
        if gates_see_gates and not self.block_gates:
            raise ValueError("gates_see_gates of MemoryBlockCell must come with a gate; no gate came. Leave one in.")
        self.retention = "forget_gate" if forget == "learned" else f"{Decimal(repr(float(self.decay))):f}"
        self.states = ("hidden_state", "cell_state", *(self.block_gates if gates_see_gates else ()))
        self.parallel = not gates_see_gates
        self.signals = tuple(signal for signal in SIGNALS if not absent.get(signal.name, False))
        self.variant = differences(absent, gates_see_gates)
        self.rows = tuple(self.hidden_size if name == "candidate" else blocks for name in self.gates)
        columns = self.hidden_size + gates_see_gates * blocks * len(self.block_gates)
        biased = bias and len(self.block_gates) > 0
        shapes = {
            "weight_ih": (sum(self.rows), input_size),
            "weight_hh": (sum(self.rows), columns),
            "bias_ih": (blocks * len(self.block_gates),) if biased else None,
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
        y, s, *gates_before = state
        z = torch.cat([y, *(self.of_block(gate).expand(*y.shape[:-1], -1) for gate in gates_before)], dim=-1)
        net = self.by_gate(joint_affine(x, z, self.weight_ih, self.weight_hh, None, None))

        def gate(name: str, missing: float = 1.0) -> Tensor:
            if name not in net:
                return torch.full_like(net["candidate"], missing)
            opening: Tensor = tap(name, tap(f"{name}_preactivation", self.of_units(net[name])).sigmoid())
            return opening

        i = gate("input_gate")
        phi = gate("forget_gate", self.decay)
        g = tap("candidate", 4 * tap("candidate_preactivation", net["candidate"]).sigmoid() - 2)
        s = tap("cell_state", remember(phi, i * g, s))
        o = gate("output_gate")
        y = tap("hidden_state", o * (2 * s.sigmoid() - 1))
        found = {"input_gate": i, "forget_gate": phi, "output_gate": o}
        return (y, s, *(found[name] for name in self.states[2:]))

    def by_gate(self, rows: Float[Tensor, "*batch row"]) -> dict[str, Tensor]:
        """Net inputs by gate, biases added; (block,) or for the cell inputs (unit,)."""
        net = dict(zip(self.gates, rows.split(list(self.rows), dim=-1), strict=True))
        if self.bias_ih is not None:
            for name, bias in zip(self.block_gates, self.bias_ih.split(self.blocks), strict=True):
                net[name] = net[name] + bias
        return net

    def of_units(self, shared: Float[Tensor, "*batch block"]) -> Float[Tensor, "*batch unit"]:
        """A value of each block at all its units."""
        return shared.repeat_interleave(self.size, dim=-1)

    def of_block(self, values: Float[Tensor, "*batch unit"]) -> Float[Tensor, "*batch block"]:
        """A gate's value of each block: the mean over its units, which differ only where somebody rewrote one."""
        of_cells: Tensor = values.unflatten(-1, (self.blocks, self.size))
        return of_cells.mean(-1)

    def recurrent_weight(self) -> Tensor:
        """(gate, unit, source): rows of shared gates stand at every unit of their block; only units are sources."""
        found = self.weight_hh[:, : self.hidden_size].split(list(self.rows))
        rows = [
            part if name == "candidate" else part.repeat_interleave(self.size, dim=0)
            for name, part in zip(self.gates, found, strict=True)
        ]
        return torch.stack(rows)

    def unit_blocks(self) -> tuple[int, ...]:
        return tuple(unit // self.size for unit in range(self.hidden_size))

    def reset_parameters(self) -> None:
        """The papers' first weights: uniform in +-0.2; biases -0.5, -1, ... by block, of forget gates 0.5, 1, ..."""
        nn.init.uniform_(self.weight_ih, -WEIGHTS, WEIGHTS)
        nn.init.uniform_(self.weight_hh, -WEIGHTS, WEIGHTS)
        if self.bias_ih is not None:
            ramp = torch.arange(1, self.blocks + 1, device=self.bias_ih.device, dtype=self.bias_ih.dtype)
            with torch.no_grad():
                self.bias_ih.copy_(torch.cat([BIASES[name] * ramp for name in self.block_gates]))

    def extra_repr(self) -> str:
        changed = f", {self.variant}" if self.variant else ""
        return f"{self.input_size}, blocks={self.blocks}, size={self.size}, forget={self.forget!r}{changed}"


SIGNALS = (
    Signal("input_gate", "in", role="write", bounds=(0, 1)),
    Signal("forget_gate", "phi", role="gate", bounds=(0, 1)),
    Signal("candidate", "g(net_c)", role="candidate", bounds=(-2, 2)),
    Signal("cell_state", "s_c", role="memory", bounds=None),
    Signal("output_gate", "out", role="read", bounds=(0, 1)),
    Signal("hidden_state", "y_c", role="output", bounds=(-1, 1)),
)


def check_sizes(owner: str, **sizes: Any) -> None:
    for name, size in sizes.items():
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise ValueError(
                f"{name} of {owner} must be a whole number of at least 1; {size!r} came. Give for example 2."
            )


def check_forget(forget: Any) -> float:
    """What multiplies the state where no gate does."""
    if forget in ("learned", "none"):
        return 1.0
    if isinstance(forget, Real) and not isinstance(forget, bool) and 0 <= float(forget) <= 1:
        return float(forget)
    raise ValueError(
        "forget of MemoryBlockCell must be 'learned', 'none' or a factor between 0 and 1; "
        f"{forget!r} came. Give for example 0.9."
    )


def differences(absent: Mapping[str, bool], gates_see_gates: bool) -> str | None:
    """What tells a cell from the LSTM of 1999, but for its forget gate, which the retention names."""
    said = [f"no {name.replace('_', ' ')}" for name in ("input_gate", "output_gate") if absent[name]]
    return ", ".join([*said, *(["gates see gates"] if gates_see_gates else [])]) or None
