"""A bar on the terminal that says how far a run is, where its length is known."""

from typing import Protocol


class Bar(Protocol):
    def update(self) -> object: ...

    def close(self) -> object: ...


def bar(calls: int | None, *, doing: str = "recording", unit: str = "call") -> Bar | None:
    """One that fills in `calls` steps; `None` where the length is not known. Without a terminal it shows nothing."""
    if calls is None:
        return None
    from tqdm.auto import tqdm

    made: Bar = tqdm(total=calls, unit=unit, desc=doing, disable=None)
    return made
