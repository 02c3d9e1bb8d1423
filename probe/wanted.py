"""What is to be recorded: which signals of which module, and how exact the copy must be."""

from collections.abc import Mapping, Sequence

from ..signals import PREACTIVATION
from .track import Track


def choose_signals(
    tracks: Mapping[str, Track], signals: Sequence[str] | None, preactivations: bool
) -> dict[str, frozenset[str]]:
    """Path -> names of the signals to keep of that module."""
    if signals is None:
        return {
            path: frozenset(name for name in track.offered if preactivations or not name.endswith(PREACTIVATION))
            for path, track in tracks.items()
        }
    if isinstance(signals, str) or not signals or not all(isinstance(name, str) for name in signals):
        raise ValueError(f"signals must be a list of names; {signals!r} came. Give for instance ['forget_gate'].")
    offered = dict.fromkeys(name for track in tracks.values() for name in track.offered)
    unknown = [name for name in signals if name not in offered]
    if unknown:
        raise ValueError(
            f"signals must be named as the cells name them; {', '.join(map(repr, unknown))} came. "
            f"Choose from: {', '.join(offered)}."
        )
    return {path: frozenset(signals) & frozenset(track.offered) for path, track in tracks.items()}


def check_tolerance(tolerance: float) -> None:
    if not (isinstance(tolerance, (int, float)) and tolerance > 0):
        raise ValueError(f"tolerance must be a number above 0; {tolerance!r} came. The default is 1e-4.")
