"""How long the strings of a grammar are: exact, by linear algebra over the automaton's table, and drawn."""

import numpy as np
import numpy.typing as npt
import xarray as xr

from .automaton import EMBEDDED, Automaton
from .grammar import ERG, measure

Numbers = npt.NDArray[np.float64]

SHORTEST = 9  # symbols of the shortest string of the embedded grammar
LONGEST = 400  # beyond it a string comes once in 10^53
REPORT_FIT = 3 / 11  # a = b in the report's p(l) = b exp(-a (l - 9))
REPORT_MEAN = 11.54
REPORT_LONGEST = 50  # "beyond 50", of 80,000 strings


def transitions(automaton: Automaton) -> tuple[Numbers, Numbers]:
    """Chance to go from state to state (state, state after), and to end with the next symbol (state,).

    Raises
    ------
    ValueError
        For an automaton without an end.
    """
    ends = np.flatnonzero(automaton.branches == 0)
    if len(ends) == 0:
        raise ValueError(
            "the automaton must have an end, a state without branches; one whose strings never end came. "
            "Take automaton.EMBEDDED or automaton.REBER."
        )
    chances = np.zeros((automaton.states, automaton.states))
    for state, branches in enumerate(automaton.branches):
        for branch in range(branches):
            chances[state, automaton.targets[state, branch]] += 1 / branches
    inside = automaton.branches > 0
    return chances[np.ix_(inside, inside)], chances[np.ix_(inside, ~inside)].sum(axis=1)


def length_chances(automaton: Automaton = EMBEDDED, *, longest: int = LONGEST) -> Numbers:
    """The chance of each string length 0, 1, ... `longest`, exact but for rounding.

    Examples
    --------
    >>> length_chances(longest=12)[8:].tolist()
    [0.0, 0.25, 0.1875, 0.125, 0.109375]
    """
    inner, ending = transitions(automaton)
    chances = np.zeros(longest + 1)
    stands = np.eye(len(ending))[0]
    for length in range(1, longest + 1):
        chances[length] = stands @ ending
        stands = stands @ inner
    return chances


def mean_and_deviation(automaton: Automaton = EMBEDDED) -> tuple[float, float]:
    """Mean and standard deviation of the string length.

    With Q the chances to go from state to state, m = (I - Q)^-1 1 is the mean number of steps left from each state and
    2 (I - Q)^-1 m - m that of its square.
    """
    inner, ending = transitions(automaton)
    steps = np.eye(len(ending)) - inner
    mean = np.linalg.solve(steps, np.ones(len(ending)))
    square = 2 * np.linalg.solve(steps, mean) - mean
    return float(mean[0]), float(np.sqrt(square[0] - mean[0] ** 2))


def tail(automaton: Automaton = EMBEDDED, *, shortest: int = SHORTEST) -> tuple[float, float]:
    """Coefficient c and rate r of what p(l) comes near to for long strings: c r^(l - shortest).

    r is the largest eigenvalue of the chances to go from state to state; c is p(l) / r^(l - shortest) at a length where
    nothing but r is left (the next eigenvalue is 0.5, so all else is below 10^-25 of it).
    """
    settled = 200
    inner, _ = transitions(automaton)
    rate = float(np.abs(np.linalg.eigvals(inner)).max())
    return float(length_chances(automaton, longest=settled)[settled] / rate ** (settled - shortest)), rate


def report_chances(lengths: npt.NDArray[np.int64]) -> Numbers:
    """The report's fit, p(l) = 3/11 exp(-3/11 (l - 9)) from 9 on; it sums to 1.14."""
    return np.where(lengths >= SHORTEST, REPORT_FIT * np.exp(-REPORT_FIT * (lengths - SHORTEST)), 0.0)


def drawn_lengths(strings: int, *, seed: int = 0, stream: int = 0) -> npt.NDArray[np.int64]:
    """Lengths of the first strings of `ERG(seed=seed, stream=stream)`."""
    lengths = np.zeros(strings, np.int64)
    measure(EMBEDDED.symbols, EMBEDDED.targets, EMBEDDED.branches, ERG(seed=seed, stream=stream).random(0), lengths)
    return lengths


