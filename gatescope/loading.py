"""The user's own model and arrays, for the command line: every mistake in them is one sentence."""

import importlib
import importlib.util
import inspect
import json
import os
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    import xarray as xr


class Inputs(NamedTuple):
    path: Path
    positional: list[Tensor]
    keyword: dict[str, Tensor]
    lengths: np.ndarray | None
    labels: dict[str, Any]


@contextmanager
def users_code(doing: str) -> Iterator[None]:
    """Whatever code of the user's raises becomes one sentence that says what was being done."""
    try:
        yield
    except SystemExit as error:
        raise ValueError(
            f"{doing} must not end the program; it left Python with {error.code!r}. Put what only a script should do "
            'under `if __name__ == "__main__":`.'
        ) from error
    except Exception as error:
        if raised_by_gatescope(error):
            raise
        text = " ".join(str(error).split())
        raise ValueError(f"{doing} raised {type(error).__name__}: {text} (add --debug to see where)") from error


def raised_by_gatescope(error: Exception) -> bool:
    """Whether an error is a sentence of ours already."""
    if type(error).__module__.startswith("gatescope."):
        return True
    if not isinstance(error, (ValueError, TypeError)):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = str(trace.tb_frame.f_globals.get("__name__", "")) if trace else ""
    return where.startswith("gatescope.") and where != __name__


def near(name: str, names: Sequence[str]) -> str:
    """The nearest of some names as a question, or all of them where there are few, or nothing."""
    close = get_close_matches(name, names, n=1)
    if close:
        return f" Did you mean {close[0]!r}?"
    return f" There are: {', '.join(names)}." if 0 < len(names) <= 8 else ""


def load_model(text: str) -> nn.Module:
    """Call the factory that `text` names, `package.module:callable` or `path/to/file.py:callable`; return its model."""
    value = load_named(text, "model", "that returns the model")
    if isinstance(value, nn.Module):
        return value
    if not callable(value):
        raise ValueError(f"{text} must be a callable that returns the model; it is of type {type(value).__name__}.")
    return call(value, text)


def load_function(text: str, what: str) -> Callable[..., Any]:
    """The function that `text` names in the same way."""
    value = load_named(text, what, f"that is the {what}")
    if not callable(value):
        raise ValueError(f"{text} must be a function; it is of type {type(value).__name__}.")
    found: Callable[..., Any] = value
    return found


def load_named(text: str, what: str, which: str) -> Any:
    """What stands under a name in a module or a file."""
    place, colon, name = text.rpartition(":")
    if not (colon and place and name):
        raise ValueError(
            f"the {what} must be named as module:callable or path/to/file.py:callable; {text!r} came. "
            f"Add a colon and the name of the function {which}."
        )
    value: Any = load_file(Path(place)) if place.endswith(".py") else load_module(place)
    module = value
    for part in name.split("."):
        if not hasattr(value, part):
            public = [key for key, item in vars(module).items() if callable(item) and not key.startswith("_")]
            raise ValueError(f"{place} must define {name}; it does not.{near(name, public)}")
        value = getattr(value, part)
    return value


def call(factory: Callable[[], Any], text: str) -> nn.Module:
    with users_code(f"calling {text} without arguments"):
        model = factory()
    if not isinstance(model, nn.Module):
        raise ValueError(
            f"{text} must return a torch.nn.Module; it returned {type(model).__name__}. "
            "Name a function without arguments that returns the model itself."
        )
    return model


def load_module(name: str) -> ModuleType:
    here = str(Path.cwd())
    if sys.path[0] not in ("", here):
        sys.path.insert(0, here)
    with users_code(f"importing {name}"):
        found = is_findable(name)
    if not found:
        files = sorted(path.stem for path in Path.cwd().glob("*.py"))
        raise ValueError(
            f"{name} must be a module that Python finds from the current folder; there is none of that name."
            f"{near(name, files)}"
        )
    with users_code(f"importing {name}"):
        return importlib.import_module(name)


