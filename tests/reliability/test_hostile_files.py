"""Spoiled and foreign files: always one sentence, never another error, a hang, a flood of memory or a changed file."""

import json
import select
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
import torch
import xarray as xr

import gatescope as gs

Make = Callable[..., xr.Dataset]
SCRIPT = Path(__file__).with_name("hostile.py")
CASES = subprocess.run(
    [sys.executable, str(SCRIPT), "--list"], capture_output=True, text=True, check=True
).stdout.splitlines()
SECONDS, MEGABYTES = 20, 200
KINDS = ("SchemaError: ", "FileNotFoundError: ", "PermissionError: ")


class Opener:
    """A process that opens spoiled recordings; a new one where it has died or hangs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.errors = folder, folder / "errors.txt"
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> subprocess.Popen[str]:
        command = [sys.executable, str(SCRIPT), str(self.folder)]
        with self.errors.open("a") as errors:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)

    def ask(self, name: str) -> dict[str, Any]:
        seconds = SECONDS if self.process else 90  # the first answer waits for imports
        self.process = self.process or self.start()
        sink, source = (pipe for pipe in (self.process.stdin, self.process.stdout) if pipe is not None)
        print(name, file=sink, flush=True)
        line = answer_in(source, seconds)
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        self.stop()
        return {"broke": "it hangs" if line is None else f"the process died: {self.errors.read_text()[-500:]}"}

    def stop(self) -> None:
        """End it; nothing but its answers may have been printed."""
        if self.process:
            self.process.kill()
            self.process.communicate()
            self.process = None


def answer_in(source: IO[str], seconds: float) -> str | None:
    return source.readline() if select.select([source], [], [], seconds)[0] else None


@pytest.fixture(scope="module")
def opener(tmp_path_factory: pytest.TempPathFactory, valid: Callable[[Path], None]) -> Iterator[Opener]:
    folder = tmp_path_factory.mktemp("hostile")
    valid(folder)
    opener = Opener(folder)
    yield opener
    opener.stop()
    assert opener.errors.read_text() == ""


@pytest.fixture(scope="module")
def valid(pytestconfig: pytest.Config) -> Callable[[Path], None]:
    """Writes one valid recording of each kind into a folder."""
    space: dict[str, Any] = {}
    exec((Path(__file__).parents[1] / "conftest.py").read_text(), space)
    make: Make = space["lstm_recording"]

    def write(folder: Path) -> None:
        nodes = {"encoder.rnn": make(), "decoder": make(layers=1, units=2, module="decoder")}
        for suffix in (".zarr", ".nc"):
            gs.save_recording(make(), folder / f"plain{suffix}")
            gs.save_recording(xr.DataTree.from_dict(nodes), folder / f"tree{suffix}")
        broken_off(folder)

    return write


def broken_off(folder: Path) -> None:
    """A stream as a killed process leaves it."""
    torch.manual_seed(0)
    model = torch.nn.LSTM(3, 5, num_layers=2)
    tokens = {"token": ["a" * 12, "b" * 12]}
    path = folder / "run.zarr"
    with torch.no_grad(), gs.attach(model, store=path, labels=lambda args, kwargs: tokens) as probe:
        for _ in range(3):
            model(torch.randn(12, 2, 3))
        probe.flush()
        shutil.copytree(path, folder / "stream.zarr")


def check(opener: Opener, name: str) -> dict[str, str]:
    answer = opener.ask(name)
    assert "broke" not in answer, f"{answer['broke']} {answer.get('trace', '')}"
    said: dict[str, str] = answer["said"]
    for where, words in said.items():
        assert "\n" not in words
        assert len(words) < 1000
        assert where == "dashboard" or not words or words.startswith(KINDS), words
    assert not answer["changed"]
    assert not answer["warned"]
    assert answer["grown"] < MEGABYTES
    assert said["open"] or not must_not_open(name)
    return said


LEADING_ELSEWHERE = ("link", "pipe", "device", "elsewhere", "another file")
CLAIMING_TOO_MUCH = ("steps", "shape [", "endless", "huge", "10**10")


GOING_ON = [name for name in CASES if name.startswith("go on")]
REFUSALS = (*KINDS, "FileExistsError: ", "DifferentError: ")
UNHEEDED = (
    *("stream.zarr: root: ", "stream.zarr: 10**12 steps", "stream.zarr: 3 * 10**7 steps"),
    *("stream.zarr: metadata that is no text", "large json"),
)
"""In a store that was broken off the commit record counts, and neither the root's attributes nor the room in arrays."""
LOST_NOTHING = (*UNHEEDED, "blank", "flip", "swap_files", "300 arrays", "deep folders", "attribute", "bounds", "role")


