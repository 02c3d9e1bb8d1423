"""Pictures of gradient flow show the numbers of the result."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot
from matplotlib.axes import Axes

from gatescope.probe.analyzers import gradient_flow
from gatescope.probe.plots import plot_cell_path, plot_gradient_flow, plot_knockout, plot_path_share

Make = Callable[..., xr.Dataset]


@pytest.fixture
def result(make_recording: Make) -> xr.Dataset:
    return gradient_flow(make_recording(lengths=(20, 12)))


@pytest.fixture
def single(make_recording: Make) -> xr.Dataset:
    return gradient_flow(make_recording(layers=1, directions=1, lengths=(20, 12)))


def lines(axes: Axes) -> dict[str, np.ndarray]:
    return {str(line.get_label()): np.asarray(line.get_xydata()) for line in axes.lines}


def test_curves_are_medians_relative_to_no_steps(result: xr.Dataset) -> None:
    axes = plot_gradient_flow(result, lowest=-1000)
    drawn = {label: xy for label, xy in lines(axes).items() if not label.startswith("_")}
    assert len(drawn) == 4
    chosen = result["state_norm"].sel(quantile=0.5, norm="frobenius", block="total c->c")
    for label, xy in drawn.items():
        layer, direction = int("layer 1" in label), int("backward" in label)
        np.testing.assert_array_equal(xy[:, 0], result["horizon"])
        np.testing.assert_allclose(xy[:, 1], chosen[layer, direction] - 0.5 * np.log10(5), rtol=1e-12)
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines if line.get_label() in drawn}) == 4


def test_bands_are_the_outer_quantiles(single: xr.Dataset) -> None:
    axes = plot_gradient_flow(single, block="whole", lowest=-1000)
    low, high = (
        single["state_norm"].sel(quantile=q, norm="frobenius", block="whole").values.ravel() for q in (0.1, 0.9)
    )
    (band,) = axes.collections
    corners = band.get_paths()[0].vertices
    for horizon, values in ((1, [low[0], high[0]]), (19, [low[-1], high[-1]])):
        ends = np.unique(corners[corners[:, 0] == horizon, 1])
        np.testing.assert_allclose([ends.min(), ends.max()], np.array(values) - 0.5 * np.log10(10), rtol=1e-9)


def test_several_recordings_share_one_axis_under_their_labels(result: xr.Dataset, single: xr.Dataset) -> None:
    _, axes = pyplot.subplots()
    assert plot_gradient_flow({"before": result, "after": single}, layer=0, direction="forward", ax=axes) is axes
    assert [label for label in lines(axes) if not label.startswith("_")] == ["before, layer 0, forward", "after"]
    legend = axes.get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == 2


def test_a_curve_that_ends_in_nothing_is_drawn_as_far_as_it_goes(single: xr.Dataset) -> None:
    gone = single.copy(deep=True)
    gone["state_norm"][..., 5:] = -np.inf
    axes = plot_gradient_flow(gone)
    (xy,) = (xy for label, xy in lines(axes).items() if not label.startswith("_"))
    assert np.isfinite(xy[:5]).all()
    assert np.isnan(xy[5:, 1]).all()


def test_the_axis_ends_at_the_lowest_power_asked_for(single: xr.Dataset) -> None:
    deep = single.copy(deep=True)
    deep["state_norm"][..., -1] = -874.0
    assert -13 < plot_gradient_flow(deep, lowest=-12).get_ylim()[0] < -12
    assert plot_gradient_flow(deep, lowest=-1000).get_ylim()[0] < -874


def test_spectral_norms_stand_where_they_were_taken(single: xr.Dataset) -> None:
    axes = plot_gradient_flow(single, norm="spectral")
    (xy,) = (xy for label, xy in lines(axes).items() if not label.startswith("_"))
    assert xy[:, 0].tolist() == [1, 2, 5, 10]


def test_knockouts_are_relative_to_the_uncut_products(single: xr.Dataset) -> None:
    drawn = lines(plot_knockout(single, lowest=-1000))
    for path in single["path"].values:
        ratio = (single["knockout_norm"] - single["knockout_reference"]).sel(path=path, quantile=0.5)[0, 0]
        xy = drawn[f"without {path.removeprefix('via ')} path"]
        np.testing.assert_allclose(xy[:, 1], np.where(np.isfinite(ratio), ratio, np.nan), rtol=1e-12)


def test_shares_are_stacked_up_to_one(single: xr.Dataset) -> None:
    axes = plot_path_share(single, sequence=1)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == single["path"].values.tolist()
    shares = single["path_share"][0, 0, 1, 1:12].values
    highest = max(path.vertices[:, 1].max() for area in axes.collections for path in area.get_paths())
    assert highest == pytest.approx(np.maximum(shares, 0).sum(axis=1).max())
    assert axes.get_xlim() == (0.5, 11.5)


def test_the_heatmap_holds_every_unit_at_every_horizon(single: xr.Dataset) -> None:
    axes = plot_cell_path(single, ordered=False, lowest=-50)
    mesh = axes.collections[0]
    expected = single["cell_path"].sel(quantile=0.5)[0, 0].transpose("unit", "horizon").values[::-1]
    np.testing.assert_allclose(mesh.get_array().reshape(expected.shape), expected)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["4", "3", "2", "1", "0"]
    ordered = plot_cell_path(single, lowest=-50).collections[0].get_array().reshape(expected.shape)
    assert (np.diff(ordered.sum(axis=1)) >= 0).all()


def test_a_heatmap_of_nothing_finite_is_drawn_without_a_warning(single: xr.Dataset) -> None:
    mesh = plot_cell_path(single.assign(cell_path=single["cell_path"] * np.nan)).collections[0]
    assert mesh.get_clim()[1] == 0


def test_bad_input_is_refused_with_what_came(result: xr.Dataset) -> None:
    cases = [
        (plot_gradient_flow, (xr.Dataset(),), {}, "needs what gradient_flow returned"),
        (plot_gradient_flow, ({},), {}, "needs what gradient_flow returned"),
        (plot_gradient_flow, (result,), {"block": "x"}, "block must be one of"),
        (plot_gradient_flow, (result,), {"norm": "x"}, "norm must be one of"),
        (plot_gradient_flow, (result,), {"layer": 7}, "layer must be one of"),
        (plot_knockout, (result.drop_vars("knockout_norm"),), {}, "needs what gradient_flow returned"),
        (plot_path_share, (result,), {"sequence": 9}, "sequence must be one of"),
        (plot_cell_path, (result.drop_vars("cell_path"),), {}, "needs what gradient_flow returned"),
        (plot_cell_path, (result,), {"direction": "sideways"}, "direction must be one of"),
    ]
    for plot, data, options, said in cases:
        with pytest.raises(ValueError, match=said):
            plot(*data, **options)


def test_one_layer_chosen_by_its_number_is_drawn_like_the_whole(single: xr.Dataset) -> None:
    one, whole = (plot_gradient_flow(each) for each in (single.isel(layer=0, direction=0), single))
    for line, other in zip(one.get_lines(), whole.get_lines(), strict=True):
        np.testing.assert_array_equal(line.get_data(), other.get_data())
