"""A folder of finished networks: whole files only, one writer, one setting."""

import contextlib
import dataclasses
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from gatescope.tasks.experiment import VARIANTS, Outcome, Setting
from gatescope.tasks.results import (
    Job,
    Results,
    differences,
    plain,
    read_results,
    replacing,
    results_folder,
)
from gatescope.tasks.writers_lock import writers_lock

ROWS = {row: VARIANTS[row] for row in ("forget", "1997")}
JOB = Job("forget", 2)


def same(first: Outcome, second: Outcome) -> bool:
    """Whether two outcomes agree in every value and every bit of an array."""
    for field in dataclasses.fields(Outcome):
        one, other = getattr(first, field.name), getattr(second, field.name)
        if isinstance(one, Mapping):
            assert one.keys() == other.keys()
            pairs = [(one[name], other[name]) for name in one]
        else:
            pairs = [(one, other)]
        for left, right in pairs:
            equal = np.array_equal(left, right) and getattr(left, "dtype", None) == getattr(right, "dtype", None)
            if not (equal and type(left) is type(right)):
                return False
    return True


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    return importlib.import_module("made_up_networks")


@pytest.fixture
def folder(tmp_path: Path, made_up: ModuleType) -> Results:
    """A folder in which network 2 of `forget` is finished, of four in two rows."""
    with results_folder(tmp_path / "out", ROWS, 4) as results:
        results.save(JOB, made_up.outcome(2, "good"))
        return results


def test_what_was_saved_comes_back_bit_for_bit(folder: Results, made_up: ModuleType) -> None:
    back = folder.load(JOB)
    assert back is not None
    assert same(back, made_up.outcome(2, "good"))
    assert not same(back, made_up.outcome(2, "good", streams=1))


def test_the_same_network_makes_the_same_file(folder: Results, made_up: ModuleType) -> None:
    before = folder.place(JOB).read_bytes()
    folder.save(JOB, made_up.outcome(2, "good"))
    assert folder.place(JOB).read_bytes() == before


def test_networks_are_due_row_by_row_in_turn(folder: Results) -> None:
    due = [("forget", 0), ("1997", 0), ("forget", 1), ("1997", 1), ("1997", 2), ("forget", 3), ("1997", 3)]
    assert folder.missing() == due


def test_a_later_start_keeps_other_rows_and_the_larger_number(folder: Results) -> None:
    with results_folder(folder.path, {"decay-0.9": VARIANTS["decay-0.9"]}, 2) as results:
        assert results.networks == {"forget": 4, "1997": 4, "decay-0.9": 2}
        assert results.load(JOB) is not None
    with results_folder(folder.path, ROWS, 1) as results:
        assert results.networks == {"forget": 4, "1997": 4, "decay-0.9": 2}
    with results_folder(folder.path, ROWS, 7) as results:
        assert results.networks == {"forget": 7, "1997": 7, "decay-0.9": 2}
    assert read_results(folder.path).networks == {"forget": 7, "1997": 7, "decay-0.9": 2}


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_set_aside_and_said(folder: Results, part: float) -> None:
    place = folder.place(JOB)
    whole = place.read_bytes()
    place.write_bytes(whole[: int(part * len(whole))])
    said: list[str] = []
    assert JOB in folder.missing(said.append)
    assert len(said) == 1
    assert said[0].startswith("network 2 of forget is trained again: it is half-written (")
    (aside,) = (folder.path / "set-aside").iterdir()
    assert str(aside) in said[0]
    assert aside.read_bytes() == whole[: int(part * len(whole))]
    assert not place.exists()


def test_no_changed_byte_is_believed(folder: Results, made_up: ModuleType) -> None:
    whole = folder.place(JOB).read_bytes()
    expected = made_up.outcome(2, "good")
    believed = 0
    for place in range(0, len(whole), 7):
        folder.place(JOB).write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            back = folder.load(JOB)
        except ValueError:
            continue
        assert back is not None
        assert same(back, expected)  # a date or a flag of the zip format, which no value depends on
        believed += 1
    assert believed < len(whole) / 7 / 2


@pytest.mark.parametrize(
    ("job", "reason"),
    [(Job("forget", 3), "it holds network 2"), (Job("1997", 2), "it holds a network of row 'forget'")],
)
def test_a_file_under_another_name_is_not_believed(folder: Results, job: Job, reason: str) -> None:
    folder.place(job).parent.mkdir(exist_ok=True)
    folder.place(job).write_bytes(folder.place(JOB).read_bytes())
    said: list[str] = []
    assert job in folder.missing(said.append)
    assert reason in said[0]


def test_a_file_of_other_settings_is_not_believed(folder: Results, tmp_path: Path, made_up: ModuleType) -> None:
    changed = {row: replace(setting, seed=1) for row, setting in ROWS.items()}
    with results_folder(tmp_path / "other", changed, 4) as other:
        other.save(JOB, made_up.outcome(2, "good"))
    folder.place(JOB).write_bytes(other.place(JOB).read_bytes())
    said: list[str] = []
    folder.missing(said.append)
    assert "it was made with other settings" in said[0]


def test_reading_changes_nothing_and_leaves_out_what_is_damaged(folder: Results) -> None:
    folder.place(JOB).write_bytes(b"half")
    before = sorted(folder.path.rglob("*"))
    assert read_results(folder.path).outcomes("forget") == []
    assert sorted(folder.path.rglob("*")) == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 5}, "seed 0 where 5 came"),
        ({"alpha": 0.25}, "alpha 0.5 where 0.25 came"),
        (
            {"max_streams": 7, "stream_length": 8},
            "max_streams 30000 where 7 came and stream_length 100000 where 8 came",
        ),
    ],
)
def test_other_settings_are_refused_by_name(folder: Results, change: dict[str, float], named: str) -> None:
    before = (folder.path / "results.json").read_bytes()
    changed = {"forget": replace(VARIANTS["forget"], **change)}  # type: ignore[arg-type]
    with (
        pytest.raises(ValueError, match="must hold results of one setting") as raised,
        results_folder(folder.path, changed, 4),
    ):
        pass
    assert f"has {named} (row forget)" in str(raised.value)
    assert (folder.path / "results.json").read_bytes() == before


