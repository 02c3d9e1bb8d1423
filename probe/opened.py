"""For a `with` block, fused modules run step by step, with their own weights and open to taps."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from torch import nn

from ..cells import AbstractCell, Recurrent, StepTap
from .find import choose, registration
from .open_forward import OpenForward
from .open_ours import OpenCell, OpenForeign, OpenStack
from .open_torch import OpenTorchCell, OpenTorchStack
from .probe import Modules

M = TypeVar("M", bound=nn.Module)

_lock = threading.RLock()


@contextmanager
def opened(model: M, modules: Modules = None) -> Iterator[M]:
    """Run a model's recurrent modules step by step, by the equations of their open cells, while a `with` block runs.

    The modules stay in their places, with their hooks, modes and parameters: only what their `forward` computes the
    recurrence with changes. Results are those of the fused modules to rounding (1e-12 in float64, 1e-5 in float32),
    gradients flow to the same parameters, and dropout between layers draws the same numbers. When the block ends, well
    or badly, the modules are as they were before. Blocks may be nested, and models may share modules.

    Parameters
    ----------
    model
        Any `torch.nn.Module` with recurrent modules inside (`gatescope.modules(model)` lists them).
    modules
        Path or paths of those to open; all by default.

    Yields
    ------
    torch.nn.Module
        The model itself.

    Raises
    ------
    ValueError
        If the model has no recurrent module, or a path is unknown.
    TypeError
        If what is recurrent in the model cannot be opened: scripted, traced, exported, compiled or quantized modules,
        registered cells whose calls cannot be answered with other states.

    Examples
    --------
    >>> import torch
    >>> model, x = nn.GRU(3, 5, num_layers=2).double(), torch.ones(7, 2, 3).double()
    >>> with opened(model):
    ...     output, _ = model(x)
    >>> bool((output - model(x)[0]).abs().max() < 1e-12)
    True
    """
    with _open({path: (module, None) for path, module in choose(model, modules).items()}):
        yield model


@contextmanager
def tapped(model: M, taps: Mapping[str, StepTap]) -> Iterator[M]:
    """Open modules of a model and put a tap on every named value of every step of theirs.

    What `gatescope.intervene` is made of. `tap(name, value, layer=, direction=, time=)` sees each signal and each
    `<name>_preactivation` as the equations compute it, (sequence, unit) with rows in the caller's order also where the
    input is packed, and the recurrence goes on with what it returns: with the same object where nothing is to change,
    else with a tensor of the same shape, through which gradients flow. Where several blocks tap one module, the tap of
    the inner block sees what that of the outer one has returned.

    `time` counts on the input's time axis. For cells that are called step by step it counts the calls that continue
    each other, as a recording does, and is a tensor (sequence,) where rows stand at different steps.

    Parameters
    ----------
    model
        As for `opened`.
    taps
        Path -> tap, for the modules to open.

    Examples
    --------
    >>> import torch
    >>> def forget(name, value, *, layer, direction, time):
    ...     return torch.zeros_like(value) if name == "hidden_state" and time == 1 else value
    >>> model = nn.RNN(2, 3)
    >>> with tapped(model, {"model": forget}):
    ...     output, _ = model(torch.ones(4, 1, 2))
    >>> output[1].tolist()
    [[0.0, 0.0, 0.0]]
    """
    chosen = choose(model, list(taps))
    with _open({path: (module, taps[path]) for path, module in chosen.items()}):
        yield model


@contextmanager
def _open(wanted: Mapping[str, tuple[nn.Module, StepTap | None]]) -> Iterator[None]:
    """Let modules run openly, each with its tap, until the block ends."""
    key = object()
    entered: list[OpenForward] = []
    try:
        with _lock:
            for path, (module, tap) in wanted.items():
                opening = vars(module).get("forward")
                if not isinstance(opening, OpenForward):
                    opening = open_forward(path, module)
                entered.append(opening)
                opening.enter(key, tap)
        yield
    finally:
        try:
            leave(entered, key)
        except BaseException:  # an interrupt
            leave(entered, key)
            raise


def leave(entered: list[OpenForward], key: object) -> None:
    """End a block, wholly: what it has done already may be done again."""
    with _lock:
        for opening in entered:
            opening.leave(key)


def open_forward(path: str, module: nn.Module) -> OpenForward:
    """What stands in for the `forward` of a module that `find` has found."""
    compiled = getattr(module, "_compiled_call_impl", None)
    if compiled is not None:
        raise TypeError(
            f"{path!r} must not be compiled to be opened; module.compile() was called. Open the model before that."
        )
    if registration(module) is not None:
        return OpenForeign(path, module)
    if isinstance(module, Recurrent):
        return OpenStack(path, module)
    if isinstance(module, AbstractCell):
        return OpenCell(path, module)
    if isinstance(module, nn.RNNBase):
        return OpenTorchStack(path, module)
    if isinstance(module, nn.RNNCellBase):
        return OpenTorchCell(path, module)
    raise TypeError(f"{path!r} must be a recurrent module; {type(module).__name__} came. See gatescope.modules(model).")
