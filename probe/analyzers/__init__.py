"""Measures of a recording: Dataset in, Dataset out."""

from .saturation import saturation

__all__ = ["saturation"]
