"""Pictures are drawn without a screen, and every figure is closed again."""

from collections.abc import Iterator

import matplotlib as mpl
import pytest
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def no_screen() -> Iterator[None]:
    pyplot.switch_backend("Agg")
    settings = dict(mpl.rcParams)
    yield
    pyplot.close("all")
    assert dict(mpl.rcParams) == settings, "a picture changed rcParams"
