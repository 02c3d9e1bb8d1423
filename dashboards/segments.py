"""Where segments begin, as the reader chooses it: a boolean label, a class of a label, or any change of a label."""

from collections.abc import Sequence
from typing import NamedTuple

import xarray as xr

from ..probe.schema import LABEL_DIMS, label_names


class Segments(NamedTuple):
    """A rule for the first steps of segments.

    `how` is `flag` (the label is True there), `is` (it has the value `value` there) or `changes` (it differs from the
    step before).
    """

    label: str
    how: str
    value: str = ""

    @property
    def text(self) -> str:
        return {"flag": self.label, "is": f"{self.label} is", "changes": f"{self.label} changes"}[self.how]


def rules(recording: xr.Dataset) -> list[Segments]:
    """What may mark segments in a recording: `boundary` first, then other boolean labels, then labels of text."""
    names = label_names(recording)
    flags = [Segments(name, "flag") for name in names if recording[name].dtype == bool]
    flags.sort(key=lambda rule: rule.label != "boundary")
    texts = [name for name in names if recording[name].dtype == object]
    return [*flags, *(Segments(name, how) for name in texts for how in ("is", "changes"))]


def flags_of(recording: xr.Dataset, rule: Segments) -> xr.DataArray:
    """True at the first step of each segment, over (sequence, time).

    >>> word = xr.DataArray([["a", "a", "b", ""]], dims=["sequence", "time"]).astype(object)
    >>> flags_of(xr.Dataset(coords={"word": word}), Segments("word", "changes")).values
    array([[ True, False,  True, False]])
    """
    label = recording[rule.label].transpose(*LABEL_DIMS)
    if rule.how == "flag":
        return label
    if rule.how == "is":
        return label == rule.value
    return (label != label.shift(time=1, fill_value="")) & (label != "")


def lines_of(rule: Segments) -> tuple[list[str], str]:
    """Python that makes the same flags of `recording`, and the expression to pass on."""
    if rule.how == "flag":
        return [], repr(rule.label)
    lines = [f"label = recording[{rule.label!r}]"]
    if rule.how == "is":
        return [*lines, f"begins = label == {rule.value!r}"], "begins"
    return [*lines, 'begins = (label != label.shift(time=1, fill_value="")) & (label != "")'], "begins"


def chosen(found: Sequence[Segments], text: str) -> Segments | None:
    """The rule that is called so."""
    return next((rule for rule in found if rule.text == text), None)
