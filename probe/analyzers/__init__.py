"""Measures of a recording: Dataset in, Dataset out."""

from .drift import drift
from .saturation import saturation
from .selectivity import selectivity

__all__ = ["drift", "saturation", "selectivity"]
