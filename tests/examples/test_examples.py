"""Every example runs, quietly and in time, and says what it promises."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
EXAMPLES = sorted(path.name for path in (TOP / "examples").glob("*.py"))
MODELS = {"uzbek_padding.py": "uzmorph_nn", "readme_picture.py": "diacritize"}
LIMIT = 120  # seconds


def run_example(name: str, *arguments: str, cwd: Path) -> str:
    model = MODELS.get(name)
    if model is not None and find_spec(model) is None:
        pytest.skip(f"{name} needs the package that has {model}; install gatescope[examples]")
    command = [sys.executable, "-W", "error", str(TOP / "examples" / name), *arguments]
    done = subprocess.run(
        command,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_example_is_tried_here() -> None:
    tried = set(re.findall(r'run_example\("(\w+\.py)"', Path(__file__).read_text(encoding="utf-8")))
    assert tried == set(EXAMPLES)


def test_your_own_model_is_recorded_with_certificate_and_verdicts(tmp_path: Path) -> None:
    said = run_example("record_your_model.py", cwd=tmp_path)
    (error,) = re.findall(r"error of at most (\S+)", said)
    assert float(error) < 1e-5
    assert "signals: input_gate, forget_gate, candidate, output_gate, cell_state, hidden_state" in said
    assert "over 50 steps" in said
    assert said.rstrip().endswith("of 128")


def test_padding_fills_the_backward_memory_as_an_independent_unrolling_found(tmp_path: Path) -> None:
    said = run_example("uzbek_padding.py", cwd=tmp_path)
    row = next(line.split() for line in said.splitlines() if line.startswith("kitoblarimizdan"))
    assert row[1:5] == ["76%", "37%", "16.3", "9.0"]
    words = [line.split() for line in said.splitlines() if "%" in line]
    assert len(words) == 6
    assert all(float(word[1][:-1]) > 2 * float(word[2][:-1]) for word in words)


def test_what_a_latch_hangs_on_is_found_by_ablation_and_a_path_that_misses_it_is_marked(tmp_path: Path) -> None:
    said = run_example("which_input_mattered.py", "latch.png", cwd=tmp_path)
    turns = re.search(r"turned its bit (\d+) times", said)
    ablation, path = (re.search(rf"{name} +(\d+) of", said) for name in ("feature_ablation", "integrated_gradients"))
    assert turns
    assert ablation
    assert path
    assert ablation[1] == turns[1]
    marked = re.findall(r"marked as incomplete (\d+) times", said)
    assert int(marked[0]) == 0 < int(turns[1]) / 2 < int(marked[1])
    assert (tmp_path / "latch.png").stat().st_size > 10_000


def test_a_clamped_gate_holds_what_a_hook_cannot(tmp_path: Path) -> None:
    said = run_example("clamp_a_gate.py", cwd=tmp_path)
    hooked, inside = re.findall(r"(\d+) of 60 steps change", said)
    assert int(hooked) == 1
    assert int(inside) == 20  # until the bits are written anew
    assert "8 of 8 rows keep their bits" in said
    assert "8 of 8 rows say the other run's bits" in said


def test_the_readme_picture_is_drawn_again_where_one_says(tmp_path: Path) -> None:
    said = run_example("readme_picture.py", "again.png", cwd=tmp_path)
    assert said == "wrote again.png\n"
    picture = (tmp_path / "again.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    assert 1300 < int.from_bytes(picture[16:20], "big") < 1500


def test_cells_of_other_packages_are_recorded_with_their_certificates(tmp_path: Path) -> None:
    missing = [package for package in ("ncps", "opacus", "snntorch", "torchrecurrent") if find_spec(package) is None]
    if missing:
        pytest.skip(f"foreign_cells.py needs {', '.join(missing)}; install gatescope[test]")
    said = run_example("foreign_cells.py", cwd=tmp_path)
    rows = re.findall(r"^(\S+) +(\S+) +keeps (.*\S) +error (\S+)$", said, re.MULTILINE)
    assert len(rows) == len(said.splitlines()) == 7
    assert [name for name, _, keeps, _ in rows if keeps == "1 - forget_gate"] == [
        "torchrecurrent.MGU.cells.0",
        "torchrecurrent.MGU.cells.1",
    ]
    assert ("torchrecurrent.OriginalLSTM.cells.0", "PeepholeLSTMCell", "1.0") in [row[:3] for row in rows]
    assert all(float(error) < 1e-6 for *_, error in rows)


def test_the_papers_network_holds_t_and_p_in_one_block(tmp_path: Path) -> None:
    said = run_example("memory_blocks.py", cwd=tmp_path)
    assert said.startswith("424 weights, retention forget_gate, rebuilt to ")
    rows = re.findall(r"^block (\d): forget gate (\S+) on average, (\d+) resets, T from P: (\S+)$", said, re.MULTILINE)
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    apart = sorted(float(row[3]) for row in rows)
    assert apart[3] > 0.85
    assert apart[2] < 0.4
    assert sum(int(row[2]) > 100 for row in rows) >= 2
    ((sequences, imposed),) = re.findall(r"outside: (\d+) sequences, (\d+) of them imposed", said)
    assert int(sequences) == int(imposed) + 1 > 100


def test_the_textbooks_table_of_forget_biases_is_what_gates_keep_and_not_what_all_paths_keep(tmp_path: Path) -> None:
    said = run_example("forget_bias_table.py", "table.png", cwd=tmp_path)
    rows = [[float(number) for number in re.findall(r"10\^ *(-?[\d.]+)", line)] for line in said.splitlines()]
    lstms, plain = [row for row in rows if len(row) == 4], next(row for row in rows if len(row) == 3)
    assert [row[0] for row in lstms] == [-30.1, -13.6, -5.5]
    for textbook, gates, everything, true in lstms:
        assert abs(textbook - gates) < 0.5
        assert everything > textbook + 2.5
        assert abs(everything - true) < 1
    assert plain[1] < lstms[0][2] - 3
    assert said.endswith("wrote table.png\n")
    assert (tmp_path / "table.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_what_does_not_cure_vanishing_does_not_and_a_forget_bias_does(tmp_path: Path) -> None:
    said = run_example("what_does_not_cure_vanishing.py", "curves.png", cwd=tmp_path)
    found = {line[:20].strip(): line[20:].split() for line in said.splitlines() if ", " in line[:20]}
    assert len(found) == 11
    left = {name: float(row[0].removeprefix("10^")) for name, row in found.items()}
    assert left["tanh, radius 0.5"] < left["tanh, radius 1.0"] < left["tanh, radius 1.5"]
    assert left["ReLU, radius 0.5"] < -30
    assert left["LSTM, bias 1"] < -5 < left["LSTM, bias 4"]
    assert (tmp_path / "curves.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_picture_of_gradient_flow_is_drawn_and_only_the_lstm_of_1997_preserves(tmp_path: Path) -> None:
    said = run_example("gradient_flow_picture.py", "flow.png", cwd=tmp_path)
    verdicts = {line[:30].strip(): line.rsplit(" ", 1)[1] for line in said.splitlines() if ": " in line}
    assert len(verdicts) == 5
    assert [label for label, verdict in verdicts.items() if verdict == "preserved"] == ["LSTM of 1997, no forget gate"]
    assert {*verdicts.values()} == {"preserved", "vanishing"}
    assert (tmp_path / "flow.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("name", sorted(MODELS))
def test_without_its_model_an_example_says_so_in_one_sentence(name: str, tmp_path: Path) -> None:
    code = f"""
