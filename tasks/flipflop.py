"""The flip-flop: as many bits to hold as there are inputs, each set anew by now and then a pulse."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from .compiled import compiled
from .grammar import KINDS, Sample
from .randomness import key, uniform

NUMBERS = ("seed", "network", "stream", "test")


@dataclass(frozen=True, kw_only=True)
class FlipFlop:
    """Say of every input which sign its last pulse had: `bits` memories of one bit each, side by side.

    At each step each input is 0, or with the chance `pulse` a pulse of 1 or -1, either as likely. The target of an
    output is 1 from a pulse of 1 on, and 0 from a pulse of -1 on. At a stream's first step every input has a pulse, so
    that nothing has to be guessed. A network has learned it when it holds 2^bits states for any length of time: with
    three bits they are the corners of a cube, which is where `gatescope.fixed_points` finds them.

    `FlipFlop(seed=0).sample(n)` gives n steps of each of `streams` endless streams as a `gatescope.tasks.Sample`
    (sequence = stream); `chunks(n)` goes on with n more each time. Streams are keyed one by one: row 2 of
    `FlipFlop(stream=5, streams=3)` is `FlipFlop(stream=7)`. Labels, each (sequence, time):

    - `held`: the bits after the step, such as `+-+`.
    - `pulses`: the step's inputs, such as `+.-`.

    Parameters
    ----------
    bits
        How many inputs and outputs, at least 1.
    pulse
        Chance of a pulse in each input at each step, above 0 and at most 1.
    seed, network, stream, test, kind
        What keys the random streams, as for `gatescope.tasks.CERG`.
    streams
        How many streams run side by side: `stream`, `stream + 1`, ...

    Raises
    ------
    TypeError, ValueError
        For a parameter that is no whole number, or out of range.

    References
    ----------
    D. Sussillo, O. Barak (2013). Opening the black box: low-dimensional dynamics in high-dimensional recurrent neural
    networks. Neural Computation 25 (3), 626-649. doi 10.1162/NECO_a_00409. (There inputs are smooth and targets -1, 1.)

    Examples
    --------
    >>> sample = FlipFlop(bits=2, pulse=0.3, seed=1).sample(6)
    >>> sample.inputs[0].T.astype(int).tolist()
    [[1, 0, -1, -1, 0, 0], [-1, -1, 0, 0, 0, 0]]
    >>> sample.targets[0].T.astype(int).tolist()
    [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]
    >>> sample.labels["held"][0].tolist()
    ['+-', '+-', '--', '--', '--', '--']
    """

    bits: int = 3
    pulse: float = 0.1
    seed: int = 0
    network: int = 0
    stream: int = 0
    test: int = 0
    kind: str = "sample"
    streams: int = 1

    endless: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}; {self.kind!r} came. Take 'sample'.")
        for name in (*NUMBERS, "bits", "streams"):
            whole(name, getattr(self, name), 0 if name in NUMBERS else 1)
        if not isinstance(self.pulse, Real) or isinstance(self.pulse, bool) or not 0 < self.pulse <= 1:
            raise ValueError(f"pulse must be a chance above 0 and at most 1; {self.pulse!r} came. The default is 0.1.")

    def sample(self, size: int) -> Sample:
        """The first `size` steps of each stream; always the same, and a larger sample begins with it."""
        return next(self.chunks(size))

    def chunks(self, size: int) -> Iterator[Sample]:
        """Consecutive samples of this size, without end; together they equal one long sample."""
        return self._chunks(whole("size", size, 1))

    def batches(self, kind: str, *, first: int, streams: int, steps: int) -> Iterator[Sample]:
        """What a trainer or a test of this kind reads: `streams` streams at a time, from stream `first` on."""
        return replace(self, kind=kind, stream=self.stream + first, streams=streams).chunks(steps)

    def _chunks(self, size: int) -> Iterator[Sample]:
        kind = KINDS[self.kind]
        random = np.array([key(self.seed, self.network, kind, self.stream + n, self.test) for n in range(self.streams)])
        held: npt.NDArray[np.int8] | None = None
        while True:
            drawn = np.empty((self.streams, size, self.bits))
            draw(random, drawn)
            inputs = (drawn < self.pulse / 2).astype(np.int8) - (drawn >= 1 - self.pulse / 2)
            if held is None:
                inputs[:, 0] = np.where(drawn[:, 0] < 0.5, 1, -1)
            states = followed(inputs, held)
            held = states[:, -1]
            yield as_sample(inputs, states)


@compiled
def draw(random: npt.NDArray[np.uint64], into: npt.NDArray[np.float64]) -> None:
    """Fill (stream, step, bit) with numbers in [0, 1), each stream from its own state, which goes on."""
    for stream in range(into.shape[0]):
        state = random[stream]
        for step in range(into.shape[1]):
            for bit in range(into.shape[2]):
                state, into[stream, step, bit] = uniform(state)
        random[stream] = state


def followed(inputs: npt.NDArray[np.int8], held: npt.NDArray[np.int8] | None) -> npt.NDArray[np.int8]:
    """The bits after each step, as 1 and -1, (sequence, time, bit): the sign of the last pulse.

    >>> followed(np.array([[[0], [1], [0], [-1]]], np.int8), np.array([[-1]], np.int8)).ravel().tolist()
    [-1, 1, 1, -1]
    """
    before = inputs[:, :1] if held is None else held[:, None]
    every = np.concatenate([before, inputs], axis=1)
    last = np.maximum.accumulate(np.where(every != 0, np.arange(every.shape[1])[None, :, None], 0), axis=1)
    return np.take_along_axis(every, last, axis=1)[:, 1:]


def as_sample(inputs: npt.NDArray[np.int8], states: npt.NDArray[np.int8]) -> Sample:
    return Sample(
        inputs=inputs.astype(np.float32),
        targets=(states > 0).astype(np.float32),
        mask=np.ones(inputs.shape[:2], bool),
        lengths=np.full(len(inputs), inputs.shape[1], np.int64),
        labels={"held": signs(states), "pulses": signs(inputs)},
    )


def signs(values: npt.NDArray[np.int8]) -> npt.NDArray[np.object_]:
    """Text of each step, one character a bit: `+`, `-`, or `.` for 0."""
    letters = np.array([".", "+", "-"], object)[values]  # -1 is the last one
    joined: npt.NDArray[np.object_] = letters.sum(axis=-1)
    return joined


def whole(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number from {least} on; {value!r} came. Give for instance {least}.")
    if value < least:
        raise ValueError(f"{name} must be a whole number from {least} on; {value} came. Give for instance {least}.")
    return int(value)
