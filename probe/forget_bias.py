"""What a module keeps by its biases alone: the effective forget bias, what it means over many steps, and setting it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..cells import AbstractCell, MemoryBlockCell, Recurrent
from ..signals import DIRECTIONS, VERSION, retention_form
from .calls import Observed
from .find import choose
from .foreign import ForeignCell
from .observe import observe
from .stacks import TorchStack

HORIZONS = (10, 100, 1000)
VECTORS = ("bias_ih", "bias_hh")


class Place(NamedTuple):
    """One layer and direction of a module: where the biases of the gate that keeps stand."""

    layer: int
    direction: int
    owner: nn.Module
    names: tuple[str, ...]  # of the vectors that are there, in the owner
    rows: slice
    repeat: int  # units that share a row
    units: int


def forget_bias(
    model: nn.Module,
    recording: xr.Dataset | None = None,
    *,
    module: str | None = None,
    horizons: Sequence[int] = HORIZONS,
) -> xr.Dataset:
    """How much a module keeps by its biases alone, and how much of a memory that leaves after many steps.

    torch has two bias vectors; what counts is their sum b at the gate that multiplies the old memory. With all else
    0 it keeps `sigma(b)` of the memory at each step, and `sigma(b)^T` after T:

        b = 0: 10^-30.1 after 100 steps,  b = 1: 10^-13.6,  b = 2: 10^-5.5.

    torch's own initial b is the sum of two uniform draws from +-1/sqrt(H), so about 0. For a GRU the gate is torch's
    update gate, which keeps near 1; where a cell keeps `1 - gate`, b is minus the gate's bias, so that a larger b
    always keeps more.

    Parameters
    ----------
    model
        Any `torch.nn.Module`; it is only looked at.
    recording
        A recording of the module, to put what its gates really kept (`cell_path` of `gradient_flow`) beside.
    module
        Path of the recurrent module; may be left out where there is one.
    horizons
        Steps T, whole numbers of at least 1.

    Returns
    -------
    Dataset
        Over (layer, direction, unit): `bias`, the sum b; `keep` = sigma(b), from 0 to 1; `survival` (horizon, ...),
        log10 of sigma(b)^T. With a recording, `cell_path` (horizon, quantile, ...): log10 of the product of the
        retention that was measured over T steps; NaN at horizons that no sequence reaches.

    Raises
    ------
    ValueError
        If the cell has no gate that keeps (a plain RNN, the LSTM of 1997), a horizon is out of range, or the recording
        is of another module. If several modules were found and none is named.
    TypeError
        If the model has nothing that can be observed.

    References
    ----------
    Gers, Schmidhuber and Cummins (2000), doi:10.1162/089976600300015015; Jozefowicz, Zaremba and Sutskever (2015),
    Proceedings of Machine Learning Research 37, 2342-2350, which recommends a bias of 1.

    Examples
    --------
    >>> lstm = nn.LSTM(2, 3)
    >>> set_forget_bias(lstm, 1.0)
    >>> found = forget_bias(lstm)
    >>> found.bias.values.ravel(), found.survival.sel(horizon=100).values.ravel().round(1)
    (array([1., 1., 1.]), array([-13.6, -13.6, -13.6]))
    """
    found = choose(model, module)
    if len(found) > 1:
        raise ValueError(f"module must be named where a model has several; none came. Choose from: {', '.join(found)}.")
    path, part = next(iter(found.items()))
    observed = observe(path, part)
    sign = sign_of(observed.kind, path)
    wanted = checked(horizons)
    places = list(places_of(observed))
    bias = np.stack([sign * bias_at(place) for place in places])
    directions = 1 + max(place.direction for place in places)
    bias = bias.reshape(-1, directions, bias.shape[-1])
    log_keep = -np.logaddexp(0, -bias) / np.log(10)
    dims = ("layer", "direction", "unit")
    data = {
        "bias": (dims, bias, {"long_name": "effective forget bias", "units": "1"}),
        "keep": (dims, 10**log_keep, {"long_name": "share kept at each step by the bias alone", "units": "1"}),
        "survival": (
            ("horizon", *dims),
            np.multiply.outer(np.array(wanted), log_keep),
            {"long_name": "log10 of the share kept by the bias alone", "units": "1"},
        ),
    }
    coords = {
        "layer": np.arange(bias.shape[0]),
        "direction": np.array(DIRECTIONS[:directions], object),
        "unit": np.arange(bias.shape[-1]),
        "horizon": np.array(wanted),
    }
    kind = observed.kind
    attrs = {"module": path, "cell": type(kind).__name__, "retention": kind.retention, "gatescope_version": VERSION}
    result = xr.Dataset(data, coords, attrs)
    return result if recording is None else beside(result, recording)


def set_forget_bias(model: nn.Module, value: float = 1.0, *, module: str | None = None) -> None:
    """Set the effective forget bias: at rest, every unit then keeps sigma(value) of its memory at each step.

    What is set is the *sum* of torch's two vectors at the gate that keeps, in all layers and directions: `bias_ih`
    becomes `value` and `bias_hh` 0 there (setting both to 1, as is often seen, makes 2). A GRU's is its update gate,
    which in torch keeps near 1; a cell that keeps `1 - gate` gets minus the value. Nothing else changes; parameters
    stay the same objects. Parametrized biases are set through their parametrization.

    Parameters
    ----------
    model
        Any `torch.nn.Module`. All its recurrent modules that have such a gate are set.
    value
        The bias; 1 is what Jozefowicz et al. (2015) recommend, a few more keep for hundreds of steps.
    module
        Path of the one module to set.

    Raises
    ------
    ValueError
        If a module has no bias to set (`bias=False`), no module has a gate that keeps, or the value is not finite.
        Nothing has been set then.
    TypeError
        If the biases of a registered class cannot be reached.

    Examples
    --------
    >>> gru = nn.GRU(2, 3, bidirectional=True)
    >>> set_forget_bias(gru, 2.0)
    >>> (gru.bias_ih_l0_reverse + gru.bias_hh_l0_reverse)[3:6].tolist()  # rows of the update gate
    [2.0, 2.0, 2.0]
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not isfinite(value):
        raise ValueError(f"value must be a finite number; {value!r} came. Give for instance 1.0.")
    found = {path: observe(path, part) for path, part in choose(model, module).items()}
    keeping = {path: each for path, each in found.items() if module is not None or gate_of(each.kind) is not None}
    if not keeping:
        raise ValueError(
            f"the model must have a module with a gate that keeps; {', '.join(found)} have none. A plain RNN or the "
            "LSTM of 1997 has no forget bias."
        )
    signs = {path: sign_of(each.kind, path) for path, each in keeping.items()}
    number = float(value)
    steps = [(place, signs[path] * number) for path, each in keeping.items() for place in settable(each, number)]
    with all_or_nothing([place.owner for place, _ in steps]):
        for place, wanted in steps:
            for vector, name in enumerate(place.names):
                write(place, name, wanted if vector == 0 else 0.0)


