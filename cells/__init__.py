"""Recurrent cells as equations with named signals, and what unrolls and converts them."""

from .abstract import AbstractCell
from .block_network import BlockNetwork
from .convert import from_torch, to_torch
from .gru import GRUCell
from .lstm import LSTMCell
from .memory_block import MemoryBlockCell
from .peephole import PeepholeLSTMCell
from .recurrent import Recurrent
from .reset_before import ResetBeforeGRUCell
from .rnn import RNNCell
from .scan import Remember, linear_scan, step
from .unroll import StepTap

__all__ = [
    "AbstractCell",
    "BlockNetwork",
    "GRUCell",
    "LSTMCell",
    "MemoryBlockCell",
    "PeepholeLSTMCell",
    "RNNCell",
    "Recurrent",
    "Remember",
    "ResetBeforeGRUCell",
    "StepTap",
    "from_torch",
    "linear_scan",
    "step",
    "to_torch",
]
