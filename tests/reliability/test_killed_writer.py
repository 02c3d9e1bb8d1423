"""A writer that dies at any moment loses one buffer at most; what was committed opens, is right and goes on."""

import importlib.util
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import gatescope as gs

WRITER = Path(__file__).with_name("writer.py")


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """As in the writer: products on several threads may round otherwise."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("killed_writer", WRITER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def in_memory(writer: ModuleType, seed: int, calls: int) -> xr.Dataset:
    module = writer.model().eval()
    with gs.attach(module) as probe:
        writer.run(module, probe, seed, calls)
    return probe.recording()


class Nursery:
    """Starts writers in children of one process, which has loaded torch once."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(WRITER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def start(self, path: Path, seed: int, calls: int = 100_000, limit: int | None = None) -> int:
        assert self.process.stdin is not None
        print(
            json.dumps({"path": str(path), "seed": seed, "number": calls, "limit": limit}),
            file=self.process.stdin,
            flush=True,
        )
        return int(self.hear()["began"])

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def kill(self, child: int) -> None:
        os.kill(child, signal.SIGKILL)
        assert self.hear() == {"ended": -signal.SIGKILL}

    def end(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)  # a child that still writes as well
        self.process.communicate()


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.end()


def check(writer: ModuleType, path: Path, seed: int) -> int:
    """What opens is a whole recording and equals the same calls recorded in memory; their number."""
    opened = gs.open_recording(path)
    assert isinstance(opened, xr.Dataset)
    gs.validate(opened, values=True)
    assert opened.attrs["parity"] < opened.attrs["tolerance"]
    calls = int(opened.attrs["calls"])
    expected = in_memory(writer, seed, calls)
    xr.testing.assert_allclose(expected, opened.load(), rtol=1e-12)
    for name in ("cell_state", "forget_gate", "initial_cell_state"):
        np.testing.assert_array_equal(expected[name], opened[name])
    return calls


def kill_and_go_on(
    writer: ModuleType, nursery: Nursery, path: Path, moment: float, seed: int, *, committed: bool
) -> None:
    """Kill a writer a moment after it began, or after its first commit, and go on where it was."""
    child = nursery.start(path, seed)
    while committed and not (path / ".stream" / "zarr.json").exists():
        time.sleep(0.001)
    time.sleep(moment)
    nursery.kill(child)
    if not (path / ".stream" / "zarr.json").exists():  # nothing was committed yet
        with pytest.raises(gs.SchemaError):
            gs.open_recording(path)
        assert not committed
        calls, before = 0, []
    else:
        calls = check(writer, path, seed)
        before = [in_memory(writer, seed, calls)]
    module = writer.model().eval()
    with gs.attach(module, store=path, append=True) as probe:
        writer.run(module, probe, seed + 1, 12)
    after = gs.open_recording(path)
    assert isinstance(after, xr.Dataset)
    gs.validate(after, values=True)
    assert after.attrs["calls"] == calls + 12
    assert "unfinished" not in after.attrs
    xr.testing.assert_allclose(gs.concat([*before, in_memory(writer, seed + 1, 12)]), after.load(), rtol=1e-12)


@pytest.mark.parametrize("moment", [0.0, 0.003, 0.2])
def test_a_killed_writer_leaves_all_that_was_committed_and_can_be_gone_on_with(
    writer: ModuleType, nursery: Nursery, tmp_path: Path, moment: float
) -> None:
    kill_and_go_on(writer, nursery, tmp_path / "run.zarr", moment, seed=3, committed=True)


@pytest.mark.slow
@pytest.mark.parametrize("round", range(50))
def test_a_writer_killed_at_random_loses_no_commit(
    writer: ModuleType, nursery: Nursery, tmp_path: Path, round: int
) -> None:
    kill_and_go_on(
        writer,
        nursery,
        tmp_path / "run.zarr",
        random.Random(round).uniform(0, 0.5),
        seed=round,
        committed=round % 5 > 0,
    )


@pytest.mark.parametrize("limit", [30_000, 200_000])
def test_a_file_that_may_not_grow_is_told_in_a_sentence_and_what_was_committed_stays(
    writer: ModuleType, nursery: Nursery, tmp_path: Path, limit: int
) -> None:
    path = tmp_path / "run.zarr"
    nursery.start(path, 5, limit=limit)
    assert "The disk must take the next buffer" in nursery.hear()["error"]
    assert nursery.hear() == {"ended": 0}
    if (path / ".stream" / "zarr.json").exists():
        check(writer, path, 5)


def run_and_fail(writer: ModuleType, module: torch.nn.LSTM, probe: gs.Probe) -> None:
    writer.run(module, probe, 7, 9)
    module(torch.zeros(2, 5, 4))


def test_an_error_in_the_model_ends_the_store_with_every_call_before_it(writer: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "run.zarr"
    module = writer.model().eval()
    probe = gs.attach(module, store=path)
    with pytest.raises(RuntimeError, match=r"Expected 3, got 4"), probe:
        run_and_fail(writer, module, probe)
    assert check(writer, path, 7) == 9
    assert "unfinished" not in gs.open_recording(path).attrs


def test_a_second_writer_is_refused_until_the_first_is_dead(
    writer: ModuleType, nursery: Nursery, tmp_path: Path
) -> None:
    path = tmp_path / "run.zarr"
    child = nursery.start(path, 5)
    module = writer.model().eval()
    again = gs.attach(module, store=path, append=True)
    with pytest.raises(BlockingIOError, match=f"process {child} is writing"), again:
        pass
    nursery.kill(child)
    with gs.attach(module, store=path, append=True) as probe:
        writer.run(module, probe, 5, 1)
