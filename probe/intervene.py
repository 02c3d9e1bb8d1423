"""Change a signal inside the recurrence, of an unmodified model, while a `with` block runs."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from .open_forward import running
from .opened import tapped
from .replacement import Replacement, Step, replacement
from .site import Index, Site, sites, sites_that_exist

M = TypeVar("M", bound=nn.Module)


def intervene(
    model: M,
    signal: str,
    value: Any,
    *,
    module: str | Sequence[str] | None = None,
    layer: Index = None,
    direction: str | Sequence[str] | None = None,
    unit: Index = None,
    block: Index = None,
    time: Index = None,
    sequence: Index = None,
) -> AbstractContextManager[M]:
    """Replace values of a gate or state inside the recurrence, so that every later step computes with them.

    The module runs openly (`gatescope.opened`) while the `with` block lasts. What is put in the place of a gate is what
    the same step goes on with; what is put in the place of a state is what the next step reads, what the step itself
    makes of it (an LSTM shows the changed memory), and what the module hands out. Gradients flow through, also into
    `value`.

    Parameters
    ----------
    model
        Any `torch.nn.Module`; it is not changed, and is as it was when the block ends.
    signal
        Name of a signal (`recording.data_vars` of a recording; those of a cell are `cell.signals`), or
        `<name>_preactivation` for the value before the squasher.
    value
        What stands in the place of the chosen values:

        - a number: they are clamped to it;
        - an array or tensor, (unit), (time, unit) or (sequence, time, unit) of those that are chosen, size 1 for all;
        - a recording, or anything made of a signal of one, such as `recording.forget_gate.mean(["sequence", "time"])`:
          layer, direction, sequence, time and unit are matched by their labels, and a dim that it does not have is the
          same for all. Values from another run are patched in, means ablate;
        - `gatescope.resampled(recording)`: drawn from a recording;
        - a function of the values, a tensor (sequence, unit) of those chosen at a step, that returns as many: `lambda
          gate: 0.5 * gate`.

        NaN in an array, a recording or what a function returns keeps the value that is there.
    module
        Path of the module, or paths; may be left out where one computes the signal.
    layer, direction
        Which ones; all by default.
    unit, block
        Units by their numbers, or all units of memory blocks; all by default.
    time
        Steps on the input's time axis, counted from 0, in the backward direction too: a number, a list or a slice. For
        a cell that is called step by step, the calls that continue each other count, as in its recording; a stack that
        is called in chunks counts within each call.
    sequence
        Rows of the caller's batch.

    Returns
    -------
    context manager
        Gives the model. Interventions may be nested; what an inner block changes is what the outer one has left.

    Raises
    ------
    ValueError
        For a signal, module, layer, direction, unit or block that does not exist, and for a value that does not fit;
        when the block ends, for a step or row that never came, with what did.
    TypeError
        For a model that cannot be opened, and for values of unknown kind.

    Examples
    --------
    An LSTM that forgets nothing of its first unit, and hears of nothing new, holds what it began with:

    >>> model = nn.LSTM(2, 3)
    >>> begin = torch.zeros(1, 1, 3), torch.full((1, 1, 3), 4.0)
    >>> with intervene(model, "forget_gate", 1.0, unit=0), intervene(model, "input_gate", 0.0, unit=0):
    ...     output, (hidden_state, cell_state) = model(torch.ones(9, 1, 2), begin)
    >>> cell_state[0, 0, 0].item()
    4.0
    """
    found = sites(
        model,
        signal,
        module=module,
        layer=layer,
        direction=direction,
        unit=unit,
        block=block,
        time=time,
        sequence=sequence,
    )
    for site in found:
        replacement(value, site)  # what does not fit is told now
    return _intervening(model, found, value)


@contextmanager
def _intervening(model: M, found: list[Site], value: Any) -> Iterator[M]:
    taps = {site.path: Clamp(site, replacement(value, site)) for site in found}
    with tapped(model, taps):
        yield model
    for tap in taps.values():
        tap.require_fired(model)


class Clamp:
    """The tap that puts other values in the place of a site's own."""

    def __init__(self, site: Site, replacement: Replacement) -> None:
        self.site, self.replacement = site, replacement
        self.units = torch.tensor(site.units)
        self.all_units = site.units == tuple(range(site.width))
        self.steps: set[int] = set()
        self.rows: set[int] = set()
        self.seen = (0, 0)  # steps and rows, whether chosen or not
        self.chosen: dict[int, list[int]] = {}  # rows by the size of the batch
        self.lock = threading.Lock()

    def __call__(self, name: str, value: Tensor, /, *, layer: int, direction: str, time: Any) -> Tensor:
        site = self.site
        if name != site.signal or layer not in site.layers or direction not in site.directions:
            return value
        step = self.step(len(value), layer, direction, time)
        return self.replaced(value, step) if step.rows else value

    def step(self, count: int, layer: int, direction: str, time: Any) -> Step:
        """What is chosen of a step, and that it has come."""
        site = self.site
        with self.lock:
            if count not in self.chosen:
                self.chosen[count] = site.sequence.within(count)
            rows, last = self.chosen[count], time
            if isinstance(time, int):
                rows = rows if site.time.holds(time) else []
                if running.lengths is not None:  # a row that has ended has no more steps
                    rows = [row for row in rows if time < running.lengths[row]]
                times: int | list[int] = time
            else:
                every = time.tolist()
                rows = [row for row in rows if site.time.holds(every[row])]
                times, last = [every[row] for row in rows], max(every, default=0)
            self.seen = max(self.seen[0], last + 1), max(self.seen[1], count)
            if rows:
                self.steps.update([times] if isinstance(times, int) else times)
                self.rows.update(rows)
        return Step(layer, direction, rows, times)

    def replaced(self, value: Tensor, step: Step) -> Tensor:
        """`value` with its chosen rows and units replaced; itself where nothing changes."""
        if self.units.device != value.device:
            self.units = self.units.to(value.device)
        whole, number = len(step.rows) == len(value), self.replacement.number
        if whole and number is not None:
            new = torch.full_like(value, number) if self.all_units else value.index_fill(1, self.units, number)
            return laid_out_as(value, new)
        rows = None if whole else torch.tensor(step.rows, device=value.device)
        part = value if rows is None else value.index_select(0, rows)
        own = part if self.all_units else part.index_select(1, self.units)
        new = self.replacement.values(own, step).to(own)
        if new is own:
            return value
        if self.replacement.keeps:
            new = torch.where(new.isnan(), own, new)
        if not self.all_units:
            new = part.index_copy(1, self.units, new)
        if rows is not None:
            new = value.index_copy(0, rows, new)
        return laid_out_as(value, new)

    def require_fired(self, model: nn.Module) -> None:
        """Raise where something that was asked for never came, so that the block did not do what it says."""
        site = self.site
        missing = [f"{site.time.name} {n}" for n in site.time.unmet(self.steps)]
        missing += [f"{site.sequence.name} {n}" for n in site.sequence.unmet(self.rows)]
        steps, rows = self.seen
        if steps and not missing:
            return
        never = f"{', '.join(missing[:4])} never came" if steps else "it was not computed"
        raise ValueError(
            f"{site.signal!r} of {site.path!r} must be computed inside the block where it is to be changed; {never}. "
            f"Sites that exist: {sites_that_exist(model, {site.path: (steps, rows)})}."
        )


def laid_out_as(value: Tensor, new: Tensor) -> Tensor:
    """`new` with the strides of `value`: a squasher rounds by how its numbers lie in memory."""
    if new.stride() == value.stride() or 0 in value.stride():
        return new
    return new.new_empty_strided(value.shape, value.stride()).copy_(new)
