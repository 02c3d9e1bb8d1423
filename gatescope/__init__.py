"""gatescope: see inside gated recurrent networks.

    import gatescope as gs

    recording = gs.record(model, batch)        # gates and memories as one labelled xarray.Dataset
    gs.plot_saturation(gs.saturation(recording))

Everything users need stands here and is loaded when it is first asked for: importing gatescope loads neither torch nor
xarray, and reading and analysing a recording never loads torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .signals import VERSION, Signal

if TYPE_CHECKING:
    from . import cells, tasks
    from .cells import (
        AbstractCell,
        BlockNetwork,
        GRUCell,
        LSTMCell,
        MemoryBlockCell,
        PeepholeLSTMCell,
        Recurrent,
        ResetBeforeGRUCell,
        RNNCell,
        from_torch,
        to_torch,
    )
    from .probe.ablation import ablation
    from .probe.analyzers.alignment import alignment
    from .probe.analyzers.describe import describe
    from .probe.analyzers.drift import drift
    from .probe.analyzers.event_average import event_average
    from .probe.analyzers.gradient_flow import gradient_flow
    from .probe.analyzers.lyapunov import lyapunov
    from .probe.analyzers.resets import resets
    from .probe.analyzers.role_agreement import role_agreement
    from .probe.analyzers.role_check import role_check
    from .probe.analyzers.roles import roles
    from .probe.analyzers.saturation import saturation
    from .probe.analyzers.selectivity import selectivity
    from .probe.analyzers.timescales import timescales
    from .probe.analyzers.triggers import triggers
    from .probe.attach import attach, record
    from .probe.attribution import attribution
    from .probe.attribution_target import unit
    from .probe.concat import concat
    from .probe.decomposition import contextual_decomposition
    from .probe.estimate import Estimate, estimate
    from .probe.find import modules, register
    from .probe.fixed_points import fixed_points
    from .probe.forget_bias import forget_bias, set_forget_bias
    from .probe.intervene import intervene
    from .probe.loss_gradient import loss_gradient
    from .probe.opened import opened
    from .probe.overview import open_overview
    from .probe.plots.ablation import plot_ablation
    from .probe.plots.alignment import figure_alignment, plot_alignment, plot_lags
    from .probe.plots.attribution import figure_attribution, plot_attribution
    from .probe.plots.decomposition import plot_decomposition
    from .probe.plots.drift import plot_drift
    from .probe.plots.event_average import plot_event_average
    from .probe.plots.fixed_points import plot_fixed_points
    from .probe.plots.gradient_flow import plot_cell_path, plot_gradient_flow, plot_knockout, plot_path_share
    from .probe.plots.lyapunov import plot_lyapunov
    from .probe.plots.resets import plot_resets
    from .probe.plots.role_check import plot_role_check
    from .probe.plots.roles import plot_roles
    from .probe.plots.saturation import plot_saturation
    from .probe.plots.selectivity import plot_selectivity
    from .probe.plots.signal import plot_signal
    from .probe.plots.timescales import plot_timescales
    from .probe.plots.traces import plot_traces
    from .probe.plots.triggers import plot_triggers
    from .probe.plots.unit import figure_unit
    from .probe.probe import Probe
    from .probe.rebuild import ParityError
    from .probe.replacement import resampled
    from .probe.schema import SchemaError, validate
    from .probe.store import open_recording, save_recording
    from .report_file import report
    from .tasks.examples import examples, load_example
    from .tasks.training import train

__version__ = VERSION

# What stands where. The imports above say the same to type checkers; a test holds the two together.
_HOMES = {
    "cells": (
        "AbstractCell",
        "BlockNetwork",
        "GRUCell",
        "LSTMCell",
        "MemoryBlockCell",
        "PeepholeLSTMCell",
        "RNNCell",
        "Recurrent",
        "ResetBeforeGRUCell",
        "from_torch",
        "to_torch",
    ),
    "probe.ablation": ("ablation",),
    "probe.analyzers.alignment": ("alignment",),
    "probe.analyzers.describe": ("describe",),
    "probe.analyzers.drift": ("drift",),
    "probe.analyzers.event_average": ("event_average",),
    "probe.analyzers.gradient_flow": ("gradient_flow",),
    "probe.analyzers.lyapunov": ("lyapunov",),
    "probe.analyzers.resets": ("resets",),
    "probe.analyzers.role_agreement": ("role_agreement",),
    "probe.analyzers.role_check": ("role_check",),
    "probe.analyzers.roles": ("roles",),
    "probe.analyzers.saturation": ("saturation",),
    "probe.analyzers.selectivity": ("selectivity",),
    "probe.analyzers.timescales": ("timescales",),
    "probe.analyzers.triggers": ("triggers",),
    "probe.attach": ("attach", "record"),
    "probe.attribution": ("attribution",),
    "probe.attribution_target": ("unit",),
    "probe.concat": ("concat",),
    "probe.decomposition": ("contextual_decomposition",),
    "probe.estimate": ("Estimate", "estimate"),
    "probe.find": ("modules", "register"),
    "probe.fixed_points": ("fixed_points",),
    "probe.forget_bias": ("forget_bias", "set_forget_bias"),
    "probe.intervene": ("intervene",),
    "probe.loss_gradient": ("loss_gradient",),
    "probe.opened": ("opened",),
    "probe.overview": ("open_overview",),
    "probe.plots.ablation": ("plot_ablation",),
    "probe.plots.alignment": ("figure_alignment", "plot_alignment", "plot_lags"),
    "probe.plots.attribution": ("figure_attribution", "plot_attribution"),
    "probe.plots.decomposition": ("plot_decomposition",),
    "probe.plots.drift": ("plot_drift",),
    "probe.plots.event_average": ("plot_event_average",),
    "probe.plots.fixed_points": ("plot_fixed_points",),
    "probe.plots.gradient_flow": ("plot_cell_path", "plot_gradient_flow", "plot_knockout", "plot_path_share"),
    "probe.plots.lyapunov": ("plot_lyapunov",),
    "probe.plots.resets": ("plot_resets",),
    "probe.plots.role_check": ("plot_role_check",),
    "probe.plots.roles": ("plot_roles",),
    "probe.plots.saturation": ("plot_saturation",),
    "probe.plots.selectivity": ("plot_selectivity",),
    "probe.plots.signal": ("plot_signal",),
    "probe.plots.timescales": ("plot_timescales",),
    "probe.plots.traces": ("plot_traces",),
    "probe.plots.triggers": ("plot_triggers",),
    "probe.plots.unit": ("figure_unit",),
    "probe.probe": ("Probe",),
    "probe.rebuild": ("ParityError",),
    "probe.replacement": ("resampled",),
    "probe.schema": ("SchemaError", "validate"),
    "probe.store": ("open_recording", "save_recording"),
    "report_file": ("report",),
    "tasks.examples": ("examples", "load_example"),
    "tasks.training": ("train",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AbstractCell",
    "BlockNetwork",
    "Estimate",
    "GRUCell",
    "LSTMCell",
    "MemoryBlockCell",
    "ParityError",
    "PeepholeLSTMCell",
    "Probe",
    "RNNCell",
    "Recurrent",
    "ResetBeforeGRUCell",
    "SchemaError",
    "Signal",
    "__version__",
    "ablation",
    "alignment",
    "attach",
    "attribution",
    "cells",
    "concat",
    "contextual_decomposition",
    "describe",
    "drift",
    "estimate",
    "event_average",
    "examples",
    "figure_alignment",
    "figure_attribution",
    "figure_unit",
    "fixed_points",
    "forget_bias",
    "from_torch",
    "gradient_flow",
    "intervene",
    "load_example",
    "loss_gradient",
    "lyapunov",
    "modules",
    "open_overview",
    "open_recording",
    "opened",
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
    "record",
    "register",
    "report",
    "resampled",
    "resets",
    "role_agreement",
    "role_check",
    "roles",
    "saturation",
    "save_recording",
    "selectivity",
    "set_forget_bias",
    "tasks",
    "timescales",
    "to_torch",
    "train",
    "triggers",
    "unit",
    "validate",
]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Load a public name from its home the first time it is asked for."""
        if name in ("cells", "tasks"):
            return import_module(f".{name}", __name__)
        if name not in _HOME_OF:
            from difflib import get_close_matches

            near = get_close_matches(name, __all__, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{hint}", name=name)
        value = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
        globals()[name] = value
        return value
