"""Bad input gets one clear sentence, with names and a way out, and loses nothing."""

import threading

import pytest
import torch
from torch import nn

import gatescope as gs

WIDTH, UNITS = 3, 5
X = torch.zeros(4, 2, WIDTH)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.LSTM(WIDTH, UNITS)
        self.second = nn.GRU(UNITS, UNITS)

    def forward(self, x):
        return self.second(self.first(x)[0])


def assert_one_sentence(error, *parts):
    message = str(error.value)
    assert "\n" not in message
    assert " must " in message
    assert message.endswith(".")
    for part in parts:
        assert part in message


def test_a_model_without_recurrent_modules_is_refused():
    with pytest.raises(ValueError, match="must contain a recurrent module") as error:
        gs.attach(nn.Sequential(nn.Linear(2, 2)))
    assert_one_sentence(error, "Sequential", "LSTM, GRU, RNN")


@pytest.mark.parametrize("name", ["frist", "", "first.cell", ["first", "third"], []], ids=repr)
def test_an_unknown_module_name_is_answered_with_the_known_ones(name):
    for ask in (lambda: gs.attach(Two(), name), lambda: gs.record(Two(), X, module=name)):
        with pytest.raises(ValueError, match="Choose from: first, second") as error:
            ask()
        assert_one_sentence(error)


@pytest.mark.parametrize(
    "modules", [3, nn.LSTM(1, 1), [nn.LSTM(1, 1)], {"first": 1}.values()], ids=lambda m: type(m).__name__
)
def test_modules_that_are_no_names_are_refused(modules):
    with pytest.raises((ValueError, TypeError), match="modules must") as error:
        gs.attach(Two(), modules)
    assert_one_sentence(error, "first, second")


def test_one_of_several_recordings_must_be_named():
    model = Two()
    with gs.attach(model) as probe:
        model(X)
    with pytest.raises(ValueError, match="Choose from: first, second") as error:
        probe.recording()
    assert_one_sentence(error, "none came")
    assert probe.recording("second").sizes["sequence"] == 2


def test_record_says_that_one_of_several_must_be_named_before_it_runs_the_model():
    model = Two()
    model.forward = lambda x: pytest.fail("the model ran")
    with pytest.raises(ValueError, match="Choose from: first, second") as error:
        gs.record(model, X)
    assert_one_sentence(error)


def test_an_unknown_recording_is_answered_with_the_known_ones():
    model = Two()
    with gs.attach(model) as probe:
        model(X)
    with pytest.raises(ValueError, match="Choose from: first, second") as error:
        probe.recording("third")
    assert_one_sentence(error, "'third' came")


def test_a_module_that_saw_no_call_says_so_and_which_ones_did():
    model = Two()
    with gs.attach(model) as probe:
        model.first(X)
    with pytest.raises(ValueError, match="'second' must be called inside the block") as error:
        probe.recording("second")
    assert_one_sentence(error, "Those that did: first")
    assert probe.recording().attrs["module"] == "first"


def test_a_probe_that_saw_no_call_says_so_when_the_block_ends():
    with pytest.raises(ValueError, match="must call") as error, gs.attach(Two()):
        pass
    assert_one_sentence(error, "'first', 'second'", "Call the model inside the block")


def test_recordings_of_a_probe_without_calls_are_refused():
    probe = gs.attach(Two())
    for ask in (lambda: probe.recording("first"), lambda: probe.recording(), probe.tree):
        with pytest.raises(ValueError, match=" must ") as error:
            ask()
        assert_one_sentence(error)


@pytest.mark.parametrize(
    "signals", ["forget_gate", [], [3], ["forget_gates"], ["hidden_state_preactivation"], ["time"]], ids=repr
)
def test_unknown_signals_are_refused_before_the_model_runs(signals):
    model = nn.LSTM(WIDTH, UNITS)
    model.forward = lambda *x: pytest.fail("the model ran")
    for ask in (lambda: gs.attach(model, signals=signals), lambda: gs.record(model, X, signals=signals)):
        with pytest.raises(ValueError, match="signals must") as error:
            ask()
        assert_one_sentence(error)


def test_unknown_signals_are_answered_with_the_known_ones():
    with pytest.raises(ValueError, match="'gate' came") as error:
        gs.attach(Two(), signals=["gate", "forget_gate"])
    assert_one_sentence(error, "forget_gate, ", "update_gate", "candidate_preactivation")
    assert "hidden_state_preactivation" not in str(error.value)


class OnlyOutput(nn.LSTM):
    def forward(self, x):
        return super().forward(x)[0]


class OtherInput(nn.GRU):
    def forward(self, words):
        return super().forward(words["x"])


@pytest.mark.parametrize("kind", [OnlyOutput, OtherInput], ids=lambda kind: kind.__name__)
def test_a_class_with_a_call_of_its_own_is_named_where_only_that_call_is_seen(kind):
    model, errors = kind(WIDTH, UNITS), []

    def run():
        try:
            model(X if kind is OnlyOutput else {"x": X})
        except TypeError as error:
            errors.append(str(error))

    with gs.attach(model) as probe:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        run()
    (message,) = errors
    assert "'model' must be called as (input, state)" in message
    assert kind.__name__ in message
    assert "\n" not in message
    assert probe.recording().sizes["sequence"] == 2


def test_wrong_arguments_of_the_model_itself_fail_as_without_a_probe():
    model = nn.LSTM(WIDTH, UNITS)
    with pytest.raises(RuntimeError) as bare:
        model(torch.zeros(4, 2, WIDTH + 1))
    with pytest.raises(RuntimeError) as attached, gs.attach(model):
        model(torch.zeros(4, 2, WIDTH + 1))
    assert str(bare.value) == str(attached.value)
