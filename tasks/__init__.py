"""Grammars and streams that networks are trained on, and the trainers; what is here loads when it is asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .flipflop import FlipFlop
    from .grammar import CERG, ERG, Reber, Sample
    from .history import History
    from .lags import lag_errors, long_steps
    from .sequence_model import SequenceModel
    from .statistics import longest_strings, string_lengths
    from .testing import first_errors

# What stands where, as in gatescope itself: numba, xarray and torch load only when a name needs them.
_HOMES = {
    "flipflop": ("FlipFlop",),
    "grammar": ("CERG", "ERG", "Reber", "Sample"),
    "history": ("History",),
    "lags": ("lag_errors", "long_steps"),
    "sequence_model": ("SequenceModel",),
    "statistics": ("longest_strings", "string_lengths"),
    "testing": ("first_errors",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "CERG",
    "ERG",
    "FlipFlop",
    "History",
    "Reber",
    "Sample",
    "SequenceModel",
    "first_errors",
    "lag_errors",
    "long_steps",
    "longest_strings",
    "string_lengths",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}.", name=name)
        value = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
        globals()[name] = value
        return value
