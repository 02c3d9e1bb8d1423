"""One observed call in one form, whatever the module: time first, sequences in the caller's order."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..cells import AbstractCell, GRUCell, LSTMCell, RNNCell
from .dispatch import Kernel
from .find import State


class Layer(NamedTuple):
    """What a layer read and what it computed; the last dimension of `hidden` holds its directions side by side."""

    input: Tensor  # (time, sequence, feature)
    hidden: Tensor  # (time, sequence, direction * H), the model's own
    mask: Tensor | None = None  # (time, sequence, feature), what dropout multiplied the layer below with


class Ends(NamedTuple):
    """The model's own tensors at which gradients arrive, and how those come into the form of the call."""

    tensors: State
    arrange: Callable[[State], tuple[Tensor, State]]
    """From a gradient for each tensor to that at the shown states (time, sequence, direction * H) and those at the last
    states (layer * direction, sequence, H)."""
    total: bool = False
    """Whether what arrives is the whole gradient of each state: autograd sees how the step shows its memory."""


class Call(NamedTuple):
    layers: list[Layer]
    initial: State  # each (layer * direction, sequence, H), in the order of the cell's `states`
    final: State
    given: bool  # the caller handed a state in
    lengths: Tensor | None  # steps per sequence where the input was packed
    computed: State  # other states that the model itself shows at every step: (time, sequence, H) each
    ends: Ends
    heard: Any = None  # what the equations had, where the module ran openly


class Observed(ABC):
    """A recurrent module and how to read its calls."""

    def __init__(self, path: str, module: nn.Module) -> None:
        self.path = path
        self.module = module

    @abstractmethod
    def cells(self) -> list[list[AbstractCell]]:
        """[layer][direction], with the weights that the module has now."""

    @property
    def kind(self) -> AbstractCell:
        """A cell of the module's kind, for what it declares; its weights do not count and need not be computed."""
        return self.cells()[0][0]

    @abstractmethod
    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, random: Tensor | None) -> Call: ...

    used: list[Tensor] | None = None
    """The weights that the last kernel has used, where one was heard; otherwise the module's own count."""
    runs_kernels: ClassVar[bool] = False
    """Whether the module computes by torch's kernels, which a function mode can hear."""

    def runs(self, kernel: Kernel) -> bool:
        """Whether a kernel has been run with this module's weights."""
        return False

    def fits(self, kernel: Kernel) -> bool:
        """Whether a kernel that ran within a call of this module is its own: then it says which weights were used."""
        return self.runs(kernel)

    def read_kernel(self, kernel: Kernel, order: Tensor | None) -> Call:
        """The call behind a kernel that was run without the module; `order` puts rows back into the caller's order."""
        raise TypeError(f"{self.path!r} must be called as a module; a bare kernel came. Call the module itself.")

    @property
    def plain(self) -> bool:
        """Whether the module is called as torch's own class is, so that the call itself says everything."""
        return True

    def random_state(self) -> Tensor | None:
        """What must be kept before a call so that its dropout between layers can be replayed."""
        return None

    @property
    def dropout(self) -> float:
        return 0.0

    @property
    def bidirectional(self) -> bool:
        return False


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], index: int, *names: str) -> Any:
    if len(args) > index:
        return args[index]
    return next((kwargs[name] for name in names if name in kwargs), None)


def as_tuple(state: Any) -> State:
    return (state,) if isinstance(state, Tensor) else tuple(state)


def are_tensors(*values: Any) -> bool:
    return all(isinstance(value, Tensor) for value in values)


def zeros(like: State) -> State:
    return tuple(torch.zeros_like(tensor) for tensor in like)


def shadow(module: nn.RNNBase | nn.RNNCellBase, input_size: int) -> AbstractCell:
    """Our cell with the equations of a torch module, still without weights."""
    kind = type(module).__mro__
    sizes = (input_size, module.hidden_size)
    if nn.LSTM in kind or nn.LSTMCell in kind:
        return LSTMCell(*sizes, bias=bool(module.bias), proj_size=getattr(module, "proj_size", 0), device="meta")
    if nn.GRU in kind or nn.GRUCell in kind:
        return GRUCell(*sizes, bias=bool(module.bias), device="meta")
    squasher: Any = module.nonlinearity
    return RNNCell(*sizes, bias=bool(module.bias), nonlinearity=squasher, device="meta")


def bind(cell: AbstractCell, weights: dict[str, Tensor]) -> None:
    """Let a cell without weights of its own compute with these; nothing is copied."""
    for name, weight in weights.items():
        cell._parameters[name] = weight.detach()  # type: ignore[assignment]


def settled(module: Any) -> Any:
    """The module with the weights that its parametrizations, norms or masks have computed last as its parameters.

    To ask the module would compute parametrized ones anew, which in training may draw random numbers and change
    buffers. A module that computes no weights is given back itself.
    """
    chains = module._modules["parametrizations"] if parametrize.is_parametrized(module) else {}
    parts = {
        name: None if part is None else settled(part) for name, part in module._modules.items() if part is not chains
    }
    fields = dict(module.__dict__)
    computed = {name: fields.pop(name) for name, value in module.__dict__.items() if isinstance(value, Tensor)}
    if not (chains or computed) and all(part is module._modules[name] for name, part in parts.items()):
        return module
    devices = list({weight.device for weight in module.parameters() if weight.device.type == "cuda"})
    with torch.no_grad(), torch.random.fork_rng(devices):
        computed |= {name: deepcopy(chain).eval()() for name, chain in chains.items()}
    twin: Any = object.__new__(parametrize.type_before_parametrizations(module))
    twin.__dict__ |= {**fields, "_modules": parts, "_parameters": {**module._parameters, **computed}}
    return twin


def signal_names(cell: AbstractCell) -> list[str]:
    """All signals and pre-activations that a cell gives, in the order it computes them: what it taps in one step."""
    if type(cell) in _tapped:
        return list(_tapped[type(cell)])
    found: list[str] = []

    def listen(name: str, value: Tensor) -> Tensor:
        found.append(name)
        return value

    like = next(cell.parameters(), torch.zeros(()))
    with torch.no_grad():
        cell.forward(like.new_zeros(cell.input_size), cell.zero_state(like), listen)
    if type(cell) in (LSTMCell, GRUCell, RNNCell):  # whatever their sizes
        _tapped[type(cell)] = tuple(found)
    return found


_tapped: dict[type[AbstractCell], tuple[str, ...]] = {}


def version(tensor: Tensor) -> tuple[int, int]:
    """Changes when a tensor is written to in place or replaced."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version
