"""The effective forget bias: read, set, and what it means over many steps."""

import math

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn
from torch.nn.utils import parametrize

import gatescope as gs

MODULES = {
    "LSTM": (lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True), slice(4, 8), 1.0),
    "LSTM with projection": (lambda: nn.LSTM(3, 4, proj_size=2), slice(4, 8), 1.0),
    "GRU": (lambda: nn.GRU(3, 4, num_layers=2), slice(4, 8), 1.0),
    "LSTMCell": (lambda: nn.LSTMCell(3, 4), slice(4, 8), 1.0),
    "GRUCell": (lambda: nn.GRUCell(3, 4), slice(4, 8), 1.0),
    "own layers": (lambda: gs.from_torch(nn.LSTM(3, 4, num_layers=2)), slice(4, 8), 1.0),
    "own peephole": (lambda: gs.PeepholeLSTMCell(3, 4), slice(4, 8), 1.0),
    "own coupled": (lambda: gs.PeepholeLSTMCell(3, 4, variant="CIFG"), slice(0, 4), -1.0),
    "textbook GRU": (lambda: gs.ResetBeforeGRUCell(3, 4, convention="textbook"), slice(4, 8), -1.0),
    "memory blocks": (lambda: gs.cells.MemoryBlockCell(3, blocks=2, size=2), slice(2, 4), 1.0),
}


def vectors(module):
    """Sums of the biases by layer and direction, and all other parameters."""
    biases, others = {}, {}
    for name, value in module.named_parameters():
        if ".bias_" in f".{name}":
            key = name.replace("bias_ih", "bias").replace("bias_hh", "bias")
            biases[key] = biases.get(key, 0) + value.detach().clone()
        else:
            others[name] = value.detach().clone()
    return biases, others


@pytest.mark.parametrize(("make", "rows", "sign"), MODULES.values(), ids=MODULES)
def test_the_sum_of_both_vectors_is_read_and_set_in_every_layer_and_direction(make, rows, sign):
    torch.manual_seed(0)
    module = make()
    parameters = [id(p) for p in module.parameters()]
    before, others = vectors(module)
    found = gs.forget_bias(module)
    repeat = found.sizes["unit"] // len(range(*rows.indices(99)))
    expected = np.stack([sign * b[rows].repeat_interleave(repeat).numpy() for b in before.values()])
    np.testing.assert_allclose(found.bias.values.reshape(expected.shape), expected, atol=1e-7)
    np.testing.assert_allclose(found.keep, 1 / (1 + np.exp(-found.bias)), rtol=1e-12)
    gs.set_forget_bias(module, 1.5)
    after, rest = vectors(module)
    for name, value in after.items():
        assert torch.equal(value[rows], torch.full_like(value[rows], sign * 1.5)), name
        others_rows = torch.ones(len(value), dtype=torch.bool)
        others_rows[rows] = False
        assert torch.equal(value[others_rows], before[name][others_rows]), name
    assert all(torch.equal(others[name], rest[name]) for name in others)
    assert parameters == [id(p) for p in module.parameters()]
    np.testing.assert_allclose(gs.forget_bias(module).bias, 1.5, atol=1e-7)


@pytest.mark.parametrize("make", [MODULES[name][0] for name in MODULES], ids=list(MODULES))
def test_a_module_at_rest_keeps_what_the_bias_says(make):
    module = make()
    for parameter in module.parameters():
        nn.init.zeros_(parameter)
    gs.set_forget_bias(module, 1.5)
    if isinstance(module, nn.LSTMCell | nn.GRUCell):
        module = gs.from_torch(module)
    module = gs.Recurrent([[module]]) if isinstance(module, gs.AbstractCell) else module
    recording = gs.record(module.double(), torch.zeros(3, 1, 3).double())
    sums = recording.log_retention_sum.min("time").values
    np.testing.assert_allclose(sums, 3 * math.log(1 / (1 + math.exp(-1.5))), rtol=1e-12)


