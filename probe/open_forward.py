"""What stands in for the `forward` of a module that runs openly: one class for each kind of recurrent module."""

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from inspect import signature
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from torch.overrides import TorchFunctionMode, _push_mode
from torch.utils._pytree import tree_flatten, tree_unflatten

from ..cells import AbstractCell, Recurrent, StepTap
from ..cells.recurrent import run_kernel
from ..signals import Tap, no_tap
from .calls import shadow
from .dispatch import CELL_KERNELS, KERNELS, opaque, withdraw
from .find import State, registration
from .foreign import ForeignCell
from .heard import Heard
from .origins import Origins
from .track import RECENT


class OpenForward(ABC):
    """A module's `forward` while it is open; it stands in the module's own dictionary and goes with the last block.

    A copy of the module, and a pickled one, has the module's own `forward` again. torch.compile does not look inside.
    """

    def __init__(self, path: str, module: nn.Module) -> None:
        self.path, self.module = path, module
        self.before: Callable[..., Any] | None = vars(module).get("forward")
        self.entries: list[tuple[object, StepTap | None]] = []
        self.waiting = Waiting()

    def enter(self, key: object, tap: StepTap | None) -> None:
        """Take a block's tap in, after those of the blocks around it."""
        self.entries = [*self.entries, (key, tap)]
        vars(self.module)["forward"] = self

    def leave(self, key: object) -> None:
        """Take a block's tap out; with the last block the module has its own `forward` again."""
        self.entries = [entry for entry in self.entries if entry[0] is not key]
        if not self.entries and vars(self.module).get("forward") is self:
            if self.before is None:
                del vars(self.module)["forward"]
            else:
                vars(self.module)["forward"] = self.before

    @property
    def own(self) -> Callable[..., Any]:
        """The module's own `forward`."""
        return self.before or cast(Callable[..., Any], type(self.module).forward.__get__(self.module))

    def tap(self) -> StepTap | None:
        """The taps of all blocks as one, the outermost first."""
        taps = [tap for _, tap in self.entries if tap is not None]
        return None if not taps else taps[0] if len(taps) == 1 else Chain(taps)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return opaque(self.call)(*args, **kwargs)

    def call(self, *args: Any, **kwargs: Any) -> Any:
        waiting, self.waiting.heard = self.waiting.heard, []
        if not self.entries:  # somebody has kept it beyond the block
            return self.own(*args, **kwargs)
        tap = self.tap()
        for heard in waiting:
            tap = heard.after(tap)
        return self.run(tap, *args, **kwargs)

    def overhear(self) -> Heard:
        """What this thread's next call will compute."""
        heard = Heard()
        self.waiting.heard = [*self.waiting.heard, heard]
        return heard

    @abstractmethod
    def run(self, tap: StepTap | None, *args: Any, **kwargs: Any) -> Any:
        """One call of the module, computed openly."""

    def __reduce__(self) -> tuple[Any, ...]:
        if self.before is not None:
            return _as_given, (self.before,)
        return getattr, (self.module, "forward")  # its own dictionary does not have one yet


OpenForward.__call__._torchdynamo_disable = True  # type: ignore[attr-defined]


class Running(threading.local):
    """The call of an open stack that a thread is in: how many steps each row of the caller's batch has."""

    lengths: list[int] | None = None  # where the input is packed


running = Running()


@contextmanager
def lasting(packed: object) -> Iterator[None]:
    """For a block, the lengths of packed input are told."""
    before = running.lengths
    try:
        if isinstance(packed, PackedSequence):
            _, lengths = pad_packed_sequence(packed._replace(data=packed.data[:, :0]))
            running.lengths = lengths.tolist()
        yield
    finally:
        running.lengths = before


class Waiting(threading.local):
    """What wants to hear the next call of a thread."""

    def __init__(self) -> None:
        self.heard: list[Heard] = []


def _as_given(forward: Any) -> Any:
    return forward


class Chain:
    """Taps one after the other."""

    def __init__(self, taps: Sequence[StepTap]) -> None:
        self.taps = taps

    def __call__(self, name: str, value: Tensor, /, *, layer: int, direction: str, time: Any) -> Tensor:
        for tap in self.taps:
            value = tap(name, value, layer=layer, direction=direction, time=time)
        return value


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
        states = (state,) if isinstance(state, Tensor) else tuple(state)
        with lasting(rows):
            output, last = run_kernel(cells, rows, states, dropout if training else 0.0, tap)
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
        states = (state,) if isinstance(state, Tensor) else tuple(state)
        cell = with_weights(self.shadow, (weight for weight in weights if weight is not None))
        new = self.steps.run(cell, input, states, tap, given=sum(value is not None for value in given) > 1)
        return new if len(new) > 1 else new[0]


class OpenStack(OpenForward):
    """Our own unrolled stack, which is open already."""

    module: Recurrent

    def run(self, tap: StepTap | None, *args: Any, **kwargs: Any) -> Any:
        given = kwargs.pop("tap", None)
        taps = [each for each in (given, tap) if each is not None]
        with lasting(next(iter((*args, *kwargs.values())), None)):
            return self.own(*args, **kwargs, tap=Chain(taps) if taps else None)


