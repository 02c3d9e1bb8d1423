"""What is measured, and the form of one measured number."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

UNSTEADY = 0.4
"""Distance of the quartiles, in medians, from which a median says nothing about a reach."""


class Case(NamedTuple):
    kind: str
    sequences: int
    steps: int
    units: int
    reach: float  # the ratio to the bare call that is to be reached
    layers: int = 1
    directions: int = 1

    @property
    def name(self) -> str:
        more = f", {self.layers} layers, both directions" if self.layers * self.directions > 1 else ""
        return f"{self.kind} {self.sequences}x{self.steps}x{self.units}{more}"

    def small(self) -> "Case":
        """The same on a shape that takes no time, to try the benchmark itself."""
        sizes = (min(self.sequences, 3), max(2, self.steps // 50), max(4, self.units // 16))
        return self._replace(**dict(zip(("sequences", "steps", "units"), sizes, strict=True)))

    def module(self) -> nn.RNNBase:
        torch.manual_seed(0)
        both = self.directions == 2
        module: nn.RNNBase = getattr(nn, self.kind)(self.units, self.units, self.layers, bidirectional=both)
        return module.eval()

    def input(self) -> Tensor:
        return torch.randn(self.steps, self.sequences, self.units, generator=torch.Generator().manual_seed(1))


CASES = (
    Case("LSTM", 1, 1000, 64, 2.0),
    Case("LSTM", 32, 200, 256, 2.5),
    Case("LSTM", 64, 100, 512, 2.6),
    Case("LSTM", 8, 5000, 128, 3.2),
    Case("LSTM", 32, 200, 256, 2.5, layers=2, directions=2),
    Case("GRU", 1, 1000, 64, 2.0),
    Case("GRU", 32, 200, 256, 2.0),
    Case("GRU", 64, 100, 512, 2.0),
)


class Row(NamedTuple):
    """One measured number: median and quartiles over rounds."""

    case: str
    threads: int
    way: str
    measure: str
    unit: str
    median: float | None = None
    lower: float | None = None
    upper: float | None = None
    reach: float | None = None  # at most this was to be reached
    note: str = ""

    @property
    def met(self) -> bool | None:
        return None if self.reach is None or self.median is None else self.median <= self.reach

    @property
    def steady(self) -> bool:
        """Whether the quartiles are near enough to each other for the median to say something."""
        if self.median is None or self.lower is None or self.upper is None:
            return True
        return self.upper - self.lower <= UNSTEADY * abs(self.median)

    def as_dict(self) -> dict[str, str | int | float | bool | None]:
        return self._asdict() | {"met": self.met, "steady": self.steady}

    def text(self, form: str = ".2f") -> str:
        """Median, the quartiles where there are some, and whether the reach was met."""
        if self.median is None:
            return self.note
        words = [format(self.median, form)]
        if self.lower != self.upper:
            words.append(f"({self.lower:{form}}-{self.upper:{form}})")
        if self.met is not None:
            words.append("met" if self.met else f"missed {self.reach:g}")
        return " ".join(words if self.steady else [*words[:2], "unsteady"])
