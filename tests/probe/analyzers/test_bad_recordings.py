"""Empty, constant and broken recordings: every analyzer answers, or refuses in one sentence, and never warns."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

from gatescope.probe.analyzers import (
    alignment,
    describe,
    drift,
    event_average,
    resets,
    role_agreement,
    roles,
    selectivity,
    timescales,
    triggers,
)
from gatescope.probe.schema import signal_names

Make = Callable[..., xr.Dataset]
Analyzer = Callable[[xr.Dataset], xr.Dataset]

ANALYZERS: dict[str, Analyzer] = {
    "resets": resets,
    "resets absolute": lambda recording: resets(recording, method="absolute"),
    "alignment": lambda recording: alignment(resets(recording)),
    "triggers": lambda recording: triggers(resets(recording), "token"),
    "triggers of numbers": lambda recording: triggers(resets(recording), "value"),
    "event_average": lambda recording: event_average(recording, resets(recording)),
    "timescales": timescales,
    "selectivity": lambda recording: selectivity(recording, "token"),
    "selectivity of numbers": lambda recording: selectivity(recording, "value", decode=True, lags=[0, 1]),
    "selectivity decoded": lambda recording: selectivity(recording, "token", decode=True),
    "drift": lambda recording: drift(recording, training_length=3),
    "roles": lambda recording: roles(recording, samples=3),
    "roles of a label": lambda recording: roles(recording, "token", samples=3),
    "role_agreement": lambda recording: role_agreement(roles(recording, samples=3), roles(recording, samples=3)),
    "describe": describe,
}


def changed(recording: xr.Dataset, change: Callable[[xr.DataArray], Any]) -> xr.Dataset:
    return recording.assign({name: recording[name].copy(data=change(recording[name])) for name in signals(recording)})


def signals(recording: xr.Dataset) -> list[str]:
    return [name for name in signal_names(recording) if "time" in recording[name].dims]


def without_steps(recording: xr.Dataset) -> xr.Dataset:
    return recording.isel(time=slice(0, 0)).assign_coords(length=("sequence", np.zeros(3, dtype=np.int64)))


def unit_of_nan(recording: xr.Dataset) -> xr.Dataset:
    return changed(recording, lambda signal: np.where(signal["unit"].values == 2, np.nan, signal.values))


def infinite(recording: xr.Dataset) -> xr.Dataset:
    return changed(recording, lambda signal: np.where(signal["unit"].values == 2, np.inf, signal.values))


def constant(recording: xr.Dataset) -> xr.Dataset:
    return changed(recording, lambda signal: np.where(signal.isnull(), np.nan, 0.5))


def huge(recording: xr.Dataset) -> xr.Dataset:
    return recording.assign(cell_state=recording["cell_state"].copy(data=recording["cell_state"].values * 1e37))


BROKEN: dict[str, Callable[[xr.Dataset], xr.Dataset]] = {
    "no sequences": lambda recording: recording.isel(sequence=slice(0, 0)),
    "no steps": without_steps,
    "one step": lambda recording: recording.isel(time=slice(0, 1)).assign_coords(length=("sequence", [1, 1, 1])),
    "no units": lambda recording: recording.isel(unit=slice(0, 0), source=slice(0, 0)),
    "one unit": lambda recording: recording.isel(unit=[1], source=[1]),
    "one sequence of no steps": lambda recording: recording.isel(sequence=[2]).assign_coords(length=("sequence", [0])),
    "a unit of NaN": unit_of_nan,
    "nothing but NaN": lambda recording: changed(recording, lambda signal: np.full(signal.shape, np.nan)),
    "an infinite unit": infinite,
    "constant signals": constant,
    "zeros": lambda recording: changed(recording, lambda signal: signal.values * 0),
    "huge memories": huge,
    "float16": lambda recording: changed(recording, lambda signal: signal.values.astype(np.float16)),
    "big-endian": lambda recording: changed(recording, lambda signal: signal.values.astype(">f8")),
    "whole numbers": lambda recording: changed(
        recording.isel(sequence=[1]), lambda signal: (signal.values * 9).astype(np.int32)
    ),
    "no memory": lambda recording: recording.drop_vars("cell_state"),
    "no forget gate": lambda recording: recording.drop_vars("forget_gate"),
    "nothing but the memory": lambda recording: recording[["cell_state"]],
    "no labels": lambda recording: recording.drop_vars(["token", "boundary", "value"]),
    "one class": lambda recording: recording.assign_coords(
        token=recording["token"].copy(data=np.where(recording["call"] < 0, "", "a").astype(object))
    ),
    "no boundaries": lambda recording: recording.assign_coords(boundary=recording["boundary"] & False),
    "boundaries everywhere": lambda recording: recording.assign_coords(boundary=recording["call"] >= 0),
    "boundaries outside": lambda recording: recording.assign_coords(boundary=recording["boundary"] | True),
    "numbers that never change": lambda recording: recording.assign_coords(value=recording["value"] * 0 + 3),
    "labels in the padding only": lambda recording: recording.assign_coords(
        token=recording["token"].copy(data=np.where(recording["call"] < 0, "p", "").astype(object)),
        boundary=recording["call"] < 0,
        value=recording["value"].copy(data=np.where(recording["call"] < 0, 1.0, np.nan)),
    ),
}


def answer(analyzer: Analyzer, recording: xr.Dataset) -> str:
    """The measure that came back, or what was said instead."""
    try:
        return str(analyzer(recording).attrs["measure"])
    except ValueError as error:  # and SchemaError, which is one
        return str(error)


def is_one_sentence(text: str) -> bool:
    """What must hold and what came, then at most one piece of advice."""
    return len(text) > 40 and text.endswith(".") and "\n" not in text and len(re.findall(r"\. [A-Z]", text)) <= 1


LONG = ("describe", "selectivity decoded")


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name in LONG else name for name in ANALYZERS]
)
def test_every_analyzer_answers_or_refuses_in_one_sentence(make_recording: Make, name: str, broken: str) -> None:
    said = answer(ANALYZERS[name], BROKEN[broken](make_recording()))
    assert said == name.split()[0] or is_one_sentence(said), said


@pytest.mark.parametrize("name", ["resets", "alignment", "timescales", "drift", "roles", "describe", "role_agreement"])
@pytest.mark.parametrize("broken", ["no sequences", "no steps", "one step", "no units", "constant signals"])
def test_a_recording_with_little_in_it_is_not_refused(make_recording: Make, name: str, broken: str) -> None:
    assert ANALYZERS[name](BROKEN[broken](make_recording())).attrs["measure"] == name


@pytest.mark.parametrize("broken", [unit_of_nan, infinite])
@pytest.mark.parametrize("name", ["resets", "timescales", "selectivity", "drift", "roles"])
def test_a_unit_without_numbers_spoils_no_other(
    make_recording: Make, name: str, broken: Callable[[xr.Dataset], xr.Dataset]
) -> None:
    """What is asked of one unit by itself is what it is without the other."""
    others = [0, 1, 3, 4]
    lonely = {"resets": "count", "timescales": "gate", "selectivity": "auc", "drift": "slope", "roles": "evidence"}[
        name
    ]
    recording = make_recording(lengths=(70, 60, 50)).drop_vars("weight_hh")
    spoilt, whole = (ANALYZERS[name](each)[lonely].isel(unit=others) for each in (broken(recording), recording))
    xr.testing.assert_allclose(spoilt, whole)


@pytest.mark.parametrize(
    ("boundaries", "said"),
    [
        (xr.DataArray(np.ones((3, 13), dtype=bool), dims=["sequence", "time"]), "must lie within the sequences"),
        (xr.DataArray(np.full((3, 12), 40), dims=["sequence", "time"]), "boolean"),
        (xr.DataArray(np.zeros(12, dtype=bool), dims=["time"]), "sequence"),
        ("border", "border"),
        ("token", "boolean"),
    ],
)
def test_boundaries_that_do_not_fit_are_refused(make_recording: Make, boundaries: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as refused:
        alignment(resets(make_recording()), boundaries)
    assert is_one_sentence(str(refused.value))


def test_the_reason_for_numbers_that_are_missing_stands_in_the_attributes(make_recording: Make) -> None:
    recording = make_recording().assign_attrs(retention="1.0")
    events = resets(recording)
    assert is_one_sentence(events.attrs["reason"])
    for result in (alignment(events), triggers(events, "token"), event_average(recording, events)):
        assert result.attrs["reason"] == events.attrs["reason"]
    assert alignment(events)["precision"].isnull().all()
    assert timescales(make_recording().drop_vars("weight_hh")).attrs["jacobian_note"]
    found = drift(unit_of_nan(make_recording()))
    assert found.attrs["nonfinite"] == 12
    assert set(found["verdict"].sel(unit=2).values.ravel()) == {"no data"}
