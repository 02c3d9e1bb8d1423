"""Attach to a model, record what its recurrent modules do, and leave nothing behind."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import xarray as xr
from torch import nn

from .arguments import named_arguments
from .called import choices
from .labels import LabelSource, check_source
from .probe import Modules, Probe
from .storing import chosen


def attach(
    model: nn.Module,
    modules: Modules = None,
    *,
    signals: Sequence[str] | None = None,
    preactivations: bool = False,
    labels: LabelSource | None = None,
    lengths: Any = None,
    gradients: bool = False,
    jacobian: bool = False,
    statistics: bool = False,
    tolerance: float = 1e-4,
    store: str | os.PathLike[str] | None = None,
    append: bool = False,
    dtype: Literal["float16"] | None = None,
    stride: int = 1,
    every: int = 1,
    units: Sequence[int] | None = None,
    progress: int | None = None,
) -> Probe:
    """Record the gates and states of a model's recurrent modules while a `with` block runs.

    The modules keep running as they are, fused ones fused: outputs, gradients, random numbers and modes are those of
    a run without a probe. The gates of all steps are rebuilt from the model's own states and compared with them.

    Parameters
    ----------
    model
        Any `torch.nn.Module` with recurrent modules inside (`gatescope.modules(model)` lists them).
    modules
        Path or paths of those to record; all by default.
    signals
        Names of the signals to keep, such as `["forget_gate", "cell_state"]`; all by default.
    preactivations
        Also keep each squashed signal's value before its squasher, as `<name>_preactivation`.
    labels
        Mapping from a name to an array or nested list (sequence, time) in the order of the recording's sequences, laid
        on the finished recording; or a function `(args, kwargs) -> mapping` that is run on every call of the model and
        labels that call (its mapping may hold `lengths`). `Probe.annotate` labels a single call.
    lengths
        Real steps of each sequence of the recording, (sequence,), where an unpacked batch is padded.
    gradients
        Also record, when a backward pass inside the block reaches a call, the true gradient of what was
        differentiated at every state of every step, as `<state>_gradient`: through the recurrence and the layers
        above, where the gradient of a fused module's output is only the part that does not come back through time.
        Several backward passes add up.
    jacobian
        Also record `step_jacobian` (..., target_state, source_state), the derivative of the whole state after each step
        by that before it, states one after the other in the order of the cell's `states`. It is what `gradient_flow`
        needs of a cell that it does not know, and large: a square of the state's width for every step.
    statistics
        Keep no steps, but exact statistics of every unit, in memory that does not grow with the number of steps:
        saturation, histograms, mean and covariance, retention, resets, drift. `Probe.statistics()` returns them.
        Lengths of padded batches then come call by call (`Probe.annotate`, or a function as `labels`).
    tolerance
        Largest difference allowed between rebuilt and own states, relative to the largest |memory|. Half-precision
        models get 0.05 (bfloat16) or 0.01 (float16) at least; the recording's attribute `tolerance` says which.

    store
        Path of a folder `NAME.zarr` that the recording is written to as it comes, in bounded memory: every 16 MB or
        5 s, and when the block ends. `gatescope.open_recording` opens it at any time, also after the process was
        killed: with everything up to the last flush. Labels and lengths then come call by call. See docs/store.md.
    append
        Go on with the recording at `store`, which must be of the same model, weights and settings; begin it where
        there is none. Without it nothing may exist at the path.
    dtype
        `"float16"` stores signals in half the space, with three digits.
    stride, every
        Store every n-th step of a sequence; every n-th sequence. All are computed and certified.
    units
        Numbers of the units to store; all by default.
    progress
        Number of calls of the model that will come: shows a bar on a terminal.

    Returns
    -------
    Probe
        To be entered with `with`; afterwards `Probe.recording()` (or `Probe.statistics()`) is the Dataset.

    Raises
    ------
    ValueError
        If the model has no recurrent module, or a name is unknown. At the end of the block, if nothing was called, or
        labels or lengths fit none of the modules; the recordings are there all the same.
    TypeError
        If what is recurrent in the model cannot be seen (scripted, traced, exported or quantized modules).
    ParityError
        During the block, where rebuilt and own states differ.

    Examples
    --------
    >>> import torch
    >>> model = nn.LSTM(3, 5)
    >>> with attach(model) as probe:
    ...     output, _ = model(torch.zeros(7, 2, 3))
    >>> dict(probe.recording().forget_gate.sizes)
    {'layer': 1, 'direction': 1, 'sequence': 2, 'time': 7, 'unit': 5}
    """
    options = {"append": append, "dtype": dtype, "stride": stride, "every": every, "units": units, "progress": progress}
    if store is None and (given := [name for name, value in options.items() if value not in (None, False, 1)]):
        raise ValueError(f"{given[0]} must come with store=; store is None. Name a path, or leave {given[0]} out.")
    storing = None if store is None else chosen(store, **options)  # type: ignore[arg-type]
    return Probe(
        model,
        modules,
        signals=signals,
        preactivations=preactivations,
        labels=labels,
        lengths=lengths,
        gradients=gradients,
        jacobian=jacobian,
        statistics=statistics,
        tolerance=tolerance,
        storing=storing,
    )


def record(
    model: nn.Module,
    *inputs: Any,
    inputs_kwargs: Mapping[str, Any] | None = None,
    module: str | None = None,
    signals: Sequence[str] | None = None,
    preactivations: bool = False,
    labels: LabelSource | None = None,
    lengths: Any = None,
    jacobian: bool = False,
    tolerance: float = 1e-4,
) -> xr.Dataset:
    """Call a model once and return the recording of one of its recurrent modules.

    Parameters
    ----------
    model
        Any `torch.nn.Module`; it is called as `model(*inputs, **inputs_kwargs)`, in the mode it is in.
    module
        Path of the module to record; may be left out where there is one.
    signals, preactivations, labels, lengths, jacobian, tolerance
        As for `attach`; labels and lengths are those of this call.

    Returns
    -------
    xr.Dataset
        The recording, dims (layer, direction, sequence, time, unit).

    Raises
    ------
    ValueError, TypeError, ParityError
        As for `attach`; `ValueError` also where several modules were recorded and none is named.

    Examples
    --------
    >>> import torch
    >>> recording = record(nn.GRU(3, 5), torch.zeros(7, 2, 3))
    >>> recording.attrs["cell"], recording.sizes["time"]
    ('GRUCell', 7)
    """
    check_source(labels)
    probe = attach(
        model,
        module,
        signals=signals,
        preactivations=preactivations,
        labels=labels if callable(labels) else None,
        jacobian=jacobian,
        tolerance=tolerance,
    )
    named = named_arguments(inputs_kwargs)
    if module is None and len(probe.tracks) > 1:
        raise ValueError(f"module must be named where a model has several; none came. {choices(probe.tracks)}")
    with probe:
        if isinstance(labels, Mapping):
            probe.annotate(**labels)
        if lengths is not None:
            probe.annotate(lengths=lengths)
        model(*inputs, **named)
    return probe.recording()
