"""What happened while a model was trained."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

COLUMNS: dict[str, tuple[type, str, str]] = {
    "loss": (float, "cross-entropy, mean over predictions and outputs", "nat"),
    "gradient_norm": (float, "norm of the gradient before clipping", "1"),
    "clipped": (bool, "whether the gradient was clipped", "1"),
    "wrong": (np.int64, "wrong predictions in the chunk, before the update", "1"),
    "restart": (bool, "whether the chunk began from state zero", "1"),
    "symbols": (np.int64, "symbols read so far", "symbols"),
}


@dataclass(frozen=True, eq=False)
class History:
    """What happened while a model was trained.

    Attributes
    ----------
    updates : over `update`: `loss`, `gradient_norm` (before clipping), `clipped`, `wrong` (predictions of the chunk,
        before the update), `restart`, `symbols` (read so far). The call's parameters are its attributes.
    tests : over `test`: `symbols` (read before it), `right` (right predictions before the first wrong one, of the
        sequence that has fewest), `passed`.
    seconds : what training and testing took.
    interrupted : whether Ctrl-C ended it.
    """

    updates: xr.Dataset
    tests: xr.Dataset
    seconds: float
    interrupted: bool

    @property
    def solved_at(self) -> int | None:
        """Symbols read before the first test that was passed; None where none was."""
        passed = self.tests["symbols"].values[self.tests["passed"].values]
        return int(passed[0]) if len(passed) else None

    @property
    def solved(self) -> bool:
        return self.solved_at is not None

    @property
    def symbols(self) -> int:
        """Symbols read in training."""
        return int(self.updates["symbols"].values.max(initial=0))

    @property
    def restarts(self) -> int:
        """How many chunks began from state zero, the first included; for strings all do."""
        return int(self.updates["restart"].sum())

    @property
    def clipped_share(self) -> float:
        """Share of updates whose gradient was clipped; NaN before the first update."""
        return float(self.updates["clipped"].mean()) if self.updates.sizes["update"] else float("nan")

    def __repr__(self) -> str:
        end = f"solved after {self.solved_at:,}" if self.solved else "not solved after " + f"{self.symbols:,}"
        how = " (interrupted)" if self.interrupted else ""
        return f"History({end} symbols, {self.updates.sizes['update']} updates, {self.seconds:.1f} s{how})"


@dataclass(eq=False)
class Log:
    """What a History is made from, update by update."""

    parameters: dict[str, Any]
    updates: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    tests: list[tuple[int, int, bool]] = field(default_factory=list)
    symbols: int = 0
    calm: int = 0  # updates since the last wrong prediction or test
    passed: bool = False
    interrupted: bool = False

    def add(self, loss: float, norm: float, clipped: bool, wrong: int, restart: bool, symbols: int) -> None:
        self.symbols += symbols
        self.calm = 0 if wrong else self.calm + 1
        for name, value in zip(COLUMNS, (loss, norm, clipped, wrong, restart, self.symbols), strict=True):
            self.updates[name].append(value)

    def add_test(self, right: int, passed: bool) -> None:
        self.tests.append((self.symbols, right, passed))
        self.calm, self.passed = 0, passed

    def history(self, seconds: float) -> History:
        whole = min(len(values) for values in self.updates.values())  # Ctrl-C may come between two of them
        updates: dict[str, Any] = {
            name: ("update", np.array(self.updates[name][:whole], kind), {"long_name": text, "units": units})
            for name, (kind, text, units) in COLUMNS.items()
        }
        tests = np.array(self.tests, np.int64).reshape(-1, 3)
        return History(
            updates=xr.Dataset(updates, {"update": np.arange(whole)}, attributes(self.parameters)),
            tests=xr.Dataset(
                {
                    "symbols": ("test", tests[:, 0], {"long_name": "symbols read before the test", "units": "symbols"}),
                    "right": ("test", tests[:, 1], {"long_name": "right predictions before the first error"}),
                    "passed": ("test", tests[:, 2].astype(bool), {"long_name": "whether all were right"}),
                },
                {"test": np.arange(len(tests))},
            ),
            seconds=seconds,
            interrupted=self.interrupted,
        )


def attributes(parameters: dict[str, Any]) -> dict[str, Any]:
    """Parameters as netCDF can hold them: what is None is left out."""
    return {name: value for name, value in parameters.items() if value is not None}
