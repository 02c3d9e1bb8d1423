"""Running statistics of a million steps: memory does not grow with what has been seen."""

import subprocess
import sys

import pytest

A_MILLION_STEPS = """
import resource, sys, time
from pathlib import Path
import torch
import gatescope as gs

torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.LSTM(8, 64).eval()
x = torch.randn(1000, 1, 8)
joined, calls = sys.argv[1] == "joined", int(sys.argv[2])

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6

with torch.no_grad(), gs.attach(model, statistics=True) as probe:
    state = None
    for call in range(calls):
        if call == 20:
            before, begun = resident(), time.perf_counter()
        _, state = model(x, state) if joined else model(x)
grown, took = resident() - before, time.perf_counter() - begun
result = probe.statistics()
print(result.attrs["real_steps"], result.attrs["sequences"], round(grown, 1), round(took, 1))
"""


def run(kind: str, calls: int) -> tuple[int, int, float]:
    command = [sys.executable, "-W", "error", "-c", A_MILLION_STEPS, kind, str(calls)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    steps, sequences, grown, _ = done.stdout.split()
    return int(steps), int(sequences), float(grown)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sequences"), [("joined", 1), ("apart", 1000)])
def test_a_million_steps_take_less_than_50_megabytes(kind: str, sequences: int) -> None:
    steps, found, grown = run(kind, 1000)
    assert (steps, found) == (1_000_000, sequences)
    assert grown < 50
