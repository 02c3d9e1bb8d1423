"""Where a network stands still under a constant input, and what it does nearby."""

from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import xarray as xr
from torch import nn

from ..signals import VERSION
from .fixed_point_search import distances, gathered, search
from .fixed_point_starts import starting_states
from .rebuild import uncast
from .state_map import StateMap, chosen_layers, constant_input

Array = npt.NDArray[Any]
MOST = 1_000_000  # starts


def fixed_points(
    model: nn.Module,
    *,
    input: Any,
    starts: Any,
    module: str | None = None,
    layer: int | None = None,
    direction: str | None = None,
    count: int = 512,
    between: float = 0.5,
    seed: int = 0,
    fixed: float = 1e-20,
    slow: float = 1e-6,
    unique: float = 1e-4,
    reach: float = 10.0,
    margin: float = 1e-6,
    steps: int = 500,
    jacobian: bool = False,
) -> xr.Dataset:
    """Fixed and slow points of a recurrent module under a constant input, and whether they hold or repel.

    With x all that the module carries from step to step (of an LSTM `h` and `c`, of several layers those of each) and F
    one step under the constant input, the speed is measured by

        q(x) = |F(x) - x|^2 / 2.

    From every start q is brought to where it is lowest nearby (Levenberg-Marquardt, all starts side by side, and Newton
    steps at the end; float64 on the CPU). Where q vanishes the network stays for ever; where q is lowest but not 0, a
    slow point, it lingers. What happens around a point is in the eigenvalues of F's Jacobian there: a mode with
    |eigenvalue| < 1 returns, and falls to 1/e within `-1 / ln |eigenvalue|` steps; one with |eigenvalue| > 1 leaves.

    The model is never run or touched, only its weights are copied. What is found are points that some start leads to:
    others may exist. Attractors are found from states near them; saddles, which separate them, mostly from states
    between those (`between`).

    Parameters
    ----------
    model
        Any `torch.nn.Module` with a recurrent module inside: LSTM, GRU and RNN with any number of layers, their cells,
        gatescope's own and registered ones.
    input
        The constant input of the module (not of the model around it): (feature,), or a number for all features.
    starts
        A recording of this module, from whose states the search starts; or an array (start, state), used as it is,
        with the states in the order of the result's `state`.
    module
        Path of the module; may be left out where there is one.
    layer
        One layer alone; `input` is then what comes to that layer. All layers together by default. Must be given for
        several layers that read both ways: there a layer above reads the other direction's future, and all layers
        together are no map of a state onto the next.
    direction
        `"forward"` or `"backward"`; must be given for a module that reads both ways.
    count
        Starts taken from a recording, at random. Fewer where the recording is short: no state is taken twice.
    between
        Share of them in [0, 1] that lie, at random, on the line between two recorded states.
    seed
        Of that choice.
    fixed, slow
        A point is fixed where q is at most `fixed`, and slow where it is at most `slow` and lowest thereabouts.
    unique
        Points that differ by no more than this in any entry count as one.
    reach
        Points further from all starts than so many times the starts' spread (root mean squared distance from their
        mean) are left out as outliers.
    margin
        A mode is unstable where |eigenvalue| > 1 + margin, and marginal within the margin of 1.
    steps
        Most steps of the search.
    jacobian
        Whether the result has the Jacobian of every point.

    Returns
    -------
    Dataset
        Over `point`, fixed before slow ones and the most stable first; there may be none. `state` has the coordinates
        `signal`, `layer` and `unit`; `mode` runs from the largest |eigenvalue| to the smallest.

        - `position` (point, state).
        - `q` (point), and `kind`: `fixed` or `slow`.
        - `unstable` (point): number of unstable modes; `stability`: `stable` (none), `marginal` (none, but marginal
          ones, as on a line of fixed points), `saddle`, or `repelling` (all).
        - `eigenvalue_real`, `eigenvalue_imag` (point, mode).
        - `time_constant` (point, mode): steps; negative for a mode that grows, infinite at |eigenvalue| = 1.
        - `found` (point): how many starts led there. `distance` (point): from the nearest start.
        - `jacobian` (point, target_state, source_state) if asked for.
        - `input` (feature).

        Attributes tell what became of the starts: `starts`, `fast_starts` (lowest q above `slow`), `unsettled_starts`
        (not done after `steps`), `outlier_starts`; and the parameters.

    Raises
    ------
    ValueError
        For several modules of which none is named, directions or layers that are no map of their own (see above), or
        an input, starts or parameters that do not fit.
    TypeError
        If the model has nothing that can be observed.

    References
    ----------
    D. Sussillo, O. Barak (2013). Opening the black box: low-dimensional dynamics in high-dimensional recurrent neural
    networks. Neural Computation 25 (3), 626-649. doi 10.1162/NECO_a_00409.

    Examples
    --------
    `h <- tanh(2 h)` leaves 0, which is unstable with the eigenvalue 2, for one of two stable points.

    >>> rnn = nn.RNN(1, 1, bias=False)
    >>> for weight in rnn.parameters():
    ...     _ = nn.init.constant_(weight, 2.0)
    >>> found = fixed_points(rnn, input=0.0, starts=[[-0.5], [0.5], [1e-9]])
    >>> found.stability.values.tolist(), abs(found.position.values.ravel().round(4)).tolist()
    (['stable', 'stable', 'repelling'], [0.9575, 0.9575, 0.0])
    """
    parameters: dict[str, Any] = {"count": count, "between": between, "seed": seed, "fixed": fixed, "slow": slow}
    parameters |= {"unique": unique, "reach": reach, "margin": margin, "steps": steps}
    check_parameters(parameters)
    chosen = chosen_layers(model, module, layer, direction)
    with torch.inference_mode(False), torch.enable_grad(), uncast(torch.device("cpu")):
        constant = constant_input(input, chosen.cells[0].input_size, repr(chosen.path))
        dynamics = StateMap(chosen.cells, chosen.layers, constant)
        first = starting_states(starts, dynamics.entries, chosen.direction, count=count, between=between, seed=seed)
        states = torch.from_numpy(first)
        if not dynamics.step(states).isfinite().any():
            raise ValueError(
                f"{chosen.path!r} must step to finite states; its states after every start are NaN or infinite. Look "
                "for weights that are not finite."
            )
        ends = search(dynamics, states, steps)
        far = distances(ends.points, states)
        kept, counts = sorted_out(ends.q, ends.settled, far, states, parameters)
        places, found = gathered(ends.points[kept], ends.q[kept], unique)
        places = kept[places].tolist()
        points = ends.points[places]
        jacobians = dynamics.jacobian(points).numpy()
    result = described(dynamics, points.numpy(), jacobians, margin)
    result["q"] = ("point", ends.q[places].numpy(), {"long_name": "half the squared speed", "units": "1"})
    result["kind"] = ("point", np.where(result["q"] <= fixed, "fixed", "slow").astype(object))
    result["found"] = ("point", np.array(found, np.int64), {"long_name": "starts that led there", "units": "1"})
    result["distance"] = ("point", far[places].numpy(), {"long_name": "distance from the nearest start", "units": "1"})
    result["input"] = ("feature", constant, {"long_name": "constant input", "units": "1"})
    if not jacobian:
        result = result.drop_vars(["jacobian", "target_state", "source_state"])
    about = {"module": chosen.path, "cell": type(chosen.cells[0]).__name__, "direction": chosen.direction}
    about |= {"layers": ", ".join(map(str, chosen.layers)), "gatescope_version": VERSION}
    return ordered(result).assign_attrs({**about, **counts, **parameters})


