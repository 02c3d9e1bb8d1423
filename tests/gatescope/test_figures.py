"""The paper's figures: what is drawn is what was recorded, and what is said of a network is so."""

import re

import numpy as np
import pytest
import torch
import xarray as xr

import gatescope as gs
from gatescope import figure_runs, figures
from gatescope.block_figures import figure_block, figure_partials, figure_runaway, window
from gatescope.block_findings import block_findings, state_partials
from gatescope.cells import BlockNetwork
from gatescope.probe.analyzers.drift import drift
from gatescope.tasks.experiment import Outcome
from gatescope.tasks.grammar import CERG
from gatescope.tasks.statistics import longest_strings, string_lengths

STEPS = 400


def recorded(steps=STEPS, **options):
    torch.manual_seed(1)
    network = BlockNetwork(7, 7, **{"blocks": 4, "size": 2, **options}, dtype=torch.float64)
    for weight in network.parameters():
        torch.nn.init.uniform_(weight, -2, 2)
    sample = CERG(seed=3).sample(steps)
    with torch.no_grad():
        return gs.record(network, sample.inputs, labels=dict(sample.labels)), network, sample


@pytest.fixture(scope="module")
def forgets():
    """Block 2 forgets at string ends alone and holds T (positive) and P (negative); block 1 forgets at every X too."""
    recording = recorded()[0].copy(deep=True)
    symbol, remember = recording.symbol.values[0], recording.remember.values[0]
    ends = np.append(recording.boundary.values[0, 1:], False)
    gate, state = recording.forget_gate.values[0, 0, 0], recording.cell_state.values[0, 0, 0]
    gate[:] = 0.9
    gate[ends, 2:6] = 0.05
    gate[symbol == "X", 2:4] = 0.02
    state[:, 4] = np.where(remember == "T", 2.0, np.where(remember == "P", -1.0, 0.5))
    state[:, 5] = 0.1 * np.sin(np.arange(STEPS)) + 1
    state[:, 2:4] = np.where(ends, 0.1, 2 + np.cos(np.arange(STEPS)))[:, None]
    return recording


@pytest.fixture(scope="module")
def keeps():
    """State 3 grows by 0.25 a step, and its cell shows its output gate as soon as it is far out; the others stay."""
    recording = recorded(200, forget="none")[0].copy(deep=True)
    time = np.arange(200)
    recording.cell_state.values[:] = np.sin(1.7 * time)[:, None]
    recording.cell_state.values[0, 0, 0, :, 3] = -0.25 * time
    recording.hidden_state.values[:] = recording.output_gate.values * np.tanh(recording.cell_state.values / 2)
    return recording


def lines(ax):
    return {line.get_label(): np.array(line.get_data()) for line in ax.get_lines()}


def test_findings_are_those_that_were_built_in(forgets):
    found = block_findings(forgets)
    ends = int(forgets.boundary.sum()) - 1
    assert found.attrs == {"ends": ends, "holder": 2, "short": 1}
    np.testing.assert_allclose(found.at_ends, [0.9, 0.05, 0.05, 0.9])
    assert found.fallen_at_ends.values.tolist() == [0, ends, ends, 0]
    assert float(found.separation.sel(block=2)) == 1.0
    assert (float(found.auc[4]), float(found.sign_code[4]), float(found.sign_code_p[4])) == (1.0, 1.0, -1.0)
    assert float(found.inside.sel(block=2)) == pytest.approx(0.9)
    assert float(found.inside.sel(block=1)) < 0.85
    assert float(found.resets_at_ends.sel(block=2)) > 0.8 * ends
    assert float(found.resets_inside.sel(block=2)) == 0
    assert float(found.resets_inside.sel(block=1)) > 0


