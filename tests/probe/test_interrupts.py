"""An interrupt in the probe's own work: nothing of it remains, and what was recorded before stays whole."""

import inspect
import sys

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import gatescope as gs
from gatescope.probe import dispatch, open_forward, open_torch, opened, track

WATCHED = tuple(map(inspect.getsourcefile, (track, dispatch, torch.autograd.grad_mode)))
OPENING = tuple(map(inspect.getsourcefile, (opened, open_forward, open_torch, dispatch, torch.overrides)))


class Model(nn.Module):
    """A stack whose dropout must be replayed, then a loop of a cell."""

    def __init__(self):
        super().__init__()
        self.stack = nn.LSTM(3, 4, num_layers=2, dropout=0.3)
        self.cell = nn.GRUCell(4, 4)

    def forward(self, x):
        state = None
        for now in self.stack(x)[0][:2]:
            state = self.cell(now, state)
        return state


class Interrupt:
    """Raises at the n-th point at which Python looks for signals: the beginning of a function, the end of one in C."""

    def __init__(self, place, watched=WATCHED):
        self.place, self.watched = place, watched
        self.passed = 0

    def __call__(self, frame, event, argument):
        if event in ("call", "c_return") and frame.f_code.co_filename in self.watched:
            self.passed += 1
            if self.passed == self.place:
                sys.setprofile(None)
                raise KeyboardInterrupt


def interrupted(model, probe, interrupt):
    """Two calls, the second one interrupted; how many points it passed."""
    x = torch.randn(5, 2, 3)
    try:
        with probe:
            model(x)
            probe.annotate(token=["abcde", "fghij"], lengths=[5, 3])
            sys.setprofile(interrupt)
            model(x).sum().backward()
            sys.setprofile(None)
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return interrupt.passed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one that strikes a closing generator
def test_an_interrupt_leaves_nothing_behind_and_no_recording_is_lost():
    torch.manual_seed(0)
    model = Model()
    points = interrupted(model, gs.attach(model, gradients=True), Interrupt(0))
    assert points > 200
    for place in range(1, points + 1, 5):
        probe = gs.attach(model, gradients=True)
        interrupted(model, probe, Interrupt(place))
        assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()), place
        assert not _get_current_function_mode_stack(), place
        assert torch.is_grad_enabled(), place
        assert torch._C._is_torch_function_enabled(), place
        assert gs.validate(probe.recording("stack"), values=True).sizes["sequence"] in (2, 4), place
        assert gs.validate(probe.recording("cell"), values=True).sizes["sequence"] in (2, 4), place


def interrupted_inside(model, interrupt):
    """A call of a model that runs openly, interrupted; how many points it passed."""
    change = gs.intervene(model, "input_gate", 0.5, module="stack")
    inner = gs.intervene(model, "update_gate", 0.5, module="cell")
    try:
        with change, gs.opened(model):
            sys.setprofile(interrupt)
            with inner:
                model(torch.randn(3, 2, 3))
            sys.setprofile(None)
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return interrupt.passed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # one that strikes a closing generator
def test_an_interrupt_while_a_model_runs_openly_leaves_nothing_behind():
    torch.manual_seed(0)
    model = Model()
    points = interrupted_inside(model, Interrupt(0, OPENING))
    assert points > 200
    left = []
    for place in range(1, points + 1, 6):
        interrupted_inside(model, Interrupt(place, OPENING))
        if any("forward" in vars(module) for module in model.modules()) or _get_current_function_mode_stack():
            left.append(place)
            for module in model.modules():
                vars(module).pop("forward", None)
        assert torch._C._is_torch_function_enabled(), place
    assert not left
    assert open_forward.running.lengths is None
