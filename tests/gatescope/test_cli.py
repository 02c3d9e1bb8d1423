"""The command line on a user's own files, in this process but for what only a process of its own can show."""

import importlib
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import gatescope as gs
from gatescope import cli

NETS = """
import torch
from torch import nn

class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.rnn = nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True)

    def forward(self, letters):
        return self.rnn(self.embedding(letters))[0]

class Packing(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(3, 5, batch_first=True)

    def forward(self, x, lengths):
        return self.gru(nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))

class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.RNN(3, 5), nn.GRU(5, 2)

    def forward(self, x, scale=1):
        return self.second(self.first(x * scale)[0])[0]

class StrangeLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))

def seeded(cls):
    torch.manual_seed(0)
    return cls()

def build():
    return seeded(Tagger).eval()

def training():
    return seeded(Tagger)

def packing():
    return seeded(Packing).eval()

def two():
    return seeded(Two).eval()

def strange():
    return nn.ModuleDict({"odd": StrangeLSTM(), "fine": nn.GRU(2, 3)})

def plain():
    return nn.Linear(2, 3)

def breaks():
    raise KeyError("weights")

def three():
    return 3

def needs(path):
    return path

ready = build()
count = 3
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run the command in a folder with the user's nets.py; returns exit code, standard output, standard error."""
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    importlib.invalidate_caches()

    def command(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gatescope", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    yield command
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def letters(tmp_path: Path) -> Path:
    numbers = np.array([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 5, 0, 0, 0]])
    np.savez(tmp_path / "letters.npz", letters=numbers, lengths=np.array([7, 4]), label_number=numbers)
    return tmp_path / "letters.npz"


def test_inspect_prints_sizes_and_both_parameter_counts(run: Run) -> None:
    code, out, err = run("inspect", "nets:build")
    assert (code, err) == (0, "")
    header, row, explanation = out.splitlines()
    assert re.split(r"\s{2,}", header)[:4] == ["path", "kind", "input", "hidden"]
    inner, outer = 4 * 6 * (4 + 6 + 2) * 2, 4 * 6 * (12 + 6 + 2) * 2
    one_bias = inner + outer - 4 * 4 * 6
    assert row.split() == ["rnn", "LSTM", "4", "6", "-", "2", "2", f"{inner + outer:,}", f"{one_bias:,}"]
    assert "one bias" in explanation


def test_inspect_says_what_cannot_be_observed_and_why(run: Run) -> None:
    code, out, _ = run("inspect", "nets.py:strange")
    assert code == 0
    *_, last = out.splitlines()
    assert last.startswith("not observable: odd (StrangeLSTM), because ")
    assert "gatescope.register" in last


@pytest.mark.parametrize("name", ["nets:build", "nets.py:build", "./nets.py:build", "nets:Tagger", "nets:ready"])
def test_a_model_is_named_by_module_or_file_as_function_class_or_object(run: Run, name: str) -> None:
    code, out, _ = run("inspect", name)
    assert code == 0
    assert "rnn   LSTM" in out


def test_a_file_elsewhere_can_import_its_neighbours(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "parts_of_it.py").write_text("from torch import nn\nrnn = nn.GRU(2, 3)\n")
    (folder / "whole.py").write_text("import parts_of_it\ndef build():\n    return parts_of_it.rnn\n")
    code, out, _ = run("inspect", "elsewhere/whole.py:build")
    assert code == 0
    assert "model  GRU" in out


@pytest.mark.parametrize("ending", ["zarr", "nc"])
def test_record_writes_what_record_returns_in_python(run: Run, letters: Path, tmp_path: Path, ending: str) -> None:
    code, out, err = run("record", "nets:build", "--inputs", letters, "--out", f"run.{ending}")
    assert (code, err) == (0, "")
    assert "module   rnn (LSTMCell)\n" in out
    assert "layer 2, direction 2, sequence 2, time 7, unit 6\n" in out
    assert re.search(r"parity +\d\.\de-?\+?\d+ of", out)
    assert re.search(rf"written +run\.{ending} \(\d+\.\d kB\)", out)
    assert out.rstrip().endswith(f"gatescope dashboard run.{ending}")

    import torch

    sys.path.insert(0, str(tmp_path))
    nets = importlib.import_module("nets")
    numbers = np.load(letters)["letters"]
    expected = gs.record(nets.build(), torch.from_numpy(numbers), lengths=[7, 4], labels={"number": numbers})
    with gs.open_recording(tmp_path / f"run.{ending}") as written:
        for name in ("forget_gate", "cell_state", "hidden_state"):
            np.testing.assert_array_equal(written[name], expected[name])
        np.testing.assert_array_equal(written["number"], expected["number"])
        assert written["length"].values.tolist() == [7, 4]
        assert written.attrs["training"] == 0