def string_lengths(*, strings: int = 100_000, seed: int = 0, longest: int = 60) -> xr.Dataset:
    """How often each length comes among the strings of the embedded Reber grammar, beside the exact chances.

    Parameters
    ----------
    strings
        How many are drawn.
    seed
        Keys what is drawn: the strings of `ERG(seed=seed)`.
    longest
        Up to which length the result goes; longer strings count in the attributes' means, not in `drawn`.

    Returns
    -------
    xr.Dataset
        Over `length` (symbols, from 9 on): `exact` (chance), `drawn` (share of the strings), `tail` (the
        geometric tail that `exact` comes near to) and `report` (the report's fit). Attributes: the exact
        mean and standard deviation, those drawn, the tail's coefficient and rate, the report's mean, what its fit
        sums to, and the parameters.

    References
    ----------
    F. A. Gers, J. Schmidhuber, F. Cummins (1999). Learning to Forget: Continual Prediction with LSTM. Technical report
    IDSIA-01-99, figure 4.

    Examples
    --------
    >>> statistics = string_lengths(strings=1000)
    >>> statistics["exact"].sel(length=[9, 10]).values.tolist(), round(statistics.attrs["exact_mean"], 9)
    ([0.25, 0.1875], 12.0)
    """
    check_count(strings, "strings", 1)
    check_count(longest, "longest", SHORTEST)
    lengths = np.arange(SHORTEST, longest + 1)
    drawn = drawn_lengths(strings, seed=seed)
    mean, deviation = mean_and_deviation()
    coefficient, rate = tail()
    share = np.bincount(drawn, minlength=longest + 1)[SHORTEST : longest + 1] / strings
    curves = {
        "exact": (length_chances(longest=longest)[SHORTEST:], "chance of the length"),
        "drawn": (share, "share of the strings drawn"),
        "tail": (coefficient * rate ** (lengths - SHORTEST), "geometric tail"),
        "report": (report_chances(lengths), "the report's fit"),
    }
    return xr.Dataset(
        {name: ("length", values, {"long_name": text, "units": "1"}) for name, (values, text) in curves.items()},
        coords={"length": ("length", lengths, {"long_name": "symbols of a string", "units": "symbols"})},
        attrs={
            "measure": "string_lengths",
            "strings": strings,
            "seed": seed,
            "exact_mean": mean,
            "exact_standard_deviation": deviation,
            "drawn_mean": float(drawn.mean()),
            "drawn_standard_deviation": float(drawn.std()),
            "tail_coefficient": coefficient,
            "tail_rate": rate,
            "report_mean": REPORT_MEAN,
            "report_sum": float(report_chances(np.arange(SHORTEST, LONGEST)).sum()),
        },
    )


def check_count(value: object, name: str, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number from {least} on; {value!r} came. Give for instance 100.")


def longest_of(chances: Numbers, strings: npt.ArrayLike) -> Numbers:
    """The chance that the longest of `strings` strings has at most 0, 1, ... symbols: F(l)^N, (strings, length).

    `chances` are those of the lengths 0, 1, ...; where they sum to more than 1, as the report's fit does, F is
    1 minus the chance of longer strings, and at least 0.
    """
    beyond = np.append(np.cumsum(chances[:0:-1])[::-1], 0.0)
    counts = np.asarray(strings, dtype=np.float64)[..., None]
    with np.errstate(divide="ignore"):
        chance: Numbers = np.exp(counts * np.log1p(-np.minimum(beyond, 1.0)))
    return chance


def longest_strings(
    *,
    strings: npt.ArrayLike = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 80_000),
    runs: int = 20,
    seed: int = 0,
) -> xr.Dataset:
    """How long the longest of N strings of the embedded Reber grammar is: it grows like log N.

    Parameters
    ----------
    strings
        The N, ascending.
    runs
        How often N strings are drawn; run r draws from `ERG(seed=seed, stream=r)`.
    seed
        Keys what is drawn.

    Returns
    -------
    xr.Dataset
        Over `strings`: `expected` (exact mean of the longest), `lower` and `upper` (its 5 % and 95 % quantiles),
        `beyond_50` (chance that a string longer than 50 is among them), `report` (the mean that follows from the
        report's fit). Over `run`, `strings`: `drawn` (longest of the first N). All in symbols but the chance.

    References
    ----------
    As for `string_lengths`; figure 5.

    Examples
    --------
    >>> result = longest_strings(strings=[1, 80_000], runs=1)
    >>> result["expected"].values.round().tolist()
    [12.0, 47.0]
    """
    check_count(runs, "runs", 1)
    given = np.asarray(strings)
    counts = given.astype(np.int64) if given.dtype.kind in "iu" else np.empty(0, np.int64)
    if counts.ndim != 1 or len(counts) == 0 or counts[0] < 1 or (np.diff(counts) <= 0).any():
        raise ValueError(f"strings must be ascending whole numbers from 1 on; {strings!r} came. Give [10, 100, 1000].")
    lengths = np.arange(LONGEST + 1)
    exact, report = (longest_of(chances, counts) for chances in (length_chances(), report_chances(lengths)))
    drawn = np.array([drawn_lengths(int(counts[-1]), seed=seed, stream=run) for run in range(runs)])
    running = np.maximum.accumulate(drawn, axis=1)[:, counts - 1]
    curves = {
        "expected": ((1 - exact).sum(axis=1), "exact mean of the longest", "symbols"),
        "lower": ((exact < 0.05).sum(axis=1), "5 % quantile", "symbols"),
        "upper": ((exact < 0.95).sum(axis=1), "95 % quantile", "symbols"),
        "beyond_50": (1 - exact[:, REPORT_LONGEST], "chance of one longer than 50 symbols", "1"),
        "report": ((1 - report).sum(axis=1), "mean that follows from the report's fit", "symbols"),
    }
    result = xr.Dataset(
        {
            name: ("strings", values, {"long_name": text, "units": unit})
            for name, (values, text, unit) in curves.items()
        },
        coords={"strings": ("strings", counts, {"long_name": "strings drawn"}), "run": np.arange(runs)},
        attrs={"measure": "longest_strings", "runs": runs, "seed": seed, "report_longest": REPORT_LONGEST},
    )
    return result.assign(drawn=(("run", "strings"), running, {"long_name": "longest of a run", "units": "symbols"}))
