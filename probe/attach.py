"""Attach to a model, record what its recurrent modules do, and leave nothing behind."""

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Real
from typing import Any, Self

import torch
import xarray as xr
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..signals import PREACTIVATION
from .arrivals import GRADIENT, await_gradients
from .assemble import assemble
from .calls import Call, Observed
from .dispatch import Dispatcher, Kernel, hears, listen, refuse_transforms, unlisten
from .find import choose
from .hooks import Bracket, Calls, Hook, running
from .labels import LabelSource, Misfit, check_name, check_source
from .observe import observe
from .rebuild import rebuild
from .schema import LABEL_DIMS
from .track import Array, Track, lay

Modules = str | Sequence[str] | None


def attach(
    model: nn.Module,
    modules: Modules = None,
    *,
    signals: Sequence[str] | None = None,
    preactivations: bool = False,
    labels: LabelSource | None = None,
    lengths: Any = None,
    gradients: bool = False,
    tolerance: float = 1e-4,
) -> "Probe":
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
    tolerance
        Largest difference allowed between rebuilt and own states, relative to the largest |memory|. Half-precision
        models get 0.05 (bfloat16) or 0.01 (float16) at least; the recording's attribute `tolerance` says which.

    Returns
    -------
    Probe
        To be entered with `with`; afterwards `Probe.recording()` is the Dataset.

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
    >>> model = nn.LSTM(3, 5)
    >>> with attach(model) as probe:
    ...     output, _ = model(torch.zeros(7, 2, 3))
    >>> dict(probe.recording().forget_gate.sizes)
    {'layer': 1, 'direction': 1, 'sequence': 2, 'time': 7, 'unit': 5}
    """
    return Probe(
        model,
        modules,
        signals=signals,
        preactivations=preactivations,
        labels=labels,
        lengths=lengths,
        gradients=gradients,
        tolerance=tolerance,
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
    tolerance: float = 1e-4,
) -> xr.Dataset:
    """Call a model once and return the recording of one of its recurrent modules.

    Parameters
    ----------
    model
        Any `torch.nn.Module`; it is called as `model(*inputs, **inputs_kwargs)`, in the mode it is in.
    module
        Path of the module to record; may be left out where there is one.
    signals, preactivations, labels, lengths, tolerance
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
        tolerance=tolerance,
    )
    if module is None and len(probe.tracks) > 1:
        raise ValueError(f"module must be named where a model has several; none came. {probe.choices()}")
    with probe:
        if isinstance(labels, Mapping):
            probe.annotate(**labels)
        if lengths is not None:
            probe.annotate(lengths=lengths)
        model(*inputs, **dict(inputs_kwargs or {}))
    return probe.recording()


