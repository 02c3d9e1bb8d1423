"""What a model is called with."""

from collections.abc import Mapping
from typing import Any


def named_arguments(inputs_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """The named arguments of a call.

    >>> named_arguments({"lengths": [3, 2]}), named_arguments(None)
    ({'lengths': [3, 2]}, {})
    """
    if inputs_kwargs is None:
        return {}
    if not isinstance(inputs_kwargs, Mapping) or not all(isinstance(name, str) for name in inputs_kwargs):
        raise TypeError(
            f"inputs_kwargs must map names of arguments to their values; {inputs_kwargs!r:.80} came. Give for instance "
            "{'lengths': lengths}."
        )
    return dict(inputs_kwargs)
