"""Training of torch models on the tasks: Adam, truncated backpropagation over chunks, the state carried on."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from tqdm import tqdm

from .history import History, Log
from .testing import STRETCH, Outputs, Task, called, check_asked, evaluated, is_wrong, read_on, tensors

TEST_STREAMS = 10  # endless streams of a test
TEST_STRINGS = 256  # strings of a test, for tasks that have no endless streams


def train(
    model: nn.Module,
    task: Task,
    *,
    max_symbols: int = 10_000_000,
    learning_rate: float = 0.01,
    clip: float | None = None,
    streams: int = 32,
    steps: int = 32,
    restart: float = 0.05,
    outputs: Outputs = "logits",
    calm: int = 100,
    tests: int | None = None,
    test_steps: int = 100_000,
    seed: int = 0,
    progress: bool = False,
) -> History:
    """Train a torch model on a task until it has solved it.

    Each update reads the next chunk of every stream, takes the mean cross-entropy of its predictions and goes one step
    of Adam. The state goes on into the next chunk, detached: the gradient reaches back to the chunk's first step and
    no further. With a chance of `restart` before each chunk, all streams are given up for fresh ones that begin in
    state zero; without that a network that has learned never to need a start fails from its first step on.

    After `calm` updates in a row without a wrong prediction the model is tested on streams that it never saw; when all
    predictions on all of them are right, training ends. This is the criterion of the paper: ten streams of 100,000
    symbols without an error. Passing is partly luck, as the model stops at its first good test; retest it with
    `gatescope.tasks.first_errors`.

    Parameters
    ----------
    model
        Maps (inputs, state) to (outputs, state): `SequenceModel(nn.LSTM(7, 16), 7)`, `BlockNetwork`, or your own. It is
        trained in place, on the device where it is; its modes (train, eval) are put back.
    task
        `CERG()`, `ERG()`, `Reber()`; one of your own needs `endless` and `batches` (see `tasks.testing.Task`). The
        numbers that key it count, but for its kind: training and tests draw from streams of their own.
    max_symbols
        Training ends when as many symbols have been read, solved or not.
    learning_rate
        Of Adam.
    clip
        Largest norm of the gradient; larger ones are scaled down to it. None: never.
    streams
        Endless streams side by side, or strings of an update.
    steps
        Steps of a chunk. Strings are read whole, from state zero.
    restart
        Chance in [0, 1] of fresh streams before each chunk. No meaning for strings.
    outputs
        Whether the model gives `"logits"` or, as `BlockNetwork`, `"probabilities"`.
    calm
        Updates in a row without a wrong prediction before a test; the default is 102,400 symbols.
    tests
        Sequences of a test: by default 10 endless streams or 256 strings. 0: never test, train to the end.
    test_steps
        Steps of each endless stream of a test.
    seed
        Of the restarts and of dropout. torch's global generators are left as they were.
    progress
        Whether to show a progress bar.

    Returns
    -------
    History
        Per update loss, gradient norm, clipping and errors; the tests; `solved_at`. Ctrl-C ends training with the
        history so far.

    Raises
    ------
    TypeError, ValueError
        For a model that has no weights to train, or outputs of another shape; for parameters out of range; when the
        loss or the gradient is no longer finite (the model is then as before that update).

    References
    ----------
    F. A. Gers, J. Schmidhuber, F. Cummins (2000). Learning to Forget: Continual Prediction with LSTM. Neural
    Computation 12 (10), 2451-2471. doi 10.1162/089976600300015015. (Task and criterion; the optimizer is today's.)

    Examples
    --------
    >>> import torch
    >>> from gatescope.tasks import CERG, SequenceModel
    >>> history = train(SequenceModel(torch.nn.LSTM(7, 16), 7), CERG(), max_symbols=4096)
    >>> history.updates["symbols"].values.tolist(), history.solved
    ([1024, 2048, 3072, 4096], False)
    """
    check_asked(model, task, outputs)
    if tests is None:
        tests = TEST_STREAMS if task.endless else TEST_STRINGS
    parameters: dict[str, Any] = {
        "max_symbols": max_symbols,
        "learning_rate": learning_rate,
        "clip": clip,
        "streams": streams,
        "steps": steps,
        "restart": restart,
        "outputs": outputs,
        "calm": calm,
        "tests": tests,
        "test_steps": test_steps,
        "seed": seed,
    }
    check_parameters(parameters)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if not weights:
        raise ValueError("the model must have weights that require gradients; none came. Unfreeze some of them.")
    log = Log(parameters)
    run = _Run(model, task, weights, torch.optim.Adam(weights, lr=learning_rate), log)
    began = time.perf_counter()
    bar = tqdm(total=max_symbols, unit="symbol", unit_scale=True, disable=not progress)
    grad = torch.inference_mode(False), torch.enable_grad()
    with bar, grad[0], grad[1], seeded(weights[0].device, seed), evaluated(model, training=True):
        try:
            run.to_the_end(bar)
        except KeyboardInterrupt:
            log.interrupted = True
        finally:
            run.optimizer.zero_grad(set_to_none=True)
    return log.history(time.perf_counter() - began)


class _Run:
    """One training, update by update."""

    def __init__(
        self, model: nn.Module, task: Task, weights: list[nn.Parameter], optimizer: torch.optim.Optimizer, log: Log
    ) -> None:
        self.model, self.task, self.weights, self.optimizer, self.log = model, task, weights, optimizer, log
        self.draws = np.random.default_rng(log.parameters["seed"])
        self.begun = 0
        self.begin()

    def begin(self) -> None:
        """Give up all streams for fresh ones."""
        streams, steps = self.log.parameters["streams"], self.log.parameters["steps"]
        self.batches = self.task.batches("training", first=self.begun * streams, streams=streams, steps=steps)
        self.state: Any = None
        self.begun += 1

    def to_the_end(self, bar: "tqdm[Any]") -> None:
        settings, log = self.log.parameters, self.log
        while log.symbols < settings["max_symbols"] and not log.passed:
            if log.symbols and self.task.endless and self.draws.random() < settings["restart"]:
                self.begin()
            self.update()
            bar.update(log.symbols - bar.n)
            if settings["tests"] and log.calm >= settings["calm"]:
                self.test()

    def update(self) -> None:
        """Read the next chunk and go one step against the gradient of its loss."""
        outputs, clip = self.log.parameters["outputs"], self.log.parameters["clip"]
        sample, restart = next(self.batches), self.state is None
        inputs, targets, mask = tensors(sample, self.model)
        said, state = called(self.model, inputs, self.state, targets)
        check_said(said, outputs)
        after = detached(state) if self.task.endless else None
        loss = loss_of(said, targets, mask, outputs)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        gradients = [weight.grad for weight in self.weights if weight.grad is not None]
        norm = get_total_norm(gradients)
        self.check_finite(loss.item(), norm.item())
        clipped = clip is not None and norm.item() > clip
        if clipped:
            clip_grads_with_norm_(self.weights, clip, norm)
        self.optimizer.step()
        self.state = after
        wrong = int((is_wrong(said, targets, outputs) & mask).sum())
        self.log.add(loss.item(), norm.item(), clipped, wrong, restart, int(sample.lengths.sum()))

    def test(self) -> None:
        settings, log = self.log.parameters, self.log
        tests, steps = settings["tests"], settings["test_steps"]
        first = len(log.tests) * tests  # never the same streams twice
        batches = self.task.batches("testing", first=first, streams=tests, steps=min(STRETCH, steps))
        steps = steps if self.task.endless else 0
        right, passed = read_on(self.model, batches, tests, steps, settings["outputs"], until_error=True)
        log.add_test(int(right.min()), passed)

    def check_finite(self, loss: float, norm: float) -> None:
        if not (math.isfinite(loss) and math.isfinite(norm)):
            raise ValueError(
                f"loss and gradient must stay finite; loss {loss:g} and gradient norm {norm:g} came at update "
                f"{len(self.log.updates['loss'])}. Lower learning_rate, or set clip=1.0."
            )


def loss_of(said: Tensor, targets: Tensor, mask: Tensor, outputs: Outputs) -> Tensor:
    """Cross-entropy in nat, mean over outputs and over the predictions that count."""
    entropy = binary_cross_entropy_with_logits if outputs == "logits" else binary_cross_entropy
    answers = said[mask]
    if outputs == "probabilities" and bool(answers.isnan().any()):  # which torch refuses in words of its own
        return answers.sum()
    return entropy(answers, targets[mask])


def check_said(said: Tensor, outputs: Outputs) -> None:
    """Raise where nothing can be learned from the model's outputs."""
    if not said.requires_grad:
        raise ValueError(
            "the model's outputs must depend on its weights in a way that autograd sees; these do not. Leave detach() "
            "and torch.no_grad() out of its forward."
        )
    if outputs == "probabilities" and bool(((said < 0) | (said > 1)).any()):
        raise ValueError(
            f"probabilities must lie between 0 and 1; {said.min().item():.3g} to {said.max().item():.3g} came from the "
            "model. Leave out outputs='probabilities' for logits."
        )


def detached(state: Any) -> Any:
    """The same state, cut off from what it was computed from."""
    if isinstance(state, Tensor):
        return state.detach()
    if isinstance(state, (tuple, list)):
        return type(state)(detached(entry) for entry in state)
    raise TypeError(
        f"the state that a model returns must be a tensor or a tuple of tensors; {type(state).__name__} came. "
        "Return (outputs, state), as SequenceModel does."
    )


@contextmanager
def seeded(device: torch.device, seed: int) -> Iterator[None]:
    """torch's generators of the CPU and of this device start from `seed`; afterwards they are as they were."""
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng(devices=[device] if on_gpu else []):
        torch.default_generator.manual_seed(seed)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        yield


def check_parameters(settings: dict[str, Any]) -> None:
    """Raise for the first parameter that is out of range."""
    for name in ("max_symbols", "streams", "steps", "calm", "test_steps"):
        if isinstance(settings[name], bool) or not isinstance(settings[name], int) or settings[name] < 1:
            raise ValueError(f"{name} must be a whole number from 1 on; {settings[name]!r} came.")
    for name in ("tests", "seed"):
        if isinstance(settings[name], bool) or not isinstance(settings[name], int) or settings[name] < 0:
            raise ValueError(f"{name} must be a whole number from 0 on; {settings[name]!r} came.")
    if settings["seed"] >= 2**63:
        raise ValueError(f"seed must be below 2^63; {settings['seed']} came. Give for instance 0.")
    if not is_number(settings["restart"]) or not 0 <= settings["restart"] <= 1:
        raise ValueError(f"restart must be a chance between 0 and 1; {settings['restart']!r} came.")
    given = [settings["learning_rate"], *([] if settings["clip"] is None else [settings["clip"]])]
    if not all(is_number(value) and 0 < value < math.inf for value in given):
        raise ValueError(
            "learning_rate and clip must be finite numbers above 0, or clip None for no clipping; "
            f"{settings['learning_rate']!r} and {settings['clip']!r} came."
        )


def is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
