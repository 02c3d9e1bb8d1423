"""Start the dashboard as a program of its own, on this machine only."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

APP = Path(__file__).with_name("app.py")
SUFFIXES = (".zarr", ".nc")  # of recordings; those of the catalogue, which loads what a launcher does not need
FIRST_PORT = 8501
PATIENCE = 10  # seconds that the server has to end by itself


def launch(paths: Sequence[str | PathLike[str]], *, port: int | None = None, headless: bool = False) -> int:
    """Serve the dashboard at 127.0.0.1 until it is interrupted, and open it in a browser.

    Parameters
    ----------
    paths
        Recordings, or folders with recordings; the current folder when none is given.
    port
        The port to serve on; by default 8501 or the next one that is free.
    headless
        Whether to leave the browser closed.

    Returns
    -------
    int
        The server's exit code; 0 after an interrupt.

    Raises
    ------
    ValueError
        When there is nothing at one of the paths, or a file that cannot be a recording, or the port is taken.
    """
    if port is None:
        port = free_port()
    else:
        _check_free(port)
    process = subprocess.Popen(command(paths, port=port, headless=headless))
    print(f"The dashboard is at http://127.0.0.1:{port} (Ctrl-C ends it)", flush=True)
    with _ended_with(process):
        try:
            return process.wait()
        except KeyboardInterrupt:  # the server got it too and is ending
            process.wait(PATIENCE)
            return 0


def command(paths: Sequence[str | PathLike[str]], *, port: int | None = None, headless: bool = False) -> list[str]:
    """The command that `launch` runs."""
    places = [Path(path) for path in paths] or [Path()]
    for place in places:
        if not place.exists():
            raise ValueError(
                f"The dashboard needs a recording or a folder with recordings; there is nothing at {str(place)!r}. "
                "Check the path, or make one with `gatescope record` or `gatescope demo`."
            )
        if place.suffix not in SUFFIXES and not place.is_dir():
            raise ValueError(
                f"The dashboard needs a recording or a folder with recordings; {str(place)!r} is a file that ends in "
                f"neither {' nor '.join(SUFFIXES)}. Give the folder that holds recordings."
            )
    options = {
        "server.address": "127.0.0.1",
        "server.headless": str(headless).lower(),
        "server.fileWatcherType": "none",
        "server.showEmailPrompt": "false",
        "logger.hideWelcomeMessage": "true",  # and with it offers to install what the dashboard does not need
        "browser.gatherUsageStats": "false",
        "client.toolbarMode": "minimal",
        "client.showErrorLinks": "false",
        "theme.light.primaryColor": "#0072B2",  # red is for what is wrong; light or dark follows the browser
        "theme.dark.primaryColor": "#3D95C8",
    }
    if port is not None:
        options["server.port"] = str(port)
    flags = [f"--{name}={value}" for name, value in options.items()]
    return [
        sys.executable,
        "-m",
        "gatescope.dashboards.serve",
        "run",
        str(APP),
        *flags,
        "--",
        *(str(p.resolve()) for p in places),
    ]


def free_port() -> int:
    """The first one that nobody listens on, from the usual one on."""
    for port in range(FIRST_PORT, FIRST_PORT + 100):
        try:
            _bind(port)
        except OSError:
            continue
        return port
    raise ValueError(f"a port from {FIRST_PORT} to {FIRST_PORT + 99} must be free; none is. Name another one.")


def _bind(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))


def _check_free(port: int) -> None:
    """Say in a sentence that another program listens there, or that this one may not."""
    try:
        _bind(port)
    except OSError as error:
        raise ValueError(
            f"port must be free; {port} is not ({error.strerror}). Name another, or none to get the next free one."
        ) from None


@contextmanager
def _ended_with(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """See to it that the server does not outlive this call, also when this process is asked to terminate."""
    previous = None
    if threading.current_thread() is threading.main_thread():
        previous = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        yield
    finally:
        if previous is not None:
            signal.signal(signal.SIGTERM, previous)
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
