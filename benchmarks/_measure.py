"""How the benchmarks measure: paired times, peak memory, the machine."""

import contextlib
import ctypes
import gc
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Took(NamedTuple):
    """Seconds of one run."""

    cpu: float  # of all threads of the process
    wall: float

    def plus(self, other: "Took") -> "Took":
        return Took(self.cpu + other.cpu, self.wall + other.wall)

    def times(self, factor: float) -> "Took":
        return Took(factor * self.cpu, factor * self.wall)


class Spread(NamedTuple):
    """Median and quartiles."""

    median: float
    lower: float
    upper: float


def timed(act: Callable[[], Any]) -> tuple[Took, Any]:
    cpu, wall = time.process_time(), time.perf_counter()
    result = act()
    return Took(time.process_time() - cpu, time.perf_counter() - wall), result


def spread(values: list[float]) -> Spread:
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    lower, median, upper = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(median, lower, upper)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No garbage is collected in the middle of a run."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def can_measure_memory() -> bool:
    """Whether the system tells the peak of the resident set and lets it be reset (Linux)."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return False
    return "VmHWM" in STATUS.read_text()


def peak_beyond_start(act: Callable[[], Any]) -> int:
    """Bytes by which the resident set rises while `act` runs; the result is alive at the end.

    Freed memory goes back to the system before, so that all of it counts.
    """
    gc.collect()
    with contextlib.suppress(AttributeError, OSError):  # another C library has no such function
        ctypes.CDLL(None).malloc_trim(0)
    CLEAR.write_text("5")  # the peak is now what is resident now
    before = resident("VmRSS")
    result = act()
    peak = resident("VmHWM")
    del result
    return peak - before


def resident(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+) kB", STATUS.read_text())
    if found is None:
        raise OSError(f"/proc/self/status must tell {name}; it does not. Run on Linux.")
    return int(found[1]) * 1024


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def processor() -> str:
    with contextlib.suppress(OSError):
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        if found:
            return found[1]
    return platform.processor() or platform.machine()


def load() -> float | None:
    """Processes that want a core, on average of the last minute; above the number of cores, times scatter."""
    return round(os.getloadavg()[0], 2) if sys.platform != "win32" else None
