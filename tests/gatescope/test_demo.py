"""The demo on the real model: what it writes, that its numbers are true, and what it leaves alone."""

import html
import os
import shlex
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import xarray as xr

import gatescope as gs
from gatescope import demo, report_page
from gatescope.demo_findings import apart, findings, runner_up, shut_auc
from gatescope.demo_folder import FORGOTTEN, MARK, results_folder
from gatescope.demo_sentences import TEXTS

if find_spec("diacritize") is None:
    pytest.skip("arabic-diacritizer is not installed; install gatescope[examples]", allow_module_level=True)

FEW = TEXTS[12:24]
READ = 40_000  # values of each signal that the reports of these tests read
RESULTS = [
    "cerg-latch.ablation.nc",
    "cerg-latch.html",
    "cerg-latch.png",
    "cerg-latch.zarr",
    "characters.png",
    "findings.md",
    "gates.png",
    "recording.zarr",
    "report.html",
    "saturation.png",
    "traces.png",
]


class Run(NamedTuple):
    out: Path
    said: str
    recording: xr.Dataset


@pytest.fixture(scope="module", autouse=True)
def quick_reports() -> Iterator[None]:
    """Reports without the general pictures, which have tests of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_page, "pictures", lambda recording, view, space: iter(()))
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("demo") / "results"
    lines: list[str] = []
    demo.run(out, texts=FEW, values=READ, say=lines.append)
    recording = gs.open_recording(out / "recording.zarr")
    assert isinstance(recording, xr.Dataset)
    return Run(out, "\n".join(lines), recording.load())


@pytest.fixture(scope="module")
def whole() -> xr.Dataset:
    """The recording of all texts."""
    return demo.record_texts(demo.load_model(), TEXTS)


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def table(text: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading, without its two header lines."""
    section = text.split(f"## {heading}")[1].split("\n## ")[0]
    rows = [line.strip("| ").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def steps(recording: xr.Dataset, sequences: slice) -> tuple[np.ndarray, list[str]]:
    """Forget gates (layer, direction, step, unit) and characters, text after text."""
    gates, characters = [], []
    for sequence in recording["sequence"].to_numpy()[sequences]:
        one = recording.sel(sequence=sequence)
        length = int(one["length"])
        gates.append(one["forget_gate"].to_numpy()[:, :, :length])
        characters += one["character"].to_numpy()[:length].tolist()
    return np.concatenate(gates, axis=2), characters


def auc_by_pairs(gate: np.ndarray, at: np.ndarray) -> float:
    """Of all pairs of a step at the character and one elsewhere, the share in which the gate is lower at it."""
    here, elsewhere = gate[at][:, None], gate[~at][None, :]
    return float(((here < elsewhere) + 0.5 * (here == elsewhere)).mean())


def test_the_demo_writes_what_it_says(run: Run) -> None:
    assert listed(run.out) == sorted([*RESULTS, MARK])
    assert f"Written to {run.out}: {', '.join(RESULTS)}" in run.said
    for picture in run.out.glob("*.png"):
        assert picture.stat().st_size > 10_000
    text = (run.out / "findings.md").read_text(encoding="utf-8")
    assert text.split("\n", 2)[2] in run.said


def test_the_reports_hold_what_the_demo_says_and_what_describe_says(run: Run) -> None:
    report, example = ((run.out / name).read_text(encoding="utf-8") for name in ("report.html", "cerg-latch.html"))
    assert f"gs.open_recording({str(run.out / 'recording.zarr')!r})" in html.unescape(report)
    for row in table(run.said, "The units that tell spaces best"):
        assert "".join(f"<td>{cell}</td>" for cell in row) in report
    assert report.count("data:image/png") == 3
    part = gs.open_recording(run.out / "cerg-latch.zarr")
    assert html.escape(gs.describe(part, most=1)["text"].item()) in example
    assert max(map(len, (report, example))) < 5_000_000


def test_the_demo_says_a_dashboard_command_that_is_there(run: Run) -> None:
    (line,) = [line for line in run.said.splitlines() if " dashboard " in line]
    command = shlex.split(line)
    assert command[-2:] == ["dashboard", str(run.out)]
    assert Path(command[0]).is_file()


def test_the_recording_is_whole_labelled_and_certified(run: Run) -> None:
    recording = run.recording
    gs.validate(recording)
    assert dict(recording["forget_gate"].sizes) == {
        "layer": 3,
        "direction": 2,
        "sequence": len(FEW),
        "time": max(map(len, FEW)),
        "unit": 256,
    }
    assert ["".join(row) for row in recording["character"].to_numpy()] == list(FEW)
    assert recording["boundary"].sum() == sum(len(text.split()) for text in FEW)
    assert recording.attrs["parity"] < 1e-5
    assert f"at most {recording.attrs['parity']:.1e} of" in run.said
    assert f"{len(FEW)} texts, {sum(map(len, FEW)):,} characters" in run.said


@pytest.mark.parametrize("reverse", [False, True])
def test_recorded_gates_are_those_of_an_unrolling_by_hand(run: Run, reverse: bool) -> None:
    model, text = demo.load_model(), FEW[3]
    suffix = "_reverse" if reverse else ""
    weights = {name: value.detach().double().numpy() for name, value in model.lstm.named_parameters()}
    inputs = model.embedding.weight.detach().double().numpy()[model.tokenizer.encode(text, add_special=False)]
    hidden, cell, gates = np.zeros(256), np.zeros(256), np.zeros((len(text), 256))
    for t in reversed(range(len(text))) if reverse else range(len(text)):
        total = weights[f"weight_ih_l0{suffix}"] @ inputs[t] + weights[f"bias_ih_l0{suffix}"]
        total += weights[f"weight_hh_l0{suffix}"] @ hidden + weights[f"bias_hh_l0{suffix}"]
        i, f, g, o = np.split(total, 4)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        cell = f * cell + i * np.tanh(g)
        hidden, gates[t] = o * np.tanh(cell), f
    recorded = run.recording["forget_gate"].sel(layer=0, sequence=3, direction="backward" if reverse else "forward")
    assert np.abs(recorded.to_numpy()[: len(text)] - gates).max() < 1e-5


def test_the_printed_counts_are_those_of_counting_pairs(run: Run) -> None:
    gates, read = steps(run.recording, slice(None))
    common = [character for character in sorted(set(read)) if read.count(character) >= 20]
    at = {character: np.array([other == character for other in read]) for character in common}
    rows = table(run.said, "Which forget gates shut at spaces")
    assert len(rows) == 6
    for row in rows:
        gate = gates[int(row[0]), ["forward", "backward"].index(row[1])].T
        values = {c: np.array([auc_by_pairs(unit, at[c]) for unit in gate]) for c in common}
        others = [c for c in common if c != " "]
        assert int(row[2]) == (values[" "] > 0.95).sum()
        assert int(row[4]) == (values[" "] < 0.05).sum()
        assert int(row[5]) == max((values[c] < 0.05).sum() for c in others)
        highest = max((values[c] > 0.95).sum() for c in others)
        assert int(row[6]) == highest
        if highest:
            assert (values[row[7][-1]] > 0.95).sum() == highest


def test_the_best_units_are_chosen_on_one_half_and_measured_on_the_other(run: Run) -> None:
    (gates, read), (held_out, read_there) = (steps(run.recording, slice(half, None, 2)) for half in (0, 1))
    rows = table(run.said, "The units that tell spaces best")
    spaces, spaces_there = (np.array([c == " " for c in characters]) for characters in (read, read_there))
    printed = []
    for layer, direction, unit, chosen, measured, other, which in rows:
        at = (int(layer), ["forward", "backward"].index(direction), slice(None), int(unit))
        assert f"{auc_by_pairs(gates[at], spaces):.3f}" == chosen
        assert f"{auc_by_pairs(held_out[at], spaces_there):.3f}" == measured
        there = np.array([c == which[-1] for c in read_there])
        assert f"{auc_by_pairs(held_out[at], there):.3f}" == other
        printed.append(float(chosen))
    every = [auc_by_pairs(unit, spaces) for gate in gates.reshape(6, -1, 256) for unit in gate.T]
    assert printed == [round(value, 3) for value in sorted(every, reverse=True)[: len(rows)]]


def test_the_printed_verdicts_are_those_of_counting_steps(run: Run) -> None:
    for layer, direction, *cells in table(run.said, "Stuck and switching gates"):
        for name, cell in zip(("input_gate", "forget_gate", "output_gate"), cells, strict=True):
            values = run.recording[name].sel(layer=int(layer), direction=direction).to_numpy().reshape(-1, 256)
            values = values[~np.isnan(values).any(axis=1)].astype(float)
            left, right = (values < 0.1).mean(axis=0), (values > 0.9).mean(axis=0)
            switching = (left + right >= 0.5) & (left >= 0.001) & (right >= 0.001)
            expected = [(right >= 0.95) & ~switching, (left >= 0.95) & ~switching, switching]
            assert cell == " / ".join(str(int(units.sum())) for units in expected)


def test_ties_count_half() -> None:
    gate = np.array([0.1, 0.1, 0.5, 0.1]).reshape(1, 1, 1, 4, 1)
    recording = xr.Dataset(
        {"forget_gate": (("layer", "direction", "sequence", "time", "unit"), gate)},
        {
            "layer": [0],
            "direction": ["forward"],
            "sequence": [0],
            "time": range(4),
            "unit": [0],
            "length": ("sequence", [4]),
            "character": (("sequence", "time"), np.array([list(" ab ")], dtype=object)),
        },
    )
    assert shut_auc(recording, [" "]).item() == pytest.approx(0.75)


def test_spaces_shut_more_backward_units_than_any_other_character(whole: xr.Dataset) -> None:
    counts = apart(findings(whole).auc).sel(layer=0)
    backward, forward = counts.sel(direction="backward"), counts.sel(direction="forward")
    assert int(backward.sel(character=" ")) > runner_up(backward)[1]
    assert int(backward.sel(character=" ")) in range(10, 16)
    assert max(runner_up(backward)[1], runner_up(forward)[1]) <= 8
    assert int(forward.sel(character=" ")) in range(4, 7)


def test_units_chosen_on_one_half_tell_spaces_on_the_other_too(whole: xr.Dataset) -> None:
    best = findings(whole).best
    assert all(unit.held_out > 0.95 and unit.other_held_out < 0.9 for unit in best)


def test_shut_units_of_a_single_sentence_are_those_of_an_independent_unrolling() -> None:
    import torch

    text, model = "الحمد لله رب العالمين ذهب الولد الى المدرسة في الصباح", demo.load_model()
    with torch.no_grad():
        numbers = torch.tensor([model.tokenizer.encode(text, add_special=False)])
        recording = gs.record(model, numbers, labels={"character": text})
    at_spaces = recording["forget_gate"].sel(layer=0, sequence=0).isel(time=[c == " " for c in text])
    assert (at_spaces < 0.2).all("time").sum("unit").to_numpy().tolist() == [52, 56]


def test_texts_are_distinct_and_in_the_models_alphabet() -> None:
    alphabet = demo.load_model().tokenizer.char_to_id
    assert 28 <= len(TEXTS) == len(set(TEXTS))
    assert [character for text in TEXTS for character in text if character not in alphabet] == []
    assert all(text == text.strip() and "  " not in text for text in TEXTS)


def test_a_text_outside_the_models_alphabet_is_refused() -> None:
    with pytest.raises(ValueError, match="alphabet; 'ى' came"):
        demo.record_texts(demo.load_model(), ["الى"])


def test_running_again_replaces_the_results_and_keeps_what_others_put_there(run: Run) -> None:
    before = {name: (run.out / name).read_bytes() for name in RESULTS if name.endswith((".png", ".md"))}
    (run.out / "findings.md").write_text("stale")
    (run.out / "my notes.txt").write_text("keep me")
    demo.run(run.out, texts=FEW, values=READ, say=lambda line: None)
    assert listed(run.out) == sorted([*RESULTS, MARK, "my notes.txt"])
    assert (run.out / "my notes.txt").read_text() == "keep me"
    assert {name: (run.out / name).read_bytes() for name in before} == before
    (run.out / "my notes.txt").unlink()


def write_two(out: Path, text: str, fail: bool = False) -> None:
    with results_folder(out) as folder:
        (folder / "a.txt").write_text(text)
        (folder / "run.zarr").mkdir()
        (folder / "run.zarr" / "chunk").write_text(text)
        if fail:
            raise RuntimeError("the disk is full")


@pytest.mark.parametrize("there", [True, False])
def test_a_run_that_fails_leaves_everything_as_it_was(tmp_path: Path, there: bool) -> None:
    out = tmp_path / "results"
    if there:
        write_two(out, "old")
    with pytest.raises(RuntimeError, match="the disk is full"):
        write_two(out, "new", fail=True)
    assert out.exists() == there
    if there:
        assert listed(out) == sorted([MARK, "a.txt", "run.zarr"])
        assert {path.read_text() for path in (out / "a.txt", out / "run.zarr" / "chunk")} == {"old"}


def test_a_swap_that_fails_half_way_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, rename = tmp_path / "results", os.rename
    write_two(out, "old")

    def failing(source: Path, target: Path) -> None:
        if source.parent.name == "new" and source.name == "run.zarr":
            raise OSError("no")
        rename(source, target)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="no"):
        write_two(out, "new")
    assert listed(out) == sorted([MARK, "a.txt", "run.zarr"])
    assert {path.read_text() for path in (out / "a.txt", out / "run.zarr" / "chunk")} == {"old"}
    monkeypatch.undo()
    write_two(out, "new")
    assert {path.read_text() for path in (out / "a.txt", out / "run.zarr" / "chunk")} == {"new"}


