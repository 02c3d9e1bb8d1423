"""Contextual decomposition of a stack of LSTM layers: every state as the sum of a relevant and an irrelevant part."""

# ruff: noqa: F722 (shapes in annotations are jaxtyping's)
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import linear

from ..cells import LSTMCell
from .phrases import Phrases

Squasher = Callable[[Tensor], Tensor]


class Parts(NamedTuple):
    """The relevant and the irrelevant part of something, which is their sum."""

    relevant: Tensor
    irrelevant: Tensor


class Weights(NamedTuple):
    """Of one cell, in float64; the biases added up, (4 x unit,)."""

    input: Tensor
    hidden: Tensor
    bias: Tensor
    projection: Tensor | None

    @classmethod
    def of(cls, cell: LSTMCell) -> "Weights":
        input, hidden = (weight.detach().cpu().double() for weight in (cell.weight_ih, cell.weight_hh))
        biases = [bias.detach().cpu().double() for bias in (cell.bias_ih, cell.bias_hh) if bias is not None]
        bias = sum(biases, torch.zeros(len(input), dtype=torch.float64))
        projection = None if cell.weight_hr is None else cell.weight_hr.detach().cpu().double()
        return cls(input, hidden, bias, projection)


def step(
    net: Parts, bias: Float[Tensor, " row"], memory: Parts, credited: Bool[Tensor, "phrase 1 1"]
) -> tuple[Parts, Parts]:
    """The parts of `c_t` and of what is shown of it, from those of the gates' net inputs (without bias).

    `credited` says for which phrases what the biases write by themselves is relevant.
    """
    (r_i, r_f, r_g, _), (n_i, n_f, n_g, _), (b_i, b_f, b_g, _) = (
        values.chunk(4, dim=-1) for values in (net.relevant, net.irrelevant, bias)
    )
    i, f = linearised(r_i, n_i, b_i, torch.sigmoid), linearised(r_f, n_f, b_f, torch.sigmoid)
    g = linearised(r_g, n_g, b_g, torch.tanh)
    i_b, f_b, g_b = b_i.sigmoid(), b_f.sigmoid(), b_g.tanh()
    both = i_b * g_b  # of no input at all
    beta = (f.relevant + f_b) * memory.relevant + i.relevant * (g.relevant + g_b) + i_b * g.relevant + both * credited
    gamma = (
        (f.relevant + f.irrelevant + f_b) * memory.irrelevant
        + f.irrelevant * memory.relevant
        + i.irrelevant * (g.relevant + g.irrelevant + g_b)
        + (i.relevant + i_b) * g.irrelevant
        + both * ~credited
    )
    o = (net.relevant + net.irrelevant + bias).chunk(4, dim=-1)[3].sigmoid()
    shown = linearised(beta, gamma, torch.zeros((), dtype=beta.dtype), torch.tanh)
    return Parts(beta, gamma), Parts(o * shown.relevant, o * shown.irrelevant)


def linearised(a: Tensor, b: Tensor, bias: Tensor, squash: Squasher) -> Parts:
    """What each of two terms adds to `squash(a + b + bias)` beyond `squash(bias)`: mean over both orders.

    >>> a, b, zero = torch.tensor(2.0), torch.tensor(1.0), torch.tensor(0.0)
    >>> linearised(a, b, zero, torch.square)  # (2 + 1)^2 = 9: 4 or 8, and 5 or 1
    Parts(relevant=tensor(6.), irrelevant=tensor(3.))
    """
    whole, only_bias, without_a, without_b = squash(a + b + bias), squash(bias), squash(b + bias), squash(a + bias)
    relevant = (without_b - only_bias + whole - without_a) / 2
    irrelevant = (without_a - only_bias + whole - without_b) / 2
    return Parts(relevant, irrelevant)


def decompose(
    cells: list[list[LSTMCell]],
    input: Float[Tensor, "time sequence feature"],
    phrases: Phrases,
    initial: tuple[Float[Tensor, "place sequence _"], Float[Tensor, "place sequence unit"]],
    active: Bool[Tensor, "time sequence"],
    *,
    credit: bool,
) -> Parts:
    """The parts of what the last of some layers shows, (time, phrase, sequence, direction x unit), float64.

    `initial` has a row for each layer and direction, in torch's order. Where a sequence is not `active` its state
    waits, and what is shown means nothing. With `credit` the biases' product belongs to a phrase on its steps.
    """
    below = Parts(input.double().unsqueeze(1), input.double().unsqueeze(1))  # of the input itself: one or the other
    for index, layer in enumerate(cells):
        shown = []
        for direction, cell in enumerate(layer):
            place = index * len(layer) + direction
            first = tuple(state[place].double() for state in initial)
            run = {"lowest": index == 0, "backward": direction == 1, "credit": credit}
            shown.append(unrolled(Weights.of(cell), below, phrases, first, active, **run))
        below = Parts(*(torch.cat(parts, dim=-1) for parts in zip(*shown, strict=True)))
    return below


def unrolled(
    weights: Weights,
    below: Parts,
    phrases: Phrases,
    initial: tuple[Tensor, ...],
    active: Tensor,
    *,
    lowest: bool,
    backward: bool,
    credit: bool,
) -> Parts:
    """One cell over all steps."""
    shape = (phrases.number, -1, -1)
    hidden, memory = (Parts(torch.zeros_like(state).expand(shape), state.expand(shape)) for state in initial)
    shown: list[Parts] = []
    times = range(len(active))
    for time in reversed(times) if backward else times:
        within = torch.from_numpy(phrases.at(time))[:, None, None]
        net = Parts(*(linear(part, weights.hidden) for part in hidden))
        read = [linear(part[time], weights.input) for part in (below[:1] if lowest else below)]
        enters = (read[0] * within, read[0] * ~within) if lowest else read
        net = Parts(*(here + comes for here, comes in zip(net, enters, strict=True)))
        after, seen = step(net, weights.bias, memory, within & credit)
        if weights.projection is not None:
            seen = Parts(*(linear(part, weights.projection) for part in seen))
        now = active[time].unsqueeze(-1)
        memory, hidden = (
            Parts(*(torch.where(now, new, old) for new, old in zip(news, olds, strict=True)))
            for news, olds in ((after, memory), (seen, hidden))
        )
        shown.append(hidden)
    return Parts(*(torch.stack(parts[::-1] if backward else parts) for parts in zip(*shown, strict=True)))
