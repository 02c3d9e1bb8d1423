"""Which of a probe's modules were called, and which of them is meant."""

from collections.abc import Iterable, Mapping

from .track import Track


def called(tracks: Mapping[str, Track], module: str | None) -> str:
    """The module that is meant, which must have been called."""
    having = [path for path, track in tracks.items() if track.count]
    if not having:
        require_calls(tracks)
    if module is None and len(having) == 1:
        module = having[0]
    if module is None or module not in tracks:
        came = "none came" if module is None else f"{module!r} came"
        raise ValueError(f"module must be one of those recorded; {came}. {choices(tracks)}")
    if module not in having:
        raise ValueError(
            f"{module!r} must be called inside the block; it saw no call. "
            f"Those that did: {', '.join(having) or 'none'}."
        )
    return module


def choices(tracks: Mapping[str, Track]) -> str:
    return f"Choose from: {', '.join(tracks)}."


def require_calls(tracks: Mapping[str, Track]) -> None:
    if not any(track.count for track in tracks.values()):
        raise ValueError(
            f"the block must call at least one of {', '.join(map(repr, tracks))}; none was called through "
            "its module. Call the model inside the block."
        )


def require_labelled(waiting: Iterable[str]) -> None:
    """Raise where labels came after the last call."""
    if names := ", ".join(map(repr, waiting)):
        raise ValueError(
            f"annotate() must come before the call that it labels; {names} reached no call. "
            "Annotate first, then call the model."
        )


def require_plain(paths: Iterable[str]) -> None:
    """Raise where a module's path cannot name a node."""
    if slashed := next((path for path in paths if "/" in path), None):
        raise ValueError(
            f"a tree's nodes must have names without '/'; the module {slashed!r} came. "
            f"Take it alone, with recording({slashed!r})."
        )
