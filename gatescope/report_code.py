"""Lines of code that a report both shows and runs, so that what it shows is what drew its pictures."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Space = dict[str, Any]


class Name(str):
    """The name of a variable, where a text would be quoted."""


class Formula(NamedTuple):
    """An argument that is no call: how Python writes it, and its value in a space."""

    text: str
    value: Callable[[Space], Any]


class Line(NamedTuple):
    """`target = call(*given, **options)`; a line among `given` stands for its own call."""

    target: str
    call: str
    given: tuple[Any, ...] = ()
    options: Mapping[str, Any] = {}

    def expression(self) -> str:
        """The call as Python writes it.

        >>> Line("", "gs.plot_drift", (Line("", "gs.drift", (Name("recording"),)),), {"layer": 1}).expression()
        'gs.plot_drift(gs.drift(recording), layer=1)'
        """
        words = [written(value) for value in self.given]
        words += [f"{name}={written(value)}" for name, value in self.options.items()]
        return f"{self.call}({', '.join(words)})"

    def text(self) -> str:
        """The line.

        >>> Line("part", "recording.isel", (), {"time": slice(0, 9)}).text()
        'part = recording.isel(time=slice(0, 9))'
        """
        return f"{self.target} = {self.expression()}" if self.target else self.expression()

    def run(self, space: Space, **more: Any) -> Any:
        """Call it with the variables of a space, and with what is given beside."""
        head, _, name = self.call.partition(".")
        given = [valued(value, space) for value in self.given]
        options = {key: valued(value, space) for key, value in self.options.items()}
        return getattr(owner(head, space), name)(*given, **options, **more)


class Refused(NamedTuple):
    """Why a variable has no value."""

    why: str


def written(value: object) -> str:
    if isinstance(value, Line):
        return value.expression()
    if isinstance(value, slice):
        return f"slice({value.start}, {value.stop})"
    if isinstance(value, Formula):
        return value.text
    return str(value) if isinstance(value, Name) else repr(value)


def valued(value: Any, space: Space) -> Any:
    if isinstance(value, Line):
        return value.run(space)
    if isinstance(value, Formula):
        return value.value(space)
    return variable(value, space) if isinstance(value, Name) else value


def variable(name: str, space: Space) -> Any:
    found = space[name]
    if isinstance(found, Refused):
        raise ValueError(found.why)
    return found


def owner(head: str, space: Space) -> Any:
    if head != "gs":
        return variable(head, space)
    import gatescope

    return gatescope


def ensure(lines: tuple[Line, ...], space: Space) -> None:
    """Run the lines whose results are not there yet; one that is refused stays refused, with its sentence."""
    for line in lines:
        if line.target in space:
            continue
        try:
            space[line.target] = line.run(space)
        except ValueError as error:
            space[line.target] = Refused(" ".join(str(error).split()))
