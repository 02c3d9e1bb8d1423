"""What a probe leaves in a model while its block runs, and how it follows the calls of the model."""

import sys
import threading
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from .track import Chunk, Track

CALL = nn.Module._call_impl.__code__


class Hook:
    """A hook that can be told to do nothing more; one in a copy or a pickle of its module never does anything."""

    def __init__(self, module: nn.Module | None = None, act: Callable[..., None] | None = None) -> None:
        self.module, self.act = module, act

    def __call__(self, module: nn.Module, *seen: Any) -> None:
        act = self.act
        if act is not None and module is self.module:
            act(*seen)

    def __reduce__(self) -> tuple[type["Hook"], tuple[()]]:
        return Hook, ()


class Calls(threading.local):
    """The calls of one model in one thread: labels given for the next one and what was recorded in the present one."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.reset()

    def reset(self) -> None:
        self.busy = False
        self.labels: dict[str, Any] = {}
        self.chunks: list[tuple[Track, Chunk]] = []
        self.random: dict[str, list[Tensor | None]] = {}

    def begin(self) -> bool:
        """Whether this is the outermost call of the model; what a call that never ended left behind is dropped."""
        if running(self.model) > 1:
            return False
        if self.busy:
            self.reset()
        self.busy = True
        return True

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
