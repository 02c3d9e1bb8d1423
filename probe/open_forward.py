"""What stands in for the `forward` of a module while it runs openly."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ..cells import StepTap
from .dispatch import opaque
from .heard import Heard


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
