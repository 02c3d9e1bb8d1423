"""What `gradient_flow` finds of one layer and direction."""

import numpy as np

from .horizons import LEVELS, SAMPLE_VALUES, SAMPLES, Horizons, quantiles
from .norms import WHOLE, BlockNorms, block_names, block_norms, judged_block, sources_targets
from .paths import path_shares
from .plan import MEMORY, Plan, each_batch
from .products import Numbers, Whole
from .reading import Part
from .steps import FactoredSteps


class Place:
    """What is found of one layer and direction."""

    def __init__(self, plan: Plan, layer: int, direction: int) -> None:
        self.plan, self.layer, self.direction = plan, layer, direction
        self.norms, self.blocks, self.paths = norms_of(plan, layer, direction)
        self.reference, self.cut = self._cut()
        self.cell_path, self.samples = cell_path(plan, layer, direction)
        self.shares = shares(plan, layer, direction)

    def _cut(self) -> tuple[Numbers, Numbers]:
        """log10 norms (product, horizon) with nothing cut, and (path, product, horizon) with a path cut."""
        plan = self.plan
        count, every = len(plan.cut_last[0]), len(plan.horizons.every)
        reference, cut = np.full((count, every), np.nan), np.full((len(self.paths), count, every), np.nan)
        if not self.paths:
            return reference, cut
        only = Horizons(plan.horizons.every, plan.horizons.every[:0])
        whole = {place: row for row, place in enumerate(zip(*plan.last, strict=True))}
        for row, place in enumerate(zip(*plan.cut_last, strict=True)):
            reference[row] = self.norms.frobenius[whole[place], 0]
        for batch, steps in each_batch(plan, self.layer, self.direction, plan.cut_last):
            for number, path in enumerate(self.paths):
                other = FactoredSteps(steps.factors.without(path))  # type: ignore[attr-defined]
                norms = block_norms(other, batch.last, only, (WHOLE,), plan.cut_method, exact_first=plan.exact_first)
                cut[number, batch.rows] = norms.frobenius[:, 0]
        return reference, cut


def norms_of(
    plan: Plan, layer: int, direction: int, *, judged: bool = False
) -> tuple[BlockNorms, tuple[str, ...], tuple[str, ...]]:
    """Norms of all products of one layer and direction, and the names of their blocks and of the paths of a step.

    `judged` leaves out all that does not say whether gradients vanish: other blocks, spectral norms and errors.
    """
    found: BlockNorms | None = None
    blocks: tuple[str, ...] = (WHOLE,)
    paths: tuple[str, ...] = ()
    horizons = Horizons(plan.horizons.every, plan.horizons.every[:0]) if judged else plan.horizons
    for batch, steps in each_batch(plan, layer, direction, plan.last):
        paths = steps.factors.every_path if isinstance(steps, FactoredSteps) else ()
        blocks = block_names(steps, totals=isinstance(steps, FactoredSteps))
        states = None
        if judged:
            blocks = (judged_block(blocks),)
            states = sources_targets(blocks[0], len(steps.widths))[1]
        part = block_norms(
            steps, batch.last, horizons, blocks, plan.method, exact_first=plan.exact_first, states=states
        )
        if found is None:
            count = len(plan.last[0])
            found = BlockNorms(*(np.full((count, *values.shape[1:]), np.nan) for values in part))
        for whole, values in zip(found, part, strict=True):
            whole[batch.rows] = values
    if found is None:
        raise ValueError("gradient_flow needs at least one product; none came.")
    return found, blocks, paths


def cell_path(plan: Plan, layer: int, direction: int) -> tuple[Numbers | None, Whole]:
    """log10 of the product of the retention, (level, horizon, unit), and how many pairs of steps each is taken over."""
    source, every = plan.source, plan.horizons.every
    units = source.recording.sizes["unit"]
    most = int(np.clip(SAMPLE_VALUES // (len(every) * units), 64, SAMPLES))
    sequences = np.arange(len(source.lengths))[:: -(-len(source.lengths) // most)]
    stride = max(1, -(-int(np.maximum(source.lengths[sequences] - 1, 0).sum()) // most))
    collected: list[list[Numbers]] = [[] for _ in every]
    group = max(1, MEMORY // (16 * max(1, int(source.lengths.max()) * units)))
    for first in range(0, len(sequences), group):
        part = source.part(layer, direction, sequences[first : first + group])
        found = source.log_retention(part)
        if found is None:
            return None, np.zeros(len(every), np.int64)
        logs, gone = (np.cumsum(values, axis=1, dtype=np.float64) for values in found)
        for row, length in enumerate(source.lengths[part.sequences]):
            for place, horizon in enumerate(every):
                ends = np.arange(length - 1, horizon - 1, -stride)
                passed = gone[row, ends] > gone[row, ends - horizon]
                value = (logs[row, ends] - logs[row, ends - horizon]) / np.log(10)
                collected[place].append(np.where(passed, -np.inf, value))
    pairs = [np.concatenate(values) for values in collected]
    levels = [quantiles(values, LEVELS) for values in pairs]
    return np.stack(levels, axis=1), np.array([len(values) for values in pairs])


def shares(plan: Plan, layer: int, direction: int) -> Numbers | None:
    """Shares of the paths on the input's time axis, (sequence, time, path)."""
    source = plan.source
    if source.stored:
        return None
    longest = int(source.lengths.max())
    width = 8 * source.recording.sizes["unit"] * plan.dtype.itemsize
    stretch = max(2, min(longest, MEMORY // width))
    group = max(1, MEMORY // (stretch * width))
    found: Numbers | None = None
    for first in range(0, len(source.lengths), group):
        chosen = np.arange(first, min(first + group, len(source.lengths)))
        here = int(source.lengths[chosen].max(initial=0))
        for start in range(0, here, stretch - 1):
            part = Part(layer, direction, chosen, max(0, start - 1), min(here, start - 1 + stretch))
            factors = source.factors(part, plan.dtype)
            if found is None:
                found = np.full((len(source.lengths), longest, len(factors.every_path)), np.nan)
            values = path_shares(factors)[:, start - part.first :]
            lay(found, values, chosen, start, source.lengths, source.backward[direction])
    return found


def lay(found: Numbers, values: Numbers, chosen: Whole, start: int, lengths: Whole, backward: bool) -> None:
    """Put shares in the order of reading on the input's time axis."""
    for row, sequence in enumerate(chosen):
        steps = start + np.arange(max(0, min(values.shape[1], lengths[sequence] - start)))
        found[sequence, lengths[sequence] - 1 - steps if backward else steps] = values[row, : len(steps)]
