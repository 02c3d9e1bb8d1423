"""What is to be stored of a run, and where: the choices of `attach(store=...)`, checked."""

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import torch

from .track import Track


class Storing(NamedTuple):
    """Where a probe writes, and what it leaves out."""

    path: Path
    append: bool = False
    dtype: str | None = None
    stride: int = 1
    every: int = 1
    units: tuple[int, ...] | None = None
    progress: int | None = None

    def settings(self, wanted: Mapping[str, frozenset[str]]) -> dict[str, Any]:
        """What must agree when a store is gone on with."""
        return {
            "dtype": self.dtype or "the model's own",
            "stride": self.stride,
            "every": self.every,
            "units": "all" if self.units is None else list(self.units),
            "modules": sorted(wanted),
            "signals": sorted({name for names in wanted.values() for name in names}),
        }

    def said(self, track: Track) -> dict[str, Any]:
        """Attributes that tell what was left out."""
        found: dict[str, Any] = {}
        words = []
        if self.stride > 1:
            found["stride"] = self.stride
            words.append(f"all steps but every {self.stride}th")
        if self.every > 1:
            found["every"] = self.every
            words.append(f"all sequences but every {self.every}th")
        if self.units is not None:
            words.append(f"all units but {len(self.units)} of {track.cells[0][0].hidden_size}")
        if words:
            found["left_out"] = "; ".join(words)
        return found


def chosen(
    store: str | os.PathLike[str],
    *,
    append: bool = False,
    dtype: str | None = None,
    stride: int = 1,
    every: int = 1,
    units: Sequence[int] | None = None,
    progress: int | None = None,
) -> Storing:
    """The choices, if they can be followed."""
    if not isinstance(os.fspath(store), str):
        raise TypeError(f"store must be a path of text; {store!r} came. Decode it with os.fsdecode().")
    path = Path(store)
    if "\0" in str(path):
        raise ValueError(f"store must be a path without the NUL character; {str(path)!r} came. Leave it out.")
    if path.suffix != ".zarr":
        raise ValueError(
            f"store must end in .zarr, a folder that can grow; {str(path)!r} came. Name it for instance 'run.zarr'."
        )
    if dtype not in (None, "float16"):
        raise ValueError(f"dtype must be None (the model's own) or 'float16'; {dtype!r} came. Leave it out.")
    for name, value in (("stride", stride), ("every", every), ("progress", progress)):
        if not (name == "progress" and value is None) and (type(value) is not int or value < 1):
            raise ValueError(f"{name} must be a whole number of at least 1; {value!r} came. Leave it out.")
    path = Path(os.path.abspath(path))  # the working folder may change before the store ends
    return Storing(path, bool(append), dtype, stride, every, chosen_units(units), progress)


def check_stored(labels: Any, lengths: Any, *, gradients: bool, statistics: bool) -> None:
    """Refuse what needs the whole recording in memory."""
    if lengths is not None or isinstance(labels, Mapping):
        raise ValueError(
            "with store= lengths and labels must come call by call, as the recording does; some came for the whole. "
            "Use probe.annotate(...) or a function."
        )
    if gradients or statistics:
        name = "gradients" if gradients else "statistics"
        raise ValueError(f"with store= signals are written as they come; {name}=True came. Attach once for each.")


def chosen_units(units: Sequence[int] | None) -> tuple[int, ...] | None:
    if units is None:
        return None
    try:
        found = tuple(int(unit) for unit in units if int(unit) == unit)
        whole = len(found) == len(units) > 0 and min(found) >= 0 and len(set(found)) == len(found)
    except (TypeError, ValueError):
        whole = False
    if not whole:
        raise ValueError(f"units must be a list of different numbers from 0; {units!r} came. Give for instance [0, 5].")
    return found


def check_units(units: tuple[int, ...] | None, tracks: Mapping[str, Track]) -> None:
    for path, track in tracks.items():
        size = track.observed.kind.hidden_size
        if units is not None and max(units) >= size:
            raise ValueError(
                f"units must be some of the 0 to {size - 1} of {path!r}; {max(units)} came. "
                "Name the modules that have it, or choose others."
            )


def fingerprint(track: Track) -> str:
    """A hash of everything that a module computes with."""
    module = track.observed.module
    digest = sha256(type(track.observed.kind).__name__.encode())
    for name, values in [*module.named_parameters(), *module.named_buffers()]:
        raw = values.detach().cpu().contiguous().flatten().view(torch.uint8)
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode() + raw.numpy().tobytes())
    return digest.hexdigest()[:32]
