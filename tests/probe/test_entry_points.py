"""A package can bring its cells: what it declares is run once, when modules are first looked for, and may be broken."""

import os
import subprocess
import sys
import textwrap
import threading
import warnings

import pytest
import torch
from torch import nn

import gatescope as gs
from gatescope.cells import LSTMCell
from gatescope.probe import entry_points, find

CELLS = """
import threading

import torch
from torch import nn

calls = []
started = threading.Event()


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.LSTMCell(3, 4)

    def forward(self, x, state):
        return self.inner(x, state)


def as_cell(module):
    from gatescope.cells import LSTMCell
    cell = LSTMCell(3, 4, device="meta")
    cell.load_state_dict(module.inner.state_dict(), assign=True)
    return cell


def register():
    import gatescope as gs
    calls.append("register")
    gs.register(Decoder, as_cell)


def look():
    import gatescope as gs
    calls.append("look")
    assert [found.kind for found in gs.modules(Decoder())] == ["Decoder"]


def wait():
    import time
    started.set()
    time.sleep(0.3)
    register()


def fail():
    raise RuntimeError("no such\\nlicence.")


def leave():
    raise SystemExit(3)
"""


@pytest.fixture
def package(tmp_path, monkeypatch, request):
    """An installed package `brings_cells` with these entry points; nobody has looked for modules yet."""
    declared = request.param
    (tmp_path / "brings_cells.py").write_text(CELLS)
    info = tmp_path / "brings_cells-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: brings-cells\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in declared.items()]
    (info / "entry_points.txt").write_text("\n".join(["[gatescope.cells]", *lines]) + "\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(find, "_registered", {})
    monkeypatch.setattr(entry_points, "_declared", entry_points.Declared())
    yield tmp_path
    sys.modules.pop("brings_cells", None)


GOOD = {"decoder": "brings_cells:register"}


def declaring(**declared):
    return pytest.mark.parametrize("package", [declared], indirect=True, ids=[", ".join(declared)])


@declaring(**GOOD)
def test_a_package_brings_its_cells(package):
    assert "brings_cells" not in sys.modules
    assert gs.modules(nn.Linear(2, 2)) == []  # the first look
    import brings_cells

    model = nn.Sequential(brings_cells.Decoder())
    assert [(found.path, found.kind, found.reason) for found in gs.modules(model)] == [("0", "Decoder", "")]
    with gs.attach(model) as probe:
        state = (torch.zeros(2, 4), torch.zeros(2, 4))
        for x in torch.randn(5, 2, 3):
            state = model[0](x, state)
    assert probe.recording().sizes["time"] == 5
    assert brings_cells.calls == ["register"]


@declaring(again="brings_cells:look", decoder="brings_cells:register")
def test_a_function_that_itself_looks_for_modules_finds_what_the_others_bring(package):
    gs.modules(nn.Linear(2, 2))
    import brings_cells

    assert brings_cells.calls == ["look", "register"]


@declaring(slow="brings_cells:wait")
def test_a_thread_that_comes_meanwhile_waits_for_the_cells(package):
    first = threading.Thread(target=gs.modules, args=(nn.Linear(2, 2),))
    first.start()
    import brings_cells

    assert brings_cells.started.wait(10)
    assert [found.kind for found in gs.modules(brings_cells.Decoder())] == ["Decoder"]
    assert [found.reason for found in gs.modules(brings_cells.Decoder())] == [""]
    first.join()
    assert brings_cells.calls == ["register"]


BROKEN = {
    "absent": ("not_there_at_all:register", "ModuleNotFoundError"),
    "misspelt": ("brings_cells:regster", "AttributeError"),
    "raises": ("brings_cells:fail", "RuntimeError: no such licence. Its"),
    "leaves": ("brings_cells:leave", "SystemExit: 3"),
    "uncallable": ("brings_cells:CALLS", "AttributeError"),
    "a module": ("brings_cells", "TypeError"),
}
BREAKS = [pytest.param({"broken": value, **GOOD}, said, id=name) for name, (value, said) in BROKEN.items()]


@pytest.mark.parametrize(("package", "said"), BREAKS, indirect=["package"])
def test_a_broken_declaration_is_named_in_one_sentence_and_the_rest_is_loaded(package, said):
    with pytest.warns(RuntimeWarning) as caught:
        assert gs.modules(nn.LSTM(2, 3))[0].reason == ""
    (warning,) = caught
    message = str(warning.message)
    assert message.startswith(
        "the entry point 'broken' of brings-cells in the group 'gatescope.cells' must name a function"
    )
    assert said in message
    assert "\n" not in message
    import brings_cells

    assert brings_cells.calls == ["register"]
    assert gs.modules(brings_cells.Decoder())[0].path == "model"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gs.modules(nn.LSTM(2, 3))  # told once


@declaring(broken="brings_cells:fail", **GOOD)
def test_where_warnings_are_errors_the_next_look_works_all_the_same(package):
    with pytest.raises(RuntimeWarning, match="entry point 'broken'"):
        gs.attach(nn.LSTM(2, 3))
    assert gs.record(nn.LSTM(2, 3), torch.zeros(4, 1, 2)).sizes["time"] == 4
    import brings_cells

    assert gs.modules(brings_cells.Decoder())[0].path == "model"


@declaring(**GOOD)
def test_what_was_registered_by_hand_stays(package):
    import brings_cells

    def mine(module):
        cell = LSTMCell(3, 4, device="meta")
        cell.load_state_dict(module.inner.state_dict(), assign=True)
        return cell

    gs.register(brings_cells.Decoder, mine)
    assert find.registration(brings_cells.Decoder()).as_cell is mine
    assert brings_cells.calls == ["register"]


@declaring(**GOOD)
def test_importing_and_registering_run_nobodys_code(package):
    program = """
        import sys
        import gatescope as gs
        from torch import nn
        gs.register(nn.Bilinear, lambda module: None)
        assert "brings_cells" not in sys.modules
        assert len(gs.modules(nn.GRU(2, 3))) == 1
        assert sys.modules["brings_cells"].calls == ["register"]
        gs.modules(nn.GRU(2, 3))
        assert sys.modules["brings_cells"].calls == ["register"]
    """
    paths = os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
