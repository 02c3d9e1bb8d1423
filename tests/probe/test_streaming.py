"""Recordings that are written as they come equal those in memory, whatever the calls and the choices."""

import errno
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

import gatescope as gs
from gatescope.probe import store, stored, streaming
from gatescope.probe.overview import overview

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")


@pytest.fixture(autouse=True)
def one_thread_and_repeatable() -> Iterator[None]:
    torch.manual_seed(0)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.zarr"


@pytest.fixture(params=["rows", "batches"])
def layout(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either way in which signals stand in files: row by row in chunks, or batch by batch as they came."""
    monkeypatch.setattr(stored, "BATCH_BYTES", {"rows": 2**60, "batches": 1}[request.param])


class Batches(NamedTuple):
    """Inputs made once, so that two runs see the same."""

    inputs: list[torch.Tensor]

    @classmethod
    def of(cls, *lengths: int, rows: int = 3, size: int = 3) -> "Batches":
        return cls([torch.randn(rows, steps, size) for steps in lengths])

    def __call__(self, model: nn.Module, probe: gs.Probe) -> None:
        for k, x in enumerate(self.inputs):
            letters = [chr(97 + (k + step) % 26) for step in range(x.shape[1])]
            marks = [step % 3 == 0 for step in range(x.shape[1])]
            probe.annotate(token=[letters] * len(x), boundary=[marks] * len(x), number=x[..., 0])
            model(x)


def both(
    model: nn.Module, path: Path, run: Callable[[nn.Module, gs.Probe], None], **options: Any
) -> tuple[xr.Dataset, xr.Dataset]:
    """The same run in memory and on disk, the latter flushed after every call."""
    kept = {key: options[key] for key in ("signals", "preactivations", "labels") if key in options}
    with gs.attach(model, **kept) as probe:
        run(model, probe)
    with gs.attach(model, store=path, **options) as stored:
        run(model, stored)
    opened = gs.open_recording(path)
    assert isinstance(opened, xr.Dataset)
    gs.validate(opened, values=True)
    return probe.recording(), opened.load()


def same(expected: xr.Dataset, opened: xr.Dataset) -> None:
    """Signals bit for bit, the running sums but for rounding; the same order, kinds and attributes."""
    xr.testing.assert_allclose(expected, opened, rtol=1e-12)
    for name in expected.data_vars:
        if name != "log_retention_sum":
            np.testing.assert_array_equal(expected[name], opened[name])
        assert expected[name].dtype == opened[name].dtype
        assert expected[name].attrs == opened[name].attrs
    assert list(expected.variables) == list(opened.variables)
    differing = {k for k in {*expected.attrs, *opened.attrs} if expected.attrs.get(k) != opened.attrs.get(k)}
    assert differing <= {"calls", "created"}


MODELS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True),
    "gru": lambda: nn.GRU(3, 4, batch_first=True),
    "projected": lambda: nn.LSTM(3, 4, proj_size=2, batch_first=True),
    "rnn": lambda: nn.RNN(3, 4, batch_first=True),
    "double": lambda: nn.LSTM(3, 4, batch_first=True, dtype=torch.float64),
    "bfloat16": lambda: nn.GRU(3, 4, batch_first=True, dtype=torch.bfloat16),
}


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("kind", MODELS)
def test_what_is_streamed_equals_what_is_kept_in_memory(path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "BUFFER_BYTES", 1)
    model = MODELS[kind]()
    dtype = next(model.parameters()).dtype
    batches = Batches([x.to(dtype) for x in Batches.of(5, 9, 2, 40).inputs])
    same(*both(model, path, batches, preactivations=kind == "lstm"))


@pytest.mark.usefixtures("layout")
def test_streams_go_on_on_disk_and_batches_begin_anew(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "BUFFER_BYTES", 1)
    model = nn.LSTM(3, 4, batch_first=True)
    inputs = torch.randn(40, 2, 25, 3)

    def run(model: nn.Module, probe: gs.Probe) -> None:
        state = None
        for k, x in enumerate(inputs):
            lengths = [25, 7] if k == 39 else [25, 25]
            probe.annotate(lengths=lengths)
            _, state = model(x, None if k == 30 else state)

    expected, opened = both(model, path, run)
    assert expected.sizes["time"] == 750
    same(expected, opened)


def test_cells_in_a_loop_are_gathered(path: Path) -> None:
    cell = nn.LSTMCell(3, 4)
    inputs = torch.randn(90, 2, 3)

    def run(model: nn.Module, probe: gs.Probe) -> None:
        state = None
        for x in inputs:
            state = model(x, state)

    same(*both(cell, path, run))


@pytest.mark.usefixtures("layout")
def test_packed_sequences_leave_no_bytes_for_padding_but_in_the_last_chunk(path: Path) -> None:
    model = nn.LSTM(3, 64)
    lengths = torch.tensor([900, 3, 2, 2])
    x = torch.randn(900, 4, 3)

    def run(model: nn.Module, probe: gs.Probe) -> None:
        model(nn.utils.rnn.pack_padded_sequence(x, lengths))

    same(*both(model, path, run))


@pytest.mark.parametrize("buffer", [1, 40_000])
def test_batches_of_any_size_are_stored_whatever_the_first_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, buffer: int
) -> None:
    monkeypatch.setattr(streaming, "BUFFER_BYTES", buffer)
    monkeypatch.setattr(stored, "BATCH_BYTES", 1)
    monkeypatch.setattr(stored, "FILE_BYTES", 20_000)  # several batches in a file, and several files
    model = nn.LSTM(3, 8, num_layers=2, batch_first=True)
    sizes = [(4, 20)] * 7 + [(3, 20), (4, 20), (4, 20), (9, 50), (1, 3), (4, 20), (2, 20), (4, 20), (4, 7), (4, 7)]
    inputs = [torch.randn(rows, steps, 3) for rows, steps in sizes]

    def run(model: nn.Module, probe: gs.Probe) -> None:
        for k, x in enumerate(inputs):
            lengths = [1 + (7 * row + k) % x.shape[1] for row in range(len(x))] if k % 3 == 2 else [x.shape[1]] * len(x)
            probe.annotate(token=[chr(97 + k) * x.shape[1]] * len(x), number=x[..., 1], lengths=lengths)
            model(x)

    expected, opened = both(model, path, run)
    same(expected, opened)
    with gs.attach(model, store=path, append=True) as again:
        run(model, again)
        again.flush()
        part = gs.open_recording(path)
        assert isinstance(part, xr.Dataset)
        gs.validate(part, values=True)
        np.testing.assert_array_equal(part["cell_state"][:, :, : expected.sizes["sequence"]], expected["cell_state"])
    whole = gs.open_recording(path)
    assert isinstance(whole, xr.Dataset)
    same(gs.concat([expected, expected]), whole.load())


def test_a_batch_that_the_system_takes_in_parts_is_written_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "BATCH_BYTES", 1)
    write = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda file, values, at: write(file, [values[0].cast("B")[:5]], at))
    same(*both(nn.GRU(3, 4, batch_first=True), path, Batches.of(5, 5, 5)))


def test_chunks_without_a_real_step_are_not_written(path: Path) -> None:
    model = nn.GRU(3, 512)
    lengths = torch.tensor([9000, 1])
    x = torch.randn(9000, 2, 3)
    with torch.no_grad(), gs.attach(model, store=path, signals=["update_gate"]):
        model(nn.utils.rnn.pack_padded_sequence(x, lengths))
    written = {file.name for file in (path / "update_gate").glob("c.*")}
    assert written == {f"c.0.0.0.{k}.0" for k in range(3)} | {"c.0.0.1.0.0"}


@pytest.mark.usefixtures("layout")
def test_several_modules_are_groups_and_open_as_a_tree(path: Path) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.LSTM(3, 4, batch_first=True)
            self.second = nn.GRU(4, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.second(self.first(x)[0])[0]
            return hidden

    model, batches = Model(), Batches.of(5, 8)
    with gs.attach(model) as probe:
        batches(model, probe)
    with gs.attach(model, store=path) as stored:
        batches(model, stored)
        part = stored.recording("second")
        assert "unfinished" in part.attrs
    opened = gs.open_recording(path)
    assert isinstance(opened, xr.DataTree)
    gs.validate(opened, values=True)
    for name in ("first", "second"):
        same(probe.recording(name), opened[name].to_dataset().load())
    assert list(stored.tree().children) == ["first", "second"]


@pytest.mark.usefixtures("layout")
def test_every_nth_step_and_sequence_and_chosen_units_are_those_of_the_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "BUFFER_BYTES", 1)
    model = nn.LSTM(3, 6, batch_first=True)
    inputs = torch.randn(9, 3, 7, 3)

    def run(model: nn.Module, probe: gs.Probe) -> None:
        state = None
        for k, x in enumerate(inputs):
            probe.annotate(number=x[..., 1])
            _, state = model(x, state if k % 3 else None)

    whole, part = both(model, path, run, stride=4, every=2, units=[5, 1])
    expected = whole.isel(time=slice(None, None, 4), sequence=slice(None, None, 2), unit=[5, 1])
    for name in ("forget_gate", "initial_cell_state", "weight_hh", "number", "call", "stream", "unit"):
        np.testing.assert_array_equal(expected[name], part[name])
    np.testing.assert_allclose(expected["log_retention_sum"], part["log_retention_sum"], rtol=1e-12)
    assert part.attrs["left_out"] == "all steps but every 4th; all sequences but every 2th; all units but 2 of 6"
    assert (part.attrs["stride"], part.attrs["every"]) == (4, 2)


@pytest.mark.usefixtures("layout")
def test_half_precision_rounds_signals_and_nothing_else(path: Path) -> None:
    whole, half = both(nn.LSTM(3, 4, batch_first=True), path, Batches.of(5), dtype="float16")
    np.testing.assert_array_equal(whole.forget_gate.astype("float16"), half.forget_gate)
    np.testing.assert_array_equal(whole.log_retention_sum, half.log_retention_sum)


@pytest.mark.usefixtures("layout")
def test_exact_zeros_of_the_retention_are_counted_from_the_first_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "BUFFER_BYTES", 1)
    model = nn.LSTM(1, 2, batch_first=True)
    with torch.no_grad():
        model.weight_ih_l0.fill_(1.0)
    inputs = [torch.randn(2, 5, 1), torch.full((2, 3, 1), -1000.0), torch.randn(2, 4, 1)]

    def run(model: nn.Module, probe: gs.Probe) -> None:
        state = None
        for x in inputs:
            _, state = model(x, state)
        model(inputs[0])

    expected, opened = both(model, path, run)
    assert float(expected.retention_zeros.max()) == 3
    same(expected, opened)


def test_what_is_not_finite_is_said_over_all_calls(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "BUFFER_BYTES", 1)
    model, x = nn.GRU(1, 2, batch_first=True), torch.randn(4, 6, 1)
    broken = x.clone()
    broken[2, 3] = torch.nan
    with gs.attach(model, store=path) as probe:
        for each in (x, broken, broken):
            model(each)
    with pytest.warns(RuntimeWarning, match="NaN or Inf in 2 of 12 sequences, first at step 3 of sequence 6"):
        assert probe.recording().attrs["nonfinite"].endswith("in layer 0, forward")
    with gs.attach(model, store=path, append=True):
        model(broken)
    opened = gs.open_recording(path)
    assert opened.attrs["nonfinite"].startswith("NaN or Inf in 3 of 16 sequences, first at step 3 of sequence 6")


def test_the_buffer_is_bounded_and_a_flush_takes_everything(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "BUFFER_BYTES", 50_000)
    model, x = nn.GRU(3, 8, batch_first=True), torch.randn(2, 20, 3)  # 6400 bytes a call
    with torch.no_grad(), gs.attach(model, store=path) as probe:
        stream = probe._sink
        assert isinstance(stream, streaming.Stream)
        for _ in range(30):
            model(x)
            assert stream.bytes < 50_000
            assert len(probe.tracks["model"].chunks) == 0
        committed = gs.open_recording(path).attrs["calls"]
        assert committed == 24
        probe.flush(sync=True)
        assert gs.open_recording(path).attrs["calls"] == 30
        assert probe.recording().attrs["calls"] == 30


def test_calls_are_written_after_some_seconds_though_few(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "BUFFER_SECONDS", 0.0)
    model = nn.GRU(3, 8, batch_first=True)
    with gs.attach(model, store=path):
        model(torch.randn(2, 20, 3))
        assert gs.open_recording(path).attrs["calls"] == 1


def test_a_flush_in_the_middle_of_a_call_leaves_it_until_its_labels_are_there(path: Path) -> None:
    class Flushing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.GRU(3, 4, batch_first=True)
            self.probe: gs.Probe | None = None

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.rnn(x)[0]
            if self.probe is not None:
                self.probe.flush()
            return hidden

    model, batches = Flushing(), Batches.of(5, 7)
    with gs.attach(model) as probe:
        batches(model, probe)
    with gs.attach(model, store=path) as stored:
        model.probe = stored
        batches(model, stored)
    opened = gs.open_recording(path)
    assert isinstance(opened, xr.Dataset)
    same(probe.recording(), opened.load())


@pytest.mark.usefixtures("layout")
def test_threads_write_whole_sequences(path: Path) -> None:
    model = nn.LSTM(3, 4, batch_first=True)
    inputs = torch.randn(4, 6, 2, 10, 3)
    outputs: dict[int, torch.Tensor] = {}

    def work(place: int) -> None:
        state = None
        for x in inputs[place]:
            outputs[place], state = model(x, state)

    with torch.no_grad(), gs.attach(model, store=path):
        threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    opened = gs.validate(gs.open_recording(path), values=True)
    assert isinstance(opened, xr.Dataset)
    assert opened.length.values.tolist() == [60] * 8
    ends = {tuple(row) for row in opened.hidden_state.values[0, 0, :, -1].tolist()}
    assert ends == {tuple(row) for output in outputs.values() for row in output[:, -1].tolist()}


@pytest.mark.usefixtures("layout")
def test_a_long_recording_has_an_overview_while_it_is_written_and_after(path: Path) -> None:
    model = nn.GRU(2, 3, batch_first=True)
    inputs = torch.randn(7, 2, 999, 2)
    with torch.no_grad(), gs.attach(model, store=path, signals=["update_gate"]) as probe:
        state = None
        for x in inputs:
            _, state = model(x, state)
            probe.flush()
        model(torch.randn(1, 4500, 2))
        probe.flush()
        part = gs.open_overview(path, per=4096).load()
        assert part.sizes["time"] == 1
    opened = gs.open_recording(path)
    assert isinstance(opened, xr.Dataset)
    for per in (64, 4096):
        found = gs.open_overview(path, per=per).load()
        xr.testing.assert_allclose(overview(opened, per), found, rtol=1e-5, atol=1e-6)
        steps = opened.update_gate[0, 0, 0, -(6993 % per) :, 1].values
        np.testing.assert_allclose(found.update_gate_mean[0, 0, 0, -1, 1], steps.mean(), rtol=1e-5)
        assert float(found.update_gate_max[0, 0, 0, -1, 1]) == steps.max()
    whole = opened.update_gate[0, 0, 0, :4096].values
    np.testing.assert_array_equal(part.update_gate_min[0, 0, 0, 0], whole.min(0))


@pytest.mark.parametrize("ending", ["zarr", "nc"])
def test_a_long_recording_is_saved_with_an_overview(tmp_path: Path, ending: str) -> None:
    with torch.no_grad():
        recording = gs.record(nn.GRU(2, 3, batch_first=True), torch.randn(1, 5000, 2))
    saved = gs.save_recording(recording, tmp_path / f"long.{ending}")
    found = gs.open_overview(saved, per=64, module="model")
    expected = recording.hidden_state[0, 0, 0, 64:128].values
    np.testing.assert_array_equal(found.hidden_state_max.sel(time=64)[0, 0, 0], expected.max(0))
    found.close()
    with pytest.raises(ValueError, match="module must be one of model; 'other' came"):
        gs.open_overview(saved, module="other")


def test_a_short_recording_has_no_overview(path: Path) -> None:
    gs.save_recording(gs.record(nn.GRU(2, 3), torch.randn(9, 1, 2)), path)
    with pytest.raises(ValueError, match=r"more than 4096 steps have an overview; .* has none, with 9 steps"):
        gs.open_overview(path)


@pytest.mark.usefixtures("layout")
def test_a_store_that_was_gone_on_with_equals_the_recordings_one_after_the_other(path: Path) -> None:
    model, first, second = nn.LSTM(3, 4, batch_first=True), Batches.of(5, 9), Batches.of(12)
    parts = []
    for batches in (first, second):
        with gs.attach(model) as probe:
            batches(model, probe)
        parts.append(probe.recording())
        with gs.attach(model, store=path, append=True) as stored:
            batches(model, stored)
    opened = gs.open_recording(path)
    assert isinstance(opened, xr.Dataset)
    same(gs.concat(parts), opened.load())


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("stride", {"stride": 2}),
        ("every", {"every": 3}),
        ("units", {"units": [0]}),
        ("dtype", {"dtype": "float16"}),
        ("signals", {"signals": ["hidden_state"]}),
        ("hash of the weights of 'model'", {}),
    ],
)
def test_only_the_same_settings_and_weights_go_on_with_a_store(path: Path, what: str, change: dict[str, Any]) -> None:
    model = nn.GRU(3, 4)
    with gs.attach(model, store=path):
        model(torch.zeros(5, 2, 3))
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file() and file.name != "lock"}
    if not change:
        with torch.no_grad():
            model.weight_ih_l0[0, 0] += 1
    again = gs.attach(model, store=path, append=True, **change)
    with pytest.raises(ValueError, match=re.escape(f"{what} is ")), again:
        pass
    assert all(file.read_bytes() == content for file, content in before.items())


def test_nothing_is_written_over(path: Path) -> None:
    model = nn.GRU(3, 4)
    gs.save_recording(gs.record(model, torch.zeros(5, 2, 3)), path)
    for append in (False, True):
        again = gs.attach(model, store=path, append=append)
        with pytest.raises(FileExistsError, match=r"must exist|can be gone on with|may exist"), again:
            pass
    assert not (path / ".stream").exists()
    gs.open_recording(path)


def test_a_probe_writes_alone(path: Path) -> None:
    model = nn.GRU(3, 4)
    with gs.attach(model, store=path) as probe:
        model(torch.zeros(5, 2, 3))
        probe.flush()
        second = gs.attach(model, store=path, append=True)
        with pytest.raises(BlockingIOError, match="this process is writing"), second:
            pass
    with gs.attach(model, store=path, append=True):
        model(torch.zeros(5, 2, 3))


def test_a_block_without_calls_leaves_nothing(path: Path) -> None:
    probe = gs.attach(nn.GRU(3, 4), store=path)
    with pytest.raises(ValueError, match="must call at least one"), probe:
        pass
    assert not path.exists()


def test_a_disk_without_room_is_refused_in_a_sentence_and_keeps_what_was_flushed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = nn.GRU(3, 4), torch.zeros(5, 2, 3)
    usage = shutil.disk_usage(path.parent)
    probe = gs.attach(model, store=path)
    monkeypatch.setattr(streaming.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(OSError, match="room for the next buffer of 16,777,216 bytes; 1,000 are free"), probe:
        pass
    assert not path.exists()
    monkeypatch.setattr(streaming.shutil, "disk_usage", lambda path: usage)
    with gs.attach(model, store=path) as probe:
        model(x)
        probe.flush()
        model(x)
        monkeypatch.setattr(streaming.shutil, "disk_usage", lambda path: usage._replace(free=1000))
        with pytest.raises(OSError, match="Everything up to the last flush can be read") as caught:
            probe.flush()
        assert caught.value.errno == errno.ENOSPC
        with pytest.raises(OSError, match="an earlier one could not be written"):
            model(x)
    opened = gs.open_recording(path)
    gs.validate(opened, values=True)
    assert opened.attrs["calls"] == 1
    assert "1 call;" in opened.attrs["unfinished"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"store": "run.nc"}, "store must end in .zarr"),
        ({"store": "a\0b.zarr"}, "store must be a path without the NUL character"),
        ({"stride": 0}, "stride must be a whole number of at least 1; 0 came"),
        ({"every": 1.5}, "every must be a whole number"),
        ({"units": [1, 1]}, "units must be a list of different numbers"),
        ({"units": []}, "units must be a list of different numbers"),
        ({"units": [4]}, "units must be some of the 0 to 3 of 'model'; 4 came"),
        ({"dtype": "int8"}, "dtype must be None"),
        ({"labels": {"token": []}}, "must come call by call"),
        ({"lengths": [1]}, "must come call by call"),
        ({"gradients": True}, "gradients=True came"),
        ({"store": None, "stride": 2}, "stride must come with store="),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        gs.attach(nn.GRU(3, 4), **{"store": tmp_path / "run.zarr", **options})
    assert list(tmp_path.iterdir()) == []


def numbered(model: nn.Module, probe: gs.Probe, x: torch.Tensor) -> None:
    probe.annotate(token=[[1, 2, 3, 4, 5]])
    model(x)


def test_a_label_of_another_kind_is_refused_when_a_store_is_gone_on_with(path: Path) -> None:
    model, x = nn.GRU(3, 4), torch.zeros(5, 1, 3)
    with gs.attach(model, store=path) as probe:
        probe.annotate(token="abcde")
        model(x)
    again = gs.attach(model, store=path, append=True)
    with pytest.raises(ValueError, match="labels 'token' must be of one kind in all of a store"), again:
        numbered(model, again, x)
    assert gs.open_recording(path).attrs["calls"] == 1


def test_an_estimate_is_that_of_the_run(path: Path) -> None:
    model, x = nn.LSTM(3, 64), torch.randn(50, 4, 3)
    options: dict[str, Any] = {"stride": 2, "units": [1, 2, 3, 4], "dtype": "float16"}
    estimate = gs.estimate(model, x, calls=6, **options)
    with torch.no_grad(), gs.attach(model, store=path, **options):
        for _ in range(6):
            model(x)
    opened = gs.open_recording(path)
    stored = [*opened.data_vars.values(), opened["call"]]
    assert estimate.bytes == sum(variable.nbytes for variable in stored)
    assert estimate.seconds > 0
    assert str(estimate).startswith("6 calls: 57.7 kB, about ")


def test_an_estimate_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = nn.LSTM(3, 4, 2, dropout=0.5)
    before = torch.get_rng_state()
    gs.estimate(model, torch.zeros(5, 2, 3))
    assert torch.equal(before, torch.get_rng_state())
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="calls must be a whole number"):
        gs.estimate(model, torch.zeros(5, 2, 3), calls=0)


def test_a_bar_counts_the_calls(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    class Bar:
        def update(self) -> None:
            counted.append(1)

        def close(self) -> None:
            counted.append(0)

    monkeypatch.setattr(streaming, "bar", lambda calls: Bar() if calls == 3 else None)
    model = nn.GRU(3, 4)
    with gs.attach(model, store=path, progress=3):
        for _ in range(3):
            model(torch.zeros(5, 2, 3))
    assert counted == [1, 1, 1, 0]


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize("buffer", [1, 2**24])
def test_a_label_that_only_some_calls_have_is_padding_in_the_others(
    path: Path, monkeypatch: pytest.MonkeyPatch, buffer: int
) -> None:
    monkeypatch.setattr(streaming, "BUFFER_BYTES", buffer)
    inputs = torch.randn(8, 2, 5, 3)

    def run(model: nn.Module, probe: gs.Probe) -> None:
        state = None
        for k, x in enumerate(inputs):
            labels: dict[str, Any] = {"number": x[..., 0]} if k in (2, 5) else {"token": [["a"] * 5] * 2}
            probe.annotate(**labels)
            _, state = model(x, state if k % 4 else None)

    model = nn.GRU(3, 4, batch_first=True)
    expected, opened = both(model, path, run)
    assert np.isnan(expected["number"].values[0, :10]).all()
    same(expected, opened)
    with gs.attach(model, store=path, append=True) as probe:
        probe.annotate(later=[[1.0] * 5] * 2)
        model(inputs[0])
    assert np.isnan(gs.open_recording(path)["later"].values[:4]).all()


def test_a_store_stays_where_it_was_begun_when_the_working_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    model, x = nn.GRU(3, 4), torch.zeros(5, 2, 3)
    with gs.attach(model, store="run.zarr") as probe:
        model(x)
        probe.flush()
        monkeypatch.chdir(tmp_path / "elsewhere")
        model(x)
    assert gs.open_recording(tmp_path / "run.zarr").attrs["calls"] == 2
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_finished_store_opens_while_a_writer_begins_to_go_on_with_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = nn.GRU(3, 4), torch.zeros(5, 2, 3)
    with gs.attach(model, store=path):
        model(x)
    again, look = gs.attach(model, store=path, append=True), store._check_complete
    begun: list[bool] = []

    def look_and_be_overtaken(*what: Any) -> None:
        look(*what)
        if not begun:
            begun.append(True)
            again.__enter__()

    monkeypatch.setattr(store, "_check_complete", look_and_be_overtaken)
    assert gs.open_recording(path).attrs["calls"] == 1
    model(x)
    again.__exit__(None, None, None)
    assert gs.open_recording(path).attrs["calls"] == 2
