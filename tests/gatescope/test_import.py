"""What importing gatescope costs and loads. Each test looks at a fresh interpreter."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import xarray as xr

HEAVY = ("torch", "numpy", "xarray", "matplotlib", "streamlit", "plotly", "captum", "scipy", "zarr", "numba", "typer")
EXTRAS = ("statsmodels", "sklearn", "dask", "distributed", "lightning", "tensorboard", "diacritize")


def fresh(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_importing_gatescope_loads_nothing_heavy_and_says_nothing() -> None:
    done = fresh(f"import sys, gatescope; sys.exit(', '.join(sorted(set({HEAVY!r}) & set(sys.modules))) or 0)")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_importing_gatescope_takes_milliseconds() -> None:
    code = "import time, typing; t = time.perf_counter(); import gatescope; print(time.perf_counter() - t)"
    best = min(float(fresh(code).stdout) for _ in range(3))
    assert best < 0.1


def test_importing_gatescope_changes_nothing_global() -> None:
    code = """
import sys, os, warnings, signal, threading
def state():
    return (sys.excepthook, sys.path[:], dict(os.environ), warnings.filters[:], threading.active_count(),
            signal.getsignal(signal.SIGINT), sys.meta_path[:], os.getcwd(), sys.getrecursionlimit())
before = state()
import gatescope
sys.exit(state() != before)
"""
    assert fresh(code).returncode == 0


@pytest.mark.parametrize("ending", ["zarr", "nc"])
def test_opening_and_analysing_a_recording_loads_no_torch(
    ending: str, tmp_path: Path, make_recording: Callable[..., xr.Dataset]
) -> None:
    import gatescope as gs

    path = gs.save_recording(make_recording(), tmp_path / f"run.{ending}")
    code = """
import sys, gatescope as gs
recording = gs.open_recording(sys.argv[1])
result = gs.saturation(recording)
gs.validate(recording)
print(result.sizes["unit"])
sys.exit(", ".join({"torch", "captum", "streamlit", "gatescope.cells"} & set(sys.modules)) or 0)
"""
    done = fresh(code, str(path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "5\n", "")


def test_every_public_name_works_without_the_extras() -> None:
    code = f"""
import sys
for name in {EXTRAS!r}:
    sys.modules[name] = None                      # importing it now raises ImportError
import gatescope as gs
for name in gs.__all__:
    getattr(gs, name)
"""
    done = fresh(code)
    assert done.returncode == 0, done.stderr
