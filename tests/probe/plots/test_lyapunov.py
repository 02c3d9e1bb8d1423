"""The picture of Lyapunov exponents shows the numbers of the result."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from matplotlib.container import ErrorbarContainer

from gatescope.probe.analyzers import lyapunov
from gatescope.probe.plots import plot_lyapunov


def test_exponents_stand_in_order_with_two_standard_errors(make_recording: Callable[..., xr.Dataset]) -> None:
    result = lyapunov(make_recording(lengths=(60, 50), layers=1, directions=2), k=4)
    axes = plot_lyapunov({"ours": result})
    bars = [container for container in axes.containers if isinstance(container, ErrorbarContainer)]
    assert [bar.get_label().split(":")[0] for bar in bars] == ["ours, forward", "ours, backward"]
    for place, bar in enumerate(bars):
        points, _, (segments,) = bar.lines
        exponent, error = result["exponent"].values[0, place], result["standard_error"].values[0, place]
        np.testing.assert_allclose(points.get_xydata(), np.stack([np.arange(1, 5), exponent], axis=1))
        ends = np.array([segment[:, 1] for segment in segments.get_segments()])
        np.testing.assert_allclose(ends[:, 1] - ends[:, 0], 4 * error)


def test_exponents_without_number_are_left_out(make_recording: Callable[..., xr.Dataset]) -> None:
    result = lyapunov(make_recording(lengths=(60,), layers=1, directions=1), k=3)
    result["exponent"][..., 2] = -np.inf
    (bar,) = plot_lyapunov(result).containers
    assert bar.lines[0].get_xdata().tolist() == [1, 2]


def test_bad_input_is_refused(make_recording: Callable[..., xr.Dataset]) -> None:
    with pytest.raises(ValueError, match="needs what lyapunov returned"):
        plot_lyapunov(xr.Dataset())
    with pytest.raises(ValueError, match="layer must be one of"):
        plot_lyapunov(lyapunov(make_recording(lengths=(60,)), k=1), layer=5)
