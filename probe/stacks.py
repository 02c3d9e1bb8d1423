"""Stacks of layers that are called on whole sequences: torch's fused modules and our open ones."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ..cells import AbstractCell, Recurrent
from .calls import Call, Ends, Layer, Observed, are_tensors, argument, as_tuple, bind, settled, shadow, zeros
from .dispatch import Kernel, generator_state
from .find import State


class Form:
    """The form in which a stack was called (padded, batch first, unbatched, packed), and its way to time first."""

    def __init__(self, input: Tensor | PackedSequence, batch_first: bool) -> None:
        self.packed = input if isinstance(input, PackedSequence) else None
        self.unbatched = isinstance(input, Tensor) and not isinstance(input, PackedSequence) and input.dim() == 2
        self.batch_first = batch_first

    @staticmethod
    def data(value: Tensor | PackedSequence) -> Tensor:
        return value.data if isinstance(value, PackedSequence) else value

    def raw(self, value: Tensor | PackedSequence) -> Tensor:
        """Time first, as the fused kernels want it; packed rows stay packed."""
        input = self.data(value)
        if self.packed is not None:
            return input
        if self.unbatched:
            return input.unsqueeze(1)
        return input.transpose(0, 1) if self.batch_first else input

    def padded(self, raw: Tensor) -> Tensor:
        """(time, sequence, feature) in the caller's order; padding is 0."""
        return raw if self.packed is None else pad_packed_sequence(self.packed._replace(data=raw))[0]

    def lengths(self) -> Tensor | None:
        return None if self.packed is None else pad_packed_sequence(self.packed)[1]

    def states(self, state: State) -> State:
        return tuple(tensor.unsqueeze(1) for tensor in state) if self.unbatched else state

    def arrange(self, arrived: State) -> tuple[Tensor, State]:
        """Gradients for the output and the last states, in the form of the call."""
        return self.padded(self.raw(arrived[0])), self.states(arrived[1:])

    def sort(self, tensor: Tensor) -> Tensor:
        order = None if self.packed is None else self.packed.sorted_indices
        return tensor if order is None else tensor.index_select(1, order)


class Stack(Observed):
    """A stack of layers called on whole sequences: torch's fused modules and our open ones."""

    module: Any

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, random: Tensor | None) -> Call:
        input, given = argument(args, kwargs, 0, "input"), argument(args, kwargs, 1, "hx", "state")
        if not self.understands(input, given, output):
            name = type(self.module).__name__
            raise TypeError(
                f"{self.path!r} must be called as (input, state) and answer (output, state), as torch's own; its class "
                f"{name} does otherwise. Let {name} hold the recurrent module instead of inheriting from it."
            )
        form = Form(input, self.module.batch_first)
        final = form.states(as_tuple(output[1]))
        initial = zeros(final) if given is None else form.states(as_tuple(given))
        layers = list(self.layers(form, form.raw(input), initial, form.raw(output[0]), random))
        ends = Ends((form.data(output[0]), *as_tuple(output[1])), form.arrange)
        return Call(layers, initial, final, given is not None, form.lengths(), (), ends)

    @staticmethod
    def understands(input: Any, given: Any, output: Any) -> bool:
        pair = isinstance(output, tuple) and len(output) == 2 and isinstance(input, (Tensor, PackedSequence))
        same = pair and isinstance(output[0], PackedSequence) == isinstance(input, PackedSequence)
        return same and are_tensors(*as_tuple(output[1]), *(() if given is None else as_tuple(given)))

    def layers(self, form: Form, raw: Tensor, initial: State, top: Tensor, random: Tensor | None) -> Iterator[Layer]:
        count, directions = self.depth, 2 if self.bidirectional else 1
        mask: Tensor | None = None
        with replayed(random, raw.device):
            for index in range(count):
                state = tuple(tensor[index * directions : (index + 1) * directions] for tensor in initial)
                last = index == count - 1
                hidden = top if last else self.run_layer(index, form, raw, state)
                yield Layer(form.padded(raw), form.padded(hidden), None if mask is None else form.padded(mask))
                mask = None if last or random is None else F.dropout(torch.ones_like(hidden), self.dropout, True)
                raw = hidden if mask is None else hidden * mask

    @property
    def depth(self) -> int:
        return int(self.module.num_layers)

    @property
    def dropout(self) -> float:
        return float(self.module.dropout)

    @property
    def bidirectional(self) -> bool:
        return bool(self.module.bidirectional)

    @abstractmethod
    def run_layer(self, index: int, form: Form, raw: Tensor, state: State) -> Tensor: ...

    def random_state(self) -> Tensor | None:
        if not (self.module.training and self.dropout > 0 and self.depth > 1):
            return None
        return generator_state(next(self.module.parameters()).device)


