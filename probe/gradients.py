"""The true gradient of a loss at every step, from the gradients that arrive at the ends of a call.

What autograd gives for the output of a fused module is partial: how the loss uses `h_t` *besides* handing it to the
next step. The rest comes back through time. With `s` the carried state and `z` the pre-activations,

    dL/dh_t = partial_t + (dz_{t+1}/dh_t)^T dL/dz_{t+1} + ...,

which is run here from the last step to the first, from the model's own states and with its own weights: the adjoint of
the cell's equations, by hand for the cells that torch has and through autograd, step by step, for every other.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..cells import AbstractCell, GRUCell, LSTMCell, RNNCell, linear_scan

State = tuple[Tensor, ...]


class Run(NamedTuple):
    """One layer and direction of a call in the order of computation, and the gradients that arrive at it."""

    cell: AbstractCell
    input: Tensor  # (time, sequence, feature)
    before: Tensor  # (time, sequence, output): the shown state before each step
    initial: State  # other states before the first step, (sequence, unit) each
    real: Tensor | None  # (time, sequence, 1), False in padding
    partial: Tensor  # (time, sequence, output): what arrives at the shown state from outside the recurrence
    final: State  # what arrives at the states after the last step, (sequence, unit) each


class Gradients(NamedTuple):
    """What reaches each step of a run."""

    states: State  # (time, sequence, unit) for each of the cell's states
    input: Tensor  # (time, sequence, feature)


def through_time(run: Run) -> Gradients:
    """Total gradients at every step; padding is passed through and holds 0.

    The gradient at a memory counts all ways out of it: into the next step, and into what is shown at the same step.
    """
    adjoint = ADJOINTS.get(type(run.cell), by_autograd)
    with torch.no_grad():
        return adjoint(run)


def signals_of(run: Run) -> dict[str, Tensor]:
    """All signals of all steps, as a recording has them."""
    found: dict[str, Tensor] = {}

    def tap(name: str, value: Tensor) -> Tensor:
        found[name] = value
        return value

    def scan(keep: Tensor, write: Tensor, memory: Tensor) -> Tensor:
        if run.real is not None:
            keep, write = torch.where(run.real, keep, 1.0), torch.where(run.real, write, 0.0)
        return linear_scan(keep, write, memory)

    run.cell.forward(run.input, (run.before, *run.initial), tap, scan)
    return found


def masked(run: Run, values: Tensor) -> Tensor:
    return values if run.real is None else torch.where(run.real, values, 0.0)


def chosen(run: Run, t: int, new: State, old: State) -> State:
    """After a real step the new carry; through padding the old one."""
    if run.real is None:
        return new
    return tuple(torch.where(run.real[t], n, o) for n, o in zip(new, old, strict=True))


def weight(cell: AbstractCell, name: str) -> Tensor:
    found = cell._parameters[name]
    if found is None:
        raise ValueError(f"{type(cell).__name__} must have {name}; it has none. Its gradients cannot be computed.")
    return found


def lstm(run: Run) -> Gradients:
    """`dc_t = f_{t+1} dc_{t+1} + o_t (1 - tanh^2 c_t) dh_t` and `dh_t = partial_t + W_hh^T dz_{t+1}`."""
    s, cell = signals_of(run), run.cell
    i, f, g, o, c = (s[n] for n in ("input_gate", "forget_gate", "candidate", "output_gate", "cell_state"))
    before = torch.cat([run.initial[0].unsqueeze(0), c[:-1]])
    squashed = c.tanh()
    shown = masked(run, o * (1 - squashed * squashed))
    slopes = torch.cat([g * i * (1 - i), before * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o)], -1)
    slopes = masked(run, slopes)
    weight_hh, weight_hr = weight(cell, "weight_hh"), cell._parameters["weight_hr"]
    hidden, memory, drive = torch.zeros_like(run.partial), torch.zeros_like(c), torch.empty_like(slopes)
    carry: State = run.final
    for t in range(len(c) - 1, -1, -1):
        dh = run.partial[t] + carry[0]
        dm = dh if weight_hr is None else dh @ weight_hr
        dc = torch.addcmul(carry[1], dm, shown[t])
        torch.mul(torch.cat([dc, dc, dc, dm], -1), slopes[t], out=drive[t])
        hidden[t], memory[t] = dh, dc
        carry = chosen(run, t, (drive[t] @ weight_hh, dc * f[t]), carry)
    return Gradients((masked(run, hidden), masked(run, memory)), drive @ weight(cell, "weight_ih"))


def gru(run: Run) -> Gradients:
    """`dh_t = partial_t + z_{t+1} dh_{t+1} + W_hh^T (dr, dz, r dn)_{t+1}`, torch's convention."""
    s, cell = signals_of(run), run.cell
    r, z, n, recurrent = (s[k] for k in ("reset_gate", "update_gate", "candidate", "candidate_recurrent"))
    into_candidate = (1 - z) * (1 - n * n)
    slopes = [into_candidate * recurrent * r * (1 - r), (run.before - n) * z * (1 - z), into_candidate]
    from_input = masked(run, torch.cat(slopes, -1))
    from_hidden = masked(run, torch.cat([*slopes[:2], into_candidate * r], -1))
    weight_hh = weight(cell, "weight_hh")
    hidden = torch.zeros_like(run.partial)
    carry: State = run.final
    for t in range(len(n) - 1, -1, -1):
        dh = run.partial[t] + carry[0]
        hidden[t] = dh
        carry = chosen(run, t, (torch.addcmul((dh.repeat(1, 3) * from_hidden[t]) @ weight_hh, dh, z[t]),), carry)
    drive = hidden.repeat(1, 1, 3) * from_input
    return Gradients((masked(run, hidden),), drive @ weight(cell, "weight_ih"))


