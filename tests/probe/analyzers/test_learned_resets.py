"""Resets of networks that learned the continual embedded Reber grammar, against what is known of them."""

import numpy as np
import pytest
import torch
import xarray as xr

import gatescope as gs

HOLDING = {"cerg-forget": (2, (0.9, 1.0)), "cerg-partial": (3, (0.7, 0.9))}  # block, and its depth


def recorded(name: str) -> xr.Dataset:
    network, sample = gs.load_example(name)
    with torch.no_grad():
        return gs.record(network, sample.inputs, labels=dict(sample.labels))


@pytest.mark.parametrize("name", HOLDING)
def test_the_block_that_holds_the_long_memory_resets_at_every_string_and_nowhere_else(name: str) -> None:
    recording = recorded(name)
    block, (least, most) = HOLDING[name]
    auc = gs.selectivity(recording, "remember", signals=["cell_state"])["auc"].sel({"class": "T"})
    apart = np.abs(2 * auc.values.ravel() - 1)
    assert recording["block"].values[apart.argmax()] == block
    events = gs.resets(recording)
    result = gs.alignment(events, tolerance=1).sel(memory_block=block, layer=0, direction="forward")
    assert (result["block_recall"].item(), result["block_precision"].item()) == (1.0, 1.0)
    assert result["boundaries"].item() > 150
    assert result["block_p_adjusted"].item() < 0.01
    depth = events["mean_depth"].isel(kind=0, layer=0, direction=0).values[recording["block"].values == block]
    assert ((depth > least) & (depth < most)).all()


def test_short_memory_blocks_are_told_apart_because_they_also_reset_inside_strings() -> None:
    events = gs.resets(recorded("cerg-forget"))
    result = gs.alignment(events, tolerance=1).isel(layer=0, direction=0)
    short = result.sel(memory_block=[0, 1])
    assert (short["block_recall"] == 1).all()
    assert (short["block_precision"] < 0.6).all()
    assert (short["block_events"] > 1.5 * result["boundaries"]).all()
    assert set(gs.triggers(events, "symbol")["trigger"].values.ravel()) == {"B", ""}


def test_a_network_without_forget_gates_has_no_learned_resets_even_when_reset_from_outside() -> None:
    network, sample = gs.load_example("cerg-external-reset")
    with torch.no_grad():
        outside = {"reset": torch.from_numpy(sample.labels["boundary"])}
        recording = gs.record(network, sample.inputs, labels=dict(sample.labels), inputs_kwargs=outside)
    assert (recording["start"] == "imposed").sum() > 100
    for each in (recording, recorded("cerg-1997")):
        events = gs.resets(each)
        assert events.sizes["event"] == 0
        assert "never throws it away" in events.attrs["reason"]


def test_imposed_resets_are_not_counted_as_the_networks_own() -> None:
    network, sample = gs.load_example("cerg-forget")
    with torch.no_grad():
        outside = {"reset": torch.from_numpy(sample.labels["boundary"])}
        recording = gs.record(network, sample.inputs, labels=dict(sample.labels), inputs_kwargs=outside)
    events = gs.resets(recording)
    assert (recording["start"] == "imposed").sum() > 100
    assert (events["onset"] > 0).all()
    units = np.flatnonzero(recording["block"].values == 2)
    assert events["count"].isel(kind=0, layer=0, direction=0, unit=units).sum() < 10
