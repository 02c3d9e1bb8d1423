"""Text on disk: every character a token can hold comes back, also those that a file format drops or refuses."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

# NUL ends a string in netCDF, a lone surrogate has no UTF-8 form, and the backslash announces either.
_ESCAPED = re.compile("[\\\\\0\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(\\|0|u[0-9a-f]{4})")


def escape(text: str) -> str:
    r"""Write NUL as \0, a lone surrogate as \udxxx and the backslash as two.

    >>> print(escape("a\0b\\"))
    a\0b\\
    """
    return _ESCAPED.sub(lambda match: _names(match[0]), text)


def unescape(text: str) -> str:
    r"""Undo `escape`.

    >>> unescape(escape("C:\\0\0")) == "C:\\0\0"
    True
    """
    return _ESCAPE.sub(lambda match: _meant(match[1]), text)


def escape_all(values: NDArray[Any]) -> NDArray[Any]:
    """Every text of an object array escaped; the array itself where there is nothing to escape."""
    flat = values.ravel().tolist()
    if not _ESCAPED.search("".join(flat)):
        return values
    return _objects([escape(text) for text in flat], values.shape)


def unescape_all(values: NDArray[Any]) -> NDArray[Any]:
    """Every text of an array unescaped, as objects."""
    values = values.astype(object)
    flat = values.ravel().tolist()
    if "\\" not in "".join(flat):
        return values
    return _objects([unescape(text) for text in flat], values.shape)


def _names(character: str) -> str:
    return {"\\": "\\\\", "\0": "\\0"}.get(character, f"\\u{ord(character):04x}")


def _meant(code: str) -> str:
    return {"\\": "\\", "0": "\0"}.get(code) or chr(int(code[1:], 16))


def _objects(texts: list[str], shape: tuple[int, ...]) -> NDArray[Any]:
    result = np.empty(len(texts), dtype=object)
    result[:] = texts
    return result.reshape(shape)
