"""The benchmark of recording, on tiny shapes: every number is there. What the numbers are is not tested here."""

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "recording.py"
CASES = {
    "LSTM 1x20x4",
    "LSTM 3x4x16",
    "LSTM 3x2x32",
    "LSTM 3x100x8",
    "LSTM 3x4x16, 2 layers, both directions",
    "GRU 1x20x4",
    "GRU 3x4x16",
    "GRU 3x2x32",
}
REACHED_FOR = {"cpu", "wall", "attach and detach", "memory", "error"}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("bench") / "recording.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--threads", "1", "--json", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return {"printed": run.stdout, **json.loads(path.read_text())}


def expected() -> Iterator[tuple[str, str, str]]:
    for case in CASES:
        for way in ("bare", "probe", "loop of cells", "Opacus"):
            yield from ((case, way, clock) for clock in ("cpu", "wall"))
        yield from ((case, way, "memory") for way in ("bare", "probe", "loop of cells"))
        yield from ((case, "probe", measure) for measure in ("attach and detach", "recording()", "error"))
        yield case, "loop of cells", "error"
    yield "LSTM 1x1x8", "after detaching", "cpu"


def test_every_case_way_and_measure_has_a_row_with_a_number_or_the_reason_why_not(written: dict[str, Any]) -> None:
    rows = {(row["case"], row["way"], row["measure"]): row for row in written["rows"]}
    assert len(rows) == len(written["rows"])
    assert rows.keys() - {(case, "Opacus", "error") for case in CASES} == set(expected())
    for row in rows.values():
        assert row["note"] if row["median"] is None else math.isfinite(row["median"])


def test_each_row_of_the_probe_says_whether_its_reach_was_met(written: dict[str, Any]) -> None:
    rows = [row for row in written["rows"] if row["way"] == "probe" and row["median"] is not None]
    assert {row["measure"] for row in rows if row["reach"] is not None} == REACHED_FOR
    assert all(row["met"] == (row["median"] <= row["reach"]) for row in rows if row["reach"] is not None)


def test_all_cases_are_printed_and_the_machine_is_described(written: dict[str, Any]) -> None:
    assert all(f"| {case} " in written["printed"] for case in CASES)
    assert {"cpu", "cores", "python", "torch", "load_before"} <= written["machine"].keys()
    assert written["quick"] is True
