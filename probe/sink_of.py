"""Which sink takes a probe's calls, from what was asked of `attach`."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from .folding import Foldings, check_folded
from .keeping import Keeping
from .labels import LabelSource
from .sinks import Sink
from .storing import Storing, check_stored
from .streaming import Stream
from .track import Track


class Asked(NamedTuple):
    """What a sink must know; `sums` is whether running sums of the retention are kept."""

    labels: LabelSource | None
    lengths: Any
    sums: bool
    preactivations: bool
    gradients: bool
    statistics: bool


def sink_of(
    tracks: Mapping[str, Track], wanted: Mapping[str, frozenset[str]], asked: Asked, storing: Storing | None
) -> Sink:
    """The sink, if it can give what was asked."""
    labels, lengths, sums, preactivations, gradients, statistics = asked
    if storing is not None:
        check_stored(labels, lengths, gradients=gradients, statistics=statistics)
        return Stream(storing, tracks, wanted, sums=sums)
    if statistics:
        check_folded(labels, lengths, preactivations=preactivations, gradients=gradients)
        return Foldings(tracks)
    return Keeping(tracks, labels, lengths, sums=sums, gradients=gradients)
