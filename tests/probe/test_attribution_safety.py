"""attribution leaves everything as it was, whatever it is asked, and refuses what it cannot answer in a sentence."""

import subprocess
import sys
from contextlib import nullcontext

import captum.attr
import numpy as np
import pytest
import torch
from torch import nn

import gatescope as gs

METHODS = {
    "saliency": "Saliency",
    "input_x_gradient": "InputXGradient",
    "integrated_gradients": "IntegratedGradients",
    "gradient_shap": "GradientShap",
    "feature_ablation": "FeatureAblation",
    "occlusion": "Occlusion",
    "shapley_value_sampling": "ShapleyValueSampling",
}
ASKED = {
    "input": {"to": "input"},
    "embedding": {"to": "input"},
    "gate": {"to": "forget_gate"},
    "state": {"to": "cell_state", "time": [1]},
    "initial state": {"to": "initial_state"},
    "unit": {"to": "input", "target": gs.unit("cell_state", unit=1)},
    "unit from gate": {"to": "output_gate", "target": gs.unit("hidden_state", unit=1)},
}


class Model(nn.Module):
    """With dropout, a buffer and an embedding; raises when it is called more often than `allowed`."""

    def __init__(self, embedded):
        super().__init__()
        self.embedding = nn.Embedding(5, 2) if embedded else None
        self.rnn = nn.LSTM(2, 3, batch_first=True)
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)
        self.out = nn.Linear(3, 2)
        self.allowed, self.calls = 10**9, 0

    def forward(self, x):
        self.calls += 1
        if self.calls > self.allowed:
            raise RuntimeError("the model broke")
        read = x if self.embedding is None else self.embedding(x)
        return self.out(self.drop(self.norm(self.rnn(read)[0][:, -1])))


def asked(name):
    torch.manual_seed(0)
    model = Model(name == "embedding").train()
    model.norm.eval()
    model.out.bias.requires_grad_(False)
    model.out.weight.grad = torch.ones_like(model.out.weight)
    x = torch.randint(5, (2, 3)) if name == "embedding" else torch.randn(2, 3, 2)
    return model, x, {"target": 1, "n_steps": 3, "n_samples": 2, **ASKED[name]}


def everything(model, x):
    """All that attribution could leave changed."""
    hooks = [name for name in vars(model) if "hook" in name]
    return {
        "hooks": [{name: list(vars(part)[name] or ()) for name in hooks} for part in model.modules()],
        "own": [sorted(vars(part)) for part in model.modules()],
        "modes": [part.training for part in model.modules()],
        "weights": [(weight.clone().detach(), weight.requires_grad, weight.grad) for weight in model.parameters()],
        "buffers": [buffer.clone() for buffer in model.buffers()],
        "input": (x.clone(), x.requires_grad, x.grad),
        "random": (torch.get_rng_state(), np.random.get_state()[1].tolist(), np.random.get_state()[2]),
        "torch": (torch.is_grad_enabled(), torch.backends.cudnn.enabled, torch.is_inference_mode_enabled()),
    }


def assert_as_before(before, model, x):
    after = everything(model, x)
    for name, was in before.items():
        assert same(after[name], was), name


