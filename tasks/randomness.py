"""Random streams that are keyed, not shared: what one stream draws does not depend on who else drew before.

A stream is one unsigned 64-bit number, its state (splitmix64: Steele, Lea, Flood 2014, doi 10.1145/2660193.2660195).
Its key is mixed from whole numbers, in this order: seed, network, kind, stream, test number. So the third test of
stream 17 of network 4 is the same, whether or not anything else was trained or tested. Only integer arithmetic is used:
the bits are the same on every machine, and they are part of what results depend on. They never change.

From Python hand states over as `np.uint64`: numba gives them back as plain ints and takes those for signed.
"""

import operator

import numpy as np

from .compiled import compiled

# Kinds: what a stream is drawn for.
WEIGHTS = 0
TRAINING = 1
TESTING = 2
RETEST = 3
SAMPLE = 4

# numba turns uint64 with a plain int into float64, so every constant here is unsigned.
START = np.uint64(0x243F6A8885A308D3)  # fraction of pi; where every key starts
GAMMA = np.uint64(0x9E3779B97F4A7C15)  # fraction of the golden ratio; splitmix64's stride
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
S11, S27, S30, S31, S63 = (np.uint64(shift) for shift in (11, 27, 30, 31, 63))
UNIT = 2.0**-53


@compiled
def scramble(bits: np.uint64) -> np.uint64:
    """The finalizer of splitmix64: one-to-one on 64 bits, each bit of the result depends on each of `bits`."""
    mixed = np.uint64(bits)
    mixed = (mixed ^ (mixed >> S30)) * FIRST
    mixed = (mixed ^ (mixed >> S27)) * SECOND
    return mixed ^ (mixed >> S31)


@compiled
def mix(state: np.uint64, part: np.uint64) -> np.uint64:
    """Mix one more part into a key: `key(a, b)` is `mix(mix(START, a), b)`."""
    return scramble((np.uint64(state) ^ scramble(np.uint64(part) + GAMMA)) + GAMMA)


@compiled
def next_bits(state: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The next state and 64 random bits."""
    following = np.uint64(state) + GAMMA
    return following, scramble(following)


@compiled
def coin(state: np.uint64) -> tuple[np.uint64, np.int64]:
    """The next state and 0 or 1 with equal chance: the top bit of `next_bits`."""
    following, bits = next_bits(state)
    return following, np.int64(bits >> S63)


@compiled
def uniform(state: np.uint64) -> tuple[np.uint64, float]:
    """The next state and a float64 in [0, 1): the top 53 bits of `next_bits`, so each value is a multiple of 2^-53."""
    following, bits = next_bits(state)
    return following, np.float64(bits >> S11) * UNIT


def key(*parts: int) -> np.uint64:
    """The start state of the stream that these whole numbers name.

    Parameters
    ----------
    parts
        Whole numbers in [0, 2^64), usually seed, network, kind, stream, test number. Their order counts.

    Raises
    ------
    TypeError
        For what is no whole number.
    ValueError
        For one out of range.

    Examples
    --------
    >>> bool(key(1, 2) == mix(mix(START, 1), 2)), bool(key(1, 2) == key(2, 1))
    (True, False)
    """
    state = START
    for part in parts:
        number = operator.index(part)
        if not 0 <= number < 2**64:
            raise ValueError(
                f"the numbers that key a random stream must lie in [0, 2^64); {number} came. "
                "Count seeds, networks, streams and tests from 0."
            )
        state = np.uint64(mix(state, np.uint64(number)))
    return state
