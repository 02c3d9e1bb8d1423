"""`gatescope ablation` on a user's model, arrays and metric."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from gatescope import cli

FILES = """
import torch
from torch import nn

def build():
    rnn = nn.RNN(2, 2, nonlinearity="relu", bias=False, batch_first=True)
    for weight in rnn.parameters():
        nn.init.eye_(weight)
    return rnn

def last(output):
    return output[0][:, -1, 0]

def missed(output, labels):
    return {"last": labels["want"][:, -1] - output[0][:, -1, 0].numpy(), "mean": output[0].mean()}

def broken(output):
    raise KeyError("nothing")

def lonely():
    return 1.0

word = "word"
"""

LOSS = """
from torch import nn

class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(2, 6, batch_first=True)

    def forward(self, x):
        return self.rnn(x)[0].square().mean()

def value(output):
    return output
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.chdir(tmp_path)
    Path("files.py").write_text(FILES)
    x = np.stack([np.arange(1.0, 7.0)[:, None] * [1, 1], np.full((6, 2), 5.0)], axis=2)  # (sequence, time, input)
    np.savez("x.npz", x.astype(np.float32), label_want=np.cumsum(x[..., 0], axis=1))

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["gatescope", "ablation", *arguments])
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = capsys.readouterr()
        return int(str(left.value.code)), captured.out, captured.err

    return call


GIVEN = ("files.py:build", "--inputs", "x.npz", "--out", "effects.nc")


def test_the_effects_are_printed_largest_first_and_written(run: Run) -> None:
    code, out, err = run(*GIVEN, "--metric", "files.py:last")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "model (RNNCell): unit held at zero"
    assert lines[2] == "metric: 7 in the intact model"
    assert lines[3].split() == ["layer", "direction", "unit", "effect", "from", "to", "corrected", "p"]
    assert lines[4].split()[:4] == ["0", "forward", "0", "-7"]
    assert lines[5].split()[:4] == ["0", "forward", "1", "+0"]
    assert lines[-1] == "written  effects.nc"
    with xr.open_dataset("effects.nc", engine="h5netcdf") as stored:
        assert stored["effect"].values.ravel().tolist() == [-7.0, 0.0]
        assert stored.attrs["measure"] == "ablation"


def test_a_metric_of_two_arguments_gets_the_labels_and_stretches_of_time_stand_in_the_table(run: Run) -> None:
    code, out, _ = run(*GIVEN, "--metric", "files.py:missed", "--width", "1", "--to", "zero")
    assert code == 0
    assert "last: 0 in the intact model" in out
    rows = [line.split() for line in out.split("\n\n")[1].splitlines()[2:]]
    assert sorted((row[2], row[3], row[4]) for row in rows) == [
        ("0", "0", "+3.5"),
        ("0", "1", "+7"),
        ("1", "0", "+0"),
        ("1", "1", "+0"),
    ]
    assert [line.split()[-1] for line in out.split("\n\n")[2].splitlines()[2:6]] == ["-"] * 4


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--metric", "files.py:lats"), "files.py must define lats; it does not. Did you mean 'last'?"),
        (("--metric", "last"), "the metric must be named as module:callable or path/to/file.py:callable; 'last' came"),
        (("--metric", "files.py:word"), "files.py:word must be a function; it is of type str."),
        (("--metric", "files.py:lonely"), "files.py:lonely must take the model's output"),
        (("--metric", "files.py:broken"), "calling files.py:broken raised KeyError: 'nothing'"),
        (("--metric", "files.py:last", "--over", "gate"), "over='gate' needs a cell with gates; RNNCell has none"),
        (("--metric", "files.py:last", "--out", "effects.zarr"), "out must end in .nc"),
        (("--metric", "files.py:last", "--out", "x.npz"), "out must end in .nc"),
    ],
)
def test_a_mistake_is_one_sentence(run: Run, arguments: tuple[str, ...], said: str) -> None:
    code, out, err = run(*GIVEN, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"gatescope: {said}")
    assert err.count("\n") == 1
    assert not Path("effects.nc").exists()


def test_nothing_is_written_over(run: Run) -> None:
    Path("effects.nc").write_text("mine")
    code, _, err = run(*GIVEN, "--metric", "files.py:last")
    assert (code, Path("effects.nc").read_text()) == (2, "mine")
    assert err.startswith("gatescope: out must be a new path; effects.nc exists.")


def test_lesions_that_run_one_by_one_are_noted(run: Run) -> None:
    Path("loss.py").write_text(LOSS)
    code, _, err = run("loss.py:Loss", *GIVEN[1:], "--metric", "loss.py:value")
    assert (code, err) == (0, "note: lesions ran one by one: the model's output does not grow with its batch.\n")
