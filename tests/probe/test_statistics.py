"""Running statistics: what is folded in call by call is what one computes from the full recording."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import xarray as xr
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import gatescope as gs
from gatescope.probe import online
from gatescope.probe.bins import MAGNITUDES
from gatescope.probe.folding import Foldings

# torch says so once, of the first LSTM with proj_size on a CPU
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")

Array = npt.NDArray[Any]
Run = Callable[[nn.Module, gs.Probe], None]


def amplified(model: nn.Module, seed: int = 0, by: float = 6.0) -> nn.Module:
    """The model in evaluation mode with weights so large that its gates open and shut."""
    torch.manual_seed(seed)
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -by / 4, by / 4)
    return model.eval()


def batches(*shapes: tuple[int, ...]) -> list[Tensor]:
    torch.manual_seed(1)
    return [2 * torch.randn(shape) for shape in shapes]


def several_calls(model: nn.Module, probe: gs.Probe) -> None:
    for x in batches((7, 2, 3), (40, 3, 3), (1, 1, 3)):
        model(x)


def marked_padding(model: nn.Module, probe: gs.Probe) -> None:
    for x, lengths in zip(batches((9, 3, 3), (12, 2, 3)), ([9, 1, 4], [0, 12]), strict=True):
        probe.annotate(lengths=lengths)
        model(x)


def packed(model: nn.Module, probe: gs.Probe) -> None:
    for x in batches((11, 3, 3), (11, 3, 3)):
        model(pack_padded_sequence(x, [4, 11, 7], enforce_sorted=False))


def stateful_chunks(model: nn.Module, probe: gs.Probe) -> None:
    state = None
    for x in batches(*[(5, 2, 3)] * 12):
        _, state = model(x, state)
    model(batches((6, 2, 3))[0])


def one_row_leaves(model: nn.Module, probe: gs.Probe) -> None:
    """The second row's state is replaced in the middle, so a new sequence begins there."""
    first, second = batches((30, 2, 3), (30, 2, 3))
    _, state = model(first)
    parts = state if isinstance(state, tuple) else (state,)
    for part in parts:
        part[:, 1] = 0.5
    model(second, state)


