"""Where the calls of a probe go: into memory, into statistics, or to disk. One sink for each, with these methods."""

from collections.abc import Sequence

import xarray as xr

from .track import Chunk


class Sink:
    """Takes every call of every module, in its order. All methods are called under the probe's lock."""

    def start(self) -> None:
        """The block begins."""

    def take(self, path: str, chunk: Chunk) -> None:
        """A call has been recorded; its labels and lengths may still come."""
        raise NotImplementedError

    def settle(self) -> None:
        """The calls that this thread has made so far are final."""

    def finish(self) -> None:
        """The block has ended; so have the calls of all threads."""

    def check(self) -> None:
        """Raise where the block ended well and something that was asked for did not come."""

    def flush(self, *, sync: bool) -> None:
        """Put all final calls where they outlive the process."""
        raise ValueError("flush() needs a probe that writes; this one keeps its recording. Attach with store=.")

    def require_steps(self) -> None:
        """Raise where no recording is to be had."""

    def require_statistics(self) -> None:
        """Raise where no statistics are gathered."""
        raise ValueError(
            "statistics() needs a probe that gathers them; this one keeps the steps. Use its recording(), or "
            "attach(model, statistics=True)."
        )

    def recordings(self, paths: Sequence[str]) -> dict[str, xr.Dataset]:
        """The recordings of some modules that were called."""
        self.require_steps()
        return {}

    def statistics(self, path: str) -> xr.Dataset | None:
        """What was gathered of a module; `None` within its first call."""
        self.require_statistics()
        return None
