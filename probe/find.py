"""What can be observed in a model, and for what cannot, why."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from torch import Tensor, nn

from ..cells import AbstractCell, Recurrent
from .entry_points import load_declared

AsCell = Callable[[Any], AbstractCell]
State = tuple[Tensor, ...]
Read = Callable[[tuple[Any, ...], dict[str, Any], Any], tuple[Tensor, State | None, State]]

TORCH_STACKS = (nn.RNNBase,)
TORCH_CELLS = (nn.RNNCellBase,)


class Registration(NamedTuple):
    as_cell: AsCell
    read: Read | None


class Module(NamedTuple):
    """One recurrent module of a model; `reason` is empty where it can be observed.

    Parameters are counted as stored (torch keeps two bias vectors per layer and direction) and in the textbook's
    convention of one: an LSTM has 4H(D+H+2) and 4H(D+H+1).
    """

    path: str
    kind: str
    input_size: int
    hidden_size: int
    proj_size: int
    layers: int
    directions: int
    parameters: int
    parameters_one_bias: int
    reason: str


_registered: dict[type, Registration] = {}


def register(cls: type[nn.Module], as_cell: AsCell, *, read: Read | None = None) -> None:
    """Make a class of recurrent cells observable that torch and gatescope do not know.

    Parameters
    ----------
    cls
        The class; its subclasses are found too. It is called once per time step: of a stack that runs whole sequences
        in one call, register the class of its inner cells.
    as_cell
        `as_cell(module)` builds the gatescope cell with the same equations and the module's weights. It is called
        again whenever the module's weights have changed.
    read
        `read(args, kwargs, output) -> (input, state, new_state)`, states as tuples in the order of the cell's
        `states`, `state=None` where none was given; needed when the call is not torch's `cell(input, state) ->
        new_state`.

    Raises
    ------
    TypeError
        If `cls` is not a subclass of `torch.nn.Module`, or `as_cell` or `read` is no function.

    Notes
    -----
    A wrong conversion does not pass: the probe compares what the cell computes with the module's own states and
    raises `ParityError`. A class that was registered before is registered anew; attached probes go on with what they
    found. Packages can register their cells by an entry point of the group `gatescope.cells`; see docs/cells.md.

    Examples
    --------
    >>> from gatescope.cells import LSTMCell
    >>> class Decoder(nn.LSTMCell):
    ...     "Somebody's class, with torch's equations."
    >>> def as_cell(module):
    ...     cell = LSTMCell(module.input_size, module.hidden_size, device="meta")
    ...     cell.load_state_dict(module.state_dict(), assign=True)
    ...     return cell
    >>> register(Decoder, as_cell)
    """
    if not (isinstance(cls, type) and issubclass(cls, nn.Module) and cls is not nn.Module):
        came = cls.__name__ if isinstance(cls, type) else _shown(cls)
        raise TypeError(
            f"cls must be a subclass of torch.nn.Module; {came} came. Give the class of the cells themselves."
        )
    for name, function in (("as_cell", as_cell), ("read", read)):
        if not callable(function) and (name == "as_cell" or function is not None):
            raise TypeError(f"{name} must be a function; {_shown(function)} came. See the example in docs/cells.md.")
    _registered[cls] = Registration(as_cell, read)


def registration(module: nn.Module) -> Registration | None:
    """The registration of a module's class or of its nearest registered base."""
    load_declared(_registered)
    return next((_registered[base] for base in type(module).__mro__ if base in _registered), None)


def is_observable(module: nn.Module) -> bool:
    known = (*TORCH_STACKS, *TORCH_CELLS, AbstractCell, Recurrent)
    return not closed(module) and (registration(module) is not None or isinstance(module, known))


CLOSED = {
    "ScriptModule": "it is a TorchScript module, whose steps run outside Python; attach to the model before scripting "
    "or tracing",
    "GraphModule": "it is an exported or traced graph, whose recurrent calls are no modules; attach to the model "
    "before exporting",
    "DistributedDataParallel": "it is one of several replicas that share one model; attach to the module that it wraps "
    "(model.module), in one process",
}


def closed(module: nn.Module) -> str:
    """Why a module's inside cannot be seen from Python and what to do instead; empty where it can."""
    where = type(module).__module__
    if ".quantized" in where or ".quantizable" in where:
        return "it is a quantized module without floating-point gates; attach to the model before quantizing"
    names = [base.__name__ for base in type(module).__mro__ if base.__module__.startswith("torch.")]
    return next((CLOSED[name] for name in names if name in CLOSED), "")


def looks_recurrent(module: nn.Module) -> bool:
    name = type(module).__name__
    return bool(re.search(r"LSTM|GRU|RNN|[Rr]ecurrent", name)) and any(True for _ in module.parameters())


def walk(module: nn.Module, path: str, seen: set[int]) -> list[tuple[str, nn.Module, str]]:
    """Path, module and reason of all that is recurrent, outermost only; no reason where it can be observed."""
    if id(module) in seen:
        return []
    seen.add(id(module))
    if is_observable(module):
        return [(path, module, "")]
    inner = [entry for name, child in module.named_children() for entry in walk(child, below(path, name), seen)]
    reason = closed(module)
    if reason and not (CLOSED["GraphModule"] == reason and inner):  # a traced graph may call modules that it kept whole
        return [(path, module, reason)]
    if looks_recurrent(module) and not inner:
        reason = f"its class {type(module).__name__} is unknown; tell its equations with gatescope.register"
    return [(path, module, reason)] if reason and not inner else inner


def below(path: str, name: str) -> str:
    """A child's path; what torch.compile wraps keeps the path that it had before."""
    return path if name == "_orig_mod" else f"{path}.{name}" if path else name


def find(model: nn.Module) -> dict[str, nn.Module]:
    """Path -> module of everything observable; a model that is itself recurrent is called `model`."""
    return {path or "model": module for path, module, reason in walk(model, "", set()) if not reason}


def refusals(model: nn.Module) -> dict[str, tuple[nn.Module, str]]:
    """Path -> module and reason, for every part that looks recurrent and cannot be observed."""
    return {path or "model": (module, reason) for path, module, reason in walk(model, "", set()) if reason}


def count(module: nn.Module) -> tuple[int, int]:
    """Parameters as stored, and with one bias vector where torch keeps two."""
    total = sum(parameter.numel() for parameter in module.parameters())
    second = sum(p.numel() for name, p in module.named_parameters() if name.rpartition(".")[2].startswith("bias_hh"))
    return total, total - second


def shape(module: nn.Module) -> tuple[int, int, int, int, int]:
    """Input size, hidden size, projection size, layers, directions; zeros where a foreign class does not say."""
    if isinstance(module, Recurrent):
        sizes = [module.input_size, module.hidden_size, module.proj_size]
        return sizes[0], sizes[1], sizes[2], module.num_layers, 1 + module.bidirectional
    sizes = [int(getattr(module, name, 0) or 0) for name in ("input_size", "hidden_size", "proj_size")]
    directions = 2 if getattr(module, "bidirectional", False) else 1
    return sizes[0], sizes[1], sizes[2], int(getattr(module, "num_layers", 1)), directions


def entries(model: nn.Module) -> Iterator[Module]:
    for path, module in find(model).items():
        yield Module(path, type(module).__name__, *shape(module), *count(module), "")
    for path, (module, reason) in refusals(model).items():
        kind = str(getattr(module, "original_name", type(module).__name__))
        try:
            yield Module(path, kind, *shape(module), *count(module), reason)
        except (TypeError, ValueError, RuntimeError, AttributeError):  # packed weights of a closed module have no count
            yield Module(path, kind, 0, 0, 0, 0, 0, 0, 0, reason)


def modules(model: nn.Module) -> list[Module]:
    """Every recurrent module of a model: what can be observed and, for what cannot, why.

    Parameters
    ----------
    model
        Any `torch.nn.Module`. It is only looked at.

    Returns
    -------
    list of Module
        Named tuples `path kind input_size hidden_size proj_size layers directions parameters parameters_one_bias
        reason`, in the model's own order, those that can be observed first. A model that is itself recurrent has
        the path `model`.

    Raises
    ------
    TypeError
        If `model` is not a module.

    Examples
    --------
    >>> import torch
    >>> [(m.path, m.parameters, m.parameters_one_bias) for m in modules(torch.nn.LSTM(3, 5))]
    [('model', 200, 180)]
    """
    require_module(model)
    return list(entries(model))


def require_module(model: object) -> None:
    if not isinstance(model, nn.Module):
        hint = "Attach to the model before exporting it." if "export" in type(model).__module__ else "Give the model."
        raise TypeError(f"model must be a torch.nn.Module; {type(model).__name__} came. {hint}")


def choose(model: nn.Module, wanted: str | Iterable[str] | None) -> dict[str, nn.Module]:
    """The modules to observe, by path; one sentence where there is nothing to observe."""
    require_module(model)
    found = find(model)
    if not found:
        reasons = refusals(model)
        if reasons:
            path, (_, reason) = next(iter(reasons.items()))
            raise TypeError(f"model must have a recurrent module that can be observed; of {path!r}: {reason}.")
        raise ValueError(
            "model must contain a recurrent module (LSTM, GRU, RNN, one of their cells or a registered class); "
            f"{type(model).__name__} has none. Give the model that holds it, or tell its cells with gatescope.register "
            "(docs/cells.md)."
        )
    if wanted is None:
        return found
    names: list[Any] = [wanted] if isinstance(wanted, str) or not isinstance(wanted, Iterable) else list(wanted)
    missing = [name for name in names if name not in found]
    if missing or not names:
        reason = refusals(model)[missing[0]][1] if missing and missing[0] in refusals(model) else ""
        raise ValueError(
            f"modules must name recurrent modules of the model; {', '.join(map(_shown, missing)) or 'an empty list'} "
            f"came{f' ({reason})' if reason else ''}. Choose from: {', '.join(found)}."
        )
    return {name: found[name] for name in names}


def choose_one(model: nn.Module, module: str | None) -> tuple[str, nn.Module]:
    """Path and module of the one that is meant; it may be left unnamed where there is one."""
    if module is not None and not isinstance(module, str):
        raise TypeError(
            f"module must be the path of one module; {type(module).__name__} came. Give for instance 'rnn'."
        )
    found = choose(model, module)
    if len(found) > 1:
        raise ValueError(f"module must be named where a model has several; none came. Choose from: {', '.join(found)}.")
    return next(iter(found.items()))


def _shown(name: object) -> str:
    return repr(name) if isinstance(name, str) else f"a {type(name).__name__}"
