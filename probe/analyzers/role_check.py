"""Does it hurt what a unit's role says, when the unit is taken out: long-lag against short-lag error."""

from numbers import Real

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy import stats

from .paired import mean_interval, sign_flip_p
from .runs import Numbers

LONG, SHORT, NEITHER, NO_CLAIM = "long", "short", "neither", ""
EXPECTED = {
    "long-memory": LONG,
    "latch": LONG,
    "short-memory": SHORT,
    "event detector": SHORT,
    "pass-through": SHORT,
    "stuck": NEITHER,
    "dead": NEITHER,
}
"""What the loss of a unit must hurt; counters and clocks may serve either lag, so their roles claim nothing here."""

Flags = npt.NDArray[np.bool_]


def role_check(
    roles: xr.Dataset,
    ablation: xr.Dataset,
    *,
    long: str = "long",
    short: str = "short",
    alpha: float = 0.05,
    little: float = 0.1,
    seed: int = 0,
) -> xr.Dataset:
    """The causal test of `roles`: the error at long and at short lags that each unit's or block's loss adds.

    A unit or block is said to hurt one kind of error where that grows over the sequences with p < alpha (sign flips,
    one-sided, Benjamini and Hochberg's correction over the units or blocks), and one more than the other where the
    difference of the two, sequence by sequence, has p < alpha (two-sided, corrected). `damage` is

    - `"long only"`, `"short only"`: it hurts that one more, and the other by at most `little` of it;
    - `"long more"`, `"short more"`: it hurts that one more; `"both alike"`: one of the two or both, neither more;
    - `"neither"`.

    The role of long memories and latches is confirmed by `long only` and `long more`; of short memories, event
    detectors and pass-through units when short-lag error grows, whatever else does, because who loses the last symbol
    loses the place in the sequence; of stuck and dead units by `neither`. Counters, clocks and units without a role
    claim nothing.

    Parameters
    ----------
    roles
        What `roles` returned.
    ablation
        What `ablation` returned, over units or blocks of the same module, without `time`, of a metric with two entries
        that give one number a sequence and grow with the error: shares of wrong predictions, or losses, per step.
    long, short
        Their names.
    alpha
        Largest corrected p that counts.
    little
        Share of the larger effect up to which the smaller one is said to be spared.
    seed
        Of the intervals and of the random signs.

    Returns
    -------
    xr.Dataset
        Over `layer`, `direction`, and `unit` or `memory_block`, with `lag` (`long`, `short`): `specialisation`, the
        mean growth of that error, in its unit; its interval `specialisation_low`, `specialisation_high`; `p` and
        `p_adjusted`. Without `lag`: `contrast`, long less short, with `contrast_p` and `contrast_p_adjusted`; `role`;
        `expected` (`long`, `short`, `neither`, or empty); `damage`; `confirmed`; `verdict` (`confirmed`, `not needed`,
        `contradicted`, `no claim`) and `finding`, a sentence.

    Raises
    ------
    ValueError
        When either is not what it must be, a metric is missing or gives one number for all, units of the ablation are
        not among the roles, or a parameter is out of range.

    Examples
    --------
    A latch whose loss makes nearly every long prediction wrong, over eight sequences:

    >>> place = {"layer": [0], "direction": ["forward"], "unit": [0]}
    >>> dims = ("layer", "direction", "unit")
    >>> held = xr.Dataset({"unit_role": (dims, [[["latch"]]])}, place, {"measure": "roles"})
    >>> grown = np.array([[0.9] * 8, [0.0] * 8]).reshape(2, 1, 1, 1, 8)
    >>> lesioned = xr.Dataset(
    ...     {"effect_by_sequence": (("metric", *dims, "sequence"), grown)},
    ...     place | {"metric": ["long", "short"], "per_sequence": ("metric", [True, True])},
    ...     {"measure": "ablation", "over": "unit"},
    ... )
    >>> role_check(held, lesioned)["finding"].item()
    'confirmed: it is a latch, and without it the error grows by 0.9 at long lags and by 0 at short ones'
    """
    _check_parameters({"alpha": alpha, "little": little}, seed)
    grown, role = _checked(roles, ablation, (long, short))
    dims = tuple(str(dim) for dim in role.dims)
    both = grown.to_numpy()  # (layer, direction, unit, lag, sequence)
    mean = both.mean(axis=-1)
    low, high = mean_interval(both, float(ablation.attrs.get("confidence", 0.95)), 2000, seed)
    p = sign_flip_p(both, seed, greater=True)
    p_adjusted = np.stack([_corrected(p[..., lag]) for lag in range(2)], axis=-1)
    difference = both[..., 0, :] - both[..., 1, :]
    contrast, contrast_p = difference.mean(axis=-1), sign_flip_p(difference, seed)
    contrast_p_adjusted = _corrected(contrast_p)
    hurt, more = p_adjusted < alpha, contrast_p_adjusted < alpha
    damage = _damage(mean, hurt, np.where(more, np.sign(contrast), 0), little)
    names = role.to_numpy().astype(str)
    expected = np.vectorize(lambda name: EXPECTED.get(name, NO_CLAIM), otypes=[object])(names)
    verdict = _verdicts(expected, damage, hurt)
    what = "block" if dims[-1] == "memory_block" else "unit"
    finding = np.empty(names.shape, dtype=object)
    for at in np.ndindex(names.shape):
        finding[at] = sentence(str(verdict[at]), str(names[at]), mean[at], what)
    error = {"long_name": "growth of the error when it is taken out"}
    data = {
        "specialisation": ((*dims, "lag"), mean, error),
        "specialisation_low": ((*dims, "lag"), low, {"long_name": "lower end of its interval"}),
        "specialisation_high": ((*dims, "lag"), high, {"long_name": "upper end of its interval"}),
        "p": ((*dims, "lag"), p, {"long_name": "p of so much growth, one-sided", "units": "1"}),
        "p_adjusted": (
            (*dims, "lag"),
            p_adjusted,
            {"long_name": f"p corrected for the number of {what}s", "units": "1"},
        ),
        "contrast": (dims, contrast, {"long_name": "growth at long lags less that at short ones"}),
        "contrast_p": (dims, contrast_p, {"long_name": "p of such a difference, two-sided", "units": "1"}),
        "contrast_p_adjusted": (dims, contrast_p_adjusted, {"long_name": "the same, corrected", "units": "1"}),
        "role": (dims, names.astype(object), {"long_name": "role from the recording"}),
        "expected": (dims, expected, {"long_name": "what its loss must hurt"}),
        "damage": (dims, damage, {"long_name": "what its loss hurts"}),
        "confirmed": (dims, verdict == "confirmed", {"long_name": "role confirmed by the lesion"}),
        "verdict": (dims, verdict, {"long_name": "verdict on the role"}),
        "finding": (dims, finding, {"long_name": "verdict as a sentence"}),
    }
    coords = {name: variable for name, variable in ablation.coords.items() if set(variable.dims) <= set(dims)}
    result = xr.Dataset(data, coords | {"lag": np.array([LONG, SHORT], dtype=object)})
    attrs = {name: ablation.attrs[name] for name in ("module", "cell", "over", "to") if name in ablation.attrs}
    call = {"long": long, "short": short, "alpha": float(alpha), "little": float(little), "seed": int(seed)}
    return result.assign_attrs({"measure": "role_check", **attrs, **call, "sequences": int(both.shape[-1])})


