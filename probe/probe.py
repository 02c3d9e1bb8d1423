"""The probe: what it has taken of a model's calls, their labels, and the recordings that come of them."""

import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import xarray as xr
from torch import nn
from torch.utils.hooks import RemovableHandle

from ..signals import PREACTIVATION
from .arrivals import GRADIENT, await_gradients
from .assemble import assemble
from .dispatch import Kernel, refuse_transforms, unseen
from .find import choose
from .folding import Folding, check_folded
from .labels import LabelSource, MisfitError, check_name, check_source
from .listening import Listening, Read
from .observe import observe
from .rebuild import rebuild
from .schema import LABEL_DIMS
from .storing import Storing, check_stored
from .streaming import Stream
from .track import Array, Chunk, Track, lay

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
        statistics: bool = False,
        storing: Storing | None = None,
        tolerance: float = 1e-4,
    ) -> None:
        tracks = {path: Track(observe(path, module)) for path, module in choose(model, modules).items()}
        if not (isinstance(tolerance, (int, float)) and tolerance > 0):
            raise ValueError(f"tolerance must be a number above 0; {tolerance!r} came. The default is 1e-4.")
        check_source(labels)
        if storing is not None:
            check_stored(labels, lengths, gradients=gradients, statistics=statistics)
        if statistics:
            check_folded(labels, lengths, preactivations=preactivations, gradients=gradients)
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
        self._foldings = {path: Folding(track) for path, track in self.tracks.items()} if statistics else {}
        self._stream: Stream | None = None
        if storing is not None:
            self._stream = Stream(storing, self.tracks, self._wanted, sums=self._all)
        self._awaiting: list[RemovableHandle] = []
        observed = {path: track.observed for path, track in self.tracks.items()}
        self._listening = Listening(model, observed, self._take, self._open, self._settle)
        self._lock = threading.RLock()
        self._entered = False

    def __enter__(self) -> Self:
        if self._entered:
            raise ValueError("a probe must be used in one with block; this one was entered before. Attach again.")
        self._entered = True
        if self._stream is not None:
            self._stream.start()
        try:
            self._listening.start()
        except BaseException:
            self._finish_stream(failed=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._listening.stop()
        while self._awaiting:
            self._awaiting.pop().remove()
        if kind is None:
            self._listening.settle()
        with self._lock:
            for folding in self._foldings.values():
                folding.fold(every_thread=True)
            self._finish_stream(failed=kind is not None)
        if kind is None:
            self._require_calls()
            self._require_labelled()
            self._check_whole()
            self._require_gradients()

    def _finish_stream(self, *, failed: bool) -> None:
        """Finish what is written; where the block has failed, its own error is the one to be seen."""
        if self._stream is None:
            return
        try:
            self._stream.finish()
        except (OSError, ValueError):
            if not failed:
                raise

    def _open(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Label a call of the model that begins, where labels are a function of its inputs."""
        if not callable(self._labels):
            return
        labels = self._labels(args, kwargs)
        if not isinstance(labels, Mapping):
            raise TypeError(
                f"labels must be a mapping from names to arrays; the function gave {type(labels).__name__}. "
                "Return for instance {'token': tokens}."
            )
        check_source(labels)
        self.annotate(**labels)

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
            rebuilt, cells = rebuild(track.observed, call, self._wanted[path], self._tolerance, track.count)
            chunk = track.add(call, rebuilt, cells, track.observed.module.training)
            handle = await_gradients(call, cells, rebuilt) if self._gradients else None
            self._awaiting += [] if handle is None else [handle]
            if self._foldings:
                self._foldings[path].wait(chunk)
            if self._stream is not None:
                self._stream.wait(path, chunk)
        return chunk

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
                for folding in self._foldings.values():
                    folding.fold()
                if self._stream is not None:
                    self._stream.settle()

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
        if self._stream is None:
            raise ValueError("flush() needs a probe that writes; this one keeps its recording. Attach with store=.")
        with self._lock:
            if not self._listening.calls.chunks:
                self._stream.settle()
            self._stream.flush(sync=sync)

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
        self._require_steps()
        module = self._called(module)
        with self._lock:
            stream = self._stream
            recording = self._finish(self.tracks[module]) if stream is None else stream.open()[module]
        if "nonfinite" in recording.attrs:
            warnings.warn(f"{module!r} computed {recording.attrs['nonfinite']}.", RuntimeWarning, stacklevel=2)
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
        if not self._foldings:
            raise ValueError(
                "statistics() needs a probe that gathers them; this one keeps the steps. Use its recording(), or "
                "attach(model, statistics=True)."
            )
        module = self._called(module)
        with self._lock:
            if not self._listening.calls.chunks:
                self._foldings[module].fold()  # what a call that failed has left
            result = self._foldings[module].result()
        if result is None:
            raise ValueError(f"{module!r} must have ended its call; it is still in its first one. Ask after it.")
        if "nonfinite" in result.attrs:
            warnings.warn(f"{module!r} computed {result.attrs['nonfinite']}.", RuntimeWarning, stacklevel=2)
        return result

    def _called(self, module: str | None) -> str:
        """The module that is meant, which must have been called."""
        called = [path for path, track in self.tracks.items() if track.count]
        if not called:
            self._require_calls()
        if module is None and len(called) == 1:
            module = called[0]
        if module is None or module not in self.tracks:
            came = "none came" if module is None else f"{module!r} came"
            raise ValueError(f"module must be one of those recorded; {came}. {self.choices()}")
        if module not in called:
            raise ValueError(
                f"{module!r} must be called inside the block; it saw no call. "
                f"Those that did: {', '.join(called) or 'none'}."
            )
        return module

    def _require_steps(self) -> None:
        if self._foldings:
            raise ValueError(
                "a recording needs every step; a probe with statistics=True keeps none. Call statistics() in its "
                "place, or attach without statistics=True."
            )

    def tree(self) -> xr.DataTree:
        """All recordings: an empty root and one node per module that was called, named by its path."""
        self._require_steps()
        self._require_calls()
        slashed = next((path for path, track in self.tracks.items() if track.count and "/" in path), None)
        if slashed is not None:
            raise ValueError(
                f"a tree's nodes must have names without '/'; the module {slashed!r} came. "
                f"Take it alone, with recording({slashed!r})."
            )
        if self._stream is not None:
            with self._lock:
                opened = self._stream.open()
            return xr.DataTree(children={path: xr.DataTree(recording) for path, recording in opened.items()})
        return xr.DataTree(
            children={path: xr.DataTree(self.recording(path)) for path, track in self.tracks.items() if track.count}
        )

    def choices(self) -> str:
        return f"Choose from: {', '.join(self.tracks)}."

    def _require_calls(self) -> None:
        if not any(track.count for track in self.tracks.values()):
            raise ValueError(
                f"the block must call at least one of {', '.join(map(repr, self.tracks))}; none was called through "
                "its module. Call the model inside the block."
            )

    def _require_labelled(self) -> None:
        """Raise where labels came after the last call."""
        waiting = self._listening.calls.labels
        if waiting:
            raise ValueError(
                f"annotate() must come before the call that it labels; {', '.join(map(repr, waiting))} reached no "
                "call. Annotate first, then call the model."
            )

    def _require_gradients(self) -> None:
        chunks = [chunk for track in self.tracks.values() for chunk in track.chunks]
        if self._gradients and not any(name.endswith(GRADIENT) for chunk in chunks for name in chunk.rebuilt.signals):
            raise ValueError(
                "gradients=True needs a backward pass inside the block that reaches "
                f"{', '.join(map(repr, self.tracks))}; none did. Call backward() on a loss before the block ends, with "
                "gradients enabled."
            )

    def _finish(self, track: Track) -> xr.Dataset:
        """Assemble, with those labels and lengths for the whole recording that fit this module."""
        laid, misfits = self._lay_whole(track)
        recording = assemble(track, sums=self._all).assign_coords(
            {name: (LABEL_DIMS, values) for name, values in laid.items()}
        )
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
            except MisfitError as misfit:
                misfits["lengths"] = misfit
        for name, values in self._labels.items() if isinstance(self._labels, Mapping) else ():
            try:
                laid[name] = track.fit(name, values)
            except ValueError as misfit:
                misfits[name] = misfit
        return laid, misfits

    def _check_whole(self) -> None:
        """Raise where labels or lengths for the whole recording fit none of the modules that were called."""
        first, *others = (self._lay_whole(track)[1] for track in self.tracks.values() if track.count)
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
