"""What stands in the place of a signal's own values: a number, an array, a recording, or a function of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from .site import Site

UNIT_DIMS = ("unit", "projection")
DIMS = ("layer", "direction", "sequence", "time")


class Step(NamedTuple):
    """One step of one layer and direction."""

    layer: int
    direction: str
    rows: list[int]  # of the caller's batch, those that are chosen at this step
    times: int | list[int]  # of all of these, or of each


class Replacement(ABC):
    keeps = True  # whether its values may be NaN, which keeps what is there
    number: float | None = None  # the same for all

    @abstractmethod
    def values(self, own: Tensor, step: Step) -> Tensor:
        """What comes in the place of `own` (row, chosen unit), the rows of `step`; NaN keeps what is there."""


class Number(Replacement):
    keeps = False
    number: float

    def __init__(self, number: float) -> None:
        self.number = number

    def values(self, own: Tensor, step: Step) -> Tensor:
        return torch.full_like(own, self.number)


class Function(Replacement):
    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        self.function = function

    def values(self, own: Tensor, step: Step) -> Tensor:
        found = self.function(own)
        if isinstance(found, Tensor) and found.shape == own.shape:
            return found
        if not isinstance(found, (Tensor, Real)) or (isinstance(found, Tensor) and found.dim() > 2):
            raise TypeError(
                f"the function given as value must return a tensor of the shape {tuple(own.shape)} (sequence, unit) "
                f"that came to it; {_came(found)} came."
            )
        try:
            return torch.as_tensor(found, dtype=own.dtype, device=own.device).expand(own.shape)
        except RuntimeError:
            raise ValueError(
                f"the function given as value must return a tensor of the shape {tuple(own.shape)} (sequence, unit) "
                f"that came to it; {_came(found)} came."
            ) from None


class Table(Replacement):
    """Numbers laid on layers, directions, sequences, steps and units; what they do not name is the same everywhere.

    `numbers` is (layer, direction, sequence, time, unit) with size 1 where nothing is named; `labels` says which
    numbers of a dimension that is named stand where.
    """

    def __init__(self, numbers: Tensor, labels: dict[str, dict[Any, int]], what: str) -> None:
        self.numbers, self.labels, self.what = numbers, labels, what
        self.keeps = bool(numbers.isnan().any())

    def values(self, own: Tensor, step: Step) -> Tensor:
        if self.numbers.dtype != own.dtype or self.numbers.device != own.device:
            self.numbers = self.numbers.to(own)
        [layer], [direction] = self.places("layer", [step.layer]), self.places("direction", [step.direction])
        rows = self.places("sequence", step.rows)
        if not isinstance(step.times, int):
            return self.numbers[layer, direction, rows, self.places("time", step.times)].expand(own.shape)
        [time] = self.places("time", [step.times])
        now = self.numbers[layer, direction, :, time]
        return (now if len(now) == 1 or rows == list(range(len(now))) else now[rows]).expand(own.shape)

    def places(self, dim: str, wanted: list[Any]) -> list[int]:
        labels = self.labels.get(dim)
        if labels is None:
            return [0] * len(wanted)
        try:
            return [labels[label] for label in wanted]
        except KeyError as missing:
            known = sorted(labels)
            raise ValueError(
                f"{self.what} must have every {dim} that it is laid on; {dim} {missing.args[0]} came, and it has "
                f"{known[0]} to {known[-1]}. Choose fewer of the model, {dim}=..., or give more."
            ) from None


class Resampled(NamedTuple):
    """What `resampled` returns: a recording whose values are drawn, and from which seed."""

    recording: xr.Dataset | xr.DataArray
    seed: int


class Draws(Replacement):
    """At each step each row takes the units of some step of some sequence of a recording."""

    keeps = False

    def __init__(self, table: Table, seed: int) -> None:
        self.table = table
        self.random = np.random.default_rng(seed)
        self.pools: dict[tuple[int, str], Tensor] = {}

    def values(self, own: Tensor, step: Step) -> Tensor:
        at = (step.layer, step.direction)
        if at not in self.pools:
            table = self.table
            part = table.numbers[table.places("layer", [at[0]])[0], table.places("direction", [at[1]])[0]]
            pool = part.flatten(0, 1)
            self.pools[at] = pool[~pool.isnan().any(-1)].to(own)
            if not len(self.pools[at]):
                raise ValueError(f"{table.what} must hold steps to draw from; layer {at[0]}, {at[1]}, has none.")
        pool = self.pools[at]
        return pool[torch.from_numpy(self.random.integers(len(pool), size=len(own))).to(own.device)]


def resampled(recording: xr.Dataset | xr.DataArray, *, seed: int = 0) -> Resampled:
    """Values of a recording in random order, for `intervene`: what a signal carries is lost, how it is spread is not.

    At every step each row of the batch gets the values that the chosen units had together at one step of one sequence
    of the recording, in the same layer and direction, drawn evenly from all of its real steps.

    Parameters
    ----------
    recording
        A recording, or a signal of one.
    seed
        Of the draws: the same block draws the same. The model's own random numbers are not touched.

    Returns
    -------
    Resampled
        To be given to `intervene` as value.

    References
    ----------
    Chan et al. (2022), Causal scrubbing, AI Alignment Forum, calls this resampling ablation.
    """
    if not isinstance(recording, (xr.Dataset, xr.DataArray)):
        raise TypeError(f"resampled needs a recording, or a signal of one; {type(recording).__name__} came.")
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0; {seed!r} came.")
    return Resampled(recording, int(seed))


def replacement(value: Any, site: Site) -> Replacement:
    """Read a value for a site; one sentence where it does not fit."""
    if isinstance(value, Resampled):
        return Draws(labelled(value.recording, site), value.seed)
    if isinstance(value, (xr.Dataset, xr.DataArray)):
        return labelled(value, site)
    if isinstance(value, Real) and not isinstance(value, bool):
        if np.isnan(float(value)):
            raise ValueError("value must not be NaN; as a number it would keep nothing. Give a number.")
        return Number(float(value))
    if isinstance(value, (Tensor, np.ndarray, list, tuple)):
        return array(value, site)
    if callable(value):
        return Function(value)
    raise TypeError(
        "value must be a number, an array, a recording, a function of the signal's values, or resampled(recording); "
        f"{type(value).__name__} came."
    )


def array(value: Any, site: Site) -> Replacement:
    """An array whose last dims are (sequence, time, unit), those chosen, each of its full size or 1."""
    try:
        given = value if isinstance(value, Tensor) else np.asarray(value)
        real = not given.is_complex() if isinstance(given, Tensor) else given.dtype.kind in "fiub"
    except ValueError:
        real = False
    if not real:
        raise TypeError("value must be an array of numbers; one of something else or of unequal rows came.")
    numbers = given if isinstance(given, Tensor) else torch.from_numpy(given.astype(np.float64))
    if numbers.dim() > 3:
        raise ValueError(
            f"value must be (unit), (time, unit) or (sequence, time, unit); shape {tuple(numbers.shape)} came. Give a "
            "recording for several layers."
        )
    shape = (1,) * (3 - numbers.dim()) + tuple(numbers.shape)
    chosen = (site.sequence, site.time)
    expected = [*(each.size for each in chosen), len(site.units)]
    names = ("sequence", "time", "unit")
    for name, came, size in zip(names, shape, expected, strict=True):
        if came != 1 and size is not None and came != size:
            raise ValueError(
                f"value must have one number for each of the {size} chosen by {name}, or one for all; shape "
                f"{tuple(numbers.shape)} came, whose last dims are (sequence, time, unit)."
            )
    labels = {}
    for each, size in zip(chosen, shape[:2], strict=True):
        if size > 1:
            numbers_of = each.wanted if isinstance(each.wanted, tuple) else _counted(each.wanted, size)
            labels[each.name] = {number: place for place, number in enumerate(numbers_of)}
    return Table(numbers.reshape(1, 1, *shape), labels, "value")


def _counted(wanted: slice | None, size: int) -> range:
    return range(size) if wanted is None else range(wanted.start, wanted.start + size * wanted.step, wanted.step)


def labelled(value: xr.Dataset | xr.DataArray, site: Site) -> Table:
    """A signal of a recording, or what was made of one, aligned by its labels."""
    if isinstance(value, xr.Dataset):
        if site.signal not in value:
            raise ValueError(
                f"the recording given as value must hold {site.signal!r}; it holds "
                f"{', '.join(str(name) for name in value.data_vars)}. Record that signal, or give another one of it."
            )
        value = value[site.signal]
    value = value.expand_dims([dim for dim in (*DIMS, *UNIT_DIMS) if dim in value.coords and value[dim].ndim == 0])
    unit = next((dim for dim in UNIT_DIMS if dim in value.dims), None)
    strange = [str(dim) for dim in value.dims if dim not in (*DIMS, unit)]
    if strange:
        raise ValueError(
            f"value must have no dims but {', '.join(DIMS)} and unit; {', '.join(strange)} came. Select or average "
            "over them first."
        )
    labels = {dim: labels_of_dim(value, dim) for dim in DIMS if dim in value.dims}
    if unit is not None:
        value = value.isel({unit: positions(value, unit, site)})
    for dim, wanted in (("layer", site.layers), ("direction", site.directions)):
        missing = [label for label in wanted if dim in labels and label not in labels[dim]]
        if missing:
            raise ValueError(
                f"value must hold every {dim} that it is laid on; {missing[0]} is missing. Choose {dim}=..., or take "
                f"one for all with .isel({dim}=0, drop=True)."
            )
    value = value.expand_dims([dim for dim in (*DIMS, unit or "unit") if dim not in value.dims])
    numbers = torch.from_numpy(np.array(value.transpose(*DIMS, unit or "unit").values))
    return Table(numbers, labels, "the recording given as value")


def labels_of_dim(value: xr.DataArray, dim: str) -> dict[Any, int]:
    if dim not in value.coords:
        return {place: place for place in range(value.sizes[dim])}
    return {
        (label if isinstance(label, str) else int(label)): place
        for place, label in enumerate(value[dim].values.tolist())
    }


def positions(value: xr.DataArray, unit: str, site: Site) -> list[int]:
    """Where the chosen units stand."""
    labels = labels_of_dim(value, unit)
    missing = [number for number in site.units if number not in labels]
    if missing:
        raise ValueError(
            f"value must hold every unit that it is laid on; unit {missing[0]} of {site.path!r} is missing. Choose "
            "unit=..., give them all, or take one for all with .isel(unit=0, drop=True)."
        )
    return [labels[number] for number in site.units]


def _came(value: Any) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