class OpenCell(OpenForward):
    """One of our own cells in the user's loop, which is open already."""

    module: AbstractCell

    def __init__(self, path: str, module: AbstractCell) -> None:
        super().__init__(path, module)
        self.steps = Steps()

    def run(self, tap: StepTap | None, *args: Any, **kwargs: Any) -> Any:
        if tap is None:
            return self.own(*args, **kwargs)
        call = signature(type(self.module).forward).bind(self.module, *args, **kwargs).arguments
        given = call.get("tap", no_tap)
        rest = {name: value for name, value in call.items() if name not in ("self", "x", "state", "tap")}
        step = Joined(self.own, given, rest)
        return self.steps.run(step, call["x"], tuple(call["state"]), tap)


class Joined:
    """A cell's own call with a tap in front and its other arguments."""

    def __init__(self, own: Callable[..., Any], first: Tap, rest: Mapping[str, Any]) -> None:
        self.own, self.first, self.rest = own, first, rest

    def __call__(self, x: Tensor, state: State, tap: Tap) -> Any:
        first = self.first
        joined = tap if first is no_tap else lambda name, value: tap(name, first(name, value))
        return self.own(x, state, joined, **self.rest)


class OpenForeign(OpenForward):
    """A cell of a registered class: its own `forward` says how it is called and answers, our cell what it computes."""

    def __init__(self, path: str, module: nn.Module) -> None:
        super().__init__(path, module)
        self.observed = ForeignCell(path, module)
        self.origins = Origins(self.observed.registration.as_cell, module)
        self.steps = Steps()

    def run(self, tap: StepTap | None, *args: Any, **kwargs: Any) -> Any:
        output = self.own(*args, **kwargs)
        input, given, answered = self.observed.parts(args, kwargs, output)
        [[built]] = self.observed.cells()
        cell = self.origins.cell(built)
        state = tuple(torch.zeros_like(entry) for entry in answered) if given is None else given
        new = self.steps.run(cell, input, state, tap, given=given is not None)
        leaves, form = tree_flatten(output)
        instead = {id(old): value for old, value in zip(answered, new, strict=True)}
        if {id(leaf) for leaf in leaves if isinstance(leaf, Tensor)} == instead.keys():
            return tree_unflatten([instead.get(id(leaf), leaf) for leaf in leaves], form)
        if tap is None:
            return output
        raise TypeError(
            f"{self.path!r} must answer its new states, and no other tensor, for its signals to be changed; its class "
            f"{type(self.module).__name__} answers something made of them. Register the class of its inner cell."
        )


class Steps(threading.local):
    """Which step of its sequence each row of a cell's call is: calls that continue each other are joined."""

    def __init__(self) -> None:
        self.recent: deque[Step] = deque(maxlen=RECENT)

    def run(
        self,
        step: Callable[[Tensor, State, Tap], State],
        input: Tensor,
        state: State,
        tap: StepTap | None,
        *,
        given: bool = True,
    ) -> State:
        """One step with a tap on each named value, which sees (row, unit)."""
        if tap is None:
            self.recent.clear()
            return step(input, state, no_tap)
        time = self.time(rows_of(state), given)
        now: Any = int(time[0]) if len(time) and bool((time == time[0]).all()) else time

        def see(name: str, value: Tensor) -> Tensor:
            if value.dim() == 2:
                return tap(name, value, layer=0, direction="forward", time=now)
            rows = value.reshape(-1, value.shape[-1])
            return tap(name, rows, layer=0, direction="forward", time=now).reshape(value.shape)

        new = step(input, state, see)
        self.recent.appendleft(Step(rows_of(new), time + 1))
        return new

    def time(self, state: State, given: bool) -> Tensor:
        """(row,) 0 where a row's state is not, bit for bit, what a recent call handed out and none has gone on from."""
        rows = len(state[0])
        time = torch.zeros(rows, dtype=torch.long)
        found = torch.zeros(rows, dtype=torch.bool)
        for earlier in self.recent if given else ():
            if len(earlier.time) != rows or found.all():
                continue
            same = torch.stack([(a == b).all(-1).cpu() for a, b in zip(earlier.state, state, strict=True)]).all(0)
            same &= ~found & ~earlier.gone_on
            time = torch.where(same, earlier.time, time)
            earlier.gone_on |= same
            found |= same
        return time


class Step:
    """What a call of a cell has handed out."""

    def __init__(self, state: State, time: Tensor) -> None:
        self.state, self.time = state, time
        self.gone_on = torch.zeros(len(time), dtype=torch.bool)


def rows_of(state: State) -> State:
    return tuple(entry.detach().reshape(-1, entry.shape[-1]) for entry in state)


def open_forward(path: str, module: nn.Module) -> OpenForward:
    """What stands in for the `forward` of a module that `find` has found."""
    compiled = getattr(module, "_compiled_call_impl", None)
    if compiled is not None:
        raise TypeError(
            f"{path!r} must not be compiled to be opened; module.compile() was called. Open the model before that."
        )
    if registration(module) is not None:
        return OpenForeign(path, module)
    if isinstance(module, Recurrent):
        return OpenStack(path, module)
    if isinstance(module, AbstractCell):
        return OpenCell(path, module)
    if isinstance(module, nn.RNNBase):
        return OpenTorchStack(path, module)
    if isinstance(module, nn.RNNCellBase):
        return OpenTorchCell(path, module)
    raise TypeError(f"{path!r} must be a recurrent module; {type(module).__name__} came. See gatescope.modules(model).")
