"""How much of a gradient survives k steps back through a trained recurrent network, and by which path."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from .horizons import LEVELS, choose_horizons, quantiles
from .norms import judged_block, norms_at_zero
from .place import Place, norms_of
from .plan import Plan
from .products import Numbers
from .reading import Source
from .survival import THRESHOLDS, Survival, survival

KEPT_ATTRS = ("module", "cell", "variant", "retention", "gatescope_version", "training", "created")


def gradient_flow(
    recording: xr.Dataset, *, horizons: Sequence[int] | None = None, method: str = "auto", end: int | None = None
) -> xr.Dataset:
    """How much of a change of the state k steps ago is still there: along the memory alone, and by all paths together.

    With the state `s = (h, c)` of one layer and direction and `J_t = ds_t / ds_{t-1}`, the whole step Jacobian,

        ds_t / ds_{t-k} = J_t J_{t-1} ... J_{t-k+1},

    which is also what a gradient is multiplied by on its way back from t to t - k. The product of the memory's own
    steps `dc_t/dc_{t-1}` is not a block of it: it leaves out what passes through the output gate. A change of `c` also
    reaches `h` of its own step, so the *total* derivatives are `dc_t/dc_{t-k} = [0 1] P [dh/dc; 1]` and likewise for
    `h_t`. Everything follows from the recording and its recurrent weights; steps are never joined across sequences, and
    the backward direction is followed in the order in which it reads. Products are scaled as they grow or shrink, so
    10**-874 is told from 0. Norms and slopes are powers of ten (log10).

    Parameters
    ----------
    recording
        Of a cell whose Jacobian is known (every cell of ours whose gates do not see gates), or of any other one with
        `step_jacobian` (`attach(..., jacobian=True)`), which gives no totals and no paths. It may be opened from disk;
        one layer, direction and group of sequences is read at a time.
    horizons
        Steps back, whole numbers of at least 1. By default every one to 32 and then 24 in each power of ten up to the
        longest sequence (at most 10,000), with spectral norms at 1, 2, 5, 10, ... only.
    method
        `exact` carries whole products; `range` carries 16 rows per state that span what survives longest, and 16 random
        ones that measure the rest without bias; `auto` is exact while steps * 8 units^3, summed over sequences, is at
        most 1e11. With `range` the first 32 steps are exact all the same where that can be afforded.
    end
        The step, counted as the direction reads (-1: the last), at which all products end. By default several ends are
        spread over each sequence: as many as cost little, at most 16; the last step is always one.

    Returns
    -------
    xr.Dataset
        Over `layer`, `direction`, and `quantile` (0.1, 0.5, 0.9 over sequences and steps) where a distribution is
        summed up:

        - `cell_path` (horizon, unit): product of the retention over k steps; -inf where a gate was exactly 0. Left out
          for a cell without retention.
        - `state_norm` (norm, block, horizon): `frobenius` at every horizon, `spectral` where it was taken. Blocks are
          named from the state that is changed to the one that it reaches: `whole`, `h->h`, `h->c`, `c->h`, `c->c` (the
          other state held) and `total c->c`, `total c->h`; a cell with one state has `whole`. `norm_at_zero` (norm,
          block) is what the norms are at horizon 0.
        - `path_share` (sequence, time, path): signed shares, adding to 1, of the paths by which a change of the memory
          reaches the next state: with S the sum of the paths' terms X of d(h, c)_t / dc_{t-1}, <X, S> / <S, S>. The
          output gate of step t - 1 is held, as is projection at t. NaN at a sequence's first step.
        - `knockout_norm` (path, horizon): the whole norm of the products when a path is cut at every step, and beside
          it `knockout_reference`, that of the same products uncut.
        - `half_life`, `effective_horizon` (threshold): the horizon at which the median norm of the block in attribute
          `judged_block` falls under a half, under 1 % and under float32's resolution of what it is at horizon 0; inf
          where that is not reached. `slope` per step, over the last three quarters of the horizons. `verdict`:
          `vanishing` or `exploding` when that norm has changed by more than a factor of 100 at the longest horizon,
          or, for one under 100 steps, would have by then with this slope; `preserved` else.
        - `state_norm_samples`, `cell_path_samples`, `knockout_samples` (horizon): pairs of steps behind the quantiles.
        - `state_norm_error` (horizon), with `range`: the largest standard error of the whole norm, in log10.

        A recording in float32 is carried in float64 where that costs little (attribute `precision`).

    Raises
    ------
    ValueError
        When the cell has no known Jacobian, signals, weights or units are missing, steps were left out, or a parameter
        is out of range. `SchemaError` when the Dataset is no recording.
    TypeError
        For what is no Dataset.

    References
    ----------
    S. Hochreiter, J. Schmidhuber (1997). Long Short-Term Memory. doi:10.1162/neco.1997.9.8.1735.
    R. Pascanu, T. Mikolov, Y. Bengio (2013). On the difficulty of training recurrent neural networks. arXiv:1211.5063.
    N. Halko, P.-G. Martinsson, J. Tropp (2011). Finding structure with randomness. arXiv:0909.4061.
    R. Meyer, C. Musco, C. Musco, D. Woodruff (2021). Hutch++: optimal stochastic trace estimation. arXiv:2010.09649.

    Examples
    --------
    One rectified unit that feeds half of itself back: after k steps a half to the power of k is left.

    >>> dims = ("layer", "direction", "sequence", "time", "unit")
    >>> hidden_state = xr.DataArray(np.ones((1, 1, 1, 4, 1)), dims=dims, attrs={"role": "memory"})
    >>> weight_hh = xr.DataArray(np.full((1, 1, 1, 1, 1), 0.5), dims=("layer", "direction", "gate", "unit", "source"))
    >>> recording = xr.Dataset({"hidden_state": hidden_state, "weight_hh": weight_hh}).assign_coords(
    ...     gate=["hidden_state"], direction=["forward"]
    ... )
    >>> recording.attrs = {"schema": "gatescope.recording/1", "cell": "RNNCell", "retention": "none"}
    >>> result = gradient_flow(recording)
    >>> (10 ** result["state_norm"].sel(quantile=0.5, norm="frobenius", block="whole")).round(6).values.ravel()
    array([0.5  , 0.25 , 0.125])
    >>> result["half_life"].item(), result["verdict"].item()
    (1.0, 'vanishing')
    """
    plan = planned(recording, horizons, method, end)
    places = [(i, j) for i in range(recording.sizes["layer"]) for j in range(recording.sizes["direction"])]
    with np.errstate(invalid="ignore", over="ignore"):  # a sequence that is not finite gives NaN, and says nothing
        found = [Place(plan, layer, direction) for layer, direction in places]
    result = assembled(plan, found)
    kept = {key: recording.attrs[key] for key in KEPT_ATTRS if key in recording.attrs}
    result.attrs = kept | plan.attrs(horizons, end) | result.attrs
    return result


def planned(recording: xr.Dataset, horizons: Sequence[int] | None, method: str, end: int | None) -> Plan:
    """Which products are taken of the recording."""
    source = Source(recording, "gradient_flow")
    longest = int(source.lengths.max(initial=0)) - 1
    if longest < 1:
        raise ValueError(
            f"gradient_flow needs a sequence of at least 2 steps; the longest has {longest + 1}. Record longer ones."
        )
    return Plan(source, choose_horizons(horizons, longest), method, end)


def gradient_verdict(recording: xr.Dataset, *, method: str = "auto") -> xr.Dataset:
    """`half_life`, `slope` and `verdict` of `gradient_flow`, without all that these do not need."""
    plan = planned(recording, None, method, None)
    shape = (recording.sizes["layer"], recording.sizes["direction"])
    judged = []
    with np.errstate(invalid="ignore", over="ignore"):
        for layer, direction in np.ndindex(*shape):
            norms, blocks, _ = norms_of(plan, layer, direction, judged=True)
            judged.append(judged_curve(plan, norms.frobenius[:, 0], blocks[0]))
    here = ("layer", "direction")
    data = {
        "half_life": (here, np.reshape([each.half_life for each in judged], shape)),
        "slope": (here, np.reshape([each.slope for each in judged], shape)),
        "verdict": (here, np.reshape(np.array([each.verdict for each in judged], dtype=object), shape)),
    }
    return xr.Dataset(data, {dim: recording[dim].variable for dim in here})


def judged_curve(plan: Plan, curve: Numbers, block: str) -> Survival:
    """What the median over products says of a block's log10 norms (product, horizon)."""
    origin = norms_at_zero(plan.source.widths, (block,))[0, 0]
    return survival(plan.horizons.every, quantiles(curve, [0.5])[0] - origin)


