"""One call of an LSTM inside a model, and which linear layer reads what it shows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..cells import LSTMCell
from .calls import Call
from .observe import observe
from .rebuild import COARSE, rounding
from .stacks import Stack


@dataclass
class Heard:
    """What was heard of the one call; states are the model's own."""

    cells: list[list[LSTMCell]]
    input: Tensor  # (time, sequence, feature)
    hidden: list[Tensor]  # per layer (time, sequence, direction x unit)
    initial: tuple[Tensor, Tensor]
    lengths: "np.ndarray[Any, np.dtype[np.int64]]"
    readout: nn.Linear | None
    readout_name: str
    coarse: float  # how far the model's own rounding may be off

    @property
    def steps(self) -> int:
        return len(self.input)

    @property
    def active(self) -> Tensor:
        """(time, sequence)"""
        return torch.arange(self.steps)[:, None] < torch.from_numpy(self.lengths)


def hear(
    model: nn.Module,
    path: str,
    part: nn.Module,
    inputs: Any,
    inputs_kwargs: Mapping[str, Any] | None,
    readout: str | nn.Linear | None,
    lengths: Any,
) -> Heard:
    """Run the model once, in `eval()` and without gradients, and keep what its LSTM read and showed."""
    observed = observe(path, part)
    if not isinstance(observed, Stack) or any(type(cell) is not LSTMCell for row in observed.cells() for cell in row):
        raise TypeError(
            "contextual decomposition is defined for LSTM layers that read whole sequences (nn.LSTM, or Recurrent of "
            f"LSTMCell); {path!r} is of class {type(part).__name__}. Name another module."
        )
    calls: list[Call] = []
    readers: dict[str, nn.Linear] = {}
    others: set[str] = set()  # linear layers that read something else
    outputs: list[Tensor] = []
    coarse: list[float] = []

    def listen(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        calls.append(observed.read(args, kwargs, output, None))
        coarse.append(COARSE.get(rounding(calls[-1].layers[-1].hidden), 0.0))
        data = output[0].data if isinstance(output[0], PackedSequence) else output[0]
        outputs.append(data.clone())

    def listen_to(name: str) -> Any:
        def listener(module: nn.Linear, args: tuple[Any, ...], output: Any) -> None:
            if calls and args and isinstance(args[0], Tensor) and reads(args[0], calls[-1], outputs[-1]):
                readers[name] = module
            else:
                others.add(name)

        return listener

    linears = {name: each for name, each in model.named_modules() if type(each) is nn.Linear}
    hooks = [part.register_forward_hook(listen, with_kwargs=True)]
    hooks += [each.register_forward_hook(listen_to(name)) for name, each in linears.items()]
    args = inputs if isinstance(inputs, tuple) and not isinstance(inputs, PackedSequence) else (inputs,)
    try:
        with undisturbed(model):
            model(*args, **dict(inputs_kwargs or {}))
    finally:
        for hook in hooks:
            hook.remove()
    if len(calls) != 1:
        raise ValueError(f"the model must call {path!r} once; it was called {len(calls)} times. Give one batch.")
    call = calls[0]
    width = call.layers[-1].hidden.shape[-1]
    chosen, name = chosen_readout(linears, readers, readout, width)
    if name in others and name not in readers:
        raise ValueError(
            f"readout must read just what the LSTM shows, at all steps or at the last one of each sequence; {name!r} "
            "read something else, so that the parts would not add up to what it gave. Leave readout out and see "
            "docs/decomposition.md."
        )
    steps, sequences = call.layers[0].input.shape[:2]
    if not sequences:
        raise ValueError(f"the input must hold at least one sequence; {path!r} read none. Give others.")
    initial = (call.initial[0].detach().cpu(), call.initial[1].detach().cpu())
    return Heard(
        cells=observed.cells(),  # type: ignore[arg-type]
        input=call.layers[0].input.detach().cpu(),
        hidden=[layer.hidden.detach().cpu() for layer in call.layers],
        initial=initial,
        lengths=real_steps(call.lengths, lengths, steps, sequences),
        readout=chosen,
        readout_name=name,
        coarse=coarse[0],
    )


def reads(value: Tensor, call: Call, output: Tensor) -> bool:
    """Whether a layer was given just what the LSTM shows: at all steps, or at the last one of each sequence."""
    top = call.layers[-1].hidden
    last = torch.full((top.shape[1],), len(top) - 1) if call.lengths is None else call.lengths - 1
    forms = [output, top, top.transpose(0, 1), top[:, 0], top[last, torch.arange(top.shape[1])], top[-1, 0]]
    return any(value.shape == form.shape and torch.equal(value, form) for form in forms)


def chosen_readout(
    linears: Mapping[str, nn.Linear], readers: Mapping[str, nn.Linear], asked: Any, width: int
) -> tuple[nn.Linear | None, str]:
    """The layer to read with, and what is said of it."""
    if asked is None:
        return next(((each, name) for name, each in readers.items() if len(readers) == 1), (None, ""))
    if isinstance(asked, str):
        if asked not in linears:
            raise ValueError(
                f"readout must be the path of an nn.Linear of the model; {asked!r} came. Choose from: "
                f"{', '.join(linears) or 'none, give a layer itself'}."
            )
        found, name = linears[asked], asked
    elif isinstance(asked, nn.Linear):
        found, name = asked, next((name for name, each in linears.items() if each is asked), "given")
    else:
        raise TypeError(
            f"readout must be an nn.Linear or its path; {type(asked).__name__} came. Give for instance 'head'."
        )
    if found.in_features != width:
        raise ValueError(
            f"readout must read the {width} values that the LSTM shows; {name!r} reads {found.in_features}. Name "
            "another."
        )
    return found, name


def real_steps(packed: Tensor | None, given: Any, steps: int, sequences: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """(sequence,): steps of each sequence."""
    if packed is not None and given is not None:
        raise ValueError("lengths must be left out where the module reads packed sequences, which say their own.")
    if packed is not None:
        return packed.cpu().numpy().astype(np.int64)
    if given is None:
        return np.full(sequences, steps, np.int64)
    values = np.asarray(given.cpu() if isinstance(given, Tensor) else given)
    fits = values.shape == (sequences,) and values.dtype.kind in "iu"
    if not fits or (sequences and not (values.min() >= 1 and values.max() <= steps)):
        raise ValueError(
            f"lengths must be {sequences} whole numbers from 1 to {steps}, the steps of each sequence; {given!r} came."
        )
    return values.astype(np.int64)


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """In `eval()` and without gradients for a `with` block; then modes and random numbers are as before."""
    modes = {module: module.training for module in model.modules()}
    devices = list({weight.device for weight in model.parameters() if weight.device.type == "cuda"})
    with torch.random.fork_rng(devices), torch.no_grad():
        try:
            model.eval()
            yield
        finally:
            for module, mode in modes.items():
                module.training = mode
