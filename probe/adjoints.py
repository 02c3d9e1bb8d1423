"""Gradients carried back through the steps of a call, in numbers that never underflow.

What arrives at a step is a vector and a power of two, one for each sequence. Steps go in blocks: within a block numbers
stay as they are, between blocks they are brought back to about 1 and the power keeps what was taken out. A block in
which something would be lost is done again in halves. Everything is linear in what arrives, so nothing else changes.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import reduce
from math import frexp, inf, isnan
from typing import NamedTuple

import torch
from torch import Tensor

from ..cells import AbstractCell, GRUCell, LSTMCell, RNNCell
from ..signals import PREACTIVATION
from .gradients import Run, State, chosen, masked, states_before, weight

BLOCK, LONGEST_BLOCK = 64, 512
"""Steps between which numbers are brought back to about 1: at first, and at most."""
NOTHING = -(2**24)
"""The power of what is exactly 0."""
LOST = {torch.float32: -48, torch.float64: -700}
"""Power of two of a step's largest gradient, in its block's units, below which digits would be lost."""
LOG10_2 = 0.30102999566398120


class Scaled(NamedTuple):
    """`values * 2 ** power`: values (time, sequence, unit), power (time, sequence)."""

    values: Tensor
    power: Tensor

    @classmethod
    def of(cls, values: Tensor) -> "Scaled":
        return cls(values, torch.zeros(values.shape[:2], dtype=torch.int32))

    def levels(self) -> Tensor:
        """(time, sequence): the power of two just above the largest entry, `NOTHING` where all are 0."""
        return levels(self.values, self.power)

    def flip(self) -> "Scaled":
        return Scaled(self.values.flip(0), self.power.flip(0))

    def times(self, factor: Tensor) -> "Scaled":
        return Scaled(self.values * factor, self.power)

    def plus(self, other: "Scaled") -> "Scaled":
        power = torch.maximum(self.levels(), other.levels())
        power = torch.where(power == NOTHING, 0, power)
        return Scaled(self.at(power) + other.at(power), power)

    def plain(self, dtype: torch.dtype | None = None) -> Tensor:
        """The values themselves, which a type may be too narrow to hold."""
        return shifted(self.values.to(dtype or self.values.dtype), self.power.unsqueeze(-1))

    def at(self, power: Tensor) -> Tensor:
        """The values in units of another power of two, (time, sequence)."""
        return shifted(self.values, (self.power - power).unsqueeze(-1))

    def log10_norm(self, parts: int = 1) -> Tensor:
        """(time, sequence, part): log10 of the Euclidean norm of each of equal parts of the units; -inf for 0."""
        rows = self.values.unflatten(-1, (parts, -1))
        norm = torch.linalg.vector_norm(rows, dim=-1, dtype=torch.float64)
        found: Tensor = norm.log10() + LOG10_2 * self.power.double().unsqueeze(-1)
        return found


def levels(values: Tensor, power: Tensor) -> Tensor:
    if not values.shape[-1]:
        return torch.full_like(power, NOTHING)
    low, high = values.aminmax(dim=-1)
    largest = torch.maximum(high, -low)
    return torch.where(largest == 0, NOTHING, torch.frexp(largest)[1] + power)


def shifted(values: Tensor, power: Tensor) -> Tensor:
    """`values * 2 ** power`, also where `2 ** power` alone is no number of the values' type."""
    exact = power.clamp(-2000, 2000).double()  # of the whole numbers ldexp would make float32
    half = torch.div(exact, 2, rounding_mode="floor")
    return torch.ldexp(torch.ldexp(values.double(), half), exact - half).to(values.dtype)


class Backward(ABC):
    """The steps of one run, from the last to the first; `states` and `drive` are written as they are taken."""

    def __init__(self, run: Run, signals: dict[str, Tensor]) -> None:
        self.run, self.real = run, run.real
        self.whole = None if run.real is None else run.real.flatten(1).all(1).tolist()
        like = run.partial
        steps, sequences = like.shape[:2]
        self.states = tuple(like.new_zeros(steps, sequences, size) for size in run.cell.state_sizes)
        self.prepare(signals)

    @abstractmethod
    def prepare(self, signals: dict[str, Tensor]) -> None:
        """All that can be computed for all steps at once."""

    @abstractmethod
    def through(self, start: int, stop: int, arriving: Tensor | None, carry: State) -> State:
        """Take the steps [start, stop) from the last to the first; the gradient at the states before them."""

    @abstractmethod
    def drive(self) -> Tensor:
        """(time, sequence, row): the gradient at all pre-activations, as the rows of `weight_ih` have them."""

    def gates(self) -> dict[str, Tensor]:
        """The gradient at each gate's pre-activation, (time, sequence, unit)."""
        names = self.run.cell.gates
        return dict(zip(names, self.drive().chunk(len(names), -1), strict=True))

    def input(self) -> Tensor:
        return self.drive() @ weight(self.run.cell, "weight_ih")

    def padded(self, start: int, stop: int) -> bool:
        return self.whole is not None and not all(self.whole[start:stop])


