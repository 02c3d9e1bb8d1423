"""What a probe leaves in a model while its block runs, and how it follows the calls of the model."""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from .dispatch import Kernel, in_backward, opaque
from .track import Chunk, Track

CALL = nn.Module._call_impl.__code__


class Hook:
    """A hook that can be told to do nothing more; one in a copy or a pickle of its module never does anything.

    torch.compile calls it and does not look inside.
    """

    _torchdynamo_disable = True

    def __init__(self, module: nn.Module | None = None, act: Callable[..., None] | None = None) -> None:
        self.module, self.act = module, act

    def __call__(self, module: nn.Module, *seen: Any) -> None:
        act = self.act
        if act is not None and module is self.module and not in_backward():
            opaque(act)(*seen)

    def __reduce__(self) -> tuple[type["Hook"], tuple[()]]:
        return Hook, ()


@dataclass
class Bracket:
    """A call of an observed module that is going on, and what its kernels have told."""

    random: Tensor | None  # the generator's state before it
    kernel: Kernel | None = None
    recorded: bool = False  # from its kernels already
    heard: Any = None  # what its equations compute, where it runs openly


class Calls(threading.local):
    """The calls of one model in one thread: labels given for the next one and what was recorded in the present one."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.reset()

    def reset(self) -> None:
        self.busy = False
        self.labels: dict[str, Any] = {}
        self.chunks: list[tuple[Track, Chunk]] = []
        self.brackets: dict[str, list[Bracket]] = {}
        self.waiting: tuple[str, Kernel] | None = None  # a packed call whose rows are still in the kernel's order

    def begin(self) -> bool:
        """Whether this is the outermost call of the model; what a call that never ended left behind is dropped."""
        if running(self.model) > 1:
            return False
        if self.busy:
            self.reset()
        self.busy = True
        return True

    def enter(self, path: str, random: Tensor | None, heard: Any = None) -> None:
        self.brackets.setdefault(path, []).append(Bracket(random, heard=heard))

    def leave(self, path: str) -> Bracket:
        stack = self.brackets.get(path)
        return stack.pop() if stack else Bracket(None)

    def innermost(self) -> dict[str, Bracket]:
        """The calls of observed modules that are going on, by path."""
        return {path: stack[-1] for path, stack in self.brackets.items() if stack}

    def is_outermost(self) -> bool:
        return running(self.model) == 1

    def drop_unfinished(self) -> None:
        """Forget a call that ended in an error or an interrupt: its labels must not reach the next one."""
        if self.busy and not running(self.model):
            self.reset()

    def take(self) -> tuple[dict[str, Any], list[tuple[Track, Chunk]]]:
        """Labels and recordings of the call that has ended."""
        labels, chunks = self.labels, self.chunks
        self.reset()
        return labels, chunks


def running(module: nn.Module) -> int:
    """How many calls of a module this thread is in; read off the stack, so that no way out of a call is missed."""
    count, frame = 0, sys._getframe()
    while frame is not None:
        count += frame.f_code is CALL and frame.f_locals.get("self") is module
        frame = frame.f_back  # type: ignore[assignment]
    return count
