"""Drift: trends, limits, rhythms and first steps that are known before anything is measured."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from scipy import stats

from gatescope.probe.analyzers import drift
from gatescope.probe.schema import SchemaError

Make = Callable[..., xr.Dataset]
DIMS = ("layer", "direction", "sequence", "time", "unit")


def remembered(memory: npt.ArrayLike, retention: str = "1.0", **signals: tuple[npt.ArrayLike, dict[str, object]]):
    """A recording of a memory (sequence, time, unit) and of further signals, values and attributes by name."""
    data = {
        name: (DIMS, np.asarray(values, dtype=float)[None, None], attrs)
        for name, (values, attrs) in {"cell_state": (memory, {"symbol": "c", "role": "memory"}), **signals}.items()
    }
    sizes = dict(zip(DIMS, data["cell_state"][1].shape, strict=True))
    coords = {dim: np.arange(size) for dim, size in sizes.items()} | {"direction": np.array(["forward"], dtype=object)}
    attrs = {"schema": "gatescope.recording/1", "module": "rnn", "cell": "LSTMCell", "retention": retention}
    return xr.Dataset(data, coords, attrs)


def gated(keep: npt.NDArray[np.float64], write: npt.NDArray[np.float64]) -> xr.Dataset:
    """The memory that a retention and what is written make, (sequence, time, unit), from 0."""
    memory = np.zeros_like(write)
    for t in range(write.shape[1]):
        memory[:, t] = keep[:, t] * (memory[:, t - 1] if t else 0.0) + write[:, t]
    return remembered(memory, "forget_gate", forget_gate=(keep, {"symbol": "f", "role": "gate"}))


def test_a_memory_that_only_adds_grows_by_what_it_adds_and_has_no_limit() -> None:
    result = drift(remembered(-0.25 * np.arange(1, 101).reshape(1, 100, 1)))
    assert result["slope"].item() == pytest.approx(0.25)
    assert result["limit"].item() == -np.inf
    assert result["verdict"].item() == "growing"
    assert result["level"].item() == pytest.approx(0.25 * 75.5)
    assert result["growth"].item() == pytest.approx(50 / 75.5)


def test_a_memory_that_forgets_settles_at_its_limit() -> None:
    keep, write = np.full((1, 400, 1), 0.9), np.full((1, 400, 1), 0.3)
    result = drift(gated(keep, write))
    assert result["limit"].item() == pytest.approx(3.0)
    assert result["level"].item() == pytest.approx(3.0)
    assert result["verdict"].item() == "settled"


def test_the_rise_to_the_limit_is_no_drift() -> None:
    rising = 1 - 0.95 ** np.arange(300).reshape(1, 300, 1)
    assert drift(remembered(rising, "none"))["verdict"].item() == "settled"
    assert drift(remembered(rising[:, :40], "none"), late=1.0)["verdict"].item() == "growing"


def test_a_rhythm_is_told_from_noise_and_its_period_is_found() -> None:
    rng = np.random.default_rng(3)
    wave = np.sin(2 * np.pi * np.arange(400) / 20)[None, :, None] + 0.3 * rng.normal(size=(2, 400, 1))
    result = drift(remembered(np.concatenate([wave, rng.normal(size=(2, 400, 1))], axis=2), "none"))
    assert result["verdict"].values.ravel().tolist() == ["oscillating", "settled"]
    assert result["period"].values.ravel()[0] == pytest.approx(20, rel=0.01)
    assert result["rhythm"].values.ravel()[1] < 0.2


def test_the_slope_has_the_level_of_each_sequence_taken_out() -> None:
    time = np.arange(80.0)
    values = np.stack([5 + 0.1 * time, 50 + 0.1 * time])[:, :, None]
    result = drift(remembered(values))
    assert result["slope"].item() == pytest.approx(0.1)
    assert result["slope_high"].item() - result["slope_low"].item() == pytest.approx(0, abs=1e-9)


def test_slope_and_interval_are_those_of_least_squares_where_residuals_are_white() -> None:
    rng = np.random.default_rng(1)
    values = 10 + 0.01 * np.arange(16) + rng.normal(size=16)
    while np.corrcoef(values[1:], values[:-1])[0, 1] > -0.2:  # residuals without positive autocorrelation
        values = 10 + 0.01 * np.arange(16) + rng.normal(size=16)
    result = drift(remembered(values[None, :, None]), late=1.0)
    fit = stats.linregress(np.arange(16), values)
    assert result["slope"].item() == pytest.approx(fit.slope)
    half = stats.t.ppf(0.975, 14) * fit.stderr
    assert result["slope_high"].item() - result["slope"].item() == pytest.approx(half)
    assert result["p"].item() == pytest.approx(fit.pvalue)


@pytest.mark.parametrize("time_scale", [1.0, 10.0])
def test_stationary_noise_is_rarely_called_growing(time_scale: float) -> None:
    rng, keep = np.random.default_rng(0), np.exp(-1 / time_scale)
    noise = rng.normal(size=(4, 1000, 400))
    result = drift(gated(np.full_like(noise, keep), noise))
    assert (result["p"] < 0.05).mean() <= stats.binom.ppf(0.999, 400, 0.05) / 400
    assert (result["verdict"] == "growing").sum() <= 1


def test_a_state_saturates_from_the_step_after_which_it_stays_on_the_flat() -> None:
    memory = np.zeros((1, 60, 3))
    memory[0, 20:, 0] = 2.0  # tanh(2) = 0.96
    memory[0, 10:, 1], memory[0, 30, 1] = -2.0, 0.0
    memory[0, 55:, 2] = 2.0  # too short before the end
    memory[0, 0, 2] = 2.0
    shown = (np.tanh(memory), {"symbol": "h", "role": "output", "lower": -1.0, "upper": 1.0})
    result = drift(remembered(memory, hidden_state=shown))
    np.testing.assert_array_equal(result["saturated_from"].values.ravel(), [20, 31, np.nan])
    assert result["degenerate_from"].isnull().all()  # no output gate was recorded


def test_a_cell_degenerates_where_it_shows_its_output_gate_and_nothing_else() -> None:
    memory = np.linspace(0, 6, 121).reshape(1, 121, 1)
    gate = 0.3 + 0.2 * np.cos(np.arange(121)).reshape(1, 121, 1)
    result = drift(
        remembered(
            memory,
            output_gate=(gate, {"symbol": "o", "role": "read"}),
            hidden_state=(-gate * np.tanh(memory), {"symbol": "h", "role": "output", "lower": -1.0, "upper": 1.0}),
        ),
        epsilon=0.01,
    )
    expected = int(np.argmax(np.tanh(memory.ravel()) > 0.99))
    assert result["degenerate_from"].item() == expected
    assert result["saturated_from"].item() == int(np.argmax(np.tanh(memory.ravel()) > 0.95)) < expected


def test_the_range_beyond_the_trained_length_is_compared_with_that_within() -> None:
    memory = np.arange(50.0).reshape(1, 50, 1)
    result = drift(remembered(-memory), training_length=20)
    assert (result["range_trained"].item(), result["range_beyond"].item()) == (19, 49)
    assert np.isnan(drift(remembered(memory))["range_beyond"].item())


def test_the_backward_direction_is_read_from_the_last_input_on() -> None:
    forward = remembered(0.1 * np.arange(1.0, 61.0).reshape(1, 60, 1))
    turned = forward.isel(time=slice(None, None, -1)).assign_coords(
        time=np.arange(60), direction=np.array(["backward"], dtype=object)
    )
    xr.testing.assert_allclose(drift(turned).drop_vars("direction"), drift(forward).drop_vars("direction"))


def test_units_that_are_not_finite_are_left_out_and_counted() -> None:
    memory = np.ones((2, 30, 2)) * np.arange(1.0, 31.0)[None, :, None]
    memory[0, 3, 0], memory[:, 5, 1] = np.inf, np.nan
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        result = drift(remembered(memory).assign_coords(length=("sequence", np.array([30, 30]))))
    assert result["verdict"].values.ravel().tolist() == ["growing", "no data"]
    assert result["slope"].values.ravel()[0] == pytest.approx(1.0)
    assert result.attrs["nonfinite"] == 3


def test_short_and_constant_memories_are_said_to_be_so() -> None:
    assert drift(remembered(np.ones((3, 7, 1))))["verdict"].values.ravel().tolist() == ["settled"]
    assert drift(remembered(np.ones((3, 2, 1))))["verdict"].item() == "no data"
    assert drift(remembered(np.zeros((1, 64, 1))))["verdict"].item() == "settled"
    assert drift(remembered(np.ones((0, 7, 1))))["verdict"].item() == "no data"


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"late": 0.0}, "late must lie above 0"),
        ({"late": np.nan}, "late must lie above 0"),
        ({"confidence": 1.0}, "confidence must lie above 0"),
        ({"epsilon": -1.0}, "epsilon must lie above 0"),
        ({"training_length": -3}, "training_length must be a number of steps"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        drift(remembered(np.ones((1, 9, 1))), **parameters)


def test_what_is_no_recording_or_has_no_memory_is_refused(make_recording: Make) -> None:
    with pytest.raises(TypeError, match="drift needs one recording"):
        drift(np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="drift needs a recording"):
        drift(xr.Dataset())
    with pytest.raises(ValueError, match="drift needs a memory"):
        drift(make_recording().drop_vars("cell_state"))


@pytest.mark.parametrize(("growth", "least", "most"), [(0.3, 0.99, 1.0), (0.05, 0.0, 0.01)])
def test_trends_are_found_by_how_much_they_add_and_small_ones_are_not_called_growing(
    growth: float, least: float, most: float
) -> None:
    """Noise of the size of the memory's level, of which nothing lasts; four sequences of 1000 steps."""
    rng = np.random.default_rng(9)
    trend = 5 + 5 * growth * np.arange(1000) / 500
    memory = trend[None, :, None] + rng.normal(size=(4, 1000, 100))
    found = (drift(remembered(memory, "none"))["verdict"] == "growing").mean().item()
    assert least <= found <= most
