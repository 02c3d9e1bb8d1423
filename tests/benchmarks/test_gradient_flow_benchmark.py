"""The benchmark of gradient flow, on a tiny shape: every number is there. What the numbers are is not tested here."""

import json
import math
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gradient_flow.py"


def test_every_way_is_timed_agrees_and_says_whether_the_reach_was_met(tmp_path: Path) -> None:
    path = tmp_path / "flow.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--json", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rows = json.loads(path.read_text())["rows"]
    timed = {row["way"] for row in rows if row["measure"] == "time"}
    assert len(timed) == 7
    assert {row["way"] for row in rows if row["measure"] == "ratio"} == timed - {"ours"}
    assert all(row["note"] if row["median"] is None else math.isfinite(row["median"]) for row in rows)
    judged = {(row["way"], row["measure"]): row["met"] for row in rows if row["reach"] is not None}
    assert judged.pop(("functional.jacobian, one start", "ratio")) in (True, False)
    assert judged == {("ours", "error beside autograd in float64"): True, ("ours", "error at all horizons"): True}
