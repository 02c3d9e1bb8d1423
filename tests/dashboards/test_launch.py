import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gatescope.dashboards import catalogue
from gatescope.dashboards.launch import SUFFIXES, command, free_port, launch


def test_the_server_listens_on_this_machine_only_and_tells_nobody(tmp_path):
    words = command([tmp_path], port=8123, headless=True)
    assert {
        "--server.address=127.0.0.1",
        "--server.port=8123",
        "--server.headless=true",
        "--browser.gatherUsageStats=false",
        "--server.fileWatcherType=none",
        "--server.showEmailPrompt=false",
        "--logger.hideWelcomeMessage=true",
    } <= set(words)
    assert words[words.index("--") + 1 :] == [str(tmp_path)]


def test_without_paths_the_current_folder_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command([])[-1] == str(tmp_path)


def test_a_path_that_looks_like_an_option_stays_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("--help").mkdir()
    assert command(["--help"])[-1] == str(tmp_path / "--help")


def test_a_path_without_anything_is_named_in_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"nothing at .*missing.*gatescope record") as caught:
        launch([tmp_path, tmp_path / "missing"])
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_recording_is_named_in_one_sentence(tmp_path):
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ValueError, match=r"notes\.txt' is a file that ends in neither \.zarr nor \.nc"):
        command([tmp_path, tmp_path / "notes.txt"])


def test_a_port_that_is_taken_is_named_in_one_sentence(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ValueError, match=rf"port must be free; {port} is not"):
            launch([tmp_path], port=port, headless=True)


def test_the_next_free_port_is_taken_where_none_is_named():
    with socket.socket() as other:
        other.bind(("127.0.0.1", free_port()))
        other.listen()
        taken = other.getsockname()[1]
        assert taken < free_port() < taken + 100


def test_suffixes_are_those_of_the_catalogue():
    assert SUFFIXES == catalogue.SUFFIXES


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_with_the_program_that_launched_it(tmp_path, sign):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start = f"launch([{str(tmp_path)!r}], port={port}, headless=True)"
    text = f"from gatescope.dashboards.launch import launch; raise SystemExit({start})"
    program = subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        assert program.stdout is not None
        assert program.stdout.readline().decode() == f"The dashboard is at http://127.0.0.1:{port} (Ctrl-C ends it)\n"
        wait(port, listening=True)
        if sign == signal.SIGTERM:
            program.send_signal(sign)
        else:
            os.killpg(program.pid, sign)  # as a terminal does
        program.wait(30)
        wait(port, listening=False)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)  # whatever is left of the group
        program.communicate()


def wait(port: int, *, listening: bool) -> None:
    end = time.monotonic() + 40
    while time.monotonic() < end:
        with socket.socket() as probe:
            if (probe.connect_ex(("127.0.0.1", port)) == 0) == listening:
                return
        time.sleep(0.1)
    raise TimeoutError(f"the server should have {'started' if listening else 'ended'}")
