"""What a decay curve says: half-life, how far back it reaches, and whether it vanishes or explodes."""

from typing import NamedTuple

import numpy as np

from .products import Numbers, Whole

THRESHOLDS = (0.01, float(np.finfo(np.float32).eps))
HALF = float(np.log10(0.5))
POWERS = 2.0  # of ten; a gradient that changes by more over JUDGED steps vanishes or explodes
JUDGED = 100  # steps, or the longest horizon where that is longer


class Survival(NamedTuple):
    """Of one curve."""

    half_life: float
    effective_horizon: list[float]  # by threshold
    slope: float  # log10 per step
    verdict: str


def survival(horizons: Whole, curve: Numbers) -> Survival:
    """Judge a curve of log10 norms over horizons, relative to horizon 0.

    >>> survival(np.array([1, 2, 4]), np.array([-0.5, -1.0, -2.0]))
    Survival(half_life=0.602..., effective_horizon=[4.0, inf], slope=-0.5, verdict='vanishing')
    """
    there = ~np.isnan(curve)
    horizons, curve = horizons[there], curve[there]
    if not len(curve):
        return Survival(np.nan, [np.nan] * len(THRESHOLDS), np.nan, "no data")
    reaches = [crossing(horizons, curve, float(np.log10(threshold))) for threshold in THRESHOLDS]
    slope = late_slope(horizons, curve)
    return Survival(crossing(horizons, curve, HALF), reaches, slope, verdict(horizons, curve, slope))


def crossing(horizons: Whole, curve: Numbers, level: float) -> float:
    """The first horizon, linear between neighbours, at which a curve that starts at 0 is no higher than a level."""
    under = np.nonzero(curve <= level + 1e-12)[0]
    if not len(under):
        return np.inf
    place = int(under[0])
    before, left = (float(curve[place - 1]), int(horizons[place - 1])) if place else (0.0, 0)
    if np.isneginf(curve[place]):
        return float(horizons[place])
    share = (level - before) / (curve[place] - before) if curve[place] < before else 1.0
    return float(left + min(1.0, share) * (horizons[place] - left))


def late_slope(horizons: Whole, curve: Numbers) -> float:
    """Least-squares slope over the last three quarters of the horizons, where the first steps have died away."""
    if np.isneginf(curve[-1]):
        return -np.inf
    late = (horizons >= horizons[-1] / 4) & np.isfinite(curve)
    if late.sum() < 2:
        return float(curve[-1] / horizons[-1])
    return float(np.polyfit(horizons[late].astype(float), curve[late], 1)[0])


def verdict(horizons: Whole, curve: Numbers, slope: float) -> str:
    """In words; where the recording is shorter than 100 steps, the curve is carried on with its slope."""
    beyond = max(0, JUDGED - int(horizons[-1]))
    level = curve[-1] + (slope * beyond if beyond else 0.0)
    return "vanishing" if level < -POWERS else "exploding" if level > POWERS else "preserved"