class Loop(nn.Module):
    """A cell called once per step, from a forward of its own."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state = None
        for step in x:
            state = self.cell(step, state)
        return state[0] if isinstance(state, tuple) else state


def loops(model: nn.Module, probe: gs.Probe) -> None:
    for x, lengths in zip(batches((13, 2, 3), (20, 3, 3)), ([13, 5], [1, 20, 19]), strict=True):
        probe.annotate(lengths=lengths)
        model(x)


def a_cell_called_bare(model: nn.Module, probe: gs.Probe) -> None:
    state = None
    for step in batches((70, 2, 3))[0]:
        state = model(step, state)


CASES: dict[str, tuple[Callable[[], nn.Module], Run]] = {
    "an LSTM, several calls": (lambda: nn.LSTM(3, 5, num_layers=2), several_calls),
    "both directions, several calls": (lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True), several_calls),
    "both directions, marked padding": (lambda: nn.GRU(3, 4, bidirectional=True), marked_padding),
    "both directions, packed": (lambda: nn.LSTM(3, 4, bidirectional=True), packed),
    "marked padding": (lambda: nn.LSTM(3, 4), marked_padding),
    "packed": (lambda: nn.GRU(3, 4, num_layers=2), packed),
    "stateful chunks": (lambda: nn.LSTM(3, 4), stateful_chunks),
    "stateful chunks of a GRU": (lambda: nn.GRU(3, 4), stateful_chunks),
    "a row of stateful chunks is replaced": (lambda: nn.LSTM(3, 4), one_row_leaves),
    "a projection": (lambda: nn.LSTM(3, 4, proj_size=2), several_calls),
    "a tanh RNN": (lambda: nn.RNN(3, 4), several_calls),
    "cells in a loop": (lambda: Loop(nn.LSTMCell(3, 4)), loops),
    "a GRU cell in a loop": (lambda: Loop(nn.GRUCell(3, 4)), loops),
    "a cell called bare": (lambda: nn.LSTMCell(3, 4), a_cell_called_bare),
    "float64": (lambda: nn.LSTM(3, 4).double(), lambda model, _: model(batches((50, 2, 3))[0].double())),
}
each_case = pytest.mark.parametrize("case", CASES)


def both(model: nn.Module, run: Run) -> tuple[xr.Dataset, xr.Dataset]:
    """Running statistics, and the full recording, of the same calls."""
    with torch.no_grad(), gs.attach(model, statistics=True) as counting:
        run(model, counting)
    with torch.no_grad(), gs.attach(model) as keeping:
        run(model, keeping)
    return counting.statistics(), keeping.recording()


@cache
def of_case(case: str) -> tuple[xr.Dataset, xr.Dataset]:
    make, run = CASES[case]
    return both(amplified(make()), run)


def runs(recording: xr.Dataset, name: str) -> Iterator[tuple[tuple[int, int, int], list[Array]]]:
    """For every layer, direction and unit: the values of each sequence in the order of computation, in float64."""
    values, lengths = recording[name].values.astype(np.float64), recording["length"].values
    for layer, direction, unit in np.ndindex(*values.shape[:2], values.shape[-1]):
        found = [values[layer, direction, row, :length, unit] for row, length in enumerate(lengths)]
        yield (layer, direction, unit), [run[::-1] if direction else run for run in found]


def retention_of(recording: xr.Dataset) -> str:
    return str(recording.attrs["retention"])


def with_retention(recording: xr.Dataset) -> xr.Dataset:
    """The recording with what multiplies the memory as a variable of its own."""
    name = retention_of(recording).removeprefix("1 - ")
    keep = recording[name] if retention_of(recording) == name else 1 - recording[name]
    return recording.assign(keep=keep)


def memory_of(recording: xr.Dataset) -> str:
    return "cell_state" if "cell_state" in recording else "hidden_state"


def close(result: xr.DataArray, at: tuple[int, ...], expected: Any) -> None:
    np.testing.assert_allclose(result.values[at], expected, rtol=1e-12, atol=1e-14, err_msg=f"{result.name}{at}")


@each_case
def test_saturation_is_that_of_the_full_recording(case: str) -> None:
    statistics, recording = of_case(case)
    full = gs.saturation(recording)
    for name, variable in full.variables.items():
        if name in ("mean", "memory_spread"):
            xr.testing.assert_allclose(statistics[name].variable, variable, rtol=1e-12)
        else:
            assert statistics.variables[name].equals(variable), name
        assert statistics.variables[name].attrs == variable.attrs
    for key in full.attrs.keys() - {"measure", "created"}:
        assert statistics.attrs[key] == full.attrs[key], key


@each_case
def test_histograms_are_those_of_the_full_recording(case: str) -> None:
    statistics, recording = of_case(case)
    for name in statistics["signal"].values:
        here = statistics["histogram"].sel(signal=name)
        lower, upper = float(here["lower"]), float(here["upper"])
        for at, found in runs(recording, name):
            expected, _ = np.histogram(np.concatenate(found), bins=50, range=(lower, upper))
            np.testing.assert_array_equal(here.values[at], expected)
        assert int(here.sum("bin").max()) == int(recording["length"].sum())
    np.testing.assert_allclose(statistics["bin"].values[[0, 24, 49]], [0.01, 0.49, 0.99])


@each_case
def test_magnitudes_of_what_has_no_bounds_are_those_of_the_full_recording(case: str) -> None:
    statistics, recording = of_case(case)
    if "unbounded" not in statistics.dims:
        assert all("upper" in recording[name].attrs for name in statistics["signal"].values)
        return
    edges = np.append(MAGNITUDES, np.inf)
    for name in statistics["unbounded"].values:
        here = statistics["magnitude_histogram"].sel(unbounded=name)
        for at, found in runs(recording, name):
            values = np.concatenate(found)
            for sign, chosen in ((-1, values[values < 0]), (1, values[values >= 0])):
                expected = [((edges[k] <= abs(chosen)) & (abs(chosen) < edges[k + 1])).sum() for k in range(50)]
                np.testing.assert_array_equal(here.sel(sign=sign).values[at], expected)


@each_case
def test_mean_and_covariance_are_those_of_the_full_recording(case: str) -> None:
    statistics, recording = of_case(case)
    values = recording[memory_of(recording)].values.astype(np.float64)
    real = recording["call"].values >= 0
    assert statistics.attrs["memory"] == memory_of(recording)
    for layer, direction in np.ndindex(*values.shape[:2]):
        here = values[layer, direction][real]
        close(statistics["memory_mean"], (layer, direction), here.mean(0))
        close(statistics["memory_covariance"], (layer, direction), np.cov(here, rowvar=False))
        close(statistics["memory_steps"], (layer, direction), len(here))


@each_case
def test_the_retention_is_that_of_the_full_recording(case: str) -> None:
    statistics, recording = of_case(case)
    if retention_of(recording) == "none":
        assert "resets" not in statistics
        assert "retention_timescale" not in statistics
        return
    for at, found in runs(with_retention(recording), "keep"):
        values = np.concatenate(found)
        logs = np.log(values[values > 0])
        close(statistics["retention_mean"], at, values.mean())
        close(statistics["retention_mean_log"], at, logs.mean())
        close(statistics["retention_timescale"], at, -1 / logs.mean())
        close(statistics["retention_timescale_of_mean"], at, -1 / np.log(values.mean()))
        close(statistics["retention_zeros"], at, (values == 0).sum())


def falls(run: Array) -> int:
    """Counted one step after the other."""
    count, was_high = 0, False
    for value in run:
        if value > 0.9:
            was_high = True
        elif value < 0.1:
            count, was_high = count + was_high, False
    return count


@each_case
def test_resets_are_those_of_the_full_recording(case: str) -> None:
    statistics, recording = of_case(case)
    if retention_of(recording) == "none":
        return
    for at, found in runs(with_retention(recording), "keep"):
        close(statistics["resets"], at, sum(map(falls, found)))
    assert statistics["resets"].sum() > 0, "a case without resets proves nothing"


@each_case
def test_drift_is_that_of_the_full_recording(case: str) -> None:
    statistics, recording = of_case(case)
    for at, found in runs(recording, memory_of(recording)):
        steps = np.concatenate([np.arange(len(run)) for run in found])
        values = np.abs(np.concatenate(found))
        design = np.stack([np.ones(len(steps)), steps], 1)
        line, residual, _, _ = np.linalg.lstsq(design, values, rcond=None)
        error = np.sqrt(residual[0] / (len(steps) - 2) * np.linalg.inv(design.T @ design)[1, 1])
        close(statistics["drift_slope"], at, line[1])
        np.testing.assert_allclose(statistics["drift_standard_error"].values[at], error, rtol=1e-10)


@each_case
def test_it_says_how_much_it_has_seen(case: str) -> None:
    statistics, recording = of_case(case)
    assert statistics.attrs["measure"] == "statistics"
    assert statistics.attrs["real_steps"] == recording["length"].sum()
    assert statistics.attrs["sequences"] == recording.sizes["sequence"]
    assert statistics.attrs["calls"] == recording["call"].max() + 1
    assert statistics.attrs["parity"] == recording.attrs["parity"]
    assert "schema" not in statistics.attrs


@pytest.mark.parametrize("gathered", [1, 2**30])
@pytest.mark.parametrize("folded", [1, 2**30])
def test_how_much_is_folded_at_once_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, gathered: int, folded: int
) -> None:
    expected = {case: of_case(case) for case in ("cells in a loop", "both directions, packed", "stateful chunks")}
    monkeypatch.setattr(online, "GATHERED", gathered)
    monkeypatch.setattr(online, "FOLDED", folded)
    for case, (result, _) in expected.items():
        make, run = CASES[case]
        now, _ = both(amplified(make()), run)
        xr.testing.assert_allclose(now, result, rtol=1e-11)
        assert now["resets"].equals(result["resets"])
        assert now["histogram"].equals(result["histogram"])


def test_a_relu_network_has_no_saturation_but_the_rest() -> None:
    statistics, recording = both(amplified(nn.RNN(3, 4, nonlinearity="relu"), by=1.0), several_calls)
    assert statistics.sizes["signal"] == 0
    assert "histogram" not in statistics
    values = recording["hidden_state"].values.astype(np.float64)[0, 0][recording["call"].values >= 0]
    close(statistics["memory_covariance"], (0, 0), np.cov(values, rowvar=False))
    zero = statistics["magnitude_histogram"].sel(sign=1, magnitude=0.0).values[0, 0, 0]
    np.testing.assert_array_equal(zero, (values < 1e-6).sum(0))


def test_what_is_not_finite_counts_for_nothing_and_is_said() -> None:
    model, x = amplified(nn.LSTM(3, 4)), batches((20, 3, 3))[0]
    x[12:, 1] = float("inf")

    def run(model: nn.Module, _: gs.Probe) -> None:
        model(x)
        model(batches((6, 2, 3))[0])

    with torch.no_grad(), gs.attach(model, statistics=True) as counting:
        run(model, counting)
    with torch.no_grad(), gs.attach(model) as keeping:
        run(model, keeping)
    with pytest.warns(RuntimeWarning, match="NaN or Inf at 32 of 288 values of input_gate, 30 of 288 values of f"):
        statistics = counting.statistics()
    with pytest.warns(RuntimeWarning):
        recording = keeping.recording()
    assert statistics["steps"].equals(gs.saturation(recording)["steps"])
    memory = recording["cell_state"].values[0, 0].astype(np.float64)
    usable = memory[np.isfinite(memory).all(-1)]
    assert 60 <= len(usable) < 72
    close(statistics["memory_covariance"], (0, 0), np.cov(usable, rowvar=False))
    assert statistics["memory_steps"].item() == len(usable)
    for (_, _, unit), found in runs(recording, "cell_state"):
        pairs = [(step, abs(v)) for run in found for step, v in enumerate(run) if np.isfinite(v)]
        slope = np.polyfit(*zip(*pairs, strict=True), 1)[0]
        np.testing.assert_allclose(statistics["drift_slope"].values[0, 0, unit], slope, rtol=1e-9)
    for at, found in runs(recording, "forget_gate"):
        close(statistics["resets"], at, sum(map(falls, found)))


def test_a_large_mean_takes_no_digits_from_a_small_variance() -> None:
    template = tiny()
    running = online.Online(template)
    rng = np.random.default_rng(0)
    values = 1e8 + rng.normal(size=(1, 1, 3000, 1, 2))
    for start in range(0, 3000, 100):
        running.add(piece_of(values[:, :, start : start + 100], start))
    result = running.result()
    np.testing.assert_allclose(result["memory_covariance"][0, 0], np.cov(values[0, 0, :, 0].T), rtol=1e-7)
    naive = (values**2).mean() - values.mean() ** 2
    assert not 0.9 < naive < 1.1, "sums of squares would have passed too"
    slope = np.polyfit(np.arange(3000), values[0, 0, :, 0, 0] - 1e8, 1)[0]
    np.testing.assert_allclose(result["drift_slope"][0, 0, 0], slope, rtol=1e-6)


def tiny(retention: str = "none") -> xr.Dataset:
    """A recording of two units of one memory, without any step."""
    dims = ("layer", "direction", "sequence", "time", "unit")
    attrs = {"long_name": "m", "symbol": "m", "role": "memory", "units": "1"}
    data = {"hidden_state": (dims, np.empty((1, 1, 0, 0, 2)), attrs)}
    coords = {"layer": [0], "direction": np.array(["forward"], object), "unit": [0, 1]}
    return xr.Dataset(data, coords, {"cell": "RNNCell", "retention": retention})


def gated() -> xr.Dataset:
    """The same with a forget gate."""
    dims = ("layer", "direction", "sequence", "time", "unit")
    attrs = {"long_name": "f", "symbol": "f", "role": "gate", "units": "1", "lower": 0.0, "upper": 1.0}
    return tiny("forget_gate").assign(forget_gate=(dims, np.empty((1, 1, 0, 0, 2)), attrs))


def piece_of(values: Array, start: int = 0, sequence: int = 0) -> online.Piece:
    """A piece of one sequence from values (layer, direction, time, 1, unit)."""
    steps = np.arange(start, start + values.shape[2])[:, None]
    return online.Piece({"hidden_state": values}, np.ones(steps.shape, bool), steps, np.array([sequence]))


def test_a_step_on_which_one_unit_is_not_finite_is_left_out_of_the_covariance_alone() -> None:
    values = np.random.default_rng(0).normal(size=(1, 1, 40, 1, 2))
    values[0, 0, 7, 0, 1] = np.nan
    running = online.Online(tiny())
    running.add(piece_of(values))
    result = running.result()
    usable = np.delete(values[0, 0, :, 0], 7, axis=0)
    np.testing.assert_allclose(result["memory_covariance"][0, 0], np.cov(usable.T), rtol=1e-12)
    assert result["magnitude_histogram"].sum(["sign", "magnitude"]).values.tolist() == [[[[40, 39]]]]
    slope = np.polyfit(np.arange(40), np.abs(values[0, 0, :, 0, 0]), 1)[0]
    np.testing.assert_allclose(result["drift_slope"][0, 0, 0], slope, rtol=1e-9)


def test_two_that_are_merged_say_what_one_would_have_said() -> None:
    values = np.random.default_rng(0).normal(size=(1, 1, 90, 1, 2))
    gates = np.random.default_rng(1).uniform(size=values.shape).clip(0.05, 1) * (values < 1)
    whole, first, second = (online.Online(gated()) for _ in range(3))
    for target, start, sequence in ((first, 0, 0), (second, 30, 1), (second, 60, 2)):
        part = slice(start, start + 30)
        piece = piece_of(values[:, :, part], sequence=sequence)
        for running in (whole, target):
            running.add(piece._replace(signals={**piece.signals, "forget_gate": gates[:, :, part]}))
    assert second.result()["retention_zeros"].any()
    first.merge(second)
    xr.testing.assert_allclose(first.result(), whole.result(), rtol=1e-12)
    assert first.result().attrs == whole.result().attrs


def test_a_constant_retention_has_its_time_scale_and_no_resets() -> None:
    for keep, expected in (("0.5", 1 / np.log(2)), ("1.0", np.inf)):
        running = online.Online(tiny(keep))
        running.add(piece_of(np.zeros((1, 1, 10, 1, 2))))
        result = running.result()
        np.testing.assert_allclose(result["retention_timescale"], expected)
        np.testing.assert_allclose(result["retention_mean"], float(keep))
        assert not result["resets"].any()


def test_a_retention_of_exactly_zero_is_counted_apart() -> None:
    running = online.Online(gated())
    memory = piece_of(np.zeros((1, 1, 4, 1, 2)))
    gate = np.array([[0.5, 0.0], [0.0, 0.0], [0.25, 0.0], [0.5, 0.0]]).reshape(1, 1, 4, 1, 2)
    running.add(memory._replace(signals={**memory.signals, "forget_gate": gate}))
    result = running.result()
    assert result["retention_zeros"].values.tolist() == [[[1, 4]]]
    np.testing.assert_allclose(result["retention_timescale"].values[0, 0], [1 / (np.log(16) / 3), np.nan])
    np.testing.assert_allclose(result["retention_mean"].values[0, 0], [0.3125, 0.0])


def test_outputs_are_bit_for_bit_those_without_a_probe() -> None:
    model, x = amplified(nn.LSTM(3, 5, num_layers=2)), batches((30, 2, 3))[0]
    with torch.no_grad():
        expected = model(x)[0]
        with gs.attach(model, statistics=True):
            assert torch.equal(model(x)[0], expected)


def test_no_step_is_kept() -> None:
    model = amplified(nn.LSTM(3, 5))
    with torch.no_grad(), gs.attach(model, statistics=True) as probe:
        several_calls(model, probe)
        assert isinstance(probe._sink, Foldings)
        track, folding = probe.tracks["model"], probe._sink.modules["model"]
        assert track.chunks == folding.waiting == []
        assert all(chunk.rebuilt.signals == {} for chunks in track.recent.values() for chunk in chunks)
    probe.statistics()
    assert folding.online is not None
    assert folding.online.gathered == []


def test_statistics_can_be_looked_at_in_between() -> None:
    model = amplified(nn.LSTM(3, 5))
    x = batches((30, 2, 3))[0]
    with torch.no_grad(), gs.attach(model, statistics=True) as probe:
        _, state = model(x)
        first = probe.statistics()
        model(x, state)
        assert first.attrs["real_steps"] == 60
        assert first["steps"].max() == 60
    assert probe.statistics().attrs["real_steps"] == 120


def test_lengths_from_a_function_mark_padding() -> None:
    model, x = amplified(nn.LSTM(3, 5)), batches((30, 2, 3))[0]
    with torch.no_grad():
        with gs.attach(model, statistics=True, labels=lambda args, kwargs: {"lengths": [30, 4]}) as probe:
            model(x)
        with gs.attach(model, labels=lambda args, kwargs: {"lengths": [30, 4]}) as keeping:
            model(x)
    assert probe.statistics()["steps"].equals(gs.saturation(keeping.recording())["steps"])
    assert probe.statistics()["steps"].max() == 34


def test_a_call_that_failed_counts_as_it_does_in_a_recording() -> None:
    class Fails(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = amplified(nn.LSTM(3, 4))

        def forward(self, x: Tensor, fail: bool = False) -> None:
            self.rnn(x)
            if fail:
                raise RuntimeError("stop")

    def run(model: nn.Module, _: gs.Probe) -> None:
        for x, fail in zip(batches((9, 2, 3), (7, 2, 3), (8, 1, 3)), (False, True, False), strict=True):
            with suppress(RuntimeError):
                model(x, fail)

    statistics, recording = both(Fails(), run)
    assert recording["length"].sum() == 18 + 14 + 8
    assert statistics["steps"].equals(gs.saturation(recording)["steps"])
    assert statistics.attrs["sequences"] == recording.sizes["sequence"]


def test_modules_are_asked_for_by_name() -> None:
    model = nn.ModuleDict({"a": amplified(nn.LSTM(3, 4)), "b": amplified(nn.GRU(3, 4)), "c": nn.GRU(3, 4)})
    with torch.no_grad(), gs.attach(model, statistics=True) as probe:
        model["a"](batches((9, 2, 3))[0])
        model["b"](batches((9, 2, 3))[0])
    assert probe.statistics("a").attrs["cell"] == "LSTMCell"
    assert probe.statistics("b").attrs["cell"] == "GRUCell"
    with pytest.raises(ValueError, match="module must be one of those recorded; none came"):
        probe.statistics()
    with pytest.raises(ValueError, match="'c' must be called inside the block"):
        probe.statistics("c")


def test_what_needs_steps_says_what_to_call_instead() -> None:
    model = amplified(nn.LSTM(3, 4))
    with torch.no_grad(), gs.attach(model, statistics=True) as probe:
        several_calls(model, probe)
    for ask in (probe.recording, probe.tree):
        with pytest.raises(ValueError, match=r"keeps none. Call statistics\(\) in its place"):
            ask()
    with torch.no_grad(), gs.attach(model) as keeping:
        several_calls(model, keeping)
    with pytest.raises(ValueError, match=r"this one keeps the steps. Use its recording\(\)"):
        keeping.statistics()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lengths": [3]}, "call by call"),
        ({"labels": {"token": ["abc"]}}, "call by call"),
        ({"preactivations": True}, "preactivations=True came"),
        ({"gradients": True}, "gradients=True came"),
    ],
)
def test_what_has_no_meaning_without_steps_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        gs.attach(nn.LSTM(3, 4), statistics=True, **options)


def test_a_subset_of_signals_is_counted_alone() -> None:
    model = amplified(nn.LSTM(3, 4))
    with torch.no_grad(), gs.attach(model, statistics=True, signals=["output_gate"]) as probe:
        several_calls(model, probe)
    result = probe.statistics()
    assert result["signal"].values.tolist() == ["output_gate"]
    assert {"resets", "memory_mean", "drift_slope"}.isdisjoint(result.data_vars)


def test_threads_fold_their_own_calls() -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = amplified(nn.LSTM(3, 4))
    inputs = batches(*[(11, 2, 3)] * 8)

    def chunks(x: Tensor) -> None:
        with torch.no_grad():
            _, state = model(x)
            model(x, state)

    with gs.attach(model, statistics=True) as probe, ThreadPoolExecutor(4) as pool:
        list(pool.map(chunks, inputs))
    with gs.attach(model) as keeping:
        list(map(chunks, inputs))
    result, recording = probe.statistics(), keeping.recording()
    assert result["steps"].equals(gs.saturation(recording)["steps"])
    for at, found in runs(recording, "forget_gate"):
        close(result["resets"], at, sum(map(falls, found)))


def test_results_survive_a_file(tmp_path: Any) -> None:
    result, _ = of_case("both directions, marked padding")
    result.to_netcdf(tmp_path / "statistics.nc", engine="h5netcdf")
    with warnings.catch_warnings(), xr.open_dataset(tmp_path / "statistics.nc", engine="h5netcdf") as stored:
        xr.testing.assert_equal(stored, result)