def test_results_never_take_the_place_of_a_file_of_somebody_else(tmp_path: Path) -> None:
    out = tmp_path / "results"
    with results_folder(out) as folder:
        (folder / "b.txt").write_text("ours")
    (out / "a.txt").write_text("theirs")
    with pytest.raises(ValueError, match=r"a\.txt must not exist"):
        write_two(out, "new")
    assert {name: (out / name).read_text() for name in ("a.txt", "b.txt")} == {"a.txt": "theirs", "b.txt": "ours"}


def test_what_a_killed_run_left_goes_with_the_next_one(tmp_path: Path) -> None:
    out = tmp_path / "results"
    write_two(out, "old")
    for name, age in {".partial-dead": FORGOTTEN + 60, ".partial-alive": 0}.items():
        (out / name).mkdir()
        os.utime(out / name, (time.time() - age,) * 2)
    write_two(out, "new")
    assert listed(out) == sorted([MARK, ".partial-alive", "a.txt", "run.zarr"])


def folder_of_others(path: Path) -> None:
    path.mkdir()
    (path / "thesis.txt").write_text("precious")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (folder_of_others, r"out must be a new or empty folder.* holds thesis\.txt\. Name another one with --out\."),
        (
            lambda path: path.write_text("precious"),
            r"out must be a folder; .* is a file\. Name another one with --out\.",
        ),
    ],
)
def test_what_the_demo_did_not_write_is_refused_before_anything_runs(
    make: Callable[[Path], None], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "load_model", lambda: pytest.fail("the model was loaded"))
    out = tmp_path / "theirs"
    make(out)
    with pytest.raises(ValueError, match=said):
        demo.run(out, say=lambda line: None)
    kept = out / "thesis.txt" if out.is_dir() else out
    assert kept.read_text() == "precious"
    assert listed(tmp_path) == ["theirs"]


