"""An interrupt in the probe's own work: nothing of it remains, and what was recorded before stays whole."""

import inspect
import sys

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

import gatescope as gs
from gatescope.probe import dispatch, track

WATCHED = tuple(map(inspect.getsourcefile, (track, dispatch, torch.autograd.grad_mode)))


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

    def __init__(self, place):
        self.place = place
        self.passed = 0

    def __call__(self, frame, event, argument):
        if event in ("call", "c_return") and frame.f_code.co_filename in WATCHED:
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
