"""`gatescope gradient-flow` on recordings and models whose decay is known."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import gatescope as gs
from gatescope import cli

MODEL = """
import torch
from torch import nn

def build():
    rnn = nn.RNN(1, 1, nonlinearity="relu", bias=False, num_layers=2)
    for name, weight in rnn.named_parameters():
        nn.init.constant_(weight, 0.5 if "hh" in name else 1.0)
    return rnn
"""


def run(capsys, monkeypatch, *arguments):
    monkeypatch.setattr("sys.argv", ["gatescope", "gradient-flow", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    captured = capsys.readouterr()
    return left.value.code, captured.out, captured.err


@pytest.fixture
def halving(tmp_path):
    """A plain RNN that keeps half at every step, and a file of arrays for it."""
    (tmp_path / "net.py").write_text(MODEL)
    np.savez(tmp_path / "x.npz", np.ones((40, 2, 1), np.float32))
    return f"{tmp_path / 'net.py'}:build", tmp_path / "x.npz"


def test_a_model_that_halves_shows_halves(halving, capsys, monkeypatch):
    model, inputs = halving
    code, out, err = run(capsys, monkeypatch, model, "--inputs", inputs)
    assert (code, err) == (0, "")
    assert out.startswith("model (RNNCell): 2 sequences of up to 40 steps\n")
    header, *rows = out.split("\n\n")[1].splitlines()
    assert header.replace("k = ", "").split() == ["layer", "direction", "1", "2", "5", "10", "20", "39"]
    for row in rows:
        assert row.split()[2:4] == ["0.50", "0.25"]
        assert row.split()[-1] == f"10^{39 * math.log10(0.5):.1f}"
    assert out.count("vanishing") == 2
    assert [row.split()[2] for row in out.split("\n\n")[2].splitlines()[1:]] == ["1", "1"]


def test_a_recording_shows_the_shares_of_the_paths_of_its_module(tmp_path, capsys, monkeypatch):
    lstm = nn.LSTM(2, 3)
    for weight in lstm.parameters():
        nn.init.zeros_(weight)
    gs.set_forget_bias(lstm, 2.0)
    gs.save_recording(gs.record(lstm, torch.ones(30, 1, 2)), tmp_path / "run.zarr")
    code, out, err = run(capsys, monkeypatch, tmp_path / "run.zarr", "--horizon", 10, "--horizon", 3)
    assert (code, err) == (0, "")
    kept = 1 / (1 + math.exp(-2))
    assert out.split("\n\n")[1].splitlines()[1].split()[2:] == [f"{kept**3:.2f}", f"{kept**10:.2f}"]
    shares = out.split("\n\n")[3].splitlines()
    assert shares[1].split("  ")[0] == "layer"
    assert shares[2].split()[2:4] == ["100", "%"]


def test_several_modules_need_a_name(tmp_path, capsys, monkeypatch):
    model = nn.ModuleDict({"a": nn.GRU(2, 3), "b": nn.LSTM(2, 3)})
    with gs.attach(model) as probe:
        model["a"](torch.ones(9, 1, 2))
        model["b"](torch.ones(9, 1, 2))
    gs.save_recording(probe.tree(), tmp_path / "both.zarr")
    code, _, err = run(capsys, monkeypatch, tmp_path / "both.zarr")
    assert (code, err.count("\n")) == (2, 1)
    assert "none came. Choose from: a, b." in err
    code, out, _ = run(capsys, monkeypatch, tmp_path / "both.zarr", "--module", "b")
    assert code == 0
    assert out.startswith("b (LSTMCell): 1 sequence of up to 9 steps")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.zarr"], "WHAT must be a recording or a model"),
        (["net:build"], "must come with arrays to run it on; none came. Add --inputs"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(arguments, said, capsys, monkeypatch):
    code, out, err = run(capsys, monkeypatch, *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
