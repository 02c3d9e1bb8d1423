"""The public names."""

import ast
import re
from pathlib import Path

import pytest

import gatescope as gs

FACADE = Path(gs.__file__)


def names_for_type_checkers() -> dict[str, str]:
    """Name -> module, from the imports that only type checkers see."""
    blocks = [node for node in ast.parse(FACADE.read_text()).body if isinstance(node, ast.If)]
    imports = [node for node in blocks[0].body if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


@pytest.mark.parametrize("name", gs.__all__)
def test_every_public_name_resolves(name: str) -> None:
    value = getattr(gs, name)
    assert value is not None
    assert vars(gs)[name] is value  # kept, so that the next use costs nothing


def test_type_checkers_see_the_names_that_load_at_run_time() -> None:
    assert {k: v for k, v in names_for_type_checkers().items() if k not in ("cells", "tasks")} == gs._HOME_OF


def test_everything_public_is_listed_and_nothing_else() -> None:
    assert set(gs.__all__) == set(gs._HOME_OF) | {"Signal", "__version__", "cells", "tasks"}
    assert set(gs.__all__) <= set(dir(gs))


@pytest.mark.parametrize("name", sorted(gs._HOME_OF))
def test_a_public_function_says_what_it_is_for(name: str) -> None:
    assert (getattr(gs, name).__doc__ or "").strip()


def test_an_unknown_name_raises_attribute_error_with_the_nearest_one() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'saturatoin'\. Did you mean 'saturation'\?"):
        gs.saturatoin  # noqa: B018
    with pytest.raises(AttributeError, match=r"has no attribute 'zzzz'\.$"):
        gs.zzzz  # noqa: B018
    assert not hasattr(gs, "torch")


def test_star_import_brings_the_public_names() -> None:
    space: dict[str, object] = {}
    exec("from gatescope import *", space)
    assert set(gs.__all__) <= set(space)


def test_submodules_load_by_import_though_they_are_no_public_names() -> None:
    from gatescope import signals

    assert gs.__version__ == signals.VERSION
    assert re.fullmatch(r"\d+\.\d+\.\d+", gs.__version__)
