"""What the functions that act on a model say to a request that cannot be meant, instead of something else's answer."""

from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

import gatescope as gs

X = torch.linspace(-1, 1, 30).reshape(5, 2, 3)


def of_sequences(output: Any) -> torch.Tensor:
    return output[0].square().mean((0, 2))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"unit": np.array([True, False, False, True])}, "mask"),
        ({"unit": [True, False]}, "mask"),
        ({"unit": 1.5}, "1.5 came"),
        ({"unit": object()}, "object"),
        ({"to": 0}, "0 came"),
        ({"to": ""}, "'' came"),
        ({"time": 1.5}, "1.5 came"),
        ({"time": True}, "True came"),
        ({"time": slice(0.5, 2)}, "0.5"),
        ({"rows": "1"}, "'1' came"),
        ({"rows": 7.5}, "7.5 came"),
        ({"samples": 10**9}, "from 100 to 1,000,000"),
        ({"seed": -1}, "-1 came"),
        ({"seed": None}, "None came"),
        ({"confidence": "0.9"}, "'0.9' came"),
        ({"batch_dim": "1"}, "'1' came"),
        ({"inputs_kwargs": 3}, "int came"),
    ],
)
def test_ablation_says_which_parameter_cannot_be_meant(given: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=f"must be .*{message}"):
        gs.ablation(nn.GRU(3, 4), X, of_sequences, **given)


def test_ablation_takes_units_as_arrays_and_tensors() -> None:
    for unit in (np.array([1, 3]), torch.tensor([1, 3, 3]), np.int8(3), torch.tensor(3)):
        assert gs.ablation(nn.GRU(3, 4), X, of_sequences, unit=unit)["unit"].values.tolist()[-1] == 3


def test_a_metric_of_steps_is_not_taken_for_one_of_sequences() -> None:
    with pytest.raises(ValueError, match="5 came, as many as there are steps, and the module read 2 sequences"):
        gs.ablation(nn.GRU(3, 4), X, lambda output: output[0].mean((1, 2)))
    assert gs.ablation(nn.GRU(3, 4), X[:2], lambda output: output[0].mean((1, 2))).sizes["sequence"] == 2


def test_inputs_without_a_sequence_have_no_ablation() -> None:
    with pytest.raises(ValueError, match="at least one sequence"):
        gs.ablation(nn.GRU(3, 8), X[:, :0], lambda output: output[0].sum())


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_no_steps_at_all_are_refused_openly_too(kind: type[nn.RNNBase]) -> None:
    model = kind(3, 4)
    with pytest.raises(ValueError, match="at least one step long"), gs.opened(model):
        model(X[:0])


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"direction": 0}, "direction must be .* 0 came"),
        ({"time": slice(3, 3)}, "time must hold something"),
        ({"unit": np.array([True, False])}, "numpy.flatnonzero"),
    ],
)
def test_intervene_says_which_place_cannot_be_meant(where: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        gs.intervene(nn.GRU(3, 4), "hidden_state", 0.0, **where)


def test_a_singular_system_does_not_end_the_search() -> None:
    torch.manual_seed(0)
    model = nn.GRU(2, 3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1e6)
    found = gs.fixed_points(model, input=0.0, starts=np.random.default_rng(0).uniform(-1, 1, (300, 3)))
    assert found.attrs["starts"] == 300


def test_weights_that_are_not_finite_are_told_from_a_network_without_fixed_points() -> None:
    model = nn.GRU(2, 3)
    with torch.no_grad():
        model.weight_hh_l0.fill_(torch.nan)
    with pytest.raises(ValueError, match="must step to finite states"):
        gs.fixed_points(model, input=0.0, starts=np.zeros((2, 3)))


@pytest.mark.parametrize(
    "starts", [xr.Dataset(), [[0.0, 0.0], [0.0]], torch.zeros(2, 3, device="meta")], ids=["empty", "ragged", "meta"]
)
def test_starts_that_hold_no_states_are_refused(starts: Any) -> None:
    with pytest.raises(ValueError, match="starts must be"):
        gs.fixed_points(nn.GRU(2, 3), input=0.0, starts=starts)


def test_more_starts_than_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="count must be at most 1,000,000"):
        gs.fixed_points(nn.GRU(2, 3), input=0.0, starts=np.zeros((2, 3)), count=10**9)


