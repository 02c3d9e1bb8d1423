"""What the tasks give: strings of the grammar, targets and labels that follow from them, streams that go on exactly."""

import re
import subprocess
import sys
from itertools import islice, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gatescope as gs
from gatescope.tasks import CERG, ERG, Reber, Sample
from gatescope.tasks.automaton import SYMBOLS
from gatescope.tasks.grammar import GrammarTask

INNER = "B(TS*X(S|X(T*VPX)*T*V(V|PS))|P(T*VPX)*T*V(V|PS))E"
EMBEDDED = f"B(T{INNER}T|P{INNER}P)E"


def texts(sample: Sample) -> list[str]:
    return ["".join(symbols) for symbols in sample.labels["symbol"]]


def read(sample: Sample) -> list[str]:
    """The strings as the one-hot inputs say them."""
    rows = []
    for inputs, length in zip(sample.inputs, sample.lengths, strict=True):
        assert (inputs[:length].sum(axis=1) == 1).all()
        rows.append("".join(SYMBOLS[symbol] for symbol in inputs[:length].argmax(axis=1)))
    return rows


def same(one: Sample, other: Sample) -> None:
    for name in ("inputs", "targets", "mask", "lengths"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert [*one.labels] == [*other.labels]
    for name in one.labels:
        np.testing.assert_array_equal(one.labels[name], other.labels[name])


def possible(prefix: str, whole: str) -> set[str]:
    """Symbols after which `prefix` can still become a string that matches `whole`, by trying completions."""
    after_inner = re.fullmatch(f"B[TP]{INNER}", prefix)
    if prefix in ("", "B"):
        return {"": {"B"}, "B": {"T", "P"}}[prefix]
    if after_inner:
        return {prefix[1]}
    if re.fullmatch(f"B[TP]{INNER}[TP]", prefix):
        return {"E"}
    if len(prefix) == 2:
        return {"B"}
    endings = ["TXSE", "XSE", "SE", "VVE", "VE", "E", "PSE", "PVVE", "TVVE", "XVVE", "SXSE"]
    return {ending[0] for ending in endings if re.fullmatch(INNER, prefix[2:] + ending)}


@pytest.mark.parametrize(("task", "grammar"), [(Reber(seed=2), INNER), (ERG(seed=2), EMBEDDED)])
def test_strings_belong_to_the_grammar(task: GrammarTask, grammar: str) -> None:
    sample = task.sample(500)
    strings = read(sample)
    assert all(re.fullmatch(grammar, text) for text in strings)
    assert strings == texts(sample)
    assert [len(text) for text in strings] == sample.lengths.tolist()


def test_targets_are_the_symbols_that_can_come_next() -> None:
    sample = ERG(seed=3).sample(100)
    for row, text in enumerate(read(sample)):
        for time in range(len(text) - 1):
            said = {SYMBOLS[symbol] for symbol in np.flatnonzero(sample.targets[row, time])}
            assert said == possible(text[: time + 1], EMBEDDED)
            assert text[time + 1] in said


def test_after_the_last_symbol_of_a_string_nothing_is_asked_for() -> None:
    sample = ERG(seed=3).sample(50)
    time = np.arange(sample.mask.shape[1])
    np.testing.assert_array_equal(sample.mask, time < sample.lengths[:, None] - 1)
    assert (sample.targets[~sample.mask] == 0).all()
    assert (sample.targets[sample.mask].sum(axis=1) >= 1).all()


def test_padding_is_zero_false_minus_one_and_empty() -> None:
    sample = ERG(seed=4).sample(20)
    padding = np.arange(sample.mask.shape[1]) >= sample.lengths[:, None]
    assert padding.any()
    assert (sample.inputs[padding] == 0).all()
    assert (sample.labels["state"][padding] == -1).all()
    assert not sample.labels["boundary"][padding].any()
    assert set(sample.labels["symbol"][padding]) == set(sample.labels["remember"][padding]) == {""}


def test_an_endless_stream_is_strings_one_after_another() -> None:
    sample = CERG(seed=5).sample(5000)
    (text,) = read(sample)
    starts = np.flatnonzero(sample.labels["boundary"][0])
    assert starts[0] == 0
    strings = [text[start:end] for start, end in pairwise(starts)]
    assert len(strings) > 300
    assert all(re.fullmatch(EMBEDDED, string) for string in strings)
    assert sample.mask.all()
    ends = starts[1:] - 1
    assert (sample.targets[0, ends] == (np.array([*SYMBOLS]) == "B")).all()


@pytest.mark.parametrize("task", [ERG(seed=6), CERG(seed=6, streams=3)])
def test_remember_is_there_from_the_second_symbol_to_the_last_but_two(task: GrammarTask) -> None:
    sample = task.sample(200)
    for symbols, boundary, remember, length in zip(
        sample.labels["symbol"], sample.labels["boundary"], sample.labels["remember"], sample.lengths, strict=True
    ):
        starts = [*np.flatnonzero(boundary)]
        ends = [*starts[1:], length] if not task.endless else starts[1:]
        for start, end in zip(starts, ends, strict=False):
            held = symbols[start + 1]
            assert [*remember[start:end]] == ["", *[held] * (end - start - 3), "", ""]
            assert symbols[end - 2] == held


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6), streams=st.integers(1, 3), seed=st.integers(0, 99))
def test_chunks_of_any_size_together_are_one_long_sample(sizes: list[int], streams: int, seed: int) -> None:
    task = CERG(seed=seed, streams=streams)
    whole = task.sample(6 * 40)
    for size in sizes:
        parts = [*islice(task.chunks(size), 4)]
        for name in ("inputs", "targets", "mask"):
            joined = np.concatenate([getattr(part, name) for part in parts], axis=1)
            np.testing.assert_array_equal(joined, getattr(whole, name)[:, : 4 * size])
        for name in whole.labels:
            joined = np.concatenate([part.labels[name] for part in parts], axis=1)
            np.testing.assert_array_equal(joined, whole.labels[name][:, : 4 * size])


