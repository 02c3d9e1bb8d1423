"""The process that the tests of a killed writer start: each line it reads lets a child record calls into a store.

A line holds the arguments of `write` as JSON; so do the answers: `began` (the child's number), `error`, `ended`.
"""

import json
import os
import resource
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import gatescope as gs
from gatescope.probe import stored, streaming


def model() -> nn.LSTM:
    torch.manual_seed(0)
    return nn.LSTM(3, 8, num_layers=2, batch_first=True)


def calls(seed: int, number: int) -> Iterator[tuple[Tensor, bool, list[str], list[int]]]:
    """Input, whether the last state goes in, labels and lengths: batches of any length, streams that go on."""
    numbers = torch.Generator().manual_seed(seed)
    for k in range(number):
        rows = 3
        steps = 11 if k % 5 else int(torch.randint(1, 40, (1,), generator=numbers))
        x = torch.randn(rows, steps, 3, generator=numbers)
        lengths = torch.randint(1, steps + 1, (rows,), generator=numbers).tolist() if k % 5 == 0 else [steps] * rows
        token = [["aé", "\0b", ""][k % 3] for _ in range(steps)]
        yield x, k % 5 > 1, token, lengths


def run(module: nn.LSTM, probe: gs.Probe, seed: int, number: int) -> None:
    """The calls, in eval mode and without gradients, as any loop would make them."""
    state = None
    with torch.no_grad():
        for x, goes_on, token, lengths in calls(seed, number):
            probe.annotate(token=[token] * len(x), lengths=lengths)
            _, state = module(x, state if goes_on else None)


def write(path: str, seed: int, number: int, limit: int | None) -> None:
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    stored.BATCH_BYTES = 1 if seed % 2 else 2**60  # batches as they come, or row by row
    module = model().eval()
    with gs.attach(module, store=path) as probe:
        tell({"began": os.getpid()})
        run(module, probe, seed, number)


def tell(said: dict[str, Any]) -> None:
    print(json.dumps(said), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    streaming.BUFFER_BYTES = 100_000
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                write(**json.loads(line))
            except BaseException as error:
                tell({"error": f"{type(error).__name__}: {error}"})
            os._exit(0)
        tell({"ended": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])})


if __name__ == "__main__":
    main()
