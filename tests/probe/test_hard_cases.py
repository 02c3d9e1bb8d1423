"""The contract tried on its hardest cases: each is written in both formats, opened, validated and compared."""

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import gatescope as gs

WIDTH, UNITS = 3, 5
TOKENS = ["", "x" * 5000, "مرحبا بالعالم", "🐈‍⬛👩🏽‍🚀", "a\0b", "\0", "\\0", "\n\t\r", " ", "ﷺ", "nan", "é"]


def batch(rows, steps, seed=0):
    return torch.randn(rows, steps, WIDTH, generator=torch.Generator().manual_seed(seed))


def two_calls_with_labels():
    model = nn.LSTM(WIDTH, UNITS, num_layers=2, batch_first=True)
    with gs.attach(model, preactivations=True) as probe:
        probe.annotate(token=["ab", "cdefg", "h"], boundary=[[True, False], [True] * 5, [False]], lengths=[2, 5, 1])
        probe.annotate(value=[[1, 2], [3, 4, 5.5, None, 7], [8]])
        model(batch(3, 5))
        probe.annotate(token=["ijklmnop"], boundary=[[False] * 7 + [True]])
        model(batch(1, 8, seed=1))
    return probe.recording()


def joined_loop_of_cells():
    cell, x = nn.LSTMCell(WIDTH, UNITS), batch(3, 6)
    with gs.attach(cell) as probe:
        state = None
        for step in range(6):
            if step == 4:
                state = tuple(entry * torch.tensor([[1.0], [0.0], [1.0]]) for entry in state)
            state = cell(x[:, step], state)
    return probe.recording()


def projection():
    return gs.record(
        nn.LSTM(WIDTH, UNITS, num_layers=2, proj_size=2, bidirectional=True).double(), batch(5, 4).double()
    )


def gru():
    return gs.record(nn.GRU(WIDTH, UNITS, num_layers=2), batch(5, 4), preactivations=True)


def plain_rnn():
    return gs.record(nn.RNN(WIDTH, UNITS, nonlinearity="relu"), batch(5, 4), preactivations=True)


def bidirectional_packed():
    x = pack_padded_sequence(batch(4, 7), torch.tensor([2, 7, 1, 5]), batch_first=True, enforce_sorted=False)
    return gs.record(
        nn.LSTM(WIDTH, UNITS, num_layers=2, bidirectional=True), x, labels={"token": ["ab", "cdefghi", "j", "klmno"]}
    )


def hard_tokens():
    module = nn.GRU(WIDTH, UNITS, batch_first=True)
    return gs.record(module, batch(2, len(TOKENS)), labels={"token": [TOKENS, TOKENS[:3]]}, lengths=[len(TOKENS), 3])


def half_precision():
    return gs.record(nn.LSTM(WIDTH, UNITS, batch_first=True).to(torch.bfloat16), batch(2, 4).to(torch.bfloat16))


def one_signal():
    return gs.record(nn.LSTM(WIDTH, UNITS, batch_first=True), batch(2, 4), signals=["input_gate"])


def training_with_dropout():
    return gs.record(nn.LSTM(WIDTH, UNITS, num_layers=2, dropout=0.5, batch_first=True), batch(2, 4))


def tree_of_three():
    class Three(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.ModuleDict({"rnn": nn.LSTM(WIDTH, UNITS, bidirectional=True)})
            self.middle = nn.GRU(2 * UNITS, 4)
            self.decoder = nn.LSTMCell(4, 2)

        def forward(self, x):
            x, _ = self.middle(self.encoder["rnn"](x)[0])
            state = None
            for now in x:
                state = self.decoder(now, state)

    model = Three()
    with gs.attach(model) as probe:
        probe.annotate(token=["abcdefg"] * 2)
        model(batch(7, 2))
        model(batch(3, 4))
    return probe.tree()


CASES = {
    case.__name__: case
    for case in (
        two_calls_with_labels,
        joined_loop_of_cells,
        projection,
        gru,
        plain_rnn,
        bidirectional_packed,
        hard_tokens,
        half_precision,
        one_signal,
        training_with_dropout,
        tree_of_three,
    )
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def made(request):
    torch.manual_seed(0)
    return request.param()


def datasets(recording):
    return (
        [node.to_dataset() for node in recording.children.values()]
        if isinstance(recording, xr.DataTree)
        else [recording]
    )


@pytest.mark.parametrize("ending", [".zarr", ".nc"])
def test_it_comes_back_from_disk_as_it_was(made, tmp_path, ending):
    gs.validate(made, values=True)
    opened = gs.open_recording(gs.save_recording(made, tmp_path / f"run{ending}"))
    gs.validate(opened, values=True)
    xr.testing.assert_identical(opened, made)
    for back, was in zip(datasets(opened), datasets(made), strict=True):
        assert {name: v.dtype for name, v in back.variables.items()} == {
            name: v.dtype for name, v in was.variables.items()
        }
        assert back.attrs == was.attrs
        assert {k: type(v) for k, v in back.attrs.items()} == {k: type(v) for k, v in was.attrs.items()}
    opened.close()


def test_the_variables_are_those_of_the_contract(made):
    dims = ("layer", "direction", "sequence", "time")
    for recording in datasets(made):
        for name, variable in recording.data_vars.items():
            if "role" in variable.attrs:
                shown = "projection" if "projection" in recording.dims and name == "hidden_state" else "unit"
                assert variable.dims == (*dims, shown)
        assert recording.initial_hidden_state.dims[:3] == ("layer", "direction", "sequence")
        assert recording.weight_hh.dims == ("layer", "direction", "gate", "unit", "source")
        assert all(isinstance(value, (str, int, float)) for value in recording.attrs.values())
        assert not any(isinstance(value, (bool, np.generic)) for value in recording.attrs.values())
        assert recording.start.dtype == recording.direction.dtype == np.dtype(object)


def test_hard_tokens_are_recorded_to_the_letter():
    recording = hard_tokens()
    assert recording.token.values[0].tolist() == TOKENS
    assert recording.token.values[1].tolist() == TOKENS[:3] + [""] * (len(TOKENS) - 3)


def test_a_recording_can_be_joined_to_another():
    torch.manual_seed(0)
    model = nn.LSTM(WIDTH, UNITS, batch_first=True)
    one = gs.record(model, batch(2, 4), labels={"token": ["abcd", "efgh"]})
    other = gs.record(model, batch(3, 6), lengths=[6, 2, 1])
    both = gs.validate(gs.concat([one, other]), values=True)
    assert both.length.values.tolist() == [4, 4, 6, 2, 1]