def gate_of(cell: AbstractCell) -> str | None:
    form, name = retention_form(cell.retention)
    return str(name) if form in ("signal", "complement") and name in cell.gates else None


def sign_of(cell: AbstractCell, path: str) -> float:
    """1 where the gate keeps near 1, -1 where it keeps near 0."""
    if gate_of(cell) is None:
        raise ValueError(
            f"{path!r} must have a gate that multiplies its old memory; {type(cell).__name__} keeps "
            f"{'nothing' if cell.retention == 'none' else cell.retention}. It has no forget bias."
        )
    return -1.0 if retention_form(cell.retention)[0] == "complement" else 1.0


def places_of(observed: Observed) -> Iterator[Place]:
    kind = observed.kind
    gate = gate_of(kind)
    if gate is None:
        return
    rows, repeat = rows_of(kind, gate)
    units = kind.hidden_size
    if isinstance(observed, TorchStack):
        stack = observed.module
        for layer in range(stack.num_layers):
            for direction in range(1 + stack.bidirectional):
                names = [f"{vector}_l{layer}{'_reverse' if direction else ''}" for vector in VECTORS]
                there = tuple(name for name in names if stack.bias)
                yield Place(layer, direction, stack, there, rows, repeat, units)
        return
    module: Any = observed.module
    owners: list[list[nn.Module]] = [[module]]
    if isinstance(module, Recurrent):
        owners = [list(cells) for cells in module.cells]
    elif isinstance(observed, ForeignCell):
        owners = [list(cells) for cells in observed.cells()]
    for layer, cells in enumerate(owners):
        for direction, owner in enumerate(cells):
            there = tuple(name for name in VECTORS if getattr(owner, name, None) is not None)
            yield Place(layer, direction, owner, there, rows, repeat, units)


def rows_of(cell: AbstractCell, gate: str) -> tuple[slice, int]:
    """Where a gate's rows stand in the bias vectors, and how many units share one."""
    if isinstance(cell, MemoryBlockCell):
        start = cell.block_gates.index(gate) * cell.blocks
        return slice(start, start + cell.blocks), cell.size
    start = cell.gates.index(gate) * cell.hidden_size
    return slice(start, start + cell.hidden_size), 1


def bias_at(place: Place) -> np.ndarray[Any, np.dtype[np.float64]]:
    """(unit,): the sum of the vectors that are there, 0 where there is none."""
    total = torch.zeros(place.units, dtype=torch.float64)
    with torch.no_grad():
        for name in place.names:
            vector: Tensor = getattr(place.owner, name)
            if vector.is_meta:
                raise ValueError(f"{name} must hold numbers; it is on the device meta. Load the model's weights first.")
            rows = vector[place.rows].detach().cpu().double()
            total += rows.repeat_interleave(place.repeat)
    return total.numpy()


