"""A folder of finished networks: each is on disk at once and whole, whatever kills the run, and is never trained twice.

OUT/results.json                 which rows, with every setting that decides a result, and how many networks of each
OUT/networks/ROW/0007.npz        one finished network: its outcome, weights and training curve
OUT/set-aside/                   files that could not be believed
OUT/.lock                        held by the process that writes here
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from .experiment import Outcome, Setting
from .outcome_files import DamagedError, read_engine, read_outcome, write_outcome
from .writers_lock import writers_lock

FORMAT = "gatescope.networks/1"
STATE, NETWORKS, ASIDE, LOCK = "results.json", "networks", "set-aside", ".lock"
PARTIAL = ".partial"
SHARED = ("task", "seed", "max_streams", "max_symbols", "stream_length", "tests")  # one for all rows of a folder

Say = Callable[[str], None]


class Job(NamedTuple):
    """One network of one row."""

    row: str
    network: int


@dataclass(frozen=True)
class Results:
    """What a folder holds or is to hold: for every row its setting and the number of networks asked for."""

    path: Path
    settings: Mapping[str, Setting]
    networks: Mapping[str, int]

    def place(self, job: Job) -> Path:
        return self.path / NETWORKS / job.row / f"{job.network:04d}.npz"

    def jobs(self) -> list[Job]:
        """All networks, the first of every row before the second of any, so that a partial table has all rows."""
        most = max(self.networks.values(), default=0)
        return [Job(row, n) for n in range(most) for row, asked in self.networks.items() if n < asked]

    def save(self, job: Job, outcome: Outcome) -> None:
        """Put a finished network on disk under its name, whole."""
        place = self.place(job)
        place.parent.mkdir(parents=True, exist_ok=True)
        with replacing(place) as partial:
            write_outcome(partial, outcome, job.row, self.settings[job.row])

    def load(self, job: Job) -> Outcome | None:
        """A finished network; None where there is none yet.

        Raises
        ------
        DamagedError
            If the file is half-written, changed, or of another network, row or setting.
        """
        place = self.place(job)
        if not os.path.lexists(place):
            return None
        return read_outcome(place, job.row, job.network, self.settings[job.row])

    def outcomes(self, row: str) -> list[Outcome]:
        """The finished networks of a row that can be believed, in order."""
        found = []
        for network in range(self.networks[row]):
            try:
                outcome = self.load(Job(row, network))
            except DamagedError:
                continue
            if outcome is not None:
                found.append(outcome)
        return found

    def engines(self) -> list[str]:
        """Fingerprints of the engine code that trained the networks, each once."""
        places = sorted(self.path.glob(f"{NETWORKS}/*/*.npz"))
        return sorted({engine for place in places if (engine := read_engine(place))})

    def missing(self, say: Say = lambda line: None) -> list[Job]:
        """The networks that must still be trained. A file that cannot be believed is set aside and said."""
        left = []
        for job in self.jobs():
            try:
                if self.load(job) is None:
                    left.append(job)
            except DamagedError as error:
                aside = self.set_aside(job)
                say(f"network {job.network} of {job.row} is trained again: {error}; its file is now {aside}")
                left.append(job)
        return left

    def set_aside(self, job: Job) -> Path:
        aside = self.path / ASIDE / f"{job.row}-{job.network:04d}-{uuid4().hex[:8]}.npz"
        aside.parent.mkdir(exist_ok=True)
        os.replace(self.place(job), aside)
        return aside


def read_results(path: str | os.PathLike[str]) -> Results:
    """What a folder of results holds, for reading; nothing in it is changed.

    Raises
    ------
    ValueError
        If it is no folder of results.
    """
    found = stored(Path(path))
    if found is None:
        raise ValueError(
            f"path must be a folder of results; {os.fspath(path)} has no {STATE}. Name one that reproduce filled."
        )
    return found


@contextmanager
def results_folder(path: Path, settings: Mapping[str, Setting], networks: int) -> Iterator[Results]:
    """Hold a folder for writing, new or begun earlier; rows and networks that it has beyond those asked for stay.

    Raises
    ------
    ValueError
        If `path` is a file, or a folder with something else in it, or one of other settings.
    BlockingIOError
        If another process writes there.
    """
    check_place(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"out must be a folder that can be made; {path} cannot: {error.strerror}. Name another one."
        ) from None
    with writers_lock(path / LOCK, path):
        earlier = stored(path) or Results(path, {}, {})
        check_same(earlier, settings)
        asked = {row: max(networks, earlier.networks.get(row, 0)) for row in settings}
        results = Results(path, {**earlier.settings, **settings}, {**earlier.networks, **asked})
        write_state(results)
        for left in path.rglob(f".*{PARTIAL}"):  # of a killed run: the lock says that nobody writes them now
            left.unlink(missing_ok=True)
        yield results


def check_place(path: Path) -> None:
    """Refuse what cannot become a folder of results."""
    if not os.path.lexists(path) or (path / STATE).is_file():
        return
    if not path.is_dir():
        raise ValueError(f"out must be a folder; {path} is a file. Name another one with --out.")
    found = sorted(entry.name for entry in path.iterdir() if entry.name != LOCK and not entry.name.endswith(PARTIAL))
    if found:
        listed = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
        raise ValueError(
            f"out must be a new or empty folder, or one of results; {path} holds {listed}. Name another one with --out."
        )


def check_same(earlier: Results, settings: Mapping[str, Setting]) -> None:
    """Refuse to mix results of different settings, and say which."""
    for row, setting in settings.items():
        other = next(iter(earlier.settings.values()), None)
        if row in earlier.settings:
            other, names = earlier.settings[row], None
        else:
            names = SHARED
        if other is None:
            return
        found = differences(plain(other), plain(setting), names)
        if found:
            raise ValueError(
                f"a folder must hold results of one setting; {earlier.path} has {' and '.join(found)} (row {row}). "
                "Name another folder with --out, or give the settings of before."
            )


def differences(there: Mapping[str, Any], here: Mapping[str, Any], names: tuple[str, ...] | None = None) -> list[str]:
    """Which settings differ, in words; those of a part by the part's name, a dot and theirs.

    >>> differences({"seed": 1, "wiring": {"blocks": 4}}, {"seed": 1, "wiring": {"blocks": 3}})
    ['wiring.blocks 4 where 3 came']
    """
    first, second = flat(there), flat(here)
    return [
        f"{name} {first.get(name, 'not there')} where {second.get(name, 'none')} came"
        for name in (names or {**first, **second})
        if first.get(name, differences) != second.get(name, differences)
    ]


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested mappings as one.

    >>> flat({"a": {"b": 1, "c": 2}, "d": 3})
    {'a.b': 1, 'a.c': 2, 'd': 3}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def plain(setting: Setting) -> dict[str, Any]:
    """A setting as JSON gives it back."""
    found: dict[str, Any] = json.loads(json.dumps(setting.to_dict()))
    return found


def stored(path: Path) -> Results | None:
    """What a folder says of itself; None where it says nothing."""
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        if state["format"] != FORMAT:
            raise ValueError(f"its format is {state['format']}")
        settings = {str(row): Setting.from_dict(values) for row, values in state["settings"].items()}
        return Results(path, settings, {row: int(state["networks"][row]) for row in settings})
    except FileNotFoundError:
        return None
    except PermissionError:
        raise
    except Exception as error:
        raise ValueError(
            f"{path / STATE} must say what the results were made with; it cannot be read ({error}). "
            "Name another folder with --out."
        ) from error


def write_state(results: Results) -> None:
    state = {
        "format": FORMAT,
        "networks": dict(results.networks),
        "settings": {row: plain(setting) for row, setting in results.settings.items()},
    }
    with replacing(results.path / STATE) as partial:
        partial.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A path beside the target to write to; it takes the target's place when the block ends without an error."""
    partial = target.with_name(f".{target.name}.{uuid4().hex[:8]}{PARTIAL}")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            free = shutil.disk_usage(target.parent).free
            raise OSError(
                f"the disk must take {target}; it did not ({error.strerror}, {free:,} bytes are free). What was "
                "finished before is safe: make room and start the same command again."
            ) from error
        raise