def test_survival_is_the_textbooks():
    module = nn.LSTM(2, 3)
    survived = []
    for value in (0.0, 1.0, 2.0):
        gs.set_forget_bias(module, value)
        survived.append(10 ** gs.forget_bias(module).survival.sel(horizon=100).values.ravel()[0])
    np.testing.assert_allclose(survived, [7.9e-31, 2.5e-14, 3.1e-6], rtol=0.02)
    assert gs.forget_bias(module, horizons=[10**6]).survival.min() < -55000


def test_without_biases_the_sum_is_zero_and_cannot_be_set():
    module = nn.LSTM(2, 3, bias=False)
    np.testing.assert_array_equal(gs.forget_bias(module).bias, 0)
    with pytest.raises(
        ValueError, match=r"'model' must have biases .* bias=False came\.|made with bias=False\. Make it"
    ):
        gs.set_forget_bias(module)


def test_where_one_module_cannot_be_set_none_is():
    model = nn.ModuleDict({"a": nn.LSTM(2, 3), "b": nn.LSTM(2, 3, bias=False)})
    before = model["a"].bias_ih_l0.detach().clone()
    with pytest.raises(ValueError, match="'b' must have biases"):
        gs.set_forget_bias(model)
    assert torch.equal(model["a"].bias_ih_l0, before)


def test_modules_without_a_gate_are_passed_over_unless_they_are_named():
    model = nn.ModuleDict({"plain": nn.RNN(2, 3), "lstm": nn.LSTM(2, 3)})
    gs.set_forget_bias(model, 3.0)
    np.testing.assert_allclose(gs.forget_bias(model, module="lstm").bias, 3.0, atol=1e-6)
    with pytest.raises(
        ValueError, match=r"'plain' must have a gate that multiplies its old memory; RNNCell keeps nothing"
    ):
        gs.set_forget_bias(model, 3.0, module="plain")
    with pytest.raises(ValueError, match="plain have none"):
        gs.set_forget_bias(nn.ModuleDict({"plain": nn.RNN(2, 3)}))
    with pytest.raises(ValueError, match="MemoryBlockCell keeps 1"):
        gs.forget_bias(gs.cells.MemoryBlockCell(3, blocks=2, size=2, forget="none"))


class Shifted(nn.Module):
    def __init__(self, inverse):
        super().__init__()
        if inverse:
            self.right_inverse = lambda value: value - 1

    def forward(self, value):
        return value + 1


def test_parametrized_biases_are_set_through_their_parametrization():
    module = nn.LSTM(2, 3)
    parametrize.register_parametrization(module, "bias_ih_l0", Shifted(True))
    gs.set_forget_bias(module, 2.0)
    np.testing.assert_allclose(gs.forget_bias(module).bias, 2.0, atol=1e-6)
    np.testing.assert_allclose(module.parametrizations.bias_ih_l0.original[3:6].detach(), 1.0, atol=1e-6)
    bare = nn.LSTM(2, 3)
    parametrize.register_parametrization(bare, "bias_ih_l0", Shifted(False))
    with pytest.raises(ValueError, match="must have a right_inverse"):
        gs.set_forget_bias(bare)


class Narrow(nn.Module):
    def forward(self, value):
        return value.tanh()

    def right_inverse(self, value):
        return value.clone()


@pytest.mark.parametrize("parametrization", [Narrow(), Shifted(False)])
def test_where_a_parametrization_fails_nothing_has_changed(parametrization):
    model = nn.ModuleDict({"a": nn.LSTM(2, 3), "b": nn.LSTM(2, 3)})
    parametrize.register_parametrization(model["b"], "bias_ih_l0", parametrization)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match="the parametrization of bias_ih_l0 must"):
        gs.set_forget_bias(model, 2.0)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_a_value_that_the_biases_cannot_hold_is_refused():
    for module, value in ((nn.LSTM(2, 3), 1e39), (nn.LSTM(2, 3).half(), -1e6)):
        with pytest.raises(ValueError, match=r"bias_ih_l0 of 'model' can hold; .* is beyond float"):
            gs.set_forget_bias(module, value)