def rnn(run: Run) -> Gradients:
    """`dh_t = partial_t + W_hh^T (slope_{t+1} dh_{t+1})`."""
    cell, h = run.cell, signals_of(run)["hidden_state"]
    slope = masked(run, 1 - h * h if cell.nonlinearity == "tanh" else (h > 0).to(h.dtype))
    hidden = torch.zeros_like(run.partial)
    carry: State = run.final
    for t in range(len(h) - 1, -1, -1):
        hidden[t] = run.partial[t] + carry[0]
        carry = chosen(run, t, ((hidden[t] * slope[t]) @ weight(cell, "weight_hh"),), carry)
    return Gradients((masked(run, hidden),), (hidden * slope) @ weight(cell, "weight_ih"))


def by_autograd(run: Run) -> Gradients:
    """Any cell: one step forward and back at a time, the states before each step being the model's own."""
    steps = len(run.input)
    before = states_before(run)
    totals: list[State] = []
    inputs: list[Tensor] = []
    carry: State = run.final
    for t in range(steps - 1, -1, -1):
        arriving = (run.partial[t] + carry[0], *carry[1:])
        with torch.enable_grad():
            x = run.input[t].detach().requires_grad_()
            old = tuple(state[t].detach().requires_grad_() for state in before)
            new = run.cell.forward(x, old)
            wanted = (x, *old, *new[1:])  # a memory also reaches what the same step shows
            found = torch.autograd.grad(new, wanted, arriving, allow_unused=True)
        back = [torch.zeros_like(w) if g is None else g for g, w in zip(found, wanted, strict=True)]
        inputs.append(back[0])
        totals.append((arriving[0], *back[1 + len(old) :]))
        carry = chosen(run, t, tuple(back[1 : 1 + len(old)]), carry)
    states = tuple(masked(run, torch.stack(total[::-1])) for total in zip(*totals, strict=True))
    return Gradients(states, masked(run, torch.stack(inputs[::-1])))


def states_before(run: Run) -> State:
    """All states before each step, (time, sequence, unit); those that are not shown are rebuilt step by step."""
    memory = run.initial
    found: list[State] = []
    for t in range(len(run.input)):
        found.append(memory)
        new = run.cell.forward(run.input[t], (run.before[t], *memory))[1:]
        memory = chosen(run, t, new, memory)
    return (run.before, *(torch.stack(states) for states in zip(*found, strict=True)))


ADJOINTS: dict[type[AbstractCell], Callable[[Run], Gradients]] = {LSTMCell: lstm, GRUCell: gru, RNNCell: rnn}