def same(one, other):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def run(model, x, method, options):
    if method == "occlusion" and options["to"] == "cell_state":
        options = {**options, "together": True}
    if method == "occlusion" and options["to"] == "initial_state":
        options = {**options, "method": "feature_ablation"}
    return gs.attribution(model, x, **{"method": method, **options})


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_left_after_success_and_after_errors_in_the_model_and_in_the_method(method, name, monkeypatch):
    model, x, options = asked(name)
    before = everything(model, x)
    found = run(model, x, method, options)
    assert np.isfinite(found.attribution if "attribution" in found else found.by_step).any()
    assert_as_before(before, model, x)
    needed, model.calls = model.calls, 0

    for allowed in (0, 1, needed // 2, needed - 1):
        model.calls, model.allowed = 0, allowed
        with pytest.raises((RuntimeError, ValueError), match="the model broke"):
            run(model, x, method, options)
        assert_as_before(before, model, x)

    model.calls, model.allowed = 0, 10**9

    def broken(self, *args, **kwargs):
        self.forward_func(args[0], *kwargs["additional_forward_args"])
        raise RuntimeError("the method broke")

    used = "FeatureAblation" if method == "occlusion" and name == "initial state" else METHODS[method]
    monkeypatch.setattr(getattr(captum.attr, used), "attribute", broken)
    with pytest.raises(RuntimeError, match="the method broke"):
        run(model, x, method, options)
    assert_as_before(before, model, x)


def test_a_frozen_model_in_inference_code_is_answered_too():
    model, x, _ = asked("input")
    true = gs.attribution(model, x, target=1, n_steps=3)
    model.requires_grad_(False)
    with torch.no_grad():
        found = gs.attribution(model, x, target=1, n_steps=3)
    with torch.inference_mode():
        again = gs.attribution(model, x.clone(), target=1, n_steps=3)
    np.testing.assert_array_equal(found.attribution, true.attribution)
    np.testing.assert_array_equal(again.attribution, true.attribution)


def test_weights_that_autograd_cannot_use_are_refused_in_a_sentence():
    with torch.inference_mode():
        rnn = nn.GRU(2, 3)
    with pytest.raises(ValueError, match=r"known to autograd; some were made under torch\.inference_mode"):
        gs.attribution(rnn, torch.zeros(4, 2, 2), target=(-1, 0))


def test_dropout_and_batch_norm_are_those_of_eval_whatever_the_mode():
    model, x, _ = asked("input")
    training = gs.attribution(model, x, target=1, n_steps=3)
    np.testing.assert_array_equal(
        training.attribution, gs.attribution(model.eval(), x, target=1, n_steps=3).attribution
    )


def test_hooks_of_the_callers_own_stay_and_see_the_runs():
    model, x, _ = asked("gate")
    seen = []
    handle = model.rnn.register_forward_hook(lambda *_: seen.append(1))
    gs.attribution(model, x, target=1, to="forget_gate", n_steps=3)
    assert seen
    assert len(model.rnn._forward_hooks) == 1
    handle.remove()


BAD = {
    "unknown method": (
        {"method": "gradcam"},
        r"method must be one of saliency, .*shapley_value_sampling; 'gradcam' came",
    ),
    "DeepLift": ({"method": "deep_lift"}, "its rules are for modules such as nn.Sigmoid"),
    "DeepLift by Captum's name": ({"method": "DeepLiftShap"}, "it would be|input x gradient"),
    "LRP": ({"method": "LRP"}, "none for the products of gates and states"),
    "unknown signal": ({"to": "gate"}, "'gate' must be a signal of 'rnn'; it has input_gate, forget_gate, output_gate"),
    "a unit that is not there": ({"to": "forget_gate", "unit": 3}, "unit must lie between 0 and 2; 3 came"),
    "a feature that is not there": ({"unit": [0, 2]}, "unit must lie between 0 and 1; 2 came"),
    "a step that is not there": ({"time": 3}, "time must lie between 0 and 2; 3 came"),
    "a negative step of unequal sequences": ({"time": -1, "lengths": [3, 2]}, "Negative numbers need sequences of one"),
    "no step": ({"time": slice(2, 2)}, "time must name at least one"),
    "half a step": ({"time": 0.5}, "time must be a whole number, several, or a slice; 0.5 came"),
    "a step that is padding": ({"time": 2, "lengths": [2, 1]}, "time must be a step of at least one sequence"),
    "a layer that is not there": ({"to": "forget_gate", "layer": 1}, "layer must be one of 0 to 0 of 'rnn'; 1 came"),
    "a direction that is not there": (
        {"to": "forget_gate", "direction": "backward"},
        "direction must be one of forward of 'rnn'; 'backward' came",
    ),
    "a layer of the input": ({"layer": 0}, "layer and direction must be left out for the input"),
    "a baseline of another shape": (
        {"baseline": torch.zeros(2, 4, 2)},
        r"baseline must be a number or an array that fits the shape \(2, 3, 2\)",
    ),
    "a baseline of text": ({"baseline": "zero"}, "baseline must be a number or an array"),
    "an initial state of another shape": (
        {"to": "initial_state", "baseline": torch.zeros(1, 2, 3)},
        r"own form, of shapes \[\(1, 2, 3\), \(1, 2, 3\)\]; \[\(1, 2, 3\)\] came",
    ),
    "a class that is not there": ({"target": 2}, "target must be one of the output's 2 classes, 0 to 1; 2 came"),
    "classes of other sequences": ({"target": [0, 1, 0]}, r"one class for each sequence.*\[0, 1, 0\] came for 2 seq"),
    "no class": ({"target": None}, "target must fit the model's output|with classes"),
    "a step of an output without": ({"target": (-1, 0)}, r"needs an output \(sequence, time, class\)"),
    "a target that gives all classes": ({"target": lambda out: out}, "one number for each of the 2 sequences"),
    "a target that knows sequences by their place": (
        {"target": lambda out: out[range(2), [0, 1]] + 0 * out[:, 0]},
        "for any number of sequences, in any order; with 4 in the place of 2 it raised",
    ),
    "a target that gives no tensor": (
        {"target": lambda out: 3.0},
        "one number for each of the 2 sequences of an output",
    ),
    "a target that decides": ({"target": lambda out: out.argmax(1)}, "can change little by little; torch.int64 came"),
    "a target that mixes sequences": (
        {"target": lambda out: out[:, 0] + out[:1, 1]},
        "must give a sequence the same target whatever stands beside it",
    ),
    "a target that detaches": ({"target": lambda out: out[:, 0].detach()}, "in ways that autograd sees"),
    "a target of no numbers": ({"target": lambda out: out[:, 0] / 0 * 0}, "must be finite; NaN or infinity came"),
    "a unit inside that is not there": (
        {"target": gs.unit("cell_state", unit=3)},
        "unit of the target must be one of 0",
    ),
    "a signal inside that is not there": ({"target": gs.unit("c", unit=0)}, "'c' must be a signal of 'rnn'"),
    "a step inside that is not there": (
        {"target": gs.unit("cell_state", unit=0, time=3)},
        "time of the target must be a step of every sequence; 3 came, the shortest has 3",
    ),
    "lengths of others": ({"lengths": [3, 3, 3]}, "lengths must be one whole number for each of 2 sequences"),
    "a sequence without steps": ({"lengths": [3, 0]}, "every sequence must have at least one step; one of length 0"),
    "another module": ({"module": "out"}, "Choose from: rnn"),
    "another embedding": ({"embedding": "words"}, "embedding must be the path of a module; 'words' came"),
    "occlusion of states": ({"method": "occlusion", "to": "cell_state"}, "slides over steps that are taken together"),
    "a window too wide": ({"method": "occlusion", "window": 4}, "window must be at most the 3 steps .*; 4 came"),
    "states' steps together with the input": ({"together": False}, "together must be True for the input"),
    "by something": ({"by": "unit"}, "by must be 'step' or 'feature'; 'unit' came"),
    "gradients by step": ({"by": "step"}, "by='step' needs a method that takes values away"),
    "no points": ({"n_steps": 0}, "n_steps must be a whole number of at least 1; 0 came"),
    "noise below 0": ({"stdev": -1.0}, "stdev must be a number of at least 0; -1.0 came"),
    "labels of the initial state": (
        {"to": "initial_state", "labels": {"token": ["abc", "abc"]}},
        "labels must stand at steps",
    ),
    "labels of another width": ({"labels": {"token": ["ab", "ab"]}}, "labels 'token' must have one label per step"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence(name):
    options, said = BAD[name]
    model, x, _ = asked("input")
    before = everything(model, x)
    with pytest.raises((ValueError, TypeError), match=said) as caught:
        gs.attribution(model, x, **{"target": 1, "n_steps": 2, **options})
    assert "\n" not in str(caught.value)
    assert_as_before(before, model, x)


def test_whole_numbers_without_an_embedding_are_refused_in_a_sentence():
    class OneHot(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(5, 3, batch_first=True)

        def forward(self, tokens):
            return self.rnn(nn.functional.one_hot(tokens, 5).float())[0][:, -1]

    with pytest.raises(ValueError, match=r"attributed to where they become vectors.*Name it with embedding="):
        gs.attribution(OneHot(), torch.tensor([[1, 2, 3], [0, 2, 1]]), target=0)
    gs.attribution(OneHot(), torch.tensor([[1, 2, 3], [0, 2, 1]]), target=0, to="update_gate", n_steps=2)


class PackingAtOnce(nn.Module):
    """Packs a batch whose time comes first."""

    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(2, 3)

    def forward(self, x, lengths):
        return self.rnn(nn.utils.rnn.pack_padded_sequence(x, lengths, enforce_sorted=False))[1][0]


def test_a_packed_batch_as_long_as_wide_is_refused_until_it_is_said_which_is_which():
    model, x = PackingAtOnce(), torch.randn(3, 3, 2)
    with pytest.raises(ValueError, match=r"batch_first must say what the first two dims of the input, \(3, 3\), are"):
        gs.attribution(model, (x, [3, 2, 1]), target=0)
    found = gs.attribution(model, (x, [3, 2, 1]), target=0, batch_first=False, n_steps=2)
    assert (found.attribution.values[2, 1:] == 0).all()
    with pytest.raises(ValueError, match="must run on its sequences in another order, each twice; it raised"):
        gs.attribution(model, (x, [3, 2, 1]), target=0, batch_first=True, n_steps=2)


def test_a_single_sequence_without_that_dimension_and_an_empty_batch_are_refused_in_a_sentence():
    with pytest.raises(ValueError, match="at least one sequence of at least one step"):
        gs.attribution(nn.GRU(2, 3), torch.zeros(4, 0, 2), target=(-1, 0))
    with pytest.raises(ValueError, match="inputs must be a batch of sequences"):
        gs.attribution(nn.GRU(2, 3), torch.zeros(4, 2), target=(-1, 0))
    with pytest.raises(TypeError, match="inputs must hold a tensor or a PackedSequence; NoneType came"):
        gs.attribution(nn.GRU(2, 3), None, target=(-1, 0))
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module"):
        gs.attribution(torch.zeros, torch.zeros(4, 2), target=(-1, 0))


def test_layers_directions_and_modules_must_be_named_where_there_are_several():
    rnn, x = nn.GRU(2, 3, num_layers=2, bidirectional=True), torch.randn(4, 2, 2)
    with pytest.raises(ValueError, match="layer must be named where there are several; choose from 0 to 1"):
        gs.attribution(rnn, x, target=(-1, 0), to="update_gate")
    with pytest.raises(ValueError, match="direction must be named where there are two; choose from forward, backward"):
        gs.attribution(rnn, x, target=gs.unit("hidden_state", unit=0, layer=1))
    two = nn.ModuleDict({"a": nn.GRU(2, 3), "b": nn.GRU(2, 3)})
    two.forward = lambda x: two["a"](x)[0][-1] + two["b"](x)[0][-1]
    with pytest.raises(ValueError, match="module must be named where a model has several"):
        gs.attribution(two, x, target=0, to="update_gate")
    gs.attribution(two, x, target=0, to="update_gate", module="b", n_steps=2)


@pytest.mark.parametrize("opened", [False, True], ids=["fused", "opened"])
def test_captums_deeplift_is_input_x_gradient_inside_a_recurrence_and_does_not_add_up(opened):
    torch.manual_seed(0)
    model, x = Model(embedded=False).double().eval(), 3 * torch.randn(2, 4, 2).double()

    with gs.opened(model) if opened else nullcontext(), pytest.warns(UserWarning, match="hooks and attributes"):
        found = captum.attr.DeepLift(model).attribute(x.clone().requires_grad_(), target=1).detach()
    product = gs.attribution(model, x, target=1, method="input_x_gradient").attribution.values
    np.testing.assert_allclose(found, product, atol=1e-10)
    with torch.no_grad():
        change = (model(x) - model(torch.zeros_like(x)))[:, 1]
    assert ((found.sum((1, 2)) - change).abs() > 0.2 * change.abs()).any()


@pytest.mark.parametrize("opened", [False, True], ids=["fused", "opened"])
def test_captums_lrp_has_no_rule_for_a_recurrence(opened):
    model, x = Model(embedded=False).eval(), torch.randn(2, 4, 2)
    with gs.opened(model) if opened else nullcontext(), pytest.raises(TypeError, match="has no rule defined"):
        captum.attr.LRP(model).attribute(x, target=1)


def test_captum_is_loaded_only_by_a_call():
    code = "import gatescope as gs, sys; gs.attribution, gs.unit, gs.record; assert 'captum' not in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)