class Probe:
    """What `attach` returns: records while its `with` block runs and hands out the recordings.

    Attributes
    ----------
    tracks : dict from module path to what was seen of it.
    """

    def __init__(
        self,
        model: nn.Module,
        modules: Modules = None,
        *,
        signals: Sequence[str] | None = None,
        preactivations: bool = False,
        labels: LabelSource | None = None,
        lengths: Any = None,
        gradients: bool = False,
        tolerance: float = 1e-4,
    ) -> None:
        tracks = {path: Track(observe(path, module)) for path, module in choose(model, modules).items()}
        if not (isinstance(tolerance, Real) and tolerance > 0):
            raise ValueError(f"tolerance must be a number above 0; {tolerance!r} came. The default is 1e-4.")
        check_source(labels)
        self._wanted = choose_signals(tracks, signals, preactivations)
        self.model = model
        self.tracks = {path: track for path, track in tracks.items() if self._wanted[path]}
        self._taken = frozenset(name for track in tracks.values() for name in track.offered)
        if isinstance(labels, Mapping):
            labels = dict(labels)
            lengths = labels.pop("lengths", lengths)
            for name in labels:
                check_name(name, self._taken)
        self._labels, self._lengths, self._tolerance = labels, lengths, tolerance
        self._gradients, self._all = gradients, signals is None
        self._awaiting: list[RemovableHandle] = []
        self._hooks: list[tuple[Hook, RemovableHandle]] = []
        self._dispatcher: Dispatcher | None = None
        self._calls = Calls(model)
        self._lock = threading.RLock()
        self._closed = False

    def __enter__(self) -> Self:
        if self._hooks or self._closed:
            raise ValueError("a probe must be used in one with block; this one was entered before. Attach again.")
        try:
            self._hook()
            self._dispatcher = listen(self)
        except BaseException:
            self._unhook()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._unhook()
        self._closed = True
        if kind is None:
            self._settle_waiting()
            self._require_calls()
            self._check_whole()
            self._require_gradients()

    def _hook(self) -> None:
        model = self.model
        self._keep(model, self._open, model.register_forward_pre_hook, prepend=True, with_kwargs=True)
        for path, track in self.tracks.items():
            module = track.observed.module
            self._keep(module, partial(self._before, path), module.register_forward_pre_hook, with_kwargs=True)
            self._keep(module, partial(self._after, path), module.register_forward_hook, prepend=True, with_kwargs=True)
        self._keep(model, self._close, model.register_forward_hook)

    def _keep(
        self, module: nn.Module, act: Callable[..., None], register: Callable[..., RemovableHandle], **how: bool
    ) -> None:
        hook = Hook(module, act)
        self._hooks.append((hook, register(hook, **how)))

    def _unhook(self) -> None:
        if self._dispatcher is not None:
            unlisten(self, self._dispatcher)
        while self._awaiting:
            self._awaiting.pop().remove()
        while self._hooks:
            hook, handle = self._hooks.pop()
            hook.act = None  # another thread may be about to call it
            handle.remove()

    def _open(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._calls.begin() and callable(self._labels):
            labels = self._labels(args, kwargs)
            if not isinstance(labels, Mapping):
                raise TypeError(
                    f"labels must be a mapping from names to arrays; the function gave {type(labels).__name__}. "
                    "Return for instance {'token': tokens}."
                )
            self.annotate(**labels)

    def _before(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        observed = self.tracks[path].observed
        told = observed.runs_kernels and hears(self)  # then the kernel says in which state it found the generator
        self._calls.enter(path, None if told else observed.random_state())

    def _after(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        track, bracket = self.tracks[path], self._calls.leave(path)
        self._settle_waiting()
        if bracket.recorded:
            return
        kernel = bracket.kernel
        random = bracket.random if kernel is None else kernel.random
        self._take(track, kernel, lambda observed: observed.read(args, kwargs, output, random))

    def hear(self, kernel: Kernel) -> None:
        """A kernel has run: within a call of its module it says which weights were used, elsewhere it is the call."""
        if self._closed:  # in another thread
            return
        self._settle_waiting()
        track, bracket = self._owner(kernel)
        if track is None:
            return
        if bracket is not None and track.observed.plain:
            bracket.kernel = kernel
            return
        if bracket is not None:
            bracket.recorded = True
        if kernel.batch_sizes is None:
            self._take_kernel(track, kernel, None)
        else:
            self._calls.waiting = (track, kernel)

    def hear_order(self, tensor: Tensor, order: Tensor) -> None:
        """The last states of a packed call go back into the caller's order; so do the rows of its recording."""
        waiting = self._calls.waiting
        if waiting is not None and tensor is waiting[1].last:
            self._calls.waiting = None
            self._take_kernel(*waiting, order)

    def _owner(self, kernel: Kernel) -> tuple[Track | None, Bracket | None]:
        """Whose weights a kernel has used, and the call in which it ran."""
        going_on = self._calls.innermost()
        for path in (*going_on, *(path for path in self.tracks if path not in going_on)):
            observed = self.tracks[path].observed
            if observed.runs(kernel) or (path in going_on and observed.plain and observed.fits(kernel)):
                return self.tracks[path], going_on.get(path)
        return None, None

    def _settle_waiting(self) -> None:
        """A packed call whose rows were not put into another order was made in the order in which it ran."""
        waiting, self._calls.waiting = self._calls.waiting, None
        if waiting is not None:
            self._take_kernel(*waiting, None)

    def _take_kernel(self, track: Track, kernel: Kernel, order: Tensor | None) -> None:
        self._take(track, kernel, lambda observed: observed.read_kernel(kernel, order))

    def _take(self, track: Track, kernel: Kernel | None, read: Callable[[Observed], Call]) -> None:
        """Read, rebuild, certify and keep one call; modes and tensor subclasses of the caller do not see it."""
        refuse_transforms(track.observed.path)
        with torch._C.DisableTorchFunction(), torch.no_grad(), self._lock:
            track.observed.use(None if kernel is None else kernel.weights)
            call = read(track.observed)
            wanted = self._wanted[track.observed.path]
            rebuilt, cells = rebuild(track.observed, call, wanted, self._tolerance, len(track.chunks))
            chunk = track.add(call, rebuilt, cells, track.observed.module.training)
            if self._gradients:
                handle = await_gradients(call, cells, rebuilt)
                self._awaiting += [] if handle is None else [handle]
        self._calls.chunks.append((track, chunk))
        if not (self._calls.busy and running(self.model)):  # called without its model
            self._settle()

    def _close(self, args: tuple[Any, ...], output: Any) -> None:
        if self._calls.is_outermost():
            self._settle()

    def annotate(self, **labels: Any) -> None:
        """Label the steps of the next call of the model (in this thread).

        Parameters
        ----------
        **labels
            Name -> array or nested list (sequence, time) in the caller's order; a text stands for its characters.
            `lengths` (sequence,) marks the padding of an unpacked batch; `boundary` (booleans) is True at the first
            step of a segment.

        Raises
        ------
        ValueError
            If a name is one of the recording's own. After the call, if labels fit none of the modules that were called.
        """
        for name in labels:
            if name != "lengths":
                check_name(name, self._taken)
        self._calls.drop_unfinished()
        self._calls.labels |= labels

    def _settle(self) -> None:
        """Lay the labels of a finished call on what was recorded in it."""
        labels, chunks = self._calls.take()
        if labels and chunks:
            with self._lock:
                lay(labels, chunks)

    def recording(self, module: str | None = None) -> xr.Dataset:
        """The recording of one module.

        Parameters
        ----------
        module
            Its path; may be left out where one module was called.

        Returns
        -------
        xr.Dataset
            Dims (layer, direction, sequence, time, unit); see docs/recording.md.

        Raises
        ------
        ValueError
            If the path is unknown, was not called, or is left out where several modules were.
        """
        called = [path for path, track in self.tracks.items() if track.chunks]
        if module is None and len(called) == 1:
            module = called[0]
        if module not in self.tracks:
            came = "none came" if module is None else f"{module!r} came"
            raise ValueError(f"module must be one of those recorded; {came}. {self.choices()}")
        track = self.tracks[module]
        if not track.chunks:
            raise ValueError(
                f"{module!r} must be called inside the block; it saw no call. "
                f"Those that did: {', '.join(called) or 'none'}."
            )
        with self._lock:
            recording = self._finish(track)
        if "nonfinite" in recording.attrs:
            warnings.warn(f"{module!r} computed {recording.attrs['nonfinite']}.", RuntimeWarning, stacklevel=2)
        return recording

    def tree(self) -> xr.DataTree:
        """All recordings: an empty root and one node per module that was called, named by its path."""
        self._require_calls()
        return xr.DataTree(
            children={path: xr.DataTree(self.recording(path)) for path, track in self.tracks.items() if track.chunks}
        )

    def choices(self) -> str:
        return f"Choose from: {', '.join(self.tracks)}."

    def _require_calls(self) -> None:
        if not any(track.chunks for track in self.tracks.values()):
            raise ValueError(
                f"the block must call at least one of {', '.join(map(repr, self.tracks))}; none was called through "
                "its module. Call the model inside the block."
            )

    def _require_gradients(self) -> None:
        chunks = [chunk for track in self.tracks.values() for chunk in track.chunks]
        if self._gradients and not any(name.endswith(GRADIENT) for chunk in chunks for name in chunk.rebuilt.signals):
            raise ValueError(
                f"gradients=True needs a backward pass inside the block that reaches {', '.join(map(repr, self.tracks))}; "
                "none did. Call backward() on a loss before the block ends, with gradients enabled."
            )

    def _finish(self, track: Track) -> xr.Dataset:
        """Assemble, with those labels and lengths for the whole recording that fit this module."""
        laid, misfits = self._lay_whole(track)
        recording = assemble(track, sums=self._all).assign_coords({name: (LABEL_DIMS, values) for name, values in laid.items()})
        left_out = track.left_out | misfits.keys()
        if left_out:
            recording.attrs["labels_left_out"] = ", ".join(sorted(left_out))
        return recording

    def _lay_whole(self, track: Track) -> tuple[dict[str, Array], dict[str, ValueError]]:
        """What was given to `attach` for the whole recording: the labels that fit, and why the rest does not."""
        laid: dict[str, Array] = {}
        misfits: dict[str, ValueError] = {}
        if self._lengths is not None:
            try:
                track.trim(self._lengths)
            except Misfit as misfit:
                misfits["lengths"] = misfit
        for name, values in self._labels.items() if isinstance(self._labels, Mapping) else ():
            try:
                laid[name] = track.fit(name, values)
            except ValueError as misfit:
                misfits[name] = misfit
        return laid, misfits

    def _check_whole(self) -> None:
        """Raise where labels or lengths for the whole recording fit none of the modules that were called."""
        first, *others = (self._lay_whole(track)[1] for track in self.tracks.values() if track.chunks)
        for name, misfit in first.items():
            if all(name in other for other in others):
                raise misfit


def choose_signals(
    tracks: Mapping[str, Track], signals: Sequence[str] | None, preactivations: bool
) -> dict[str, frozenset[str]]:
    """Path -> names of the signals to keep of that module."""
    if signals is None:
        return {
            path: frozenset(name for name in track.offered if preactivations or not name.endswith(PREACTIVATION))
            for path, track in tracks.items()
        }
    if isinstance(signals, str) or not signals or not all(isinstance(name, str) for name in signals):
        raise ValueError(f"signals must be a list of names; {signals!r} came. Give for instance ['forget_gate'].")
    offered = dict.fromkeys(name for track in tracks.values() for name in track.offered)
    unknown = [name for name in signals if name not in offered]
    if unknown:
        raise ValueError(
            f"signals must be named as the cells name them; {', '.join(map(repr, unknown))} came. "
            f"Choose from: {', '.join(offered)}."
        )
    return {path: frozenset(signals) & frozenset(track.offered) for path, track in tracks.items()}
