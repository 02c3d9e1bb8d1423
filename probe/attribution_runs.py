"""The function that an attribution explains: from values for some rows to the target's number for each."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .attribution_calls import Call, Key, Layout, taken
from .attribution_sources import Imposed, Source, TapAt
from .attribution_target import Reader, Unit, steps_at
from .loss_gradient import differentiable_in_eval, named_buffers, restore
from .opened import tapped


class Runs:
    """Runs of a model on any rows of one batch; `rows` says for each which sequence of the batch it is.

    Rows carry their sequence's own lengths, classes and other arguments with them, so that whatever a method does to
    the values, it does nothing to those. Rows are run longest first, as torch packs them.
    """

    def __init__(self, model: nn.Module, call: Call, key: Key, layout: Layout, reader: Reader) -> None:
        self.model, self.call, self.key, self.layout, self.reader = model, call, key, layout, reader
        self.site: Unit | None = None
        self.site_at = ("", 0, "forward")
        self.signal_lengths = layout.lengths
        self.source: Source | None = None
        self.whole_module = False  # the model is itself the recurrent module: all arguments but the first are states

    def __call__(self, values: Tensor | None, rows: Tensor, steps: Tensor | None = None) -> Tensor:
        rows = rows.cpu()
        lengths = self.layout.lengths[rows]
        order = torch.argsort(self.layout.sorting[rows], descending=True, stable=True)
        rows, lengths = rows[order], lengths[order]
        call = self.taken(rows)
        with ExitStack() as stack:
            taps: list[TapAt | None] = []
            if values is not None and self.source is not None:
                there = order.to(values.device)
                imposed = Imposed(values[there], None if steps is None else steps.cpu()[order], lengths)
                taps.append(self.source.impose(imposed, call, stack))
            site = self.site_tap(self.signal_lengths[rows])
            if site is not None:
                taps.append(TapAt(self.site_at[0], site))
            self.open([tap for tap in taps if tap is not None], stack)
            output = self.model(*call.args, **call.kwargs)
        numbers = self.reader(output, rows, self.layout.batch_first) if site is None else site.value()
        return numbers[torch.argsort(order).to(numbers.device)]

    def site_tap(self, lengths: Tensor) -> "SiteTap | None":
        return None if self.site is None else SiteTap(self.site, self.site_at, lengths)

    def at_site(self, call: Call, lengths: Tensor) -> Tensor:
        """The number inside the recurrence in a call as it is."""
        tap = self.site_tap(lengths)
        if tap is None:
            raise ValueError("a target inside the recurrence must be given; none came.")
        with tapped(self.model, {self.site_at[0]: tap}):
            self.model(*call.args, **call.kwargs)
        return tap.value()

    def taken(self, rows: Tensor) -> Call:
        sequences, dim = self.layout.sequences, 0 if self.layout.batch_first else 1
        other = 1 if self.whole_module else dim
        args = [taken(v, rows, sequences, dim if at == self.key else other) for at, v in enumerate(self.call.args)]
        kwargs = {
            name: taken(value, rows, sequences, dim if name == self.key else other)
            for name, value in self.call.kwargs.items()
        }
        return Call(args, kwargs)

    def open(self, taps: list[TapAt], stack: ExitStack) -> None:
        by_module: dict[str, list[Any]] = {}
        for place in taps:
            by_module.setdefault(place.module, []).append(place.tap)
        if by_module:
            stack.enter_context(tapped(self.model, {path: chained(several) for path, several in by_module.items()}))


def chained(taps: list[Any]) -> Any:
    def tap(name: str, value: Tensor, /, **place: Any) -> Tensor:
        for one in taps:
            value = one(name, value, **place)
        return value

    return tap


class SiteTap:
    """Reads one unit's signal at one step of each row."""

    def __init__(self, site: Unit, at: tuple[str, int, str], lengths: Tensor) -> None:
        self.site, self.at = site, at
        self.steps = steps_at(site.time, lengths)
        self.found: Tensor | None = None

    def __call__(self, name: str, value: Tensor, /, *, layer: int, direction: str, time: Any) -> Tensor:
        if (name, layer, direction) == (self.site.signal, *self.at[1:]):
            now = self.steps.to(value.device) == torch.as_tensor(time, device=value.device)
            if bool(now.any()):
                here = value[:, self.site.unit]
                self.found = here if self.found is None else torch.where(now, here, self.found)
        return value

    def value(self) -> Tensor:
        if self.found is None:
            raise ValueError(
                f"the target {self.site.signal!r} must be computed by the model; it was not. Name another."
            )
        return self.found


@contextmanager
def held(model: nn.Module, seed: int) -> Iterator[None]:
    """For a `with` block the model is in eval and gradients are on; afterwards nothing of it has changed.

    Neither have the random numbers of torch and numpy, of which methods draw: the block has its own, from `seed`.
    """
    modes = [(module, module.training) for module in model.modules()]
    buffers = [(owner, name, b, b.clone()) for owner in model.modules() for name, b in named_buffers(owner)]
    devices = sorted({t.device.index or 0 for t in (*model.parameters(), *model.buffers()) if t.device.type == "cuda"})
    numbers = np.random.get_state()
    with ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if devices:
            stack.enter_context(differentiable_in_eval())
        try:
            torch.default_generator.manual_seed(seed)
            for device in devices:
                torch.cuda.default_generators[device].manual_seed(seed)
            np.random.seed(seed % 2**32)
            for module, _ in modes:
                module.training = False
            yield
        finally:
            np.random.set_state(numbers)
            for module, training in modes:
                module.training = training
            restore(buffers)
