"""Pictures of recordings and of the measures' results, on matplotlib axes."""

from .drift import plot_drift
from .gradient_flow import plot_cell_path, plot_gradient_flow, plot_knockout, plot_path_share
from .lyapunov import plot_lyapunov
from .saturation import plot_saturation
from .selectivity import plot_selectivity
from .signal import plot_signal
from .timescales import plot_timescales
from .traces import plot_traces

__all__ = [
    "plot_cell_path",
    "plot_drift",
    "plot_gradient_flow",
    "plot_knockout",
    "plot_lyapunov",
    "plot_path_share",
    "plot_saturation",
    "plot_selectivity",
    "plot_signal",
    "plot_timescales",
    "plot_traces",
]
