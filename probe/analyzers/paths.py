"""By which path a change of the memory reaches the next step: signed shares, from row factors alone."""

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from .jacobian import DIRECT, OUTPUT, Array, Factors
from .products import Numbers

BLOCK = 2**18  # values looked at at once
CHAIN_COST = 2e10  # operations spent on the inner products of paths through two matrices


class Plain(NamedTuple):
    """A path's matrix without its row factors, seen from the memory of the step before: `weight diag(seen)`."""

    weight: Numbers
    seen: Numbers | None  # (step, unit); None where the memory is what is shown


class Chained(NamedTuple):
    """The same of a path through two matrices: `outer diag(inner) weight`."""

    weight: Numbers
    outer: Numbers
    inner: Numbers  # (step, unit)


Matrix = Plain | Chained


class Term(NamedTuple):
    """What a path does: row factors of matrices, by number, and a diagonal; all (step, unit)."""

    rows: Mapping[int, Array]
    diagonal: Array | None


def path_shares(factors: Factors) -> Numbers:
    """Shares (sequence, time, path) of the paths in a step, by which a change of the memory reaches the next state.

    With `S` the sum of the terms `X` of d(shown, memory)_t / d memory_{t-1}, in which the change of the memory also
    reaches what is shown of it, a path's share is `<X, S> / <S, S>`, with <,> the sum over all entries' products.
    Shares add to 1; one below 0 works against the others. In a step before which the state is not known they are NaN.
    """
    sequences, steps = factors.rows.shape[:2]
    units = factors.rows.shape[-1]
    found = np.full((sequences, steps, len(factors.every_path)), np.nan)
    if steps == 0:
        return found
    stretch = max(1, BLOCK // units)
    stride = chain_stride(factors)
    for sequence in range(sequences):
        for first in range(0, steps, stretch):
            here = np.arange(first, min(first + stretch, steps))[::stride]
            found[sequence, here] = shares_of(factors, sequence, here)
    return found


def chain_stride(factors: Factors) -> int:
    """Every how many steps shares are taken: all, but for long recordings of cells with paths through two matrices."""
    if not factors.chains:
        return 1
    steps, units = factors.rows.shape[0] * factors.rows.shape[1], factors.rows.shape[-1]
    return max(1, int(np.ceil(4.0 * steps * units**3 / CHAIN_COST)))


def shares_of(factors: Factors, sequence: int, steps: np.ndarray) -> Numbers:
    """Shares (step, path) at some steps of one sequence."""

    def at(values: Array) -> Array:
        taken: Array = values[sequence, steps].astype(np.float64)
        return taken

    matrices, numbers = matrices_of(factors, sequence, steps)
    grams = gram_rows(matrices)
    diagonals = [diagonal_of(matrix) for matrix in matrices]
    memory = {
        path: Term(
            {numbers[path]: at(factors.rows[:, :, place])},
            None if factors.peeps is None else at(factors.peeps[:, :, place]),
        )
        for place, path in enumerate(factors.paths)
    }
    memory |= {chain.path: Term({numbers[chain.path]: at(chain.rows)}, None) for chain in factors.chains}
    if factors.keep is not None:
        memory[DIRECT] = Term({}, at(factors.keep))
    inner = inner_products(memory, grams, diagonals)
    if factors.shown is not None:
        shown = {path: scaled(term, at(factors.shown)) for path, term in memory.items()}
        if factors.read is not None:
            reads = Term({numbers[OUTPUT]: at(factors.read)}, None)
            peep = factors.read_peep  # through which what is shown follows the memory once more
            seen = [] if peep is None else [scaled(term, at(peep)) for term in memory.values()]
            shown[OUTPUT] = total([reads, *seen])
        for path, value in inner_products(shown, grams, diagonals).items():
            inner[path] = inner.get(path, 0.0) + value
    products = np.stack([inner[path] for path in factors.every_path], axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(products / products.sum(axis=-1, keepdims=True))


def scaled(term: Term, factor: Array) -> Term:
    diagonal = None if term.diagonal is None else factor * term.diagonal
    return Term({number: factor * rows for number, rows in term.rows.items()}, diagonal)


def total(terms: list[Term]) -> Term:
    rows: dict[int, Array] = {}
    diagonal: Array | None = None
    for term in terms:
        for number, values in term.rows.items():
            rows[number] = rows[number] + values if number in rows else values
        if term.diagonal is not None:
            diagonal = term.diagonal if diagonal is None else diagonal + term.diagonal
    return Term(rows, diagonal)


def inner_products(
    terms: Mapping[str, Term], grams: Mapping[tuple[int, int], Array], diagonals: Sequence[Array]
) -> dict[str, Numbers]:
    """The inner product of each term with the sum of all, (step,)."""
    whole = total(list(terms.values()))
    along = 0.0 if whole.diagonal is None else whole.diagonal
    against = {
        number: sum(rows * grams[min(number, other), max(number, other)] for other, rows in whole.rows.items())
        + along * diagonals[number]
        for number in whole.rows
    }
    against_diagonal = sum(rows * diagonals[number] for number, rows in whole.rows.items()) + along
    found = {}
    for path, term in terms.items():
        value = sum((rows * against[number]).sum(axis=-1) for number, rows in term.rows.items())
        if term.diagonal is not None:
            value = value + (term.diagonal * against_diagonal).sum(axis=-1)
        found[path] = np.asarray(value)
    return found


def matrices_of(factors: Factors, sequence: int, steps: np.ndarray) -> tuple[list[Matrix], dict[str, int]]:
    """All paths' matrices, seen from the memory of the step before, and their numbers by path."""
    exposed = factors.exposed()
    before: Numbers | None = None
    if exposed is not None:
        before = exposed[sequence, np.maximum(steps - 1, 0)].astype(np.float64)
        before[steps == 0] = np.nan
    found: list[Matrix] = []
    numbers: dict[str, int] = {}
    plain = dict(zip(factors.paths, factors.weight, strict=True))
    if factors.read_weight is not None:
        plain[OUTPUT] = factors.read_weight
    for path, weight in plain.items():
        numbers[path] = len(found)
        seen = weight if factors.projection is None else weight @ factors.projection
        found.append(Plain(seen.astype(np.float64), before))
    for chain in factors.chains:
        numbers[chain.path] = len(found)
        outer, inner = chain.outer.astype(np.float64), chain.inner[sequence, steps].astype(np.float64)
        weight = np.eye(len(outer)) if chain.weight is None else chain.weight
        found.append(Chained(weight.astype(np.float64), outer, inner))
    return found, numbers


def gram_rows(matrices: list[Matrix]) -> dict[tuple[int, int], Array]:
    """Row by row the inner products of two matrices, (step, unit) or (unit,), by their numbers."""
    pairs = combinations_with_replacement(range(len(matrices)), 2)
    return {(one, other): gram(matrices[one], matrices[other]) for one, other in pairs}


def gram(one: Matrix, other: Matrix) -> Numbers:
    if isinstance(one, Plain) and isinstance(other, Plain):
        product = one.weight * other.weight
        found: Numbers = product.sum(axis=1) if one.seen is None else one.seen**2 @ product.T
    elif isinstance(one, Chained) and isinstance(other, Chained):
        found = chain_gram(one, other)
    elif isinstance(one, Chained):
        found = one.inner @ (one.outer * (other.weight @ one.weight.T)).T
    else:
        found = gram(other, one)
    return found


def chain_gram(one: Chained, other: Chained) -> Numbers:
    """Of two paths through two matrices, which takes a product of matrices at every step."""
    middle = one.weight @ other.weight.T
    pairs = zip(one.inner, other.inner, strict=True)
    return np.stack([((one.outer * a) @ middle * (other.outer * b)).sum(axis=1) for a, b in pairs])


def diagonal_of(matrix: Matrix) -> Numbers:
    """Diagonals, (step, unit) or (unit,)."""
    if isinstance(matrix, Chained):
        found: Numbers = matrix.inner @ (matrix.outer * matrix.weight.T).T
    else:
        diagonal = np.diagonal(matrix.weight)
        found = diagonal if matrix.seen is None else diagonal * matrix.seen
    return found
