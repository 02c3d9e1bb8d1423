"""How a network of memory blocks is wired: what decides the number and the shapes of its weights."""

from dataclasses import dataclass
from typing import Any, Literal

Forget = Literal["learned", "none"] | float


@dataclass(frozen=True)
class Wiring:
    """A network of memory blocks with logistic outputs; takes the same keywords as `BlockNetwork`.

    Parameters
    ----------
    inputs, outputs : how many.
    blocks : number of memory blocks, each with one gate of every kind.
    size : cells in each block.
    forget : `learned` for the forget gate of 1999; `none` for the LSTM of 1997; a number between 0 and 1 for a state
        that decays by this factor at every step.
    shortcut : whether the outputs also see the inputs.
    gates_see_gates : whether gates and cell inputs also see all gates of the step before.
    input_gate, output_gate : whether the blocks have one; a missing gate counts as 1.
    output_bias : whether the outputs have biases.

    Raises
    ------
    ValueError
        If a number is impossible.

    Examples
    --------
    >>> Wiring().weight_count, Wiring(shortcut=False).weight_count, Wiring(forget="none").weight_count
    (424, 375, 360)
    """

    inputs: int = 7
    outputs: int = 7
    blocks: int = 4
    size: int = 2
    forget: Forget = "learned"
    shortcut: bool = True
    gates_see_gates: bool = False
    input_gate: bool = True
    output_gate: bool = True
    output_bias: bool = True

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs", "blocks", "size"):
            check_size(name, getattr(self, name))
        for name in ("shortcut", "gates_see_gates", "input_gate", "output_gate", "output_bias"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ValueError(f"{name} of a wiring must be True or False; {value!r} came. Give one of the two.")
        check_forget(self.forget)
        if self.gates_see_gates and not self.gates:
            raise ValueError("gates_see_gates of a wiring must come with a gate; no gate came. Leave one in.")

    @property
    def learned_forget(self) -> bool:
        """Whether the blocks have a forget gate."""
        return self.forget == "learned"

    @property
    def decay(self) -> float:
        """What multiplies the state where no forget gate does: 1 for the LSTM of 1997."""
        return 1.0 if isinstance(self.forget, str) else float(self.forget)

    @property
    def gates(self) -> tuple[str, ...]:
        """The gates that the blocks have, in the order of the weights' rows."""
        have = {"input_gate": self.input_gate, "forget_gate": self.learned_forget, "output_gate": self.output_gate}
        return tuple(name for name, present in have.items() if present)

    @property
    def units(self) -> int:
        """All cells; cell v of a block is unit `block * size + v`."""
        return self.blocks * self.size

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every weight by name, as in a state dict of `BlockNetwork`.

        Rows of `cell.weight_ih` and `cell.weight_hh` are the input gates by block, the forget gates, the cell inputs by
        unit and the output gates, without what is missing; `cell.bias` has the gates' rows only. Columns of
        `cell.weight_hh` are the units, then where gates see gates the gates in the same order; columns of
        `readout.weight` the units, then with a shortcut the inputs.
        """
        gate_rows = self.blocks * len(self.gates)
        rows = gate_rows + self.units
        found: dict[str, tuple[int, ...]] = {
            "cell.weight_ih": (rows, self.inputs),
            "cell.weight_hh": (rows, self.units + self.gates_see_gates * gate_rows),
        }
        if gate_rows:
            found["cell.bias"] = (gate_rows,)
        found["readout.weight"] = (self.outputs, self.units + self.shortcut * self.inputs)
        if self.output_bias:
            found["readout.bias"] = (self.outputs,)
        return found

    @property
    def weight_count(self) -> int:
        """All weights, biases included."""
        total = 0
        for shape in self.shapes.values():
            total += shape[0] * (shape[1] if len(shape) > 1 else 1)
        return total


def check_size(name: str, size: Any) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        raise ValueError(f"{name} of a wiring must be a whole number of at least 1; {size!r} came. Give for example 2.")


def check_forget(forget: Any) -> None:
    number = isinstance(forget, (int, float)) and not isinstance(forget, bool)
    if not (forget in ("learned", "none") or (number and 0.0 <= forget <= 1.0)):
        raise ValueError(
            f"forget of a wiring must be 'learned', 'none' or a factor between 0 and 1; {forget!r} came. "
            "Give for example 0.9."
        )


CERG_WIRING = Wiring()
"""The network for the continual embedded Reber grammar: 424 weights (375 without the shortcut, which learn nothing)."""

ERG_WIRING = Wiring(blocks=3, forget="none", shortcut=False, gates_see_gates=True, output_bias=False)
"""The network of 1997 for single strings of the embedded Reber grammar: 276 weights."""