def effects(**changes: Any) -> xr.Dataset:
    """Effects of two units on two errors over eight sequences."""
    dims = ("metric", "layer", "direction", "unit", "sequence")
    data = {
        "effect": (dims[:-1], np.ones((2, 1, 1, 2))),
        "effect_by_sequence": (dims, np.ones((2, 1, 1, 2, 8))),
    }
    coords = {"layer": [0], "direction": ["forward"], "unit": [0, 1], "metric": ["long", "short"]}
    found = xr.Dataset(data, coords | {"per_sequence": ("metric", [True, True])})
    return found.assign_attrs({"measure": "ablation", "over": "unit"}).assign(changes)


ROLES = xr.Dataset(
    {"unit_role": (("layer", "direction", "unit"), [[["latch", "none"]]])},
    {"layer": [0], "direction": ["forward"], "unit": [0, 1]},
    {"measure": "roles"},
)


@pytest.mark.parametrize(
    ("lesions", "given", "message"),
    [
        (effects(), {"alpha": "0.1"}, "alpha must be between 0 and 1; '0.1' came"),
        (effects(), {"seed": -1}, "seed must be a whole number"),
        (effects(), {"short": "long"}, "two metrics; 'long' came for both"),
        (effects().isel(unit=0), {}, "must have its dims layer, direction, unit"),
        (effects(effect_by_sequence=effects()["effect_by_sequence"] * np.nan), {}, "finite effects"),
    ],
    ids=["alpha", "seed", "metrics", "dims", "nan"],
)
def test_a_role_is_not_checked_against_what_cannot_be_tested(
    lesions: xr.Dataset, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        gs.role_check(ROLES, lesions, **given)


@pytest.mark.parametrize("draw", [gs.plot_ablation, gs.plot_attribution, gs.plot_fixed_points])
def test_pictures_of_acting_say_what_they_need(draw: Any) -> None:
    with pytest.raises(TypeError, match=r"needs what .* returned; NoneType came"):
        draw(None)


@pytest.mark.parametrize("unit", [0, []], ids=["one without its dim", "none"])
def test_a_picture_of_no_units_is_refused(unit: Any) -> None:
    with pytest.raises(ValueError, match="plot_ablation needs effects over"):
        gs.plot_ablation(effects().isel(unit=unit))


@pytest.mark.parametrize(
    ("inputs", "given", "message"),
    [
        (X[:, :0], {}, "at least one sequence"),
        (X * torch.nan, {}, "must be finite"),
        (X, {"tolerance": torch.nan}, "tolerance must be a number"),
        (X, {"tolerance": "1"}, "tolerance must be a number"),
    ],
    ids=["no sequence", "nan", "nan tolerance", "text"],
)
def test_a_decomposition_says_what_it_cannot_split(inputs: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gs.contextual_decomposition(nn.LSTM(3, 4), inputs, **given)


def test_steps_are_taken_together_or_not() -> None:
    with pytest.raises(ValueError, match="together must be True, False or None; 'yes' came"):
        gs.attribution(
            nn.LSTM(3, 4),
            X,
            target=lambda output: output[0][-1, :, 0],
            to="cell_state",
            together="yes",  # type: ignore[arg-type]
        )


def test_fixed_points_of_a_module_that_runs_openly_are_asked_for_outside() -> None:
    model = nn.GRU(2, 3)
    with pytest.raises(TypeError, match="its forward has been replaced"), gs.opened(model):
        gs.fixed_points(model, input=0.0, starts=np.zeros((2, 3)))


@pytest.mark.parametrize(
    "value", [np.array([None] * 4), torch.zeros(4, dtype=torch.complex64), [0.0, None, 0.0, 0.0], [[1.0], [1.0, 2.0]]]
)
def test_what_is_no_number_is_not_taken_for_keep(value: Any) -> None:
    with pytest.raises(TypeError, match="value must be an array of numbers"):
        gs.intervene(nn.GRU(3, 4), "hidden_state", value)


def test_the_remark_tells_of_the_dimension_that_the_model_could_read() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(3, 8)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            shown: torch.Tensor = self.rnn(inputs)[0]
            return shown - shown.mean(1, keepdim=True)

    inputs = torch.linspace(-1, 1, 45).reshape(5, 3, 3)  # as many sequences as features, which cannot be repeated
    result = gs.ablation(Centred(), inputs, lambda output: output.square().sum((0, 2)))
    assert result.attrs["remark"].endswith("depends on the others in the batch")
