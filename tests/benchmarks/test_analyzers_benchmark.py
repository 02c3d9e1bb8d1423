"""The benchmark of the analyzers, on a tiny shape: every number is there. What the numbers are is not tested here."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "analyzers.py"
SOME = ("alignment", "timescales, Jacobian")


@pytest.mark.slow
def test_every_measure_has_its_times_its_growth_and_its_memory_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "analyzers.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--json", str(path), "--only", *SOME]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    lines = json.loads(path.read_text())["lines"]
    assert all(math.isfinite(line["value"]) for line in lines if line["note"] != "this system does not tell")
    told = {(line["measure"], line["what"]) for line in lines}
    what = ("process time", "by the clock", "growth with steps", "growth with units")
    assert {(measure, each) for measure in SOME for each in what} <= told
    assert any(each == "peak memory" for _, each in told)
    assert "one layer and direction" in {line["note"] for line in lines if line["measure"] == "timescales, Jacobian"}
