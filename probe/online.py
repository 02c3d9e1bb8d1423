"""Everything that `Probe.statistics` says, folded in piece by piece: no step is kept, and no torch is needed."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from ..signals import retention_form, retention_values
from .analyzers.saturation import bounded_names, bounds_of, conclude, edges_of, flat_edges, memory_signal
from .analyzers.tally import Place, Tally
from .bins import BINS, MAGNITUDES, SIGNS, Falls, Histogram, Magnitudes
from .layout import SIGNAL_DIMS
from .moments import Keeping, Scatter, Slope, as_timescale
from .schema import signal_names

LOW, HIGH = 0.1, 0.9
"""Ends of the middle of a signal's range, and what a reset falls between."""
GATHERED = 2**18  # values of one signal that wait to be folded together
FOLDED = 2**16  # values of one signal that are folded at once

Array = npt.NDArray[Any]
HERE = SIGNAL_DIMS[:2]  # layer, direction
UNITS = (*HERE, "unit")


class Piece(NamedTuple):
    """Consecutive steps of some sequences."""

    signals: dict[str, Array]  # (layer, direction, time, sequence, unit)
    real: npt.NDArray[np.bool_]  # (time, sequence), False in padding
    step: npt.NDArray[np.int64]  # (time, sequence), within the sequence
    sequence: npt.NDArray[np.int64]  # (sequence,), their numbers

    def goes_on(self, other: "Piece") -> bool:
        """Whether it holds the same sequences, later."""
        return np.array_equal(self.sequence, other.sequence) and self.signals.keys() == other.signals.keys()


