"""From what `attribution` is given to a question: the runs, the source, which of its values are asked for."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from ..signals import DIRECTIONS
from .attribution_calls import Call, Watch, layout_of
from .attribution_runs import Runs
from .attribution_sources import EmbeddingSource, InputSource, SignalSource, Source, StateSource
from .attribution_target import Reader, Target, Unit, is_whole, said
from .find import choose, choose_one
from .layout import listed
from .observe import observe
from .opened import tapped


class Place(NamedTuple):
    """A layer and direction of a recurrent module."""

    path: str
    layer: int
    direction: str


class Asked:
    """A model's call, the source of the attribution and the selection of its steps and units."""

    def __init__(
        self,
        model: nn.Module,
        inputs: Any,
        inputs_kwargs: Mapping[str, Any] | None,
        target: Target,
        *,
        to: str,
        module: str | None,
        lengths: Any,
        batch_first: bool | None,
        embedding: str | None,
    ) -> None:
        self.model, self.to = model, to
        alone = isinstance(inputs, tuple) and not isinstance(inputs, PackedSequence)
        self.call = Call([*inputs] if alone else [inputs], dict(inputs_kwargs or {}))
        self.key = self.call.first_input()
        self.within = to != "input" or isinstance(target, Unit)
        wanted = target.module if isinstance(target, Unit) and module is None else module
        parts = dict([choose_one(model, wanted)]) if self.within else choose(model, module)
        self.embeddings = embeddings_of(model, embedding)
        with torch.no_grad(), Watch(parts.values(), self.embeddings.values()) as watch:
            output = model(*self.call.args, **self.call.kwargs)
        first = watch.first()
        if first is None:
            raise ValueError(f"the model must call {listed(parts)} with these inputs; it did not. Name another module.")
        self.watch = watch
        self.part, calls = first
        self.path = next(path for path, part in parts.items() if part is self.part)
        self.calls = len(calls)
        self.layout = layout_of(self.call, self.key, calls, lengths, batch_first)
        self.target, self.output = target, output
        self.runs = Runs(model, self.call, self.key, self.layout, Reader(target, self.layout.lengths))
        self.runs.whole_module = self.part is model

    def place(self, layer: int | None, direction: str | None, path: str | None = None) -> Place:
        """The layer and direction meant; they may be left out where there is one."""
        name, part = (self.path, self.part) if path in (None, self.path) else choose_one(self.model, path)
        cells = observe(name, part).cells()
        if layer is None and len(cells) > 1:
            raise ValueError(f"layer must be named where there are several; choose from 0 to {len(cells) - 1}.")
        if layer is not None and not (is_whole(layer) and -len(cells) <= layer < len(cells)):
            raise ValueError(f"layer must be one of 0 to {len(cells) - 1} of {name!r}; {said(layer)} came.")
        names = DIRECTIONS[: len(cells[0])]
        if direction is None and len(names) > 1:
            raise ValueError(f"direction must be named where there are two; choose from {', '.join(names)}.")
        if direction is not None and direction not in names:
            raise ValueError(f"direction must be one of {', '.join(names)} of {name!r}; {said(direction)} came.")
        return Place(name, (layer or 0) % len(cells), direction or names[0])

    def own(self) -> Tensor:
        """The target as the model, called as it was, gives it."""
        rows = torch.arange(self.layout.sequences)
        if self.runs.site is not None:
            return self.runs.at_site(self.call, self.runs.signal_lengths)
        return self.runs.reader(self.output, rows, self.layout.batch_first)

    @property
    def kind(self) -> str:
        return type(observe(self.path, self.part).kind).__name__

    @property
    def states(self) -> tuple[str, ...]:
        """Names of what the cell carries from step to step."""
        return observe(self.path, self.part).kind.states

    def signal(self, name: str, place: Place) -> Tensor:
        """The values of a signal in the model's own run, (sequence, time, unit)."""
        seen: dict[str, None] = {}
        steps: dict[int, Tensor] = {}

        def tap(now: str, value: Tensor, /, *, layer: int, direction: str, time: Any) -> Tensor:
            seen[now] = None
            if (now, layer, direction) == (name, place.layer, place.direction):
                if isinstance(time, Tensor):
                    raise ValueError(
                        f"the rows of {place.path!r} must stand at the same step to attribute to its signals; they do "
                        "not. Give sequences that begin together."
                    )
                steps[int(time)] = value.detach()
            return value

        with torch.no_grad(), tapped(self.model, {place.path: tap}):
            self.model(*self.call.args, **self.call.kwargs)
        if not steps:
            signals = [one for one in seen if not one.endswith("_preactivation")]
            raise ValueError(
                f"{name!r} must be a signal of {place.path!r}; it has {', '.join(signals)}, and with _preactivation "
                "behind its name each gate before its squasher."
            )
        values = torch.stack([steps[step] for step in sorted(steps)], dim=1)
        if len(values) != self.layout.sequences:
            raise ValueError(
                f"{place.path!r} must read all {self.layout.sequences} sequences at each step; {len(values)} came."
            )
        return values

    def lengths_for(self, steps: int) -> Tensor:
        """Real steps of each sequence where the recurrence takes so many; all, if the input has another number."""
        if steps == self.layout.steps:
            return self.layout.lengths
        return torch.full((self.layout.sequences,), steps)

    def find_site(self) -> None:
        """Read the target inside the recurrence, where it is there."""
        if not isinstance(self.target, Unit):
            return
        place = self.place(self.target.layer, self.target.direction, self.target.module)
        _, steps, units = self.signal(self.target.signal, place).shape
        self.runs.signal_lengths = self.lengths_for(steps)
        if not 0 <= self.target.unit < units:
            raise ValueError(f"unit of the target must be one of 0 to {units - 1}; {self.target.unit} came.")
        self.runs.site, self.runs.site_at = self.target, place

    def source(self, layer: int | None, direction: str | None) -> Source:
        """What the attribution is given to."""
        if self.to == "input":
            given = self.call.at(self.key)
            data = given.data if isinstance(given, PackedSequence) else given
            if data.is_floating_point():
                return InputSource(given, self.key, self.layout)
            return self.embedding_source(given)
        if self.to == "initial_state":
            return self.state_source()
        place = self.place(layer, direction)
        return SignalSource(*place[:1], self.to, place.layer, place.direction, self.signal(self.to, place))

    def embedding_source(self, given: Tensor | PackedSequence) -> EmbeddingSource:
        data = given.data if isinstance(given, PackedSequence) else given
        hits = []
        for path, module in self.embeddings.items():
            for read, output in self.watch.given.get(id(module), []):
                if isinstance(read, Tensor) and isinstance(output, Tensor) and same_tokens(read, data):
                    hits.append((path, module, output))
        if len({path for path, _, _ in hits}) != 1 or len(hits) > 1:
            found = listed(path for path, _, _ in hits) if hits else "none"
            raise ValueError(
                "whole numbers as input are attributed to where they become vectors, one module that reads them once; "
                f"{found} did of {listed(self.embeddings)}. Name it with embedding=."
            )
        _, module, output = hits[0]
        return EmbeddingSource(module, output, given, self.layout)

    def state_source(self) -> StateSource:
        given: list[Any] = []

        def look(part: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given.append(args[1] if len(args) > 1 else kwargs.get("hx", kwargs.get("state")))

        handle = self.part.register_forward_pre_hook(look, with_kwargs=True)
        try:
            with torch.no_grad():
                self.model(*self.call.args, **self.call.kwargs)
        finally:
            handle.remove()
        like = next(parameter for parameter in self.part.parameters())
        cells = observe(self.path, self.part).cells()
        return StateSource.of(self.part, cells, given[0], self.layout.sequences, like)


def embeddings_of(model: nn.Module, embedding: str | None) -> dict[str, nn.Module]:
    """Path -> module of what may turn whole numbers into vectors."""
    if embedding is None:
        return {path: module for path, module in model.named_modules() if isinstance(module, nn.Embedding)}
    modules = dict(model.named_modules())
    if embedding not in modules:
        known = [path for path, module in modules.items() if isinstance(module, nn.Embedding)]
        raise ValueError(f"embedding must be the path of a module; {said(embedding)} came. There are: {listed(known)}.")
    return {embedding: modules[embedding]}


def same_tokens(read: Tensor, given: Tensor) -> bool:
    """Whether a module reads these whole numbers, as they are or with sequences and steps changed about."""
    if read.is_floating_point():
        return False
    return any(read.shape == one.shape and torch.equal(read, one) for one in (given, given.transpose(0, -1)))


def baseline_values(baseline: Any, source: Source, draws: bool) -> Tensor:
    """What the source's values are compared with: (sequence, time, feature), for `draws` (draw, time, feature)."""
    actual = source.actual
    if isinstance(source, StateSource) and not isinstance(baseline, (int, float)):
        return source.flat(baseline, len(actual))
    if isinstance(baseline, (tuple, list, np.ndarray, np.generic)):
        try:
            baseline = torch.as_tensor(np.asarray(baseline))
        except (TypeError, ValueError):
            baseline = None
    if (
        isinstance(baseline, Tensor)
        and not baseline.is_floating_point()
        and baseline.dim()
        and isinstance(source, EmbeddingSource)
    ):
        tokens = baseline.to(actual.device).long()
        if tuple(tokens.shape) not in (tuple(actual.shape[:2]), (actual.shape[1],)):
            raise misfit(baseline, actual)
        baseline = source.embed(tokens)
    if isinstance(baseline, (int, float)) and not isinstance(baseline, bool):
        baseline = torch.tensor(float(baseline))
    if not isinstance(baseline, Tensor):
        raise misfit(baseline, actual)
    values = baseline.detach().to(actual)
    shape = (len(values), *actual.shape[1:]) if draws and values.dim() == 3 else tuple(actual.shape)
    if draws and values.dim() < 3:
        shape = (1, *actual.shape[1:])
    try:
        return values.broadcast_to(shape)
    except RuntimeError:
        raise misfit(baseline, actual) from None


def misfit(baseline: Any, actual: Tensor) -> ValueError:
    return ValueError(
        f"baseline must be a number or an array that fits the shape {tuple(actual.shape)} of (sequence, time, "
        f"feature); {said(baseline)} came. Leave out sequence for the same in all."
    )