def test_numbered_arrays_are_positional_and_doubles_take_the_models_precision(run: Run, tmp_path: Path) -> None:
    x, scale = np.random.default_rng(0).normal(size=(7, 2, 3)), np.array(0.0)
    np.savez(tmp_path / "x.npz", x, scale)
    code, _, err = run("record", "nets:two", "--inputs", "x.npz", "--out", "run.nc", "--module", "first")
    assert code == 0, err
    with gs.open_recording(tmp_path / "run.nc") as written:
        assert written.attrs["module"] == "first"
        assert written["hidden_state"].dtype == np.float32
        across = written["hidden_state"].std("sequence").max()
    assert float(across) < 1e-6  # scale = 0 came second, so all sequences read the same


def test_a_forward_that_takes_lengths_gets_them(run: Run, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.ones((2, 6, 3), np.float32), lengths=np.array([3, 6]))
    code, _, err = run("record", "nets:packing", "--inputs", "x.npz", "--out", "run.nc")
    assert code == 0, err
    with gs.open_recording(tmp_path / "run.nc") as written:
        assert written["length"].values.tolist() == [3, 6]


def test_labels_come_from_text_json_and_arrays(run: Run, letters: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcdefg\nhijk\n")
    (tmp_path / "b.json").write_text(json.dumps([list("ABCDEFG"), list("HIJK")]))
    np.save(tmp_path / "c.npy", np.arange(14).reshape(2, 7) % 2 == 0)
    given = [f"--label={name}={file}" for name, file in (("letter", "a.txt"), ("tag", "b.json"), ("even", "c.npy"))]
    code, _, err = run("record", "nets:build", "--inputs", letters, "--out", "run.zarr", *given)
    assert code == 0, err
    written = gs.open_recording(tmp_path / "run.zarr")
    assert "".join(written["letter"].values[1]) == "hijk"
    assert "".join(written["tag"].values[0]) == "ABCDEFG"
    assert written["even"].values[1].tolist() == [False, True, False, True, False, False, False]


def test_text_labels_keep_every_character_of_a_line_and_no_mark_of_a_file(
    run: Run, letters: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_bytes("abc\u2028efg\r\nhi\x0ck\r\n".encode("utf-8-sig"))
    code, _, err = run("record", "nets:build", "--inputs", letters, "--out", "run.zarr", "--label=letter=a.txt")
    assert code == 0, err
    written = gs.open_recording(tmp_path / "run.zarr")
    assert "".join(written["letter"].values[0]) == "abc\u2028efg"
    assert "".join(written["letter"].values[1]) == "hi\x0ck"


def test_numbers_of_another_byte_order_are_numbers(run: Run, letters: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "big.npz", letters=np.load(letters)["letters"].astype(">i8"))
    code, _, err = run("record", "nets:build", "--inputs", "big.npz", "--out", "run.nc")
    assert code == 0, err


def test_numbers_that_are_not_finite_are_said_in_a_note(run: Run, tmp_path: Path) -> None:
    x = np.ones((7, 2, 3), np.float32)
    x[3, 1] = np.nan
    np.savez(tmp_path / "x.npz", x)
    code, _, err = run("record", "nets:two", "--inputs", "x.npz", "--out", "run.nc", "--module", "first")
    assert code == 0, err
    assert err.startswith("note: the model computed NaN or Inf in 1 of 2 sequences, first at step 3 of sequence 1")
    assert err.count("\n") == 1


def test_signals_and_preactivations_are_chosen(run: Run, letters: Path, tmp_path: Path) -> None:
    common = ("record", "nets:build", "--inputs", letters)
    assert run(*common, "--out", "all.nc", "--preactivations")[0] == 0
    assert run(*common, "--out", "one.nc", "--signal", "forget_gate")[0] == 0
    with gs.open_recording(tmp_path / "all.nc") as everything, gs.open_recording(tmp_path / "one.nc") as one:
        assert "forget_gate_preactivation" in everything
        assert "forget_gate" in one
        assert "input_gate" not in one


def test_a_model_in_training_mode_stays_so_and_the_command_says_it(run: Run, letters: Path, tmp_path: Path) -> None:
    code, _, err = run("record", "nets:training", "--inputs", letters, "--out", "run.nc")
    assert code == 0
    assert err.startswith("note: the model is in training mode")
    with gs.open_recording(tmp_path / "run.nc") as written:
        assert written.attrs["training"] == 1


MISTAKES = {
    "nothing to inspect": ("inspect", "Missing argument"),
    "no colon": ("inspect nets", "'nets' came. Add a colon"),
    "no such module": ("inspect nots:build", "Did you mean 'nets'?"),
    "no such package": ("inspect no.such:build", "there is none of that name"),
    "no such file": ("inspect net.py:build", "Did you mean 'nets.py'?"),
    "no such callable": ("inspect nets:biuld", "Did you mean 'build'?"),
    "not callable": ("inspect nets:count", "it is of type int"),
    "callable raises": ("inspect nets:breaks", "raised KeyError: 'weights'"),
    "callable needs arguments": ("inspect nets:needs", "raised TypeError: needs() missing 1 required"),
    "not a module": ("inspect nets:three", "it returned int"),
    "nothing recurrent": ("inspect nets:plain", "must contain a recurrent module"),
    "import ends python": ("inspect script:build", "left Python with 3"),
    "import lacks a package": ("inspect lacking:build", "raised ModuleNotFoundError: No module named 'not_there'"),
    "syntax": ("inspect broken.py:build", "raised SyntaxError"),
    "no such command": ("look nets:build", "No such command 'look'"),
    "no such option": ("inspect nets:build --why", "--why"),
    "no inputs file": ("record nets:build --inputs no.npz --out run.nc", "there is no file no.npz"),
    "pickles": ("record nets:build --inputs objects.npz --out run.nc", "never unpickled"),
    "not an npz": ("record nets:build --inputs text.npz --out run.nc", "must be an .npz file of plain arrays"),
    "an archive of other things": ("record nets:build --inputs zip.npz --out run.nc", "'read.me' in it is no array"),
    "arguments from the second on": ("record nets:build --inputs second.npz --out run.nc", "came without 'arr_0'"),
    "single array": ("record nets:build --inputs single.npy --out run.nc", "holds a single array"),
    "cut off": ("record nets:build --inputs cut.npz --out run.nc", "must be an .npz file of plain arrays"),
    "unknown argument": ("record nets:build --inputs misnamed.npz --out run.nc", "Did you mean 'letters'?"),
    "missing argument": ("record nets:packing --inputs x.npz --out run.nc", "It takes: x, lengths."),
    "text for the model": ("record nets:build --inputs words.npz --out run.nc", "text can be a label"),
    "forward fails": (
        "record nets:build --inputs large.npz --out run.nc",
        "running the model on large.npz raised Index",
    ),
    "several modules": ("record nets:two --inputs x.npz --out run.nc", "Choose from: first, second."),
    "unknown module": ("record nets:build --inputs letters.npz --out run.nc --module rn", "Choose from: rnn."),
    "unknown signal": ("record nets:build --inputs letters.npz --out run.nc --signal gate", "'gate' came"),
    "out exists": ("record nets:build --inputs letters.npz --out nets.py", "nets.py exists"),
    "out has no kind": ("record nets:build --inputs letters.npz --out run", "must end in .zarr or .nc"),
    "out has no folder": ("record nets:build --inputs letters.npz --out no/run.nc", "no does not. Make it first"),
    "label is no pair": ("record nets:build --inputs letters.npz --out run.nc --label x", "must be NAME=FILE"),
    "no label file": ("record nets:build --inputs letters.npz --out run.nc --label a=b.txt", "there is no file b.txt"),
    "label of no kind": ("record nets:build --inputs letters.npz --out run.nc --label a=nets.py", ".npy, .json, .txt"),
    "label is broken": ("record nets:build --inputs letters.npz --out run.nc --label a=bad.json", "bad.json is not"),
    "label pickles": (
        "record nets:build --inputs letters.npz --out run.nc --label a=objects.npy",
        "objects.npy is not",
    ),
    "label does not fit": ("record nets:build --inputs letters.npz --out run.nc --label a=short.txt", "'a'"),
    "no recording": ("dashboard no.zarr", "there is none at no.zarr"),
}


def write_mistakes(folder: Path) -> None:
    (folder / "script.py").write_text("import sys\nsys.exit(3)\n")
    (folder / "lacking.py").write_text("import not_there\n")
    (folder / "broken.py").write_text("def build(:\n")
    (folder / "text.npz").write_text("no archive")
    (folder / "bad.json").write_text("[[1,")
    (folder / "short.txt").write_text("ab\nc\n")
    objects = np.array([{"a": 1}], dtype=object)
    np.save(folder / "objects.npy", objects, allow_pickle=True)
    np.save(folder / "single.npy", np.zeros(3))
    np.savez(folder / "objects.npz", letters=objects)
    np.savez(folder / "misnamed.npz", leters=np.zeros((2, 3), int))
    np.savez(folder / "words.npz", letters=np.array([["a", "b"]]))
    np.savez(folder / "large.npz", letters=np.full((2, 3), 99))
    np.savez(folder / "x.npz", x=np.ones((2, 6, 3), np.float32))
    np.savez(folder / "second.npz", arr_1=np.zeros((2, 3), int))
    with zipfile.ZipFile(folder / "zip.npz", "w") as archive:
        archive.writestr("read.me", "no array")
    (folder / "cut.npz").write_bytes((folder / "x.npz").read_bytes()[:100])


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_exit_code_2(run: Run, letters: Path, tmp_path: Path, mistake: str) -> None:
    command, expected = MISTAKES[mistake]
    write_mistakes(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__")
    code, out, err = run(*command.split())
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("gatescope: ")
    assert expected in err
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == before


def test_a_folder_that_may_not_be_written_to_is_named_before_the_model_is_made(
    run: Run, letters: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK)
    code, out, err = run("record", "nets:breaks", "--inputs", letters, "--out", "run.nc")
    assert (code, out) == (2, "")
    assert "may be written to" in err


def test_debug_shows_the_traceback_wherever_it_stands(run: Run) -> None:
    for arguments in (["--debug", "inspect", "nets:breaks"], ["inspect", "nets:breaks", "--debug"]):
        code, _, err = run(*arguments)
        assert code == 2
        assert "in breaks" in err
        assert err.rstrip().splitlines()[-1].startswith("gatescope: calling nets:breaks")


def test_dashboard_is_launched_with_its_paths_and_port(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gatescope.dashboards import launch

    calls: list[tuple[object, object]] = []
    monkeypatch.setattr(launch, "launch", lambda paths, *, port=None: calls.append((paths, port)))
    (tmp_path / "run.zarr").mkdir()
    assert run("dashboard", "run.zarr", "--port", "8600")[0] == 0
    assert run("dashboard")[0] == 0
    assert calls == [([Path("run.zarr")], 8600), ([], None)]


def test_demo_runs_into_the_folder_it_is_given(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    from gatescope import demo

    folders: list[Path] = []
    monkeypatch.setattr(demo, "run", folders.append)
    assert run("demo", "--out", "there")[0] == 0
    assert run("demo")[0] == 0
    assert folders == [Path("there"), Path("demo")]


def test_no_arguments_show_the_help(run: Run) -> None:
    code, out, err = run()
    assert (code, err) == (0, "")
    assert all(word in out for word in ("inspect", "record", "demo", "dashboard", "--version"))


def test_interruption_is_no_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gatescope.loading.load_model", interrupted)
    assert run("inspect", "nets:build") == (130, "", "")


def test_version_is_printed_by_the_installed_command_and_by_the_module_without_torch() -> None:
    installed = [str(Path(sys.executable).with_name("gatescope")), "--version"]
    module = [sys.executable, "-X", "importtime", "-m", "gatescope", "--version"]
    for command in (installed, module):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout == f"gatescope {gs.__version__}\n"
    assert not re.search(r"\| +(torch|numpy|xarray)$", done.stderr, flags=re.MULTILINE)


def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    made = "{str(i) * 100: nn.GRU(1, 1) for i in range(400)}"
    (tmp_path / "many.py").write_text(f"from torch import nn\ndef build():\n    return nn.ModuleDict({made})\n")
    command = f"{sys.executable} -m gatescope inspect many:build | head -n 1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("path")
    assert done.stderr == ""