class LSTMBackward(Backward):
    """`dc_t = f_{t+1} dc_{t+1} + o_t (1 - tanh^2 c_t) dh_t` and `dh_t = partial_t + W_hh^T dz_{t+1}`."""

    def prepare(self, signals: dict[str, Tensor]) -> None:
        i, f, g, o, c = (signals[n] for n in ("input_gate", "forget_gate", "candidate", "output_gate", "cell_state"))
        run = self.run
        before = torch.cat([run.initial[0].unsqueeze(0), c[:-1]])
        squashed = c.tanh()
        self.keep = f if run.real is None else torch.where(run.real, f, 1.0)
        into_gates = (g * i * (1 - i), before * f * (1 - f), i * (1 - g * g), squashed * o * (1 - o))
        slopes = torch.stack([*into_gates, o * (1 - squashed * squashed)], dim=1)
        self.slopes = slopes if run.real is None else torch.where(run.real.unsqueeze(1), slopes, 0.0)
        self.weight_hh, self.weight_hr = weight(run.cell, "weight_hh"), run.cell._parameters["weight_hr"]
        self.driven = run.partial.new_zeros(*c.shape[:2], 5, c.shape[2])  # gates, then the way of h into the memory

    def steps(self, start: int, stop: int) -> Iterator[tuple[Tensor, ...]]:
        """For the steps of a block, the last first: its coefficients, and where its results go."""
        block = slice(start, stop)
        slopes, driven = self.slopes[block], self.driven[block].transpose(1, 2)
        hidden, memory = (states[block] for states in self.states)
        each = (hidden, memory, self.keep[block], slopes[:, :3], slopes[:, 3:])
        into = (driven[:, :3], driven[:, 3:], driven[:, 4], self.driven[block, :, :4].flatten(2))
        return zip(*(part.unbind(0)[::-1] for part in (*each, *into)), strict=True)

    def through(self, start: int, stop: int, arriving: Tensor | None, carry: State) -> State:
        padded = self.padded(start, stop)
        if arriving is None and not padded and self.weight_hr is None:
            return self.plainly(start, stop, carry)
        dh, last = carry
        kept = torch.ones_like(last)
        for place, (h, c, keep, inner, outer, into_inner, into_outer, way, row) in enumerate(self.steps(start, stop)):
            h.copy_(dh) if arriving is None else torch.add(dh, arriving[-1 - place], out=h)
            torch.mul(outer, h if self.weight_hr is None else h @ self.weight_hr, out=into_outer)
            last, kept = torch.addcmul(way, last, kept, out=c), keep
            torch.mul(inner, c, out=into_inner)
            before = row @ self.weight_hh
            dh = torch.where(self.real[stop - 1 - place], before, h) if padded and self.real is not None else before
        return dh, last * kept

    def plainly(self, start: int, stop: int, carry: State) -> State:
        """The same where nothing arrives in between and nothing is padding: four operations a step."""
        addcmul, mul, mm, weight_hh = torch.addcmul, torch.mul, torch.mm, self.weight_hh
        dh, last = carry[0].clone(), carry[1]
        kept = torch.ones_like(last)
        self.states[0][stop - 1] = dh
        befores = (*self.states[0][start : stop - 1].unbind(0)[::-1], dh)
        for before, (h, c, keep, inner, outer, into_inner, into_outer, way, row) in zip(
            befores, self.steps(start, stop), strict=True
        ):
            mul(outer, h, out=into_outer)
            addcmul(way, last, kept, out=c)
            mul(inner, c, out=into_inner)
            mm(row, weight_hh, out=before)
            last, kept = c, keep
        return dh, last * kept

    def drive(self) -> Tensor:
        return self.driven[:, :, :4].flatten(2)


