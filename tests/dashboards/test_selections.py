"""What a box, ticked rows or chosen points do: callbacks, called here with what the browser sends."""

import pytest
import streamlit as st

from gatescope.dashboards import choices
from gatescope.dashboards.views import gates


@pytest.fixture
def state(monkeypatch):
    held = {"choices": {"windows": {"time": {"of": "a run", "begin": (0, 49), "turn": 0}}}}
    monkeypatch.setattr(st, "session_state", held)
    monkeypatch.setattr(st, "toast", lambda text: held.update(toast=text))
    return held


def window(state):
    return state["choices"]["windows"]["time"]["begin"]


def box(x, y, axis="y"):
    return {"selection": {"box": [{"xref": "x", "yref": axis, "x": x, "y": y}]}}


def test_a_box_takes_the_units_and_steps_that_it_touches(state):
    state["c"] = box([12.4, 9.6], [2.2, 4.4])
    gates.take_box("c", range(10), 0, 49)
    assert state["unit"] == [2, 3, 4]
    assert window(state) == (10, 12)


def test_a_box_beyond_the_picture_ends_with_it(state):
    state["c"] = box([-9.0, 99.0], [-9.0, 99.0])
    gates.take_box("c", range(3), 5, 20)
    assert state["unit"] == [0, 1, 2]
    assert window(state) == (5, 20)


def test_of_a_large_box_the_first_units_become_traces_and_the_reader_is_told(state):
    state["c"] = box([3.0, 9.0], [-0.4, 250.0])
    gates.take_box("c", range(256), 0, 49)
    assert state["unit"] == list(range(gates.MOST_TRACES))
    assert "251 units" in state["toast"]


def test_a_box_in_a_panel_of_traces_takes_steps_only(state):
    state["c"] = box([3.0, 9.0], [0.2, 0.4], axis="y2")
    gates.take_box("c", range(10), 0, 49)
    assert "unit" not in state
    assert window(state) == (3, 9)


def test_a_selection_that_was_cleared_changes_nothing(state):
    state |= {"c": {"selection": {"box": [], "rows": [], "points": []}}}
    gates.take_box("c", range(10), 0, 49)
    assert "unit" not in state
    assert window(state) == (0, 49)


def test_of_sorted_units_a_box_takes_the_rows_that_it_touches(state):
    state["c"] = box([0.0, 9.0], [0.6, 2.2])
    gates.take_box("c", [7, 3, 9, 0], 0, 49)
    assert state["unit"] == [3, 9]


def test_a_window_that_was_asked_for_holds_for_whatever_is_chosen_with_it(state, monkeypatch):
    monkeypatch.setattr(st, "query_params", {})
    monkeypatch.setattr(st, "slider", lambda label, low, high, value, key: value)
    state["choices"] |= {"settled": {}, "chosen": {}, "shown": {}}
    choices.ask_window("time", 5, 70)
    assert choices.choose_window("Steps", 60, name="time", of="another run") == (5, 59)
    assert state["choices"]["shown"] == {"time": "5-59"}


def test_the_address_is_read_as_a_window_only_when_it_is_one():
    whole = (0, 49)
    assert choices._window("3-9", whole) == (3, 9)
    assert choices._window("9-3", whole) == (3, 9)
    assert choices._window("10-500", whole) == (10, 49)
    for text in (None, "", "3", "a-b", "-3-4", "1-2-3", "1.5-2"):
        assert choices._window(text, whole) is None
