"""When a torch model has solved a task: no wrong prediction on streams it has never seen."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from .grammar import Sample

Outputs = Literal["logits", "probabilities"]
TOLERANCE = 0.49  # a prediction is right when every |target - output| is below it
STRETCH = 1000  # steps of endless streams that are tested at once


class Task(Protocol):
    """What is trained and tested on: the tasks of `gatescope.tasks`, or one of your own."""

    @property
    def endless(self) -> bool:
        """Whether each sample continues the sequences of the one before, so that the state is carried over."""

    def batches(self, kind: str, *, first: int, streams: int, steps: int) -> Iterator[Sample]:
        """Samples without end, from streams that this kind and `first` key: nothing that was drawn for another."""


def first_errors(
    model: nn.Module,
    task: Task,
    *,
    kind: str = "retest",
    first: int = 0,
    streams: int = 10,
    steps: int = 100_000,
    outputs: Outputs = "logits",
) -> npt.NDArray[np.int64]:
    """How many predictions of each fresh sequence are right before the first wrong one.

    A prediction is right when |target - output| < 0.49 for every output. The paper's criterion is met when all of ten
    endless streams reach 100,000. The model runs in evaluation mode, from state zero, all sequences side by side; its
    modes are put back.

    Parameters
    ----------
    model
        Maps (inputs, state) to (outputs, state), as `SequenceModel`.
    task
        For instance `CERG()`.
    kind, first
        Key the streams: `"retest"` streams are never used by `gatescope.train`, which tests on `"testing"`.
    streams
        How many endless streams, or strings.
    steps
        Symbols of each endless stream; strings are read whole.
    outputs
        Whether the model gives `"logits"` or, as `BlockNetwork`, `"probabilities"`.

    Returns
    -------
    numpy.ndarray
        (sequence,), int64: right predictions before the first wrong one; all of them where none is wrong.
    """
    check_asked(model, task, outputs)
    batches = task.batches(kind, first=first, streams=streams, steps=min(STRETCH, steps))
    right, _ = read_on(model, batches, streams, steps if task.endless else 0, outputs)
    return right


def read_on(
    model: nn.Module,
    batches: Iterator[Sample],
    streams: int,
    steps: int,
    outputs: Outputs,
    *,
    until_error: bool = False,
) -> tuple[npt.NDArray[np.int64], bool]:
    """Right predictions before the first wrong one, by sequence, and whether none was wrong.

    Reads `steps` steps in as many batches as that takes, the state being carried on; one batch where it is 0. With
    `until_error` the batch in which one sequence errs is the last.
    """
    right, unbroken = np.zeros(streams, np.int64), np.ones(streams, dtype=bool)
    state, done = None, 0
    with torch.inference_mode(), evaluated(model):
        while unbroken.all() if until_error else unbroken.any():
            inputs, targets, mask = tensors(next(batches), model)
            said, state = called(model, inputs, state, targets)
            counts = slice(steps - done if steps else None)
            wrong = (is_wrong(said, targets, outputs) & mask)[:, counts]
            before = ((wrong.cumsum(1) == 0) & mask[:, counts]).sum(1)
            right += np.where(unbroken, before.cpu().numpy(), 0)
            unbroken &= ~wrong.any(1).cpu().numpy()
            done += inputs.shape[1]
            if done >= steps:
                break
    return right, bool(unbroken.all())


def check_asked(model: object, task: object, outputs: object) -> None:
    """Raise where the model is none, or cannot read the task's samples."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; {type(model).__name__} came. Give the model.")
    if getattr(model, "batch_first", True) is False:
        raise ValueError(
            f"the model must read (sequence, time, input); this {type(model).__name__} reads time first. Make it with "
            "batch_first=True, or wrap it: SequenceModel(module, outputs=7)."
        )
    if isinstance(task, type) or not (hasattr(task, "endless") and hasattr(task, "batches")):
        what = f"the class {task.__name__}" if isinstance(task, type) else type(task).__name__
        raise TypeError(f"task must be an object with endless and batches; {what} came. Give for instance CERG().")
    if outputs not in ("logits", "probabilities"):
        raise ValueError(f"outputs must be 'logits' or 'probabilities'; {outputs!r} came.")
    weights = list(model.parameters())
    if not weights:
        raise ValueError(f"the model must have weights; {type(model).__name__} has none. Give one that can be trained.")
    if any(weight.is_inference() for weight in weights):
        raise ValueError(
            "the model's weights must be known to autograd; some were made under torch.inference_mode(). Make or load "
            "the model outside of it."
        )


def is_wrong(said: Tensor, targets: Tensor, outputs: Outputs) -> Tensor:
    """Where a prediction is wrong, (sequence, time)."""
    chances = said.detach().sigmoid() if outputs == "logits" else said.detach()
    return ~((targets - chances).abs() < TOLERANCE).all(-1)  # NaN is wrong


def tensors(sample: Sample, model: nn.Module) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets and mask where the model's weights are, in their precision."""
    weight = next(model.parameters())
    inputs, targets = (
        torch.from_numpy(array).to(device=weight.device, dtype=weight.dtype)
        for array in (sample.inputs, sample.targets)
    )
    return inputs, targets, torch.from_numpy(sample.mask).to(weight.device)


def called(model: nn.Module, inputs: Tensor, state: Any, targets: Tensor) -> tuple[Tensor, Any]:
    """The model's outputs, in the shape of the targets, and its state."""
    answer = model(inputs, state)
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], Tensor)):
        raise TypeError(
            "the model must return (outputs, state), as SequenceModel does; "
            f"{type(answer).__name__} came from {type(model).__name__}. Return what it carries on beside its outputs."
        )
    said, after = answer
    if said.shape != targets.shape:
        raise ValueError(
            f"the model's outputs must have the targets' shape {tuple(targets.shape)} (sequence, time, output); "
            f"{tuple(said.shape)} came from {type(model).__name__}. A bare recurrent module needs a readout: "
            f"SequenceModel(module, outputs={targets.shape[-1]})."
        )
    return said, after


@contextmanager
def evaluated(model: nn.Module, *, training: bool = False) -> Iterator[None]:
    """The whole model in evaluation (or training) mode; afterwards every module is in the mode it was in."""
    modes = {module: module.training for module in model.modules()}
    model.train(training)
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
