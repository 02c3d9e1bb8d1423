"""The calls of one module while a loss is computed, and what its gradient is at each of their steps."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from ..cells import AbstractCell
from .adjoints import BACKWARD, NOTHING, Found, Scaled, go_back
from .arrivals import frozen
from .calls import Call, Observed, version
from .dispatch import Kernel, refuse_transforms, unseen
from .find import State
from .following import Following, tensors_in
from .foreign import ForeignCell
from .gradients import Run
from .listening import Listening, Read
from .rebuild import COARSE, ParityError, Rebuilt, rebuild, rounded, rounding, uncast
from .single import Single
from .track import Chunk, Track


class Taken(NamedTuple):
    """One call: where it stands, and all that its gradients need, kept from changes after the call."""

    call: Call  # without its tensors that the model may change
    chunk: Chunk
    cells: list[list[AbstractCell]]
    edges: list[GradientEdge]
    shapes: list[torch.Size]
    read: list[Tensor]  # (time, sequence, feature) of each layer, where its cell has no adjoint by hand
    masks: list[Tensor | None]
    own: torch.dtype
    exact: torch.dtype  # of what is computed here
    real: Tensor | None  # (time, sequence, 1), False in the padding of packed rows
    loop: bool  # a call of one step


class Layered(NamedTuple):
    """Gradients of one call, or of all calls of a loop side by side: [layer][direction]."""

    found: list[list[Found]]
    arriving: list[list[Tensor]]  # (time, sequence, 1): log10 of the norm from outside the recurrence
    reached: list[Tensor]  # [direction], (time, sequence, 1): 1 where the loss reaches the last layer at this step
    input: list[Scaled]  # at what each layer read, all directions together


class Capture:
    """Listens to one module; `gradients` then gives what reaches each step of each call."""

    def __init__(self, model: nn.Module, path: str, observed: Observed, tolerance: float) -> None:
        if not (isinstance(tolerance, (int, float)) and tolerance > 0):
            raise ValueError(f"tolerance must be a number above 0; {tolerance!r} came. The default is 1e-4.")
        self.path, self.observed, self.tolerance = path, observed, tolerance
        self.track = Track(observed)
        self.calls: list[Taken] = []
        self.following: Following | None = None
        self.loop = isinstance(observed, Single)
        self._weights: tuple[list[tuple[int, int]], torch.dtype] | None = None
        self._still: list[list[AbstractCell]] = []
        if isinstance(observed, ForeignCell):
            observed.read = self.own_tensors(observed.read)  # type: ignore[method-assign]
        self._listening = Listening(model, {path: observed}, self.take, lambda args, kwargs: None, lambda: None)

    @contextmanager
    def listening(self, following: Following) -> Iterator[None]:
        self.following = following
        self._listening.start()
        try:
            yield
            self._listening.settle()
        finally:
            self._listening.stop()

    def own_tensors(self, read: Any) -> Any:
        """`read`, if the states that it gives are the very tensors with which the model goes on."""

        def checked(args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, random: Tensor | None) -> Call:
            call: Call = read(args, kwargs, output, random)
            returned = {id(tensor) for tensor in tensors_in(output)}
            if not all(id(tensor) in returned for tensor in call.ends.tensors):
                raise ValueError(
                    f"the states of {self.path!r} must be tensors that the module itself returns; its `read` makes new "
                    "ones, and what the model does with its own cannot be seen. Return the module's tensors in `read`."
                )
            return call

        return checked

    def take(self, path: str, kernel: Kernel | None, read: Read) -> None:
        refuse_transforms(path)
        if not torch.is_grad_enabled():
            raise ValueError(
                f"the model must call {path!r} with gradients on; call {len(self.calls)} ran under no_grad. Its "
                "gradient would be partial: take no_grad out of the model's forward."
            )
        taken = unseen(lambda: self.keep(kernel, read))
        self.calls.append(taken)
        if self.following is not None:
            self.following.begin(taken.call.ends.tensors)

    def keep(self, kernel: Kernel | None, read: Read) -> Taken:
        observed, number = self.observed, len(self.calls)
        observed.used = None if kernel is None else kernel.weights
        call = read(observed)
        if not all(tensor.requires_grad for tensor in call.ends.tensors):
            raise ValueError(
                f"the states of {self.path!r} must be part of autograd's graph; those of call {number} are not. Its "
                "class detaches them, or has no parameters: the gradient would be partial."
            )
        if call.heard is not None and call.heard.changed:
            raise ValueError(
                f"a loss gradient needs signals that follow from the equations; an intervention has changed those of "
                f"{self.path!r}. Leave it out, or take gradients by autograd inside gs.intervene."
            )
        call = call._replace(heard=None)
        own = rounding(call.layers[-1].hidden)
        exact = torch.float64 if own == torch.float64 else torch.float32
        if self.loop:
            rebuilt, cells = raw(call), observed.cells()
        else:
            wanted = frozenset(name for name in self.track.offered if "preactivation" not in name)
            rebuilt, cells = rebuild(observed, call, wanted, self.tolerance, number)
        chunk = self.track.add(call, rebuilt, cells, observed.module.training)
        still = self.still(cells, own, exact)
        by_hand = type(cells[0][0]) in BACKWARD
        kept = [] if by_hand and not self.loop else [copied(layer.input, exact) for layer in call.layers]
        masks = [None if layer.mask is None else copied(layer.mask, exact) for layer in call.layers]
        edges = [get_gradient_edge(tensor) for tensor in call.ends.tensors]
        real = None
        if call.lengths is not None:
            steps = torch.arange(chunk.steps)
            real = (steps[:, None] < call.lengths.cpu()).unsqueeze(-1)
        return Taken(
            call, chunk, still, edges, [t.shape for t in call.ends.tensors], kept, masks, own, exact, real, self.loop
        )

    def still(self, cells: list[list[AbstractCell]], own: torch.dtype, exact: torch.dtype) -> list[list[AbstractCell]]:
        """The cells with the weights that they have now; the same ones again where those are the same."""
        versions = [version(weight) for layer in cells for cell in layer for weight in cell.parameters()]
        if not self.calls or (versions, own) != self._weights:
            self._weights = versions, own
            self._still = [[here(frozen(rounded(cell, own, exact))) for cell in layer] for layer in cells]
        return self._still

    def gradients(self, value: Tensor) -> list[tuple[list[Taken], Layered]]:
        """What reaches the calls of each part: one of a stack, or those of a loop that have the same weights."""
        edges = [edge for taken in self.calls for edge in taken.edges]
        grads = iter(torch.autograd.grad(value, edges, allow_unused=True))
        arrived = []
        for taken in self.calls:
            got = [next(grads) for _ in taken.edges]
            full = [
                torch.zeros(shape, dtype=taken.exact) if grad is None else grad.detach().to("cpu", taken.exact)
                for grad, shape in zip(got, taken.shapes, strict=True)
            ]
            arrived.append(taken.call.ends.arrange(tuple(full)))
        with torch.no_grad():
            return unseen(lambda: list(self.carried(arrived)))

    def carried(self, arrived: list[tuple[Tensor, State]]) -> Iterator[tuple[list[Taken], Layered]]:
        with uncast(torch.device("cpu")):
            if not self.loop:
                for taken, ends in zip(self.calls, arrived, strict=True):
                    yield [taken], through_layers(taken, *ends)
                return
            start = 0
            for stop in range(1, len(self.calls) + 1):
                if stop == len(self.calls) or not alike(self.calls[start], self.calls[stop]):
                    yield self.calls[start:stop], self.steps(self.calls[start:stop], arrived[start:stop])
                    start = stop

    def steps(self, calls: list[Taken], arrived: list[tuple[Tensor, State]]) -> Layered:
        """The calls of a loop side by side: autograd has carried their gradients through time."""
        first, cell = calls[0], calls[0].cells[0][0]
        before = side_by_side([taken.chunk.rebuilt.initial for taken in calls], first.exact)
        after = side_by_side([taken.chunk.rebuilt.final for taken in calls], first.exact)
        partial = torch.cat([shown for shown, _ in arrived], 1)
        final = tuple(torch.cat(states, 1)[0] for states in zip(*(ends for _, ends in arrived), strict=True))
        x = torch.cat([taken.read[0] for taken in calls], 1).to(first.own).to(first.exact)
        signals: dict[str, Tensor] = {}

        def tap(name: str, value: Tensor) -> Tensor:
            signals[name] = value.unsqueeze(0)
            return value

        self.certify(cell.forward(x[0], before, tap), after, max(self.tolerance, COARSE.get(first.own, 0.0)))
        run = Run(cell, x, before[0].unsqueeze(0), before[1:], None, partial, final)
        arriving = Scaled.of(partial)
        if not first.call.ends.total:
            found = go_back(run, arriving, signals)
            return self.one_step(found)
        rest = tuple(torch.zeros_like(state) for state in final)
        found = go_back(run._replace(final=rest), arriving, signals)
        for _ in final[1:]:  # a state may reach the loss through another of the same step, and that through a third
            ways = [whole - state.plain()[0] for whole, state in zip(final, found.states, strict=True)]
            rest = (rest[0], *(entry + way for entry, way in zip(rest[1:], ways[1:], strict=True)))
            found = go_back(run._replace(final=rest), arriving, signals)
        return self.one_step(found)

    @staticmethod
    def one_step(found: Found) -> Layered:
        """Autograd does not tell what comes through the next step from what comes from outside."""
        reached = torch.stack([state.levels() for state in found.states]).amax(0) > NOTHING
        unknown = torch.full((*reached.shape, 1), torch.nan, dtype=torch.float64)
        return Layered([[found]], [[unknown]], [reached.double().unsqueeze(-1)], [found.input])

    def certify(self, rebuilt: State, own: State, tolerance: float) -> None:
        gap = max(float((a - b).abs().max()) for a, b in zip(rebuilt, own, strict=True))
        memory = max((float(state.abs().max()) for state in own[1:] or own), default=0.0)
        error = gap / memory if memory > 0 else gap
        if error > tolerance:
            raise ParityError(
                f"the rebuilt states of {self.path!r} must equal the module's own within {tolerance:g} of the largest "
                f"memory; they differ by {error:.2g}. The equations, the gate order or the weights of its cell are not "
                "those of the module."
            )
        self.track.parity, self.track.tolerance = max(self.track.parity, error), tolerance


def side_by_side(states: list[State], exact: torch.dtype) -> State:
    """The states of several calls of a cell as the rows of one, (row, unit) each."""
    return tuple(torch.cat([entry.flatten(0, 2) for entry in each]).to(exact) for each in zip(*states, strict=True))


def alike(one: Taken, other: Taken) -> bool:
    """Whether two calls of a cell can go side by side: the same weights, the same ways of the gradient."""
    mine, theirs = (list(taken.cells[0][0].parameters()) for taken in (one, other))
    same = all(a.data_ptr() == b.data_ptr() and a.dtype == b.dtype for a, b in zip(mine, theirs, strict=True))
    return same and (one.own, one.exact, one.call.ends.total) == (other.own, other.exact, other.call.ends.total)


def raw(call: Call) -> Rebuilt:
    """The states around a call of a cell, whose signals are rebuilt together with those of the others."""
    initial, final = (
        tuple(state.detach().reshape(1, 1, -1, state.shape[-1]).cpu().clone() for state in states)
        for states in (call.initial, call.final)
    )
    return Rebuilt({}, initial, final, 0.0, 0.0, None)


def copied(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.detach().to("cpu", dtype, copy=True)


def here(cell: AbstractCell) -> AbstractCell:
    """The cell on the CPU, where recorded signals are."""
    return cell if all(weight.device.type == "cpu" for weight in cell.parameters()) else deepcopy(cell).cpu()


def through_layers(taken: Taken, arrived: Tensor, final: State) -> Layered:
    """From the last layer down: what reaches a layer's input is what arrives at the layer below."""
    depth = len(taken.cells)
    found: list[list[Found]] = [[] for _ in range(depth)]
    coming: list[list[Tensor]] = [[] for _ in range(depth)]
    reached: list[Tensor] = []
    inputs: list[Scaled] = []
    whole = Scaled.of(arrived)
    for index in range(depth - 1, -1, -1):
        read: Scaled | None = None
        for direction, cell in enumerate(taken.cells[index]):
            width = cell.output_size
            own = Scaled(whole.values[..., direction * width : (direction + 1) * width], whole.power)
            slot = index * len(taken.cells[index]) + direction
            ends = tuple(state[slot] for state in final)
            each = one_direction(taken, index, direction, own, ends)
            found[index].append(each)
            norm, here = at_the_ends(taken, direction, own, ends)
            coming[index].append(norm)
            if index == depth - 1:
                reached.append(here)
            read = each.input if read is None else read.plus(each.input)
        mask = taken.masks[index]
        if read is not None:
            inputs.insert(0, read)
            whole = read if mask is None else read.times(mask)
    return Layered(found, coming, reached, inputs)


