"""What the analyzers say of networks that were trained: by the engine, and by others."""

import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

import gatescope as gs
from gatescope.probe.analyzers.findings import Finding

slow = pytest.mark.slow
diacritizer = pytest.mark.skipif(find_spec("diacritize") is None, reason="arabic-diacritizer is not installed")


def recorded(name: str) -> xr.Dataset:
    network, sample = gs.load_example(name)
    with torch.no_grad():
        return gs.record(network, sample.inputs, labels=dict(sample.labels))


def apart(recording: xr.Dataset) -> np.ndarray:
    """2 AUC - 1 of T against P for every unit's memory: 1 where it is larger for T."""
    found = gs.selectivity(recording, "remember", signals=["cell_state"], shifts=1)
    return 2 * found["auc"].sel({"class": "T"}).values.ravel() - 1


@pytest.mark.parametrize("name", ["cerg-forget", "cerg-partial"])
def test_one_block_holds_t_or_p_for_the_string_and_the_others_are_told_apart(name: str) -> None:
    recording = recorded(name)
    block, tells = recording["block"].values, apart(recording)
    by_block = np.array([np.abs(tells[block == number]).max() for number in range(4)])
    holding = int(by_block.argmax())
    assert by_block[holding] > 0.85
    assert np.delete(by_block, holding).max() < 0.5
    result = gs.roles(recording, "remember", samples=20)
    assert result["block_role"].values.ravel()[holding] in ("latch", "long-memory")
    events = gs.resets(recording)
    aligned = gs.alignment(events, tolerance=1).isel(layer=0, direction=0)
    at_strings = (aligned["block_recall"] == 1) & (aligned["block_precision"] >= 0.95)
    assert aligned["memory_block"].values[at_strings.values].tolist() == [holding]
    assert aligned["block_p_adjusted"].values[holding] < 0.01


@pytest.mark.parametrize("name", ["cerg-forget", "cerg-partial"])
def test_only_one_block_is_long_memory_that_resets(name: str) -> None:
    """Of the short ones some never reset and some do within strings: none is long and reset with the string."""
    result = gs.roles(recorded(name), "remember", samples=20)
    long = np.isin(result["block_role"].values.ravel(), ["latch", "long-memory"])
    rate = result["evidence"].sel(statistic="reset_rate").values.ravel()
    blocks = result["block"].values
    assert [number for number in range(4) if long[number] and rate[blocks == number].min() > 10] == [
        int(np.abs(apart(recorded(name))).argmax()) // 2
    ]


def sides(recording: xr.Dataset, unit: int) -> dict[str, float]:
    """Mean sign of a unit's memory for T and for P, two steps before the next string begins."""
    before = np.flatnonzero(np.roll(recording["boundary"].values[0], -1))[:-1] - 2  # still within the string
    held, letters = recording["cell_state"].values[0, 0, 0, before, unit], recording["remember"].values[0][before]
    return {letter: float(np.sign(held[letters == letter]).mean()) for letter in "PT"}


@pytest.mark.parametrize("name", ["cerg-latch", "cerg-partial"])
def test_the_cell_that_holds_t_and_p_is_found_with_the_sign_of_each(name: str) -> None:
    recording = recorded(name)
    unit = int(np.abs(apart(recording)).argmax())
    signs = sides(recording, unit)
    assert min(abs(sign) for sign in signs.values()) > 0.95
    assert np.sign(apart(recording)[unit]) == np.sign(signs["T"]) == -np.sign(signs["P"])
    code = gs.selectivity(recording, "remember", signals=["cell_state"], shifts=1)["sign_code"]
    for letter, sign in signs.items():
        assert code.sel({"class": letter}).values.ravel()[unit] * np.sign(sign) > 0.7
    assert gs.roles(recording, "remember", samples=20)["unit_role"].values.ravel()[unit] == "latch"


def test_a_cell_that_has_the_sign_of_t_and_p_only_at_the_end_is_no_latch() -> None:
    """Of the clean example: it tells them apart all along, but by its level, and crosses 0 for P late in the string."""
    recording = recorded("cerg-forget")
    unit = int(np.abs(apart(recording)).argmax())
    signs = sides(recording, unit)
    assert signs["T"] < -0.95 < 0.95 < signs["P"]
    code = gs.selectivity(recording, "remember", signals=["cell_state"], shifts=1)["sign_code"]
    assert (code.sel({"class": ["P", "T"]}).values.reshape(-1, 2)[unit] < -0.7).all()  # over all steps
    role = gs.roles(recording, "remember", samples=20)["unit_role"].values.ravel()
    assert role[unit] == "long-memory"
    assert "latch" not in role