class GRUBackward(Backward):
    """`dh_t = partial_t + z_{t+1} dh_{t+1} + W_hh^T (dr, dz, r dn)_{t+1}`, torch's convention."""

    def prepare(self, signals: dict[str, Tensor]) -> None:
        run = self.run
        r, z, n, recurrent = (signals[k] for k in ("reset_gate", "update_gate", "candidate", "candidate_recurrent"))
        into_candidate = (1 - z) * (1 - n * n)
        slopes = [into_candidate * recurrent * r * (1 - r), (run.before - n) * z * (1 - z)]
        self.from_input = torch.stack([*slopes, into_candidate], 2)
        from_hidden = torch.stack([*slopes, into_candidate * r], 2)
        if run.real is not None:
            from_hidden = torch.where(run.real.unsqueeze(2), from_hidden, 0.0)
        self.slopes, self.keep = from_hidden.unbind(0), z.unbind(0)
        self.weight_hh = weight(run.cell, "weight_hh")

    def through(self, start: int, stop: int, arriving: Tensor | None, carry: State) -> State:
        (dh,) = carry
        (hidden,) = self.states
        padded = self.padded(start, stop)
        for t in range(stop - 1, start - 1, -1):
            dh = dh if arriving is None else dh + arriving[t - start]
            hidden[t] = dh
            back = (self.slopes[t] * dh.unsqueeze(1)).flatten(1)
            before = torch.addmm(dh * self.keep[t], back, self.weight_hh)
            dh = torch.where(self.real[t], before, dh) if padded and self.real is not None else before
        return (dh,)

    def drive(self) -> Tensor:
        return masked(self.run, (self.states[0].unsqueeze(2) * self.from_input).flatten(2))


class RNNBackward(Backward):
    """`dh_t = partial_t + W_hh^T (slope_{t+1} dh_{t+1})`."""

    def prepare(self, signals: dict[str, Tensor]) -> None:
        h, cell = signals["hidden_state"], self.run.cell
        self.slope = masked(self.run, 1 - h * h if cell.nonlinearity == "tanh" else (h > 0).to(h.dtype))
        self.weight_hh = weight(cell, "weight_hh")

    def through(self, start: int, stop: int, arriving: Tensor | None, carry: State) -> State:
        (dh,) = carry
        (hidden,) = self.states
        padded = self.padded(start, stop)
        for t in range(stop - 1, start - 1, -1):
            dh = dh if arriving is None else dh + arriving[t - start]
            hidden[t] = dh
            before = (dh * self.slope[t]) @ self.weight_hh
            dh = torch.where(self.real[t], before, dh) if padded and self.real is not None else before
        return (dh,)

    def drive(self) -> Tensor:
        return self.states[0] * self.slope


class AnyBackward(Backward):
    """Any cell: one step forward and back at a time, the states before each step being the model's own."""

    def prepare(self, signals: dict[str, Tensor]) -> None:
        self.before = states_before(self.run)
        self.inputs = torch.zeros_like(self.run.input)
        self.found: dict[str, Tensor] = {}

    def through(self, start: int, stop: int, arriving: Tensor | None, carry: State) -> State:
        for t in range(stop - 1, start - 1, -1):
            shown = carry[0] if arriving is None else carry[0] + arriving[t - start]
            totals, carry_on = self.step(t, (shown, *carry[1:]))
            for states, total in zip(self.states, totals, strict=True):
                states[t] = total
            carry = chosen(self.run, t, carry_on, carry)
        return carry

    def step(self, t: int, arriving: State) -> tuple[State, State]:
        """Total gradients at the states after step t, and the gradient at those before it."""
        tapped: dict[str, Tensor] = {}

        def tap(name: str, value: Tensor) -> Tensor:
            tapped[name] = value
            return value

        with torch.enable_grad():
            x = self.run.input[t].detach().requires_grad_()
            old = tuple(state[t].detach().requires_grad_() for state in self.before)
            new = self.run.cell.forward(x, old, tap)
            names = [name for name in tapped if name.endswith(PREACTIVATION) and tapped[name].requires_grad]
            wanted = (x, *old, *new[1:], *(tapped[name] for name in names))
            found = torch.autograd.grad(new, wanted, arriving, allow_unused=True)
        back = [torch.zeros_like(w) if g is None else g for g, w in zip(found, wanted, strict=True)]
        self.inputs[t] = back[0]
        count = len(old)
        for name, gradient in zip(names, back[count + len(new) :], strict=True):
            shape = (len(self.run.input), *gradient.shape)
            self.found.setdefault(name.removesuffix(PREACTIVATION), gradient.new_zeros(shape))[t] = gradient
        return (arriving[0], *back[1 + count : count + len(new)]), tuple(back[1 : 1 + count])

    def drive(self) -> Tensor:
        return torch.cat(list(self.gates().values()), -1)

    def gates(self) -> dict[str, Tensor]:
        return {name: masked(self.run, values) for name, values in self.found.items()}

    def input(self) -> Tensor:
        return masked(self.run, self.inputs)


