"""From a question to its answer: examples that Captum can be asked about, and what it says of them in its places."""

from typing import NamedTuple

import torch
from torch import Tensor

from .attribution_methods import Method, Question, Settings, attributed, evaluated
from .attribution_runs import Runs
from .attribution_sources import SignalSource, Source


class Answer(NamedTuple):
    """Over (sequence, time, feature) of the source, or without its last or last two dims; what was not asked is 0."""

    values: Tensor  # what was found
    output: Tensor  # (sequence,) the target as it is
    baseline_output: Tensor | None  # (sequence,), or (sequence, time) where each step is asked about for itself
    delta: Tensor | None  # of the same dims: what the values add up to, less what they should


class Asking:
    """Which values of a source are asked about, and how: all steps together, or each for itself.

    Together, all chosen values are changed at once, and a signal that is replaced at a step does not follow from the
    steps before. For itself, a step's values are changed and everything after follows from them.
    """

    def __init__(self, runs: Runs, source: Source, times: list[int], units: list[int], together: bool) -> None:
        self.runs, self.source, self.together = runs, source, together
        device = source.actual.device
        self.times, self.units = torch.tensor(times, device=device), torch.tensor(units, device=device)
        sequences, steps, width = source.actual.shape
        self.whole = len(times) == steps and len(units) == width
        ends = runs.layout.lengths if steps == runs.layout.steps else torch.full((sequences,), steps)
        self.real = (torch.arange(steps) < ends.unsqueeze(1)).to(device)
        if isinstance(source, SignalSource):
            source.free = torch.zeros(steps, width, dtype=torch.bool, device=device)
            source.free[self.times.unsqueeze(1), self.units] = True

    def forward(self, block: Tensor, rows: Tensor, steps: Tensor | None = None) -> Tensor:
        """The target with other values in the places asked about; padding keeps what it has."""
        rows = rows.to(block.device)
        if steps is not None:
            values = self.source.actual[rows, steps.to(block.device)].clone()
            values[:, self.units] = block
            return self.runs(values, rows, steps)
        own = self.source.actual[rows]
        values = block
        if not self.whole:
            values = own.clone()
            values[:, self.times.unsqueeze(1), self.units] = block
        return self.runs(torch.where(self.real[rows].unsqueeze(-1), values, own), rows)

    def chosen(self, values: Tensor) -> Tensor:
        """Values (..., time, feature) where they are asked about."""
        return values[:, self.times][..., self.units]

    def at_steps(self) -> tuple[Tensor, Tensor]:
        """Sequence and place among the chosen steps of every step that is no padding, step by step."""
        steps, rows = torch.nonzero(self.real[:, self.times].T, as_tuple=True)
        return rows, steps

    def answer(self, method: Method, output: Tensor, baseline: Tensor, settings: Settings, draws: bool) -> Answer:
        """Put the question to a method of Captum; `output` is the target as it is."""
        rows = torch.arange(len(self.source.actual), device=self.source.actual.device)
        actual, start = self.chosen(self.source.actual), self.chosen(baseline)
        if self.together:
            return self.all_at_once(method, Question(self.forward, actual, start, (rows,)), output, settings, draws)
        if not method.compares and isinstance(self.source, SignalSource):
            self.source.following = True
            found = attributed(method, Question(self.forward, actual, start, (rows,)), settings, draws)
            return Answer(self.unpadded(found), output, None, None)
        return self.one_by_one(method, actual, start, output, settings, draws)

    def all_at_once(
        self, method: Method, question: Question, output: Tensor, settings: Settings, draws: bool
    ) -> Answer:
        found = self.unpadded(attributed(method, question, settings, draws))
        if not method.compares:
            return Answer(found, output, None, None)
        before = baseline_output(question, settings, draws)
        total = total_of(found, settings).sum(1)
        return Answer(found, output, before, total - (output - before))

    def one_by_one(
        self, method: Method, actual: Tensor, start: Tensor, output: Tensor, settings: Settings, draws: bool
    ) -> Answer:
        rows, places = self.at_steps()
        found = torch.zeros_like(actual)
        before = torch.full(actual.shape[:2], torch.nan, dtype=output.dtype, device=output.device)
        # draws differ from step to step, so that a step's examples are asked about together
        parts = [torch.nonzero(places == place).squeeze(1) for place in places.unique()] if draws else [slice(None)]
        for part in parts:
            here, there = rows[part], places[part]
            begin = start[:, there[0]] if draws else start[here, there]
            question = Question(self.forward, actual[here, there], begin, (here, self.times[there]))
            found[here, there] = attributed(method, question, settings, draws).to(found.dtype)
            before[here, there] = baseline_output(question, settings, draws)
        delta = total_of(found, settings) - (output.unsqueeze(1) - before)
        return Answer(found, output, before, delta)

    def at_real_steps(self, values: Tensor | None) -> Tensor | None:
        """Values of each step where it is no padding; of each sequence as they are."""
        return values if values is None or values.dim() == 1 else values[self.real[:, self.times]]

    def unpadded(self, found: Tensor) -> Tensor:
        """Exactly 0 at padding: a sum in another order may differ in its last digit."""
        return found.masked_fill(~self.real[:, self.times].unsqueeze(-1), 0.0)


def total_of(found: Tensor, settings: Settings) -> Tensor:
    """What a step's values add up to; where they were taken away together, each of them says the same."""
    return found[..., 0] if settings.by_step else found.sum(-1)


def baseline_output(question: Question, settings: Settings, draws: bool) -> Tensor:
    """The target at the baseline; of several draws the mean."""
    if not draws:
        return evaluated(question, question.baseline, settings.batch_size)
    total = torch.zeros(len(question.values), dtype=torch.float64, device=question.values.device)
    for draw in question.baseline:
        total += evaluated(question, draw.expand_as(question.values), settings.batch_size)
    return (total / len(question.baseline)).to(question.values.dtype)