def _checked(roles: xr.Dataset, ablation: xr.Dataset, names: tuple[str, str]) -> tuple[xr.DataArray, xr.DataArray]:
    """Effects (layer, direction, unit or memory_block, lag, sequence) and the roles of the same units or blocks."""
    for name, value in (("roles", roles), ("ablation", ablation)):
        if not isinstance(value, xr.Dataset) or value.attrs.get("measure") != name:
            raise ValueError(f"role_check needs what {name} returned as its {name}; something else came.")
    _check_metrics(ablation, names)
    over = ablation.attrs.get("over")
    dim, variable = {"unit": ("unit", "unit_role"), "block": ("memory_block", "block_role")}.get(str(over), ("", ""))
    if not dim or "time" in ablation["effect_by_sequence"].dims:
        came = f"over={over!r}" + (" in stretches of time" if "time" in ablation.dims else "")
        raise ValueError(f"the ablation must be over units or blocks, at all times; {came} came.")
    if variable not in roles:
        raise ValueError("the roles must be of a cell with blocks, where the ablation is over blocks; they have none.")
    dims = ("layer", "direction", dim)
    if not {*dims, "metric", "sequence"} <= set(ablation["effect_by_sequence"].dims):
        came = ", ".join(map(str, ablation["effect_by_sequence"].dims))
        raise ValueError(f"the ablation must have its dims {', '.join(dims)}; {came} came. Select with a list, [0].")
    grown = ablation["effect_by_sequence"].sel(metric=list(names)).rename(metric="lag")
    if not bool(np.isfinite(grown).all()):
        raise ValueError("the ablation must have finite effects; some are NaN or infinite. Take its result as it came.")
    places = {name: ablation[name].to_numpy() for name in dims}
    for name, values in places.items():
        missing = [value for value in values.tolist() if value not in roles[name].to_numpy().tolist()]
        if missing:
            raise ValueError(f"each {name} of the ablation must be among the roles; {missing[0]!r} is not.")
    return grown.transpose(*dims, "lag", "sequence"), roles[variable].sel(places).transpose(*dims)


