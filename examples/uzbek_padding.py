"""Padding that is read before the word fills the backward memory: a trained Uzbek tagger, with and without its padding.

    python examples/uzbek_padding.py

The package uzmorph-nn fills every word up to 30 characters and passes no lengths to its bidirectional LSTM, so the
backward direction reads the padding first. Its weights are read by path, for importing the package needs pkg_resources.
Needs the examples' models: pip install 'gatescope[examples]'.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import xarray as xr
from torch import nn

import gatescope as gs

WIDTH = 30
WORDS = ("kitoblarimizdan", "maktabda", "bolalar", "shahrimizning", "yozdim", "daraxtlardan")


class Tagger(nn.Module):
    """The package's model, under its own names of the weights."""

    def __init__(self, characters: int, tags: int) -> None:
        super().__init__()
        self.char_embeddings = nn.Embedding(characters, 64)
        self.lstm = nn.LSTM(64, 64, num_layers=2, bidirectional=True, batch_first=True)
        self.hidden2tag = nn.Linear(128, tags)

    def forward(self, word: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.char_embeddings(word))
        return self.hidden2tag(states)


def load(folder: Path) -> tuple[Tagger, dict[str, int]]:
    characters = json.loads((folder / "char_vocab.json").read_text(encoding="utf-8"))
    weights = torch.load(folder / "morph_bilstm.pth", map_location="cpu", weights_only=True)
    model = Tagger(len(characters), len(weights["hidden2tag.bias"])).eval()
    model.load_state_dict(weights)
    return model, characters


def read(model: Tagger, characters: dict[str, int], word: str, width: int) -> tuple[xr.Dataset, list[int]]:
    """The recording of the word's own steps, and the tag of each."""
    numbers = [characters.get(letter, characters["UNK"]) for letter in word]
    padded = torch.tensor([numbers + [characters["PAD"]] * (width - len(word))])
    with gs.attach(model) as probe, torch.no_grad():
        probe.annotate(lengths=[len(word)], character=word)
        tags = model(padded)[0, : len(word)].argmax(-1).tolist()
    return probe.recording(), tags


def filled(recording: xr.Dataset) -> tuple[float, float]:
    """Share of steps on which the backward memory of layer 0 is on the flat of its tanh, and its largest value."""
    first = {"layer": 0, "direction": "backward"}
    share = gs.saturation(recording)["squash_saturated"].sel(first).mean()
    return float(share), float(np.abs(recording["cell_state"].sel(first)).max())


def main() -> None:
    package = find_spec("uzmorph_nn")
    if package is None or not package.submodule_search_locations:
        print("skipped: the package uzmorph-nn is not installed; pip install 'gatescope[examples]'.")
        return
    model, characters = load(Path(package.submodule_search_locations[0]) / "data")
    print(f"{'layer 0, backward':<18}{'|tanh c| > 0.95':>18}{'largest |c|':>18}{'tags that':>12}")
    print(f"{'word':<18}{'padded':>9}{'alone':>9}{'padded':>9}{'alone':>9}{'change':>12}")
    for word in WORDS:
        (padded, tags), (alone, other_tags) = (read(model, characters, word, width) for width in (WIDTH, len(word)))
        (share, largest), (share_alone, largest_alone) = filled(padded), filled(alone)
        change = sum(tag != other for tag, other in zip(tags, other_tags, strict=True))
        print(
            f"{word:<18}{share:>9.0%}{share_alone:>9.0%}{largest:>9.1f}{largest_alone:>9.1f}"
            f"{f'{change} of {len(word)}':>12}"
        )
    print("The same model and the same letters: only what stands behind the word differs.")


if __name__ == "__main__":
    main()
