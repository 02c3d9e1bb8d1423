"""Which reader a recurrent module gets."""

from torch import nn

from ..cells import AbstractCell, Recurrent
from .calls import Observed
from .find import registration
from .foreign import ForeignCell
from .single import OpenCell, TorchCell
from .stacks import OpenStack, TorchStack


def observe(path: str, module: nn.Module) -> Observed:
    """The reader for a module that `find` has found."""
    if registration(module) is not None:
        return ForeignCell(path, module)
    if isinstance(module, Recurrent):
        return OpenStack(path, module)
    if isinstance(module, AbstractCell):
        return OpenCell(path, module)
    if isinstance(module, nn.RNNBase):
        return TorchStack(path, module)
    if isinstance(module, nn.RNNCellBase):
        return TorchCell(path, module)
    raise TypeError(f"{path!r} must be a recurrent module; {type(module).__name__} came. See gatescope.modules(model).")
