"""The benchmark of training, on few symbols: every row is there. What the numbers are is not tested here."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "training.py"
SAID = {"seed", "symbols", "again", "clipped", "cpu", "clock", "tests", "restarts"}


def test_every_row_is_printed_and_written(tmp_path: Path) -> None:
    path = tmp_path / "training.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--only", "LSTM", "--json", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    written = json.loads(path.read_text())
    names = ["CERG, LSTM", "ERG, LSTM", "CERG, LSTM, clipped at 1", "CERG, LSTM, no restarts"]
    assert [row["row"] for row in written["rows"]] == names
    assert [line.split(" | ")[0].strip("| ") for line in run.stdout.splitlines()[2:]] == names
    assert all(set(run) == SAID for row in written["rows"] for run in row["runs"])
    assert written["machine"]["torch"]