def settable(observed: Observed, value: float) -> list[Place]:
    """The places of a module, if all its biases can be set to the value."""
    if isinstance(observed, ForeignCell):
        raise TypeError(
            f"{observed.path!r} must be of torch or gatescope to have its biases set; its class "
            f"{type(observed.module).__name__} is registered, and how it keeps its biases is not known. Set them in it."
        )
    places = list(places_of(observed))
    for place in places:
        if not place.names:
            raise ValueError(
                f"{observed.path!r} must have biases to set its forget bias; it was made with bias=False. Make it with "
                "bias=True."
            )
        for name in place.names:
            chained = parametrize.is_parametrized(place.owner, name)
            if not chained and name not in place.owner._parameters:
                raise ValueError(
                    f"{name} of {observed.path!r} must be a parameter; it is computed from others. Set those."
                )
            kind = getattr(place.owner, name).dtype
            if abs(value) > torch.finfo(kind).max:
                raise ValueError(
                    f"value must be a number that {name} of {observed.path!r} can hold; {value:g} is beyond "
                    f"{str(kind).removeprefix('torch.')}. Give for instance 1.0."
                )
    return places


@contextmanager
def all_or_nothing(owners: Sequence[nn.Module]) -> Iterator[None]:
    """After an error all parameters of these modules are what they were."""
    before = {weight: weight.detach().clone() for owner in owners for weight in owner.parameters()}
    try:
        yield
    except BaseException:
        for weight, values in before.items():
            with torch.inference_mode(weight.is_inference()), torch.no_grad():
                weight.copy_(values)
        raise


def write(place: Place, name: str, value: float) -> None:
    """Set a gate's rows of one vector, where it is kept."""
    vector: Tensor = getattr(place.owner, name)
    with torch.inference_mode(vector.is_inference()), torch.no_grad():
        if not parametrize.is_parametrized(place.owner, name):
            vector[place.rows] = value
            return
        wanted = vector.detach().clone()
        wanted[place.rows] = value
        try:
            setattr(place.owner, name, wanted)
        except (RuntimeError, NotImplementedError) as error:
            raise ValueError(
                f"the parametrization of {name} must have a right_inverse to be set through; it has none. Set what it "
                "computes from."
            ) from error
        got: Tensor = getattr(place.owner, name)[place.rows]
        if not torch.allclose(got, wanted[place.rows], atol=1e-6):
            raise ValueError(
                f"the parametrization of {name} must be able to make {value:g}; it makes {got.mean():g}. Take it away."
            )


def checked(horizons: Sequence[int]) -> list[int]:
    wanted = list(horizons) if isinstance(horizons, (Sequence, np.ndarray)) else [horizons]
    whole = all(isinstance(h, (int, np.integer)) and not isinstance(h, bool) and h >= 1 for h in wanted)
    if not wanted or not whole or len(set(wanted)) < len(wanted):
        raise ValueError(f"horizons must be different whole numbers of at least 1; {horizons!r} came. Give [10, 100].")
    return [int(h) for h in wanted]


def beside(result: xr.Dataset, recording: xr.Dataset) -> xr.Dataset:
    """The same with what a recording of the module measured."""
    from .analyzers.gradient_flow import gradient_flow
    from .analyzers.reading import Source
    from .analyzers.runs import require_recording

    require_recording(recording, "forget_bias")
    same = all(recording.sizes.get(dim) == result.sizes[dim] for dim in ("layer", "direction", "unit"))
    if not same or recording.attrs.get("cell") != result.attrs["cell"]:
        sizes = ", ".join(f"{dim} {recording.sizes.get(dim)}" for dim in ("layer", "direction", "unit"))
        raise ValueError(
            f"the recording must be of {result.attrs['module']!r}, a {result.attrs['cell']} with "
            f"{', '.join(f'{dim} {result.sizes[dim]}' for dim in ('layer', 'direction', 'unit'))}; one of "
            f"{recording.attrs.get('cell')} with {sizes} came. Record the module itself."
        )
    steps = int(Source(recording, "forget_bias").lengths.max(initial=0))
    reached = [int(h) for h in result["horizon"].values if h < steps]
    measured = gradient_flow(recording, horizons=reached)["cell_path"] if reached else None
    if measured is None:
        shape = (result.sizes["horizon"], 1, *(result.sizes[dim] for dim in ("layer", "direction", "unit")))
        path = xr.DataArray(np.full(shape, np.nan), dims=("horizon", "quantile", "layer", "direction", "unit"))
        return result.assign(cell_path=path.assign_coords(quantile=[0.5]))
    path = measured.reindex(horizon=result["horizon"])
    path.attrs = {"long_name": "log10 of the share kept, measured", "units": "1"}
    return result.assign(cell_path=path)