def test_states_of_the_lstm_of_1997_grow_in_a_line_saturate_and_degenerate() -> None:
    found = gs.drift(recorded("cerg-1997"), training_length=12)
    growing = found["verdict"].values.ravel() == "growing"
    slope, low = (found[name].values.ravel() for name in ("slope", "slope_low"))
    fastest = int(slope.argmax())
    assert growing.sum() >= 2
    assert growing[fastest]
    assert low[fastest] > 0.5 * slope[fastest] > 0
    assert np.isinf(found["limit"].values).all()
    memory = np.abs(recorded("cerg-1997")["cell_state"].values[0, 0, 0, :, fastest])
    assert np.corrcoef(np.arange(memory.size), memory)[0, 1] ** 2 > 0.98  # a straight line
    ratio = found["range_beyond"].values.ravel()[fastest] / found["range_trained"].values.ravel()[fastest]
    assert ratio > 20
    saturated, degenerate = (found[name].values.ravel()[fastest] for name in ("saturated_from", "degenerate_from"))
    assert 0 <= saturated <= degenerate < 200
    kept = gs.drift(recorded("cerg-forget"))
    assert kept["degenerate_from"].isnull().sum() > found["degenerate_from"].isnull().sum()


@pytest.fixture(scope="module")
def sentences() -> xr.Dataset:
    from gatescope import demo
    from gatescope.demo_sentences import TEXTS

    assert len(TEXTS) >= 30
    return demo.record_texts(demo.load_model(), TEXTS)


@pytest.fixture(scope="module")
def said(sentences: xr.Dataset) -> xr.Dataset:
    """All that is said of the sentences without their boundaries."""
    return gs.describe(sentences.drop_vars("boundary"), most=1000)


@slow
@diacritizer
def test_spaces_are_what_sets_the_backward_direction_of_the_diacritizer_off(
    sentences: xr.Dataset, said: xr.Dataset
) -> None:
    """No boundary is given, and every other character is the null."""
    triggered = said["text"].values[said["measure"].values == "triggers"]
    assert any(text.startswith("In layer 0, backward, memory is thrown away at character ' '") for text in triggered)
    assert not any(text.startswith("In layer 0, forward,") for text in triggered)
    assert all("thrown away at character ' '" in text for text in triggered)  # in whatever layer
    result = gs.triggers(gs.resets(sentences), "character").isel(layer=0)
    backward = result.sel(direction="backward")
    assert backward["layer_trigger"].item() == " "
    lift = backward["layer_lift"].where(backward["layer_p_adjusted"] < 0.05)
    assert lift["label"].values[np.nanargmax(lift.values)] == " "
    units = backward["units"]
    assert units.sel(label=" ") == units.max() > 0


def plain_counts(found: xr.Dataset, counts: set[int]) -> list[str]:
    """Findings about a character that stand on no null, or say how many units or gates are shut, or one of `counts`."""
    suspect = []
    for text, p in zip(found["text"].values, found["p"].values, strict=True):
        rest = re.sub(r"layer \d+|unit \d+", "", text)
        numbers = {int(number) for number in re.findall(r"(?<![\d.])\d+(?![\d.])", rest)}
        of_shut = re.search(r"\b(shut|closed?|closes|below)\b", text) and re.search(r"\b(units|gates|cells)\b", text)
        if re.search(r"'.'|space|character", text) and (not p < 0.05 or of_shut or numbers & counts):
            suspect.append(text)
    return suspect


