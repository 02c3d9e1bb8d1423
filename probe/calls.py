"""One observed call in one form, whatever the module: time first, sequences in the caller's order."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from ..cells import AbstractCell, GRUCell, LSTMCell, Recurrent, RNNCell
from .dispatch import CELL_KERNELS, Kernel, generator_state
from .find import State, registration


class Layer(NamedTuple):
    """What a layer read and what it computed; the last dimension of `hidden` holds its directions side by side."""

    input: Tensor  # (time, sequence, feature)
    hidden: Tensor  # (time, sequence, direction * H), the model's own


class Call(NamedTuple):
    layers: list[Layer]
    initial: State  # each (layer * direction, sequence, H), in the order of the cell's `states`
    final: State
    given: bool  # the caller handed a state in
    lengths: Tensor | None  # steps per sequence where the input was packed
    computed: State  # other states that the model itself shows at every step: (time, sequence, H) each


class Observed(ABC):
    """A recurrent module and how to read its calls."""

    def __init__(self, path: str, module: nn.Module) -> None:
        self.path = path
        self.module = module

    @abstractmethod
    def cells(self) -> list[list[AbstractCell]]:
        """[layer][direction], with the weights that the module has now."""

    @abstractmethod
    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, random: Tensor | None) -> Call: ...

    runs_kernels: ClassVar[bool] = False
    """Whether the module computes by torch's kernels, which a function mode can hear."""

    def runs(self, kernel: Kernel) -> bool:
        """Whether a kernel has been run with this module's weights."""
        return False

    def fits(self, kernel: Kernel) -> bool:
        """Whether a kernel that ran within a call of this module is its own: then it says which weights were used."""
        return self.runs(kernel)

    def read_kernel(self, kernel: Kernel, order: Tensor | None) -> Call:
        """The call behind a kernel that was run without the module; `order` puts rows back into the caller's order."""
        raise TypeError(f"{self.path!r} must be called as a module; a bare kernel came. Call the module itself.")

    def use(self, weights: list[Tensor] | None) -> None:
        """Compute with the weights that a kernel has used, or again with the module's own."""

    @property
    def plain(self) -> bool:
        """Whether the module is called as torch's own class is, so that the call itself says everything."""
        return True

    def random_state(self) -> Tensor | None:
        """What must be kept before a call so that its dropout between layers can be replayed."""
        return None

    @property
    def dropout(self) -> float:
        return 0.0

    @property
    def bidirectional(self) -> bool:
        return False


def observe(path: str, module: nn.Module) -> Observed:
    """The reader for a module that `find` has found."""
    if registration(module) is not None:
        return ForeignCell(path, module)
    if isinstance(module, Recurrent):
        return OpenStack(path, module)
    if isinstance(module, AbstractCell):
        return OpenCell(path, module)
    if isinstance(module, nn.RNNBase):
        return TorchStack(path, module)
    return TorchCell(path, module)


def argument(args: tuple[Any, ...], kwargs: dict[str, Any], index: int, *names: str) -> Any:
    if len(args) > index:
        return args[index]
    return next((kwargs[name] for name in names if name in kwargs), None)


class Form:
    """The form in which a stack was called (padded, batch first, unbatched, packed), and its way to (time, sequence)."""

    def __init__(self, input: Tensor | PackedSequence, batch_first: bool) -> None:
        self.packed = input if isinstance(input, PackedSequence) else None
        self.unbatched = isinstance(input, Tensor) and not isinstance(input, PackedSequence) and input.dim() == 2
        self.batch_first = batch_first

    def raw(self, input: Tensor | PackedSequence) -> Tensor:
        """Time first, as the fused kernels want it; packed rows stay packed."""
        if isinstance(input, PackedSequence):
            return input.data
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

    def sort(self, tensor: Tensor) -> Tensor:
        order = None if self.packed is None else self.packed.sorted_indices
        return tensor if order is None else tensor.index_select(1, order)


def as_tuple(state: Any) -> State:
    return (state,) if isinstance(state, Tensor) else tuple(state)


def are_tensors(*values: Any) -> bool:
    return all(isinstance(value, Tensor) for value in values)