class replayed:  # noqa: N801 - reads as a statement
    """For a `with` block, random numbers come again as after `state`; the caller's generator is untouched."""

    def __init__(self, state: Tensor | None, device: torch.device) -> None:
        self.state = state
        self.fork = torch.random.fork_rng([device] if device.type == "cuda" else [])
        self.cuda = device if device.type == "cuda" else None

    def __enter__(self) -> None:
        if self.state is None:
            return
        self.fork.__enter__()
        if self.cuda is None:
            torch.set_rng_state(self.state)
        else:
            torch.cuda.set_rng_state(self.state, self.cuda)

    def __exit__(self, *error: Any) -> None:
        if self.state is not None:
            self.fork.__exit__(*error)


class TorchStack(Stack):
    """nn.LSTM, nn.GRU, nn.RNN and their subclasses."""

    module: nn.RNNBase
    runs_kernels = True

    def __init__(self, path: str, module: nn.RNNBase) -> None:
        super().__init__(path, module)
        width = (module.proj_size or module.hidden_size) * (2 if module.bidirectional else 1)
        sizes = [module.input_size] + [width] * (module.num_layers - 1)
        directions = range(2 if module.bidirectional else 1)
        self.shadows = [[shadow(module, size) for _ in directions] for size in sizes]

    @property
    def kind(self) -> AbstractCell:
        return self.shadows[0][0]

    def runs(self, kernel: Kernel) -> bool:
        own = self.module._flat_weights
        return (
            kernel.name == self.module.mode.lower() and len(own) == len(kernel.weights) and own[0] is kernel.weights[0]
        )

    @property
    def plain(self) -> bool:
        torchs = (nn.LSTM.forward, nn.GRU.forward, nn.RNN.forward)
        return type(self.module).forward in torchs and "forward" not in vars(self.module)

    def read_kernel(self, kernel: Kernel, order: Tensor | None) -> Call:
        input: Tensor | PackedSequence = kernel.input
        output, *final = kernel.output
        state = as_tuple(kernel.state)
        if kernel.batch_sizes is not None:
            rank = None if order is None else torch.argsort(order)
            input = PackedSequence(kernel.input, kernel.batch_sizes, rank, order)
            output = PackedSequence(output, kernel.batch_sizes, rank, order)
            if order is not None:
                state, final = (tuple(t.index_select(1, order) for t in states) for states in (state, final))
        form = Form(input, kernel.batch_first)
        layers = list(self.layers(form, form.raw(input), state, form.raw(output), kernel.random))
        given = any(bool(tensor.any()) for tensor in state)

        def arrange(arrived: State) -> tuple[Tensor, State]:
            last = arrived[1:] if order is None else tuple(t.index_select(1, order) for t in arrived[1:])
            return form.arrange((arrived[0], *last))

        ends = Ends(kernel.output, arrange)
        return Call(layers, state, tuple(final), given, form.lengths(), (), ends)

    def weights(self, index: int) -> list[list[Tensor]]:
        """The weights really used, per direction of a layer, in torch's order."""
        names = self.module._all_weights
        each, directions = len(names[0]), 2 if self.bidirectional else 1
        start = index * directions * each
        flat: list[Tensor] = self.module._flat_weights if self.used is None else self.used  # type: ignore[assignment]
        return [flat[start + d * each : start + (d + 1) * each] for d in range(directions)]

    def cells(self) -> list[list[AbstractCell]]:
        names = [name.rpartition("_l")[0] for name in self.module._all_weights[0]]
        for index, layer in enumerate(self.shadows):
            for cell, weights in zip(layer, self.weights(index), strict=True):
                bind(cell, dict(zip(names, weights, strict=True)))
        return self.shadows

    def run_layer(self, index: int, form: Form, raw: Tensor, state: State) -> Tensor:
        """One layer by the module's own fused call: the bits are those of the whole call."""
        kernel = getattr(torch._VF, self.module.mode.lower())
        weights = [weight for direction in self.weights(index) for weight in direction]
        hidden = tuple(form.sort(tensor).contiguous() for tensor in state)
        start = hidden if self.module.mode == "LSTM" else hidden[0]
        options = (weights, self.module.bias, 1, 0.0, False, self.bidirectional)
        if form.packed is not None:
            output: Tensor = kernel(raw, form.packed.batch_sizes, start, *options)[0]
        else:
            output = kernel(raw, start, *options, False)[0]
        return output


class OpenStack(Stack):
    """Our own unrolled stack."""

    module: Recurrent

    def cells(self) -> list[list[AbstractCell]]:
        return settled(self.module).cells  # type: ignore[no-any-return]

    def run_layer(self, index: int, form: Form, raw: Tensor, state: State) -> Tensor:
        padded: Tensor = settled(self.module).run_layer(index, form.padded(raw), form.lengths(), state)[0]
        if form.packed is None:
            return padded
        sorted_rows = (
            padded if form.packed.sorted_indices is None else padded.index_select(1, form.packed.sorted_indices)
        )
        return torch.cat([sorted_rows[t, :size] for t, size in enumerate(form.packed.batch_sizes.tolist())])
