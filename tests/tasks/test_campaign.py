"""Who trains makes no difference: one process, several, a cluster, some of them killed on the way."""

import importlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType

import psutil
import pytest
import xarray as xr

from gatescope.tasks.campaign import DEATHS, NetworkError, Trainer, campaign, here, processes, warm_up
from gatescope.tasks.experiment import VARIANTS
from gatescope.tasks.results import Job, Results, results_folder
from gatescope.tasks.tables import table

HERE = Path(__file__).parent
ROWS = {row: VARIANTS[row] for row in ("forget", "1997")}
NETWORKS = 5


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)  # for workers of a cluster
    (tmp_path / "made_up").mkdir()
    monkeypatch.setenv("MADE_UP", str(tmp_path / "made_up"))
    return importlib.import_module("made_up_networks")


Trained = Callable[[Trainer], tuple[Results, list[str]]]


@pytest.fixture
def trained(tmp_path: Path) -> Trained:
    """Train everything into a folder of its own; what it holds and what was lost."""
    numbers = iter(range(100))

    def do(train: Trainer) -> tuple[Results, list[str]]:
        with results_folder(tmp_path / f"out{next(numbers)}", ROWS, NETWORKS) as results:
            done: list[Job] = []
            lost = campaign(results, results.missing(), train, finished=done.append)
            assert len(done) == len(set(done)) == 2 * NETWORKS - len(lost)
        return results, lost

    return do


def files(results: Results) -> dict[str, bytes]:
    return {str(path.relative_to(results.path)): path.read_bytes() for path in results.path.rglob("*.npz")}


def children() -> set[int]:
    """Workers of this process, as multiprocessing spawns them; a browser and a server of other tests are none."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "spawn_main" in " ".join(child.cmdline()):
                found.add(child.pid)
    return found


def test_processes_leave_the_files_that_this_process_leaves(trained: Trained, made_up: ModuleType) -> None:
    before = children()
    expected, _ = trained(partial(here, run=made_up.run))
    found, lost = trained(partial(processes, workers=3, run=made_up.run))
    assert lost == []
    assert len(files(found)) == 2 * NETWORKS
    assert files(found) == files(expected)
    xr.testing.assert_identical(table(found), table(expected))
    assert children() == before


def test_a_worker_that_the_system_kills_is_replaced_and_its_network_trained_again(
    trained: Trained, made_up: ModuleType
) -> None:
    expected, _ = trained(partial(here, run=made_up.run))
    found, lost = trained(partial(processes, workers=2, run=made_up.kills_its_worker_once))
    assert lost == []
    assert len(list(Path(os.environ["MADE_UP"]).iterdir())) == 4  # so many did die
    assert files(found) == files(expected)


def test_a_network_that_kills_every_worker_is_given_up_and_the_others_are_trained(
    trained: Trained, made_up: ModuleType
) -> None:
    found, lost = trained(partial(processes, workers=2, run=made_up.third_kills_its_worker))
    assert lost == [f"network 3 of forget: its worker died {DEATHS} times, the last time by SIGKILL"]
    assert len(files(found)) == 2 * NETWORKS - 1


def test_workers_that_cannot_even_start_end_the_campaign(trained: Trained, made_up: ModuleType) -> None:
    before = children()
    with pytest.raises(NetworkError, match="workers must be able to start"):
        trained(partial(processes, workers=1, run=made_up.Unstartable()))
    assert children() == before


@pytest.mark.parametrize("how", ["here", "processes"])
def test_an_error_within_a_network_ends_the_campaign_in_one_sentence(
    trained: Trained, made_up: ModuleType, how: str, tmp_path: Path
) -> None:
    train: Trainer = partial(here, run=made_up.third_raises)
    if how == "processes":
        train = partial(processes, workers=2, run=made_up.third_raises)
    before = children()
    with pytest.raises(
        NetworkError, match=r"network 3 of (forget|1997) raised ArithmeticError: no number at all"
    ) as raised:
        trained(train)
    assert "\n" not in str(raised.value)
    assert children() == before
    assert len(list((tmp_path / "out0").rglob("*.npz"))) >= 4  # those that came before are on disk


def test_workers_load_neither_torch_nor_streamlit_and_stay_small(tmp_path: Path) -> None:
    """With the engine itself, on networks that are given up early."""
    short = {row: replace(setting, max_streams=200) for row, setting in ROWS.items()}
    warm_up(short.values())
    sizes, loaded, before = [], set(), children()
    with results_folder(tmp_path / "out", short, 4) as results:
        for _ in processes(results.missing(), short, workers=2):
            for pid in children() - before:
                sizes.append(psutil.Process(pid).memory_info().rss)
                loaded |= {part for file in psutil.Process(pid).memory_maps() for part in Path(file.path).parts}
    assert 10e6 < max(sizes) < 400e6
    assert "numba" in loaded
    assert not loaded & {"torch", "streamlit", "pandas", "matplotlib"}


@pytest.mark.parametrize("row", ["forget", "1997"])
def test_the_engine_gives_the_same_bits_in_any_process(tmp_path: Path, row: str) -> None:
    short = {row: replace(ROWS[row], max_streams=300)}
    found = []
    for name, train in (("one", here), ("other", partial(processes, workers=2))):
        with results_folder(tmp_path / name, short, 3) as results:
            assert campaign(results, results.missing(), train, finished=lambda job: None) == []
        found.append([results.load(Job(row, network)) for network in range(3)])
    for one, other in zip(*found, strict=True):
        assert one is not None
        assert other is not None
        assert (one.streams, one.symbols, one.tests, one.retests) == (
            other.streams,
            other.symbols,
            other.tests,
            other.retests,
        )
        for name, weights in one.weights.items():
            assert weights.tobytes() == other.weights[name].tobytes()