def zeros(like: State) -> State:
    return tuple(torch.zeros_like(tensor) for tensor in like)


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
        return Call(layers, initial, final, given is not None, form.lengths(), ())

    @staticmethod
    def understands(input: Any, given: Any, output: Any) -> bool:
        pair = isinstance(output, tuple) and len(output) == 2 and isinstance(input, (Tensor, PackedSequence))
        same = pair and isinstance(output[0], PackedSequence) == isinstance(input, PackedSequence)
        return same and are_tensors(*as_tuple(output[1]), *(() if given is None else as_tuple(given)))

    def layers(self, form: Form, raw: Tensor, initial: State, top: Tensor, random: Tensor | None) -> Iterator[Layer]:
        count, directions = self.depth, 2 if self.bidirectional else 1
        with replayed(random, raw.device):
            for index in range(count):
                state = tuple(tensor[index * directions : (index + 1) * directions] for tensor in initial)
                last = index == count - 1
                hidden = top if last else self.run_layer(index, form, raw, state)
                yield Layer(form.padded(raw), form.padded(hidden))
                raw = hidden if last or random is None else F.dropout(hidden, self.dropout, True)

    @property
    @abstractmethod
    def depth(self) -> int: ...

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
        self.used: list[Tensor] | None = None
        width = (module.proj_size or module.hidden_size) * (2 if module.bidirectional else 1)
        sizes = [module.input_size] + [width] * (module.num_layers - 1)
        directions = range(2 if module.bidirectional else 1)
        self.shadows = [[shadow(module, size) for _ in directions] for size in sizes]

    @property
    def depth(self) -> int:
        return self.module.num_layers

    @property
    def dropout(self) -> float:
        return float(self.module.dropout)

    @property
    def bidirectional(self) -> bool:
        return self.module.bidirectional

    def runs(self, kernel: Kernel) -> bool:
        own = self.module._flat_weights
        return (
            kernel.name == self.module.mode.lower() and len(own) == len(kernel.weights) and own[0] is kernel.weights[0]
        )

    @property
    def plain(self) -> bool:
        torchs = (nn.LSTM.forward, nn.GRU.forward, nn.RNN.forward)
        return type(self.module).forward in torchs and "forward" not in vars(self.module)

    def use(self, weights: list[Tensor] | None) -> None:
        self.used = weights

    def read_kernel(self, kernel: Kernel, order: Tensor | None) -> Call:
        input: Tensor | PackedSequence = kernel.input
        output, *final = kernel.output
        state = as_tuple(kernel.state)
        if kernel.batch_sizes is not None:
            rank = None if order is None else torch.argsort(order)
            input, output = (PackedSequence(data, kernel.batch_sizes, rank, order) for data in (input, output))
            if order is not None:
                state, final = (tuple(t.index_select(1, order) for t in states) for states in (state, final))
        form = Form(input, kernel.batch_first)
        layers = list(self.layers(form, form.raw(input), state, form.raw(output), kernel.random))
        return Call(layers, state, tuple(final), any(bool(t.any()) for t in state), form.lengths(), ())

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

    @property
    def depth(self) -> int:
        return len(self.module.layers)

    @property
    def dropout(self) -> float:
        return float(self.module.dropout)

    @property
    def bidirectional(self) -> bool:
        return len(self.module.layers[0]) == 2

    def cells(self) -> list[list[AbstractCell]]:
        return [list(layer) for layer in self.module.layers]

    def run_layer(self, index: int, form: Form, raw: Tensor, state: State) -> Tensor:
        padded = self.module.run_layer(index, form.padded(raw), form.lengths(), state)[0]
        if form.packed is None:
            return padded
        sorted_rows = (
            padded if form.packed.sorted_indices is None else padded.index_select(1, form.packed.sorted_indices)
        )
        return torch.cat([sorted_rows[t, :size] for t, size in enumerate(form.packed.batch_sizes.tolist())])


class Single(Observed):
    """A cell called once per step; its calls join into sequences."""

    def call(self, input: Tensor, state: State | None, new: State) -> Call:
        if not are_tensors(input, *(state or ()), *new):
            name = type(self.module).__name__
            raise TypeError(
                f"{self.path!r} must be called as (input, state) and answer the new state; its class {name} does "
                f"otherwise. Say how to read its calls: gatescope.register({name}, as_cell, read=...)."
            )
        rows = [tensor.reshape(1, -1, tensor.shape[-1]) for tensor in new]
        old = zeros(tuple(rows)) if state is None else tuple(t.reshape(1, -1, t.shape[-1]) for t in state)
        layer = Layer(input.reshape(1, -1, input.shape[-1]), rows[0])
        return Call([layer], old, tuple(rows), state is not None, None, tuple(rows[1:]))


