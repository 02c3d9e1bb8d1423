"""Do the units of two networks play the same parts: matched by their profiles, compared by their roles."""

import numpy as np
import xarray as xr
from scipy.optimize import linear_sum_assignment

from .predicates import STATISTICS
from .runs import Numbers

PROFILE = [name for name in STATISTICS if name not in ("spread", "time_scale")]
BIG = 1e6  # stands for an infinite time scale


def role_agreement(first: xr.Dataset, second: xr.Dataset) -> xr.Dataset:
    """Units of two networks matched one to one by what they do, and how often a pair has the same role.

    A unit's profile is its evidence (the time scale by its logarithm; without the memory's spread, which has the unit
    of the state), each statistic in standard deviations over both networks; where one is missing in either it counts as
    equal. The matching with the least sum of squared distances is taken (Hungarian method). `kappa` is Cohen's:
    agreement beyond what the frequencies of the roles give, over the most there could be.

    Parameters
    ----------
    first, second
        Results of `roles` with the same layers and directions; numbers of units may differ.

    Returns
    -------
    xr.Dataset
        Over `layer`, `direction`, `unit` (of the first): `matched_unit` (-1: the second has no unit left), `distance`
        (root mean square over the statistics), `role` and `matched_role`. Over `layer`, `direction`: `agreement`
        (share of pairs with the same role) and `kappa` (NaN where all units have one and the same role).

    Raises
    ------
    ValueError
        When either is not what `roles` returned, or layers or directions differ.

    References
    ----------
    J. Cohen (1960). A coefficient of agreement for nominal scales. doi:10.1177/001316446002000104.
    H. W. Kuhn (1955). The Hungarian method for the assignment problem. doi:10.1002/nav.3800020109.
    """
    for which, result in (("first", first), ("second", second)):
        if not isinstance(result, xr.Dataset) or result.attrs.get("measure") != "roles":
            raise ValueError(
                f"role_agreement needs two results of roles; the {which} is none. Pass gs.roles(recording)."
            )
    for dim in ("layer", "direction"):
        if first[dim].to_numpy().tolist() != second[dim].to_numpy().tolist():
            raise ValueError(
                f"Both results must have the same {dim}s; {first[dim].to_numpy().tolist()} and "
                f"{second[dim].to_numpy().tolist()} came. Select those that both have."
            )
    dims = ("layer", "direction", "unit")
    shape = tuple(first.sizes[dim] for dim in dims)
    matched, distance = np.full(shape, -1), np.full(shape, np.nan)
    other = np.full(shape, "", dtype=object)
    agreement, kappa = np.full(shape[:2], np.nan), np.full(shape[:2], np.nan)
    for at in np.ndindex(shape[:2]):
        ours, theirs = (result.isel(layer=at[0], direction=at[1]) for result in (first, second))
        squares = _squares(_profile(ours), _profile(theirs))
        rows, columns = linear_sum_assignment(squares)
        matched[at][rows] = theirs["unit"].to_numpy()[columns]
        distance[at][rows] = np.sqrt(squares[rows, columns])
        other[at][rows] = theirs["unit_role"].to_numpy()[columns]
        agreement[at], kappa[at] = _kappa(ours["unit_role"].to_numpy()[rows], other[at][rows])
    role = first["unit_role"].transpose(*dims).to_numpy()
    data = {
        "matched_unit": (dims, matched, {"long_name": "unit of the second network"}),
        "distance": (dims, distance, {"long_name": "root mean square difference of the profiles", "units": "1"}),
        "role": (dims, role, {"long_name": "role in the first network"}),
        "matched_role": (dims, other, {"long_name": "role in the second network"}),
        "agreement": (dims[:2], agreement, {"long_name": "share of pairs with the same role", "units": "1"}),
        "kappa": (dims[:2], kappa, {"long_name": "Cohen's kappa", "units": "1"}),
    }
    return xr.Dataset(data, {dim: first[dim].variable for dim in dims}, {"measure": "role_agreement"})


def _profile(result: xr.Dataset) -> Numbers:
    """What a unit does, (unit, statistic)."""
    evidence = result["evidence"].transpose("unit", "statistic")
    scale = np.log(np.clip(evidence.sel(statistic="time_scale").to_numpy(), 1 / BIG, BIG))
    return np.column_stack([evidence.sel(statistic=PROFILE).to_numpy(), scale])


def _squares(ours: Numbers, theirs: Numbers) -> Numbers:
    """Mean squared difference (unit, other unit) in standard deviations over both."""
    both = np.concatenate([ours, theirs])
    known = np.isfinite(both)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, both, 0.0).sum(axis=0) / count
    spread = np.sqrt(np.where(known, (both - mean) ** 2, 0.0).sum(axis=0) / count)
    apart = (ours[:, None] - theirs[None]) / np.where(spread > 0, spread, 1.0)
    return np.asarray(np.square(np.where(np.isfinite(apart), apart, 0.0)).mean(axis=2))


def _kappa(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float]:
    if not len(ours):
        return np.nan, np.nan
    agree = float(np.mean(ours == theirs))
    chance = sum(float(np.mean(ours == role)) * float(np.mean(theirs == role)) for role in {*ours, *theirs})
    return agree, (agree - chance) / (1 - chance) if chance < 1 else np.nan
