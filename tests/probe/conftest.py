"""What tests of the probe share: the independent reference, which importlib mode does not let them import."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """The module `reference.py` beside this file."""
    path = Path(__file__).with_name("reference.py")
    spec = importlib.util.spec_from_file_location("probe_reference", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
