"""Packages that bring cells say so in their metadata; it is acted upon when recurrent modules are first looked for."""

import threading
import warnings
from collections.abc import MutableMapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

GROUP = "gatescope.cells"

_lock = threading.RLock()
_waiting: list[EntryPoint] | None = None  # None: nobody has looked yet


def load_declared(registered: MutableMapping[type, Any]) -> None:
    """Call every function that an installed package declares in the group `gatescope.cells`, each once.

    What stands in `registered` before stays as it is: whoever registers a class by hand means it. A declaration that
    fails is named in one warning and the others are loaded all the same.
    """
    global _waiting
    if _waiting == []:
        return
    failures = []
    with _lock:
        by_hand = dict(registered)
        if _waiting is None:
            _waiting = sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value))
        while _waiting:  # a function that itself looks for modules finds the rest here
            failure = run(_waiting.pop(0))
            failures += [failure] if failure else []
        registered.update(by_hand)
    for failure in failures:
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
