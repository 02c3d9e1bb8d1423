import numpy as np
import pytest

from gatescope.dashboards import search
from gatescope.dashboards.search import Place
from gatescope.probe.store import save_recording
from tests.dashboards.test_gates import figure, healthy, texts

WORDS = [["the", "cat", "sat"], ["THE", "dog", ""]]


def labelled(make_recording, rows, lengths):
    recording = make_recording(lengths=lengths)
    token = np.full((len(lengths), max(lengths)), "", dtype=object)
    for place, row in enumerate(rows):
        token[place, : len(row)] = list(row)
    return recording.assign_coords(token=(("sequence", "time"), token))


def test_single_characters_read_as_one_text_and_padding_does_not_count(make_recording):
    recording = labelled(make_recording, ["abcab", "xxab"], (5, 4))
    assert search.find(search.lines(recording, "token"), "ab") == [Place(0, 0, 1), Place(0, 3, 4), Place(1, 2, 3)]
    assert search.find(search.lines(recording, "token"), "bx") == []


def test_words_are_found_whole_in_part_and_across_spaces_in_either_case(make_recording):
    read = search.lines(labelled(make_recording, WORDS, (3, 2)), "token")
    assert search.find(read, "the") == [Place(0, 0, 0), Place(1, 0, 0)]
    assert search.find(read, "at s") == [Place(0, 1, 2)]
    assert search.find(read, "The Dog") == [Place(1, 0, 1)]


def test_numbers_and_yes_or_no_are_found_as_they_are_shown(make_recording):
    recording = make_recording(lengths=(6,))
    assert search.find(search.lines(recording, "boundary"), "yes") == [Place(0, 0, 0), Place(0, 4, 4)]
    value = float(recording["value"].values[0, 2])
    assert Place(0, 2, 2) in search.find(search.lines(recording, "value"), f"{value:.4g}")


def test_a_letter_whose_small_form_is_two_characters_moves_no_place(make_recording):
    recording = labelled(make_recording, ["İİab"], (4,))
    assert search.find(search.lines(recording, "token"), "ab") == [Place(0, 2, 3)]


def test_places_follow_each_other_round_the_end():
    found = [Place(0, 4, 5), Place(2, 0, 1), Place(2, 9, 9)]
    assert search.beside(found, found[2], 1) == found[0]
    assert search.beside(found, Place(1, -1, -1), 1) == found[1]
    assert search.beside(found, Place(1, -1, -1), -1) == found[0]


@pytest.fixture
def folder(tmp_path, make_recording):
    save_recording(labelled(make_recording, ["abcab", "x" * 450 + "ab" + "x" * 48], (5, 500)), tmp_path / "run.zarr")
    return tmp_path


def test_the_reader_is_led_from_place_to_place_across_sequences(opened, folder):
    page = healthy(opened(folder, find="AB"))
    assert "3 places in 2 sequences, 2 in this one." in texts(page)
    assert [shape["x0"] for shape in figure(page)["layout"]["shapes"] if shape.get("name") == "found"] == [-0.5, 2.5]
    for _ in range(3):
        healthy(page.button(key="find-Next").click().run())
    assert page.query_params["sequence"] == "1"
    assert page.query_params["time"] == "410-491"
    assert page.slider[0].value == (410, 491)
    healthy(page.button(key="find-Next").click().run())
    assert page.query_params["sequence"] == "0"
    assert page.slider[0].value == (0, 4)


def test_what_stands_nowhere_is_said_to(opened, folder):
    page = healthy(opened(folder, find="<b>nothing</b>"))
    assert "Found nowhere." in texts(page)
    assert page.query_params["find"] == "<b>nothing</b>"
