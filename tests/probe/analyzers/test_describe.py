"""Findings: what was put into a recording is said, the largest first, and noise is not."""

import re
import sys
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

from gatescope.probe.analyzers import describe, resets
from gatescope.probe.analyzers.findings import LEVEL
from gatescope.probe.schema import SchemaError

Make = Callable[..., xr.Dataset]


def spoken(result: xr.Dataset) -> dict[str, list[str]]:
    """Sentences by measure."""
    found: dict[str, list[str]] = {}
    for measure, text in zip(result["measure"].values, result["text"].values, strict=True):
        found.setdefault(measure, []).append(text)
    return found


def long_recording(make_recording: Make, seed: int = 0) -> xr.Dataset:
    return make_recording(layers=1, directions=1, lengths=(300, 280, 250), seed=seed)


def test_a_model_left_in_training_mode_with_dropout_is_the_first_finding(make_recording: Make) -> None:
    recording = long_recording(make_recording).assign_attrs(training=1, dropout=0.3)
    result = describe(recording)
    assert "training mode with dropout 0.3" in result["text"].values[0]
    assert (result["effect"].values[0], result["layer"].values[0], result["direction"].values[0]) == (1.0, -1, "")
    assert "recording" not in spoken(describe(recording.assign_attrs(training=0)))


def test_resets_are_looked_for_once_whatever_rests_on_them(
    make_recording: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    for name in ("known", "roles"):
        module = sys.modules[f"gatescope.probe.analyzers.{name}"]
        monkeypatch.setattr(module, "resets", lambda it: calls.append(it) or resets(it))
    recording = long_recording(make_recording)
    assert len(describe(recording)["finding"]) > 0
    assert len(calls) == 1
    assert calls[0] is recording


def test_findings_stand_in_the_order_of_their_effect_and_no_more_than_asked_for(make_recording: Make) -> None:
    recording = long_recording(make_recording)
    recording["input_gate"][..., :3], recording["output_gate"][..., 1] = 0.99, 0.01
    result = describe(recording)
    effects = result["effect"].values
    assert (np.diff(effects) <= 0).all()
    assert ((effects >= 0) & (effects <= 1)).all()
    texts = spoken(result)["saturation"]
    assert texts[0] == "input_gate is stuck open in 60% of the units of layer 0, forward."
    assert "output_gate is stuck shut in 20% of the units of layer 0, forward." in texts
    assert describe(recording, most=1)["text"].values.tolist() == result["text"].values[:1].tolist()
    assert describe(recording, most=1).attrs["found"] == result.attrs["found"]


def test_resets_at_boundaries_and_what_sets_them_off_are_found(make_recording: Make) -> None:
    rng = np.random.default_rng(0)
    recording = long_recording(make_recording)
    token = rng.choice(list("abcd"), size=recording["token"].shape).astype(object)
    real = recording["call"].values >= 0
    boundary = (token == "d") & real
    token[~real] = ""
    gate, memory = recording["forget_gate"].values[0, 0], recording["cell_state"].values[0, 0]
    gate[..., 2], memory[..., 2] = np.where(boundary, 0.01, 0.99), np.where(boundary, 0.01, 1.0)
    gate[~real], memory[~real] = np.nan, np.nan
    recording = recording.assign_coords(token=(("sequence", "time"), token), boundary=(("sequence", "time"), boundary))
    result = describe(recording)
    aligned = result.isel(finding=int(np.flatnonzero(result["measure"] == "alignment")[0]))
    assert "Unit 2 of layer 0, forward" in aligned["text"].item()
    assert aligned["unit"].item() == 2
    assert aligned["p"].item() < LEVEL
    assert "token 'd'" in spoken(result)["triggers"][0]
    assert any("unit 2" in text and "token 'd'" in text for text in spoken(result)["selectivity"])


def test_gates_that_follow_nothing_are_not_said_to_follow_labels(make_recording: Make) -> None:
    for seed in range(5):
        assert not {"alignment", "triggers", "selectivity"} & set(
            spoken(describe(long_recording(make_recording, seed)))
        )


def test_a_memory_that_runs_away_is_found(make_recording: Make) -> None:
    recording = long_recording(make_recording)
    recording["cell_state"][..., 4] = (0.5 * recording["time"]).where(recording["time"] < recording["length"])
    texts = spoken(describe(recording))["drift"]
    assert "20% of the units of layer 0, forward, most in unit 4, by 0.5 a step" in texts[0]


@pytest.mark.parametrize("name", ["cerg-forget", "cerg-partial"])
def test_a_trained_network_is_described_as_what_it_is(name: str) -> None:
    torch = pytest.importorskip("torch")
    import gatescope as gs

    model, sample = gs.load_example(name)
    dtype = next(model.parameters()).dtype
    recording = gs.record(model, torch.as_tensor(sample.inputs, dtype=dtype), labels=dict(sample.labels))
    said = spoken(describe(recording))
    precision, recall = (float(number) for number in re.findall(r"\d\.\d\d", said["alignment"][0]))
    assert precision >= 0.95
    assert recall == 1.0
    assert any("remember" in text for text in said["selectivity"])
    assert any(f"symbol {letter!r}" in said["triggers"][0] for letter in "BE")  # a string's end or the next one's start
    if name == "cerg-partial":
        assert any(re.search(r"has (one latch|2 latches) for remember, unit", text) for text in said["roles"])


def holding(make_recording: Make) -> xr.Dataset:
    """A recording in which unit 1 holds `side` by its sign between resets; `held` is another label, of no unit."""
    rng = np.random.default_rng(7)
    recording = make_recording(layers=1, directions=1, lengths=(240, 240, 240)).drop_vars("value")
    boundary = np.broadcast_to(np.arange(240) % 12 == 0, (3, 240))
    sign = np.repeat(rng.choice([-1.0, 1.0], (3, 20)), 12, axis=1)
    recording["forget_gate"][0, 0, :, :, 1] = np.where(boundary, 0.01, 0.99)
    recording["cell_state"][0, 0, :, :, 1] = np.where(boundary, 0.0, 2 * sign) + 0.02 * rng.normal(size=sign.shape)
    side = np.where(boundary, "", np.where(sign > 0, "left", "right")).astype(object)
    held = np.repeat(rng.choice(["x", "y"], (3, 20)), 12, axis=1).astype(object)
    names = {"held": held, "side": side, "boundary": boundary}
    return recording.assign_coords({name: (("sequence", "time"), values) for name, values in names.items()})


def test_a_latch_is_looked_for_with_each_label_and_said_with_the_one_it_holds(make_recording: Make) -> None:
    recording = holding(make_recording)
    assert list(recording.drop_vars(["token", "boundary"]).coords)[-2:] == ["held", "side"]  # not the first label
    said = [text for text in spoken(describe(recording, most=50))["roles"] if "latch" in text]
    assert said == ["Layer 0, forward has one latch for side, unit 1."]


def test_without_a_label_a_latch_is_looked_for_once(make_recording: Make) -> None:
    recording = holding(make_recording).drop_vars(["held", "side", "token"])
    said = [text for text in spoken(describe(recording, most=50))["roles"] if "latch" in text]
    assert said == ["Layer 0, forward has one latch, unit 1."]


def test_what_counts_is_said_once_however_many_labels_there_are(make_recording: Make) -> None:
    recording = holding(make_recording)
    since = np.arange(240) % 12
    recording["forget_gate"][0, 0, :, :, 3] = np.where(since == 0, 0.01, 0.99)
    recording["cell_state"][0, 0, :, :, 3] = 0.5 * since
    said = [text for text in spoken(describe(recording, most=50))["roles"] if "clock" in text or "counter" in text]
    assert said == ["Layer 0, forward has one clock, unit 3."]


def test_a_cell_without_gates_or_labels_is_described_by_what_it_has(make_recording: Make) -> None:
    recording = long_recording(make_recording).drop_vars(["token", "boundary", "value", "weight_hh", "gate", "source"])
    recording = recording.drop_vars(["input_gate", "forget_gate", "output_gate"]).assign_attrs(retention="none")
    assert set(spoken(describe(recording))) <= {"saturation", "drift", "roles"}


def test_what_cannot_be_described_is_refused(make_recording: Make) -> None:
    with pytest.raises(ValueError, match="most must be at least 1"):
        describe(make_recording(), most=0)
    with pytest.raises(TypeError, match="describe needs one recording"):
        describe(None)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="describe needs a recording"):
        describe(xr.Dataset())


