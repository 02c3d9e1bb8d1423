"""Which step of its sequence a call of a single cell is, for taps that name steps."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..cells import StepTap
from ..signals import Tap, no_tap
from .find import State
from .track import RECENT


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
