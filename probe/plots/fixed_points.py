"""The state portrait: where a network went, and the points at which it would stand still."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from .places import require_dataset

Array = npt.NDArray[Any]

NEEDS = {"position", "kind", "unstable", "stability", "signal"}
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # by number of unstable modes
STEPS = 3000  # of the recording that are drawn


class Plane(NamedTuple):
    """Directions of the state space that are drawn, from which point, and their share of the variance."""

    origin: Array  # (state,)
    axes: Array  # (component, state)
    share: Array  # (component,)

    def of(self, states: Array) -> Array:
        """(..., component)"""
        seen: Array = (states - self.origin) @ self.axes.T
        return seen


def plot_fixed_points(
    result: xr.Dataset, recording: xr.Dataset | None = None, *, components: int = 2, ax: Axes | None = None
) -> Axes:
    """Fixed and slow points in the first principal components of the recorded states, over where the network went.

    Stable points are filled, others hollow; colour says how many unstable modes they have. Fixed points are discs, slow
    ones diamonds. Trajectories are thin lines. A marginal point is filled in grey.

    Parameters
    ----------
    result
        What `fixed_points` returned.
    recording
        A recording of the same module, from which the components come and whose first 3000 steps are drawn. Without it
        the components are those of the points.
    components
        2, or 3 for a drawing in space.
    ax
        Axes to draw in, for 3 components with `projection="3d"`; by default a new figure with pyplot.

    Returns
    -------
    Axes
        One collection per number of unstable modes and kind, labelled with what it is and how many there are, and a
        line per sequence.

    Raises
    ------
    ValueError
        When the result is not one of `fixed_points`, has no points and comes without a recording, or the recording
        lacks a state of the module.

    References
    ----------
    D. Sussillo, O. Barak (2013). Opening the black box: low-dimensional dynamics in high-dimensional recurrent neural
    networks. Neural Computation 25 (3), 626-649. doi 10.1162/NECO_a_00409.
    """
    require_dataset(result, "plot_fixed_points", "fixed_points")
    if not set(map(str, result.variables)) >= NEEDS:
        came = sorted(map(str, result.variables))
        raise ValueError(f"plot_fixed_points needs what fixed_points returned; {came} came.")
    if components not in (2, 3):
        raise ValueError(f"components must be 2 or 3; {components!r} came.")
    runs = [] if recording is None else list(trajectories(result, recording))
    plane = plane_of(np.concatenate(runs) if runs else result["position"].to_numpy(), components)
    if ax is None:
        from matplotlib import pyplot

        space = {"projection": "3d"} if components == 3 else {}
        _, ax = pyplot.subplots(figsize=(6.8, 5.6), layout="constrained", subplot_kw=space)
    for run in runs:
        ax.plot(*plane.of(run).T, color="0.6", linewidth=0.5, alpha=0.6, zorder=1, label="_trajectory")
    for label, points, style in groups(result):
        ax.scatter(*plane.of(points).T, s=46, linewidths=1.6, zorder=3, label=label, **style)  # type: ignore[misc]
    of = "" if components == 3 else " of the variance"
    names = [f"component {place + 1} ({share:.0%}{of})" for place, share in enumerate(plane.share)]
    ax.set(xlabel=names[0], ylabel=names[1])
    if components == 3:
        ax.set(zlabel=names[2])
    module, cell = result.attrs.get("module", ""), result.attrs.get("cell", "")
    ax.set_title(f"Fixed points: {module} ({cell})\nconstant input {shown_input(result)}")
    if result.sizes["point"]:
        ax.legend(loc="best", fontsize=8, framealpha=0.9)
    return ax


def groups(result: xr.Dataset) -> Iterator[tuple[str, Array, dict[str, Any]]]:
    """Points that look alike: their label, positions (point, state) and how they are drawn."""
    unstable, kind = result["unstable"].to_numpy(), result["kind"].to_numpy()
    marginal = result["stability"].to_numpy() == "marginal"
    position = result["position"].to_numpy()
    for name in ("fixed", "slow"):
        for modes in np.unique(unstable):
            for edge in (False, True):
                here = (kind == name) & (unstable == modes) & (marginal == edge)
                if not here.any():
                    continue
                what = (
                    "marginal" if edge else "stable" if modes == 0 else f"{modes} unstable mode{'s'[: int(modes != 1)]}"
                )
                colour = COLOURS[int(modes) % len(COLOURS)]
                face = "0.7" if edge else colour if modes == 0 else to_rgba("white", 0.6)
                style = {"facecolors": face, "edgecolors": colour, "marker": "o" if name == "fixed" else "D"}
                yield f"{what if name == 'fixed' else f'slow, {what}'} ({here.sum()})", position[here], style


def trajectories(result: xr.Dataset, recording: xr.Dataset) -> Iterator[Array]:
    """States (time, state) of each sequence, in the order of the result, up to so many steps in all."""
    signals, layers = result["signal"].to_numpy(), result["layer"].to_numpy()
    parts = list(dict.fromkeys(zip(signals.tolist(), layers.tolist(), strict=True)))
    direction, left = result.attrs.get("direction", "forward"), STEPS
    for signal, layer in parts:
        if signal not in recording or layer not in recording["layer"].values or direction not in recording["direction"]:
            raise ValueError(
                f"The recording must have {signal} of layer {layer}, {direction}; it has not. Record the module whole."
            )
    for sequence, length in enumerate(recording["length"].to_numpy().tolist()):
        here = recording.isel(sequence=sequence, time=slice(0, min(int(length), left)))
        run = [here[signal].sel(layer=layer, direction=direction).to_numpy() for signal, layer in parts]
        states = np.concatenate(run, axis=-1).astype(np.float64)
        if states.shape[1] != result.sizes["state"]:
            raise ValueError(
                f"The recording must be of the module of the points, with {result.sizes['state']} states; "
                f"{states.shape[1]} came."
            )
        left -= len(states)
        yield states[np.isfinite(states).all(axis=1)]
        if left <= 0:
            return


def plane_of(states: Array, components: int) -> Plane:
    """The first principal components of some states; signs such that each one's largest weight is positive."""
    if len(states) == 0:
        raise ValueError("plot_fixed_points needs a point or a recording; neither came. Give the recording.")
    origin = states.mean(axis=0)
    _, values, axes = np.linalg.svd(states - origin, full_matrices=False)
    have = min(components, len(axes))
    chosen = np.zeros((components, states.shape[1]))
    chosen[:have] = axes[:have] * np.sign(axes[np.arange(have), np.abs(axes[:have]).argmax(axis=1)])[:, None]
    power = np.zeros(components)
    power[:have] = values[:have] ** 2 / max(float((values**2).sum()), np.finfo(float).tiny)
    return Plane(origin, chosen, power)


def shown_input(result: xr.Dataset) -> str:
    values = np.unique(result["input"].to_numpy()) if "input" in result else np.zeros(0)
    return f"{values[0]:g}" if len(values) == 1 else "as given"