def sorted_out(
    q: torch.Tensor, settled: torch.Tensor, far: torch.Tensor, states: torch.Tensor, parameters: dict[str, Any]
) -> tuple[torch.Tensor, dict[str, int]]:
    """Which starts led to points that count, and what became of the others."""
    spread = (states - states.mean(0)).square().sum(-1).mean().sqrt()
    outlier = (far > parameters["reach"] * spread) & (spread > 0)
    low = (q <= parameters["fixed"]) | (settled & (q <= parameters["slow"]))
    lost = ~(settled | low)
    kept = torch.nonzero(low & ~outlier).flatten()
    return kept, {
        "starts": len(states),
        "fast_starts": int((~low & ~lost).sum()),
        "unsettled_starts": int(lost.sum()),
        "outlier_starts": int((low & outlier).sum()),
    }


def described(dynamics: StateMap, points: Array, jacobians: Array, margin: float) -> xr.Dataset:
    """What the Jacobians say of each point."""
    values: Array = np.linalg.eigvals(jacobians) if len(points) else np.zeros(points.shape, np.complex128)
    values = np.take_along_axis(values, np.argsort(-np.abs(values), axis=1, kind="stable"), axis=1)
    size = np.abs(values)
    unstable, marginal = (size > 1 + margin).sum(1), (np.abs(size - 1) <= margin).any(1)
    with np.errstate(divide="ignore"):
        constants = -1 / np.log(size)
    constants = np.where(size == 1, np.inf, constants)
    kinds = [unstable == size.shape[1], unstable > 0, marginal]
    word = np.select(kinds, ["repelling", "saddle", "marginal"], default="stable").astype(object)
    mode = ("point", "mode")
    return xr.Dataset(
        {
            "position": (("point", "state"), points, {"long_name": "state at the point", "units": "1"}),
            "unstable": ("point", unstable.astype(np.int64), {"long_name": "unstable modes", "units": "1"}),
            "stability": ("point", word),
            "eigenvalue_real": (mode, np.ascontiguousarray(values.real), {"long_name": "eigenvalue, real part"}),
            "eigenvalue_imag": (mode, np.ascontiguousarray(values.imag), {"long_name": "eigenvalue, imaginary part"}),
            "time_constant": (mode, constants, {"long_name": "time constant", "units": "steps"}),
            "jacobian": (("point", "target_state", "source_state"), jacobians),
        },
        coords={
            "point": np.arange(len(points)),
            "state": np.arange(dynamics.size),
            "signal": ("state", np.concatenate([np.full(e.width, e.signal, object) for e in dynamics.entries])),
            "layer": ("state", np.concatenate([np.full(e.width, e.layer) for e in dynamics.entries])),
            "unit": ("state", np.concatenate([np.arange(e.width) for e in dynamics.entries])),
            "mode": np.arange(dynamics.size),
            "target_state": np.arange(dynamics.size),
            "source_state": np.arange(dynamics.size),
            "feature": np.arange(len(dynamics.input)),
        },
    )


