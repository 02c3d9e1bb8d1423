"""Fixed points whose place and stability are known, on every kind of module, and a model that stays as it was."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import xarray as xr
from scipy.optimize import brentq
from torch import Tensor, nn

import gatescope as gs
from gatescope import cells
from gatescope.probe.state_map import StateMap, chosen_layers, constant_input


def with_weights(module: nn.Module, **values: Any) -> nn.Module:
    """The module in float64 with these weights, by name; all others are 0."""
    module.double()
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.copy_(torch.as_tensor(values.get(name, 0.0), dtype=torch.float64).expand_as(weight))
    return module


def dynamics(module: nn.Module, input: Any = 0.3, **place: Any) -> StateMap:
    chosen = chosen_layers(module, None, place.get("layer"), place.get("direction"))
    return StateMap(chosen.cells, chosen.layers, constant_input(input, chosen.cells[0].input_size, "it"))


def own_step(module: nn.RNNBase, input: float, joined: Tensor) -> Tensor:
    """One step of a torch module itself on a joined state (state,), layer by layer."""
    layers, size = module.num_layers, module.hidden_size
    states = joined.reshape(layers, -1, size).transpose(0, 1)  # (state, layer, unit)
    given = tuple(state[:, None].contiguous() for state in states)
    x = torch.full((1, 1, module.input_size), input, dtype=torch.float64)
    _, after = module(x, given if len(given) > 1 else given[0])
    after = after if isinstance(after, tuple) else (after,)
    return torch.stack([state[:, 0] for state in after], dim=1).flatten()


MODULES: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: nn.LSTM(2, 4),
    "LSTM, 3 layers": lambda: nn.LSTM(2, 3, num_layers=3),
    "GRU": lambda: nn.GRU(2, 4),
    "GRU, 2 layers": lambda: nn.GRU(2, 4, num_layers=2, batch_first=True),
    "RNN": lambda: nn.RNN(2, 4),
    "RNN, relu, 2 layers": lambda: nn.RNN(2, 4, num_layers=2, nonlinearity="relu"),
}
OTHERS: dict[str, Callable[[], nn.Module]] = {
    "LSTM, projected, 2 layers": lambda: nn.LSTM(2, 4, proj_size=2, num_layers=2),
    "LSTMCell": lambda: nn.LSTMCell(2, 4),
    "GRUCell": lambda: nn.GRUCell(2, 4),
    "reset before": lambda: cells.Recurrent([[cells.ResetBeforeGRUCell(2, 4)], [cells.ResetBeforeGRUCell(4, 4)]]),
    "peephole": lambda: cells.Recurrent([[cells.PeepholeLSTMCell(2, 4)]]),
    "gates see gates": lambda: cells.PeepholeLSTMCell(2, 3, variant="FGR"),
    "blocks": lambda: gs.BlockNetwork(2, 3, blocks=2, size=2),
    "blocks, gates see gates": lambda: gs.BlockNetwork(2, 3, blocks=2, size=2, gates_see_gates=True),
}


def made(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return (MODULES | OTHERS)[name]().double()


@pytest.mark.parametrize("name", MODULES)
def test_a_step_and_its_jacobian_are_those_of_the_module_itself(name: str) -> None:
    module = made(name)
    map_of = dynamics(module)
    states = torch.randn(3, map_of.size, dtype=torch.float64)
    assert isinstance(module, nn.RNNBase)
    for state, ours, slope in zip(states, map_of.step(states), map_of.jacobian(states), strict=True):
        torch.testing.assert_close(ours, own_step(module, 0.3, state), rtol=0, atol=1e-14)
        true = torch.autograd.functional.jacobian(lambda s: own_step(module, 0.3, s), state)
        torch.testing.assert_close(slope, true, rtol=0, atol=1e-14)
        torch.testing.assert_close(slope, torch.func.jacrev(map_of.step)(state), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", [*MODULES, *OTHERS])
def test_every_kind_of_module_stands_still_at_its_fixed_points(name: str) -> None:
    module = made(name)
    map_of = dynamics(module)
    starts = 0.5 * torch.randn(20, map_of.size, dtype=torch.float64)
    found = gs.fixed_points(module, input=0.3, starts=starts, jacobian=True)
    assert found.sizes["point"] >= 1
    assert (found["kind"] == "fixed").all()
    points = torch.from_numpy(found["position"].values)
    torch.testing.assert_close(map_of.step(points), points, rtol=0, atol=1e-12)
    values = np.linalg.eigvals(found["jacobian"].values)
    np.testing.assert_allclose(np.sort(np.abs(values)), np.sort(np.hypot(*eigenvalues(found))), atol=1e-12)
    assert int(found["found"].sum()) == 20 - found.attrs["fast_starts"] - found.attrs["outlier_starts"]


def eigenvalues(found: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    return found["eigenvalue_real"].values, found["eigenvalue_imag"].values


def test_a_linear_network_has_the_fixed_point_that_one_works_out_by_hand() -> None:
    # h1 = h1 / 2 + h2 / 4 + 1, h2 = h2 / 2 + 1: h2 = 2 and h1 = 3, both eigenvalues 1/2
    rnn = with_weights(nn.RNN(1, 2, nonlinearity="relu"), weight_hh_l0=[[0.5, 0.25], [0.0, 0.5]], bias_hh_l0=[1.0, 1.0])
    found = gs.fixed_points(rnn, input=7.0, starts=np.ones((3, 2)))
    np.testing.assert_allclose(found["position"].values, [[3.0, 2.0]], atol=1e-12)
    np.testing.assert_allclose(found["time_constant"].values, 1 / math.log(2), rtol=1e-6)
    assert found["found"].values.tolist() == [3]
    assert found["stability"].values.tolist() == ["stable"]


def test_a_constant_input_moves_the_fixed_point() -> None:
    rnn = with_weights(nn.RNN(2, 1, nonlinearity="relu"), weight_hh_l0=0.75, weight_ih_l0=[[1.0, 2.0]])
    found = gs.fixed_points(rnn, input=[1.0, 0.5], starts=[[0.1]])
    np.testing.assert_allclose(found["position"].values, [[8.0]], atol=1e-12)  # h = 3/4 h + 2
    assert found["input"].values.tolist() == [1.0, 0.5]


def test_two_units_that_inhibit_each_other_have_three_points_two_of_them_stable() -> None:
    rnn = with_weights(nn.RNN(1, 2), weight_hh_l0=[[0.0, -2.0], [-2.0, 0.0]])
    a = brentq(lambda x: math.tanh(2 * x) - x, 0.5, 1.0, xtol=1e-15)
    starts = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    found = gs.fixed_points(rnn, input=0.0, starts=starts)
    assert found["stability"].values.tolist() == ["stable", "stable", "repelling"]
    places = sorted(map(tuple, found["position"].values.round(9).tolist()))
    assert places == sorted([(round(-a, 9), round(a, 9)), (0.0, 0.0), (round(a, 9), round(-a, 9))])
    slopes = np.sort(found["eigenvalue_real"].values, axis=1)
    np.testing.assert_allclose(slopes[2], [-2, 2], atol=1e-9)
    np.testing.assert_allclose(slopes[:2], [[-2 * (1 - a * a), 2 * (1 - a * a)]] * 2, atol=1e-9)
    np.testing.assert_allclose(found["time_constant"].values[2], -1 / math.log(2), rtol=1e-9)


def test_an_lstm_that_latches_has_two_stable_points_and_the_saddle_between_them() -> None:
    # all gates 1/2 and candidate tanh(8 h): c = tanh(4 tanh(c)); around 0 the step is [[2, 1/4], [4, 1/2]]
    lstm = with_weights(nn.LSTM(1, 1), weight_hh_l0=[[0.0], [0.0], [8.0], [0.0]])
    c = brentq(lambda c: math.tanh(4 * math.tanh(c)) - c, 0.5, 2.0, xtol=1e-15)
    starts = np.random.default_rng(0).uniform(-0.7, 0.7, (40, 2))
    found = gs.fixed_points(lstm, input=0.0, starts=starts)
    assert found["signal"].values.tolist() == ["hidden_state", "cell_state"]
    assert found["stability"].values.tolist() == ["stable", "stable", "saddle"]
    held = sorted(found["position"].values[:2].tolist())
    h = math.tanh(c) / 2
    np.testing.assert_allclose(held, [[-h, -c], [h, c]], atol=1e-11)
    np.testing.assert_allclose(found["position"].values[2], 0, atol=1e-11)
    np.testing.assert_allclose(found["eigenvalue_real"].values[2], [2.5, 0.0], atol=1e-9)


def test_the_ghost_of_a_lost_fixed_point_is_a_slow_point() -> None:
    # h <- tanh(2 h + b) loses its upper fixed point, at 1/sqrt(2), when b falls below this
    edge = math.atanh(math.sqrt(0.5)) - 2 * math.sqrt(0.5)
    rnn = with_weights(nn.RNN(1, 1), weight_hh_l0=2.0, bias_hh_l0=edge - 1e-4)
    found = gs.fixed_points(rnn, input=0.0, starts=np.linspace(-1, 1, 21)[:, None])
    assert found["kind"].values.tolist() == ["fixed", "slow"]
    assert found["position"].values[1, 0] == pytest.approx(math.sqrt(0.5), abs=1e-3)
    assert found["q"].values[1] == pytest.approx((0.5e-4) ** 2 / 2, rel=0.01)  # moves by 1e-4 (1 - h^2) per step
    fast = gs.fixed_points(rnn, input=0.0, starts=np.linspace(-1, 1, 21)[:, None], slow=1e-12)
    assert fast["kind"].values.tolist() == ["fixed"]
    assert fast.attrs["fast_starts"] > 0


def test_a_line_of_fixed_points_is_marginal_and_never_returns() -> None:
    rnn = with_weights(nn.RNN(1, 1, nonlinearity="relu"), weight_hh_l0=1.0)
    found = gs.fixed_points(rnn, input=0.0, starts=[[1.0], [2.0], [3.0]])
    assert sorted(found["position"].values.ravel().tolist()) == [1.0, 2.0, 3.0]
    assert set(found["stability"].values) == {"marginal"}
    assert np.isinf(found["time_constant"].values).all()


def test_a_rotation_has_complex_eigenvalues_and_one_time_constant() -> None:
    turn = 0.9 * np.array([[math.cos(0.3), -math.sin(0.3)], [math.sin(0.3), math.cos(0.3)]])
    rnn = with_weights(nn.RNN(1, 2), weight_hh_l0=turn)
    found = gs.fixed_points(rnn, input=0.0, starts=[[0.1, -0.2]])
    real, imaginary = eigenvalues(found)
    np.testing.assert_allclose(np.arctan2(imaginary, real), [[0.3, -0.3]], atol=1e-9)
    np.testing.assert_allclose(found["time_constant"].values, -1 / math.log(0.9), rtol=1e-9)


def test_points_far_from_all_starts_are_left_out_and_counted() -> None:
    rnn = with_weights(nn.RNN(1, 1), weight_hh_l0=2.0)
    starts = [[0.7], [0.71], [0.72]]  # which lead to 0.96, 29 spreads away
    near = gs.fixed_points(rnn, input=0.0, starts=starts, reach=100.0)
    assert near["stability"].values.tolist() == ["stable"]
    assert near["distance"].values[0] == pytest.approx(0.9575 - 0.72, abs=1e-4)
    far = gs.fixed_points(rnn, input=0.0, starts=starts)
    assert (far.sizes["point"], far.attrs["outlier_starts"]) == (0, 3)
    assert far["eigenvalue_real"].shape == (0, 1)


@cache
def recorded() -> tuple[gs.tasks.SequenceModel, xr.Dataset]:
    model, sample = gs.load_example("flip-flop", size=1000)
    with torch.no_grad():
        return model, gs.record(model, torch.from_numpy(sample.inputs))


def flip_flop(**options: Any) -> tuple[gs.tasks.SequenceModel, xr.Dataset, xr.Dataset]:
    model, recording = recorded()
    return model, recording, gs.fixed_points(model, input=0.0, starts=recording, **options)


def words(model: gs.tasks.SequenceModel, found: xr.Dataset) -> list[str]:
    """What the readout says at the stable points, as signs."""
    stable = found.isel(point=found["unstable"].values == 0)
    hidden = stable["position"].values[:, (stable["signal"] == "hidden_state").values]
    with torch.no_grad():
        said = model.readout(torch.from_numpy(hidden).float())
    return sorted("".join("+" if value > 0 else "-" for value in row) for row in said.tolist())


CORNERS = ["+++", "++-", "+-+", "+--", "-++", "-+-", "--+", "---"]


def test_the_flip_flop_has_exactly_its_eight_stable_points_and_the_saddles_of_a_cube() -> None:
    model, _, found = flip_flop(count=2048)  # enough that each saddle is found from many of them
    assert words(model, found) == CORNERS
    assert found["found"].min() > 3
    assert np.bincount(found["unstable"].values).tolist() == [8, 12, 6, 1]  # corners, edges, faces, the middle
    assert (found["kind"] == "fixed").all()
    assert (found["q"] < 1e-26).all()
    assert found.attrs["fast_starts"] == found.attrs["unsettled_starts"] == found.attrs["outlier_starts"] == 0


def test_states_near_a_stable_point_return_as_fast_as_it_says_and_leave_a_saddle_so() -> None:
    model, _, found = flip_flop(jacobian=True)
    map_of = dynamics(model, 0.0)
    for place in (0, 8):  # a stable point and a saddle with one unstable mode
        values, vectors = np.linalg.eig(found["jacobian"].values[place])
        first = np.abs(values).argmax()
        direction = np.real(vectors[:, first]) / np.linalg.norm(np.real(vectors[:, first]))
        point = torch.from_numpy(found["position"].values[place])
        state, sizes = point + 1e-7 * torch.from_numpy(direction), []
        for _ in range(12):
            state = map_of.step(state)
            sizes.append(float((state - point).norm()))
        assert math.log(sizes[11] / sizes[3]) / 8 == pytest.approx(
            -1 / found["time_constant"].values[place, 0], rel=0.2
        )
        assert (sizes[-1] > 1e-7) == (place == 8)


def test_saddles_are_found_from_states_between_the_recorded_ones() -> None:
    _, _, found = flip_flop(between=0.0)
    assert (found["unstable"] == 0).sum() == 8
    assert found.sizes["point"] < 27


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_other_flip_flops_have_at_least_their_eight_stable_points(seed: int) -> None:
    from gatescope.tasks.flipflop_example import train_flipflop

    model, history = train_flipflop(seed, test_steps=20_000)
    assert history.solved
    sample = gs.tasks.FlipFlop(seed=seed).sample(1000)
    with torch.no_grad():
        recording = gs.record(model, torch.from_numpy(sample.inputs))
    found = gs.fixed_points(model, input=0.0, starts=recording)
    assert set(words(model, found)) == set(CORNERS)


def test_the_same_seed_finds_the_same_points_and_the_order_of_starts_changes_nothing() -> None:
    _, _, one = flip_flop(count=100)
    _, _, again = flip_flop(count=100)
    xr.testing.assert_identical(one, again)
    rnn = with_weights(nn.RNN(1, 2), weight_hh_l0=[[0.0, -2.0], [-2.0, 0.0]])
    starts = np.random.default_rng(0).uniform(-1, 1, (30, 2))
    there, back = (gs.fixed_points(rnn, input=0.0, starts=order) for order in (starts, starts[::-1]))
    np.testing.assert_allclose(
        np.unique(there["position"].values.round(8), axis=0), np.unique(back["position"].values.round(8), axis=0)
    )


def test_one_direction_is_a_network_of_its_own() -> None:
    torch.manual_seed(3)
    both = nn.GRU(2, 4, bidirectional=True).double()
    alone = nn.GRU(2, 4).double()
    alone.load_state_dict({f"{name}_l0": getattr(both, f"{name}_l0_reverse") for name in WEIGHTS})
    starts = torch.randn(8, 4)
    backward = gs.fixed_points(both, input=0.5, starts=starts, direction="backward")
    np.testing.assert_allclose(
        backward["position"].values, gs.fixed_points(alone, input=0.5, starts=starts)["position"].values, atol=1e-12
    )
    assert backward.attrs["direction"] == "backward"


WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


def test_the_lowest_layer_of_a_stack_has_its_own_points_and_the_next_one_those_under_what_it_shows() -> None:
    gru = made("GRU, 2 layers")
    whole = gs.fixed_points(gru, input=0.3, starts=torch.zeros(1, 8))["position"].values[0]
    lower = gs.fixed_points(gru, input=0.3, starts=torch.zeros(1, 4), layer=0)["position"].values[0]
    upper = gs.fixed_points(gru, input=lower, starts=torch.zeros(1, 4), layer=1)
    np.testing.assert_allclose(whole[:4], lower, atol=1e-11)
    np.testing.assert_allclose(whole[4:], upper["position"].values[0], atol=1e-11)
    assert (upper["layer"] == 1).all()


def test_directions_and_layers_that_are_no_map_of_their_own_are_refused() -> None:
    with pytest.raises(ValueError, match="direction must be named where a module reads both ways, as 'model' does"):
        gs.fixed_points(nn.LSTM(2, 3, bidirectional=True), input=0.0, starts=np.zeros((1, 6)))
    stack = nn.LSTM(2, 3, bidirectional=True, num_layers=2)
    with pytest.raises(ValueError, match="layer must be named where a module with 2 layers reads both ways"):
        gs.fixed_points(stack, input=0.0, starts=np.zeros((1, 6)), direction="forward")
    found = gs.fixed_points(stack, input=0.0, starts=np.zeros((1, 6)), direction="forward", layer=1)
    assert found.sizes["feature"] == 6


def test_recorded_backward_states_of_a_chosen_layer_start_the_search() -> None:
    torch.manual_seed(0)
    stack = nn.LSTM(2, 3, bidirectional=True, num_layers=2)
    recording = gs.record(stack, torch.randn(9, 4, 2), lengths=[9, 5, 2, 1])
    found = gs.fixed_points(stack, input=0.0, starts=recording, direction="backward", layer=0, between=0.0)
    assert found.attrs["starts"] == 17  # every real step once
    assert found.sizes["point"] >= 1


def test_the_model_stays_as_it_was_also_after_an_error() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.GRU(2, 3, num_layers=2, dropout=0.5)).train()
    model[0].weight.requires_grad_(False)
    model[1](torch.zeros(1, 1, 2))[0].sum().backward()
    state = {name: weight.clone() for name, weight in model.state_dict().items()}
    about = [(id(w), w.requires_grad, id(w.grad), w._version) for w in model.parameters()]
    random = torch.get_rng_state()
    gs.fixed_points(model, input=0.0, starts=torch.zeros(2, 6))
    with pytest.raises(ValueError, match="starts must be"):
        gs.fixed_points(model, input=0.0, starts=torch.zeros(2, 5))
    assert [(id(w), w.requires_grad, id(w.grad), w._version) for w in model.parameters()] == about
    assert all(torch.equal(weight, state[name]) for name, weight in model.state_dict().items())
    assert all(part.training for part in model.modules())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_it_runs_where_gradients_are_off_and_on_weights_made_there(context: Callable[[], Any]) -> None:
    with context():
        rnn = with_weights(nn.RNN(1, 1), weight_hh_l0=2.0)
        found = gs.fixed_points(rnn, input=torch.zeros(1), starts=torch.tensor([[0.5]]))
    assert found["stability"].values.tolist() == ["stable"]


def test_a_result_survives_netcdf(tmp_path: Any) -> None:
    _, _, found = flip_flop(count=50, jacobian=True)
    found.to_netcdf(tmp_path / "points.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "points.nc", engine="h5netcdf") as back:
        xr.testing.assert_equal(found, back.load())
    assert all(isinstance(value, (str, int, float)) for value in found.attrs.values())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"input": [0.0, 0.0, 0.0]}, r"input must be one vector of 2 numbers.*shape \(3,\) came"),
        ({"input": float("nan")}, "input must be finite; nan came"),
        ({"input": "x"}, "input must be numbers"),
        ({"starts": np.zeros((2, 5))}, r"array \(start, state\) with 8 numbers.*4 of cell_state of layer 0"),
        ({"starts": np.zeros((0, 8))}, "starts must be a recording or an array"),
        ({"starts": np.full((1, 8), np.nan)}, "starts must be finite"),
        ({"module": "nowhere"}, "nowhere"),
        ({"direction": "backward"}, r"direction must be one of \['forward'\]"),
        ({"layer": 1}, "layer must lie between 0 and 0"),
        ({"count": 0}, "count must be a whole number from 1 on; 0 came"),
        ({"between": 1.5}, "between must be a number from 0 to 1; 1.5 came"),
        ({"unique": -1.0}, "unique must be a number from 0 on"),
        ({"margin": 1.0}, "margin must be a number from 0 on and below 1"),
        ({"fixed": 1e-3}, "fixed must not be above slow"),
        ({"steps": True}, "steps must be a whole number"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(given: dict[str, Any], said: str) -> None:
    whole = {"input": 0.0, "starts": np.zeros((1, 8)), **given}
    with pytest.raises((ValueError, TypeError), match=said):
        gs.fixed_points(nn.LSTM(2, 4), **whole)


def test_a_recording_of_something_else_is_refused() -> None:
    other = gs.record(nn.LSTM(2, 5), torch.zeros(3, 1, 2))
    with pytest.raises(ValueError, match="hidden_state has 4 units in a layer; one with 5 came"):
        gs.fixed_points(nn.LSTM(2, 4), input=0.0, starts=other)
    with pytest.raises(ValueError, match="cell_state is missing"):
        gs.fixed_points(nn.LSTM(2, 5), input=0.0, starts=other.drop_vars("cell_state"))
    with pytest.raises(ValueError, match=r"layer 1; it has \[0\]"):
        gs.fixed_points(nn.LSTM(2, 5, num_layers=2), input=0.0, starts=other)


@pytest.mark.parametrize("kind", [nn.GRU, nn.GRUCell])
def test_weights_that_are_computed_count_as_they_are_now(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    gru = kind(2, 4).double()
    name = "weight_hh" if kind is nn.GRUCell else "weight_hh_l0"
    nn.utils.parametrizations.weight_norm(gru, name)
    with torch.no_grad():
        gru.parametrizations[name].original0.mul_(1.7)
    cell = chosen_layers(gru, None, None, None).cells[0]
    assert torch.equal(cell.weight_hh, getattr(gru, name))
    assert set(dict(gru.named_parameters())) >= {f"parametrizations.{name}.original0"}


def test_a_subclass_with_a_forward_of_its_own_is_refused() -> None:
    class Doubled(nn.GRU):
        def forward(self, x: Tensor, state: Tensor | None = None) -> Any:
            output, state = super().forward(x, state)
            return 2 * output, 2 * state

    with pytest.raises(TypeError, match="its class Doubled has a forward of its own"):
        gs.fixed_points(Doubled(2, 3), input=0.0, starts=np.zeros((1, 3)))


def test_groups_of_starts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    module, starts = made("GRU"), torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    together = gs.fixed_points(module, input=0.3, starts=starts)
    monkeypatch.setattr("gatescope.probe.fixed_point_search.VALUES", 3 * 16)
    apart = gs.fixed_points(module, input=0.3, starts=starts)
    np.testing.assert_allclose(apart["position"].values, together["position"].values, rtol=0, atol=1e-12)
    assert apart.attrs["starts"] == 7
