"""The map of effects and the specialisation matrix show the numbers of their results."""

from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import PathCollection

from gatescope.probe.analyzers import role_check
from gatescope.probe.plots import plot_ablation, plot_role_check

SEQUENCES = 10


def effects(dims: dict[str, Any], metrics: tuple[str, ...] = ("long", "short"), seed: int = 0) -> xr.Dataset:
    """A result of `ablation` over these dims with random effects."""
    rng = np.random.default_rng(seed)
    names = ["layer", "direction", *dims]
    coords: dict[str, Any] = {"layer": [0], "direction": np.array(["forward"], dtype=object), **dims}
    coords |= {"metric": np.array(metrics, dtype=object), "per_sequence": ("metric", [True] * len(metrics))}
    shape = [len(metrics), *(len(coords[name]) for name in names)]
    apart = rng.normal(size=(*shape, 1)) + 0.1 * rng.normal(size=(*shape, SEQUENCES))
    mean = apart.mean(-1)
    data = {
        "effect": (("metric", *names), mean),
        "effect_low": (("metric", *names), mean - 0.1),
        "effect_high": (("metric", *names), mean + 0.2),
        "p_adjusted": (("metric", *names), rng.choice([0.001, 0.5], shape)),
        "effect_by_sequence": (("metric", *names, "sequence"), apart),
    }
    attrs = {
        "measure": "ablation",
        "over": "unit",
        "to": "zero",
        "module": "rnn",
        "cell": "LSTMCell",
        "confidence": 0.95,
    }
    return xr.Dataset(data, coords | {"sequence": np.arange(SEQUENCES)}, attrs)


def points(axes: Any) -> list[PathCollection]:
    return [found for found in axes.collections if isinstance(found, PathCollection)]


def test_points_and_bars_are_effects_and_intervals_the_largest_first() -> None:
    result = effects({"unit": np.arange(7)})
    axes = plot_ablation(result)
    order = [int(label.get_text()) for label in axes.get_yticklabels()]
    long = result["effect"].sel(metric="long").values.ravel()
    assert order == np.argsort(-long).tolist()
    for cloud, bars, name in zip(points(axes), axes.collections[::2], ("long", "short"), strict=True):
        values = result.sel(metric=name, layer=0, direction="forward", unit=order)
        assert cloud.get_label() == name
        np.testing.assert_allclose(np.asarray(cloud.get_offsets())[:, 0], values["effect"])
        ends = np.array([segment[:, 0] for segment in bars.get_segments()])
        np.testing.assert_allclose(ends, np.stack([values["effect_low"], values["effect_high"]], axis=1))
        filled = (cloud.get_facecolors()[:, :3] < 1).any(axis=1)
        assert filled.tolist() == (values["p_adjusted"].values < 0.05).tolist()


def test_of_many_units_the_largest_effects_are_shown_and_the_others_counted() -> None:
    result = effects({"unit": np.arange(100)}, ("loss",))
    axes = plot_ablation(result)
    (cloud,) = points(axes)
    shown = np.abs(np.asarray(cloud.get_offsets())[:, 0])
    every = np.sort(np.abs(result["effect"].values.ravel()))
    np.testing.assert_allclose(np.sort(shown), every[60:])
    assert "60 smaller ones are not shown" in axes.get_title()


def test_units_in_stretches_of_time_are_a_map_and_so_are_gates_of_units() -> None:
    result = effects({"unit": np.arange(5), "time": [0, 4, 8]})
    axes = plot_ablation(result, metric="short")
    np.testing.assert_allclose(axes.images[0].get_array(), result["effect"].sel(metric="short").values[0, 0])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "4", "8"]
    sure = np.argwhere(result["p_adjusted"].sel(metric="short").values[0, 0] < 0.05)
    assert {tuple(at) for at in np.asarray(points(axes)[0].get_offsets())[:, ::-1].astype(int)} == {*map(tuple, sure)}
    gates = effects({"gate": np.array(["input_gate", "forget_gate"], dtype=object), "unit": np.arange(5)})
    axes = plot_ablation(gates)
    np.testing.assert_allclose(axes.images[0].get_array(), gates["effect"].values[0, 0, 0].T)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["input", "forget"]
    low, high = axes.images[0].get_clim()
    assert low == -high


def checked(count: int = 4) -> xr.Dataset:
    result = effects({"unit": np.arange(count)})
    roles = xr.Dataset(
        {"unit_role": (("layer", "direction", "unit"), [[["latch", "short-memory"] * (count // 2)]])},
        {name: result[name].variable for name in ("layer", "direction", "unit")},
        {"measure": "roles"},
    )
    return role_check(roles, result)


def test_the_matrix_shows_growth_role_and_verdict_of_every_row() -> None:
    result = checked()
    axes = plot_role_check(result)
    grown = result["specialisation"].values[0, 0]
    np.testing.assert_allclose(axes.images[0].get_array(), grown)
    assert [text.get_text() for text in axes.texts] == [f"{value:+.2f}" for value in grown.ravel()]
    assert [text.get_fontweight() == "bold" for text in axes.texts] == (
        result["p_adjusted"].values.ravel() < 0.05
    ).tolist()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    verdicts = result["verdict"].values.ravel()
    expected = [
        f"unit {u}: {r}\n{v}" for u, (r, v) in enumerate(zip(result["role"].values.ravel(), verdicts, strict=True))
    ]
    assert labels == expected


def test_many_units_are_a_matrix_without_text() -> None:
    axes = plot_role_check(checked(60))
    assert axes.images[0].get_array().shape == (60, 2)
    assert not axes.texts


def test_what_is_not_a_result_or_not_in_it_is_refused() -> None:
    result = effects({"unit": np.arange(3)})
    with pytest.raises(ValueError, match="plot_ablation needs what ablation returned"):
        plot_ablation(checked())
    with pytest.raises(ValueError, match="plot_role_check needs what role_check returned"):
        plot_role_check(result)
    with pytest.raises(ValueError, match="metric must be one of long, short; 'far' came"):
        plot_ablation(result, metric="far")
    with pytest.raises(ValueError, match="layer must be one of"):
        plot_ablation(result, layer=3)
