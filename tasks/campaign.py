"""Train many networks, here, in processes or on a Dask cluster; whoever trains one, its result is the same to the bit.

Only the calling process writes: workers send what they finished. So whatever kills any of them loses the networks in
work and no other.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from .experiment import Outcome, Setting, run_network
from .results import Job, Results

DEATHS = 3  # so often a network may take its worker with it

Run = Callable[[Setting, int], Outcome]


class Failed(NamedTuple):
    """A network that has no outcome, and why."""

    reason: str


class NetworkError(RuntimeError):
    """Networks could not be trained."""


Answer = tuple[Job, Outcome | Failed]
Trainer = Callable[[Sequence[Job], Mapping[str, Setting]], Iterator[Answer]]


def campaign(results: Results, jobs: Sequence[Job], train: Trainer, *, finished: Callable[[Job], object]) -> list[str]:
    """Train networks and put each on disk when it is finished; what could not be trained, in words.

    `finished` is called with every network after it is on disk.

    Raises
    ------
    NetworkError
        When training itself raises an error, which it would again. What was finished before is on disk.
    """
    lost = []
    with closing(train(jobs, results.settings)) as answers:  # type: ignore[type-var]
        for job, outcome in answers:
            if isinstance(outcome, Failed):
                lost.append(f"network {job.network} of {job.row}: {outcome.reason}")
                continue
            results.save(job, outcome)
            finished(job)
    return lost


def here(jobs: Sequence[Job], settings: Mapping[str, Setting], *, run: Run = run_network) -> Iterator[Answer]:
    """Train one after another in this process."""
    for job in jobs:
        try:
            outcome = run(settings[job.row], job.network)
        except Exception as error:
            raise failure(job, f"{type(error).__name__}: {error}") from error
        yield job, outcome


def processes(
    jobs: Sequence[Job], settings: Mapping[str, Setting], *, workers: int, run: Run = run_network
) -> Iterator[Answer]:
    """Train in `workers` processes of their own; one that dies is replaced and its network trained again.

    Ctrl-C reaches this process only. The workers end with it, however it ends.
    """
    crew = Crew(run)
    waiting, deaths = list(reversed(jobs)), dict.fromkeys(jobs, 0)
    try:
        for _ in range(min(workers, len(jobs))):
            crew.hire()
        crew.give(waiting, settings)
        while crew.working():
            for job, answer in crew.answers():
                if isinstance(answer, Failed):
                    raise failure(job, answer.reason)
                if not isinstance(answer, Died):
                    yield job, answer
                    continue
                deaths[job] += 1
                check_crew(crew, answer)
                if deaths[job] < DEATHS:
                    waiting.append(job)
                else:
                    yield job, Failed(f"its worker died {DEATHS} times, the last time {answer.how}")
            crew.give(waiting, settings)
    finally:
        crew.dismiss()


def check_crew(crew: "Crew", died: "Died") -> None:
    """Whether a death is that of one worker, or none can live."""
    if not crew.answered and crew.buried_so_far >= DEATHS * len(crew.workers):
        raise NetworkError(
            f"workers must be able to start; {crew.buried_so_far} died before any had trained a network, the last one "
            f"{died.how}. Try --jobs 1, or free memory."
        )


def failure(job: Job, reason: str) -> NetworkError:
    return NetworkError(
        f"every network must be trainable; network {job.network} of {job.row} raised {' '.join(reason.split())}. "
        "What was finished before is safe."
    )


class Died(NamedTuple):
    """The end of a worker before its answer."""

    how: str


class Worker(NamedTuple):
    process: BaseProcess
    pipe: "Connection[object, object]"


class Crew:
    """Processes that train, and what each of them has in work."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.context = multiprocessing.get_context("spawn")
        self.workers: dict[Worker, Job | None] = {}
        self.answered = False
        self.buried_so_far = 0

    def hire(self) -> None:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=work, args=(theirs, self.run), daemon=True)
        with interrupts_held():
            process.start()
        theirs.close()
        self.workers[Worker(process, ours)] = None

    def give(self, waiting: list[Job], settings: Mapping[str, Setting]) -> None:
        """Hand the next networks to whoever has none."""
        for worker in [worker for worker, job in self.workers.items() if job is None]:
            if not waiting:
                return
            job = waiting.pop()
            self.workers[worker] = job
            with suppress(OSError):  # it died since; its end is read as an answer
                worker.pipe.send((settings[job.row], job.network))

    def working(self) -> bool:
        return any(job is not None for job in self.workers.values())

    def answers(self) -> Iterator[tuple[Job, Outcome | Failed | Died]]:
        """Wait until somebody is done; a dead worker is replaced."""
        busy = {worker.pipe: worker for worker, job in self.workers.items() if job is not None}
        for pipe in wait(list(busy)):
            worker = busy[pipe]  # type: ignore[index]
            job = self.workers[worker]
            if job is None:
                continue
            try:
                answer: Outcome | Failed | Died = worker.pipe.recv()  # type: ignore[assignment]
                self.workers[worker] = None
                self.answered = True
            except (EOFError, OSError):
                answer = Died(self.buried(worker))
                self.hire()
            yield job, answer

    def buried(self, worker: Worker) -> str:
        """Forget a dead worker; how it died."""
        del self.workers[worker]
        self.buried_so_far += 1
        worker.pipe.close()
        worker.process.join()
        code = worker.process.exitcode or 0
        worker.process.close()
        return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"

    def dismiss(self) -> None:
        """End all, whatever they do."""
        for worker in self.workers:
            worker.process.kill()
            worker.pipe.close()
        for worker in self.workers:
            worker.process.join()
            worker.process.close()
        self.workers.clear()


def work(pipe: "Connection[object, object]", run: Run) -> None:
    """What a worker does: train what comes, until nobody is there any more."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=leave_with_parent, daemon=True).start()
    while True:
        try:
            task: Any = pipe.recv()
        except EOFError:
            return
        setting, network = task
        try:
            answer: Outcome | Failed = run(setting, network)
        except Exception as error:
            answer = Failed(f"{type(error).__name__}: {error}")
        try:
            pipe.send(answer)
        except OSError:
            return


def leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Ctrl-C waits for the end of the block, and never reaches a process that is started in it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    from multiprocessing import resource_tracker

    resource_tracker.ensure_running()  # its start would let them through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def warm_up(settings: Iterable[Setting], run: Run = run_network) -> None:
    """Compile the engine once, so that workers find it on disk: a stream of each kind of network."""
    for setting in settings:
        run(replace(setting, max_streams=1, stream_length=10, tests=1), 0)
