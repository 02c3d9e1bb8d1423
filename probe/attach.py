"""Attach to a model, record what its recurrent modules do, and leave nothing behind."""

import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch
import xarray as xr
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from .assemble import assemble
from .calls import observe
from .find import choose
from .labels import LabelSource, Misfit, check_lengths, check_name
from .rebuild import names, rebuild
from .schema import LABEL_DIMS
from .track import Chunk, Track, lay

Modules = str | Sequence[str] | None


def attach(
    model: nn.Module,
    modules: Modules = None,
    *,
    signals: Sequence[str] | None = None,
    preactivations: bool = False,
    labels: LabelSource | None = None,
    lengths: Any = None,
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
        If the model has no recurrent module, a name is unknown, or, at the end of the block, nothing was called.
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


class Frame(threading.local):
    """One call of the model in one thread: the labels given for it and what was recorded in it."""

    def __init__(self) -> None:
        self.depth = 0
        self.closed = False
        self.labels: dict[str, Any] = {}
        self.chunks: list[tuple[Track, Chunk]] = []
        self.random: dict[str, list[Tensor | None]] = {}


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
        tolerance: float = 1e-4,
    ) -> None:
        chosen = choose(model, modules if modules is None or isinstance(modules, str) else list(modules))
        if not tolerance > 0:
            raise ValueError(f"tolerance must be a number above 0; {tolerance!r} came. The default is 1e-4.")
        self.model = model
        self.tracks = {path: Track(observe(path, module)) for path, module in chosen.items()}
        self._signals = None if signals is None else _names(signals)
        self._preactivations = preactivations
        if isinstance(labels, Mapping):
            labels = dict(labels)
            lengths = labels.pop("lengths", lengths)
            for name in labels:
                check_name(name)
        self._labels, self._lengths, self._tolerance = labels, lengths, tolerance
        self._handles: list[RemovableHandle] = []
        self._frame = Frame()
        self._lock = threading.RLock()
        self._checked: set[str] = set()
        self._closed = False

    def __enter__(self) -> Self:
        if self._handles or self._closed:
            raise ValueError("a probe must be used in one with block; this one was entered before. Attach again.")
        try:
            self._hook()
        except BaseException:
            self._unhook()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._unhook()
        self._closed = True
        if kind is None and not any(track.chunks for track in self.tracks.values()):
            raise ValueError(
                f"the block must call at least one of {', '.join(map(repr, self.tracks))}; none was called through "
                "its module. Call the model inside the block."
            )

    def _hook(self) -> None:
        keep = self._handles.append
        keep(self.model.register_forward_pre_hook(self._open, prepend=True, with_kwargs=True))
        for path, track in self.tracks.items():
            module = track.observed.module

            def before(module: nn.Module, args: Any, kwargs: Any, path: str = path) -> None:
                self._before(path, module)

            def after(module: nn.Module, args: Any, kwargs: Any, output: Any, path: str = path) -> None:
                self._after(path, module, args, kwargs, output)

            keep(module.register_forward_pre_hook(before, with_kwargs=True))
            keep(module.register_forward_hook(after, prepend=True, with_kwargs=True))
        keep(self.model.register_forward_hook(self._close))
        keep(self.model.register_forward_hook(self._abandon, always_call=True))

    def _unhook(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _open(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if model is not self.model or self._closed:
            return
        self._frame.depth += 1
        if self._frame.depth == 1 and callable(self._labels):
            self.annotate(**dict(self._labels(args, kwargs)))

    def _before(self, path: str, module: nn.Module) -> None:
        track = self.tracks[path]
        if module is track.observed.module and not self._closed:
            self._frame.random.setdefault(path, []).append(track.observed.random_state())

    @torch.no_grad()
    def _after(self, path: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        track = self.tracks[path]
        if module is not track.observed.module or self._closed:
            return
        stack = self._frame.random.get(path, [])
        call = track.observed.read(args, kwargs, output, stack.pop() if stack else None)
        with torch.autocast(call.layers[0].hidden.device.type, enabled=False), self._lock:
            wanted = self._wanted(track)
            rebuilt, cells = rebuild(track.observed, call, wanted, self._tolerance, len(track.chunks))
            chunk = track.add(call, rebuilt, cells, module.training)
        self._frame.chunks.append((track, chunk))
        if self._frame.depth == 0:
            self._settle()

    def _close(self, model: nn.Module, args: Any, output: Any) -> None:
        if model is not self.model or self._closed:
            return
        self._frame.depth -= 1
        self._frame.closed = True
        if self._frame.depth == 0:
            self._settle()

    def _abandon(self, model: nn.Module, args: Any, output: Any) -> None:
        """After a call that ended in an error its labels must not reach the next one."""
        if model is not self.model or self._closed:
            return
        if not self._frame.closed:
            self._frame.depth -= 1
            self._frame.labels, self._frame.chunks, self._frame.random = {}, [], {}
        self._frame.closed = False

    def _wanted(self, track: Track) -> frozenset[str]:
        cells = track.observed.cells()
        offered = names(cells[0][0], self._preactivations or self._signals is not None)
        if self._signals is None:
            return frozenset(offered)
        unknown = [name for name in self._signals if name not in offered]
        if unknown and track.observed.path not in self._checked and not self._offered_elsewhere(unknown):
            raise ValueError(
                f"signals must be named as the cell names them; {', '.join(map(repr, unknown))} came for "
                f"{track.observed.path!r}. Choose from: {', '.join(offered)}."
            )
        self._checked.add(track.observed.path)
        return frozenset(self._signals) & frozenset(offered)

    def _offered_elsewhere(self, wanted: list[str]) -> bool:
        every = {n for track in self.tracks.values() for n in names(track.observed.cells()[0][0], True)}
        return all(name in every for name in wanted)

    def annotate(self, **labels: Any) -> None:
        """Label the steps of the next call of the model (in this thread).

        Parameters
        ----------
        **labels
            Name -> array or nested list (sequence, time) in the caller's order; a text stands for its characters.
            `lengths` (sequence,) marks the padding of an unpacked batch; `boundary` (booleans) is True at the first step
            of a segment.

        Raises
        ------
        ValueError
            If a name is one of the recording's own. After the call, if labels fit none of the modules that were called.
        """
        for name in labels:
            if name != "lengths":
                check_name(name)
        self._frame.labels |= labels

    def _settle(self) -> None:
        """Lay the labels of a finished call on what was recorded in it."""
        frame = self._frame
        labels, chunks = frame.labels, frame.chunks
        frame.labels, frame.chunks, frame.random = {}, [], {}
        if not labels or not chunks:
            return
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
            If the path is unknown, was not called, or is left out where several modules were; if labels or lengths
            given to `attach` do not fit.
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
        return xr.DataTree(
            children={path: xr.DataTree(self.recording(path)) for path, track in self.tracks.items() if track.chunks}
        )

    def choices(self) -> str:
        return f"Choose from: {', '.join(self.tracks)}."

    def _finish(self, track: Track) -> xr.Dataset:
        """Assemble, with the labels and lengths that were given for the whole recording."""
        if self._lengths is not None:
            track.trim(check_lengths(self._lengths, len(track.sequences.length), max(track.sequences.length)))
        recording = assemble(track)
        labels = self._labels if isinstance(self._labels, Mapping) else {}
        laid = {}
        for name, values in labels.items():
            try:
                laid[name] = track.fit(name, values)
            except Misfit:
                if not any(other.fits(name, values) for other in self.tracks.values() if other.chunks):
                    raise
                track.left_out.add(name)
        recording = recording.assign_coords({name: (LABEL_DIMS, values) for name, values in laid.items()})
        if track.left_out:
            recording.attrs["labels_left_out"] = ", ".join(sorted(track.left_out))
        return recording


def _names(signals: Sequence[str]) -> list[str]:
    if isinstance(signals, str) or not all(isinstance(name, str) for name in signals) or not signals:
        raise ValueError(f"signals must be a list of names; {signals!r} came. Give for instance ['forget_gate'].")
    return list(signals)
