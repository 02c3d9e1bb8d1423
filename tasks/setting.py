"""A setting: everything that decides the result of an experiment with one network, but for the network's number."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from .automaton import SYMBOLS
from .wiring import CERG_WIRING, Wiring


@dataclass(frozen=True)
class Setting:
    """Everything that decides a result, but for the network's number.

    Parameters
    ----------
    task : `cerg`, endless streams, or `erg`, single strings.
    variant : the row's name.
    wiring : of the network.
    external_reset : whether the network is put to rest at every start of a string: states, partials and what it would
        see of the step before. For `erg` it always is.
    target : `possible`, all symbols that can come next; or `next`, the one that does come (for `erg` only).
    alpha : step size.
    alpha_decay : alpha's factor per step; alpha starts anew with each training stream.
    weight_decay : share of every weight that is lost at every step.
    input_bias, forget_bias, output_bias : first biases of the gates, by block; None draws them like the other weights.
    weight_range : weights are drawn uniformly between minus this and this.
    max_streams, max_symbols : training ends after so many streams (for `erg`, strings), or once so many symbols were
        learned from.
    stream_length : a stream that comes so far has no error.
    tests : how many test streams must have none.
    restart_after : begin with new weights each time after so many streams; None never does.
    seed : of all random streams.
    """

    task: Literal["cerg", "erg"] = "cerg"
    variant: str = "forget"
    wiring: Wiring = CERG_WIRING
    external_reset: bool = False
    target: Literal["possible", "next"] = "possible"
    alpha: float = 0.5
    alpha_decay: float = 1.0
    weight_decay: float = 0.0
    input_bias: tuple[float, ...] | None = (-0.5, -1.0, -1.5, -2.0)
    forget_bias: tuple[float, ...] | None = (0.5, 1.0, 1.5, 2.0)
    output_bias: tuple[float, ...] | None = (-0.5, -1.0, -1.5, -2.0)
    weight_range: float = 0.2
    max_streams: int = 30_000
    max_symbols: int = 400_000_000
    stream_length: int = 100_000
    tests: int = 10
    restart_after: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.task not in ("cerg", "erg"):
            raise ValueError(f"task of a setting must be 'cerg' or 'erg'; {self.task!r} came. Give one of them.")
        if self.target not in (("possible",) if self.task == "cerg" else ("possible", "next")):
            raise ValueError(
                f"target of a setting must be 'possible', or for 'erg' also 'next'; {self.target!r} came. Change it."
            )
        if (self.wiring.inputs, self.wiring.outputs) != (len(SYMBOLS), len(SYMBOLS)):
            raise ValueError(
                f"the wiring of a setting must have 7 inputs and 7 outputs, one per symbol; {self.wiring.inputs} and "
                f"{self.wiring.outputs} came. Leave them as they are."
            )
        for name in ("max_streams", "max_symbols", "stream_length", "tests"):
            check_count(name, getattr(self, name))
        if self.restart_after is not None:
            check_count("restart_after", self.restart_after)
        for name, (lowest, highest) in RANGES.items():
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and not isinstance(value, bool) and lowest <= value <= highest):
                raise ValueError(
                    f"{name} of a setting must lie in [{lowest}, {highest}]; {value!r} came. Give a number in there."
                )
        for name in ("input_bias", "forget_bias", "output_bias"):
            values = getattr(self, name)
            if values is not None and len(values) != self.wiring.blocks:
                raise ValueError(
                    f"{name} of a setting must have one value per block, {self.wiring.blocks}; {len(values)} came. "
                    "Give as many, or None to draw them."
                )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        found = asdict(self)
        for name in ("input_bias", "forget_bias", "output_bias"):
            found[name] = None if found[name] is None else list(found[name])
        return found

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "Setting":
        """The setting that `to_dict` took apart.

        Raises
        ------
        ValueError
            If a value is unknown, missing or impossible.
        """
        check_names("setting", values, Setting)
        check_names("wiring", values["wiring"], Wiring)
        plain: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return Setting(**(plain | {"wiring": Wiring(**values["wiring"])}))


RANGES = {
    "alpha": (0.0, 100.0),
    "alpha_decay": (0.0, 1.0),
    "weight_decay": (0.0, 1.0),
    "weight_range": (0.0, 10.0),
    "seed": (0, 2**64 - 1),
}


def check_count(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(
            f"{name} of a setting must be a whole number of at least 1; {value!r} came. Give for example 10."
        )


def check_names(what: str, values: Mapping[str, Any], owner: Any) -> None:
    wanted = {each.name for each in fields(owner)}
    if set(values) != wanted:
        wrong = ", ".join(sorted(wanted ^ set(values)))
        raise ValueError(
            f"a {what} must have exactly its own values; {wrong} is unknown or missing. Give what to_dict gave."
        )
