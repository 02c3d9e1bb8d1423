"""Roles: units built to play each part, and confidence where the evidence is divided."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

from gatescope.probe.analyzers import role_agreement, roles
from gatescope.probe.analyzers.predicates import areas
from gatescope.probe.schema import SchemaError

Make = Callable[..., xr.Dataset]
Array = npt.NDArray[Any]
DIMS = ("layer", "direction", "sequence", "time", "unit")
SEQUENCES, STEPS = 24, 120


def network(
    keep: Array,
    write: Array,
    memory: Array,
    retention: str = "forget_gate",
    block: list[int] | None = None,
    **labels: Array,
) -> xr.Dataset:
    """A recording of gates and memory (sequence, time, unit)."""
    values = {
        "forget_gate": (keep, {"symbol": "f", "role": "gate", "lower": 0.0, "upper": 1.0}),
        "input_gate": (write, {"symbol": "i", "role": "write", "lower": 0.0, "upper": 1.0}),
        "cell_state": (memory, {"symbol": "c", "role": "memory"}),
    }
    coords: dict[str, Any] = {
        dim: np.arange(size) for dim, size in zip(DIMS, (1, 1, *memory.shape), strict=True) if dim != "direction"
    }
    coords |= {"direction": np.array(["forward"], dtype=object), "length": ("sequence", np.full(len(memory), STEPS))}
    coords |= {"start": ("sequence", np.array(["zero"] * len(memory), dtype=object))}
    coords |= {name: (("sequence", "time"), label) for name, label in labels.items()}
    if block is not None:
        coords["block"] = ("unit", np.array(block))
    attrs = {"schema": "gatescope.recording/1", "module": "rnn", "cell": "LSTMCell", "retention": retention}
    return xr.Dataset({k: (DIMS, v[None, None], a) for k, (v, a) in values.items()}, coords, attrs)


def parts(seed: int = 0) -> dict[str, tuple[Array, Array, Array]]:
    """Units by the part they play: retention, write and memory, (sequence, time). Resets every 12 steps."""
    rng = np.random.default_rng(seed)
    shape = (SEQUENCES, STEPS)
    time = np.broadcast_to(np.arange(STEPS), shape)
    since, segment = time % 12, time // 12
    resetting = np.where(since == 0, 0.01, 0.99)
    open_gate, half = np.full(shape, 0.995), rng.uniform(0.3, 0.7, shape)
    sign = letters(seed)[0]
    slopes = rng.uniform(0.2, 2.0, (SEQUENCES, STEPS // 12 + 1))
    slope = slopes[np.arange(SEQUENCES)[:, None], segment]
    event = letters(seed)[1] == "x"
    noise = 0.02 * rng.normal(size=shape)
    return {
        "latch": (resetting, half, np.where(since == 0, 0.0, sign * 2.0) + noise),
        "counter": (resetting, half, since * slope + noise),
        "clock": (resetting, half, since * 0.5 + noise),
        "event detector": (np.full(shape, 0.4), half, np.where(event, 3.0, 0.0) + 0.1 * rng.normal(size=shape)),
        "pass-through": (np.full(shape, 0.1) + noise, np.full(shape, 0.85), rng.normal(size=shape)),
        "long-memory": (open_gate, half, np.cumsum(rng.normal(size=shape), axis=1)),
        "short-memory": (np.full(shape, 0.6) + noise, half, rng.normal(size=shape)),
        "stuck": (np.full(shape, 0.97), np.full(shape, 0.02), 1e-2 * rng.normal(size=shape)),
        "dead": (half, half, np.zeros(shape)),
    }


def letters(seed: int) -> tuple[Array, Array]:
    """The sign that is held in each segment of 12 steps, and rare letters x among o."""
    rng = np.random.default_rng(seed + 100)
    sign = np.repeat(rng.choice([-1.0, 1.0], (SEQUENCES, STEPS // 12)), 12, axis=1)
    return sign, np.where(rng.random((SEQUENCES, STEPS)) < 0.1, "x", "o").astype(object)


def built(seed: int = 0) -> xr.Dataset:
    every = parts(seed)
    keep, write, memory = (np.stack([part[i] for part in every.values()], axis=2) for i in range(3))
    sign, letter = letters(seed)
    held = np.where(sign > 0, "T", "P").astype(object)
    held[:, ::12] = ""
    return network(keep, write, memory, held=held, letter=letter)


def test_few_units_at_a_time_give_the_same_roles_and_counts_in_single_precision_are_exact(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(20)
    shape = (SEQUENCES, STEPS, 5)
    letter = rng.choice(list("abc"), shape[:2]).astype(object)
    memory = rng.normal(size=shape) + 2.0 * (letter == "a")[..., None]
    recording = network(rng.uniform(0.1, 0.9, shape), rng.uniform(0.1, 0.9, shape), memory, letter=letter)
    whole = roles(recording, "letter", samples=30)
    monkeypatch.setattr("gatescope.probe.analyzers.evidence.AT_ONCE", 1)
    xr.testing.assert_allclose(roles(recording, "letter", samples=30), whole, rtol=1e-12)
    monkeypatch.setattr("gatescope.probe.analyzers.evidence.EXACT", 0)
    xr.testing.assert_allclose(roles(recording, "letter", samples=30), whole, rtol=1e-12)


def test_every_part_is_found_with_the_label_that_it_plays_to() -> None:
    names = list(parts())
    with_held = roles(built(), "held", samples=20)
    with_letter = roles(built(), "letter", samples=20)
    found = with_held["unit_role"].values.ravel().tolist()
    expected = [name if name != "event detector" else "short-memory" for name in names]
    assert found == expected
    assert with_letter["unit_role"].values.ravel()[names.index("event detector")] == "event detector"
    assert with_held["confidence"].min() >= 0.9


def test_a_latch_is_seen_without_a_label_by_its_pure_segments() -> None:
    result = roles(built(), samples=20)
    assert result["unit_role"].values.ravel()[0] == "latch"
    assert result["evidence"].sel(statistic="sign_auc").values.ravel()[0] > 0.99
    assert result["evidence"].sel(statistic="event_auc").isnull().all()


def test_classes_too_rare_to_tell_make_neither_latches_nor_event_detectors() -> None:
    recording = built()
    rare = np.full((SEQUENCES, STEPS), "o", dtype=object)
    rare[:, 5::40] = np.where(recording["held"].values[:, 5::40] == "T", "t", "p")  # 72 steps of 2880
    latched = roles(recording.assign_coords(rare=(("sequence", "time"), rare)), "rare", samples=5)
    assert latched["unit_role"].values.ravel()[0] != "latch"
    memory = recording["cell_state"].values[0, 0, :, :, list(parts()).index("short-memory")].ravel()
    highest = np.full(memory.size, "o", dtype=object)
    for count, found in ((19, False), (21, True)):
        highest[np.argsort(memory)[-count:]] = "x"
        label = xr.DataArray(highest.reshape(SEQUENCES, STEPS), dims=["sequence", "time"], name="highest")
        role = roles(recording, label, samples=1)["holds"].sel(role="event detector").squeeze()
        assert bool(role[list(parts()).index("short-memory")]) == found


def test_a_sign_that_is_gone_two_steps_later_is_no_latch() -> None:
    torch = pytest.importorskip("torch")
    import gatescope as gs

    model, sample = gs.load_example("cerg-forget")
    recording = gs.record(model, torch.from_numpy(sample.inputs), labels=dict(sample.labels))
    result = roles(recording, "symbol", samples=5).isel(layer=0, direction=0)
    shown = result["evidence"].sel(statistic=["sign_auc", "plateau", "event_left"]).values[:, 1]
    assert (shown > [0.95, 0.5, 0.0]).all()  # the sign of unit 1 tells two symbols apart
    assert shown[2] < 0.5  # but not for long
    assert "latch" not in result["unit_role"].values


def test_the_evidence_is_that_of_the_built_units() -> None:
    result = roles(built(), "held", samples=5)
    evidence = {name: result["evidence"].sel(statistic=name).values.ravel() for name in result["statistic"].values}
    place = list(parts()).index
    assert evidence["time_scale"][place("latch")] == pytest.approx(-1 / np.log(0.99), rel=0.1)
    assert evidence["retention"][place("event detector")] == pytest.approx(0.4, rel=0.05)
    assert evidence["write"][place("pass-through")] == pytest.approx(0.85)
    assert evidence["clock_r2"][place("clock")] > 0.99 > 0.9 > evidence["clock_r2"][place("counter")]
    assert evidence["line_r2"][place("counter")] > 0.99
    assert evidence["stuck_share"][place("stuck")] == 1.0
    assert evidence["reset_rate"][place("clock")] == pytest.approx(1000 * 9 / STEPS)  # the first step is no reset
    assert evidence["spread"][place("dead")] == 0.0


def test_all_predicates_that_hold_are_said_and_the_first_is_the_role() -> None:
    result = roles(built(), "held", samples=5)
    clock = result.isel(unit=list(parts()).index("clock")).squeeze()
    assert {"clock", "counter", "long-memory"} <= set(clock["role"].values[clock["holds"].values])
    assert clock["unit_role"].item() == "clock"


def test_a_unit_that_is_a_latch_in_half_of_the_sequences_is_not_sure() -> None:
    rng = np.random.default_rng(0)
    recording = built()
    memory = recording["cell_state"].values[0, 0, :, :, 0]
    divided = np.where(rng.random((SEQUENCES, 1)) < 0.08, -memory, memory)
    recording["cell_state"].values[0, 0, :, :, 0] = divided
    result = roles(recording, "held", samples=200)
    assert 0.1 < result["confidence"].values.ravel()[0] < 0.95
    assert result["confidence"].values.ravel()[1] == 1.0


def test_the_tasks_lags_decide_what_is_long() -> None:
    place = list(parts()).index("short-memory")
    assert roles(built(), lags=(1, 3), samples=5)["unit_role"].values.ravel()[place] == "short-memory"  # 1.96 steps
    assert roles(built(), lags=(1, 1), samples=5)["unit_role"].values.ravel()[place] == "long-memory"


def test_a_block_has_the_first_role_of_its_units() -> None:
    recording = built().assign_coords(block=("unit", np.array([0, 0, 0, 1, 1, 2, 2, 3, 3])))
    result = roles(recording, "held", samples=5)
    assert result["block_role"].values.ravel().tolist() == ["latch", "pass-through", "long-memory", "dead"]
    assert result["memory_block"].values.tolist() == [0, 1, 2, 3]


def test_units_of_one_time_scale_are_not_specialised_and_of_several_are() -> None:
    rng = np.random.default_rng(1)
    shape = (4, STEPS, 60)
    alike = rng.uniform(0.2, 0.9, shape)
    apart = np.broadcast_to(np.linspace(0.3, 0.98, 60), shape) + 0.01 * rng.normal(size=shape)
    for keep, low, high in ((alike, 0.4, 2.0), (apart, 50.0, np.inf)):
        result = roles(network(keep, alike, rng.normal(size=shape)), samples=200)
        assert low < result["specialisation"].item() < high
    assert result["specialisation_p"].item() == pytest.approx(1 / 21)


def test_the_backward_direction_plays_its_parts_in_its_own_order() -> None:
    forward = built()
    turned = forward.isel(time=slice(None, None, -1)).assign_coords(
        time=np.arange(STEPS), direction=np.array(["backward"], dtype=object)
    )
    ours, theirs = roles(turned, "letter", samples=10), roles(forward, "letter", samples=10)
    xr.testing.assert_equal(ours["unit_role"].drop_vars("direction"), theirs["unit_role"].drop_vars("direction"))
    np.testing.assert_allclose(ours["evidence"], theirs["evidence"], rtol=1e-9)


def test_units_without_data_have_no_role_and_spoil_no_other() -> None:
    recording = built()
    recording["cell_state"].values[0, 0, 3, 5, 2] = np.nan
    result, alone = roles(recording, "held", samples=10), roles(built(), "held", samples=10)
    assert result["unit_role"].values.ravel()[2] == "none"
    assert (result["unit_role"] == alone["unit_role"]).values.ravel()[[0, 1, 3, 4, 5, 6, 7, 8]].all()


def test_the_area_from_classes_of_values_counts_ties_half() -> None:
    counts = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 2.0]])  # two classes of four steps
    pairs = [(b > a) + 0.5 * (b == a) for a in (0, 0, 0, 1) for b in (1, 1, 2, 2)]
    np.testing.assert_allclose(areas(counts), [1 - np.mean(pairs), np.mean(pairs)])


def test_networks_with_the_same_units_in_another_order_are_matched_and_agree() -> None:
    first = roles(built(), "held", samples=5)
    order = [4, 2, 8, 0, 6, 1, 3, 7, 5]
    second = roles(built().isel(unit=order).assign_coords(unit=np.arange(9)), "held", samples=5)
    found = role_agreement(first, second)
    assert [order[unit] for unit in found["matched_unit"].values.ravel()] == list(range(9))
    assert found["agreement"].item() == 1.0
    assert found["kappa"].item() == 1.0
    assert found["distance"].max() < 1e-9


def test_networks_of_different_width_leave_units_over() -> None:
    first = roles(built(), "held", samples=5)
    found = role_agreement(first, first.isel(unit=[1, 5]))
    assert (found["matched_unit"].values >= 0).sum() == 2
    assert found["matched_unit"].values.ravel()[[1, 5]].tolist() == [1, 5]
    assert role_agreement(first, roles(built(seed=3), "held", samples=5))["kappa"].item() > 0.6


def test_cells_without_retention_have_no_memory_roles() -> None:
    result = roles(built().assign_attrs(retention="none", cell="RNNCell"), samples=5)
    assert set(result["unit_role"].values.ravel()) <= {"clock", "counter", "dead", "none", "stuck"}
    assert result.attrs["reset_reason"]
    assert result["specialisation"].isnull().all()


@pytest.mark.parametrize(
    ("labels", "parameters", "said"),
    [
        ("word", {}, "labels must name a label"),
        ("value", {}, "must have classes; 'value' is numeric"),
        (None, {"lags": (5, 2)}, "lags must be a short and a long lag"),
        (None, {"samples": 0}, "samples must be at least 1"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    make_recording: Make, labels: str | None, parameters: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        roles(make_recording(), labels, **parameters)


def test_what_is_no_recording_is_refused(make_recording: Make) -> None:
    with pytest.raises(TypeError, match="roles needs one recording"):
        roles(3)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="roles needs a recording"):
        roles(xr.Dataset())
    with pytest.raises(ValueError, match="roles needs a memory"):
        roles(make_recording().drop_vars("cell_state"))
    with pytest.raises(ValueError, match="the second is none"):
        role_agreement(roles(make_recording(), samples=2), make_recording())


@pytest.mark.parametrize(("apart", "share"), [(3.0, 1.0), (1.5, 0.0)])
def test_latches_are_found_by_how_far_apart_they_hold_two_letters(apart: float, share: float) -> None:
    """AUC is the normal distribution at d' / sqrt 2: 0.983 at three standard deviations, 0.856 at one and a half."""
    rng = np.random.default_rng(5)
    sign = letters(0)[0][..., None] * np.ones(40)
    keep = np.broadcast_to(np.where(np.arange(STEPS) % 12 == 0, 0.01, 0.99)[None, :, None], sign.shape)
    memory = sign * apart / 2 + rng.normal(size=sign.shape)
    held = np.where(letters(0)[0] > 0, "T", "P").astype(object)
    found = roles(network(keep, np.full(sign.shape, 0.5), memory, held=held), "held", samples=1)
    assert (found["unit_role"] == "latch").mean() == share
