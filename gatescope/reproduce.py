"""`gatescope reproduce`: train the networks of *Learning to Forget* and put what they do beside what it reports."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .demo import printed

if TYPE_CHECKING:
    import xarray as xr

    from .tasks.campaign import Trainer
    from .tasks.experiment import Setting
    from .tasks.results import Job, Results

TASKS = ("cerg", "erg")
SWEEPS = ("alpha", "gamma", "bias", "decay")
NETWORKS = {"cerg": 100, "erg": 30}
QUICK_NETWORKS = 6
COMPILED = 5.0  # seconds above which the engine was compiled; to load it from disk takes 1 or 2

Say = Callable[[str], None]


def reproduce(
    task: str,
    out: Path,
    *,
    networks: int | None = None,
    variants: Sequence[str] = (),
    sweep: str | None = None,
    jobs: int | None = None,
    scheduler: str | None = None,
    seed: int = 0,
    max_streams: int | None = None,
    quick: bool = False,
    say: Say | None = None,
) -> "xr.Dataset":
    """Train networks of a task and write their table beside the report's, as text, CSV and netCDF.

    Every finished network is on disk at once; the same call goes on where an earlier one was stopped, and its results
    do not depend on how, or in how many pieces, they were computed.

    Parameters
    ----------
    task
        `cerg` or `erg`.
    out
        A new or empty folder, or one that the same settings began.
    networks
        Of each row; at least 1. The default is 100 for `cerg`, 30 for `erg`, 6 with `quick`.
    variants
        Rows by name, or `all`; by default those of the report, for `erg` all. Not together with `sweep`.
    sweep
        Rows with other learning rates (`alpha`), decays of the learning rate (`gamma`), biases (`bias`) or decays of
        the state (`decay`).
    jobs
        Processes that train; by default one for each core. Not together with `scheduler`.
    scheduler
        Address of a Dask scheduler whose workers train (extra `scale`).
    seed
        At least 0; a network is decided by its settings, the seed and its number.
    max_streams
        Training streams (strings for `erg`) after which a network has failed; by default the report's.
    quick
        Few networks, everything else as it is.
    say
        Called with every line for the user; prints the table to standard output and notes to standard error by default.

    Returns
    -------
    xr.Dataset
        The table, as `tasks.tables.table` describes it.

    Raises
    ------
    ValueError
        For impossible choices, or a folder of other settings.
    BlockingIOError
        If another process writes to the folder.
    """
    check_task(task)
    check_numbers(networks=networks, jobs=jobs, max_streams=max_streams)
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise ValueError(f"--seed must be a whole number from 0; {seed!r} came. Leave it out for 0.")
    if jobs is not None and scheduler is not None:
        raise ValueError("networks are trained by --jobs or by --scheduler; both came. Leave one out.")
    note = say or noted
    # all that the end needs is loaded at the beginning: what runs for hours must not change when files on disk do
    from . import reproduce_bars  # noqa: F401
    from .tasks import provenance, table_text, tables  # noqa: F401
    from .tasks.results import results_folder
    from .tasks.rows import chosen_rows

    provenance.engine_code()
    settings = chosen_rows(task, variants, sweep, seed=seed, max_streams=max_streams)
    asked = networks or (QUICK_NETWORKS if quick else NETWORKS[task])
    with trainer(jobs, scheduler) as train, results_folder(out, settings, asked) as results:
        missing = [job for job in results.missing(note) if job.row in settings]
        report_start(results, settings, missing, note)
        if missing and scheduler is None:
            compile_engine([settings[job.row] for job in missing], note)
        lost = trained(results, missing, train, note)
        return finished_table(results, lost, say or printed)


def reproduce_figures(out: Path, given: Mapping[str, object]) -> None:
    """Draw the paper's figures from our own networks into a folder."""
    wrong = [f"--{name}" for name, value in given.items() if value is not None]
    if wrong:
        raise ValueError(f"figures are made with --out alone; {wrong[0]} came. Leave it out.")
    if out.exists() and not out.is_dir():
        raise ValueError(f"out must be a folder; {out} is a file. Name another one with --out.")
    from .figures import figures

    figures(out, say=printed)


