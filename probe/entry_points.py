"""Packages that bring cells say so in their metadata; it is acted upon when recurrent modules are first looked for."""

import threading
import warnings
from collections.abc import MutableMapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "gatescope.cells"


class Declared:
    """What installed packages declare in the group `gatescope.cells`, and how far it has been acted upon."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.done = False
        self.busy = False
        self.waiting: list[EntryPoint] | None = None  # None: nobody has looked yet

    def load(self, registered: MutableMapping[type, Any]) -> list[str]:
        """Call every declared function once; why some failed."""
        with self.lock:
            outermost, self.busy, by_hand = not self.busy, True, dict(registered)
            failures = []
            try:
                if self.waiting is None:
                    self.waiting = sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))
                while self.waiting:  # a function that itself looks for modules finds the rest here
                    failures.append(run(self.waiting.pop(0)))
            finally:
                registered.update(by_hand)
                if outermost:
                    self.busy, self.done = False, self.waiting == []
            return [failure for failure in failures if failure]


_declared = Declared()


def load_declared(registered: MutableMapping[type, Any]) -> None:
    """Let installed packages register their cells, if they have not done so.

    What stands in `registered` before stays as it is: whoever registers a class by hand means it. A declaration that
    fails is named in one warning and the others are loaded all the same.
    """
    if not _declared.done:
        for failure in _declared.load(registered):
            warnings.warn(failure, RuntimeWarning, stacklevel=2)


def run(entry: EntryPoint) -> str:
    """Load and call one declaration; why it failed, empty where it did not."""
    try:
        entry.load()()
    except (Exception, SystemExit) as error:
        owner = f" of {entry.dist.name}" if entry.dist is not None else ""
        text = " ".join(str(error).split()).rstrip(".")
        return (
            f"the entry point {entry.name!r}{owner} in the group {GROUP!r} must name a function that registers cells; "
            f"{entry.value} raised {type(error).__name__}: {text}. Its cells are not known to gatescope."
        )
    return ""
