"""The same campaign on a Dask cluster of two workers, one of them killed half-way."""

import importlib
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import xarray as xr

from gatescope.tasks.campaign import NetworkError, campaign, here
from gatescope.tasks.cluster import cluster, connected
from gatescope.tasks.experiment import VARIANTS
from gatescope.tasks.results import Job, Results, results_folder
from gatescope.tasks.tables import table

HERE = Path(__file__).parent
ROWS = {row: VARIANTS[row] for row in ("forget", "1997")}
NETWORKS = 10

distributed = pytest.importorskip("distributed", reason="the extra `scale` is not installed")

# distributed's own: sockets and loops of workers that a test killed are closed by the garbage collector
pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two workers in processes of their own, on this machine, which can import the made-up networks."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of distributed's own start
        patch.syspath_prepend(HERE)
        patch.setenv("PYTHONPATH", str(HERE), prepend=os.pathsep)
        patch.setenv("MADE_UP", str(tmp_path_factory.mktemp("made_up")))
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None
        ) as found:
            yield found


@pytest.fixture
def made_up(local: Any, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(HERE)
    return importlib.import_module("made_up_networks")


def expected(made_up: ModuleType, path: Path) -> Results:
    with results_folder(path, ROWS, NETWORKS) as results:
        campaign(results, results.missing(), partial(here, run=made_up.run), finished=lambda job: None)
    return results


def files(results: Results) -> dict[str, bytes]:
    return {str(path.relative_to(results.path)): path.read_bytes() for path in results.path.rglob("*.npz")}


def test_a_cluster_one_of_whose_workers_is_killed_half_way_makes_the_same_table(
    local: Any, made_up: ModuleType, tmp_path: Path
) -> None:
    done: list[Job] = []
    victim = next(iter(local.workers.values())).pid

    def finished(job: Job) -> None:
        done.append(job)
        if len(done) == NETWORKS:
            os.kill(victim, signal.SIGKILL)

    with connected(local.scheduler_address) as client, results_folder(tmp_path / "out", ROWS, NETWORKS) as results:
        lost = campaign(
            results, results.missing(), partial(cluster, client=client, run=made_up.slow), finished=finished
        )
    assert lost == []
    assert len(done) == 2 * NETWORKS
    pids = {worker.pid for worker in local.workers.values()}
    assert victim not in pids
    alone = expected(made_up, tmp_path / "alone")
    assert files(results) == files(alone)
    xr.testing.assert_identical(table(results), table(alone))


def test_an_error_within_a_network_ends_a_clusters_campaign_in_one_sentence(
    local: Any, made_up: ModuleType, tmp_path: Path
) -> None:
    with connected(local.scheduler_address) as client:
        with results_folder(tmp_path / "out", ROWS, NETWORKS) as results:
            train = partial(cluster, client=client, run=made_up.third_raises)
            with pytest.raises(NetworkError, match=r"network 3 of .* raised ArithmeticError: no number at all"):
                campaign(results, results.missing(), train, finished=lambda job: None)
        assert not any(future.status == "pending" for future in client.futures.values())


def test_workers_with_another_engine_are_refused(
    local: Any, made_up: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatescope.tasks.cluster.engine_code", lambda: "of-another-day")
    with connected(local.scheduler_address) as client, results_folder(tmp_path / "out", ROWS, 2) as results:
        train = partial(cluster, client=client, run=made_up.run)
        with pytest.raises(NetworkError, match=r"installed here, of-another-day; one has [0-9a-f]{12}"):
            campaign(results, results.missing(), train, finished=lambda job: None)
    assert not list(results.path.rglob("*.npz"))


@pytest.mark.parametrize("address", ["here", "127.0.0.1:8786", "tcp://127.0.0.1", "tcp://127.0.0.1:port"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="must be the address of a Dask scheduler, as tcp://host:8786"):
        connected(address)


def test_an_address_where_nobody_listens_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gatescope.tasks.cluster.PATIENCE", 0.5)
    with pytest.raises(ValueError, match=r"'tcp://127\.0\.0\.1:9' does not answer"):
        connected("tcp://127.0.0.1:9")


def test_without_dask_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs Dask; .* pip install 'gatescope\[scale\]'"):
        connected("tcp://127.0.0.1:8786")