BACKWARD: dict[type[AbstractCell], Callable[[Run, dict[str, Tensor]], Backward]] = {
    LSTMCell: LSTMBackward,
    GRUCell: GRUBackward,
    RNNCell: RNNBackward,
}


class Found(NamedTuple):
    """What reaches a run: each of its states, its gates before their squashers, and what it read."""

    states: tuple[Scaled, ...]
    gates: dict[str, Scaled]
    input: Scaled

    def flip(self) -> "Found":
        gates = {name: values.flip() for name, values in self.gates.items()}
        return Found(tuple(state.flip() for state in self.states), gates, self.input.flip())


def go_back(run: Run, arriving: Scaled, signals: dict[str, Tensor]) -> Found:
    """Carry what arrives at a run's shown states and at its last ones (`run.final`) back to its first step."""
    steps = BACKWARD.get(type(run.cell), AnyBackward)(run, signals)
    count, sequences = arriving.power.shape
    powers = torch.zeros(count, sequences, dtype=torch.int32)
    arriving_at = arriving.levels()
    carry, power = run.final, torch.zeros(sequences, dtype=torch.int32)
    stop, size = count, BLOCK
    while stop > 0:
        start = max(0, stop - size)
        block = Block(start, stop, arriving, arriving_at, carry, power)
        after = steps.through(start, stop, block.arriving, block.carry)
        lost = block.lost(steps.states)
        if lost > 1 and stop - start > 1:
            size = (stop - start) // 2
            continue
        carry, power, stop = after, block.power, start
        size = max(1, min(LONGEST_BLOCK, int((block.stop - start) * min(4.0, 0.7 / max(lost, 0.01)))))
        powers[block.start : block.stop] = power
    states = tuple(Scaled(masked(run, values), powers) for values in steps.states)
    gates = {name: Scaled(values, powers) for name, values in steps.gates().items()}
    return Found(states, gates, Scaled(steps.input(), powers))


class Block:
    """Some steps, and what arrives at them in units that keep its largest part at about 1."""

    def __init__(
        self, start: int, stop: int, arriving: Scaled, arriving_at: Tensor, carry: State, power: Tensor
    ) -> None:
        self.start, self.stop = start, stop
        top = self.carried = levels(torch.cat(carry, -1), power)
        self.coming: Tensor | None = None
        self.arriving: Tensor | None = None
        if bool((arriving_at[start:stop] > NOTHING).any()):
            self.coming = arriving_at[start:stop]
            top = torch.maximum(top, self.coming.amax(0))
        self.power = torch.where(top == NOTHING, 0, top)
        self.carry = tuple(shifted(state, (power - self.power).unsqueeze(-1)) for state in carry)
        if self.coming is not None:
            self.arriving = Scaled(arriving.values[start:stop], arriving.power[start:stop]).at(self.power)

    def lost(self, states: State) -> float:
        """How much of the range of numbers a step has used up by becoming small or large: above 1, digits are lost."""
        ends = [end.abs() for s in states if s.shape[-1] for end in s[self.start : self.stop].aminmax(dim=-1)]
        largest = reduce(torch.maximum, ends)
        come = self.carried > NOTHING
        if self.coming is not None:
            come = torch.maximum(self.coming.flip(0).cummax(0).values.flip(0), self.carried) > NOTHING
        low, high = largest.masked_fill(~come, 1.0).aminmax()
        if not 0 < float(low) <= float(high) < inf:
            return 0.0 if isnan(low) else 2.0
        return max(-frexp(low)[1], frexp(high)[1]) / -LOST[largest.dtype]