def assembled(plan: Plan, found: list[Place]) -> xr.Dataset:
    """The result's variables from what was found of each layer and direction."""
    recording, every = plan.source.recording, plan.horizons.every
    shape = (recording.sizes["layer"], recording.sizes["direction"])
    first = found[0]

    def gathered(values: Sequence[Any]) -> Any:
        array = np.stack([np.asarray(value) for value in values])
        return array.reshape(*shape, *array.shape[1:])

    norms = gathered([np.stack([quantiles(kind, LEVELS) for kind in place.norms[:2]], axis=1) for place in found])
    at_zero = norms_at_zero(plan.source.widths, first.blocks)
    block = judged_block(first.blocks)
    judged_place = first.blocks.index(block)
    judged = [judged_curve(plan, place.norms.frobenius[:, judged_place], block) for place in found]
    counts = (~np.isnan(first.norms.frobenius[:, 0])).sum(axis=0)
    here = ("layer", "direction")
    log = {"units": "log10"}
    data: dict[str, Any] = {
        "state_norm": (
            (*here, "quantile", "norm", "block", "horizon"),
            norms,
            {"long_name": "norm of d(state at t) / d(state at t - horizon)", **log},
        ),
        "norm_at_zero": (("norm", "block"), at_zero, {"long_name": "norms over 0 steps", **log}),
        "state_norm_samples": (("horizon",), counts, {"long_name": "pairs of steps behind it", "units": "1"}),
        "half_life": (here, gathered([each.half_life for each in judged]), {"units": "steps"}),
        "effective_horizon": (
            (*here, "threshold"),
            gathered([each.effective_horizon for each in judged]),
            {"units": "steps", "long_name": "horizon at which the whole norm falls under a share of that at 0"},
        ),
        "slope": (here, gathered([each.slope for each in judged]), {"units": "log10 per step"}),
        "verdict": (here, gathered([each.verdict for each in judged]).astype(object), {"long_name": "verdict"}),
    }
    coords: dict[str, Any] = {dim: recording[dim].variable for dim in here}
    coords |= {
        "quantile": np.array(LEVELS),
        "norm": np.array(["frobenius", "spectral"], object),
        "block": np.array(first.blocks, object),
        "horizon": ("horizon", every, {"units": "steps"}),
        "threshold": np.array(THRESHOLDS),
    }
    if plan.method == "range":
        errors = gathered([np.nanmax(place.norms.error, axis=0) for place in found])
        data["state_norm_error"] = (
            (*here, "horizon"),
            errors,
            {"long_name": "largest standard error of the whole Frobenius norm", **log},
        )
    if first.cell_path is not None:
        data["cell_path"] = (
            (*here, "quantile", "horizon", "unit"),
            gathered([place.cell_path for place in found]),
            {"long_name": "product of the retention over the horizon", **log},
        )
        data["cell_path_samples"] = (("horizon",), first.samples, {"long_name": "pairs of steps", "units": "1"})
        coords["unit"] = recording["unit"].variable
    if first.paths:
        data |= path_variables(plan, found, gathered)
        shares = data["path_share"][1]
        coords["path"] = np.array(first.paths, object)
        coords["sequence"] = recording["sequence"].variable
        coords["time"] = recording["time"].to_numpy()[: shares.shape[3]]
    return xr.Dataset(data, coords, {"judged_block": block})


def path_variables(plan: Plan, found: list[Place], gathered: Any) -> dict[str, Any]:
    cut = [np.stack([quantiles(values, LEVELS) for values in place.cut], axis=1) for place in found]
    reference = [quantiles(place.reference, LEVELS) for place in found]
    here, log = ("layer", "direction"), {"units": "log10"}
    return {
        "path_share": (
            (*here, "sequence", "time", "path"),
            gathered([place.shares for place in found]),
            {"long_name": "signed share of a path in one step", "units": "1"},
        ),
        "knockout_norm": (
            (*here, "quantile", "path", "horizon"),
            gathered(cut),
            {"long_name": "whole Frobenius norm with a path cut at every step", **log},
        ),
        "knockout_reference": (
            (*here, "quantile", "horizon"),
            gathered(reference),
            {"long_name": "the same products with no path cut", **log},
        ),
        "knockout_samples": (
            ("horizon",),
            (~np.isnan(found[0].reference)).sum(axis=0),
            {"long_name": "pairs of steps behind them", "units": "1"},
        ),
    }
