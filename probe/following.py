"""Follow which tensors depend on a model's states, and notice where autograd loses them.

A gradient is whole only if autograd sees every way from the states to the loss. What it does not see (`detach`,
`no_grad`, `.data`, numpy) raises nothing: it computes on with constants. A function mode sees each function that torch
is asked for; what goes in and what comes out tell whether something was lost, and whether the loss reads it.
"""

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

SHAPED_ALIKE = frozenset(
    [
        "zeros_like",
        "ones_like",
        "empty_like",
        "full_like",
        "rand_like",
        "randn_like",
        "randint_like",
        "new_zeros",
        "new_ones",
        "new_empty",
        "new_full",
        "new_tensor",
        "new_empty_strided",
        "new",
    ]
)
"""Functions that take no more of a tensor than its shape."""
LEAVING = frozenset(["numpy", "__array__", "tolist", "item", "__float__", "__complex__", "__dlpack__"])
"""Functions that hand numbers out of torch, where nothing can be followed."""
ALIASES = frozenset(["detach", "detach_", "data"])


PLAIN = (Tensor, int, float, type(None))
"""Arguments that hold no tensor besides themselves."""


def named(function: Any) -> str:
    """A function's name; a property's getter has that of the property."""
    name = getattr(function, "__name__", type(function).__name__)
    return str(getattr(function.__self__, "__name__", name)) if name == "__get__" else str(name)


def tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for entry in value:
            yield from tensors_in(entry)
    elif isinstance(value, dict):
        for entry in value.values():
            yield from tensors_in(entry)


class Marks:
    """Something remembered of tensors for as long as they live."""

    def __init__(self) -> None:
        self.found: dict[int, tuple[Any, str]] = {}

    def put(self, tensor: Tensor, mark: str) -> None:
        place = id(tensor)
        self.found[place] = (weakref.ref(tensor, lambda _: self.found.pop(place, None)), mark)

    def of(self, tensor: Tensor) -> str | None:
        entry = self.found.get(id(tensor))
        return None if entry is None else entry[1]


class Following(TorchFunctionMode):
    """For a `with` block: what depends on the tensors given to `begin`, and what of that autograd has lost."""

    def __init__(self) -> None:
        super().__init__()
        self.depending, self.aliases = Marks(), Marks()
        self.roots, self.mixed = Marks(), Marks()  # lost themselves; computed with one that is
        self.spoiled = ""

    def begin(self, tensors: Iterable[Tensor]) -> None:
        for tensor in tensors:
            self.depending.put(tensor, "")

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        output = func(*args, **kwargs)
        known = self.depending.found
        if known:
            given = [value for value in args if id(value) in known]  # most arguments are tensors themselves
            if not all(isinstance(value, PLAIN) for value in args) or kwargs:
                given = [tensor for tensor in tensors_in((args, kwargs)) if id(tensor) in known]
            if given:
                self.note(named(func), args, given, output)
        return output

    def note(self, name: str, args: tuple[Any, ...], given: list[Tensor], output: Any) -> None:
        if name in SHAPED_ALIKE:
            return
        if name in LEAVING and any(tensor.is_floating_point() for tensor in given):
            self.spoiled = self.spoiled or f"{name}() takes numbers that depend on them out of torch"
        lost = next((why for tensor in given if (why := self.lost(tensor))), "")
        changed = self.changed(name, args)
        self.notice_changes(name, changed)
        for tensor in (*tensors_in(output), *changed):
            if not (tensor.is_floating_point() or tensor.is_complex()):
                continue
            self.depending.put(tensor, "")
            if lost or not tensor.requires_grad:
                (self.mixed if tensor.requires_grad else self.roots).put(tensor, lost or self.reason(name))
            if name in ALIASES:
                self.aliases.put(tensor, name)

    def lost(self, tensor: Tensor) -> str:
        """By what autograd has lost a way from the states to this tensor; empty where it has not.

        What a function of the user's own (`torch.autograd.Function`) computes inside is lost at first and taken back
        into the graph when the function returns it.
        """
        return self.mixed.of(tensor) or ("" if tensor.requires_grad else self.roots.of(tensor) or "")

    @staticmethod
    def changed(name: str, args: tuple[Any, ...]) -> list[Tensor]:
        """What a function writes to in place."""
        inplace = name == "__setitem__" or (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")
        return [args[0]] if inplace and args and isinstance(args[0], Tensor) else []

    def notice_changes(self, name: str, changed: list[Tensor]) -> None:
        for tensor in changed:
            unseen = tensor.requires_grad and not torch.is_grad_enabled() and self.depending.of(tensor) is not None
            if unseen or (self.aliases.of(tensor) is not None and name != "detach_"):
                self.spoiled = self.spoiled or f"{name}() changes one in place where autograd does not see it"

    @staticmethod
    def reason(name: str) -> str:
        return f"{'.data' if name == 'data' else f'{name}()'}{'' if torch.is_grad_enabled() else ' under no_grad'}"
