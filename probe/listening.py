"""Notice every call of a model's recurrent modules while a block runs, and hand each on once."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .calls import Call, Observed
from .dispatch import Dispatcher, Kernel, hears, listen, unlisten
from .hooks import Bracket, Calls, Hook, running
from .open_forward import OpenForward

Read = Callable[[Observed], Call]


class Listening:
    """The hooks in a model and the ear on its thread's kernels; `take` gets each call of an observed module.

    `opened(args, kwargs)` is called when a call of the model begins, `closed()` when it has ended well.
    """

    def __init__(
        self,
        model: nn.Module,
        observed: Mapping[str, Observed],
        take: Callable[[str, Kernel | None, Read], None],
        opened: Callable[[tuple[Any, ...], dict[str, Any]], None],
        closed: Callable[[], None],
    ) -> None:
        self.model, self.observed = model, observed
        self.take, self.opened, self.closed = take, opened, closed
        self.calls = Calls(model)
        self.hooks: list[tuple[Hook, RemovableHandle]] = []
        self.dispatcher: Dispatcher | None = None

    def start(self) -> None:
        try:
            self.hook()
            self.dispatcher = listen(self)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Take away all that was left in the model and the thread, whatever happened in between."""
        if self.dispatcher is not None:
            unlisten(self, self.dispatcher)
        while self.hooks:
            hook, handle = self.hooks.pop()
            hook.act = None  # another thread may be about to call it
            handle.remove()

    def hook(self) -> None:
        model = self.model
        self.keep(model, self.open, model.register_forward_pre_hook, prepend=True, with_kwargs=True)
        for path, observed in self.observed.items():
            module = observed.module
            self.keep(module, partial(self.before, path), module.register_forward_pre_hook, with_kwargs=True)
            after = partial(self.after, path)
            self.keep(module, after, module.register_forward_hook, prepend=True, with_kwargs=True, always_call=True)
        self.keep(model, self.close, model.register_forward_hook)

    def keep(
        self, module: nn.Module, act: Callable[..., None], register: Callable[..., RemovableHandle], **how: bool
    ) -> None:
        hook = Hook(module, act)
        self.hooks.append((hook, register(hook, **how)))

    def open(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self.calls.begin():
            self.opened(args, kwargs)

    def close(self, args: tuple[Any, ...], output: Any) -> None:
        if self.calls.is_outermost():
            self.closed()

    @property
    def within_model(self) -> bool:
        """Whether this thread is in a call of the model itself, and not of a part of it alone."""
        return self.calls.busy and running(self.model) > 0

    def before(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        observed = self.observed[path]
        opening = vars(observed.module).get("forward")
        heard = opening.overhear() if isinstance(opening, OpenForward) else None
        told = (
            observed.runs_kernels and heard is None and hears(self)
        )  # then the kernel says in which state it found the generator
        self.calls.enter(path, None if told else observed.random_state(), heard)

    def after(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        bracket = self.calls.leave(path)
        self.settle()
        if bracket.recorded or output is None:  # a call that failed has no output
            return
        kernel = bracket.kernel
        random = bracket.random if kernel is None else kernel.random
        heard = bracket.heard
        self.take(path, kernel, lambda observed: observed.read(args, kwargs, output, random)._replace(heard=heard))

    def hear(self, kernel: Kernel) -> None:
        """A kernel has run: within a call of its module it says which weights were used, elsewhere it is the call."""
        self.settle()
        path, bracket = self.owner(kernel)
        if path is None:
            return
        if bracket is not None and self.observed[path].plain:
            bracket.kernel = kernel
            return
        if bracket is not None:
            bracket.recorded = True
        if kernel.batch_sizes is None:
            self.take_kernel(path, kernel, None)
        else:
            self.calls.waiting = (path, kernel)

    def hear_order(self, tensor: Tensor, order: Tensor) -> None:
        """The last states of a packed call go back into the caller's order; so do the rows of its recording."""
        waiting = self.calls.waiting
        if waiting is not None and tensor is waiting[1].last:
            self.calls.waiting = None
            self.take_kernel(*waiting, order)

    def owner(self, kernel: Kernel) -> tuple[str | None, Bracket | None]:
        """Whose weights a kernel has used, and the call in which it ran."""
        going_on = self.calls.innermost()
        for path in (*going_on, *(path for path in self.observed if path not in going_on)):
            observed = self.observed[path]
            if observed.runs(kernel) or (path in going_on and observed.plain and observed.fits(kernel)):
                return path, going_on.get(path)
        return None, None

    def settle(self) -> None:
        """A packed call whose rows were not put into another order was made in the order in which it ran."""
        waiting, self.calls.waiting = self.calls.waiting, None
        if waiting is not None:
            self.take_kernel(*waiting, None)

    def take_kernel(self, path: str, kernel: Kernel, order: Tensor | None) -> None:
        self.take(path, kernel, lambda observed: observed.read_kernel(kernel, order))
