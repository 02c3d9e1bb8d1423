"""Cells unrolled over time, layers and directions, in torch's input, state and output conventions."""

# ruff: noqa: F722 (shapes in annotations are jaxtyping's)
from collections.abc import Callable, Iterable
from typing import cast, final

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..signals import DIRECTIONS
from .abstract import AbstractCell
from .unroll import Packing, State, StepTap, run_layer, run_layers


@final
class Recurrent(nn.Module):
    """Cells unrolled over time: what `torch.nn.LSTM` does, step by step, for any cell and open to a tap.

    Called as torch's modules are: a 3-D input (time first, or batch first with `batch_first`), a 2-D unbatched one or
    a `PackedSequence`; an initial state or none. The result is `(output, state)` in the same form; `state` is a tensor
    for cells that carry one state and a tuple in the order of the cell's `states` otherwise.

    Parameters
    ----------
    layers : for each layer, nearest the input first, its one or two cells (forward, then backward). All are of one
        class and size; a layer reads what both cells of the layer below show.
    batch_first : whether 3-D inputs and outputs are (sequence, time, feature).
    dropout : probability of dropping a value between layers in training.

    >>> import torch
    >>> from .lstm import LSTMCell
    >>> network = Recurrent([[LSTMCell(3, 4)], [LSTMCell(4, 4)]])
    >>> output, (hidden_state, cell_state) = network(torch.zeros(7, 2, 3))
    >>> output.shape, cell_state.shape
    (torch.Size([7, 2, 4]), torch.Size([2, 2, 4]))
    """

    def __init__(
        self, layers: Iterable[Iterable[AbstractCell]], *, batch_first: bool = False, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.ModuleList(cells) for cells in layers)
        self.batch_first = batch_first
        self.dropout = dropout
        _check_layers(self.cells)
        if not 0 <= dropout <= 1:
            raise ValueError(f"dropout must be a probability between 0 and 1; {dropout} came.")

    @classmethod
    def stacked(
        cls,
        make_cell: Callable[[int], AbstractCell],
        input_size: int,
        *,
        num_layers: int = 1,
        bidirectional: bool = False,
        batch_first: bool = False,
        dropout: float = 0.0,
    ) -> "Recurrent":
        """Equal layers on top of each other; `make_cell` makes a cell for an input width.

        >>> from .gru import GRUCell
        >>> network = Recurrent.stacked(lambda width: GRUCell(width, 4), 3, num_layers=2, bidirectional=True)
        >>> [cell.input_size for cell in network.cells[1]]
        [8, 8]
        """
        layers: list[list[AbstractCell]] = []
        width = input_size
        for _ in range(num_layers):
            layers.append([make_cell(width) for _ in DIRECTIONS[: 1 + bidirectional]])
            width = sum(cell.output_size for cell in layers[-1])
        return cls(layers, batch_first=batch_first, dropout=dropout)

    @property
    def cells(self) -> list[list[AbstractCell]]:
        """The cells by layer and direction."""
        return [[cast(AbstractCell, cell) for cell in cast(nn.ModuleList, cells)] for cells in self.layers]

    @property
    def first_cell(self) -> AbstractCell:
        """The forward cell nearest the input; the others share its class and size."""
        return self.cells[0][0]

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def bidirectional(self) -> bool:
        return len(self.cells[0]) == 2

    @property
    def input_size(self) -> int:
        return self.first_cell.input_size

    @property
    def hidden_size(self) -> int:
        return self.first_cell.hidden_size

    @property
    def proj_size(self) -> int:
        return self.first_cell.proj_size

    @property
    def bias(self) -> bool:
        return self.first_cell.bias

    def flatten_parameters(self) -> None:
        """Nothing: there is no fused kernel to lay the weights out for. Models call it on torch's modules."""

    def forward(
        self,
        input: Tensor | PackedSequence,
        hx: Tensor | State | None = None,
        *,
        tap: StepTap | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor | State]:
        """Output and last state in torch's conventions; `tap(name, value, layer=, direction=, time=)` at every step."""
        if isinstance(input, PackedSequence):
            packing = Packing.of(input)
            padded, state = self._run(packing.pad(input.data), packing, self._states(hx), tap)
            output: Tensor | PackedSequence = input._replace(data=packing.pack(padded))
            return output, state if len(state) > 1 else state[0]
        if input.dim() not in (2, 3):
            raise ValueError(f"the input of Recurrent must have 2 or 3 dimensions; shape {tuple(input.shape)} came.")
        if input.dim() == 2:
            padded, state = self._run(input.unsqueeze(1), None, self._states(hx, unbatched=True), tap)
            output, state = padded.squeeze(1), tuple(entry.squeeze(1) for entry in state)
        else:
            padded, state = self._run(input.transpose(0, 1) if self.batch_first else input, None, self._states(hx), tap)
            output = padded.transpose(0, 1) if self.batch_first else padded
        return output, state if len(state) > 1 else state[0]

    def run_layer(
        self,
        index: int,
        input: Float[Tensor, "time sequence feature"],
        lengths: Int[Tensor, " sequence"] | None,
        state: tuple[Float[Tensor, "direction sequence _"], ...],
        *,
        tap: StepTap | None = None,
    ) -> tuple[Float[Tensor, "time sequence output"], tuple[Float[Tensor, "direction sequence _"], ...]]:
        """One layer in its directions on time-major input.

        Parameters
        ----------
        index : which layer; 0 is nearest the input.
        input : dims (time, sequence, feature), padded at the end.
        lengths : steps of each sequence, or `None` where all are full. Padding is not read and its output is 0.
        state : initial state in the order of the cell's `states`, each of dims (direction, sequence, unit).
        tap : called on every named value of every step.

        Returns
        -------
        What the layer shows, dims (time, sequence, unit), both directions side by side, and the state after each
        sequence's last step (its first in the backward direction), each of dims (direction, sequence, unit).
        """
        return run_layer(self.cells[index], index, input, lengths, state, tap)

    def _run(
        self, input: Tensor, packing: Packing | None, state: State | None, tap: StepTap | None
    ) -> tuple[Tensor, State]:
        """All layers on time-major input; the state's first dim is layer times direction, as torch has it."""
        steps, sequences = input.shape[:2]
        if steps == 0:
            raise ValueError("the input of Recurrent must have at least one time step; none came.")
        if input.shape[-1] != self.input_size:
            raise ValueError(
                f"the input of Recurrent must be {self.input_size} wide (its input_size); width {input.shape[-1]} came."
            )
        directions = len(self.cells[0])
        if state is None:
            state = self.first_cell.zero_state(input, (self.num_layers * directions, sequences))
        self._check_state(state, sequences)
        return run_layers(self.cells, input, packing, state, self.dropout if self.training else 0.0, tap)

    def _states(self, hx: Tensor | State | None, unbatched: bool = False) -> State | None:
        """The given state as a tuple of (layer times direction, sequence, unit)."""
        if hx is None:
            return None
        given = (hx,) if isinstance(hx, Tensor) else tuple(hx)
        names = self.first_cell.states
        if len(given) != len(names):
            raise ValueError(f"the state of Recurrent must be ({', '.join(names)}); {len(given)} entries came.")
        return tuple(entry.unsqueeze(1) for entry in given) if unbatched else given

    def _check_state(self, state: State, sequences: int) -> None:
        rows = sum(len(cells) for cells in self.cells)
        cell = self.first_cell
        for name, size, entry in zip(cell.states, cell.state_sizes, state, strict=True):
            if tuple(entry.shape) != (rows, sequences, size):
                raise ValueError(
                    f"{name} of Recurrent must have shape {(rows, sequences, size)} (layers times directions, "
                    f"sequences, units); {tuple(entry.shape)} came."
                )


def _check_layers(layers: list[list[AbstractCell]]) -> None:
    """Raise where the cells do not fit on each other."""
    if not layers or any(len(cells) != len(layers[0]) or len(cells) not in (1, 2) for cells in layers):
        counts = [len(cells) for cells in layers]
        raise ValueError(f"Recurrent needs one cell in each layer or two in each; {counts} came.")
    for stranger in (cell for cells in layers for cell in cells if not isinstance(cell, AbstractCell)):
        raise TypeError(f"Recurrent is made of cells of gatescope.cells; a {type(stranger).__name__} came.")
    first = layers[0][0]
    width = first.input_size
    for index, cells in enumerate(layers):
        for cell in cells:
            if type(cell) is not type(first) or cell.state_sizes != first.state_sizes:
                raise ValueError(f"the cells of Recurrent must be of one class and size; {first} and {cell} came.")
            if cell.input_size != width:
                raise ValueError(
                    f"a cell of layer {index} must have input_size {width}, which is what comes to it; "
                    f"{cell.input_size} came."
                )
        width = sum(cell.output_size for cell in cells)
