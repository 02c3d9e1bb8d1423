"""How the kernels of this folder are compiled: by numba, kept on disk, without fastmath."""

from collections.abc import Callable
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
        return cast(Function, njit(cache=True, error_model="numpy", forceinline=inlined)(function))
    except RuntimeError as error:
        if "cannot cache function" not in str(error):
            raise
        return cast(Function, njit(error_model="numpy", forceinline=inlined)(function))


def inlined(function: Function) -> Function:
    """As `compiled`, and put into whoever calls it, where the sizes it is given may be constants."""
    return compiled(function, inlined=True)
