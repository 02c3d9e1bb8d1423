"""Recurrent cells as equations with named signals, and what unrolls and converts them."""

from .abstract import AbstractCell
from .convert import from_torch, to_torch
from .gru import GRUCell
from .lstm import LSTMCell
from .peephole import PeepholeLSTMCell
from .recurrent import Recurrent, StepTap
from .rnn import RNNCell
from .scan import Remember, linear_scan, step

__all__ = [
    "AbstractCell",
    "GRUCell",
    "LSTMCell",
    "PeepholeLSTMCell",
    "RNNCell",
    "Recurrent",
    "Remember",
    "StepTap",
    "from_torch",
    "linear_scan",
    "step",
    "to_torch",
]