def is_findable(name: str) -> bool:
    """Whether a module of this name exists; looking for one imports the packages around it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            return False
        raise


def load_file(path: Path) -> ModuleType:
    """Run a file as a module of its own; it can import its neighbours, as it can when Python runs it as a script."""
    if not path.is_file():
        files = sorted(str(p) for p in path.parent.glob("*.py")) if path.parent.is_dir() else []
        raise ValueError(f"{path} must be a Python file; there is no such file.{near(str(path), files)}")
    sys.path.insert(0, str(path.resolve().parent))
    name = f"gatescope_factory_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} must be a Python file; it cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with users_code(f"importing {path}"):
        spec.loader.exec_module(module)
    return module


def load_inputs(path: Path, model: nn.Module) -> Inputs:
    """Read the arrays of an .npz file and sort them into forward's arguments, `lengths` and labels.

    Arrays `arr_0`, `arr_1`, ... are positional, other names are forward's arguments. Integers stay integers; decimal
    numbers take the type of the model's parameters. Nothing in the file is ever unpickled.
    """
    arrays = read_npz(path)
    accepted = inspect.signature(model.forward).parameters
    labels = {name.removeprefix("label_"): arrays.pop(name) for name in list(arrays) if name.startswith("label_")}
    lengths = arrays.get("lengths") if "lengths" in accepted else arrays.pop("lengths", None)
    numbered = sorted((name for name in arrays if is_numbered(name)), key=lambda name: int(name[4:]))
    for place, name in enumerate(numbered):
        if name != f"arr_{place}":
            raise ValueError(
                f"the arrays arr_0, arr_1, ... of {path} must be forward's arguments from the first on; {name!r} came "
                f"without 'arr_{place}'. Name arrays like forward's arguments to leave some out."
            )
    tensors = {name: to_tensor(name, array, model, path) for name, array in arrays.items()}
    positional = [tensors.pop(name) for name in numbered]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values())
    unknown = [name for name in tensors if name not in accepted and not takes_any]
    if unknown:
        raise ValueError(
            f"the arrays of {path} must be named like arguments of {type(model).__name__}.forward, arr_0, lengths or "
            f"label_...; {', '.join(map(repr, unknown))} came.{near(unknown[0], list(accepted))}"
        )
    try:
        inspect.signature(model.forward).bind(*positional, **tensors)
    except TypeError as error:
        raise ValueError(
            f"the arrays of {path} must be what {type(model).__name__}.forward needs; {', '.join(arrays) or 'none'} "
            f"came: {error}. It takes: {', '.join(accepted)}."
        ) from error
    return Inputs(path, positional, tensors, lengths, labels)


def is_numbered(name: str) -> bool:
    return name.startswith("arr_") and name[4:].isdecimal()


def read_npz(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise ValueError(f"inputs must be an .npz file; there is no file {path}. Write one with numpy.savez.")
    reason = "it holds a single array"
    try:
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if not isinstance(file, np.ndarray):
                arrays = {name: file[name] for name in file.files}
                strange = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
                if not strange:
                    return arrays
                reason = f"{strange[0]!r} in it is no array"
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        reason = "it holds Python objects, which are never unpickled" if "pickle" in str(error) else str(error)
    raise ValueError(
        f"inputs must be an .npz file of plain arrays; of {path}: {reason.rstrip('.')}. "
        "Write one with numpy.savez from arrays of numbers or text."
    )


def to_tensor(name: str, array: np.ndarray, model: nn.Module, path: Path) -> Tensor:
    try:
        native = array.dtype.newbyteorder("=")
        tensor = torch.from_numpy(np.ascontiguousarray(array, dtype=native))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"arrays for the model must hold numbers; {name!r} in {path} is of type {array.dtype}. "
            "Turn it into the integers that the model reads; text can be a label, named label_..."
        ) from error
    like = next((p for p in model.parameters() if p.is_floating_point()), None)
    if like is None:
        return tensor
    return tensor.to(like.device, like.dtype) if tensor.is_floating_point() else tensor.to(like.device)


def load_labels(given: Sequence[str]) -> dict[str, Any]:
    """Read labels NAME=FILE: .npy arrays, .json lists of lists, or .txt with a character for every step."""
    labels: dict[str, Any] = {}
    for text in given:
        name, equals, file = text.partition("=")
        path = Path(file)
        if not (equals and name and file):
            raise ValueError(f"label must be NAME=FILE; {text!r} came. For example: --label token=tokens.txt.")
        if not path.is_file():
            raise ValueError(f"label {name!r} must come from a file; there is no file {path}.")
        labels[name] = read_label(name, path)
    return labels


def read_label(name: str, path: Path) -> Any:
    readers: dict[str, Callable[[], Any]] = {
        ".npy": lambda: np.load(path, allow_pickle=False),
        ".json": lambda: json.loads(path.read_text(encoding="utf-8")),
        ".txt": lambda: [list(line) for line in path.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")],
    }
    if path.suffix not in readers:
        raise ValueError(f"label {name!r} must come from a file ending in {', '.join(readers)}; {path} came.")
    try:
        return readers[path.suffix]()
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"label {name!r} must be readable; {path} is not: {' '.join(str(error).split())}.") from error


def require_new(path: Path) -> None:
    """Say before the model runs that its recording could not be written."""
    from .probe.store import FORMATS

    if os.path.lexists(path):
        raise ValueError(f"out must be a new path; {path} exists. Name another or remove it.")
    if path.suffix not in FORMATS:
        raise ValueError(f"out must end in {' or '.join(FORMATS)}; {path} came.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"out must be in a folder that exists; {path.parent} does not. Make it first.")
    if not os.access(path.absolute().parent, os.W_OK):
        raise ValueError(f"out must be in a folder that may be written to; {path.parent} may not. Name another.")


def run(
    model: nn.Module,
    given: Inputs,
    module: str | None,
    signals: Sequence[str] | None,
    preactivations: bool,
    labels: Mapping[str, Any],
    tolerance: float,
) -> "xr.Dataset":
    from .probe.attach import record

    with users_code(f"running the model on {given.path}"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* computed NaN or Inf", RuntimeWarning)  # the command says it in a note
        return record(
            model,
            *given.positional,
            inputs_kwargs=given.keyword or None,
            module=module,
            signals=signals or None,
            preactivations=preactivations,
            labels=dict(labels) or None,
            lengths=given.lengths,
            tolerance=tolerance,
        )
