"""Joined recordings: sequences one after the other, nothing else changed."""

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

import gatescope as gs
from gatescope.probe.concat import concat
from gatescope.probe.schema import SchemaError, validate


@pytest.fixture
def parts(make_recording):
    first = make_recording(lengths=(7, 12, 1))
    second = make_recording(lengths=(3, 20), seed=1).assign(weight_hh=first["weight_hh"])
    return first, second


def test_every_sequence_is_found_again_with_all_that_belongs_to_it(parts):
    joined = validate(concat(parts), values=True)
    assert joined["sequence"].values.tolist() == [0, 1, 2, 3, 4]
    assert joined["time"].size == 20
    assert joined["length"].values.tolist() == [7, 12, 1, 3, 20]
    place = 0
    for part in parts:
        for sequence in range(part.sizes["sequence"]):
            length = int(part["length"][sequence])
            here = joined.isel(sequence=place, time=slice(length)).drop_vars(["sequence", "call"])
            there = part.isel(sequence=sequence, time=slice(length)).drop_vars(["sequence", "call"])
            xr.testing.assert_equal(here, there)
            place += 1


def test_kinds_attributes_and_order_stay(parts):
    joined = concat(parts)
    for name, variable in parts[0].variables.items():
        assert joined.variables[name].dtype == variable.dtype, name
        assert joined.variables[name].attrs == variable.attrs, name
    assert list(joined.coords) == list(parts[0].coords)
    assert joined.attrs == parts[0].attrs


def test_one_recording_joined_is_itself(make_recording):
    xr.testing.assert_identical(concat([make_recording()]), make_recording())


def test_joining_is_associative(make_recording):
    weights = make_recording()["weight_hh"]
    a, b, c = (make_recording(lengths=(k + 1, 2 * k + 1), seed=k).assign(weight_hh=weights) for k in range(3))
    xr.testing.assert_identical(concat([concat([a, b]), c]), concat([a, concat([b, c])]))


def test_the_parts_stay_as_they_are(parts):
    before = [part.copy(deep=True) for part in parts]
    concat(parts)
    for part, copy in zip(parts, before, strict=True):
        xr.testing.assert_identical(part, copy)


def test_streams_stay_and_calls_of_two_recordings_never_share_a_number(make_recording):
    first, second = make_recording(lengths=(4, 2)), make_recording(lengths=(4, 2))
    first["call"].values[0, 2:] = 5
    joined = concat([first, second])
    assert joined["stream"].values.tolist() == [0, 1, 0, 1]
    assert joined["call"].values.tolist() == [[0, 0, 5, 5], [0, 0, -1, -1], [6, 6, 6, 6], [6, 6, -1, -1]]


def test_a_label_that_one_recording_lacks_is_padding_there_and_said(parts):
    first, second = parts
    joined = validate(concat([first.drop_vars("value"), second.drop_vars(["token", "boundary"])]))
    assert set(joined["token"].values[3:].ravel()) == {""}
    assert not joined["boundary"].values[3:].any()
    assert np.isnan(joined["value"].values[:3]).all()
    assert joined.attrs["labels_left_out"] == (
        "'token' in joined recording 1; 'boundary' in joined recording 1; 'value' in joined recording 0"
    )


def test_the_worst_certificate_counts_and_the_first_date(parts):
    first, second = parts
    joined = concat([first, second.assign_attrs(parity=3e-6, training=1, created="later", nonfinite="cell_state")])
    assert joined.attrs == {**first.attrs, "parity": 3e-6, "training": 1, "nonfinite": "cell_state"}
    assert type(joined.attrs["training"]) is int


def test_changed_weights_are_said_and_the_first_are_kept(make_recording):
    first, second = make_recording(seed=0), make_recording(seed=1)
    joined = concat([first, first, second])
    np.testing.assert_array_equal(joined["weight_hh"], first["weight_hh"])
    assert joined.attrs["weights_changed"] == "weight_hh of joined recording 2 differs; recording 0's is kept"
    assert "weights_changed" not in concat([first, first]).attrs


DIFFERENT = {
    "same cell; recording 0 has LSTMCell, recording 1 has GRUCell": lambda r: r.assign_attrs(cell="GRUCell"),
    "same retention; recording 0 has forget_gate, recording 1 has 0.9": lambda r: r.assign_attrs(retention="0.9"),
    "same layer coordinates": lambda r: r.isel(layer=[0]),
    "same direction coordinates": lambda r: r.isel(direction=[0]),
    "same unit coordinates": lambda r: r.isel(unit=[0, 1]),
    "same signals and other variables": lambda r: r.drop_vars("output_gate"),
    "Label 'value' must be of one kind": lambda r: r.assign_coords(value=r["token"]),
}


@pytest.mark.parametrize("sentence", DIFFERENT)
def test_recordings_of_different_modules_are_refused_by_what_differs(make_recording, sentence):
    with pytest.raises(ValueError, match=sentence):
        concat([make_recording(), DIFFERENT[sentence](make_recording())])


def test_labels_that_only_later_recordings_have_must_agree_too(make_recording):
    bare = make_recording(labels=False)
    with pytest.raises(ValueError, match="object in recording 1 and float64 in recording 2"):
        concat([bare, make_recording(), make_recording().assign_coords(token=make_recording()["value"])])


def test_a_broken_recording_is_refused_by_its_number(make_recording):
    with pytest.raises(SchemaError, match=r"Recording 1 of those to join: .*'length'"):
        concat([make_recording(), make_recording().drop_vars("length")])


def test_nothing_to_join_is_refused():
    with pytest.raises(ValueError, match="at least one recording"):
        concat([])


def test_recordings_of_which_one_has_seen_a_retention_of_exactly_zero_are_joined():
    model = nn.LSTM(1, 2, batch_first=True)
    with torch.no_grad():
        model.weight_ih_l0.fill_(1.0)
    usual, shut = gs.record(model, torch.ones(2, 3, 1)), gs.record(model, torch.full((1, 5, 1), -1000.0))
    assert "retention_zeros" not in usual
    joined = gs.validate(gs.concat([usual, shut]), values=True)
    assert list(joined.data_vars) == list(shut.data_vars)
    assert joined["retention_zeros"][0, 0, :, :3, 0].values.tolist() == [[0, 0, 0], [0, 0, 0], [1, 2, 3]]
    assert np.isnan(joined["retention_zeros"][0, 0, :2, 3:]).all()
