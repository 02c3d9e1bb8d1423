"""Measures of a recording: Dataset in, Dataset out."""

from .alignment import alignment
from .describe import describe
from .drift import drift
from .event_average import event_average
from .gradient_flow import gradient_flow
from .lyapunov import lyapunov
from .resets import resets
from .role_agreement import role_agreement
from .role_check import role_check
from .roles import roles
from .saturation import saturation
from .selectivity import selectivity
from .timescales import timescales
from .triggers import triggers

__all__ = [
    "alignment",
    "describe",
    "drift",
    "event_average",
    "gradient_flow",
    "lyapunov",
    "resets",
    "role_agreement",
    "role_check",
    "roles",
    "saturation",
    "selectivity",
    "timescales",
    "triggers",
]