def _check_parameters(shares: dict[str, float], seed: int) -> None:
    for name, size in shares.items():
        if not isinstance(size, Real) or not 0 < size < 1:
            raise ValueError(f"{name} must be between 0 and 1; {size!r} came.")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"seed must be a whole number from 0 on; {seed!r} came.")


def _check_metrics(ablation: xr.Dataset, names: tuple[str, str]) -> None:
    """Raise where the ablation does not have two metrics that can be tested."""
    there = ablation["metric"].to_numpy().tolist()
    if names[0] == names[1]:
        raise ValueError(f"long and short must name two metrics; {names[0]!r} came for both. Name the other error too.")
    for name in names:
        if name not in there:
            known = ", ".join(map(str, there))
            raise ValueError(f"long and short must name metrics of the ablation; {name!r} came. It has: {known}.")
        if not bool(ablation["per_sequence"].sel(metric=name)):
            raise ValueError(
                f"metric {name!r} must give one number a sequence; it gave one for all, which cannot be tested. "
                "Average over steps only."
            )
    if ablation.sizes["sequence"] < 2:
        raise ValueError("the ablation must be over several sequences; one came, which cannot be tested. Cut it.")


def _corrected(p: Numbers) -> Numbers:
    return np.asarray(stats.false_discovery_control(p, axis=None)).reshape(p.shape)


def _damage(mean: Numbers, hurt: Flags, more: Numbers, little: float) -> npt.NDArray[np.object_]:
    """What the loss hurts, from effects and flags (..., lag) and which is hurt more (1, -1 or 0)."""
    found = np.full(more.shape, "both alike", dtype=object)
    for lag, (name, sign) in enumerate(((LONG, 1), (SHORT, -1))):
        chosen = hurt[..., lag] & (more == sign)
        spared = mean[..., 1 - lag] <= little * mean[..., lag]
        found[chosen & spared], found[chosen & ~spared] = f"{name} only", f"{name} more"
    found[~hurt.any(axis=-1)] = NEITHER
    return found


def _verdicts(
    expected: npt.NDArray[np.object_], damage: npt.NDArray[np.object_], hurt: Flags
) -> npt.NDArray[np.object_]:
    right = (expected == LONG) & np.isin(damage.astype(str), ["long only", "long more"])
    right |= (expected == SHORT) & hurt[..., 1]
    right |= (expected == NEITHER) & (damage == NEITHER)
    found = np.where(right, "confirmed", "contradicted").astype(object)
    found[~right & (damage == NEITHER)] = "not needed"
    found[expected == NO_CLAIM] = "no claim"
    return found


def sentence(verdict: str, role: str, grown: Numbers, what: str) -> str:
    """A verdict in words.

    >>> sentence("not needed", "latch", np.array([0.0, -0.004]), "block")
    'not needed: the block is a latch, and without it the error grows by 0 at long lags and by -0.004 at short ones'
    """
    named = "has no role" if role == "none" else f"is {article(role)}{role}"
    long, short = (f"{round(float(value), 3) + 0:g}" for value in grown)
    it = "the block" if what == "block" else "it"
    return (
        f"{verdict}: {it} {named}, and without it the error grows by {long} at long lags and by {short} at short ones"
    )


def article(role: str) -> str:
    return "" if role in ("dead", "stuck") or "-" in role else "an " if role[0] in "aeiou" else "a "
