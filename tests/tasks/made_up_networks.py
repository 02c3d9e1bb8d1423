"""Networks whose outcome is drawn from their number alone: a module of its own, so that other processes can import it.

The folder in the environment variable MADE_UP says what already happened.
"""

import os
import signal
import time
from pathlib import Path

import numpy as np

from gatescope.tasks.experiment import Outcome, Setting

LENGTHS = {"perfect": (100_000, 100_001), "good": (1_000, 90_000), "rest": (5, 200)}


def outcome(network: int, verdict: str, streams: int = 5000, again: bool = True, capped: bool = False) -> Outcome:
    """A network of this verdict; `again` says whether a perfect one passes the retest."""
    rng = np.random.default_rng(network)
    lengths = [int(length) for length in rng.integers(*LENGTHS[verdict], 10)]
    return Outcome(
        network=network,
        verdict=verdict,
        streams=streams,
        symbols=streams * 90,
        tests=tuple(lengths),
        retests=tuple(lengths if again else [50, *lengths[1:]]),
        capped=capped,
        restarts=0,
        weights={"cell.weight_ih": rng.normal(size=(4, 7)), "readout.bias": rng.normal(size=7)},
        curve=np.array([[1.0, 9.0], [2.0, 12.5]]),
        seconds=0.5,
    )


def run(setting: Setting, network: int) -> Outcome:
    rng = np.random.default_rng([setting.seed, network, len(setting.variant)])
    return outcome(network, str(rng.choice(list(LENGTHS))), int(rng.integers(100, 30_000)), bool(rng.integers(2)))


def slow(setting: Setting, network: int) -> Outcome:
    time.sleep(0.03)
    return run(setting, network)


def first_time(what: str) -> bool:
    try:
        (Path(os.environ["MADE_UP"]) / what).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def kills_its_worker_once(setting: Setting, network: int) -> Outcome:
    if network in (1, 4) and first_time(f"{setting.variant}-{network}"):
        os.kill(os.getpid(), signal.SIGKILL)
    return run(setting, network)


def third_kills_its_worker(setting: Setting, network: int) -> Outcome:
    if network == 3 and setting.variant == "forget":
        os.kill(os.getpid(), signal.SIGKILL)
    return run(setting, network)


class Unstartable:
    """A function that no other process can load."""

    def __call__(self, setting: Setting, network: int) -> Outcome:
        return run(setting, network)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os._exit, (7,)


def third_raises(setting: Setting, network: int) -> Outcome:
    if network == 3:
        raise ArithmeticError("no number\nat all")
    return run(setting, network)