def at_the_ends(taken: Taken, direction: int, arriving: Scaled, final: State) -> tuple[Tensor, Tensor]:
    """What reaches a layer's shown states from outside, log10 of its norm, and whether anything does; with that which
    reaches the states after each sequence's last step. Both (time, sequence, 1)."""
    steps, sequences = arriving.power.shape
    rows = torch.arange(sequences)
    last = torch.full((sequences,), steps - 1) if taken.real is None else taken.real.squeeze(-1).sum(0) - 1
    last = torch.zeros_like(last) if direction else last.clamp(min=0)
    norm = arriving.log10_norm()
    ends = Scaled(arriving.values[last, rows].unsqueeze(0), arriving.power[last, rows].unsqueeze(0))
    norm[last, rows] = ends.plus(Scaled.of(final[0].unsqueeze(0))).log10_norm()[0]
    reached = arriving.levels() > NOTHING
    reached[last, rows] |= torch.stack([(state != 0).any(-1) for state in final]).any(0)
    return norm, reached.double().unsqueeze(-1)


def one_direction(taken: Taken, index: int, direction: int, arriving: Scaled, final: State) -> Found:
    """One layer in one direction, computed in its own order and given on the input's time axis."""
    rebuilt, cell = taken.chunk.rebuilt, taken.cells[index][direction]
    signals = {name: values[index, direction].to(taken.exact) for name, values in rebuilt.signals.items()}
    hidden = signals[cell.states[0]]
    initial = tuple(state[index, direction].to(taken.exact) for state in rebuilt.initial)
    real = taken.real
    values = arriving.values
    if real is not None:
        hidden, values = torch.where(real, hidden, initial[0]), torch.where(real, values, 0.0)
    arriving = Scaled(values, arriving.power)
    read = taken.read[index] if taken.read else hidden.new_zeros(*hidden.shape[:2], cell.input_size)
    if direction:
        signals = {name: signal.flip(0) for name, signal in signals.items()}
        hidden, read, arriving = hidden.flip(0), read.flip(0), arriving.flip()
        real = None if real is None else real.flip(0)
    before = torch.cat([initial[0].unsqueeze(0), hidden[:-1]])
    run = Run(cell, read, before, initial[1:], real, arriving.values, final)
    found = go_back(run, arriving, signals)
    return found.flip() if direction else found
