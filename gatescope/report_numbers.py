"""What a report's picture shows here, in one sentence with numbers, from the results that it draws."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import xarray as xr

from .report_code import Space
from .signals import GATE_ROLES

PLACES = 8  # layers and directions that a sentence names


def counted(words: npt.NDArray[np.object_]) -> str:
    """How often each word occurs, the most frequent first.

    >>> counted(np.array(["latch", "none", "none"], dtype=object))
    '2 none, 1 latch'
    """
    found, counts = np.unique(words.astype(str), return_counts=True)
    ranked = sorted(zip((-counts).tolist(), found.tolist(), strict=True))
    return ", ".join(f"{-count:,} {word}" for count, word in ranked)


def verdicts(space: Space) -> str:
    result = space["saturation"]
    roles = zip(result["signal"].to_numpy().tolist(), result["role"].to_numpy().tolist(), strict=True)
    gates = [name for name, role in roles if role in GATE_ROLES]
    return " ".join(f"{gate}: {counted(result['verdict'].sel(signal=gate).to_numpy())}." for gate in gates)


def events(space: Space) -> str:
    result = space["events"]
    reason = str(result.attrs.get("reason", ""))
    if reason or "reset" not in result["kind"].to_numpy():
        return reason
    count = result["count"].sel(kind="reset").to_numpy()
    return f"{int(count.sum()):,} resets, in {int((count > 0).sum()):,} of {count.size:,} units, in all sequences."


def busiest(events: xr.Dataset, place: Mapping[str, int | str], most: int) -> list[int]:
    """The units of a layer and direction with the most resets, in the order of their numbers."""
    count = events["count"].sel({"kind": "reset", **place}).to_numpy()
    order = np.argsort(-count, kind="stable")[:most]
    return sorted(int(unit) for unit in events["unit"].to_numpy()[order[count[order] > 0]])


def aligned(space: Space) -> str:
    result = space["alignment"]
    beyond = np.nan_to_num(result["p_adjusted"].to_numpy(), nan=1.0) < 0.05
    if not beyond.any():
        return "No unit resets at boundaries beyond chance."
    score = np.where(beyond, np.nan_to_num(result["f1"].to_numpy()), -1.0)
    return (
        f"{int(beyond.sum()):,} of {beyond.size:,} units align beyond chance; the best has an F1 of {score.max():.2f}."
    )


def parts(space: Space) -> str:
    return f"Units by role: {counted(space['roles']['unit_role'].to_numpy())}."


def growing(space: Space) -> str:
    return f"Units by verdict: {counted(space['drift']['verdict'].to_numpy())}."


def reach(space: Space) -> str:
    """Verdict and half-life of every layer and direction."""
    flow, said = space["flow"], []
    verdict, half = (flow[name].transpose("layer", "direction").to_numpy() for name in ("verdict", "half_life"))
    for place in np.ndindex(verdict.shape):
        layer, direction = flow["layer"].to_numpy()[place[0]], flow["direction"].to_numpy()[place[1]]
        gone = f", half gone after {half[place]:.3g} steps" if np.isfinite(half[place]) else ""
        said.append(f"layer {layer}, {direction}: {verdict[place]}{gone}")
    more = f"; and {len(said) - PLACES} others" if len(said) > PLACES else ""
    return f"{'; '.join(said[:PLACES])}{more}.".capitalize()
