"""The benchmark of fixed points and decomposition, on tiny shapes: does it run, and is every number there."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "fixed_points.py"


@pytest.mark.slow
def test_every_case_has_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "fixed_points.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--json", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rows = json.loads(path.read_text())["rows"]
    assert len(rows) == 3 == len(run.stdout.splitlines())
    assert all(math.isfinite(value) for row in rows for name, value in row.items() if name != "case")
    assert all(row["largest q"] < 1e-20 for row in rows if "points" in row)
