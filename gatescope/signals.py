"""The vocabulary that cells, probe, analyzers and plots share. Nothing is imported here but the standard library."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

VERSION = "0.1.0"
SCHEMA = "gatescope.recording/1"

Role = Literal["gate", "write", "read", "reset", "candidate", "memory", "output", "internal"]
ROLES: tuple[Role, ...] = ("gate", "write", "read", "reset", "candidate", "memory", "output", "internal")
GATE_ROLES: tuple[Role, ...] = ("gate", "write", "read", "reset")
DIRECTIONS = ("forward", "backward")
PREACTIVATION = "_preactivation"

Value = TypeVar("Value")


class Signal(NamedTuple):
    """One named quantity that a cell computes at every step.

    `bounds` are the ends of its squashing function (`None`: unbounded); `role` says what it does:
    `gate` multiplies the old memory, `write` lets the candidate in, `read` lets the memory out, `reset` masks the
    memory on its way to the candidate, `candidate` is what may be written, `memory` is what is carried from step to
    step, `output` is what a cell shows when that is not its memory, `internal` is needed to derive something else.
    """

    name: str
    symbol: str
    role: Role
    bounds: tuple[float, float] | None


@runtime_checkable
class Tap(Protocol):
    """What a cell calls on each named value; it returns the value that the cell goes on with."""

    def __call__(self, name: str, value: Any, /) -> Any: ...


def no_tap(name: str, value: Value, /) -> Value:
    """The tap of a cell that nobody listens to.

    >>> no_tap("forget_gate", 0.5)
    0.5
    """
    return value


def time_title(attrs: Mapping[str, Any]) -> str:
    """The title of a time axis; a recording that took only every n-th step says so.

    >>> time_title({}), time_title({"stride": 5})
    ('time (step)', 'time (every 5th step)')
    """
    return f"time (every {attrs['stride']}th step)" if int(attrs.get("stride", 1)) > 1 else "time (step)"


def retention_form(retention: str) -> tuple[str, str | float]:
    """Read what multiplies a cell's old memory; the text is matched against a fixed grammar and never evaluated.

    Returns `("signal", name)`, `("complement", name)` for `1 - name`, `("constant", value)` or `("none", "")`.

    >>> retention_form("forget_gate"), retention_form("1 - update_gate")
    (('signal', 'forget_gate'), ('complement', 'update_gate'))
    >>> retention_form("0.9"), retention_form("none")
    (('constant', 0.9), ('none', ''))
    """
    text = retention.strip()
    if text == "none":
        return "none", ""
    if text.isidentifier():
        return "signal", text
    head, minus, name = text.partition("-")
    if minus and head.strip() == "1" and name.strip().isidentifier():
        return "complement", name.strip()
    if text.replace(".", "", 1).isdecimal():
        return "constant", float(text)
    raise ValueError(
        f"retention must be a signal's name, '1 - name', a decimal number or 'none'; {retention!r} came. "
        "Tap a signal of its own for any other keep factor and name that."
    )


def retention_values(retention: str, signals: Mapping[str, Value]) -> Value | float | None:
    """The factor on the old memory, from signals by name; `None` where the cell has no such factor."""
    form, what = retention_form(retention)
    if form == "none":
        return None
    if form == "constant":
        return float(what)
    value = signals[str(what)]
    return value if form == "signal" else 1 - value  # type: ignore[operator]
