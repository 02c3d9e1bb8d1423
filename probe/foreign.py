"""Cells of registered classes: how their calls are read, and what the cell that stands for them must be."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..cells import AbstractCell
from ..signals import PREACTIVATION, retention_form
from .calls import Call, are_tensors, as_tuple, signal_names, version
from .find import State, registration
from .single import Single


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
            cell = built_without_trace(self.registration.as_cell, self.module)
            if self.built is None:
                require_cell(cell, self.path)
            self.built, self.versions = cell, versions
        return [[self.built]]

    def read(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any, random: Tensor | None) -> Call:
        return self.call(*self.parts(args, kwargs, output))

    def parts(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> tuple[Tensor, State | None, State]:
        """Input, state before (`None` where none was given) and state after a call."""
        if self.registration.read is not None:
            input, state, new = self.registration.read(args, kwargs, output)
        else:
            input = args[0] if args else next(iter(kwargs.values()), None)  # type: ignore[assignment]
            state = args[1] if len(args) > 1 else next((v for k, v in kwargs.items() if k in ("hx", "state")), None)
            new = output
        given, answered = None if state is None else self.entries(state), self.entries(new)
        self.require_step(input, given, answered)
        return input, given, answered

    def entries(self, state: Any) -> State:
        return as_tuple(state) if isinstance(state, (Tensor, tuple, list)) else (state,)

    def require_step(self, input: Any, state: State | None, new: State) -> None:
        """Raise where a call does not have the form of one step of the cell."""
        [[cell]] = self.cells()
        for what, entries in (("take", state), ("answer", new)):
            if entries is None:
                continue
            if not are_tensors(input, *entries):
                came = ", ".join(type(entry).__name__ for entry in entries)
            elif len(entries) != len(cell.states):
                came = f"{len(entries)} tensors"
            elif tuple(input.shape[-1:]) != (cell.input_size,):
                came = f"an input of shape {tuple(input.shape)}, which must be {cell.input_size} wide,"
            elif any(e.shape != (*input.shape[:-1], n) for e, n in zip(entries, cell.state_sizes, strict=True)):
                came = f"{', '.join(str(tuple(e.shape)) for e in entries)} for an input of {tuple(input.shape)}"
            else:
                continue
            raise TypeError(
                f"{self.path!r} must {what} ({', '.join(cell.states)}), the states of {type(cell).__name__}, at every "
                f"step; {came} came. Say how to read its calls, gatescope.register({type(self.module).__name__}, "
                "as_cell, read=...), or register the class of its inner cells where it runs whole sequences."
            )


def built_without_trace(as_cell: Any, module: nn.Module) -> Any:
    """The cell; whatever random weights it is first given, the model draws the numbers that it would have drawn."""
    devices = list({tensor.device for tensor in module.parameters() if tensor.device.type == "cuda"})
    with torch.no_grad(), torch.random.fork_rng(devices):
        return as_cell(module)


def require_cell(cell: Any, path: str) -> None:
    """Raise where `as_cell` gave something that cannot be recorded; the first thing amiss is named."""
    if not isinstance(cell, AbstractCell):
        raise TypeError(
            f"as_cell must return a gatescope cell; {type(cell).__name__} came for {path!r}. "
            "Build one of gatescope.cells with the module's weights."
        )
    for problem in problems(cell):
        raise TypeError(f"{type(cell).__name__}, which as_cell gave for {path!r}, must {problem}.")


def problems(cell: AbstractCell) -> Iterator[str]:
    """What keeps a cell from being recorded, as the end of a sentence."""
    missing = [name for name in ("signals", "retention", "states", "gates") if not hasattr(cell, name)]
    if missing:
        yield f"declare signals, retention, states and gates; {', '.join(missing)} came not. Set them in its class"
        return
    names = [signal.name for signal in cell.signals]
    if not set(cell.states) <= set(names):
        yield f"have a signal for each state; states {cell.states} and signals {names} came. Name them alike"
    form, keep = retention_form(cell.retention)
    if form in ("signal", "complement") and keep not in names:
        yield f"have the signal of its retention {cell.retention!r}; {names} came. Tap it"
    own = type(cell).recurrent_weight is not AbstractCell.recurrent_weight  # it lays its rows out itself
    weight = None if own else getattr(cell, "weight_hh", None)
    rows = len(cell.gates) * cell.hidden_size
    if weight is not None and len(weight) != rows:
        yield f"have {rows} rows in weight_hh, hidden_size for each of {cell.gates}; {len(weight)} came. Name its gates"
    tapped = [name for name in signal_names(cell) if not name.endswith(PREACTIVATION)]
    if tapped != names:
        yield f"tap the signals that it declares, in their order; {names} are declared and {tapped} tapped"
