"""The benchmark of the dashboard, on a tiny recording: every number is there; what the numbers are is not tested."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "dashboard.py"


@pytest.mark.slow
def test_every_page_has_a_time(tmp_path: Path) -> None:
    pytest.importorskip("playwright")
    path = tmp_path / "dashboard.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--json", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    rows = {row["what"]: row for row in json.loads(path.read_text())["rows"]}
    assert {"first visit", "next visit", "command", "page overview", "page gradient_flow"} <= set(rows)
    assert all(row["median"] > 0 for row in rows.values())
    assert rows["first visit"]["met"] == (rows["first visit"]["median"] <= rows["first visit"]["goal"])