@slow
@diacritizer
def test_a_count_of_shut_gates_is_never_reported(
    sentences: xr.Dataset, said: xr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many units are shut at spaces, and many at lam: that proves nothing. What would say it is seen to be caught."""
    letters = sentences["character"].values
    gate = sentences["forget_gate"].values
    shut = {
        (letter, layer, direction): int(((gate[layer, direction][letters == letter] < 0.2).mean(0) > 0.8).sum())
        for letter in " ل"
        for layer, direction in np.ndindex(gate.shape[:2])
    }
    assert min(shut[letter, 0, 0] for letter in " ل") > 5
    counts = {count for count in shut.values() if count > 1}
    assert plain_counts(said, counts) == []

    module = sys.modules["gatescope.probe.analyzers.describe"]
    for text, p in (
        (f"{shut[' ', 0, 0]} units of layer 0, forward have their gate below 0.2 at character ' '.", np.nan),
        ("In layer 0, forward, 34 units are shut at character ' '.", 0.001),
        (f"At spaces, {shut[' ', 0, 1]} units of layer 0, backward throw their memory away.", 0.001),
    ):
        finding = Finding("saturation", text, 1.0, "share", p, "a threshold")
        monkeypatch.setattr(module, "FINDERS", (lambda known, it=finding: iter([it]),))
        assert plain_counts(gs.describe(sentences), counts) == [text]


@slow
@diacritizer
def test_spaces_are_said_of_the_forward_direction_only_if_no_character_sets_it_off_more(sentences: xr.Dataset) -> None:
    alone = sentences.sel(layer=[0], direction=["forward"]).drop_vars("boundary")
    texts = gs.describe(alone, most=50)["text"].values
    strongest = gs.triggers(gs.resets(alone), "character")["layer_trigger"].item()
    assert any("thrown away at character ' '" in text for text in texts) == (strongest == " ")


def words(package: str) -> tuple[dict[str, torch.Tensor], dict[str, int]]:
    """Weights and alphabet of a tagger of Uzbek words, read by path; the test is skipped where it is not installed."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{package} is not installed")
    import json

    folder = Path(spec.submodule_search_locations[0]) / "data"
    (file,) = folder.glob("*.pth")
    weights = torch.load(file, map_location="cpu", weights_only=True)
    return weights, json.loads((folder / "char_vocab.json").read_text(encoding="utf-8"))


def read_words(package: str, *, padded: bool) -> xr.Dataset:
    weights, characters = words(package)
    kind = "gru" if any(name.startswith("gru") for name in weights) else "lstm"
    network = (nn.GRU if kind == "gru" else nn.LSTM)(64, 64, num_layers=2, bidirectional=True, batch_first=True)
    network.load_state_dict({name.split(".", 1)[1]: value for name, value in weights.items() if name.startswith(kind)})
    embedding = nn.Embedding.from_pretrained(weights["char_embeddings.weight"])
    with gs.attach(network.eval()) as probe, torch.no_grad():
        for word in ("kitoblarimizdan", "maktabda", "bolalar", "shahrimizning", "yozdim", "daraxtlardan"):
            width = 30 if padded else len(word)
            numbers = [characters.get(letter, characters["UNK"]) for letter in word]
            probe.annotate(lengths=[len(word)], character=word)
            network(embedding(torch.tensor([numbers + [characters["PAD"]] * (width - len(word))])))
    return probe.recording()


def test_padding_fills_the_backward_memory_of_the_tagger() -> None:
    full, alone = (gs.drift(read_words("uzmorph_nn", padded=padded))["level"] for padded in (True, False))
    flat = [
        float(gs.saturation(read_words("uzmorph_nn", padded=padded))["squash_saturated"].sel(at).mean())
        for padded in (True, False)
        for at in [{"layer": 0, "direction": "backward"}]
    ]
    assert flat[0] > 1.5 * flat[1]
    backward, forward = ({"layer": 0, "direction": way} for way in ("backward", "forward"))
    assert full.sel(backward).mean() > 1.3 * alone.sel(backward).mean()
    assert full.sel(forward).mean().item() == pytest.approx(alone.sel(forward).mean().item())


def test_lstm_and_gru_that_learned_the_same_words_are_compared_unit_by_unit() -> None:
    """The gates of the GRU keep far less, in every layer and direction, yet its states move nearly as slowly."""
    lstm, gru = (read_words(package, padded=False) for package in ("uzmorph_nn", "uzmorph_bigru"))
    assert (lstm.attrs["cell"], gru.attrs["cell"]) == ("LSTMCell", "GRUCell")
    assert lstm["character"].values.tolist() == gru["character"].values.tolist()
    ours, theirs = (gs.roles(recording, samples=20) for recording in (lstm, gru))
    found = gs.role_agreement(ours, theirs)
    assert ((found["agreement"] >= 0) & (found["agreement"] <= 1)).all()
    assert sorted(found["matched_unit"].values[0, 0].tolist()) == list(range(64))
    through = [int((result["unit_role"] == "pass-through").sum()) for result in (ours, theirs)]
    assert through[0] < 10 < 50 < through[1]
    gates, moves = (
        [gs.timescales(recording, jacobian=False)[name].median("unit").values for recording in (lstm, gru)]
        for name in ("gate", "autocorrelation")
    )
    assert (gates[0] > 2 * gates[1]).all()
    assert (moves[0] < 4 * moves[1]).all()
    assert (moves[0] > moves[1]).all()
