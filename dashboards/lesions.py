"""What a network loses without its units or blocks, where that was measured: beside the recording, or of an example.

The file of `NAME.zarr` or `NAME.nc` is `NAME.ablation.nc`, as `gs.ablation(...).to_netcdf(...)` writes it.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import streamlit as st
import xarray as xr

from ..probe.analyzers.role_check import role_check
from ..probe.guards import check_regular
from . import catalogue, results
from .chooser import View

MOST_VALUES = 50_000_000  # of a file of effects
NEEDED = {"effect", "metric", "per_sequence", "layer", "direction"}  # among what `ablation` returns
STREAMS, STEPS = 32, 250  # of fresh strings on which an example's blocks are taken out


class Lesions(NamedTuple):
    """Effects at the layer and direction on view, or the sentence that says why there are none."""

    effects: xr.Dataset | None
    problem: str = ""


def of(view: View) -> Lesions:
    """What was measured of the module on view."""
    if view.entry.example:
        return _of_example(view)
    path = catalogue.beside(view.entry.path)
    if not os.path.lexists(path):
        return Lesions(None)
    found = _opened(os.fsencode(path), catalogue.stamp(path))
    return Lesions(None, found) if isinstance(found, str) else _here(found, view)


@st.cache_resource(max_entries=16, show_spinner=False)
def _opened(path: bytes, changed: str) -> xr.Dataset | str:
    place = Path(os.fsdecode(path))
    name = catalogue.readable(str(place))
    if not Path(os.path.realpath(place)).is_relative_to(os.path.realpath(place.parent)):
        return f"Lesions must lie beside their recording; {name} is a link that leaves the folder."
    try:
        check_regular(place)
        _check_own(place)
        with xr.open_dataset(place, engine="h5netcdf") as opened:
            found = opened.load()
    except (ValueError, OSError, KeyError) as error:
        return f"{name}: {catalogue.readable(str(error))}"
    if lacking := NEEDED - set(found.variables):
        return f"{name} must hold what gs.ablation returned; it lacks {', '.join(sorted(lacking))}."
    if found.attrs.get("measure") != "ablation":
        return f"{name} must hold what gs.ablation returned; it holds {found.attrs.get('measure', 'something else')!r}."
    return found


def _check_own(place: Path) -> None:
    """Refuse what points at other files, or says that it is far larger than effects ever are, before it is read."""
    import h5py

    values = 0
    with h5py.File(place, "r") as file:
        for name in file:
            node = file[name] if isinstance(file.get(name, getlink=True), h5py.HardLink) else None
            if not isinstance(node, h5py.Dataset) or node.external or node.is_virtual:
                raise ValueError(f"{name!r} must stand in the file itself; it points at something else.")
            values += int(np.prod(node.shape, dtype=np.float64))
    if values > MOST_VALUES:
        raise ValueError(f"Lesions must hold no more than {MOST_VALUES:,} values; it says that it holds {values:,}.")


def _here(found: xr.Dataset, view: View) -> Lesions:
    """The effects at the layer and direction on view."""
    if found.attrs.get("module") != view.recording.attrs["module"]:
        return Lesions(None, f"The lesions beside this recording are of the module {found.attrs.get('module')!r}.")
    if "layer" not in found.dims or "direction" not in found.dims:
        return Lesions(None, "The lesions must have the dimensions layer and direction.")
    for dim, value in view.place.items():
        if value not in found[dim].values.tolist():
            return Lesions(None, f"{dim} {value} was left whole; lesions are of {dim} {found[dim].values.tolist()}.")
    return Lesions(found.sel(layer=[view.layer], direction=[view.direction]))


def _of_example(view: View) -> Lesions:
    if not view.entry.example.startswith("cerg-"):
        return Lesions(None)
    return _here(_taken_out(view.entry.example), view)


@st.cache_resource(max_entries=8, show_spinner="Taking out one block after another ...")
def _taken_out(example: str) -> xr.Dataset:
    import torch

    from ..probe.ablation import ablation
    from ..tasks.examples import load_example
    from ..tasks.grammar import CERG
    from ..tasks.lags import lag_errors

    network, _ = load_example(example)
    sample = CERG(streams=STREAMS).sample(STEPS)
    reset = {"reset": torch.from_numpy(sample.labels["boundary"])} if example == catalogue.RESET_FROM_OUTSIDE else {}
    inputs = torch.from_numpy(sample.inputs)
    return ablation(network, inputs, lag_errors(sample), over="block", inputs_kwargs=reset or None)


def lines(view: View) -> list[str]:
    """Python that gets the same effects."""
    place = f"layer=[{view.layer}], direction=[{view.direction!r}]"
    if not view.entry.example:
        path = str(catalogue.beside(view.entry.path))
        opened = f'xr.open_dataset({path!r}, engine="h5netcdf").sel({place})'
        return ["import xarray as xr", "", f"lesions = {opened}"]
    reset = (
        ', inputs_kwargs={"reset": torch.from_numpy(strings.labels["boundary"])}'
        if view.entry.example == catalogue.RESET_FROM_OUTSIDE
        else ""
    )
    return [
        f"strings = gs.tasks.CERG(streams={STREAMS}).sample({STEPS})",
        "inputs, errors = torch.from_numpy(strings.inputs), gs.tasks.lag_errors(strings)",
        f'lesions = gs.ablation(model, inputs, errors, over="block"{reset})',
    ]


def metrics(effects: xr.Dataset) -> list[str]:
    """Those that give one number a sequence, so that they can be tested."""
    return [
        str(name) for name, each in zip(effects["metric"].values, effects["per_sequence"].values, strict=True) if each
    ]


def check(view: View, roles: xr.Dataset, effects: xr.Dataset, long: str, short: str) -> xr.Dataset | str:
    """`role_check` of the roles on view."""
    made = "" if view.entry.example else catalogue.stamp(catalogue.beside(view.entry.path))

    def checked(found: xr.Dataset, *, long: str, short: str, made: str) -> xr.Dataset:
        return role_check(found, effects, long=long, short=short)

    return results.of(view, checked, source=roles, long=long, short=short, made=made)


def summary(checked: xr.Dataset) -> dict[str, int]:
    """How many units or blocks got each verdict."""
    words: list[Any] = checked["verdict"].values.ravel().tolist()
    counts = {word: words.count(word) for word in ("confirmed", "contradicted", "not needed", "no claim")}
    return {word: count for word, count in counts.items() if count}
