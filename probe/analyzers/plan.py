"""What is taken of every layer and direction alike: which products, how exactly, and in which batches."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .horizons import (
    CUT_COST,
    DOUBLE_COST,
    EXACT_COST,
    EXACT_HORIZON,
    Horizons,
    choose_ends,
    choose_method,
    thinned,
)
from .products import Whole
from .reading import Part, Source
from .steps import Places, Steps
from .survival import JUDGED, POWERS

MEMORY = 2**27  # bytes of factors or rows that are held at once


class Batch(NamedTuple):
    """Products whose steps are read together; `last` counts sequences and steps within the part."""

    part: Part
    last: Places
    rows: Whole  # which of all products these are


class Plan:
    """What is taken of every layer and direction alike."""

    def __init__(self, source: Source, horizons: Horizons, method: str, end: int | None) -> None:
        self.source, self.horizons = source, horizons
        total = sum(source.widths)
        per_step = 2.0 * total**3  # of a whole product; 16 units^3 for h and c
        reach = float(np.minimum(np.maximum(source.lengths - 1, 0), horizons.most).sum())
        self.method = choose_method(method, reach * per_step / 2)
        self.asked_method = method
        self.last = choose_ends(source.lengths, end, horizons.most, per_step)
        if self.method == "range":
            self.last = thinned(self.last, max(1, int(EXACT_COST // (horizons.most * 64 * 2.0 * total**2))))
        self.cost = float(np.minimum(self.last[1], horizons.most).sum()) * per_step
        self.dtype = np.dtype(np.float64) if self.cost <= DOUBLE_COST else source.precision
        self.cut_last = thinned(self.last, int(CUT_COST // (5 * per_step * horizons.most)))
        cut_cost = 5 * len(self.cut_last[0]) * per_step * horizons.most
        self.cut_method = self.method if cut_cost <= 5 * CUT_COST else "range"
        self.exact_first = len(self.last[0]) * EXACT_HORIZON * per_step <= EXACT_COST

    def attrs(self, horizons: Sequence[int] | None, end: int | None) -> dict[str, Any]:
        return {
            "measure": "gradient_flow",
            "method": self.asked_method,
            "method_used": self.method,
            "knockout_method": self.cut_method,
            "horizons": "default" if horizons is None else str(np.unique(np.atleast_1d(horizons)).tolist()),
            "end": "spread over each sequence" if end is None else int(end),
            "products": len(self.last[0]),
            "precision": self.dtype.name,
            "jacobian": "recorded" if self.source.stored else "from signals and weights",
            "judged_steps": JUDGED,
            "judged_powers_of_ten": POWERS,
        }

    def batches(self, layer: int, direction: int, last: Places) -> Iterator[Batch]:
        """Products in batches that can be held: sequences whole, or of very long ones the stretch that is needed."""
        lengths, source = self.source.lengths, self.source
        total = sum(source.widths)
        width = total * total if source.stored else 8 * source.recording.sizes["unit"]
        longest = int(lengths[last[0]].max(initial=1))
        bytes_each = longest * width * self.dtype.itemsize
        at_once = max(1, MEMORY // (self.dtype.itemsize * total * total * 6))
        if bytes_each > MEMORY:
            for row, (sequence, end) in enumerate(zip(*last, strict=True)):
                first = max(0, int(end) - self.horizons.most)
                part = Part(layer, direction, np.array([sequence]), first, int(end) + 1)
                yield Batch(part, (np.zeros(1, np.int64), np.array([end - first])), np.array([row]))
            return
        group = max(1, MEMORY // bytes_each)
        sequences = np.unique(last[0])
        for first in range(0, len(sequences), group):
            chosen = sequences[first : first + group]
            rows = np.nonzero(np.isin(last[0], chosen))[0]
            part = source.part(layer, direction, chosen)
            for start in range(0, len(rows), at_once):
                these = rows[start : start + at_once]
                yield Batch(part, (np.searchsorted(chosen, last[0][these]), last[1][these]), these)


def each_batch(plan: Plan, layer: int, direction: int, last: Places) -> Iterator[tuple[Batch, Steps]]:
    """Batches with their steps, which are read once for batches of one part."""
    part, steps = None, None
    for batch in plan.batches(layer, direction, last):
        if steps is None or batch.part is not part:
            part, steps = batch.part, plan.source.steps(batch.part, plan.dtype)
        yield batch, steps