def check_task(task: str) -> None:
    if task not in TASKS:
        from difflib import get_close_matches

        close = get_close_matches(task, (*TASKS, "figures"), n=1)
        hint = f"Did you mean {close[0]!r}?" if close else "Name one of them."
        raise ValueError(f"what to reproduce must be cerg, erg or figures; {task!r} came. {hint}")


def check_numbers(**numbers: int | None) -> None:
    for name, value in numbers.items():
        if value is not None and (type(value) is not int or value < 1):
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} must be a whole number of at least 1; {value!r} came. Leave it out.")


def noted(line: str) -> None:
    """A note on standard error, where bars are as well."""
    from tqdm import tqdm

    tqdm.write(line, file=sys.stderr)


def report_start(results: "Results", settings: Mapping[str, "Setting"], missing: Sequence["Job"], note: Say) -> None:
    """Say what is there and what is to be done."""
    asked = sum(results.networks[row] for row in settings)
    there = asked - len(missing)
    if there:
        note(f"{there} of {asked} networks were in {results.path} already; left to train: {len(missing)}")
    else:
        many = "1 network" if asked == 1 else f"{asked} networks"
        note(f"{many} to train, rows: {len(settings)}; each is in {results.path} as soon as it is finished")


@contextmanager
def trainer(jobs: int | None, scheduler: str | None) -> Iterator["Trainer"]:
    """Who trains: this process, some others, or a cluster."""
    from .tasks import campaign

    if scheduler is not None:
        from .tasks.cluster import cluster, connected

        with connected(scheduler) as client:
            yield partial(cluster, client=client)
        return
    workers = jobs or cores()
    yield campaign.here if workers == 1 else partial(campaign.processes, workers=workers)


def compile_engine(settings: Sequence["Setting"], note: Say) -> None:
    """Once, so that all workers find it on disk."""
    from .tasks.campaign import warm_up

    began = time.perf_counter()
    warm_up(dict.fromkeys(settings))
    took = time.perf_counter() - began
    if took > COMPILED:
        note(f"the engine was compiled in {took:.0f} s; the next start finds it")


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def trained(results: "Results", missing: Sequence["Job"], train: "Trainer", note: Say) -> list[str]:
    """Train what is missing. Whatever ends it early, the table of what is there is written first."""
    if not missing:
        return []
    from .reproduce_bars import bars
    from .tasks.campaign import campaign

    try:
        with bars(results, missing, note) as finished:
            return campaign(results, missing, train, finished=finished)
    except BaseException as error:
        write_table(results)
        if isinstance(error, KeyboardInterrupt):
            note(f"stopped; what was finished is in {results.path}, also as a table, and the same command goes on")
        raise


def finished_table(results: "Results", lost: Sequence[str], say: Say) -> "xr.Dataset":
    """Write and print the table; raise when networks are missing in it."""
    from .tasks.campaign import NetworkError
    from .tasks.table_text import table_text

    found = write_table(results)
    say(table_text(found))
    say(f"\nWritten to {results.path}: table.txt, table.csv, table.nc, and the networks")
    if lost:
        raise NetworkError(f"every network must be trainable; {'; '.join(lost)}. Start the same command again.")
    return found


def write_table(results: "Results") -> "xr.Dataset":
    """The table of a folder as table.txt, table.csv and table.nc in it, each replaced whole."""
    from .tasks.results import replacing
    from .tasks.table_text import table_csv, table_text
    from .tasks.tables import table

    found = table(results)
    for name, text in (("table.txt", table_text(found) + "\n"), ("table.csv", table_csv(found))):
        with replacing(results.path / name) as partial_file:
            partial_file.write_text(text, encoding="utf-8")
    with replacing(results.path / "table.nc") as partial_file:
        found.to_netcdf(partial_file, engine="h5netcdf")
    return found
