"""The networks of *Learning to Forget*: a layer of memory blocks and logistic outputs."""

# ruff: noqa: F722 (shapes in annotations are jaxtyping's)
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, cast, final

import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from .memory_block import WEIGHTS, Forget, MemoryBlockCell, check_sizes
from .recurrent import Recurrent

Array = NDArray[Any]
State = tuple[Tensor, ...]
LAYER = "recurrent.layers.0.0."
NAMES = {"cell.weight_ih": LAYER + "weight_ih", "cell.weight_hh": LAYER + "weight_hh", "cell.bias": LAYER + "bias_ih"}
"""The name of each weight of the blocks in files, and where the module keeps it."""


@final
class BlockNetwork(nn.Module):
    """One layer of memory blocks and logistic outputs, which may also see the inputs directly.

    `y_k = sigmoid(V_k [y_c, x])`. The defaults, with 4 blocks of 2 cells, are the network that learns the continual
    embedded Reber grammar: 424 weights. A state dict has the names `cell.weight_ih`, `cell.weight_hh`, `cell.bias`,
    `readout.weight` and `readout.bias`.

    Parameters
    ----------
    inputs, outputs : how many.
    blocks, size, forget, input_gate, output_gate, gates_see_gates : as for `MemoryBlockCell`.
    shortcut : whether the outputs also see the inputs.
    output_bias : whether the outputs have biases.

    References
    ----------
    Gers, Schmidhuber and Cummins (2000), Neural Computation 12(10), doi 10.1162/089976600300015015.

    >>> network = BlockNetwork(7, 7, blocks=4, size=2)
    >>> network.weight_count, BlockNetwork(7, 7, blocks=4, size=2, shortcut=False).weight_count
    (424, 375)
    >>> outputs, (hidden_state, cell_state) = network(torch.zeros(1, 12, 7))
    >>> outputs.shape, cell_state.shape
    (torch.Size([1, 12, 7]), torch.Size([1, 1, 8]))
    """

    def __init__(
        self,
        inputs: int = 7,
        outputs: int = 7,
        *,
        blocks: int,
        size: int,
        forget: Forget = "learned",
        input_gate: bool = True,
        output_gate: bool = True,
        gates_see_gates: bool = False,
        shortcut: bool = True,
        output_bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_sizes(type(self).__name__, inputs=inputs, outputs=outputs)
        cell = MemoryBlockCell(
            inputs,
            blocks=blocks,
            size=size,
            forget=forget,
            input_gate=input_gate,
            output_gate=output_gate,
            gates_see_gates=gates_see_gates,
            device=device,
            dtype=dtype,
        )
        self.recurrent = Recurrent([[cell]], batch_first=True)
        self.shortcut = shortcut
        width = cell.hidden_size + inputs * shortcut
        self.readout = nn.Linear(width, outputs, bias=output_bias, device=device, dtype=dtype)
        untyped: Any = self
        untyped.register_state_dict_post_hook(name_for_files)
        untyped.register_load_state_dict_pre_hook(name_as_kept)
        for weight in self.readout.parameters():
            nn.init.uniform_(weight, -WEIGHTS, WEIGHTS)

    @property
    def cell(self) -> MemoryBlockCell:
        return cast(MemoryBlockCell, self.recurrent.first_cell)

    @property
    def weight_count(self) -> int:
        """All weights, biases included."""
        return sum(weight.numel() for weight in self.parameters())

    def forward(
        self,
        inputs: Tensor | Array,
        state: tuple[Float[Tensor, "1 sequence unit"], ...] | None = None,
        *,
        reset: Tensor | Array | None = None,
    ) -> tuple[Float[Tensor, "sequence time output"], tuple[Float[Tensor, "1 sequence unit"], ...]]:
        """Outputs at every step and the state after the last one, which a next call may go on from.

        Parameters
        ----------
        inputs : (sequence, time, input), a tensor or an array; taken in the network's own dtype.
        state : what an earlier call gave; zeros if left out.
        reset : (sequence, time), True at the steps before which the whole state is set to zero from outside, the first
            step of each segment. A probe records each stretch between resets as a sequence of its own, with `start`
            imposed.
        """
        inputs = torch.as_tensor(inputs, dtype=self.readout.weight.dtype, device=self.readout.weight.device)
        reset = None if reset is None else torch.as_tensor(reset, device=inputs.device)
        if inputs.dim() != 3:
            raise ValueError(
                f"the inputs of BlockNetwork must be (sequence, time, input); shape {tuple(inputs.shape)} came. "
                "Give one sequence as inputs[None]."
            )
        shown = []
        for begin, end in pairwise(self.cuts(inputs, reset)):
            if reset is not None and state is not None:
                keep = ~reset[:, begin, None]
                state = tuple(torch.where(keep, entry, 0) for entry in state)
            output, state = self.recurrent(inputs[:, begin:end], state)
            shown.append(output)
        y = torch.cat(shown, dim=1)
        return self.readout(torch.cat([y, inputs], dim=-1) if self.shortcut else y).sigmoid(), cast(State, state)

    @staticmethod
    def cuts(inputs: Tensor, reset: Tensor | None) -> list[int]:
        """The steps at which a stretch without reset begins, and the end."""
        steps = inputs.shape[1]
        if reset is None:
            return [0, steps]
        if tuple(reset.shape) != tuple(inputs.shape[:2]) or reset.dtype != torch.bool:
            raise ValueError(
                f"reset of BlockNetwork must be boolean and of shape {tuple(inputs.shape[:2])} (sequence, time); "
                f"{reset.dtype} of shape {tuple(reset.shape)} came."
            )
        return [0, *(step for step in reset.any(0).nonzero().flatten().tolist() if step), steps]

    def load_weights(self, weights: Mapping[str, Any]) -> "BlockNetwork":
        """Take weights by name, as arrays or tensors, such as those that were trained; all must be there and fit.

        Raises
        ------
        ValueError
            If a weight is missing, unknown or of another shape.
        """
        own = {name: tuple(weight.shape) for name, weight in self.state_dict().items()}
        came = {name: tuple(weight.shape) for name, weight in weights.items()}
        for name in [*own, *(name for name in came if name not in own)]:
            if own.get(name) != came.get(name):
                raise ValueError(
                    f"weights of this BlockNetwork must be {', '.join(own)}, {self.weight_count} in all; {name} is "
                    f"{came.get(name, 'missing')} where {own.get(name, 'nothing')} is needed. Build the network with "
                    "the wiring that they were trained with."
                )
        self.load_state_dict({name: torch.as_tensor(weight) for name, weight in weights.items()})
        return self

    def extra_repr(self) -> str:
        return f"weights={self.weight_count}, shortcut={self.shortcut}"


def name_for_files(module: nn.Module, state: dict[str, Any], prefix: str, metadata: Any) -> None:
    """The blocks' weights by the names that the trainers give them."""
    rename(state, {prefix + kept: prefix + name for name, kept in NAMES.items()})


def name_as_kept(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    rename(state, {prefix + name: prefix + kept for name, kept in NAMES.items()})


def rename(state: dict[str, Any], names: Mapping[str, str]) -> None:
    """In place, the order being kept."""
    renamed = {names.get(name, name): value for name, value in state.items()}
    state.clear()
    state.update(renamed)
