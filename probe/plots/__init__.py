"""Pictures of recordings and of the measures' results, on matplotlib axes."""

from .ablation import plot_ablation
from .alignment import figure_alignment, plot_alignment, plot_lags
from .attribution import figure_attribution, plot_attribution
from .decomposition import plot_decomposition
from .drift import plot_drift
from .event_average import plot_event_average
from .fixed_points import plot_fixed_points
from .gradient_flow import plot_cell_path, plot_gradient_flow, plot_knockout, plot_path_share
from .lyapunov import plot_lyapunov
from .resets import plot_resets
from .role_check import plot_role_check
from .roles import plot_roles
from .saturation import plot_saturation
from .selectivity import plot_selectivity
from .signal import plot_signal
from .timescales import plot_timescales
from .traces import plot_traces
from .triggers import plot_triggers
from .unit import figure_unit

__all__ = [
    "figure_alignment",
    "figure_attribution",
    "figure_unit",
    "plot_ablation",
    "plot_alignment",
    "plot_attribution",
    "plot_cell_path",
    "plot_decomposition",
    "plot_drift",
    "plot_event_average",
    "plot_fixed_points",
    "plot_gradient_flow",
    "plot_knockout",
    "plot_lags",
    "plot_lyapunov",
    "plot_path_share",
    "plot_resets",
    "plot_role_check",
    "plot_roles",
    "plot_saturation",
    "plot_selectivity",
    "plot_signal",
    "plot_timescales",
    "plot_traces",
    "plot_triggers",
]
