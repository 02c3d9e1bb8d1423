"""When does each unit throw its memory away: learned reset events, with what each of them threw away."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from ..schema import SIGNAL_DIMS as DIMS
from .event_table import Columns, EventTable, UnitTable, event_dataset
from .falls import chosen, losses, masked, runs_below
from .gate_source import FRESH_START, Block, Source, kinds_of
from .levels import LevelCount, Levels, Moments, adaptive_levels
from .runs import require_recording
from .trains import first_steps

BLOCK = 2**21  # values read at once
DEAD_SPREAD = 1e-6  # a memory that spreads no further holds nothing that could be thrown away
OVERWRITE = 0.5  # of what was thrown away: from here on, what was written meanwhile took its place
METHODS = ("adaptive", "absolute")

Numbers = npt.NDArray[np.float64]


class Least(NamedTuple):
    """What a run must reach to be an event."""

    depth: float
    erased: float


def resets(
    recording: xr.Dataset,
    *,
    method: str = "adaptive",
    low: float = 0.1,
    high: float = 0.9,
    min_depth: float = 0.1,
    min_erased: float = 0.1,
) -> xr.Dataset:
    """Learned reset events: runs of steps on which a unit's retention falls and its memory is in fact thrown away.

    With the retention k that multiplies the old memory s at each step (a forget gate, one minus a coupled input gate,
    a GRU's update gate in either convention), a run begins at the first step at which k is below `low` after it was at
    `high` or above, and ends with the last one below `low` before k is at `high` again. Over the run

        depth = 1 - product of k                                    share of the memory that is thrown away
        erased = depth * |s before| / spread                        in standard deviations of the unit's own memory

    and it is an event if `depth >= min_depth` and `erased >= min_erased`: a gate that shuts on an empty memory is none.
    A partial reset is an event with its depth. What the memory after the run holds beyond what was kept was written
    meanwhile; where that is at least half of what was thrown away, the event is an `overwrite`, else a reset to zero.

    Sequences are never crossed. At the first step of a sequence that starts from zero or from an imposed state nothing
    learned can be lost, so no event begins there. The backward direction is followed in its own running order: its
    memory before step t is that at t + 1.

    Where a cell has a reset gate (role `reset`, as a GRU's), its falls are events of a second kind, `fresh_start`: the
    memory stays, but the candidate is computed without it. Their depth is 1 minus the gate's lowest value, and erased
    is what the gate held back of the signal that it multiplies (`candidate_recurrent` in torch's GRU, else the
    memory), in that signal's standard deviations.

    Parameters
    ----------
    recording
        A recording, whole or a subset, in memory or opened from disk; it is read twice, in blocks of whole sequences.
    method
        `"adaptive"`: each unit has its own two levels on the logit scale, see `adaptive_levels`. `"absolute"`: `low`
        and `high` are the same for all units.
    low, high
        Retention below which a unit has fallen and at which it has risen again, 0 < low <= high < 1; used by
        `"absolute"` only.
    min_depth, min_erased
        The least depth (a share, 0 to 1) and the least erased amount (in spreads, 0 or more) of an event.

    Returns
    -------
    xr.Dataset
        Over `event`, in the order of kind, layer, direction, sequence, unit and time: `event_kind event_layer
        event_direction event_sequence event_unit` (coordinate values of the recording), `event_block` where it has
        blocks, `onset offset` (steps on the input's time axis, both inclusive; in the backward direction `offset <=
        onset`), `depth` (share), `erased` (spreads), `before after` (the memory before and after), `written` (the
        memory's units; NaN for a fresh start), `overwrite` (bool).
        Over `kind`, `layer`, `direction`, `unit`: `count`, `rate` (events per 1000 steps), `mean_depth`,
        `mean_erased`, `overwritten` (share of events), `low high usual` (the levels; `usual` is the median), `steps`,
        `spread`. Means are NaN for units without events. Where the recording has blocks, `block_count` over
        `memory_block` counts events that begin in any unit of a block at one step as one.
        Over `kind`, `layer`, `direction`: `synchrony`, coinciding pairs of events of different units (blocks, where
        there are any) as a multiple of what trains turned independently within each sequence give, with `synchrony_z`
        and `synchrony_p`; and `together` over `sequence` and `time`: how many units (blocks) begin an event there.
        The recording's labels, `length` and `start` stand beside them for `alignment` and `triggers`. Attribute
        `reason` says why there are no events where there can be none, and is empty else.

    Raises
    ------
    ValueError
        When a parameter is out of its range, the signal that multiplies the memory or the memory is not there, or
        only every n-th step was recorded; `SchemaError` when the Dataset is no recording.
    TypeError
        For what is no Dataset.

    References
    ----------
    F. A. Gers, J. Schmidhuber, F. Cummins (2000). Learning to Forget: Continual Prediction with LSTM. Neural
    Computation 12(10). doi 10.1162/089976600300015015.

    Examples
    --------
    A memory of 4 is multiplied by 0.25 at step 3 while nothing is written:

    >>> dims, shape = ["layer", "direction", "sequence", "time", "unit"], (1, 1, 1, 6, 1)
    >>> gate = xr.DataArray(np.reshape([1, 1, 1, 0.25, 1, 1], shape), dims=dims, attrs={"role": "gate"})
    >>> memory = xr.DataArray(np.reshape([4.0, 4, 4, 1, 1, 1], shape), dims=dims, attrs={"role": "memory"})
    >>> recording = xr.Dataset({"forget_gate": gate, "cell_state": memory}, {"direction": ["forward"]})
    >>> recording.attrs = {"schema": "gatescope.recording/1", "retention": "forget_gate"}
    >>> events = resets(recording)
    >>> events["onset"].values, events["depth"].values, events["before"].values, events["overwrite"].values
    (array([3]), array([0.75]), array([4.]), array([False]))
    """
    check_parameters(method, low, high, min_depth, min_erased)
    check_recording(recording)
    kinds, reason = kinds_of(recording)
    table, units = EventTable(recording, kinds), UnitTable(recording, kinds)
    for number, layer, direction in np.ndindex(len(kinds), recording.sizes["layer"], recording.sizes["direction"]):
        source = Source(recording, kinds[number], (layer, direction))
        levels, spread, steps = levels_of(source, None if method == "adaptive" else (low, high))
        units.note((number, layer, direction), levels, spread, steps)
        for sequences, some in source.places(BLOCK):
            found = events_in(source, source.block(sequences, some), levels, spread, Least(min_depth, min_erased))
            table.add((number, layer, direction), found)
    attrs: dict[str, str | float] = {"measure": "resets", "method": method, "low": float(low), "high": float(high)}
    attrs |= {"min_depth": float(min_depth), "min_erased": float(min_erased), "overwrite_share": OVERWRITE}
    return event_dataset(recording, table, units).assign_attrs(attrs | {"reason": reason})


def levels_of(source: Source, absolute: tuple[float, float] | None) -> tuple[Levels, Numbers, npt.NDArray[np.int64]]:
    """Levels of every unit, the spread of what its gate multiplies, and its steps."""
    units = source.gate.sizes["unit"]
    counts, moments = LevelCount.empty(units), Moments.empty(units)
    for sequences, some in source.places(BLOCK):
        counts.add(source.gate_values(sequences, some), some)
        moments.add(source.read(source.memory if source.target is None else source.target, sequences, some), some)
    levels = adaptive_levels(counts.counts)
    if absolute is not None:
        low, high = (np.where(np.isnan(levels.usual), np.nan, level) for level in absolute)
        levels = Levels(low, high, levels.usual)
    return levels, moments.spread, counts.counts.sum(axis=1)


def events_in(source: Source, block: Block, levels: Levels, spread: Numbers, least: Least) -> Columns:
    """The events of one block."""
    runs = runs_below(block.gate, levels.low[block.units], levels.high[block.units])
    first = block.begin + first_steps(source.starts[block.sequences])
    runs = chosen(runs, runs.first >= first[runs.sequence])
    lost = losses(block.gate, block.memory, block.initial, block.begin, runs)
    here = spread[block.units][runs.unit]
    if source.kind.name == FRESH_START:
        lowest, gone = masked(block.gate, source.multiplied(block), runs)
        depth, written = 1 - lowest, np.full(lowest.shape, np.nan)
    else:
        depth, written = 1 - lost.kept, lost.written
        gone = depth * np.abs(lost.before)
    alive = (here > DEAD_SPREAD) & np.isfinite(lost.before)
    erased = np.divide(gone, here, out=np.zeros(gone.shape), where=alive)
    real = alive & (depth >= least.depth) & (erased >= least.erased)
    runs, steps = chosen(runs, real), source.steps
    onset, offset = (steps - 1 - at if source.backward else at for at in (runs.first, runs.last))
    return Columns(
        sequence=runs.sequence + (block.sequences.start or 0),
        unit=runs.unit + (block.units.start or 0),
        onset=onset,
        offset=offset,
        depth=depth[real],
        erased=erased[real],
        before=lost.before[real],
        after=lost.after[real],
        written=written[real],
        overwrite=(np.abs(written) >= OVERWRITE * gone)[real],
    )


def check_parameters(method: str, low: float, high: float, min_depth: float, min_erased: float) -> None:
    if method not in METHODS:
        raise ValueError(f"method must be one of {METHODS}; {method!r} came.")
    if not 0 < low <= high < 1:
        raise ValueError(
            f"low and high must be retentions with 0 < low <= high < 1; low={low!r} and high={high!r} came. "
            "Pass for example low=0.1, high=0.9."
        )
    if not (0 < min_depth <= 1 and 0 <= min_erased < np.inf):
        raise ValueError(
            "min_depth must be a share with 0 < min_depth <= 1 and min_erased a number of spreads, 0 or more; "
            f"min_depth={min_depth!r} and min_erased={min_erased!r} came."
        )


def check_recording(recording: xr.Dataset) -> None:
    require_recording(recording, "resets")
    missing = [dim for dim in DIMS if dim not in recording.dims]
    if missing:
        raise ValueError(f"resets needs the dimensions {DIMS}; {missing} are missing. Select with lists: layer=[0].")
    if int(recording.attrs.get("stride", 1)) > 1:
        raise ValueError(
            f"resets needs every step; the recording took only every {recording.attrs['stride']}th. "
            "Record again with stride=1."
        )
