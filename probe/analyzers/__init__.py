"""Measures of a recording: Dataset in, Dataset out."""

from .drift import drift
from .saturation import saturation

__all__ = ["drift", "saturation"]
