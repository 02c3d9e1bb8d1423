"""Roles put to the test: effects built to confirm, to contradict and to say nothing, and a trained network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr

import gatescope as gs
from gatescope.probe.analyzers import role_check

N = 12
DIMS = ("layer", "direction", "unit")
CASES: dict[str, tuple[str, float, float, str, str]] = {
    # role, growth at long and at short lags, damage, verdict
    "a latch that breaks long lags": ("latch", 0.7, 0.01, "long only", "confirmed"),
    "a long memory that breaks both, long lags more": ("long-memory", 0.7, 0.3, "long more", "confirmed"),
    "a latch that breaks both alike": ("latch", 0.4, 0.4, "both alike", "contradicted"),
    "a latch that nobody needs": ("latch", 0.0, 0.0, "neither", "not needed"),
    "a latch that breaks short lags": ("latch", 0.0, 0.5, "short only", "contradicted"),
    "a short memory that breaks short lags": ("short-memory", 0.02, 0.5, "short only", "confirmed"),
    "an event detector without which the place is lost": ("event detector", 0.7, 0.5, "long more", "confirmed"),
    "a short memory that breaks long lags": ("short-memory", 0.6, 0.0, "long only", "contradicted"),
    "a pass-through that nobody needs": ("pass-through", 0.0, 0.0, "neither", "not needed"),
    "a dead unit": ("dead", 0.0, 0.0, "neither", "confirmed"),
    "a stuck unit that something hangs on": ("stuck", 0.3, 0.3, "both alike", "contradicted"),
    "a counter": ("counter", 0.7, 0.0, "long only", "no claim"),
    "a unit without a role whose loss helps": ("none", -0.5, -0.2, "neither", "no claim"),
}


def roles_of(names: list[str]) -> xr.Dataset:
    coords = {"layer": [0], "direction": np.array(["forward"], dtype=object), "unit": np.arange(len(names))}
    return xr.Dataset({"unit_role": (DIMS, np.array([[names]], dtype=object))}, coords, {"measure": "roles"})


def effects_of(grown: list[tuple[float, float]], noise: float = 0.02, seed: int = 0) -> xr.Dataset:
    """An ablation of which each unit's effects scatter a little around what is given."""
    mean = np.array(grown).T.reshape(2, 1, 1, len(grown), 1)
    values = mean + noise * np.random.default_rng(seed).normal(size=(2, 1, 1, len(grown), N)) * (mean != 0)
    coords: dict[str, Any] = {
        **roles_of(["none"] * len(grown)).coords,
        "metric": np.array(["long", "short"], dtype=object),
        "per_sequence": ("metric", [True, True]),
        "sequence": np.arange(N),
    }
    attrs = {
        "measure": "ablation",
        "over": "unit",
        "to": "zero",
        "module": "rnn",
        "cell": "LSTMCell",
        "confidence": 0.95,
    }
    return xr.Dataset({"effect_by_sequence": (("metric", *DIMS, "sequence"), values)}, coords, attrs)


def test_every_role_is_held_against_what_its_loss_hurts() -> None:
    names, longs, shorts, damages, verdicts = zip(*CASES.values(), strict=True)
    result = role_check(roles_of(list(names)), effects_of(list(zip(longs, shorts, strict=True))))
    assert dict(zip(CASES, result["damage"].values.ravel(), strict=True)) == dict(zip(CASES, damages, strict=True))
    assert dict(zip(CASES, result["verdict"].values.ravel(), strict=True)) == dict(zip(CASES, verdicts, strict=True))
    assert (result["confirmed"] == (result["verdict"] == "confirmed")).all()
    np.testing.assert_allclose(result["specialisation"].sel(lag="long").values.ravel(), longs, atol=0.03)
    np.testing.assert_allclose(result["contrast"].values.ravel(), np.subtract(longs, shorts), atol=0.05)
    assert bool((result["specialisation_low"] <= result["specialisation"]).all())
    assert bool((result["specialisation"] <= result["specialisation_high"]).all())


def test_among_many_units_without_effect_hardly_any_role_is_confirmed() -> None:
    rng = np.random.default_rng(3)
    confirmed = 0
    for seed in range(5):
        effects = effects_of([(1.0, 1.0)] * 100, seed=seed)
        effects["effect_by_sequence"][:] = rng.normal(size=effects["effect_by_sequence"].shape)
        confirmed += int(role_check(roles_of(["latch", "short-memory"] * 50), effects)["confirmed"].sum())
    assert confirmed <= 3


def test_the_order_of_sequences_and_units_changes_nothing_and_inputs_stay_as_they_were() -> None:
    names = [case[0] for case in CASES.values()]
    roles, effects = roles_of(names), effects_of([(long, short) for _, long, short, *_ in CASES.values()])
    before = roles.copy(deep=True), effects.copy(deep=True)
    result = role_check(roles, effects)
    xr.testing.assert_identical(roles, before[0])
    xr.testing.assert_identical(effects, before[1])
    order = np.random.default_rng(0).permutation(len(names))
    turned = role_check(roles, effects.isel(unit=order, sequence=np.arange(N)[::-1])).sortby("unit")
    assert turned["damage"].equals(result["damage"])
    np.testing.assert_allclose(turned["p"], result["p"], atol=1e-12)


