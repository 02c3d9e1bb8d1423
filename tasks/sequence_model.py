"""A recurrent module and a linear readout: the smallest model that predicts at every step."""

from typing import Any, Protocol, cast, final

import numpy as np
from torch import Tensor, nn


class RecurrentModule(Protocol):
    """What `nn.LSTM`, `nn.GRU`, `nn.RNN` and `gatescope.cells.Recurrent` have in common."""

    batch_first: bool
    bidirectional: bool
    hidden_size: int


@final
class SequenceModel(nn.Module):
    """Outputs from every step of a recurrent module: `readout(hidden_state)`, without a squasher (logits).

    `model(inputs, state)` takes inputs (sequence, time, input) and the state after the call before (None: zero) and
    returns outputs (sequence, time, output) and the state after the last step. That is the convention of
    `gatescope.train`; any module that keeps it can be trained as well.

    Parameters
    ----------
    recurrent
        `nn.LSTM`, `nn.GRU`, `nn.RNN` or `gatescope.cells.Recurrent`, in one direction; `batch_first` as it likes.
    outputs
        How many outputs; 7 for the Reber tasks.

    Raises
    ------
    TypeError
        For another module.
    ValueError
        For one that reads in both directions: it would see what it is to predict; for fewer than 1 output.

    Examples
    --------
    >>> import torch
    >>> model = SequenceModel(torch.nn.LSTM(7, 16), outputs=7)
    >>> outputs, (hidden_state, cell_state) = model(torch.zeros(2, 5, 7))
    >>> outputs.shape, cell_state.shape
    (torch.Size([2, 5, 7]), torch.Size([1, 2, 16]))
    """

    def __init__(self, recurrent: nn.Module, outputs: int) -> None:
        super().__init__()
        if not all(hasattr(recurrent, name) for name in ("batch_first", "bidirectional", "hidden_size")):
            raise TypeError(
                f"SequenceModel needs nn.LSTM, nn.GRU, nn.RNN or gatescope.cells.Recurrent; {type(recurrent).__name__} "
                "came. A module of your own can be trained as it is, if it maps (inputs, state) to (outputs, state)."
            )
        if isinstance(outputs, bool) or not isinstance(outputs, int | np.integer) or outputs < 1:
            raise ValueError(f"outputs must be a whole number from 1 on; {outputs!r} came. The Reber tasks have 7.")
        known = cast(RecurrentModule, recurrent)
        if known.bidirectional:
            raise ValueError(
                "a model that predicts what comes next must read in one direction; a bidirectional "
                f"{type(recurrent).__name__} came. Build it with bidirectional=False."
            )
        self.recurrent = recurrent
        self.time_first = not known.batch_first  # of the module; the model itself reads (sequence, time, input)
        weight = next(recurrent.parameters())
        width = shown_width(recurrent)
        self.readout = nn.Linear(width, int(outputs), device=weight.device, dtype=weight.dtype)

    def forward(self, inputs: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Outputs (sequence, time, output) and the state after the last step."""
        shown, after = self.recurrent(inputs.transpose(0, 1) if self.time_first else inputs, state)
        outputs: Tensor = self.readout(shown.transpose(0, 1) if self.time_first else shown)
        return outputs, after


def shown_width(recurrent: nn.Module) -> int:
    """Width of what a recurrent module shows: its hidden state, projected where it is."""
    cell = getattr(recurrent, "first_cell", None)
    width = cell.output_size if cell is not None else getattr(recurrent, "proj_size", 0) or recurrent.hidden_size
    return int(cast(int, width))
