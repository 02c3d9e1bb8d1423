"""Trained networks that come with gatescope, each with the setting and number that made it and make it again."""

import json
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np

from .flipflop_example import LINE, NAME, load_flipflop

if TYPE_CHECKING:  # what is named here loads when a network is asked for: the list of names costs nothing
    from ..cells import BlockNetwork
    from .experiment import Outcome, Setting
    from .grammar import Sample
    from .sequence_model import SequenceModel

HEADER = "header"
FOLDER = "trained"


class Example(NamedTuple):
    """Which network it is, and what it shows."""

    row: str
    network: int
    line: str


EXAMPLES = {
    "cerg-forget": Example("forget", 16, "forget gates: one block resets at every end of a string and holds T or P"),
    "cerg-latch": Example("forget", 242, "forget gates: a cell holds T by a positive state and P by a negative one"),
    "cerg-partial": Example("forget", 9, "forget gates: the block that holds T or P only partly forgets at an end"),
    "cerg-1997": Example("1997", 20, "no forget gate: states run away along a stream, and predictions go wrong"),
    "cerg-external-reset": Example("external-reset", 0, "no forget gate: put to rest from outside at every start"),
}


def examples() -> dict[str, str]:
    """The trained networks that come with gatescope: name and one line on what each shows.

    Examples
    --------
    >>> sorted(examples())
    ['cerg-1997', 'cerg-external-reset', 'cerg-forget', 'cerg-latch', 'cerg-partial', 'flip-flop']
    """
    return {name: example.line for name, example in EXAMPLES.items()} | {NAME: LINE}


@overload
def load_example(  # type: ignore[overload-overlap]
    name: Literal["flip-flop"], *, size: int = ...
) -> tuple["SequenceModel", "Sample"]: ...


@overload
def load_example(name: str, *, size: int = ...) -> tuple["BlockNetwork", "Sample"]: ...


def load_example(name: str, *, size: int = 2000) -> "tuple[BlockNetwork | SequenceModel, Sample]":
    """A trained network and a fresh stream for it to read.

    Those called `cerg-...` have learned the continual embedded Reber grammar as in *Learning to Forget*, with this
    library's own engine. `flip-flop` is an LSTM of 16 units that has learned the flip-flop of three bits
    (`gatescope.tasks.FlipFlop`) with `gatescope.train`. The stream is one that no network was trained or tested on.
    Networks and streams are always the same.

    Parameters
    ----------
    name
        One of `examples()`.
    size
        Symbols of the stream, at least 1.

    Returns
    -------
    model : BlockNetwork
        In float32, as the sample is, and in evaluation mode. For `cerg-external-reset` call it as
        `model(inputs, reset=torch.from_numpy(sample.labels["boundary"]))`. `flip-flop` is a `SequenceModel`.
    sample : Sample
        One sequence: `inputs` (1, size, 7), `targets`, and `labels` with `symbol`, `state`, `boundary`, `remember`;
        of `flip-flop` (1, size, 3) with `held` and `pulses`.

    Raises
    ------
    ValueError
        For an unknown name.

    References
    ----------
    Gers, Schmidhuber and Cummins (2000), Neural Computation 12(10), doi 10.1162/089976600300015015.

    Examples
    --------
    >>> import torch
    >>> model, sample = load_example("cerg-forget", size=500)
    >>> outputs, _ = model(torch.from_numpy(sample.inputs))
    >>> wrong = abs(outputs.detach().numpy() - sample.targets) >= 0.49
    >>> int(wrong.sum())
    0
    """
    if name == NAME:
        return load_flipflop(size)
    from ..cells import BlockNetwork
    from .grammar import CERG

    weights, setting, network = read_example(name)
    model = BlockNetwork(**asdict(setting.wiring)).load_weights(weights)
    return model.eval(), CERG(seed=setting.seed, network=network, kind="sample").sample(size)


def read_example(name: str) -> tuple[dict[str, np.ndarray[Any, np.dtype[np.float64]]], "Setting", int]:
    """The weights of an example as they were trained, in float64, and the setting and number that they come from."""
    from .experiment import Setting

    if name not in EXAMPLES:
        raise ValueError(f"name must be one of {', '.join(map(repr, examples()))}; {name!r} came. Take 'cerg-forget'.")
    with (
        files(__package__).joinpath(FOLDER, f"{name}.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as kept,
    ):
        arrays = {entry: kept[entry] for entry in kept.files}
    header = json.loads(str(arrays.pop(HEADER)))
    return arrays, Setting.from_dict(header["setting"]), int(header["network"])


def train_example(name: str) -> "Outcome":
    """Train an example again, from its setting and number."""
    from .experiment import VARIANTS, run_network

    return run_network(VARIANTS[EXAMPLES[name].row], EXAMPLES[name].network)


def write_example(name: str, folder: Path) -> Path:
    """Train an example and write its file."""
    from .experiment import VARIANTS

    example, outcome = EXAMPLES[name], train_example(name)
    header = {
        "setting": VARIANTS[example.row].to_dict(),
        "network": outcome.network,
        "verdict": outcome.verdict,
        "streams": outcome.streams,
        "symbols": outcome.symbols,
        "tests": outcome.tests,
        "retests": outcome.retests,
    }
    path = folder / f"{name}.npz"
    with path.open("wb") as file:
        kept: dict[str, Any] = {HEADER: np.array(json.dumps(header, sort_keys=True)), **outcome.weights}
        np.savez(file, **kept)
    return path


if __name__ == "__main__":  # python -m gatescope.tasks.examples: all files anew
    for each in EXAMPLES:
        print(write_example(each, Path(__file__).parent / FOLDER))
