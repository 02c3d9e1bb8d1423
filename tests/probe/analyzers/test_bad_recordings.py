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
    gradient_flow,
    lyapunov,
    resets,
    role_agreement,
    roles,
    saturation,
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
    "saturation": saturation,
    "gradient_flow": gradient_flow,
    "lyapunov": lyapunov,
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


def with_values_in_the_padding(recording: xr.Dataset) -> xr.Dataset:
    return changed(recording, lambda signal: signal.fillna(0.03).values)


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
    "values in the padding": with_values_in_the_padding,
    "a later stretch of time": lambda recording: recording.isel(time=slice(3, 9)),
    "no lengths": lambda recording: recording.drop_vars(["length", "start"]),
    "no sequence dimension": lambda recording: recording.isel(sequence=0),
    "a label of NaN": lambda recording: recording.assign_coords(value=recording["value"] * np.nan),
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


LONG = ("describe", "selectivity decoded", "selectivity of numbers")


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
        (xr.DataArray(np.ones((3, 12), dtype=bool), dims=["sequence", "time"]), "must lie within the sequences"),
        (xr.DataArray(np.zeros((3, 13), dtype=bool), dims=["sequence", "time"]), "3 sequences of 12 steps; 3 of 13"),
        (xr.DataArray(np.zeros((3, 11), dtype=bool), dims=["sequence", "time"]), "3 sequences of 12 steps; 3 of 11"),
        (xr.DataArray(np.zeros((4, 12), dtype=bool), dims=["sequence", "time"]), "3 sequences of 12 steps; 4 of 12"),
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


@pytest.mark.parametrize("measure", [resets, roles])
def test_values_in_the_padding_are_refused_by_name_and_place(make_recording: Make, measure: Analyzer) -> None:
    recording = make_recording()
    recording["forget_gate"][0, 0, 0, 8, 1] = 0.5
    said = "Padding must be NaN; forget_gate has a value at step 8 of sequence 0, whose length is 7"
    with pytest.raises(ValueError, match=said) as refused:
        measure(recording)
    assert is_one_sentence(str(refused.value))


def test_labels_of_all_recorded_steps_fit_also_where_the_last_are_padding_in_every_sequence(
    make_recording: Make,
) -> None:
    recording = make_recording().isel(sequence=[0, 2])
    events = resets(recording)
    assert (events.sizes["time"], recording.sizes["time"]) == (7, 12)
    given = alignment(events, recording["boundary"].rename("given"))
    xr.testing.assert_equal(given, alignment(events))


def onsets(events: xr.Dataset, first: int) -> set[tuple[Any, ...]]:
    """Where events begin, on the time axis of the whole recording."""
    where = (events[f"event_{dim}"].values.tolist() for dim in ("layer", "direction", "sequence", "unit"))
    return set(zip(*where, (events["onset"].values + first).tolist(), strict=True))


@pytest.mark.parametrize("first", [0, 60])
def test_a_stretch_of_time_has_the_resets_within_it_and_none_where_the_memory_before_is_not_there(
    make_recording: Make, first: int
) -> None:
    recording, options = make_recording(lengths=(100, 120, 60), units=3), {"low": 0.2, "high": 0.5, "min_erased": 0.0}
    stretch = recording.isel(time=slice(first, first + 40))
    found = resets(stretch, method="absolute", **options)
    assert found["length"].values.tolist() == ([40, 40, 40] if first == 0 else [40, 40, 0])
    whole, part = onsets(resets(recording, method="absolute", **options), 0), onsets(found, first)
    inside = {event for event in whole if first < event[-1] < first + 39}
    assert len(inside) > 50
    assert inside <= part
    at_entry = {event for event in part if event[1] == "backward" and event[-1] == first + 39}
    if first:
        at_entry |= {event for event in part if event[1] == "forward" and event[-1] == first}
    assert not at_entry
