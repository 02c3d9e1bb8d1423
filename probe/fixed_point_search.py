"""Where a map of a state onto itself stands still, or nearly: batched least squares from many starts, then Newton."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from .state_map import StateMap

STILL = 1e-13  # largest |F(x) - x| of an entry, relative to 1 + |x|, from which on a point is polished enough
FLAT = 1e-7  # of the gradient of q relative to |F(x) - x| and the Jacobian: a lowest point of q above 0
FIRM = 1e12  # damping at which no step helps any more
POLISH = 3  # Newton steps at the end
VALUES = 2**24  # of the Jacobians of the starts that go side by side


class Ends(NamedTuple):
    """Where each start led: the points, `q` there, and whether q has its lowest value thereabouts."""

    points: Tensor  # (start, state)
    q: Tensor  # (start,)
    settled: Tensor  # (start,)


class Least:
    """Levenberg-Marquardt on `q(x) = |F(x) - x|^2 / 2` for many points side by side, each with a damping of its own."""

    def __init__(self, dynamics: StateMap, starts: Tensor) -> None:
        self.dynamics, self.points = dynamics, starts.clone()
        self.rest = dynamics.step(self.points) - self.points
        self.damping = torch.full((len(starts),), 1e-2, dtype=starts.dtype)
        self.settled = torch.zeros(len(starts), dtype=torch.bool)

    def run(self, steps: int) -> Ends:
        for _ in range(steps):
            going = torch.nonzero(~self.settled).flatten()
            if len(going) == 0:
                break
            self.step(going)
        self.polish()
        return Ends(self.points, half_square(self.rest), self.settled)

    def step(self, going: Tensor) -> None:
        point, rest, damping = self.points[going], self.rest[going], self.damping[going]
        slope = moved(self.dynamics.jacobian(point))
        pull = (slope.mT @ rest.unsqueeze(-1)).squeeze(-1)
        square = slope.mT @ slope
        square.diagonal(dim1=-2, dim2=-1).add_(damping.unsqueeze(-1))
        tried = point - torch.linalg.solve_ex(square, pull)[0]  # not finite, so not better, where it is singular
        left = self.dynamics.step(tried) - tried
        better = half_square(left) < half_square(rest)  # False where it is not finite
        self.points[going] = torch.where(better.unsqueeze(-1), tried, point)
        self.rest[going] = torch.where(better.unsqueeze(-1), left, rest)
        self.damping[going] = torch.where(better, damping / 5, damping * 4).clamp(min=1e-15)
        flat = pull.norm(dim=-1) <= FLAT * rest.norm(dim=-1) * slope.flatten(1).norm(dim=-1)
        self.settled[going] = still(self.points[going], self.rest[going]) | flat | (self.damping[going] > FIRM)

    def polish(self) -> None:
        """A few plain Newton steps wherever they help: with damping the last digits come slowly."""
        for _ in range(POLISH):
            near = torch.nonzero((half_square(self.rest) < 1e-12) & ~still(self.points, self.rest)).flatten()
            if len(near) == 0:
                return
            point, rest = self.points[near], self.rest[near]
            step, failed = torch.linalg.solve_ex(moved(self.dynamics.jacobian(point)), rest)
            tried = point - step
            left = self.dynamics.step(tried) - tried
            better = (half_square(left) < half_square(rest)) & (failed == 0)
            self.points[near] = torch.where(better.unsqueeze(-1), tried, point)
            self.rest[near] = torch.where(better.unsqueeze(-1), left, rest)


def search(dynamics: StateMap, starts: Tensor, steps: int) -> Ends:
    """From each start, downhill on q to where it is lowest."""
    groups = starts.split(max(1, VALUES // dynamics.size**2))
    return Ends(*map(torch.cat, zip(*(Least(dynamics, group).run(steps) for group in groups), strict=True)))


def moved(jacobian: Tensor) -> Tensor:
    """The Jacobian of F(x) - x, in place."""
    jacobian.diagonal(dim1=-2, dim2=-1).sub_(1)
    return jacobian


def half_square(rest: Tensor) -> Tensor:
    return rest.square().sum(-1) / 2


def still(point: Tensor, rest: Tensor) -> Tensor:
    return (rest.abs() <= STILL * (1 + point.abs())).all(-1)


def distances(points: Tensor, starts: Tensor) -> Tensor:
    """From each point to the nearest start."""
    return (
        torch.cat([torch.cdist(part, starts).amin(-1) for part in points.split(256)]) if len(points) else points[:, 0]
    )


def gathered(points: Tensor, q: Tensor, unique: float) -> tuple[list[int], list[int]]:
    """The stillest of each group of points that are nearer than `unique` in every entry, and how many each group has.

    >>> points = torch.tensor([[0.0], [1.0], [0.05], [1.02]])
    >>> gathered(points, torch.tensor([4.0, 3.0, 2.0, 1.0]), unique=0.1)
    ([3, 2], [2, 2])
    """
    free, chosen, counts = np.ones(len(points), bool), [], []
    for place in torch.argsort(q).tolist():
        if not free[place]:
            continue
        near = ((points - points[place]).abs().amax(-1) <= unique).numpy() & free
        free[near] = False
        chosen.append(place)
        counts.append(int(near.sum()))
    return chosen, counts
