"""Recordings of the peephole LSTM's variants: what they hold, and that it survives."""

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import gatescope as gs
from gatescope.cells import PeepholeLSTMCell, Recurrent

VARIANTS = ("vanilla", "NIG", "NFG", "NOG", "NIAF", "NOAF", "CIFG", "NP", "FGR")
WIDTH, UNITS, STEPS, LENGTHS = 3, 4, 9, [9, 6, 1]


def network(variant, bidirectional=True):
    torch.manual_seed(0)
    return Recurrent.stacked(
        lambda width: PeepholeLSTMCell(width, UNITS, variant=variant, dtype=torch.float64),
        WIDTH,
        num_layers=2,
        bidirectional=bidirectional,
    )


def batch(packed):
    x = torch.randn(STEPS, len(LENGTHS), WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return pack_padded_sequence(x, torch.tensor(LENGTHS)) if packed else x


def stepwise(model, inputs):
    """What the open network's own tap sees: name -> (layer, direction, sequence, time, unit)."""
    seen = {}

    def tap(name, value, *, layer, direction, time):
        shape = (2, 2, value.shape[0], STEPS, value.shape[1])
        array = seen.setdefault(name, np.full(shape, np.nan))
        array[layer, int(direction == "backward"), :, time] = value.detach().numpy()
        return value

    model(inputs, tap=tap)
    return seen


@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_recording_holds_what_every_step_computed(variant, packed):
    model, inputs = network(variant), batch(packed)
    recording = gs.validate(gs.record(model, inputs, preactivations=True), values=True)
    assert (recording.cell, recording.variant) == ("PeepholeLSTMCell", variant)
    assert recording.retention == model.first_cell.retention
    assert recording.parity < 1e-14
    padding = np.arange(STEPS) >= np.array(LENGTHS)[:, None] if packed else np.zeros((3, STEPS), bool)
    for name, values in stepwise(model, inputs).items():
        values[:, :, padding] = np.nan
        np.testing.assert_allclose(recording[name].values, values, rtol=0, atol=1e-14, err_msg=name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_peephole_weights_stand_at_their_gates_and_are_zero_elsewhere(variant):
    model = network(variant)
    recording = gs.record(model, batch(False))
    assert recording.gate.values.tolist() == list(model.first_cell.gates)
    if variant == "NP":
        assert "weight_peephole" not in recording
        return
    assert recording.weight_peephole.dims == ("layer", "direction", "gate", "unit")
    for layer, cells in enumerate(model.cells):
        for direction, cell in enumerate(cells):
            stored = recording.weight_peephole[layer, direction]
            own = dict(zip(cell.peepholes, cell.weight_peephole.detach().numpy(), strict=True))
            for gate in cell.gates:
                np.testing.assert_array_equal(stored.sel(gate=gate), own.get(gate, np.zeros(UNITS)))


def test_gates_that_are_carried_are_recorded_with_their_initial_values():
    model = network("FGR", bidirectional=False)
    given = tuple(torch.randn(2, 3, UNITS, dtype=torch.float64) for _ in range(5))
    recording = gs.validate(gs.record(model, batch(False), given))
    for name, state in zip(model.first_cell.states, given, strict=True):
        np.testing.assert_array_equal(recording[f"initial_{name}"].values[:, 0], state.numpy())


def test_cells_in_a_loop_join_by_all_that_they_carry():
    torch.manual_seed(0)
    cell = PeepholeLSTMCell(WIDTH, UNITS, variant="FGR")
    x = torch.randn(6, 2, WIDTH)
    with gs.attach(cell) as probe:
        state = cell.zero_state(x, (2,))
        for now in x[:3]:
            state = cell(now, state)
        state = (*state[:4], torch.zeros(2, UNITS))  # the output gates of the step before are forgotten
        for now in x[3:]:
            state = cell(now, state)
    recording = gs.validate(probe.recording())
    assert recording.length.values.tolist() == [3, 3, 3, 3]
    assert not recording.initial_output_gate.isel(sequence=[2, 3]).any()
    assert recording.initial_input_gate.isel(sequence=[2, 3]).all()


@pytest.mark.parametrize("suffix", [".zarr", ".nc"])
def test_files_keep_peepholes_variant_and_carried_gates(tmp_path, suffix):
    recording = gs.record(network("FGR"), batch(True))
    gs.save_recording(recording, tmp_path / f"run{suffix}")
    opened = gs.open_recording(tmp_path / f"run{suffix}")
    xr.testing.assert_identical(opened.load(), recording)
    opened.close()


def test_the_schema_guards_peepholes_and_carried_gates():
    recording = gs.record(network("FGR"), batch(False))
    for name in ("weight_peephole", "initial_output_gate"):
        with pytest.raises(gs.SchemaError, match=f"'{name}' must have dimensions layer, direction"):
            gs.validate(recording.assign({name: recording[name].T}))


def test_recordings_of_different_variants_are_not_joined():
    first, second = (gs.record(network(variant), batch(False)) for variant in ("vanilla", "NOAF"))
    with pytest.raises(ValueError, match="must have the same variant; recording 0 has vanilla, recording 1 has NOAF"):
        gs.concat([first, second])
    joined = gs.concat([first, first])
    assert (joined.variant, joined.sizes["sequence"]) == ("vanilla", 6)


def test_no_label_takes_the_name_of_a_carried_gate():
    with pytest.raises(ValueError, match="'initial_input_gate' came"), gs.attach(network("FGR")) as probe:
        probe.annotate(initial_input_gate=[[0] * STEPS] * 3)


def test_variants_inside_a_model_are_listed_and_recorded_by_path():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = network("CIFG")

        def forward(self, x):
            return pad_packed_sequence(self.rnn(x)[0])[0]

    recording = gs.record(Net(), batch(True))
    assert recording.module == "rnn"
    kept = (1 - recording.input_gate) * recording.cell_state.shift(time=1) + recording.input_gate * recording.candidate
    difference = abs(kept - recording.cell_state).sel(direction="forward").isel(time=slice(1, None))
    assert float(difference.max()) < 1e-14
