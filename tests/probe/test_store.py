"""Saving and opening recordings."""

import pytest
import xarray as xr
from gatescope.probe.store import open_recording, save_recording

FORMATS = (".zarr", ".nc")


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_recording_comes_back_as_it_was(make_recording, tmp_path, suffix):
    recording = make_recording()
    path = save_recording(recording, tmp_path / f"run{suffix}")
    opened = open_recording(path)
    xr.testing.assert_identical(opened, recording)
    assert {k: v.dtype for k, v in opened.variables.items()} == {k: v.dtype for k, v in recording.variables.items()}
    assert list(opened.coords) == list(recording.coords)
    assert list(opened.data_vars) == list(recording.data_vars)
    opened.close()


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_tree_comes_back_as_it_was(make_recording, tmp_path, suffix):
    tree = xr.DataTree.from_dict({"encoder.rnn": make_recording(), "decoder": make_recording(layers=1, units=3)})
    opened = open_recording(save_recording(tree, tmp_path / f"run{suffix}"))
    xr.testing.assert_identical(opened, tree)
    opened.close()
