"""The flip-flop network that comes with gatescope: three bits held by an LSTM, trained with `gatescope.train`."""

import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # what is named here loads when the network is asked for
    from .grammar import Sample
    from .history import History
    from .sequence_model import SequenceModel

NAME = "flip-flop"
LINE = "three bits held by an LSTM: eight stable points, and saddles between them"
UNITS, BITS, SEED = 16, 3, 0
HEADER, FOLDER = "header", "trained"


def load_flipflop(size: int) -> tuple["SequenceModel", "Sample"]:
    """The network in evaluation mode, and a stream that it was neither trained nor tested on."""
    import torch

    from .flipflop import FlipFlop

    with (
        files(__package__).joinpath(FOLDER, f"{NAME}.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as kept,
    ):
        arrays = {entry: kept[entry] for entry in kept.files if entry != HEADER}
    model = empty_model()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    return model.eval(), FlipFlop(bits=BITS, seed=SEED, kind="sample").sample(size)


def empty_model() -> "SequenceModel":
    """The network before it is trained, its weights as torch draws them."""
    from torch import nn

    from .sequence_model import SequenceModel

    return SequenceModel(nn.LSTM(BITS, UNITS, batch_first=True), BITS)


def train_flipflop(seed: int = SEED, **options: Any) -> tuple["SequenceModel", "History"]:
    """Such a network trained with a seed, which takes about ten seconds; torch's generator is left as it was."""
    import torch

    from .flipflop import FlipFlop
    from .training import train

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = empty_model()
    history = train(model, FlipFlop(bits=BITS, seed=seed), seed=seed, max_symbols=4_000_000, **options)
    return model.eval(), history


def write_flipflop(folder: Path) -> Path:
    """Train the network and write its file."""
    model, history = train_flipflop()
    header = {"units": UNITS, "bits": BITS, "seed": SEED, "symbols": history.symbols, "solved": history.solved}
    weights: dict[str, Any] = {name: weight.numpy() for name, weight in model.state_dict().items()}
    path = folder / f"{NAME}.npz"
    with path.open("wb") as file:
        np.savez(file, **{HEADER: np.array(json.dumps(header, sort_keys=True)), **weights})
    return path


if __name__ == "__main__":  # python -m gatescope.tasks.flipflop_example: the file anew
    print(write_flipflop(Path(__file__).parent / FOLDER))
