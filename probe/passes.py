"""Runs of a model under lesions: many in one pass where the model lets its batch be repeated, else one by one."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from .lesions import FOREVER, Fill, Held, Lesion
from .metrics import Metric, measured
from .opened import tapped
from .progress import Bar
from .repeating import Split, alike, copy_of, layouts, leaves, repeated, same, splits, take

TRIED = 8  # most copies in the run that shows whether the batch may be repeated
FEWEST = 6  # lesions, and copies in a pass, from which repeating the batch pays
PATTERN = (0, 0, 1, 0, 1, 1, 0, 1)  # which copies have a lesion in that run; no part from its start reads the same back
MANY = 20  # copies in a pass from which two more show that it went well
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-4}  # relative, of what the same rows answer in a larger batch
COARSE = 5e-2  # of half precision
RAISES = "the model raises"

BUSY = 3_000_000  # sequences by units squared, from which a step's matrix product takes the time, measured on one core

Job = tuple[Lesion, int]  # a lesion, and which draw of donors it has
Numbers = npt.NDArray[np.float64]


class Passes:
    """A model, what it reads and how it is judged; `run` gives the effect of each lesion on each sequence.

    Attributes
    ----------
    intact : what the metric says of the intact model.
    steps : of the module in a run.
    copies : of the batch in one pass; 1 where lesions run one by one.
    remark : why they do, where not for the size of the batch.
    """

    def __init__(
        self,
        model: nn.Module,
        path: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        metric: Metric,
        fill: Fill,
        rows: int,
        batch_dim: int | None,
        width: int,
    ) -> None:
        self.width = width
        self.model, self.path, self.metric, self.fill = model, path, metric, fill
        self.inputs, self.most, self.batch_dim = (args, kwargs), rows, batch_dim
        self.random = random_state(model)
        self.output, heard = self.answer([None], self.inputs)
        self.rows, self.calls, self.steps = heard.rows, heard.calls, heard.steps
        if not self.rows:
            raise ValueError("inputs must hold at least one sequence; the module read none. Give others.")
        self.intact = measured(metric, self.output, "the intact model")
        self.require_sequences()
        self.tolerance = tolerance_of(model)
        self.copies, self.remark = 1, ""
        self.dims: list[int | None] = []
        self.how: list[Split] = []
        self.proof: Lesion | None = None
        self.proven: Any = None

    @property
    def busy(self) -> bool:
        """Whether a single run keeps a CPU so busy that repeating its batch only costs memory."""
        on_cpu = all(weight.device.type == "cpu" for weight in self.model.parameters())
        return on_cpu and self.rows * self.width**2 > BUSY

    def require_sequences(self) -> None:
        """Raise where the metric has left the steps and averaged over the sequences."""
        counted = self.intact.values.shape[1]
        if not all(self.intact.single) and counted == self.steps and self.rows % counted:
            raise ValueError(
                f"metric must return one number a sequence; {counted} came, as many as there are steps, and the module "
                f"read {self.rows} sequences. Average over steps and units, .mean((0, 2)) where time comes first."
            )

    def answer(
        self,
        lesions: Sequence[Lesion | None],
        inputs: tuple[tuple[Any, ...], dict[str, Any]],
        draws: Sequence[int] = (),
    ) -> tuple[Any, Held]:
        """One run, each copy of the batch under its lesion, from the same random numbers every time."""
        self.fill.draws = draws or (0,) * len(lesions)
        held = Held(lesions, self.fill)
        set_random_state(self.random)
        with tapped(self.model, {self.path: held}):
            output = self.model(*inputs[0], **inputs[1])
        if not held.calls:
            raise ValueError(f"the model must call its module {self.path!r}; it did not on these inputs. Give others.")
        return output, held

    def run(self, jobs: Sequence[Job], shown: Bar | None) -> Iterator[Numbers]:
        """Effects (metric, sequence) of each job, in order."""
        done = 0
        if len(jobs) >= FEWEST and self.most // self.rows >= FEWEST and not self.busy:
            self.prepare(min(TRIED, max(3, len(jobs) // TRIED)), jobs)
        checks = 2 if self.copies >= MANY else 0
        while self.copies > 1 and done < len(jobs):
            part = jobs[done : done + self.copies - checks]
            found = self.several(part, bool(checks))
            if found is None:
                self.copies, self.remark = 1, "one by one: copies that were left intact did not stay so"
                break
            yield from found
            done += len(part)
            tick(shown, len(part))
        if done < len(jobs):
            yield from self.one_by_one(jobs[done:], shown)

    def one_by_one(self, jobs: Sequence[Job], shown: Bar | None) -> Iterator[Numbers]:
        again, _ = self.answer([None], self.inputs)
        if not alike(self.output, again, self.tolerance):
            raise ValueError(
                f"the model must give the same output for the same inputs; {type(self.model).__name__} does not in "
                "evaluation mode. Wrap it so that each call begins from the same state."
            )
        for lesion, draw in jobs:
            output, _ = self.answer([lesion], self.inputs, [draw])
            said = measured(self.metric, output, f"the model without {named(lesion)}", self.intact)
            yield said.values - self.intact.values
            tick(shown, 1)

    def several(self, jobs: Sequence[Job], checked: bool) -> list[Numbers] | None:
        """Effects of some jobs in one pass; None where its last copies, intact and under a known lesion, are not so."""
        lesions: list[Lesion | None] = [lesion for lesion, _ in jobs]
        draws = [draw for _, draw in jobs]
        if checked:
            lesions, draws = [*lesions, None, self.proof], [*draws, 0, 0]
        copies, intact = len(lesions), self.intact
        output, _ = self.answer(lesions, repeated(self.inputs, self.dims, copies), draws)
        copied = [copy_of(output, self.how, copies, which) for which in range(copies)]
        if checked:
            last, first = copied.pop(), copied.pop()
            if not (alike(self.output, first, self.tolerance) and alike(self.proven, last, self.tolerance)):
                return None
            intact = measured(self.metric, first, "the intact model", self.intact)
        return [
            measured(self.metric, each, f"the model without {named(lesion)}", self.intact).values - intact.values
            for each, (lesion, _) in zip(copied, jobs, strict=True)
        ]

    def prepare(self, copies: int, jobs: Sequence[Job]) -> None:
        """Find how inputs are repeated and outputs taken apart, and prove it; else say in `remark` why not."""
        for lesion in (jobs[0][0], jobs[-1][0]):  # all units of a place, which should make a difference
            self.proof = lesion._replace(units=tuple(range(self.width)), start=0, stop=FOREVER)
            self.proven, _ = self.answer([self.proof], self.inputs)
            if not alike(self.output, self.proven, self.tolerance):
                break
        many = f"{self.rows} sequence{'s'[: self.rows != 1]}"
        reasons: list[str] = []
        for dims in layouts(self.inputs, self.rows, self.batch_dim):
            if all(dim is None for dim in dims):
                continue
            reasons.append(self.tried(dims, copies))
            if not reasons[-1]:
                self.dims, self.copies = dims, self.most // self.rows
                return
        none = f"no input has a dimension of {many}, as many as the module reads"
        understood = [reason for reason in reasons if not reason.startswith(RAISES)]
        self.remark = f"one by one: {[*understood, *reasons, none][0]}"

    def tried(self, dims: list[int | None], copies: int) -> str:
        """Why the inputs may not be repeated along these dims; empty where they may, and `how` is set."""
        lesions = [self.proof if lesioned else None for lesioned in PATTERN[:copies]]
        try:
            output, held = self.answer(lesions, repeated(self.inputs, dims, copies))
        except Exception as error:  # the user's model on inputs that it was not made for
            return f"{RAISES} {type(error).__name__} on a repeated batch"
        if (held.rows, held.calls) != (copies * self.rows, self.calls):
            return "the module does not read a repeated batch as more sequences"
        ways = splits(self.output, output, copies)
        if ways is None:
            return "the model's output does not grow with its batch"
        expected = [leaves(self.proven if lesioned else self.output) for lesioned in PATTERN[:copies]]
        self.how = []
        for place, (leaf, options) in enumerate(zip(leaves(output), ways, strict=True)):
            right = [how for how in options if self.fits(leaf, how, [each[place] for each in expected])]
            if not right and options == [Split(None)]:
                return "the model's output does not grow with its batch"
            if not right:
                return "what the model answers to one sequence depends on the others in the batch"
            self.how.append(right[0])
        return ""

    def fits(self, leaf: Any, how: Split, expected: list[Any]) -> bool:
        """Whether every copy in a leaf of the output is what it must be."""
        copies = len(expected)
        return all(same(one, take(leaf, how, copies, at), self.tolerance) for at, one in enumerate(expected))


def named(lesion: Lesion) -> str:
    """A lesion in words."""
    many = len(lesion.units) > 1
    units = f"unit{'s' if many else ''} {lesion.units[0]}" + (f" to {lesion.units[-1]}" if many else "")
    gate = f"{lesion.signals[0]} of " if len(lesion.signals) == 1 and lesion.signals[0].endswith("_gate") else ""
    return f"{gate}{units} of layer {lesion.layer}, {lesion.direction}"


def tick(shown: Bar | None, times: int) -> None:
    for _ in range(times if shown is not None else 0):
        shown.update()  # type: ignore[union-attr]


def tolerance_of(model: nn.Module) -> float:
    kinds = {weight.dtype for weight in model.parameters() if weight.is_floating_point()} or {torch.float32}
    return max(TOLERANCES.get(kind, COARSE) for kind in kinds)


def random_state(model: nn.Module) -> tuple[torch.Tensor, dict[int, torch.Tensor]]:
    """Of the CPU and of the devices that the model is on."""
    devices = {weight.device.index for weight in model.parameters() if weight.device.type == "cuda"}
    return torch.get_rng_state(), {device: torch.cuda.get_rng_state(device) for device in devices}


def set_random_state(state: tuple[torch.Tensor, dict[int, torch.Tensor]]) -> None:
    torch.set_rng_state(state[0])
    for device, kept in state[1].items():
        torch.cuda.set_rng_state(kept, device)
