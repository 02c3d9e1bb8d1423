"""The benchmark of acting inside the recurrence, on tiny shapes: every number is there, whatever it is."""

import json
import math
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "acting.py"


def test_every_case_has_its_ratios(tmp_path: Path) -> None:
    path = tmp_path / "acting.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--part", "open", "--json", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rows = json.loads(path.read_text())["rows"]
    assert len(rows) == 4 * 7 == len(run.stdout.splitlines()) - 2
    assert all(math.isfinite(row["median"]) for row in rows)
    assert {row["way"] for row in rows} == {"opened", "one unit clamped"}
    assert {row["measure"] for row in rows} == {"forward", "forward and backward"}
    assert all(row["reach"] is not None for row in rows if row["way"] == "opened")


def test_attribution_is_measured_beside_captum_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "acting.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--part", "attribution", "--json", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rows = json.loads(path.read_text())["rows"]
    assert len(rows) == 3 * 4
    assert all(math.isfinite(row["median"]) for row in rows)
    assert {row["unit"] for row in rows} == {"of Captum on an open loop", "of Captum on the fused module"}


def test_batched_lesions_are_measured_beside_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "acting.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--part", "ablation", "--json", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rows = json.loads(path.read_text())["rows"]
    assert len(rows) == 7
    assert all(math.isfinite(row["median"]) for row in rows)
    assert {(row["way"], row["unit"]) for row in rows} == {("batched", "of one by one")}
    assert sorted({row["reach"] for row in rows}) == [0.2, 1.0]
