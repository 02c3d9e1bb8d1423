"""The benchmark of the loss gradient, on tiny shapes: every number is there; what the numbers are is not tested."""

import json
import math
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "loss_gradient.py"


def test_every_case_has_a_ratio_with_its_reach_and_an_error(tmp_path: Path) -> None:
    path = tmp_path / "loss_gradient.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--json", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    written = json.loads(path.read_text())
    assert all(math.isfinite(row["median"]) for row in written["rows"])
    ratios = [row for row in written["rows"] if row["measure"] == "of the bare passes"]
    assert len(ratios) == 11 == len(run.stdout.splitlines()) - 2
    assert all(row["met"] == (row["median"] <= row["reach"]) for row in ratios)
    assert {row["reach"] for row in ratios} == {2.5, 3.5, 5.5}
    errors = [row["median"] for row in written["rows"] if row["measure"].startswith("error")]
    assert max(errors) < 1e-4
