"""`gatescope reproduce` as users run it: killed, stopped, started again, on networks that are given up early."""

import os
import random
import re
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import xarray as xr

from gatescope import cli, reproduce, reproduce_bars

SIZE = ("--networks", "12", "--variants", "forget,1997", "--max-streams", "1500")
DUE = 24


def command(out: Path, *arguments: str, what: str = "cerg") -> list[str]:
    return [sys.executable, "-m", "gatescope", "reproduce", what, "--out", str(out), *arguments]


def started(out: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(out, *SIZE, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished(out: Path) -> int:
    return len(list(out.glob("networks/*/[0-9]*.npz")))


def wait_for(number: int, out: Path, process: "subprocess.Popen[str]") -> None:
    """Until so many networks are on disk."""
    deadline = time.monotonic() + 120
    while finished(out) < number:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def left_behind(group: int) -> list[psutil.Process]:
    """What is left of the processes of a session."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def gone(group: int) -> bool:
    deadline = time.monotonic() + 30
    while left_behind(group):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def contents(out: Path) -> dict[str, str | xr.Dataset]:
    """What a folder says, but for the networks' files, whose seconds are their own."""
    with xr.open_dataset(out / "table.nc", engine="h5netcdf") as table:
        return {"nc": table.load(), **{name: (out / name).read_text() for name in ("table.txt", "table.csv")}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing disturbed, in one process."""
    out = tmp_path_factory.mktemp("whole") / "out"
    done = subprocess.run(command(out, *SIZE, "--jobs", "1"), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return out


def check_same(out: Path, whole: Path) -> None:
    ours, expected = contents(out), contents(whole)
    xr.testing.assert_identical(ours.pop("nc"), expected.pop("nc"))
    assert ours == expected
    assert finished(out) == DUE
    assert not list(out.rglob("*.partial"))


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_run_that_is_killed_again_and_again_makes_the_table_of_one_that_is_not(
    whole: Path, tmp_path: Path, jobs: str
) -> None:
    out, chance = tmp_path / "out", random.Random(int(jobs))
    there = []
    for number in (0, 3, 9):
        process = started(out, "--jobs", jobs)
        wait_for(number, out, process)
        time.sleep(chance.uniform(0, 0.1))
        process.kill()
        process.communicate()
        assert gone(process.pid)  # no worker outlives it
        there.append(finished(out))
    assert there[0] < DUE  # the later kills may come late where the machine is busy: training takes milliseconds
    assert 9 <= there[-1] <= DUE
    last = subprocess.run(command(out, *SIZE, "--jobs", jobs), capture_output=True, text=True, check=False, timeout=300)
    assert last.returncode == 0, last.stderr
    assert f"{there[-1]} of {DUE} networks were in {out} already; left to train: {DUE - there[-1]}\n" in last.stderr
    assert "trained again" not in last.stderr
    check_same(out, whole)


def test_ctrl_c_leaves_a_valid_partial_table_and_the_same_command_goes_on(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = started(out, "--jobs", "2")
    wait_for(3, out, process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert gone(process.pid)
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("stopped; what was finished is in ")
    there = finished(out)
    partial = contents(out)
    assert isinstance(partial["nc"], xr.Dataset)
    assert int(partial["nc"]["networks"].sum()) == there < DUE
    assert "Partial: " in str(partial["table.txt"])
    assert subprocess.run(command(out, *SIZE), check=False, capture_output=True, timeout=300).returncode == 0
    check_same(out, whole)


def test_a_half_written_network_is_set_aside_said_and_trained_again(whole: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    subprocess.run(["cp", "-r", str(whole), str(out)], check=True)
    victim = out / "networks" / "forget" / "0007.npz"
    victim.write_bytes(victim.read_bytes()[:-200])
    done = subprocess.run(command(out, *SIZE), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0
    assert re.search(r"network 7 of forget is trained again: it is half-written .*set-aside/forget-0007-", done.stderr)
    assert f"{DUE - 1} of {DUE} networks were in {out} already; left to train: 1\n" in done.stderr
    check_same(out, whole)


def test_nothing_is_trained_twice(whole: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.glob("networks/*/*.npz")}
    done = subprocess.run(command(whole, *SIZE), capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0
    assert f"{DUE} of {DUE} networks were in {whole} already; left to train: 0\n" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in whole.glob("networks/*/*.npz")} == before
    assert (whole / "table.txt").read_text().rstrip() in done.stdout


def test_a_terminal_shows_a_bar_for_each_row_with_the_time_left(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    termios, fcntl = pytest.importorskip("termios"), pytest.importorskip("fcntl")
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 100, 0, 0))
    arguments = command(tmp_path / "out", "--networks", "3", "--variants", "forget,1997", "--max-streams", "300")
    process = subprocess.Popen([*arguments, "--jobs", "1"], stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    process.communicate(timeout=60)
    assert process.returncode == 0
    text = seen.decode()
    for row in ("forget gate", "1997"):
        assert re.search(rf"{row} *:.*3/3 \[\d\d:\d\d<00:00", text)
        assert re.search(rf"{row} *:.*[12]/3 \[\d\d:\d\d<\d\d:\d\d", text)


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in an empty folder; returns exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def given(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gatescope", "reproduce", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return given


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("crg", "what to reproduce must be cerg, erg or figures; 'crg' came. Did you mean 'cerg'?"),
        ("cerg --networks 0", "--networks must be a whole number of at least 1; 0 came. Leave it out."),
        ("cerg --jobs -1", "--jobs must be a whole number of at least 1; -1 came. Leave it out."),
        ("cerg --max-streams 0", "--max-streams must be a whole number of at least 1; 0 came. Leave it out."),
        ("cerg --seed -1", "--seed must be a whole number from 0; -1 came. Leave it out for 0."),
        ("cerg --variants frget", "--variants must name rows of cerg; 'frget' came. Did you mean 'forget'?"),
        ("cerg --variants lstm", "--variants must name rows of cerg; 'lstm' came. There are: external-reset, 1997, "),
        ("erg --variants forget", "--variants must name rows of erg; 'forget' came. There are: lstm, "),
        ("cerg --sweep gama", "--sweep must be one of alpha, gamma, bias, decay; 'gama' came. Did you mean 'gamma'?"),
        ("erg --sweep alpha", "--sweep goes with cerg; erg came. Leave it out."),
        ("cerg --sweep alpha --variants forget", "rows are chosen by --variants or by --sweep; both came."),
        ("cerg --jobs 2 --scheduler tcp://h:1", "networks are trained by --jobs or by --scheduler; both came."),
        ("cerg --scheduler h", "--scheduler must be the address of a Dask scheduler, as tcp://host:8786; 'h' came."),
        ("cerg --out file", "out must be a folder; file is a file. Name another one with --out."),
        ("cerg --out full", "out must be a new or empty folder, or one of results; full holds mine. Name another"),
        ("figures --quick --jobs 2", "figures are made with --out alone; --jobs came. Leave it out."),
    ],
)
def test_bad_input_is_one_sentence(run: Run, tmp_path: Path, arguments: str, said: str) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full" / "mine").mkdir(parents=True)
    code, out, err = run(*arguments.split())
    assert (code, out) == (2, "")
    assert err.startswith(f"gatescope: {said}")
    assert err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full", "mine"]  # nothing was begun


@pytest.mark.parametrize(
    ("arguments", "said"),
    [("--seed 3", "seed 0 where 3 came"), ("--max-streams 20", "max_streams 10 where 20 came")],
)
def test_results_of_other_settings_are_refused_and_the_setting_is_named(run: Run, arguments: str, said: str) -> None:
    begin = ["cerg", "--jobs", "1", "--networks", "1", "--variants", "forget", "--max-streams", "10"]
    assert run(*begin)[0] == 0
    code, out, err = run(*begin, *arguments.split())
    assert (code, out) == (2, "")
    assert said in err
    assert run(*begin)[0] == 0  # and what was there still goes on


def test_each_kind_of_run_has_a_folder_of_its_own_by_default(run: Run, tmp_path: Path) -> None:
    for arguments in (
        "cerg --variants 1997",
        "erg --variants lstm",
        "cerg --quick --variants 1997",
        "cerg --sweep alpha",
    ):
        code, _, err = run(*arguments.split(), "--networks", "1", "--max-streams", "2", "--jobs", "1")
        assert code == 0, err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cerg", "cerg-alpha", "cerg-quick", "erg"]
    with xr.open_dataset(tmp_path / "cerg-alpha" / "table.nc", engine="h5netcdf") as table:
        assert "forget-alpha-0.1" in table["row"].values
        assert set(table["agreement"].values) == {"beyond the report"}


def test_all_rows_of_every_sweep_can_be_trained(run: Run) -> None:
    for sweep in ("alpha", "gamma", "bias", "decay"):
        code, out, err = run("cerg", "--sweep", sweep, "--networks", "1", "--max-streams", "2", "--jobs", "1")
        assert code == 0, err
        assert len([line for line in out.splitlines() if "  here  " in line]) >= 4


def test_results_go_to_standard_output_and_notes_to_standard_error(run: Run) -> None:
    code, out, err = run("cerg", "--networks", "1", "--variants", "1997", "--max-streams", "2", "--jobs", "1")
    assert code == 0
    assert out.startswith("CERG: continual embedded Reber grammar")
    assert out.endswith("Written to cerg: table.txt, table.csv, table.nc, and the networks\n")
    assert "1 network to train, rows: 1; each is in cerg as soon as it is finished" in err
    assert "1997: finished, 1 of 1" in err


def test_a_cluster_that_is_not_there_begins_no_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr("gatescope.tasks.cluster.PATIENCE", 0.5)
    code, _, err = run("cerg", "--scheduler", "tcp://127.0.0.1:9", "--out", "new")
    assert code == 2
    assert "does not answer" in err
    assert not (tmp_path / "new").exists()


def test_lost_networks_are_said_after_the_table_of_the_others(tmp_path: Path) -> None:
    from gatescope.tasks.campaign import NetworkError
    from gatescope.tasks.results import results_folder
    from gatescope.tasks.rows import chosen_rows

    said: list[str] = []
    with results_folder(tmp_path / "out", chosen_rows("cerg", ["forget"]), 1) as results:
        with pytest.raises(NetworkError, match=r"network 0 of forget: its worker died .* Start the same command again"):
            reproduce.finished_table(results, ["network 0 of forget: its worker died 3 times"], said.append)
        assert said[0].startswith("CERG: ")


class Clock:
    """What is ticked of a bar."""

    def __init__(self, disable: bool) -> None:
        self.disable = disable
        self.refreshed = 0

    def refresh(self) -> None:
        self.refreshed += 1


def test_clocks_of_bars_run_while_nothing_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce_bars, "TICK", 0.001)
    seen, hidden = Clock(disable=False), Clock(disable=True)
    before = threading.active_count()
    deadline = time.monotonic() + 30
    with reproduce_bars.ticking([seen]):
        while seen.refreshed < 3 and time.monotonic() < deadline:
            time.sleep(0.001)
    assert seen.refreshed >= 3
    with reproduce_bars.ticking([hidden]):
        time.sleep(0.01)
    assert hidden.refreshed == 0
    assert threading.active_count() == before


def test_figures_into_a_file_are_refused_and_into_a_folder_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from gatescope import figures

    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r"out must be a folder; .*file is a file\. Name another one"):
        reproduce.reproduce_figures(tmp_path / "file", {})
    monkeypatch.setattr(figures, "figures", lambda out, *, say: say(f"wrote {out.name}"))
    reproduce.reproduce_figures(tmp_path / "folder", {})
    assert capsys.readouterr().out == "wrote folder\n"
