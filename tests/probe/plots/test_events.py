"""Pictures of resets, alignment, triggers and event averages show the numbers of their results."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot
from matplotlib.collections import PathCollection

from gatescope import (
    alignment,
    event_average,
    figure_alignment,
    plot_alignment,
    plot_event_average,
    plot_lags,
    plot_resets,
    plot_triggers,
    resets,
    triggers,
)

Make = Callable[..., xr.Dataset]


def found(recording: xr.Dataset, **parameters: float) -> xr.Dataset:
    return resets(recording, method="absolute", low=0.3, high=0.6, **parameters)


@pytest.fixture
def recording(make_recording: Make) -> xr.Dataset:
    return make_recording(lengths=(80, 60, 1))


def clouds(axes: pyplot.Axes) -> dict[str, PathCollection]:
    return {str(each.get_label()): each for each in axes.collections if isinstance(each, PathCollection)}


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_raster_has_a_mark_at_every_onset(recording: xr.Dataset, direction: str) -> None:
    events = found(recording, min_depth=0.3)
    axes = plot_resets(events, layer=1, direction=direction, sequence=1, labels="token")
    frame = events[["event_layer", "event_direction", "event_sequence", "event_unit", "onset", "depth", "overwrite"]]
    here = (frame["event_layer"] == 1) & (frame["event_direction"] == direction) & (frame["event_sequence"] == 1)
    some = frame.isel(event=here.values)
    assert some.sizes["event"] > 3
    drawn = clouds(axes)
    for name, which in {"reset to zero": False, "overwrite": True}.items():
        part = some.isel(event=(some["overwrite"] == which).values)
        cloud = drawn[f"{name} ({part.sizes['event']})"]
        np.testing.assert_array_equal(cloud.get_offsets(), np.column_stack([part["onset"], part["event_unit"]]))
        np.testing.assert_array_equal(cloud.get_array(), part["depth"])
    assert f"layer 1, {direction}, sequence 1" in axes.get_title()
    assert axes.get_xlim() == (-0.5, 59.5)


def test_a_raster_without_events_is_empty_and_says_for_what(recording: xr.Dataset) -> None:
    axes = plot_resets(found(recording, min_erased=100.0), boundaries=False)
    assert all(len(cloud.get_offsets()) == 0 for cloud in clouds(axes).values())
    with pytest.raises(ValueError, match=r"kind must be one of \['reset'\]; 'fresh_start' came"):
        plot_resets(found(recording), kind="fresh_start")
    with pytest.raises(ValueError, match="sequence must be one of"):
        plot_resets(found(recording), sequence=9)
    with pytest.raises(ValueError, match="needs what resets returned"):
        plot_resets(recording)


def test_precision_and_recall_are_one_point_per_unit(recording: xr.Dataset) -> None:
    result = alignment(found(recording), tolerance=1)
    result["p_adjusted"][0, 0, 2] = 0.001
    drawn = clouds(plot_alignment(result, layer=0, direction="forward"))
    here = result.sel(layer=0, direction="forward")
    assert list(drawn) == ["within chance (4)", "beyond chance (1)"]
    np.testing.assert_array_equal(
        drawn["beyond chance (1)"].get_offsets(), [[here["precision"][2].item(), here["recall"][2].item()]]
    )
    with pytest.raises(ValueError, match="needs what alignment returned"):
        plot_alignment(recording)
    with pytest.raises(ValueError, match="layer must be one of"):
        plot_lags(result, layer=5)


def test_bars_are_the_lags_of_units_beyond_chance_and_of_the_others(recording: xr.Dataset) -> None:
    result = alignment(found(recording), tolerance=1)
    result["p_adjusted"][1, 1, 3] = 0.001
    axes = plot_lags(result)
    heights = np.array([patch.get_height() for patch in axes.patches]).reshape(2, -1)
    np.testing.assert_array_equal(heights[0], result["lags"][1, 1, 3])
    np.testing.assert_array_equal(heights.sum(axis=0), result["lags"].sum(("layer", "direction", "unit")))


def test_the_table_lists_blocks_and_units_beyond_chance(recording: xr.Dataset) -> None:
    blocks = recording.assign_coords(block=("unit", np.array([4, 4, 6, 6, 6])))
    result = alignment(found(blocks), tolerance=1)
    result["p_adjusted"][0, 1, 2], result["block_p_adjusted"][0, 1, 0] = 0.001, 0.002
    table = figure_alignment(result, layer=0, direction="backward").axes[2].tables[0]
    names = [cell.get_text().get_text() for (row, column), cell in table.get_celld().items() if row and not column]
    assert names == ["block 4", "unit 2"]
    empty = alignment(found(recording, min_erased=100.0))
    cells = figure_alignment(empty).axes[2].tables[0].get_celld()
    assert cells[1, 0].get_text().get_text() == "none beyond chance"


def test_bars_of_triggers_are_the_lifts_of_the_layer(recording: xr.Dataset) -> None:
    result = triggers(found(recording), "token", at_least=5)
    axes = plot_triggers(result, layer=1, direction="backward")
    lift = result["layer_lift"].sel(layer=1, direction="backward").values
    np.testing.assert_array_equal([patch.get_width() for patch in axes.patches], np.sort(lift)[::-1])
    assert "no label stands out" in axes.get_title()
    texts = [text.get_text() for text in axes.get_yticklabels()]
    assert any(text.startswith("␣") for text in texts)
    numbers = plot_triggers(triggers(found(recording), "value", bins=4))
    assert len(numbers.patches) == 4
    with pytest.raises(ValueError, match="At least one label must have been tested"):
        plot_triggers(triggers(found(recording), "token", at_least=1000))
    with pytest.raises(ValueError, match="needs what triggers returned"):
        plot_triggers(recording)


def test_lines_are_the_averages_of_units_with_events(recording: xr.Dataset) -> None:
    events = found(recording)
    result = event_average(recording, events, before=3, after=4)
    axes = plot_event_average(result, layer=0, direction="backward", units=[3, 1])
    for ax, name in zip(axes, ("gate", "memory_size"), strict=True):
        lines = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
        for line, unit in zip(lines, (3, 1), strict=True):
            np.testing.assert_array_equal(line.get_ydata(), result[name].sel(layer=0, direction="backward", unit=unit))
    with pytest.raises(ValueError, match=r"units must be among 0 to 4; \[9\] came"):
        plot_event_average(result, units=[9])
    nothing = event_average(recording, found(recording, min_erased=100.0))
    with pytest.raises(ValueError, match="At least one unit must have an event"):
        plot_event_average(nothing)
    with pytest.raises(ValueError, match="needs what event_average returned"):
        plot_event_average(recording)
