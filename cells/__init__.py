"""Recurrent cells as equations with named signals, and what unrolls and converts them."""

from .abstract import AbstractCell
from .lstm import LSTMCell
from .scan import linear_scan, step

__all__ = ["AbstractCell", "LSTMCell", "linear_scan", "step"]