class Online:
    """Running statistics of one module.

    Parameters
    ----------
    template
        A recording of the module without any step: names, coordinates and attributes.
    """

    def __init__(self, template: xr.Dataset) -> None:
        self.template = template
        self.names = [name for name in signal_names(template) if template[name].dims == SIGNAL_DIMS]
        self.shape = tuple(template.sizes[dim] for dim in UNITS)
        bounded = bounded_names(template)
        self.tallies = {name: Tally.empty(self.shape, edges_of(template, name, LOW, HIGH)) for name in bounded}
        self.histograms = {
            name: Histogram.empty(self.shape, bounds_of(template[name]) or (np.nan, np.nan)) for name in bounded
        }
        self.magnitudes = {name: Magnitudes.empty(self.shape) for name in self.names if name not in bounded}
        self.memory = memory_signal(template)
        self.memory_tally = Tally.empty(self.shape, flat_edges(template)) if self.memory else None
        self.scatter, self.slope = Scatter.empty(self.shape), Slope.empty(self.shape)
        form, keep = retention_form(template.attrs["retention"])
        self.keeps = form == "constant" or keep in self.names
        self.keeping, self.falls = Keeping.empty(self.shape), Falls.empty(self.shape, LOW, HIGH)
        self.steps = 0
        self.gathered: list[Piece] = []

    def add(self, piece: Piece) -> None:
        """Take a piece in; small ones that follow each other wait and are folded together."""
        if self.gathered and not self.gathered[-1].goes_on(piece):
            self.fold()
        self.gathered.append(piece)
        if sum(part.real.size for part in self.gathered) * self.shape[2] >= GATHERED:
            self.fold()

    def fold(self) -> None:
        """Fold in all that waits."""
        parts, self.gathered = self.gathered, []
        if not parts:
            return
        piece = joined(parts)
        self.steps += int(piece.real.sum())
        standing = self.falls.stand(piece.sequence)
        with np.errstate(over="ignore", invalid="ignore"):
            for layer, direction in np.ndindex(*self.shape[:2]):
                for part in blocks(piece, (layer, direction), self.shape[2]):
                    self.fold_in((layer, direction), part, standing[layer, direction])
        if self.shape[1] == 1:  # sequences with a backward direction never go on
            self.falls.keep(piece.sequence, standing)

    def fold_in(self, at: Place, piece: Piece, standing: npt.NDArray[np.int8]) -> None:
        """Fold in a block of one layer and direction, (time, sequence, unit), in the order of computation."""
        flat = {name: chosen(values, piece.real) for name, values in piece.signals.items()}
        for name, values in flat.items():
            if name in self.tallies:
                self.tallies[name].add(at, values)
                self.histograms[name].add(at, values)
            else:
                self.magnitudes[name].add(at, values)
        if self.memory_tally is not None:
            memory = flat[self.memory]
            self.memory_tally.add(at, memory)
            memory = memory.astype(np.float64)
            self.scatter.add(at, memory)
            self.slope.add(at, chosen(piece.step, piece.real).astype(np.float64), np.abs(memory))
        if self.keeps:
            keep = np.asarray(retention_values(self.template.attrs["retention"], piece.signals), np.float64)
            keep = np.broadcast_to(keep, next(iter(piece.signals.values())).shape)
            self.keeping.add(at, chosen(keep, piece.real))
            self.falls.add(at, np.where(piece.real[..., None], keep, np.nan), standing)

    def forget(self, going_on: set[int]) -> None:
        """Sequences other than these will not go on."""
        self.falls.forget(going_on | {number for part in self.gathered for number in part.sequence.tolist()})

    def merge(self, other: "Online") -> None:
        """Take in what has been folded of other sequences of the same module, by another probe."""
        self.fold()
        other.fold()
        self.steps += other.steps
        for mine, theirs in zip(self.parts(), other.parts(), strict=True):
            mine.merge(theirs)

    def parts(self) -> list[Any]:
        named = (*self.tallies.values(), *self.histograms.values(), *self.magnitudes.values())
        rest = (self.scatter, self.slope, self.keeping, self.falls)
        return [*named, *(() if self.memory_tally is None else (self.memory_tally,)), *rest]

    def result(self) -> xr.Dataset:
        """All statistics of what has come so far, over (layer, direction, unit)."""
        self.fold()
        result = conclude(self.template, self.tallies, self.memory_tally, LOW, HIGH).assign(
            self.histogram_part() | self.memory_part() | self.retention_part()
        )
        if self.histograms:
            result = result.assign_coords(
                bin=("bin", (np.arange(BINS) + 0.5) / BINS, {"long_name": "middle of the bin"})
            )
        if self.magnitudes:
            upper = np.append(MAGNITUDES[1:], np.inf)
            result = result.assign_coords(
                unbounded=np.array(list(self.magnitudes), dtype=object),
                sign=np.array(SIGNS),
                magnitude=("magnitude", MAGNITUDES, {"long_name": "lower end of the bin"}),
                magnitude_upper=("magnitude", upper, {"long_name": "upper end of the bin"}),
            )
        result = result.assign_attrs(measure="statistics", reset_low=LOW, reset_high=HIGH, real_steps=self.steps)
        lost = self.not_finite()
        return result.assign_attrs(nonfinite=lost) if lost else result

    def histogram_part(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.histograms:
            counts = np.stack([histogram.counts for histogram in self.histograms.values()])
            said = {"long_name": "steps in each part of the signal's range", "units": "1"}
            found["histogram"] = (("signal", *UNITS, "bin"), counts, said)
        if self.magnitudes:
            counts = np.stack([magnitudes.counts for magnitudes in self.magnitudes.values()])
            said = {"long_name": "steps by sign and magnitude", "units": "1"}
            found["magnitude_histogram"] = (("unbounded", *UNITS, "sign", "magnitude"), counts, said)
        return found

    def memory_part(self) -> dict[str, Any]:
        if not self.memory:
            return {}
        covariance = (*UNITS, "other_unit")
        return {
            "other_unit": ("other_unit", self.template["unit"].values),
            "memory_mean": (UNITS, self.scatter.mean_or_nan, {"long_name": f"mean of {self.memory}", "units": "1"}),
            "memory_covariance": (
                covariance,
                self.scatter.covariance,
                {"long_name": f"covariance of {self.memory} over units", "units": "1"},
            ),
            "memory_steps": (
                HERE,
                self.scatter.steps,
                {"long_name": "steps on which all units are finite", "units": "1"},
            ),
            "drift_slope": (
                UNITS,
                self.slope.slope,
                {"long_name": f"slope of |{self.memory}| over the step within its sequence", "units": "1/step"},
            ),
            "drift_standard_error": (
                UNITS,
                self.slope.standard_error,
                {"long_name": "standard error of the slope, for independent residuals", "units": "1/step"},
            ),
        }

    def retention_part(self) -> dict[str, Any]:
        if not self.keeps:
            return {}
        keeping, retention = self.keeping, self.template.attrs["retention"]
        with np.errstate(divide="ignore", invalid="ignore"):
            of_mean = as_timescale(np.log(keeping.mean))
        parts = {
            "retention_mean": (keeping.mean, f"mean of {retention}", "1"),
            "retention_mean_log": (keeping.mean_log, f"mean of log {retention} where it is above 0", "1"),
            "retention_timescale": (keeping.timescale, f"-1 / mean of log {retention}", "steps"),
            "retention_timescale_of_mean": (of_mean, f"-1 / log of the mean of {retention}", "steps"),
            "retention_zeros": (keeping.zeros, f"steps on which {retention} is exactly 0", "1"),
            "resets": (self.falls.counts, f"falls of {retention} from above {HIGH} to below {LOW}", "1"),
        }
        return {
            name: (UNITS, values, {"long_name": said, "units": units}) for name, (values, said, units) in parts.items()
        }

    def not_finite(self) -> str:
        """How many values of which signals were left out, in words; empty where none was."""
        whole = self.steps * int(np.prod(self.shape))
        seen = {name: int(tally.steps.sum()) for name, tally in self.tallies.items()}
        seen |= {name: int(magnitudes.counts.sum()) for name, magnitudes in self.magnitudes.items()}
        lost = [f"{whole - count} of {whole} values of {name}" for name, count in seen.items() if count < whole]
        return f"NaN or Inf at {', '.join(lost)}" if lost else ""


def joined(parts: list[Piece]) -> Piece:
    """Pieces that follow each other as one."""
    if len(parts) == 1:
        return parts[0]
    return Piece(
        {name: np.concatenate([part.signals[name] for part in parts], 2) for name in parts[0].signals},
        np.concatenate([part.real for part in parts]),
        np.concatenate([part.step for part in parts]),
        parts[0].sequence,
    )


def blocks(piece: Piece, at: Place, units: int) -> Iterator[Piece]:
    """One layer and direction cut into blocks of a size for the cache, in the order of computation.

    In the backward direction steps count from the end of the sequence.
    """
    time, sequences = piece.real.shape
    order = slice(None, None, -1) if at[1] else slice(None)
    step = piece.real.sum(0) - 1 - piece.step if at[1] else piece.step
    size = max(1, FOLDED // max(1, sequences * units))
    for start in range(0, time, size):
        here = slice(start, start + size)
        signals = {name: values[at][order][here] for name, values in piece.signals.items()}
        yield Piece(signals, piece.real[order][here], step[order][here], piece.sequence)


def chosen(values: Array, real: npt.NDArray[np.bool_]) -> Array:
    """The real steps (step, ...) of values (time, sequence, ...); not copied where all are."""
    return values.reshape(-1, *values.shape[2:]) if real.all() else values[real]
