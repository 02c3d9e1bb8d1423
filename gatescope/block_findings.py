"""What the pictures of the paper's networks show: which block holds what, and how far each state owes its weights."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from .probe.analyzers.resets import resets
from .probe.analyzers.selectivity import selectivity
from .signals import retention_values
from .tasks.automaton import SYMBOLS

Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]
FALLEN = 0.2
"""A forget gate below this has thrown most of its memory away."""
PARTIALS = ("candidate", "input_gate", "forget_gate")
"""The weights that a state depends on, by what they drive; those of the output gate act on no state."""


class Steps(NamedTuple):
    """Steps of strings, (sequence, time) each."""

    first: Mask
    last: Mask
    inside: Mask


def string_steps(recording: xr.Dataset) -> Steps:
    """The first and the last symbol of each string, and the others; a stream's last string may lack its end."""
    first = recording["boundary"].values
    last = np.zeros_like(first)
    last[:, :-1] = first[:, 1:]
    return Steps(first, last, (recording["call"].values >= 0) & ~first & ~last)


def block_findings(recording: xr.Dataset) -> xr.Dataset:
    """What each memory block of a network of the continual embedded Reber grammar does.

    Parameters
    ----------
    recording
        Of one layer of memory blocks with forget gates, with the labels of `gatescope.tasks.CERG`.

    Returns
    -------
    xr.Dataset
        Over `block`: `at_ends`, the mean over string ends of the forget gate's lower value at the last symbol of a
        string and the first of the next; `fallen_at_ends`, at how many ends that is below 0.2; `inside`, the gate's
        mean at all other steps; `resets_at_ends` and `resets_inside`, learned resets that begin at those steps;
        `separation`, from 0 to 1 how well its best cell tells T from P while one must be remembered (|2 AUC - 1|).
        Over `unit`: `auc` and `sign_code` of T and `sign_code_p` of P, as of `selectivity`. Attributes: `ends`, how
        many; `holder`, the block that separates best; `short`, the other block with most resets inside.
    """
    steps, blocks = string_steps(recording), recording["block"].values
    names, firsts = np.unique(blocks, return_index=True)
    gate = recording["forget_gate"].values[0, 0][..., firsts]
    ends = np.argwhere(steps.last)
    lower = np.minimum(gate[ends[:, 0], ends[:, 1]], gate[ends[:, 0], ends[:, 1] + 1])
    told = selectivity(recording, "remember", signals=["cell_state"]).isel(signal=0, lag=0, layer=0, direction=0)
    auc = told["auc"].sel({"class": "T"}).values
    separation = np.array([abs(2 * auc[blocks == block] - 1).max() for block in names])
    at_ends, inside = reset_counts(recording, steps, names)
    holder = int(names[separation.argmax()])
    others = np.where(names == holder, -1, inside)
    return xr.Dataset(
        {
            "at_ends": ("block", lower.mean(0)),
            "fallen_at_ends": ("block", (lower < FALLEN).sum(0)),
            "inside": ("block", gate[steps.inside].mean(0)),
            "resets_at_ends": ("block", at_ends),
            "resets_inside": ("block", inside),
            "separation": ("block", separation),
            "auc": ("unit", auc),
            "sign_code": ("unit", told["sign_code"].sel({"class": "T"}).values),
            "sign_code_p": ("unit", told["sign_code"].sel({"class": "P"}).values),
        },
        coords={"block": names},
        attrs={"ends": len(ends), "holder": holder, "short": int(names[others.argmax()])},
    )


def reset_counts(recording: xr.Dataset, steps: Steps, names: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    """Learned resets of each block that begin at a string's end, and inside; cells that reset at once count once."""
    found = resets(recording)
    events = {
        (int(block), int(sequence), int(onset))
        for block, sequence, onset in zip(
            found["event_block"].values, found["event_sequence"].values, found["onset"].values, strict=True
        )
    }
    counts = np.zeros((2, len(names)))
    for block, sequence, onset in events:
        counts[int(steps.inside[sequence, onset]), names == block] += 1
    return counts[0], counts[1]


def state_partials(recording: xr.Dataset) -> xr.Dataset:
    """How strongly each state depends on the weights of its block, by the truncated recurrence that trains them.

    With `z = [x, y_{t-1}, 1]`, s the state and phi what multiplies it,

        P_candidate   <- phi P + g'(net) in z        (cell inputs have no bias: without the 1)
        P_input_gate  <- phi P + g(net) in (1 - in) z
        P_forget_gate <- phi P + s_{t-1} phi (1 - phi) z

    are the derivatives of s by the weights of its cell input and its block's gates, cell outputs being taken as given.
    They are multiplied by phi as the state is: what a cell forgets, it no longer learns from.

    Parameters
    ----------
    recording
        Of one layer of memory blocks, with the label `symbol`.

    Returns
    -------
    xr.Dataset
        Over `sequence`, `time`, `unit`: the Euclidean norm of each of the three; no `forget_gate` where there is none.

    References
    ----------
    F. A. Gers, J. Schmidhuber, F. Cummins (2000). Learning to Forget. doi 10.1162/089976600300015015, appendix.
    """
    if recording.attrs.get("variant"):
        raise ValueError(
            f"state_partials needs memory blocks with input and output gates that do not see gates; a cell with "
            f"{recording.attrs['variant']!r} came. Record another network."
        )
    signals = {name: recording[name].values[0, 0].astype(np.float64) for name in PARTIALS if name in recording}
    keep = np.broadcast_to(
        np.asarray(retention_values(recording.attrs["retention"], signals)), signals["candidate"].shape
    )
    before = {name: shifted(recording, name) for name in ("hidden_state", "cell_state")}
    seen = np.concatenate([one_hot(recording), before["hidden_state"], np.ones((*keep.shape[:2], 1))], axis=-1)
    opening, written = signals["input_gate"], signals["candidate"]
    slope = (written + 2) * (2 - written) / 4  # of g(x) = 4 sigmoid(x) - 2
    gains = {"candidate": slope * opening, "input_gate": written * opening * (1 - opening)}
    if "forget_gate" in signals:
        gains["forget_gate"] = before["cell_state"] * keep * (1 - keep)
    dims = ("sequence", "time", "unit")
    data = {
        name: (dims, norms(keep, gain, seen[..., :-1] if name == "candidate" else seen)) for name, gain in gains.items()
    }
    return xr.Dataset(
        data, {name: recording[name] for name in ("sequence", "time", "unit", "boundary", "length", "block")}
    )


def norms(keep: Numbers, gain: Numbers, seen: Numbers) -> Numbers:
    """Norm over weights of `P_t = keep_t P_{t-1} + gain_t z_t`, (sequence, time, unit), from P = 0."""
    found = np.empty_like(keep)
    partial = np.zeros((keep.shape[0], keep.shape[2], seen.shape[2]))
    for t in range(keep.shape[1]):
        partial = keep[:, t, :, None] * partial + gain[:, t, :, None] * seen[:, t, None, :]
        found[:, t] = np.sqrt((partial**2).sum(-1))
    return found


def shifted(recording: xr.Dataset, name: str) -> Numbers:
    """A state before each step, (sequence, time, unit)."""
    values = recording[name].values[0, 0].astype(np.float64)
    initial = recording[f"initial_{name}"].values[0, 0].astype(np.float64)
    return np.concatenate([initial[:, None], values[:, :-1]], axis=1)


def one_hot(recording: xr.Dataset) -> Numbers:
    """What the network read, (sequence, time, symbol); zeros in padding."""
    symbols: Numbers = (recording["symbol"].values[..., None] == np.array(list(SYMBOLS), object)).astype(np.float64)
    return symbols
