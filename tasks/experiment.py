"""The paper's experiment with one network: train it stream by stream until it is perfect or time is up, then test it.

After every training stream, which ends at its first wrong prediction, weights are frozen and up to ten test streams
run; the first that fails ends the tests, for the network is then not perfect. All ten run to their own end once,
after training. A network's result depends on nothing but its setting and its number.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .engine import GOING_ON, OUT_OF_STREAMS, OUT_OF_SYMBOLS, SOLVED
from .learners import STRINGS, StreamLearner, StringLearner, Verdict
from .packing import unpacked
from .setting import Setting
from .variants import VARIANTS

__all__ = ["STRINGS", "VARIANTS", "Outcome", "Setting", "Verdict", "run_network"]

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Outcome:
    """What became of one network.

    Attributes
    ----------
    network : its number.
    verdict : `perfect` when all test streams were without error, `good` when they were longer than 1000 symbols on
        average, else `rest`. Networks of `erg` are `perfect` or `rest`.
    streams, symbols : how much it was trained on; for `erg`, streams are strings.
    tests : right symbols before the first error in each test stream of the last pass. For `erg`, right strings among
        the 256 of the training set and the 256 of the test set.
    retests : the same for ten fresh streams; for `erg`, right strings among ten times 256 fresh ones.
    capped : whether it was given up because it had learned from `max_symbols` symbols.
    restarts : how often it began with new weights.
    weights : by name, as in the state dict of `BlockNetwork`.
    curve : (point, 2), number of training streams and mean of right symbols per stream since the point before. Empty
        for `erg`.
    seconds : process time.
    """

    network: int
    verdict: Verdict
    streams: int
    symbols: int
    tests: tuple[int, ...]
    retests: tuple[int, ...]
    capped: bool
    restarts: int
    weights: dict[str, NDArray[np.float64]] = field(repr=False)
    curve: NDArray[np.float64] = field(repr=False)
    seconds: float


def run_network(setting: Setting, network: int, *, progress: Progress | None = None) -> Outcome:
    """Train and test one network; the same setting and number give the same bits.

    Parameters
    ----------
    setting : everything else that decides the result.
    network : its number, from 0.
    progress : called about every second with the number of streams and of symbols so far.

    Returns
    -------
    Outcome
        What became of it.
    """
    started = time.process_time()
    learner = (StreamLearner if setting.task == "cerg" else StringLearner)(setting, network)
    status, restarts = GOING_ON, 0
    while status == GOING_ON:
        until = setting.max_streams
        if setting.restart_after is not None:
            until = min(until, (restarts + 1) * setting.restart_after)
        status = learner.advance(until)
        if status == OUT_OF_STREAMS and learner.streams < setting.max_streams:
            restarts += 1
            learner.begin(restarts)
            status = GOING_ON
        if progress is not None:
            progress(learner.streams, learner.symbols)
    tests = learner.tests()
    return Outcome(
        network=network,
        verdict="perfect" if status == SOLVED else learner.verdict(tests),
        streams=learner.streams,
        symbols=learner.symbols,
        tests=tests,
        retests=learner.retests(),
        capped=status == OUT_OF_SYMBOLS,
        restarts=restarts,
        weights=unpacked(learner.weights, learner.readout, setting.wiring),
        curve=learner.curve(),
        seconds=time.process_time() - started,
    )