def test_a_setting_within_the_wiring_is_refused_by_name(folder: Results) -> None:
    forget = VARIANTS["forget"]
    changed = {"forget": replace(forget, wiring=replace(forget.wiring, size=3))}
    with pytest.raises(ValueError, match=r"wiring\.size 2 where 3 came"), results_folder(folder.path, changed, 4):
        pass


def test_rows_of_one_folder_have_one_task_one_seed_and_one_end(folder: Results) -> None:
    other = {"decay-0.9": replace(VARIANTS["decay-0.9"], seed=1)}
    with (
        pytest.raises(ValueError, match=r"seed 0 where 1 came \(row decay-0\.9\)"),
        results_folder(folder.path, other, 4),
    ):
        pass
    other = {"decay-0.9": replace(VARIANTS["decay-0.9"], max_streams=9)}
    with pytest.raises(ValueError, match="max_streams 30000 where 9 came"), results_folder(folder.path, other, 4):
        pass
    lstm = next(row for row, setting in VARIANTS.items() if setting.task == "erg")
    with (
        pytest.raises(ValueError, match="task cerg where erg came"),
        results_folder(folder.path, {lstm: VARIANTS[lstm]}, 4),
    ):
        pass


def test_a_setting_that_only_one_side_has_is_a_difference() -> None:
    assert differences({"a": 1}, {"a": 1, "b": 2}) == ["b not there where 2 came"]
    assert differences({"a": 1, "b": None}, {"a": 1}) == ["b None where none came"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "other/9"}', '{"format": "gatescope.networks/1"}'])
def test_a_folder_that_does_not_say_what_it_holds_is_refused(folder: Results, content: str) -> None:
    (folder.path / "results.json").write_text(content)
    with (
        pytest.raises(ValueError, match="must say what the results were made with"),
        results_folder(folder.path, ROWS, 4),
    ):
        pass


def test_what_is_no_place_for_results_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    for place, reason in [
        ("file", "must be a folder; .*file is a file"),
        ("full", r"holds thesis\.tex"),
        ("file/within", "cannot: Not a directory"),
    ]:
        with pytest.raises(ValueError, match=reason), results_folder(tmp_path / place, ROWS, 1):
            pass
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "full", "thesis.tex"]
    with pytest.raises(ValueError, match=r"has no results\.json"):
        read_results(tmp_path / "full")


def test_an_empty_folder_and_one_whose_parents_are_missing_will_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("empty", "a/b/c"):
        with results_folder(tmp_path / place, ROWS, 1) as results:
            assert len(results.missing()) == 2


def test_a_second_writer_is_refused_while_the_first_one_works(folder: Results) -> None:
    code = "import sys, pathlib; from gatescope.tasks.writers_lock import writers_lock\n"
    code += "with writers_lock(pathlib.Path(sys.argv[1]) / '.lock', pathlib.Path(sys.argv[1])): pass"
    command = [sys.executable, "-c", code, str(folder.path)]
    with results_folder(folder.path, ROWS, 1):
        refused = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        with pytest.raises(BlockingIOError, match="this process is writing"), results_folder(folder.path, ROWS, 1):
            pass
    assert f"process {os.getpid()} is writing to {folder.path}" in refused.stderr
    assert subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stderr == ""


def test_a_killed_writer_holds_no_lock(folder: Results) -> None:
    code = "import sys, pathlib, os; from gatescope.tasks.writers_lock import writers_lock\n"
    code += "with writers_lock(pathlib.Path(sys.argv[1]) / '.lock', pathlib.Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code, str(folder.path)], check=False, timeout=60).returncode == -9
    with writers_lock(folder.path / ".lock", folder.path):
        pass


def test_half_written_files_of_a_killed_run_are_taken_away(folder: Results) -> None:
    left = folder.place(JOB).with_name(".0003.npz.abcd1234.partial")
    left.write_bytes(b"half")
    with results_folder(folder.path, ROWS, 4) as results:
        assert not left.exists()
        assert results.load(JOB) is not None


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "table.txt"
    target.write_text("before")
    with contextlib.suppress(KeyboardInterrupt), replacing(target) as partial:
        partial.write_text("aft")
        raise KeyboardInterrupt
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


def test_a_full_disk_is_one_sentence_and_what_was_finished_stays(folder: Results) -> None:
    with (
        pytest.raises(
            OSError, match=r"the disk must take .*0002\.npz; it did not \(No space left on device, [\d,]+ bytes"
        ),
        replacing(folder.place(JOB)),
    ):
        raise OSError(28, "No space left on device")
    assert folder.load(JOB) is not None


def test_settings_stand_in_the_folder_as_text_that_makes_them_again(folder: Results) -> None:
    state = json.loads((folder.path / "results.json").read_text())
    assert {row: Setting.from_dict(values) for row, values in state["settings"].items()} == ROWS
    assert plain(ROWS["forget"]) == state["settings"]["forget"]


def test_who_reads_a_file_while_it_is_replaced_reads_it_whole(tmp_path: Path) -> None:
    target = tmp_path / "table.txt"
    target.write_text("before")
    with target.open() as reader:
        with replacing(target) as partial:
            partial.write_text("after that, more")
            assert target.read_text() == "before"
        assert reader.read() == "before"
    assert [path.read_text() for path in tmp_path.iterdir()] == ["after that, more"]