def truncated(network, inputs):
    """Norms of ds/dw by autograd, what the cells show being cut off from the graph: (time, unit) by kind of weight."""
    cell = network.cell
    names = [name for name in ("candidate", "input_gate", "forget_gate") if name in cell.gates]
    found = {name: np.zeros((len(inputs), 8)) for name in names}
    state = cell.zero_state(inputs[0])
    for t, x in enumerate(inputs):
        state = cell(x, (state[0].detach(), *state[1:]))
        for unit in range(8):
            grads = torch.autograd.grad(
                state[1][unit], [cell.weight_ih, cell.weight_hh, cell.bias_ih], retain_graph=True, allow_unused=True
            )
            for name in names:
                first = sum(cell.rows[: cell.gates.index(name)])
                row = first + (unit if name == "candidate" else unit // 2)
                parts = [grads[0][row], grads[1][row]]
                if name != "candidate":
                    bias = cell.block_gates.index(name) * cell.blocks + unit // 2
                    parts.append(grads[2][bias : bias + 1])
                found[name][t, unit] = torch.cat(parts).norm()
    return found


@pytest.mark.parametrize("forget", ["learned", "none", 0.9])
def test_partials_are_the_derivatives_of_the_state_as_truncated_learning_has_them(forget):
    recording, network, sample = recorded(25, forget=forget)
    found = state_partials(recording)
    expected = truncated(network, torch.as_tensor(sample.inputs[0], dtype=torch.float64))
    assert set(found.data_vars) == set(expected)
    for name, values in expected.items():
        np.testing.assert_allclose(found[name].values[0], values, rtol=1e-9, atol=1e-12, err_msg=name)


def test_partials_of_other_wirings_are_refused_in_one_sentence():
    with pytest.raises(ValueError, match="input and output gates that do not see gates; a cell with 'no output gate'"):
        state_partials(recorded(20, output_gate=False)[0])


def test_string_lengths_are_drawn_as_they_are():
    result = string_lengths(strings=2000)
    ax = figures.figure_string_lengths(result).axes[0]
    shown = lines(ax)
    np.testing.assert_array_equal(shown["exact, mean 12"][1], result.exact)
    drawn = next(values for label, values in shown.items() if label.startswith("drawn, 2,000"))
    assert np.nansum(drawn[1]) == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_array_equal(drawn[0], result.length)


def test_the_longest_strings_are_drawn_as_they_are():
    result = longest_strings(strings=[10, 100], runs=3)
    shown = lines(figures.figure_longest_strings(result).axes[0])
    np.testing.assert_array_equal(shown["exact mean"], [result.strings, result.expected])
    np.testing.assert_array_equal(np.sort(shown["drawn, 3 runs"][1]), np.sort(result.drawn.values.ravel()))


def test_a_runaway_state_stands_above_its_squasher_and_its_gate(keeps):
    trend = drift(keeps, late=1.0)
    assert figure_runs.growing_unit(keeps, trend) == 3
    figure = figure_runaway(keeps, trend, 3)
    states, squasher, shown = (lines(ax) for ax in figure.axes)
    np.testing.assert_allclose(states["unit 3"][1], -0.25 * np.arange(200))
    np.testing.assert_allclose(states["trend of unit 3, 0.25 per step"][1], -0.25 * np.arange(200), atol=1e-9)
    assert "units 0, 1, 2, 4, 5, 6, 7: no growth" in states
    np.testing.assert_allclose(squasher["|h(s)| of unit 3"][1], np.tanh(0.125 * np.arange(200)))
    gate = shown["its output gate"][1]
    np.testing.assert_array_equal(gate, keeps.output_gate.values[0, 0, 0, :, 3])
    since = int(shown["_from here on output and gate agree"][0][0])
    assert since == float(trend.degenerate_from[0, 0, 0, 3])
    assert (shown["|its cell output|"][1][since:] > 0.95 * gate[since:]).all()


def test_where_no_state_grows_the_figure_is_refused(keeps):
    still = keeps.copy(deep=True)
    still.cell_state.values[0, 0, 0, :, 3] = 0.1 * np.cos(np.arange(200))
    with pytest.raises(ValueError, match="must grow in a straight line; none does"):
        figure_runs.growing_unit(still, drift(still, late=1.0))


def test_the_window_is_made_of_whole_strings_with_t_and_p(forgets):
    steps = window(forgets)
    begins = np.flatnonzero(forgets.boundary.values[0])
    assert steps.start in begins
    assert steps.stop in begins
    assert steps.start >= 100
    inside = begins[(begins >= steps.start) & (begins < steps.stop)]
    assert len(inside) == 6
    assert (forgets.symbol.values[0][inside + 1] == "T").sum() == 3


@pytest.mark.parametrize("block", [1, 2])
def test_a_block_is_drawn_as_recorded_with_what_must_be_remembered_behind_it(forgets, block):
    figure = figure_block(forgets, block)
    gate, states = figure.axes
    part = forgets.isel(time=window(forgets))
    (line,) = [values for label, values in lines(gate).items() if label.startswith("unit")]
    np.testing.assert_array_equal(line, [part.time, part.forget_gate.values[0, 0, 0, :, 2 * block]])
    for unit in (2 * block, 2 * block + 1):
        np.testing.assert_array_equal(lines(states)[f"unit {unit}"][1], part.cell_state.values[0, 0, 0, :, unit])
    covered = np.full(part.sizes["time"], "", object)
    for patch in states.patches:
        start, stop = patch.get_x(), patch.get_x() + patch.get_width()
        symbol = patch.get_label().lstrip("_")[0]
        covered[(part.time.values > start) & (part.time.values < stop)] = symbol
    assert covered.tolist() == part.remember.values[0].tolist()
    symbols = [text.get_text() for ax in gate.child_axes for text in ax.get_xticklabels()]
    assert symbols == part.symbol.values[0].tolist()
    assert gate.get_ylabel() == f"forget gate\nof block {block}"


def test_partials_are_drawn_below_what_multiplies_them(forgets, keeps):
    shown = [(forgets, state_partials(forgets), 4), (keeps, state_partials(keeps), 3)]
    grid = np.array(figure_partials(shown).axes).reshape(3, 2)
    part = forgets.isel(time=window(forgets))
    np.testing.assert_array_equal(lines(grid[0, 0])["what multiplies the state"][1], part.forget_gate[0, 0, 0, :, 4])
    assert set(lines(grid[0, 1])["what multiplies the state"][1]) == {1.0}
    np.testing.assert_array_equal(lines(grid[1, 1])["state"][1], keeps.cell_state[0, 0, 0, :, 3])
    names = {"candidate": "cell input", "input_gate": "input gate", "forget_gate": "forget gate"}
    for column, (_, partials, unit) in zip(grid.T, shown, strict=True):
        drawn = {label: values for label, values in lines(column[2]).items() if label.startswith("by")}
        assert list(drawn) == [f"by the weights of the {names[name]}" for name in names if name in partials]
        for name in partials.data_vars:
            time, values = drawn[f"by the weights of the {names[name]}"]
            np.testing.assert_array_equal(values, partials[name].values[0, time.astype(int), unit])


def outcome(number, verdict, lengths):
    curve = np.array([[100.0 * (k + 1), value] for k, value in enumerate(lengths)])
    return Outcome(number, verdict, 100 * len(lengths), 5, (1,), (1,), False, 0, {}, curve, 0.0)


RUNS = {
    "constant alpha": [outcome(3, "perfect", [3, 20, 5e4]), outcome(4, "rest", [2, 9, 0])],
    "alpha decay 0.99": [outcome(3, "perfect", [3, 8, 1e5])],
}


def test_training_is_drawn_with_a_dot_where_a_network_was_perfect():
    shown = lines(figures.figure_training(RUNS).axes[0])
    assert shown["constant alpha: 1 of 2 perfect"].tolist() == [[100, 200, 300], [3, 20, 5e4]]
    assert shown["_constant alpha 1"][1].tolist() == [2, 9, 1]
    assert shown["_alpha decay 0.99 0 perfect"].tolist() == [[300], [1e5]]
    assert "_constant alpha 1 perfect" not in shown


@pytest.fixture
def without_training(monkeypatch, forgets, keeps):
    """What was built in place of trained networks."""
    right = figure_runs.Run(outcome(4, "perfect", [1]), forgets, 0, -1)
    wrong = figure_runs.Run(outcome(20, "rest", [1]), keeps, 30, 12)
    monkeypatch.setattr(figure_runs, "shown", lambda row, number, steps: right if row == "forget" else wrong)
    monkeypatch.setattr(figures, "trained", lambda: RUNS)
    monkeypatch.setattr(figures, "string_lengths", lambda: string_lengths(strings=500))
    monkeypatch.setattr(figures, "longest_strings", lambda: longest_strings(strings=[10, 100], runs=2))


def test_all_figures_are_written_with_captions_that_say_the_numbers(without_training, tmp_path, forgets):
    said = []
    written = figures.figures(tmp_path / "new" / "folder", say=said.append)
    names = [f"figure-{number}" for number in (4, 5, 7, 8, 9, 10)] + ["partials"]
    assert [path.name for path in written] == [f"{n}.{s}" for n in names for s in ("png", "svg")] + ["captions.md"]
    assert all(path.stat().st_size > 0 for path in written)
    assert said[0] == f"wrote {written[0]} and figure-4.svg"
    assert len(said) == 7
    captions = written[-1].read_text(encoding="utf-8")
    assert re.findall(r"!\[(\S+)\]\((\S+).png\)", captions) == [(name, name) for name in names]
    ends = int(forgets.boundary.sum()) - 1
    assert f"falls below 0.2 at {ends} of {ends} string ends" in captions
    assert (
        "unit 4 is positive on 100% of the steps while it is T, negative on 100% of the steps while it is P" in captions
    )
    assert "1 of 8 states grow for as long as the stream lasts, that of unit 3 by 0.25 per step" in captions
    assert "It predicts 170 of 200 steps right" in captions
    assert "constant alpha: 1 of 2 perfect, after 300 streams" in captions


def test_a_picture_drawn_again_is_the_same_file(tmp_path):
    texts = []
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        picture = figures.Picture("training", figures.figure_training(RUNS), "")
        texts.append([path.read_bytes() for path in figures.drawn(picture, tmp_path / name)])
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_the_networks_shown_do_what_the_figures_say():
    found = figure_runs.found()
    assert found.forgets.outcome.verdict == "perfect"
    assert found.forgets.wrong == 0
    row = found.blocks.sel(block=found.blocks.attrs["holder"])
    assert row.separation > 0.99
    assert row.fallen_at_ends > 0.95 * found.blocks.attrs["ends"]
    assert row.inside > 0.95
    assert found.blocks.sel(block=found.blocks.attrs["short"]).resets_inside > 100
    partial = found.partials.candidate.isel(
        sequence=0, unit=figure_runs.holding_unit(found.blocks, found.forgets.recording.unit)
    )
    fallen = found.forgets.recording.forget_gate.values[0, 0, 0, :, int(partial.unit)] < 0.2
    assert partial.values[fallen].max() < np.median(partial.values[~fallen])
    assert found.keeps.wrong > 0
    since = float(found.drift.degenerate_from[0, 0, 0, found.growing])
    assert 50 < since < 150
    grown = found.kept_partials.input_gate.values[0, :, found.growing]
    assert grown[-1] > 5 * grown[50]


def test_recordings_on_the_way_keep_their_schema(forgets, keeps):
    for recording in (forgets, keeps):
        assert isinstance(gs.validate(recording, values=True), xr.Dataset)
