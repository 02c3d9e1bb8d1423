"""How the kernels of this folder are compiled: by numba, kept on disk, without fastmath."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function, *, inlined: bool = False) -> Function:
    """The function, compiled when it is first called; the code is kept beside the source or in the user's cache.

    Where neither folder can be written, it is compiled anew in each process. Floating-point operations are done in
    the order in which they stand (no fastmath): what a seed gives does not depend on the compiler. A division by zero
    gives infinity or NaN, as in numpy; a check would keep loops from being vectorised.
    """
    try:
        kernel = njit(cache=True, error_model="numpy", forceinline=inlined)(function)
    except RuntimeError as error:
        if "cannot cache function" not in str(error):
            raise
        return cast(Function, njit(error_model="numpy", forceinline=inlined)(function))
    stamp(kernel)
    return cast(Function, kernel)


def stamp(kernel: Any) -> None:
    """Have code on disk thrown away when any file with kernels has changed.

    numba compares only the file in which a kernel stands. What it calls from other files is part of its code, too: an
    old copy would go on giving the old numbers.
    """
    index: Any = getattr(getattr(kernel, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp"):
        index._source_stamp = (index._source_stamp, kernel_files())


@cache
def kernel_files() -> tuple[tuple[str, int, int], ...]:
    """Name, time of the last change and size of each file of this folder that has kernels."""
    files = [
        file for file in sorted(Path(__file__).parent.glob("*.py")) if b"from .compiled import" in file.read_bytes()
    ]
    return tuple((file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in [*files, Path(__file__)])


def inlined(function: Function) -> Function:
    """As `compiled`, and put into whoever calls it, where the sizes it is given may be constants."""
    return compiled(function, inlined=True)
