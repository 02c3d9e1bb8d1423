"""The map of roles shows the evidence of the table."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

from gatescope.probe.analyzers import roles
from gatescope.probe.plots import plot_roles

Make = Callable[..., xr.Dataset]


def test_every_unit_stands_at_its_time_scale_and_reset_rate(make_recording: Make) -> None:
    result = roles(make_recording(lengths=(60, 50)), samples=5)
    axes = plot_roles(result)
    drawn = np.concatenate([np.asarray(cloud.get_offsets()) for cloud in axes.collections])
    evidence = [result["evidence"].sel(statistic=name).values.ravel() for name in ("time_scale", "reset_rate")]
    np.testing.assert_allclose(np.sort(drawn[:, 0]), np.sort(evidence[0]))
    np.testing.assert_allclose(np.sort(drawn[:, 1]), np.sort(evidence[1]))
    counted = {str(cloud.get_label()) for cloud in axes.collections}
    names, counts = np.unique(result["unit_role"].values.astype(str), return_counts=True)
    assert counted == {f"{name} ({count})" for name, count in zip(names, counts, strict=True)}


def test_units_without_a_finite_time_scale_stand_at_the_edges(make_recording: Make) -> None:
    recording = make_recording(layers=1, directions=1, lengths=(60,))
    recording["forget_gate"][..., 2] = 1.0
    axes = plot_roles(roles(recording, samples=3))
    places = np.concatenate([np.asarray(cloud.get_offsets())[:, 0] for cloud in axes.collections])
    assert np.isfinite(places).all()
    assert sorted(text.get_text() for text in axes.texts) == ["0", "1", "2", "3", "4"]


def test_what_is_not_in_the_result_is_refused(make_recording: Make) -> None:
    with pytest.raises(ValueError, match="plot_roles needs what roles returned"):
        plot_roles(make_recording())
    with pytest.raises(ValueError, match="layer must be one of"):
        plot_roles(roles(make_recording(), samples=2), layer=7)