def test_without_the_model_the_demo_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    with pytest.raises(
        ModuleNotFoundError, match=r"not installed\. Install it with: pip install 'gatescope\[examples\]'\.$"
    ):
        demo.run(tmp_path / "out", say=lambda line: None)
    assert listed(tmp_path) == []


def test_the_network_of_the_paper_is_recorded_and_described_by_its_own_numbers(run: Run) -> None:
    recording = gs.open_recording(run.out / "cerg-latch.zarr").load()
    gs.validate(recording)
    gate, steps = recording["forget_gate"].values[0, 0, 0], recording["boundary"].values[0]
    ends = np.flatnonzero(steps[1:])  # the last symbol of a string comes before the first of the next
    fallen = [int((np.minimum(gate[ends, unit], gate[ends + 1, unit]) < 0.2).sum()) for unit in range(0, 8, 2)]
    (line,) = [line for line in run.said.splitlines() if "falls below 0.2 at" in line]
    (holder,) = [int(line.split()[1]) for line in run.said.splitlines() if line.startswith("Block ")]
    assert f"{fallen[holder]} of {len(ends)} ends" in line
    assert fallen[holder] == max(fallen)
    assert gs.describe(recording, most=1)["text"].item() in run.said


def test_what_the_network_of_the_paper_loses_without_a_block_is_that_of_holding_it_at_zero(run: Run) -> None:
    torch = pytest.importorskip("torch")
    model, _ = gs.load_example("cerg-latch")
    sample = gs.tasks.CERG(streams=32).sample(250)
    errors = gs.tasks.lag_errors(sample)
    without = [gs.intervene(model, state, 0.0, block=2) for state in ("cell_state", "hidden_state")]
    with torch.no_grad(), without[0], without[1]:
        lost = float(np.mean(errors(model(torch.from_numpy(sample.inputs)))["long"]))
    assert f"that block costs {100 * lost:.1f} percentage points of T or P" in run.said  # intact, nothing goes wrong
    with xr.open_dataset(run.out / "cerg-latch.ablation.nc", engine="h5netcdf") as lesions:
        assert lesions["intact"].sel(metric="long").item() == 0
        assert lesions["effect"].sel(metric="long", memory_block=2).item() == pytest.approx(lost)
