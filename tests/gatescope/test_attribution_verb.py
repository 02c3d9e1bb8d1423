"""`gatescope attribution` writes what `attribution` returns and says which steps count."""

from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from typer.testing import CliRunner

import gatescope as gs
from gatescope.attribution_verb import target_of
from gatescope.cli import app

MODEL = """
import torch
from torch import nn

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(30, 4)
        self.rnn = nn.LSTM(4, 5, batch_first=True)
        self.out = nn.Linear(5, 6)

    def forward(self, letters):
        return self.out(self.rnn(self.embedding(letters))[0])

def build():
    return Tagger()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tagger.py").write_text(MODEL)
    letters, words = np.zeros((2, 5), int), ("abcde", "fgh")
    labels = np.full((2, 5), "", dtype="U1")
    for row, word in enumerate(words):
        letters[row, : len(word)] = [ord(letter) - 96 for letter in word]
        labels[row, : len(word)] = list(word)
    np.savez(tmp_path / "batch.npz", letters=letters, lengths=[5, 3], label_letter=labels)
    return tmp_path


def run(*arguments: str) -> tuple[str, object]:
    done = CliRunner().invoke(app, ["attribution", "tagger.py:build", "--inputs", "batch.npz", *arguments])
    return done.output, done.exception


def test_the_file_holds_what_python_returns_and_the_table_the_largest_shares(place: Path) -> None:
    said, error = run("--target", "-1,3", "--out", "found.nc", "--steps", "10")
    assert error is None, error
    with xr.open_dataset(place / "found.nc", engine="h5netcdf") as found:
        largest = int(np.abs(found.by_step[1].values).argmax())
        assert f"{largest} {'fgh'[largest]}: {float(found.by_step[1, largest]):+.3g}" in said
        assert (found.by_step[1, 3:] == 0).all()
        assert found.attrs["target"] == "class 3 at step -1"
    assert "class 3 at step -1, given to input" in said
    assert said.rstrip().endswith("written  found.nc")


def test_a_unit_inside_and_a_gate_are_named_in_words(place: Path) -> None:
    said, error = run("--target", "cell_state:2:-1", "--to", "forget_gate", "--method", "saliency", "--out", "found.nc")
    assert error is None, error
    assert "saliency of cell_state of unit 2 at step -1, given to forget_gate" in said
    said, error = run("--target", "-1,0", "--to", "initial_state", "--baseline", "0.5", "--out", "start.nc")
    assert error is None, error
    with xr.open_dataset(place / "start.nc", engine="h5netcdf") as found:
        assert found.attribution.dims == ("sequence", "layer", "direction", "state", "unit")


@pytest.mark.parametrize("text", ["", "three", "1,2,3", "a:b:c", "1.5"])
def test_a_target_that_cannot_be_read_is_said_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="target must be CLASS, TIME,CLASS or SIGNAL:UNIT:TIME"):
        target_of(text)


def test_targets_are_read_as_they_are_written() -> None:
    assert target_of("-1,3") == (-1, 3)
    assert target_of("4") == 4
    assert target_of("cell_state:2:0") == gs.unit("cell_state", unit=2, time=0)


def test_an_unknown_method_and_an_old_file_are_said_before_and_after_the_model_runs(place: Path) -> None:
    _, error = run("--target", "-1,3", "--out", "found.nc", "--method", "lrp")
    assert "none for the products of gates and states" in str(error)
    (place / "old.nc").write_text("")
    _, error = run("--target", "-1,3", "--out", "old.nc")
    assert "out must be a new path" in str(error)
    assert torch.is_grad_enabled()