def test_chunks_of_strings_together_are_one_large_sample() -> None:
    parts = [*islice(ERG(seed=7).chunks(5), 4)]
    whole = read(ERG(seed=7).sample(20))
    assert [text for part in parts for text in read(part)] == whole


@pytest.mark.parametrize("task", [Reber(seed=8), ERG(seed=8), CERG(seed=8, streams=2)])
def test_a_sample_is_always_the_same_and_begins_a_larger_one(task: GrammarTask) -> None:
    same(task.sample(30), task.sample(30))
    assert all(
        long.startswith(short) for short, long in zip(texts(task.sample(30)), texts(task.sample(60)), strict=False)
    )


def test_a_stream_is_keyed_alone_whoever_runs_beside_it() -> None:
    together = texts(CERG(seed=9, stream=5, streams=3).sample(200))
    assert together == [texts(CERG(seed=9, stream=stream).sample(200))[0] for stream in (5, 6, 7)]


@pytest.mark.parametrize("task", [Reber, ERG, CERG])
def test_every_part_of_the_key_gives_another_stream(task: type[GrammarTask]) -> None:
    variants = [{}, {"seed": 1}, {"network": 1}, {"stream": 1}, {"test": 1}]
    variants += [{"kind": kind} for kind in ("training", "testing", "retest")]
    assert len({"".join(texts(task(**variant).sample(100))) for variant in variants}) == len(variants)


def test_what_a_seed_gives_never_changes() -> None:
    assert texts(CERG(seed=1).sample(30)) == ["BTBPVVETEBPBPVVEPEBTBPTVPXVVET"]
    assert texts(ERG(seed=1, network=2, stream=3, test=4, kind="retest").sample(1)) == ["BPBPTTTTVPXVVEPE"]


def test_the_types_are_those_that_torch_and_the_probe_take() -> None:
    sample = CERG(streams=2).sample(10)
    assert sample.inputs.shape == sample.targets.shape == (2, 10, 7)
    assert sample.inputs.dtype == sample.targets.dtype == np.float32
    assert sample.mask.dtype == sample.labels["boundary"].dtype == bool
    assert sample.lengths.tolist() == [10, 10]
    assert sample.labels["state"].dtype == np.int64
    assert repr(sample) == "Sample(2 sequences, 10 steps, labels symbol, state, boundary, remember)"


def test_a_sample_is_recorded_with_its_labels() -> None:
    import torch

    sample = ERG(seed=1).sample(4)
    model = torch.nn.LSTM(7, 3, batch_first=True)
    with gs.attach(model) as probe:
        probe.annotate(lengths=sample.lengths, **sample.labels)
        model(torch.from_numpy(sample.inputs))
    recording = probe.recording()
    assert recording["length"].values.tolist() == sample.lengths.tolist()
    assert ["".join(row) for row in recording["symbol"].values] == texts(sample)
    assert recording["boundary"].values.sum() == 4
    np.testing.assert_array_equal(recording["remember"].values, sample.labels["remember"])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: CERG(kind="train"), ValueError, "kind must be one of .*; 'train' came"),
        (lambda: CERG(streams=0), ValueError, "at least 1 of the streams; 0 came"),
        (lambda: CERG(seed=-1), ValueError, "-1 came"),
        (lambda: CERG(seed=1.5), TypeError, "seed must be a whole number from 0 on; 1.5 came"),
        (lambda: ERG(test=None), TypeError, "test must be a whole number from 0 on; None came"),
        (lambda: CERG().sample(0), ValueError, "at least 1 of the symbols; 0 came"),
        (lambda: CERG().chunks(-3), ValueError, "at least 1 of the symbols; -3 came"),
        (lambda: ERG().sample(0), ValueError, "at least 1 of the strings; 0 came"),
        (lambda: ERG().sample(2.5), TypeError, "number of strings must be a whole number; 2.5 came"),
    ],
)
def test_bad_numbers_are_refused_at_once(make: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()  # type: ignore[operator]


def test_the_tasks_load_no_torch_and_the_folder_loads_nothing() -> None:
    code = """
import sys, gatescope as gs
gs.tasks
first = {"numba", "numpy", "xarray", "torch"} & set(sys.modules)
gs.tasks.CERG().sample(10)
sys.exit(str(first or {"xarray", "torch", "matplotlib"} & set(sys.modules) or "") or 0)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
