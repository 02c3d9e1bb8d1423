"""Event-triggered averages agree with picking the steps one by one."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

from gatescope.probe.analyzers import event_average, resets

Make = Callable[..., xr.Dataset]


@pytest.mark.parametrize("block", [2**21, 100])
def test_averages_are_those_of_the_steps_around_each_onset(
    make_recording: Make, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setitem(event_average.__globals__, "BLOCK", block)
    recording = make_recording(lengths=(70, 50, 3))
    events = resets(recording, method="absolute", low=0.3, high=0.6)
    result = event_average(recording, events, before=4, after=5)
    lengths = recording["length"].values
    for layer, direction, unit in np.ndindex(2, 2, 5):
        turn = ("forward", "backward")[direction]
        here = (events["event_layer"] == layer) & (events["event_unit"] == unit) & (events["event_direction"] == turn)
        some = events.isel(event=here.values)
        assert result["events"].values[layer, direction, unit] == some.sizes["event"]
        for lag in range(-4, 6):
            values = []
            for one, onset in zip(some["event_sequence"].values, some["onset"].values, strict=True):
                step = onset + lag if direction == 0 else onset - lag
                if 0 <= step < lengths[one]:
                    values.append([recording[name].values[layer, direction, one, step, unit] for name in NAMES])
            found = result.isel(layer=layer, direction=direction, unit=unit).sel(lag=lag)
            assert found["steps"].item() == len(values)
            if values:
                mean = np.mean(values, axis=0, dtype=np.float64)
                assert found["gate"].item() == pytest.approx(mean[0])
                assert found["memory"].item() == pytest.approx(mean[1])
                assert found["memory_size"].item() == pytest.approx(np.abs(values)[:, 1].mean(dtype=np.float64))
    np.testing.assert_allclose(
        result["usual_gate"], recording["forget_gate"].mean(("sequence", "time"), dtype=float), rtol=1e-6
    )


NAMES = ("forget_gate", "cell_state")


def test_events_of_something_else_are_refused(make_recording: Make) -> None:
    recording = make_recording()
    events = resets(recording)
    with pytest.raises(ValueError, match="before must be a whole number of steps, 0 or more; -1 came"):
        event_average(recording, events, before=-1)
    with pytest.raises(ValueError, match="needs what resets returned"):
        event_average(recording, recording)
    other = resets(make_recording(lengths=(60, 60, 60, 60)), method="absolute", low=0.3, high=0.6)
    with pytest.raises(ValueError, match="Events must lie in"):
        event_average(recording, other)
