"""Conversion from and to torch's modules."""

import pytest
import torch
from torch import nn

from gatescope.cells import GRUCell, LSTMCell, Recurrent, RNNCell, from_torch, to_torch

# torch says so once in a process, of its own LSTM in single precision
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

LAYERS = {
    "LSTM": lambda **options: nn.LSTM(3, 4, **options),
    "LSTM-projection": lambda **options: nn.LSTM(3, 4, proj_size=2, **options),
    "GRU": lambda **options: nn.GRU(3, 4, **options),
    "RNN-tanh": lambda **options: nn.RNN(3, 4, **options),
    "RNN-relu": lambda **options: nn.RNN(3, 4, nonlinearity="relu", **options),
    "LSTMCell": lambda **options: nn.LSTMCell(3, 4),
    "GRUCell": lambda **options: nn.GRUCell(3, 4),
    "RNNCell-tanh": lambda **options: nn.RNNCell(3, 4),
    "RNNCell-relu": lambda **options: nn.RNNCell(3, 4, nonlinearity="relu"),
}
OPTIONS = {"num_layers": 2, "bidirectional": True, "batch_first": True, "dropout": 0.3}


@pytest.fixture(params=LAYERS.values(), ids=LAYERS.keys())
def module(request):
    return request.param(**OPTIONS)


def test_there_and_back_gives_the_same_module(module):
    back = to_torch(from_torch(module.eval()))
    assert repr(back) == repr(module)
    assert not back.training
    assert back.state_dict().keys() == module.state_dict().keys()
    assert all(torch.equal(weight, module.state_dict()[name]) for name, weight in back.state_dict().items())
    x = torch.randn(5, 6, 3) if isinstance(module, nn.RNNBase) else torch.randn(5, 3)
    one, other = module(x), back(x)
    assert torch.equal(one[0], other[0])


def test_the_module_that_comes_back_computes_with_the_weights_it_shows(module):
    back = to_torch(from_torch(module.eval()))
    x = torch.randn(5, 6, 3) if isinstance(module, nn.RNNBase) else torch.randn(5, 3)
    with torch.no_grad():
        for weight in back.parameters():
            weight.zero_()
    assert not back(x)[0].any()


def test_values_are_copied_unless_they_are_shared(module):
    copied, shared = from_torch(module), from_torch(module, share=True)
    before = [weight.clone() for weight in module.parameters()]
    assert {id(weight) for weight in shared.parameters()} == {id(weight) for weight in module.parameters()}
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(1)
    assert all(torch.equal(one, other) for one, other in zip(copied.parameters(), before, strict=True))
    assert all(torch.equal(one, other + 1) for one, other in zip(shared.parameters(), before, strict=True))


def test_shared_weights_go_back_to_torch_as_the_same_parameters(module):
    back = to_torch(from_torch(module, share=True), share=True)
    assert all(one is other for one, other in zip(module.parameters(), back.parameters(), strict=True))


def test_frozen_weights_stay_frozen_and_types_stay(module):
    module = module.to(torch.float16)
    next(module.parameters()).requires_grad_(False)
    twin = from_torch(module)
    assert [weight.requires_grad for weight in twin.parameters()].count(False) == 1
    assert all(weight.dtype == torch.float16 for weight in twin.parameters())


def test_conversion_draws_no_random_numbers(module):
    before = torch.get_rng_state()
    to_torch(from_torch(module))
    assert torch.equal(torch.get_rng_state(), before)


def test_subclasses_are_taken_as_what_they_are():
    class MyLSTM(nn.LSTM):
        pass

    class MyCell(nn.RNNCell):
        pass

    assert isinstance(from_torch(MyLSTM(3, 4)), Recurrent)
    assert isinstance(from_torch(MyCell(3, 4, nonlinearity="relu")), RNNCell)


def test_computed_weights_are_copied_and_cannot_be_shared():
    module = torch.nn.utils.parametrizations.weight_norm(nn.GRU(3, 4), "weight_hh_l0")
    x = torch.randn(5, 2, 3)
    assert torch.allclose(from_torch(module)(x)[0], module(x)[0], atol=1e-6)
    with pytest.raises(ValueError, match=r"weight_hh_l0 of \w+ is computed by a parametrization"):
        from_torch(module, share=True)


@pytest.mark.parametrize("make", [lambda: nn.Linear(2, 2), lambda: nn.TransformerEncoderLayer(4, 2), lambda: "LSTM"])
def test_other_modules_are_refused_by_name(make):
    with pytest.raises(TypeError, match=r"takes nn\.LSTM, nn\.GRU, nn\.RNN or one of their cells; a \w+ came\."):
        from_torch(make())


def test_what_torch_does_not_have_is_refused_by_name():
    with pytest.raises(TypeError, match="torch's LSTMCell has no projection; proj_size 2 came"):
        to_torch(LSTMCell(3, 4, proj_size=2))
    with pytest.raises(TypeError, match="a Linear came"):
        to_torch(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="no layers that differ in bias"):
        to_torch(Recurrent([[GRUCell(3, 4)], [GRUCell(4, 4, bias=False)]]))
