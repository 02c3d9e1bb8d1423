"""`gatescope fixed-points` on a network whose fixed points are known."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import gatescope as gs
from gatescope import cli

MODEL = """
import torch
from torch import nn

def build():
    rnn = nn.RNN(2, 1, bias=False)
    for weight in rnn.parameters():
        nn.init.constant_(weight, 2.0)
    return rnn
"""


def run(capsys: Any, monkeypatch: Any, *arguments: Any) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["gatescope", "fixed-points", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    captured = capsys.readouterr()
    return left.value.code, captured.out, captured.err


@pytest.fixture
def latch(tmp_path: Path) -> tuple[str, Path]:
    """A unit that holds its sign, and inputs that set it now and then."""
    (tmp_path / "net.py").write_text(MODEL)
    pulses = np.random.default_rng(0).choice([-1, 0, 0, 0, 1], (60, 2, 2)).astype(np.float32)
    np.savez(tmp_path / "x.npz", pulses)
    return f"{tmp_path / 'net.py'}:build", tmp_path / "x.npz"


def test_the_table_counts_the_points_and_the_file_holds_them(
    latch: tuple[str, Path], tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    model, inputs = latch
    out, picture = tmp_path / "points.nc", tmp_path / "points.png"
    code, said, error = run(capsys, monkeypatch, model, "--starts", inputs, "--out", out, "--picture", picture)
    assert (code, error) == (0, "")
    lines = said.splitlines()
    assert lines[0] == "model (RNNCell, forward, layers 0): 3 fixed and 0 slow points from 376 starts"
    assert [line.split()[:4] for line in lines[2:4]] == [
        ["fixed", "stable", "0", "2"],
        ["fixed", "repelling", "1", "1"],
    ]
    assert lines[3].split()[-1] == f"{-1 / np.log(2):.3g}"
    assert picture.read_bytes().startswith(b"\x89PNG")
    with xr.open_dataset(out, engine="h5netcdf") as found:
        assert sorted(found["stability"].values.tolist()) == ["repelling", "stable", "stable"]


def test_a_recording_can_give_the_starts_and_an_input_moves_the_points(
    latch: tuple[str, Path], tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    model, inputs = latch
    with np.load(inputs) as arrays:
        rnn = torch.nn.RNN(2, 1, bias=False)
        gs.save_recording(gs.record(rnn, torch.from_numpy(arrays["arr_0"])), tmp_path / "run.nc")
    options = ("--starts", tmp_path / "run.nc", "--out", tmp_path / "p.nc", "--input", "1,0.5")
    code, said, _ = run(capsys, monkeypatch, model, *options)
    assert code == 0
    assert "1 fixed and 0 slow points" in said  # tanh(2 h + 3) has only one


def test_what_does_not_fit_is_one_sentence(
    latch: tuple[str, Path], tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    model, inputs = latch
    for options, said in (
        (("--out", tmp_path / "p.zarr"), "out must end in .nc"),
        (("--out", tmp_path / "p.nc", "--input", "1,x"), "input must be numbers separated by commas; '1,x' came"),
        (("--out", tmp_path / "p.nc", "--input", "1,2,3"), "input must be one vector of 2 numbers"),
        (("--out", tmp_path / "p.nc", "--direction", "backward"), "direction must be one of ['forward']"),
    ):
        code, out, error = run(capsys, monkeypatch, model, "--starts", inputs, *options)
        assert (code, out, error.count("\n")) == (2, "", 1)
        assert said in error


@pytest.mark.parametrize(
    ("picture", "said"),
    [("nowhere/p.png", "picture must be in a folder that exists"), ("p.foo", "picture must end in .png")],
)
def test_a_picture_that_cannot_be_written_is_told_before_the_search(
    capsys: Any, monkeypatch: Any, tmp_path: Path, latch: tuple[str, Path], picture: str, said: str
) -> None:
    out = tmp_path / "points.nc"
    code, _, error = run(
        capsys, monkeypatch, latch[0], "--starts", latch[1], "--out", out, "--picture", tmp_path / picture
    )
    assert (code, out.exists()) == (2, False)
    assert said in error
