"""The benchmark of the engine, on few symbols: every row is there. What the numbers are is not tested here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "engine.py"


@pytest.mark.slow
def test_every_row_is_printed_and_written(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--json", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rows = json.loads(path.read_text())["rows"]
    assert {row["unit"] for row in rows} == {
        "million symbols/s",
        "times",
        "ns per symbol and weight",
        *(["MB beyond the start", "MB in all"] if sys.platform == "linux" else []),
    }
    assert all(0 < row["lower"] <= row["median"] <= row["upper"] for row in rows if not row["unit"].startswith("MB"))
    lines = run.stdout.splitlines()[2:]
    assert len(lines) == len(rows)
    assert all(line.startswith(row["case"]) for line, row in zip(lines, rows, strict=True))
