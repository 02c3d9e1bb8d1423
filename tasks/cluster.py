"""The same campaign on a Dask cluster (extra `scale`)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from importlib import import_module
from typing import Any

from .campaign import Answer, Failed, NetworkError, Run, failure
from .experiment import Outcome, Setting, run_network
from .provenance import engine_code
from .results import Job

ADDRESS = re.compile(r"[a-z]+://\S+:\d+")
PATIENCE = 10  # seconds for the scheduler to answer


def cluster(
    jobs: Sequence[Job], settings: Mapping[str, Setting], *, client: Any, run: Run = run_network
) -> Iterator[Answer]:
    """Train on the workers of a Dask scheduler; networks of a worker that dies go to the others."""
    distributed: Any = import_module("distributed")
    futures = {
        client.submit(there, run, settings[job.row], job.network, pure=False, priority=-place): job
        for place, job in enumerate(jobs)
    }
    try:
        for future in distributed.as_completed(list(futures), loop=client.loop):
            yield answered(futures.pop(future), future)
    finally:
        client.cancel(list(futures), force=True)


def connected(address: str) -> Any:
    """A client of the scheduler at `tcp://host:8786`; its workers need gatescope in the same version.

    Raises
    ------
    ModuleNotFoundError
        Without the extra `scale`.
    ValueError
        If no scheduler answers there.
    """
    if not ADDRESS.fullmatch(address):
        raise ValueError(
            f"--scheduler must be the address of a Dask scheduler, as tcp://host:8786; {address!r} came. "
            "`dask scheduler` says its own when it starts."
        )
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise ModuleNotFoundError(
            "--scheduler needs Dask; it is not installed. Install it with: pip install 'gatescope[scale]'."
        ) from None
    try:
        return distributed.Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise ValueError(
            f"--scheduler must be the address of a running Dask scheduler, as tcp://host:8786; {address!r} does not "
            f"answer ({' '.join(str(error).split())[:200]}). Start one with `dask scheduler`."
        ) from None


def there(run: Run, setting: Setting, network: int) -> tuple[Outcome, str]:
    """What a worker does: train, and say by which code."""
    return run(setting, network), engine_code()


def answered(job: Job, future: Any) -> Answer:
    """What became of a network whose work is over."""
    from distributed import KilledWorker

    try:
        error = future.exception()
    except CancelledError:
        raise NetworkError(
            "the scheduler must stay until all networks are trained; it went away. What was finished before is safe: "
            "start the same command again."
        ) from None
    if isinstance(error, KilledWorker):
        return job, Failed("it took several workers with it")
    if error is not None:
        raise failure(job, f"{type(error).__name__}: {error}")
    outcome, engine = future.result()
    if engine != engine_code():
        raise NetworkError(
            f"workers must train with the engine that is installed here, {engine_code()}; one has {engine}. "
            "Install the same version of gatescope for all."
        )
    return job, outcome
