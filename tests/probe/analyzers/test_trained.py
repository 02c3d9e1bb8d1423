"""What the analyzers say of networks that were trained: by the engine, and by others."""

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

import gatescope as gs

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


def test_the_cell_that_holds_t_and_p_is_found_with_the_sign_of_each() -> None:
    recording = recorded("cerg-partial")
    unit = int(np.abs(apart(recording)).argmax())
    remember = recording["remember"].values[0]
    before = np.flatnonzero(np.roll(recording["boundary"].values[0], -1))[:-1] - 2  # still within the string
    held = recording["cell_state"].values[0, 0, 0, before, unit]
    letters = remember[before]
    sides = {letter: np.sign(held[letters == letter]) for letter in "PT"}
    assert all(abs(signs.mean()) > 0.95 for signs in sides.values())
    assert np.sign(apart(recording)[unit]) == sides["T"][0] == -sides["P"][0]
    assert gs.roles(recording, "remember", samples=20)["unit_role"].values.ravel()[unit] == "latch"


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


@slow
@diacritizer
def test_spaces_are_what_sets_the_backward_direction_of_the_diacritizer_off(sentences: xr.Dataset) -> None:
    """No boundary is given, and every other character is the null; that units shut there is no finding."""
    said = gs.describe(sentences.drop_vars("boundary"))["text"].values.tolist()
    assert 6 < len(said) <= 12
    assert any(text.startswith("In layer 0, backward, memory is thrown away at character ' '") for text in said)
    assert not any(re.search(r"\d+ units (are )?shut", text) for text in said)
    result = gs.triggers(gs.resets(sentences), "character").isel(layer=0)
    backward = result.sel(direction="backward")
    assert backward["layer_trigger"].item() == " "
    lift = backward["layer_lift"].where(backward["layer_p_adjusted"] < 0.05)
    assert lift["label"].values[np.nanargmax(lift.values)] == " "
    units = backward["units"]
    assert units.sel(label=" ") == units.max() > 0


@slow
@diacritizer
def test_a_count_of_shut_gates_is_not_reported_where_a_letter_shuts_as_many(sentences: xr.Dataset) -> None:
    letters = sentences["character"].values
    alone = sentences.sel(layer=[0], direction=["forward"]).drop_vars("boundary")
    gate = alone["forget_gate"].values[0, 0]
    shut = {letter: int(((gate[letters == letter] < 0.2).mean(axis=0) > 0.8).sum()) for letter in " ل"}
    assert min(shut.values()) > 5  # many at spaces, and many at lam
    spaces = [text for text in gs.describe(alone, most=50)["text"].values if "thrown away at character ' '" in text]
    strongest = gs.triggers(gs.resets(alone), "character")["layer_trigger"].item()
    assert bool(spaces) == (strongest == " ")


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


if find_spec("uzmorph_bigru"):  # which no extra installs, so that its absence is no skipped test

    def test_lstm_and_gru_that_learned_the_same_words_are_compared_unit_by_unit() -> None:
        both = [read_words(package, padded=False) for package in ("uzmorph_nn", "uzmorph_bigru")]
        ours, theirs = (gs.roles(recording, samples=20) for recording in both)
        found = gs.role_agreement(ours, theirs)
        assert ((found["agreement"] >= 0) & (found["agreement"] <= 1)).all()
        assert sorted(found["matched_unit"].values[0, 0].tolist()) == list(range(64))
        scales = [gs.timescales(recording)["gate_typical"].median().item() for recording in both]
        assert all(0 < scale < 100 for scale in scales)
