"""What every analyzer keeps to: one row per analyzer."""

import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from gatescope.probe import pieces
from gatescope.probe.analyzers import (
    alignment,
    describe,
    drift,
    event_average,
    gradient_flow,
    lyapunov,
    resets,
    roles,
    saturation,
    selectivity,
    timescales,
    triggers,
)
from gatescope.probe.store import open_recording, save_recording

Make = Callable[..., xr.Dataset]
Analyzer = Callable[..., xr.Dataset]


def of_events(measure: Analyzer) -> Analyzer:
    """A measure of events, from the recording on."""

    @wraps(measure)
    def analyzer(recording: xr.Dataset, **parameters: Any) -> xr.Dataset:
        events = resets(recording, method="absolute", low=0.3, high=0.6)
        return measure(recording, events, **parameters) if measure is event_average else measure(events, **parameters)

    return analyzer


ANALYZERS: list[tuple[Analyzer, dict[str, Any]]] = [
    (of_events(alignment), {"tolerance": 1, "kind": "reset"}),
    (describe, {"most": 9}),
    (drift, {"late": 0.8, "confidence": 0.9, "epsilon": 0.02, "training_length": 4}),
    (of_events(event_average), {"before": 2, "after": 3, "kind": "reset"}),
    (gradient_flow, {"method": "exact"}),
    (lyapunov, {"k": 3}),
    (selectivity, {"labels": "token", "shifts": 50}),
    (roles, {"labels": "token", "samples": 20, "seed": 3}),
    (timescales, {"jacobian": True, "longest": 3}),
    (resets, {"method": "absolute", "low": 0.3, "high": 0.6, "min_depth": 0.2, "min_erased": 0.15}),
    (of_events(triggers), {"labels": "token", "at_least": 2, "bins": 4, "alpha": 0.1}),
    (saturation, {"low": 0.2, "high": 0.7}),
]

each_analyzer = pytest.mark.parametrize(
    ("analyzer", "parameters"), ANALYZERS, ids=[analyzer.__name__ for analyzer, _ in ANALYZERS]
)


@each_analyzer
def test_the_recording_is_left_as_it_was(make_recording: Make, analyzer: Analyzer, parameters: dict[str, Any]) -> None:
    recording = make_recording()
    before = recording.copy(deep=True)
    analyzer(recording, **parameters)
    xr.testing.assert_identical(recording, before)


@each_analyzer
def test_the_order_of_sequences_changes_nothing(
    make_recording: Make, analyzer: Analyzer, parameters: dict[str, Any]
) -> None:
    recording = make_recording()
    result = analyzer(recording, **parameters)
    turned = analyzer(recording.isel(sequence=[2, 0, 1]), **parameters)
    if "sequence" in turned.coords:
        turned = turned.sortby("sequence")
    xr.testing.assert_allclose(turned, result, rtol=1e-12)


@each_analyzer
def test_permuting_units_permutes_the_result(
    make_recording: Make, analyzer: Analyzer, parameters: dict[str, Any]
) -> None:
    recording, near = make_recording(), 1e-12
    if analyzer is lyapunov:  # whose first columns take time to turn to the directions that grow most
        recording, near = make_recording(layers=1, lengths=(800,)), 1e-5
    order = [3, 1, 4, 0, 2]
    result = analyzer(recording, **parameters)
    permuted = analyzer(recording.isel(unit=order, source=order), **parameters)
    xr.testing.assert_allclose(permuted, result.isel(unit=order) if "unit" in result.dims else result, rtol=near)


@each_analyzer
def test_more_padding_changes_nothing(make_recording: Make, analyzer: Analyzer, parameters: dict[str, Any]) -> None:
    recording = make_recording()
    longer = recording.reindex(time=np.arange(17), fill_value={"call": -1, "token": "", "boundary": False})
    assert np.isnan(longer["forget_gate"].isel(time=slice(12, None))).all()
    xr.testing.assert_allclose(analyzer(longer, **parameters), analyzer(recording, **parameters), rtol=1e-12)


