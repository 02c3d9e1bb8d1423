"""How a call of a recurrent module is noticed, however it is made.

Forward hooks work from any thread but see only calls through the module itself. A function mode sees the kernels that
torch runs (`module.forward(...)`, `torch._VF.lstm`, swapped weights) but only in its own thread. Both are used; what
both see counts once. Per thread there is one mode, shared by all live probes, so that probes may end in any order.
"""

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

T = TypeVar("T")
STACK_KERNELS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
CELL_KERNELS = ("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
KERNELS: dict[Any, str] = {getattr(torch, name): name for name in (*STACK_KERNELS, *CELL_KERNELS)}
REORDER = torch.Tensor.index_select


class Kernel(NamedTuple):
    """One call of a kernel of torch, with the weights that it really used."""

    name: str
    input: Tensor
    state: Tensor | tuple[Tensor, ...]
    weights: list[Tensor]
    batch_sizes: Tensor | None
    batch_first: bool
    output: Any
    random: Tensor | None  # the generator's state before a call that drops values between layers

    @property
    def last(self) -> Tensor:
        """The first of the last states, which packed calls put back into the caller's order."""
        return self.output[1]  # type: ignore[no-any-return]


class Listener(Protocol):
    def hear(self, kernel: Kernel) -> None:
        """A kernel has run in this thread."""

    def hear_order(self, tensor: Tensor, order: Tensor) -> None:
        """Rows of a tensor have been put into another order in this thread."""


class Dispatcher(TorchFunctionMode):
    """The one function mode of a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[Listener] = []

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = KERNELS.get(func) if func.__hash__ else None
        if name is None:
            output = func(*args, **kwargs)
            if func is REORDER and len(args) == 3:
                for listener in tuple(self.listeners):
                    opaque(listener.hear_order)(args[0], args[2])
            return output
        before = parse(name, args, kwargs)
        output = func(*args, **kwargs)
        if not in_backward():
            for listener in tuple(self.listeners):
                opaque(listener.hear)(before._replace(output=output))
        return output


def parse(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Kernel:
    """A kernel's arguments by name; stacks come padded (9 arguments) or packed (8, `batch_sizes` second)."""
    args = (*args, *kwargs.values())
    if name in CELL_KERNELS:
        input, state, *weights = args
        return Kernel(name, input, state, [w for w in weights if w is not None], None, False, None, None)
    packed = isinstance(args[3], (list, tuple))
    input, state, weights = (args[0], args[2], args[3]) if packed else args[:3]
    layers, dropout, training = args[-5:-2] if not packed else args[-4:-1]
    random = generator_state(input.device) if training and dropout > 0 and layers > 1 else None
    return Kernel(name, input, state, list(weights), args[1] if packed else None, not packed and args[-1], None, random)


def generator_state(device: torch.device) -> Tensor:
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


class _Thread(threading.local):
    dispatcher: Dispatcher | None = None


_thread = _Thread()
_dispatchers: dict[Listener, Dispatcher] = {}  # which thread's mode each listener hears


def listen(listener: Listener) -> Dispatcher:
    """Hear the kernels that this thread runs."""
    tidy()
    if _thread.dispatcher is None:
        _thread.dispatcher = Dispatcher()
        _push_mode(_thread.dispatcher)
    _thread.dispatcher.listeners.append(listener)
    return _thread.dispatcher


def unlisten(listener: Listener, dispatcher: Dispatcher) -> None:
    """Hear no more.

    With the last listener of a thread its mode goes, wherever it stands among other modes. Called from another thread,
    the mode stays, lets everything pass, and goes with the next probe of its own thread.
    """
    if listener in dispatcher.listeners:
        dispatcher.listeners.remove(listener)
    tidy()


def tidy() -> None:
    """Take this thread's mode away if nobody listens any more."""
    dispatcher = _thread.dispatcher
    if dispatcher is None or dispatcher.listeners:
        return
    _thread.dispatcher = None
    withdraw(dispatcher)


def withdraw(mode: TorchFunctionMode) -> None:
    """Take a mode away from this thread, wherever it stands among others, if it is there."""
    if mode in _get_current_function_mode_stack():
        above = []
        while (other := _pop_mode()) is not mode:
            above.append(other)
        for other in reversed(above):
            _push_mode(other)


def hears(listener: Listener) -> bool:
    """Whether this thread's kernels reach the listener."""
    return _thread.dispatcher is not None and listener in _thread.dispatcher.listeners


def opaque(act: Callable[..., T]) -> Callable[..., T]:
    """What torch.compile calls and does not look into."""
    dynamo = sys.modules.get("torch._dynamo")
    return act if dynamo is None else dynamo.disable(act)


def unseen(act: Callable[[], T]) -> T:
    """Do something that modes and tensor subclasses of the caller do not see, without gradients."""
    with torch._C.DisableTorchFunction():
        return without_gradients(act)


def without_gradients(act: Callable[[], T]) -> T:
    """`no_grad` whose end no interrupt prevents: torch's own may be interrupted before it has restored the mode."""
    enabled = torch.is_grad_enabled()
    try:
        with torch.no_grad():
            return act()
    finally:
        torch._C._set_grad_enabled(enabled)


def in_backward() -> bool:
    """Whether a backward pass is going on: what runs in it (checkpointing) has been recorded in the forward pass."""
    return torch._C._current_graph_task_id() != -1


def refuse_transforms(path: str) -> None:
    """Inside torch.func's transforms tensors have no values that could be recorded."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise TypeError(
            f"{path!r} must be called outside torch.func's vmap, grad and the like, where tensors have no values of "
            "their own; a call inside one came. Record a plain call of the model."
        )
