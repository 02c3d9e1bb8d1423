"""From torch's recurrent modules to open cells and back, with the same weights."""

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor, nn

from .abstract import AbstractCell
from .gru import GRUCell
from .lstm import LSTMCell
from .recurrent import Recurrent
from .rnn import Nonlinearity, RNNCell

TorchLayers = nn.LSTM | nn.GRU | nn.RNN
TorchCell = nn.LSTMCell | nn.GRUCell | nn.RNNCell


def from_torch(module: nn.Module, *, share: bool = False) -> Recurrent | AbstractCell:
    """The open twin of a torch recurrent module: same weights, same results, every signal named.

    Parameters
    ----------
    module : an `nn.LSTM`, `nn.GRU` or `nn.RNN`, or one of their cells, or an instance of a subclass.
    share : whether the twin holds the module's own parameters instead of copies.

    Returns
    -------
    A `Recurrent` for layers, a cell for a cell; in the module's train or eval mode.

    Raises
    ------
    TypeError : the module is none of these.
    ValueError : `share=True` where a weight is computed (a parametrization) and so is no parameter to share.

    >>> twin = from_torch(nn.GRU(3, 4, num_layers=2))
    >>> [type(cells[0]).__name__ for cells in twin.cells]
    ['GRUCell', 'GRUCell']
    """
    if isinstance(module, TorchLayers):
        twin: Recurrent | AbstractCell = _layers_from_torch(module)
    elif isinstance(module, TorchCell):
        twin = _cell_from_torch(module)
    else:
        raise TypeError(
            f"from_torch takes nn.LSTM, nn.GRU, nn.RNN or one of their cells; a {type(module).__name__} came."
        )
    for slot in list(_slots(twin)):
        setattr(slot.cell, slot.name, _weight(module, slot.torch_name, share))
    return twin.train(module.training)


def to_torch(module: Recurrent | AbstractCell, *, share: bool = False) -> TorchLayers | TorchCell:
    """The torch module with the weights of an open one; the inverse of `from_torch`.

    Parameters
    ----------
    module : a `Recurrent` of LSTM, GRU or RNN cells, or one such cell.
    share : whether the result holds the open module's own parameters instead of copies.

    Raises
    ------
    TypeError : torch has no such module; a single cell with projection exists in torch only as a layer.

    >>> to_torch(RNNCell(2, 3, nonlinearity="relu"))
    RNNCell(2, 3, nonlinearity=relu)
    """
    if isinstance(module, Recurrent):
        result: TorchLayers | TorchCell = _layers_to_torch(module)
    else:
        result = _cell_to_torch(module)
    for slot in list(_slots(module)):
        setattr(result, slot.torch_name, _weight(slot.cell, slot.name, share))
    return result.train(module.training)


def _layers_from_torch(module: TorchLayers) -> Recurrent:
    def make_cell(width: int) -> AbstractCell:
        if isinstance(module, nn.LSTM):
            return LSTMCell(width, module.hidden_size, bias=module.bias, proj_size=module.proj_size, device="meta")
        if isinstance(module, nn.GRU):
            return GRUCell(width, module.hidden_size, bias=module.bias, device="meta")
        nonlinearity: Nonlinearity = "relu" if module.mode == "RNN_RELU" else "tanh"
        return RNNCell(width, module.hidden_size, bias=module.bias, nonlinearity=nonlinearity, device="meta")

    return Recurrent.stacked(
        make_cell,
        module.input_size,
        num_layers=module.num_layers,
        bidirectional=module.bidirectional,
        batch_first=module.batch_first,
        dropout=module.dropout,
    )


def _cell_from_torch(module: TorchCell) -> AbstractCell:
    if isinstance(module, nn.LSTMCell):
        return LSTMCell(module.input_size, module.hidden_size, bias=module.bias, device="meta")
    if isinstance(module, nn.GRUCell):
        return GRUCell(module.input_size, module.hidden_size, bias=module.bias, device="meta")
    nonlinearity: Nonlinearity = "relu" if module.nonlinearity == "relu" else "tanh"
    return RNNCell(module.input_size, module.hidden_size, bias=module.bias, nonlinearity=nonlinearity, device="meta")


def _layers_to_torch(module: Recurrent) -> TorchLayers:
    cell = module.first_cell
    if len({(each.bias, getattr(each, "nonlinearity", "")) for cells in module.cells for each in cells}) > 1:
        raise TypeError("torch has no layers that differ in bias or nonlinearity; convert the cells one by one.")
    size = (cell.input_size, cell.hidden_size, module.num_layers, cell.bias, module.batch_first)
    result: TorchLayers
    if isinstance(cell, LSTMCell):
        result = nn.LSTM(*size, bidirectional=module.bidirectional, proj_size=cell.proj_size, device="meta")
    elif isinstance(cell, GRUCell):
        result = nn.GRU(*size, bidirectional=module.bidirectional, device="meta")
    elif isinstance(cell, RNNCell):
        result = nn.RNN(
            cell.input_size,
            cell.hidden_size,
            module.num_layers,
            cell.nonlinearity,
            cell.bias,
            module.batch_first,
            bidirectional=module.bidirectional,
            device="meta",
        )
    else:
        raise TypeError(f"torch has LSTM, GRU and RNN layers; layers of {type(cell).__name__} came.")
    result.dropout = module.dropout
    return result


def _cell_to_torch(cell: nn.Module) -> TorchCell:
    if isinstance(cell, LSTMCell) and cell.proj_size:
        raise TypeError(
            f"torch's LSTMCell has no projection; proj_size {cell.proj_size} came. Convert Recurrent([[cell]])."
        )
    if isinstance(cell, LSTMCell):
        return nn.LSTMCell(cell.input_size, cell.hidden_size, cell.bias, device="meta")
    if isinstance(cell, GRUCell):
        return nn.GRUCell(cell.input_size, cell.hidden_size, cell.bias, device="meta")
    if isinstance(cell, RNNCell):
        return nn.RNNCell(cell.input_size, cell.hidden_size, cell.bias, cell.nonlinearity, device="meta")
    raise TypeError(
        f"to_torch takes a Recurrent, LSTMCell, GRUCell or RNNCell of gatescope; a {type(cell).__name__} came."
    )


class _Slot(NamedTuple):
    """One weight, as the open cell and the torch module name it."""

    cell: AbstractCell
    name: str
    torch_name: str


def _slots(opened: Recurrent | AbstractCell) -> Iterator[_Slot]:
    """Every weight of a cell or of layers of cells; tied ones come once for each name."""
    if isinstance(opened, AbstractCell):
        yield from (_Slot(opened, name, name) for name, _ in opened.named_parameters(remove_duplicate=False))
        return
    for layer, cells in enumerate(opened.cells):
        for cell, suffix in zip(cells, ("", "_reverse"), strict=False):
            for name, _ in cell.named_parameters(remove_duplicate=False):
                yield _Slot(cell, name, f"{name}_l{layer}{suffix}")


def _weight(owner: nn.Module, name: str, share: bool) -> nn.Parameter:
    value: Tensor = getattr(owner, name)
    if not share:
        return nn.Parameter(value.detach().clone(), requires_grad=value.requires_grad)
    if not isinstance(value, nn.Parameter):
        raise ValueError(
            f"share=True needs parameters to share; {name} of {type(owner).__name__} is computed by a "
            "parametrization. Remove that or convert with share=False."
        )
    return value