@each_analyzer
def test_the_result_survives_a_file(
    make_recording: Make, analyzer: Analyzer, parameters: dict[str, Any], tmp_path: Path
) -> None:
    result = analyzer(make_recording(), **parameters)
    result.to_netcdf(tmp_path / "result.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "result.nc", engine="h5netcdf") as stored:
        xr.testing.assert_equal(stored, result)
        assert dict(stored.attrs) == result.attrs


@each_analyzer
def test_attributes_are_numbers_and_text_and_text_is_objects(
    make_recording: Make, analyzer: Analyzer, parameters: dict[str, Any]
) -> None:
    result = analyzer(make_recording(), **parameters)
    for owner in (result, *result.variables.values()):
        assert {type(value) for value in owner.attrs.values()} <= {str, int, float}
    assert "U" not in {variable.dtype.kind for variable in result.variables.values()}


@each_analyzer
def test_the_call_stands_in_the_attributes(
    make_recording: Make, analyzer: Analyzer, parameters: dict[str, Any]
) -> None:
    recording = make_recording()
    attrs = analyzer(recording, **parameters).attrs
    assert {key: attrs[key] for key in parameters} == parameters
    assert attrs["measure"] == analyzer.__name__
    assert (attrs["module"], attrs["cell"]) == ("encoder.rnn", "LSTMCell")


@each_analyzer
def test_new_dimensions_carry_coordinates(make_recording: Make, analyzer: Analyzer, parameters: dict[str, Any]) -> None:
    result = analyzer(make_recording(), **parameters)
    assert set(result.dims) <= set(result.coords)


@each_analyzer
@pytest.mark.parametrize("name", ["run.zarr", "run.nc"])
def test_a_recording_on_disk_gives_the_same_numbers_and_stays_there(
    make_recording: Make, analyzer: Analyzer, parameters: dict[str, Any], name: str, tmp_path: Path
) -> None:
    recording = make_recording()
    save_recording(recording, tmp_path / name)
    opened = open_recording(tmp_path / name)
    xr.testing.assert_identical(analyzer(opened, **parameters), analyzer(recording, **parameters))
    assert not any(opened[key].variable._in_memory for key in ("forget_gate", "input_gate", "cell_state"))
    opened.close()


class Largest:
    """The most that dask holds at once."""

    def __init__(self) -> None:
        from dask.callbacks import Callback

        self.bytes = 0
        self.callback = Callback(posttask=self.look)

    def look(self, key: Any, result: Any, graph: Any, state: Any, worker: Any) -> None:
        held = [value.nbytes for value in state["cache"].values() if isinstance(value, np.ndarray)]
        self.bytes = max(self.bytes, sum(held))


def on_disk_in_pieces(recording: xr.Dataset, path: Path, monkeypatch: pytest.MonkeyPatch) -> xr.Dataset:
    """The recording opened from disk, in pieces of 8 kB instead of 8 MB, which analyzers also read at once."""
    monkeypatch.setattr(pieces.chunk_shape, "__defaults__", (8000,))
    monkeypatch.setattr(pieces, "CHUNK_BYTES", 8000)
    for analyzer, _ in ANALYZERS:
        if "BLOCK" in analyzer.__globals__:
            monkeypatch.setitem(analyzer.__globals__, "BLOCK", 2000)
    opened = open_recording(save_recording(recording, path))
    assert isinstance(opened, xr.Dataset)
    return opened


@each_analyzer
@pytest.mark.parametrize("name", ["run.zarr", "run.nc"])
def test_a_dask_backed_recording_gives_the_same_numbers_and_is_never_loaded_whole(
    make_recording: Make,
    analyzer: Analyzer,
    parameters: dict[str, Any],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("dask.array")
    recording = make_recording(lengths=(150,) * 9 + (20,) * 3)
    expected = analyzer(recording, **parameters)
    opened = on_disk_in_pieces(recording, tmp_path / name, monkeypatch)
    assert opened["forget_gate"].chunks is not None
    largest = Largest()
    with largest.callback:
        found = analyzer(opened, **parameters)
    xr.testing.assert_allclose(found, expected, rtol=1e-12)
    assert 0 < largest.bytes <= opened["forget_gate"].nbytes / 2
    assert opened["forget_gate"].chunks is not None, "it was loaded"
    opened.close()


@each_analyzer
@pytest.mark.parametrize("name", ["run.zarr", "run.nc"])
def test_without_dask_the_numbers_are_the_same_and_nothing_is_kept(
    make_recording: Make,
    analyzer: Analyzer,
    parameters: dict[str, Any],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recording = make_recording(lengths=(150,) * 9 + (20,) * 3)
    expected = analyzer(recording, **parameters)
    monkeypatch.setitem(sys.modules, "dask.array", None)
    opened = on_disk_in_pieces(recording, tmp_path / name, monkeypatch)
    assert opened["forget_gate"].chunks is None
    xr.testing.assert_allclose(analyzer(opened, **parameters), expected, rtol=1e-12)
    assert not any(opened[key].variable._in_memory for key in ("forget_gate", "input_gate", "cell_state"))
    opened.close()