def ordered(result: xr.Dataset) -> xr.Dataset:
    """Fixed points first, the most stable before the others, those that most starts led to before rarer ones."""
    keys = (result["q"].values, -result["found"].values, result["unstable"].values, result["kind"].values == "slow")
    return result.isel(point=np.lexsort(keys)).assign_coords(point=np.arange(result.sizes["point"]))


def check_parameters(parameters: dict[str, Any]) -> None:
    """Raise for the first parameter that is out of range."""
    for name, least in (("count", 1), ("seed", 0), ("steps", 1)):
        value = parameters[name]
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"{name} must be a whole number from {least} on; {value!r} came.")
    if parameters["count"] > MOST:
        raise ValueError(f"count must be at most {MOST:,}; {parameters['count']!r} came. Search with several seeds.")
    for name, most in (("between", 1), ("fixed", np.inf), ("slow", np.inf), ("unique", np.inf), ("reach", np.inf)):
        value = parameters[name]
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= most:
            raise ValueError(f"{name} must be a number from 0 {f'to {most}' if most == 1 else 'on'}; {value!r} came.")
    if not isinstance(parameters["margin"], Real) or not 0 <= float(parameters["margin"]) < 1:
        raise ValueError(f"margin must be a number from 0 on and below 1; {parameters['margin']!r} came.")
    if parameters["fixed"] > parameters["slow"]:
        raise ValueError(
            f"fixed must not be above slow; {parameters['fixed']!r} and {parameters['slow']!r} came. A fixed point is "
            "the slowest of all."
        )