import importlib.util, runpy, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda wanted, *rest: None if wanted == {MODELS[name]!r} else find(wanted, *rest)
sys.argv = [{name!r}]
runpy.run_path({str(TOP / "examples" / name)!r}, run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"skipped: .*pip install 'gatescope\[examples\]'\.\n", done.stdout)


def test_the_block_that_holds_the_long_memory_is_found_by_its_resets(tmp_path: Path) -> None:
    said = run_example("learned_resets.py", "resets.png", cwd=tmp_path)
    assert "block 2: 168 resets, precision 1.00, recall 1.00" in said
    assert "block 3: 0 resets, precision nan" in said
    assert (tmp_path / "resets.png").stat().st_size > 10_000


def test_a_trained_network_is_described_in_sentences_with_the_part_of_every_unit(tmp_path: Path) -> None:
    said = run_example("analyse.py", cwd=tmp_path)
    effects = [float(effect) for effect in re.findall(r"^  ([01]\.\d\d)  ", said, re.MULTILINE)]
    assert said.startswith(f"{len(effects)} findings, the largest effect first:\n")
    assert effects == sorted(effects, reverse=True)
    assert len(re.findall(r"^  unit \d of block \d: \S.*, confidence [01]\.\d\d, time scale", said, re.MULTILINE)) == 8
    rows = re.findall(r"^  block (\d): (\d+) resets, precision (\S+), recall (\S+)$", said, re.MULTILINE)
    assert sum(float(precision) >= 0.95 and recall == "1.00" for _, _, precision, recall in rows) == 1
    assert "no learned resets. The retention" in run_example("analyse.py", "cerg-1997", cwd=tmp_path)


def test_without_the_block_that_holds_t_or_p_only_the_long_prediction_breaks(tmp_path: Path) -> None:
    said = run_example("lesion_a_block.py", "lesion.png", cwd=tmp_path)
    rows = re.findall(r"^block (\d): long lag (\S+), short lag (\S+): (.+)$", said, re.MULTILINE)
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    assert [row[0] for row in rows if row[3] == "long only"] == ["2"]
    assert float(rows[2][1]) > 0.65
    assert float(rows[2][2]) < 0.02
    assert "confirmed: the block is a latch" in said
    assert (tmp_path / "lesion.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_three_bits_are_eight_stable_points_and_the_saddles_of_a_cube(tmp_path: Path) -> None:
    said = run_example("flip_flop.py", "cube.png", cwd=tmp_path)
    assert "27 fixed points of 2048 starts" in said
    assert re.findall(r"^ +(\d+) with (\d) unstable modes", said, re.MULTILINE) == [
        ("8", "0"),
        ("12", "1"),
        ("6", "2"),
        ("1", "3"),
    ]
    assert "the stable points say: +++ ++- +-+ +-- -++ -+- --+ ---\n" in said
    assert int(re.findall(r"in (\d+) of 180 cases", said)[0]) > 170
    assert (tmp_path / "cube.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