def test_the_result_survives_a_file_and_names_its_parameters(tmp_path: Path) -> None:
    effects = effects_of([(0.5, 0.0), (0.0, 0.3)]).assign_coords(metric=np.array(["far", "near"], dtype=object))
    result = role_check(roles_of(["latch", "stuck"]), effects, long="far", short="near", alpha=0.01, little=0.2, seed=4)
    about = {key: result.attrs[key] for key in ("long", "short", "alpha", "little", "seed", "sequences", "module")}
    assert list(about.values()) == ["far", "near", 0.01, 0.2, 4, N, "rnn"]
    result.to_netcdf(tmp_path / "check.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "check.nc", engine="h5netcdf") as stored:
        xr.testing.assert_equal(stored, result)
    assert {type(value) for value in result.attrs.values()} <= {int, float, str}


def test_articles_fit_the_roles() -> None:
    result = role_check(roles_of(["event detector", "dead", "none"]), effects_of([(0.0, 0.0)] * 3))
    assert [said[: said.index(",")] for said in result["finding"].values.ravel()] == [
        "not needed: it is an event detector",
        "confirmed: it is dead",
        "no claim: it has no role",
    ]


@pytest.mark.parametrize(
    ("change", "parameters", "said"),
    [
        (lambda r, a: (a, a), {}, "role_check needs what roles returned"),
        (lambda r, a: (r, r), {}, "role_check needs what ablation returned"),
        (lambda r, a: (r, a), {"long": "far"}, "'far' came. It has: long, short"),
        (lambda r, a: (r, a), {"alpha": 0.0}, "alpha must be between 0 and 1"),
        (lambda r, a: (r, a.isel(sequence=[0])), {}, "must be over several sequences; one came"),
        (lambda r, a: (r.isel(unit=[0]), a), {}, "each unit of the ablation must be among the roles; 1 is not"),
        (
            lambda r, a: (r, a.assign_attrs(over="gate")),
            {},
            "must be over units or blocks, at all times; over='gate' came",
        ),
        (
            lambda r, a: (r, a.assign_attrs(over="block").rename(unit="memory_block")),
            {},
            "roles must be of a cell with blocks",
        ),
        (lambda r, a: (r, a.expand_dims(time=2)), {}, "in stretches of time came"),
        (
            lambda r, a: (r, a.assign_coords(per_sequence=("metric", [False, True]))),
            {},
            "'long' must give one number a seq",
        ),
    ],
)
def test_what_cannot_be_checked_is_refused(change: Any, parameters: dict[str, Any], said: str) -> None:
    roles, effects = change(roles_of(["latch", "dead"]), effects_of([(0.5, 0.0), (0.0, 0.0)]))
    with pytest.raises(ValueError, match=said):
        role_check(roles, effects, **parameters)


HOLDING = {"cerg-latch": 2, "cerg-partial": 3}  # the block that holds T or P


@pytest.mark.parametrize("name", HOLDING)
def test_without_the_block_that_holds_t_or_p_the_long_prediction_breaks_and_little_else(name: str) -> None:
    network, _ = gs.load_example(name)
    sample = gs.tasks.CERG(streams=16).sample(200)
    inputs = torch.from_numpy(sample.inputs)
    roles = gs.roles(gs.record(network, inputs, labels=dict(sample.labels)), "remember", samples=2)
    effects = gs.ablation(network, inputs, gs.tasks.lag_errors(sample), over="block")
    assert (effects["intact"] < 0.001).all()
    result = role_check(roles, effects).isel(layer=0, direction=0)
    here = result.sel(memory_block=HOLDING[name])
    assert here["specialisation"].sel(lag="long").item() > 0.65
    assert here["specialisation"].sel(lag="short").item() < 0.02
    assert (here["role"].item(), here["damage"].item(), here["verdict"].item()) == ("latch", "long only", "confirmed")
    others = result.drop_sel(memory_block=HOLDING[name])
    assert not (others["damage"] == "long only").any()


def test_of_two_units_that_hold_the_same_neither_is_needed_alone() -> None:
    network, _ = gs.load_example("cerg-partial")
    sample = gs.tasks.CERG(streams=8).sample(200)
    inputs, metric = torch.from_numpy(sample.inputs), gs.tasks.lag_errors(sample)
    alone = gs.ablation(network, inputs, metric, unit=[6, 7])["effect"].sel(metric="long")
    both = gs.ablation(network, inputs, metric, over="block", block=3)["effect"].sel(metric="long")
    assert np.abs(alone).max() < 0.01
    assert both.item() > 0.95