@pytest.mark.parametrize("value", [np.float32(2), np.int64(2), 2])
def test_numbers_of_numpy_are_numbers(value):
    module = nn.LSTM(2, 3)
    gs.set_forget_bias(module, value)
    np.testing.assert_array_equal(gs.forget_bias(module).bias, 2.0)


def test_weights_made_under_inference_mode_are_set_too():
    with torch.inference_mode():
        module = nn.LSTM(2, 3)
    gs.set_forget_bias(module, 2.0)
    np.testing.assert_array_equal(gs.forget_bias(module).bias, 2.0)


def test_biases_without_numbers_are_refused():
    with pytest.raises(ValueError, match="bias_ih_l0 must hold numbers; it is on the device meta"):
        gs.forget_bias(nn.LSTM(2, 3, device="meta"))


@pytest.mark.parametrize("recording", [3, "x"])
def test_what_is_no_recording_is_refused(recording):
    with pytest.raises(TypeError, match="forget_bias needs one recording"):
        gs.forget_bias(nn.LSTM(2, 3), recording)


def test_a_result_is_no_recording_and_a_recording_without_lengths_is():
    module = nn.LSTM(2, 3)
    recording = gs.record(module, torch.randn(12, 2, 2))
    with pytest.raises(gs.SchemaError, match="forget_bias needs a recording"):
        gs.forget_bias(module, gs.gradient_flow(recording))
    found = gs.forget_bias(module, recording.drop_vars("length"), horizons=[10])
    xr.testing.assert_allclose(found.cell_path, gs.forget_bias(module, recording, horizons=[10]).cell_path)


def test_a_recording_puts_what_was_kept_beside_what_the_bias_says():
    torch.manual_seed(0)
    module = nn.LSTM(2, 3)
    for name, parameter in module.named_parameters():
        if "weight" in name:
            nn.init.zeros_(parameter)
    gs.set_forget_bias(module, 2.0)
    recording = gs.record(module, torch.randn(30, 2, 2))
    found = gs.forget_bias(module, recording, horizons=[10, 20, 100])
    np.testing.assert_allclose(
        found.cell_path.sel(quantile=0.5, horizon=[10, 20]).transpose("horizon", "layer", "direction", "unit"),
        found.survival.sel(horizon=[10, 20]),
        atol=1e-5,
    )
    assert np.isnan(found.cell_path.sel(horizon=100)).all()
    short = gs.forget_bias(module, gs.record(module, torch.randn(5, 2, 2)))
    assert np.isnan(short.cell_path).all()
    with pytest.raises(ValueError, match=r"must be of 'model', a LSTMCell with layer 1, .* one of GRUCell .* came"):
        gs.forget_bias(module, gs.record(nn.GRU(2, 3), torch.randn(30, 2, 2)))


@pytest.mark.parametrize("value", [True, "1", math.inf, math.nan, None])
def test_values_that_are_no_numbers_are_refused(value):
    with pytest.raises(ValueError, match="value must be a finite number"):
        gs.set_forget_bias(nn.LSTM(2, 3), value)


@pytest.mark.parametrize("horizons", [[], [0], [1.5], [10, 10], 3.0])
def test_horizons_out_of_range_are_refused(horizons):
    with pytest.raises(ValueError, match="horizons must be different whole numbers of at least 1"):
        gs.forget_bias(nn.LSTM(2, 3), horizons=horizons)


def test_several_modules_need_a_name():
    with pytest.raises(ValueError, match="module must be named where a model has several"):
        gs.forget_bias(nn.ModuleDict({"a": nn.LSTM(2, 3), "b": nn.LSTM(2, 3)}))
