"""Norms of the blocks of products of step Jacobians, by horizon."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .horizons import EXACT_HORIZON, Horizons
from .products import Carried, Group, Numbers, carried, identity, looking_at, sketch, spectral_norm
from .steps import Parts, Places, Steps

LN10 = float(np.log(10))
WHOLE = "whole"
BLOCKS = ("h->h", "h->c", "c->h", "c->c")
TOTALS = ("total c->c", "total c->h")
"""Blocks by the state that is changed and the state that it reaches; in the totals the change of c also reaches h of
its own step."""


class BlockNorms(NamedTuple):
    """log10 norms of products; NaN where a product is shorter than the horizon."""

    frobenius: Numbers  # (product, block, horizon)
    spectral: Numbers  # (product, block, horizon), NaN where not asked for
    error: Numbers  # (product, horizon): standard error of the whole's Frobenius norm, in log10


def block_names(steps: Steps, totals: bool) -> tuple[str, ...]:
    """What norms are taken of: one state is a whole without blocks."""
    if len(steps.widths) != 2:
        return (WHOLE,)
    return (WHOLE, *BLOCKS, *(TOTALS if totals else ()))


def norms_at_zero(widths: Sequence[int], blocks: Sequence[str]) -> Numbers:
    """log10 norms of blocks over 0 steps, (norm, block): of ones and zeros; NaN where it depends on the step."""
    across = {"h->c": -np.inf, "c->h": -np.inf, TOTALS[1]: np.nan}
    sizes = {WHOLE: sum(widths), "h->h": widths[0], "c->c": widths[-1], TOTALS[0]: widths[-1]}
    frobenius = [across[block] if block in across else 0.5 * np.log10(sizes[block]) for block in blocks]
    return np.array([frobenius, [across.get(block, 0.0) for block in blocks]])


def judged_block(blocks: Sequence[str]) -> str:
    """The block that says whether gradients vanish: of the memory in all its ways, or of a single state."""
    return TOTALS[0] if TOTALS[0] in blocks else WHOLE


def block_norms(
    steps: Steps,
    last: Places,
    horizons: Horizons,
    blocks: Sequence[str],
    method: str,
    *,
    exact_first: bool = True,
    states: Sequence[int] | None = None,
) -> BlockNorms:
    """Norms of the products that end at `last`, in falling order of steps.

    With `states`, only rows that look at those states are carried: enough for blocks that reach no other. The error
    is then left out.
    """
    if method == "exact":
        return carry(steps, last, horizons, blocks, *identity(steps, len(last[0]), states), error=states is None)
    rows = looking_at(*sketch(steps, last, horizons.most), states)
    found = carry(steps, last, horizons, blocks, *rows, error=states is None)
    short = int(np.searchsorted(horizons.every, EXACT_HORIZON, side="right"))
    if exact_first and short:
        few = Horizons(horizons.every[:short], horizons.spectral[horizons.spectral <= EXACT_HORIZON])
        exact = carry(steps, last, few, blocks, *identity(steps, len(last[0]), states), error=states is None)
        for values, better in zip(found, exact, strict=True):
            values[..., :short] = better
    return found


def norms_back(steps: Steps, sequence: int, end: int, states: Sequence[int] | None = None) -> Numbers:
    """log10 Frobenius norms of d(states at `end`) / d(whole state k steps before), for k = 1, 2, ... `end`."""
    rows, groups = identity(steps, 1, states)
    last = (np.array([sequence]), np.array([end]))
    products = carried(steps, last, rows, groups, end)
    with np.errstate(divide="ignore"):
        logs = [np.log(now.squares[0].sum(axis=1)) + 2 * now.scale[0] for now in products]
    found: Numbers = log_sum(np.reshape(logs, (end, len(groups))), 1) / (2 * LN10)
    return found


def carry(
    steps: Steps,
    last: Places,
    horizons: Horizons,
    blocks: Sequence[str],
    rows: Parts,
    groups: list[Group],
    *,
    error: bool = True,
) -> BlockNorms:
    count, every = len(last[0]), {int(k): place for place, k in enumerate(horizons.every)}
    shape = (count, len(blocks), len(every))
    found = BlockNorms(np.full(shape, np.nan), np.full(shape, np.nan), np.full((count, len(every)), np.nan))
    spectral = set(horizons.spectral.tolist())
    for now in carried(steps, last, rows, groups, horizons.most):
        place = every.get(now.horizon)
        if place is None:
            continue
        alive = len(now.squares)
        squares = log_squares(steps, now, groups, totals=TOTALS[0] in blocks)
        for number, block in enumerate(blocks):
            found.frobenius[:alive, number, place] = frobenius(squares, groups, block) / (2 * LN10)
            if now.horizon in spectral:
                found.spectral[:alive, number, place] = spectral_block(steps, now, groups, block)
        if error:
            found.error[:alive, place] = sketch_error(now, squares, groups)
    return found


def log_squares(steps: Steps, now: Carried, groups: Sequence[Group], *, totals: bool) -> Numbers:
    """Natural log of weighted sums of squares, (product, group, column): columns are the states, then the total."""
    columns = now.squares
    total = steps.total(now.rows, now.places) if totals else None
    if total is not None:
        each = np.einsum("prw,prw->pr", total, total, dtype=np.float64)
        sums = np.stack([each[:, group.rows].sum(axis=1) for group in groups], axis=1)
        columns = np.concatenate([columns, sums[:, :, None]], axis=2)
    weights = np.array([group.weight for group in groups])
    with np.errstate(divide="ignore"):
        logs: Numbers = np.log(columns * weights[:, None]) + 2 * now.scale[:, :, None]
    return logs


def sources_targets(block: str, states: int) -> tuple[list[int], list[int]]:
    """Columns that a block has in `log_squares`, and states that its rows look at."""
    if block == WHOLE:
        return list(range(states)), list(range(states))
    source, target = block.removeprefix("total ").split("->")
    column = 2 if block in TOTALS else "hc".index(source)
    return [column], ["hc".index(target)]


def frobenius(squares: Numbers, groups: Sequence[Group], block: str) -> Numbers:
    """Natural log of a block's squared norm, by product."""
    states = 1 + max(group.state for group in groups)
    columns, targets = sources_targets(block, states)
    chosen = [number for number, group in enumerate(groups) if group.state in targets]
    return log_sum(squares[:, chosen][:, :, columns].reshape(len(squares), -1), 1)


