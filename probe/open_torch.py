"""Modules of torch that run openly: their own `forward`, but for the kernel in it."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence
from torch.overrides import TorchFunctionMode, _push_mode

from ..cells import AbstractCell, StepTap
from ..cells.unroll import run_kernel
from .calls import as_tuple, shadow
from .counting import Steps
from .dispatch import CELL_KERNELS, KERNELS, withdraw
from .open_forward import OpenForward, lasting


class Kernels(TorchFunctionMode):
    """Within a call of a module, its kernel is run by `run` in the place of torch."""

    def __init__(self, runs: Callable[[str, tuple[Any, ...]], bool], run: Callable[..., Any]) -> None:
        super().__init__()
        self.runs, self.run = runs, run
        self.found = False
        self.live = True

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = KERNELS.get(func) if func.__hash__ else None
        if name is None or not self.live or not self.runs(name, args):
            return func(*args, **(kwargs or {}))
        self.found = True
        return self.run(*args)


class OpenTorch(OpenForward):
    """A module of torch, or of a subclass: its own `forward` runs, but for the kernel in it."""

    def run(self, tap: StepTap | None, *args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        kernels = Kernels(self.runs, lambda *asked: self.kernel(tap, given, *asked))
        try:  # an interrupt may come between any two lines
            _push_mode(kernels)
            output = self.own(*args, **kwargs)
        finally:
            kernels.live = False
            try:
                withdraw(kernels)
            except BaseException:  # a second interrupt
                withdraw(kernels)
                raise
        if not kernels.found:
            raise TypeError(
                f"{self.path!r} must compute its steps with torch's kernels to be opened; its class "
                f"{type(self.module).__name__} ran none. Describe it with gatescope.register."
            )
        return output

    @abstractmethod
    def runs(self, name: str, args: tuple[Any, ...]) -> bool:
        """Whether a kernel that runs within the module's call is its own."""

    @abstractmethod
    def kernel(self, tap: StepTap | None, given: tuple[Any, ...], *args: Any) -> Any:
        """What torch's kernel would return for `args`; `given` is what the module was called with."""


class OpenTorchStack(OpenTorch):
    """nn.LSTM, nn.GRU, nn.RNN and their subclasses."""

    module: nn.RNNBase

    def __init__(self, path: str, module: nn.RNNBase) -> None:
        super().__init__(path, module)
        directions = range(2 if module.bidirectional else 1)
        width = (module.proj_size or module.hidden_size) * len(directions)
        sizes = [module.input_size] + [width] * (module.num_layers - 1)
        self.shadows = [[shadow(module, size) for _ in directions] for size in sizes]

    def runs(self, name: str, args: tuple[Any, ...]) -> bool:
        weights = args[3] if isinstance(args[3], (list, tuple)) else args[2]
        own = self.module._flat_weights
        return name == self.module.mode.lower() and len(own) == len(weights) and own[0] is weights[0]

    def kernel(self, tap: StepTap | None, given: tuple[Any, ...], *args: Any) -> Any:
        """(input, state, weights, bias, layers, dropout, training, bidirectional, batch_first), or packed without the
        last and (rows, batch_sizes, ...) in the place of the input."""
        packed = isinstance(args[3], (list, tuple))
        input, state, weights = (args[0], args[2], args[3]) if packed else args[:3]
        dropout, training = args[6:8] if packed else args[5:7]
        cells = self.cells(weights)
        rows: Tensor | PackedSequence = input
        if packed:
            orders = (v[2:] for v in given if isinstance(v, PackedSequence) and v.batch_sizes is args[1])
            rows = PackedSequence(input, args[1], *next(orders, ()))
        elif args[8]:
            rows = input.transpose(0, 1)
        with lasting(rows):
            output, last = run_kernel(cells, rows, as_tuple(state), dropout if training else 0.0, tap)
        if not packed and args[8]:
            output = output.transpose(0, 1)
        return output, *last

    def cells(self, weights: Sequence[Tensor]) -> list[list[AbstractCell]]:
        """The cells with the weights of a kernel, which stand direction by direction within a layer."""
        given = iter(weights)
        return [[with_weights(cell, given) for cell in layer] for layer in self.shadows]


def with_weights(cell: AbstractCell, weights: Iterable[Tensor | None]) -> AbstractCell:
    """A cell of the same kind that computes with the next of these, as they are; nothing is copied or detached."""
    given = iter(weights)
    twin = copy(cell)
    twin.__dict__["_parameters"] = {
        name: None if weight is None else next(given) for name, weight in cell._parameters.items()
    }
    return twin


class OpenTorchCell(OpenTorch):
    """nn.LSTMCell, nn.GRUCell, nn.RNNCell and their subclasses."""

    module: nn.RNNCellBase

    def __init__(self, path: str, module: nn.RNNCellBase) -> None:
        super().__init__(path, module)
        self.shadow = shadow(module, module.input_size)
        self.steps = Steps()

    def runs(self, name: str, args: tuple[Any, ...]) -> bool:
        return name in CELL_KERNELS

    def kernel(self, tap: StepTap | None, given: tuple[Any, ...], *args: Any) -> Any:
        input, state, *weights = args
        cell = with_weights(self.shadow, (weight for weight in weights if weight is not None))
        new = self.steps.run(cell, input, as_tuple(state), tap, given=sum(value is not None for value in given) > 1)
        return new if len(new) > 1 else new[0]
