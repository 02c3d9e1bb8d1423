"""The probe: what it has taken of a model's calls, their labels, and the recordings that come of them."""

import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import xarray as xr
from torch import nn
from torch.utils.hooks import RemovableHandle

from .arrivals import await_gradients
from .called import called, require_calls, require_labelled, require_plain
from .dispatch import Kernel, refuse_transforms, unseen
from .find import choose
from .heard import signals_of_call
from .labels import LabelSource, check_name, check_source, labels_of
from .listening import Listening, Read
from .observe import observe
from .sink_of import Asked, sink_of
from .step_jacobian import add_step_jacobians, check_jacobian
from .storing import Storing
from .track import Chunk, Track, lay
from .wanted import check_tolerance, choose_signals

Modules = str | Sequence[str] | None


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
        jacobian: bool = False,
        statistics: bool = False,
        storing: Storing | None = None,
        tolerance: float = 1e-4,
    ) -> None:
        tracks = {path: Track(observe(path, module)) for path, module in choose(model, modules).items()}
        check_tolerance(tolerance)
        check_source(labels)
        check_jacobian(jacobian, statistics=statistics, stored=storing is not None)
        self._wanted = choose_signals(tracks, signals, preactivations)
        self.model = model
        self.tracks = {path: track for path, track in tracks.items() if self._wanted[path]}
        self._taken = frozenset(name for track in tracks.values() for name in track.offered)
        if isinstance(labels, Mapping):
            labels = dict(labels)
            lengths = labels.pop("lengths", lengths)
            for name in labels:
                check_name(name, self._taken)
        self._labels, self._tolerance, self._gradients, self._jacobian = labels, tolerance, gradients, jacobian
        self._sink = sink_of(
            self.tracks,
            self._wanted,
            Asked(labels, lengths, signals is None, preactivations, gradients, statistics),
            storing,
        )
        self._awaiting: list[RemovableHandle] = []
        observed = {path: track.observed for path, track in self.tracks.items()}
        self._listening = Listening(model, observed, self._take, self._open, self._settle)
        self._lock = threading.RLock()
        self._entered = False

    def __enter__(self) -> Self:
        if self._entered:
            raise ValueError("a probe must be used in one with block; this one was entered before. Attach again.")
        self._entered = True
        self._sink.start()
        try:
            self._listening.start()
        except BaseException:
            self._finish(failed=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._listening.stop()
        while self._awaiting:
            self._awaiting.pop().remove()
        if kind is None:
            self._listening.settle()
        with self._lock:
            self._finish(failed=kind is not None)
        if kind is None:
            require_calls(self.tracks)
            require_labelled(self._listening.calls.labels)
            self._sink.check()

    def _finish(self, *, failed: bool) -> None:
        """Finish what is kept; where the block has failed, its own error is the one to be seen."""
        try:
            self._sink.finish()
        except (OSError, ValueError):
            if not failed:
                raise

    def _open(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Label a call of the model that begins, where labels are a function of its inputs."""
        if not callable(self._labels):
            return
        self.annotate(**labels_of(self._labels, args, kwargs))

    def _take(self, path: str, kernel: Kernel | None, read: Read) -> None:
        """Read, rebuild, certify and keep one call."""
        refuse_transforms(path)
        chunk = unseen(lambda: self._keep(path, kernel, read))
        self._listening.calls.chunks.append((self.tracks[path], chunk))
        if not self._listening.within_model:
            self._settle()

    def _keep(self, path: str, kernel: Kernel | None, read: Read) -> Chunk:
        track = self.tracks[path]
        with self._lock:
            track.observed.used = None if kernel is None else kernel.weights
            call = read(track.observed)
            wanted = needed = self._wanted[path]
            if self._jacobian:
                needed = wanted | frozenset(track.observed.kind.states)
            rebuilt, cells = signals_of_call(track.observed, call, needed, self._tolerance, track.count)
            if call.heard is not None and call.heard.changed:
                self._require_unchanged(path)
                track.intervened = True
            if self._jacobian:
                add_step_jacobians(call, cells, rebuilt, wanted)
            chunk = track.add(call, rebuilt, cells, track.observed.module.training)
            handle = await_gradients(call, cells, rebuilt) if self._gradients else None
            self._awaiting += [] if handle is None else [handle]
            self._sink.take(path, chunk)
        return chunk

    def _require_unchanged(self, path: str) -> None:
        """Raise where a derivative is wanted that the cell's equations alone do not give."""
        for name, asked in (("gradients", self._gradients), ("jacobian", self._jacobian)):
            if asked:
                raise ValueError(
                    f"{name}=True needs signals that follow from the equations; an intervention has changed those of "
                    f"{path!r}. Record them without it, or take gradients by autograd inside gs.intervene."
                )

    def annotate(self, /, **labels: Any) -> None:
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
        self._listening.calls.drop_unfinished()
        self._listening.calls.labels |= labels

    def _settle(self) -> None:
        """Lay the labels of a finished call on what was recorded in it, which is final from then on."""
        labels, chunks = self._listening.calls.take()
        with self._lock:
            try:
                if labels and chunks:
                    lay(labels, chunks)
            finally:
                unseen(self._sink.settle)

    def flush(self, *, sync: bool = False) -> None:
        """Write all calls that have ended to the store, so that they outlive this process.

        Parameters
        ----------
        sync
            Also wait until the disk has them, so that they outlive a power cut.

        Raises
        ------
        ValueError
            If the probe was attached without `store=`.
        OSError
            If the disk is full; what was flushed before can be read.
        """
        with self._lock:
            self._settle_failed()
            unseen(lambda: self._sink.flush(sync=sync))

    def _settle_failed(self) -> None:
        """Calls that a call of the model has left which failed are final too."""
        if not self._listening.calls.chunks:
            unseen(self._sink.settle)

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
            If the path is unknown, was not called, or is left out where several modules were; if the probe keeps
            statistics in the place of steps.
        """
        self._sink.require_steps()
        module = called(self.tracks, module)
        with self._lock:
            recording = self._sink.recordings([module])[module]
        warn_of(module, recording)
        return recording

    def statistics(self, module: str | None = None) -> xr.Dataset:
        """What `attach(..., statistics=True)` has gathered of one module: exact, though no step was kept.

        The numbers are those that one computes from the full recording. Padding counts for nothing, and neither does
        what is not finite (attribute `nonfinite` says how much that was).

        Parameters
        ----------
        module
            Its path; may be left out where one module was called.

        Returns
        -------
        xr.Dataset
            All that `gatescope.saturation` returns, with its dims and thresholds. Further over (layer, direction, unit)
            and the dims named:

            - `histogram` (signal, ..., bin): steps in each of 50 equal parts of a bounded signal's range; `bin` is the
              part's middle as a fraction of the range. `magnitude_histogram` (unbounded, ..., sign, magnitude): the
              same for signals without bounds, by sign (0 lies at 1) and by magnitude in quarters of powers of ten.
            - `memory_mean`, `memory_covariance` (..., other_unit; sums of products over steps - 1) of the memory that
              the attribute `memory` names, over the `memory_steps` on which all units are finite.
            - `retention_mean`; `retention_mean_log` over the steps on which the retention is above 0;
              `retention_timescale` = -1 / mean log, in steps: e-folding time of the memory, infinite where nothing is
              lost; `retention_timescale_of_mean` = -1 / log mean; `retention_zeros`, steps of exactly 0.
            - `resets`: falls of the retention from above 0.9 to below 0.1, in the order of computation, however many
              steps lie between; a fall never reaches over the start of a sequence.
            - `drift_slope` and `drift_standard_error`, per step: least-squares slope of |memory| over the step within
              its sequence (for the backward direction, counted from the sequence's end), one line through the steps
              of all sequences. The error is that for independent residuals; neighbouring steps are not, so take it
              for a lower bound.

        Raises
        ------
        ValueError
            If the path is unknown, was not called, or is left out where several modules were; if the probe was attached
            without `statistics=True`.
        """
        self._sink.require_statistics()
        module = called(self.tracks, module)
        with self._lock:
            self._settle_failed()
            result = self._sink.statistics(module)
        if result is None:
            raise ValueError(f"{module!r} must have ended its call; it is still in its first one. Ask after it.")
        warn_of(module, result)
        return result

    def tree(self) -> xr.DataTree:
        """All recordings: an empty root and one node per module that was called, named by its path."""
        self._sink.require_steps()
        require_calls(self.tracks)
        paths = [path for path, track in self.tracks.items() if track.count]
        require_plain(paths)
        with self._lock:
            recordings = self._sink.recordings(paths)
        for path, recording in recordings.items():
            warn_of(path, recording)
        return xr.DataTree(children={path: xr.DataTree(recording) for path, recording in recordings.items()})


def warn_of(module: str, result: xr.Dataset) -> None:
    """Say to the caller of a probe's method what was not finite."""
    if "nonfinite" in result.attrs:
        warnings.warn(f"{module!r} computed {result.attrs['nonfinite']}.", RuntimeWarning, stacklevel=3)