class TorchCell(Single):
    """nn.LSTMCell, nn.GRUCell, nn.RNNCell and their subclasses."""

    module: nn.RNNCellBase
    runs_kernels = True

    def __init__(self, path: str, module: nn.RNNCellBase) -> None:
        super().__init__(path, module)
        self.shadow = shadow(module, module.input_size)
        self.used: list[Tensor] | None = None

    def cells(self) -> list[list[AbstractCell]]:
        names = [name for name, weight in self.shadow._parameters.items() if weight is not None]
        used = [getattr(self.module, name) for name in names] if self.used is None else self.used
        bind(self.shadow, dict(zip(names, used, strict=True)))
        return [[self.shadow]]

    def fits(self, kernel: Kernel) -> bool:
        return kernel.name in CELL_KERNELS

    def runs(self, kernel: Kernel) -> bool:
        own = self.module._parameters.get("weight_hh")
        return kernel.name in CELL_KERNELS and own is kernel.weights[1]

    @property
    def plain(self) -> bool:
        torchs = (nn.LSTMCell.forward, nn.GRUCell.forward, nn.RNNCell.forward)
        return type(self.module).forward in torchs and "forward" not in vars(self.module)

    def use(self, weights: list[Tensor] | None) -> None:
        self.used = weights

    def read_kernel(self, kernel: Kernel, order: Tensor | None) -> Call:
        state = as_tuple(kernel.state)
        given = any(bool(tensor.any()) for tensor in state)
        return self.call(kernel.input, state, as_tuple(kernel.output))._replace(given=given)

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, random: Tensor | None) -> Call:
        state = argument(args, kwargs, 1, "hx")
        return self.call(
            argument(args, kwargs, 0, "input"), None if state is None else as_tuple(state), as_tuple(output)
        )


class OpenCell(Single):
    """One of our own cells, called by the user's loop."""

    module: AbstractCell

    def cells(self) -> list[list[AbstractCell]]:
        return [[self.module]]

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, random: Tensor | None) -> Call:
        return self.call(argument(args, kwargs, 0, "x"), as_tuple(argument(args, kwargs, 1, "state")), output)


class ForeignCell(Single):
    """A cell of a registered class."""

    def __init__(self, path: str, module: nn.Module) -> None:
        super().__init__(path, module)
        found = registration(module)
        if found is None:
            raise ValueError(f"{path} must be of a registered class; {type(module).__name__} came. Register it first.")
        self.registration = found
        self.versions: list[tuple[int, int]] = []
        self.built: AbstractCell | None = None

    def cells(self) -> list[list[AbstractCell]]:
        versions = [version(tensor) for tensor in (*self.module.parameters(), *self.module.buffers())]
        if self.built is None or versions != self.versions:
            self.built, self.versions = self.registration.as_cell(self.module), versions
            if not isinstance(self.built, AbstractCell):
                raise TypeError(
                    f"as_cell must return a gatescope cell; {type(self.built).__name__} came for {self.path!r}. "
                    "Build one of gatescope.cells with the module's weights."
                )
        return [[self.built]]

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, random: Tensor | None) -> Call:
        if self.registration.read is not None:
            input, state, new = self.registration.read(args, kwargs, output)
            return self.call(input, None if state is None else as_tuple(state), as_tuple(new))
        input = args[0] if args else next(iter(kwargs.values()))
        state = args[1] if len(args) > 1 else next((v for k, v in kwargs.items() if k in ("hx", "state")), None)
        return self.call(input, None if state is None else as_tuple(state), as_tuple(output))


def shadow(module: nn.RNNBase | nn.RNNCellBase, input_size: int) -> AbstractCell:
    """Our cell with the equations of a torch module, still without weights."""
    kind = type(module).__mro__
    sizes = (input_size, module.hidden_size)
    if nn.LSTM in kind or nn.LSTMCell in kind:
        return LSTMCell(*sizes, bias=bool(module.bias), proj_size=getattr(module, "proj_size", 0), device="meta")
    if nn.GRU in kind or nn.GRUCell in kind:
        return GRUCell(*sizes, bias=bool(module.bias), device="meta")
    return RNNCell(*sizes, bias=bool(module.bias), nonlinearity=module.nonlinearity, device="meta")


def bind(cell: AbstractCell, weights: dict[str, Tensor]) -> None:
    """Let a cell without weights of its own compute with these; nothing is copied."""
    for name, weight in weights.items():
        cell._parameters[name] = weight.detach()  # type: ignore[assignment]


def signal_names(cell: AbstractCell) -> list[str]:
    """All signals and pre-activations that a cell gives, in the order it computes them: what it taps in one step."""
    found = []

    def listen(name: str, value: Tensor) -> Tensor:
        found.append(name)
        return value

    like = next(weight for weight in cell._parameters.values() if weight is not None)
    with torch.no_grad():
        cell.forward(like.new_zeros(cell.input_size), cell.zero_state(like), listen)
    return found


def version(tensor: Tensor) -> tuple[int, int]:
    """Changes when a tensor is written to in place or replaced."""
    return tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version
