"""Measures of a recording: Dataset in, Dataset out."""

from .drift import drift
from .gradient_flow import gradient_flow
from .saturation import saturation
from .selectivity import selectivity
from .timescales import timescales

__all__ = ["drift", "gradient_flow", "saturation", "selectivity", "timescales"]
