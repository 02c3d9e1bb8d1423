"""How far `gatescope reproduce` is: a bar with the time left for every row."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tasks.results import Job, Results

TICK = 1.0  # seconds between two looks at the clock while nothing is finished


@contextmanager
def bars(
    results: "Results", missing: Sequence["Job"], note: Callable[[str], None]
) -> Iterator[Callable[["Job"], None]]:
    """Call what this gives with every finished network. Without a terminal, a line says when a row is finished."""
    from .tasks.reported import ROW_TITLES

    left = {row: sum(job.row == row for job in missing) for row in dict.fromkeys(job.row for job in missing)}
    titles = {row: ROW_TITLES.get(row, row) for row in left}
    shown = {
        row: bar(titles[row].ljust(max(map(len, titles.values()))), place, results.networks[row], left[row])
        for place, row in enumerate(left)
    }

    def finished(job: "Job") -> None:
        left[job.row] -= 1
        shown[job.row].update()
        refresh(shown.values())
        if not left[job.row] and shown[job.row].disable:
            note(f"{titles[job.row]}: finished, {results.networks[job.row]} of {results.networks[job.row]}")

    try:
        with ticking(list(shown.values())):
            yield finished
    finally:
        for each in shown.values():
            each.close()


def bar(title: str, place: int, total: int, left: int) -> Any:
    from tqdm import tqdm

    return tqdm(
        desc=title,
        total=total,
        initial=total - left,
        position=place,
        unit="network",
        smoothing=0,  # networks take very different times: the mean of all says most about those to come
        disable=None,
        dynamic_ncols=True,
    )


def refresh(shown: Any) -> None:
    for each in shown:
        each.refresh()


@contextmanager
def ticking(shown: Sequence[Any]) -> Iterator[None]:
    """Let the clocks of the bars run while networks are in work."""
    if all(each.disable for each in shown):
        yield
        return
    over = threading.Event()

    def tick() -> None:
        while not over.wait(TICK):
            refresh(shown)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