def test_no_measure_crowds_out_another(make_recording: Make) -> None:
    recording = holding(make_recording)
    recording["input_gate"][...], recording["output_gate"][...] = 0.99, 0.01
    every, six = (describe(recording, most=most) for most in (50, 6))
    measures = every["measure"].values
    assert len(set(measures)) == 6
    assert len(set(measures[:6])) < 6  # the largest effects are those of fewer measures
    assert set(six["measure"].values) == set(measures)
    assert (np.diff(six["effect"].values) <= 0).all()


def test_what_a_unit_tells_of_a_class_that_hardly_occurs_is_not_said(make_recording: Make) -> None:
    """One step has the largest value of some unit by chance; twenty do not."""
    recording = long_recording(make_recording).drop_vars(["boundary", "value"])
    memory = recording["cell_state"].values[0, 0, :, :, 2]
    for steps, expected in ((1, False), (25, True)):
        token = np.where(recording["call"].values < 0, "", "a").astype(object)
        token.flat[np.argsort(np.where(np.isnan(memory), -np.inf, memory), axis=None)[-steps:]] = "!"
        texts = spoken(describe(recording.assign_coords(token=(("sequence", "time"), token)))).get("selectivity", [])
        assert any("token '!' from the others with AUC 1.00" in text for text in texts) == expected