def log_sum(logs: Numbers, axis: int) -> Numbers:
    """Log of the sum of what the logs are of."""
    with np.errstate(invalid="ignore"):
        found: Numbers = np.logaddexp.reduce(logs, axis=axis)
    return found


def sketch_error(now: Carried, squares: Numbers, groups: Sequence[Group]) -> Numbers:
    """Standard error of the whole's log10 norm, from how much the random rows' squares scatter."""
    random = [number for number, group in enumerate(groups) if group.weight != 1]
    if not random:
        return np.zeros(len(squares))
    variances = []
    for number in random:
        rows = groups[number].rows
        each = sum(np.einsum("prw,prw->pr", part[:, rows], part[:, rows], dtype=np.float64) for part in now.rows)
        with np.errstate(divide="ignore"):
            scatter = np.log(np.var(each, axis=1, ddof=1) / np.shape(each)[1])  # of the mean over random rows
        variances.append(scatter + 4 * now.scale[:, number])
    whole = frobenius(squares, groups, WHOLE)
    with np.errstate(invalid="ignore"):
        relative = np.exp(0.5 * log_sum(np.array(variances), 0) - whole)
    error: Numbers = np.where(np.isneginf(whole), 0.0, relative) / (2 * LN10)
    return error


def spectral_block(steps: Steps, now: Carried, groups: Sequence[Group], block: str) -> Numbers:
    """log10 of a block's largest singular value, by product; of a range finder, of what its rows span."""
    columns, targets = sources_targets(block, len(steps.widths))
    chosen = [number for number, group in enumerate(groups) if group.state in targets and group.weight == 1]
    alive = len(now.squares)
    total = steps.total(now.rows, now.places) if block in TOTALS else None
    parts = [now.rows[column] for column in columns] if total is None else [total]
    zero = now.squares[:, chosen].sum(axis=2) == 0
    scale = np.where(zero, -np.inf, now.scale[:, chosen])
    highest = np.where(zero.all(axis=1), 0.0, scale.max(axis=1))
    pieces = []
    for number, group in enumerate(chosen):
        factor = np.exp(scale[:, number] - highest).astype(parts[0].dtype)[:, None, None]
        pieces.append(np.concatenate([part[:alive, groups[group].rows] for part in parts], axis=2) * factor)
    with np.errstate(divide="ignore"):
        found: Numbers = np.log10(spectral_norm(np.concatenate(pieces, axis=1))) + highest / LN10
    return found