def check_going_on(opener: Opener, name: str) -> None:
    """Refused in a sentence and untouched; or gone on with, where what was spoiled is nothing that a writer reads."""
    answer = opener.ask(name)
    assert "broke" not in answer, f"{answer['broke']} {answer.get('trace', '')}"
    words = answer["said"]["append"]
    assert "\n" not in words
    assert len(words) < 1000
    assert not answer["changed"]
    assert not answer["warned"]
    assert answer["grown"] < MEGABYTES
    if words:
        assert words.startswith(REFUSALS), words
    else:
        assert any(word in name for word in LOST_NOTHING), "it was gone on with"
        assert answer["said"]["open"].startswith(("", *KINDS))


def must_not_open(name: str) -> bool:
    beyond_the_commit = name == "stream.zarr: 2 * 10**8 steps"  # what is not committed is not looked at
    return any(word in name for word in LEADING_ELSEWHERE + CLAIMING_TOO_MUCH) and not beyond_the_commit


def is_quick(name: str, number: int) -> bool:
    """Every ninth of those spoiled at random; of those spoiled on purpose every fifth, and some of the worst."""
    worst = ("pipe", "device", "itself", "its like", "another file", "10**12")
    return number % (9 if name[-1].isdigit() else 5) == 0 or any(word in name for word in worst)


def of(chosen: list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", chosen)


OPENED = [name for name in CASES if name not in GOING_ON]
QUICK = [name for number, name in enumerate(OPENED) if is_quick(name, number)]


@of(QUICK)
def test_a_spoiled_recording_is_refused_in_one_sentence_or_read_as_it_is(opener: Opener, name: str) -> None:
    check(opener, name)


@pytest.mark.slow
@of([name for name in OPENED if name not in QUICK])
def test_so_is_every_other(opener: Opener, name: str) -> None:
    check(opener, name)


WORST = (
    "link: metadata to itself",
    "link: chunk to a file",
    "a pipe as a chunk",
    "codec of compression",
    "journal elsewhere",
)
FEW = [
    name for name in GOING_ON if name.endswith(("delete", "truncate", "append", ": noise", "pickle", "group elsewhere"))
]


@of([*FEW, *(name for name in GOING_ON if any(word in name for word in WORST))])
def test_a_spoiled_store_is_not_gone_on_with_and_not_touched(opener: Opener, name: str) -> None:
    check_going_on(opener, name)


@pytest.mark.slow
@of(GOING_ON)
def test_no_spoiled_store_is_gone_on_with_or_touched(opener: Opener, name: str) -> None:
    check_going_on(opener, name)


def test_what_a_folder_holds_that_is_no_store_is_never_thrown_away(tmp_path: Path) -> None:
    path, model = tmp_path / "run.zarr", torch.nn.GRU(3, 4)
    with gs.attach(model, store=path):
        model(torch.zeros(5, 2, 3))
    (path / ".stream" / "zarr.json").unlink()
    again = gs.attach(model, store=path, append=True)
    with pytest.raises(FileExistsError, match="is something else"), again:
        pass
    assert gs.open_recording(path).attrs["calls"] == 1


def test_there_are_more_than_200_cases() -> None:
    assert len(CASES) == len(set(CASES)) > 300


def test_what_was_not_spoiled_is_opened(opener: Opener) -> None:
    for name in ("plain.zarr", "plain.nc", "tree.zarr", "tree.nc", "stream.zarr"):
        gs.validate(gs.open_recording(opener.folder / name), values=True)


def test_a_pickle_is_never_run(opener: Opener) -> None:
    check(opener, next(name for name in CASES if name.endswith(": pickle")))
    assert not Path("/tmp/gatescope_was_pickled").exists()


@pytest.mark.parametrize("thing", ["nothing", "a link to itself"])
def test_the_command_line_says_one_sentence(tmp_path: Path, thing: str) -> None:
    path = tmp_path / "run.zarr"
    if thing == "a link to itself":
        path.symlink_to(path)
    command = [sys.executable, "-m", "gatescope", "dashboard", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("gatescope: PATH must be a recording")
