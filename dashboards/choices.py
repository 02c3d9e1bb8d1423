"""Choices that live in the address of the page: a link opens the same view, and going back shows the view before.

A choice is, in this order: what the reader just chose, what the address says, what another page had, a default.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import streamlit as st

T = TypeVar("T")
NOTHING = "-"  # in an address, where an empty text would be dropped
_BOOK = "choices"  # key of the bookkeeping in the session's state


def _book() -> dict[str, Any]:
    """`chosen`: texts for the address; `settled`: widgets' values after the last run; `written`: the address then."""
    fresh: dict[str, Any] = {"chosen": {}, "settled": {}, "written": None, "windows": {}}
    book: dict[str, Any] = st.session_state.setdefault(_BOOK, fresh)
    return book


def adopt() -> None:
    """Before a page runs: let the address win where it changed and no widget did (a followed link, a step back)."""
    book = _book()
    address = st.query_params.to_dict()
    moved = any(st.session_state.get(key) != value for key, value in book["settled"].items())
    if book["written"] is not None and address != book["written"] and not moved:
        for key in book["settled"]:
            st.session_state.pop(key, None)
        book["chosen"], book["windows"] = {}, {}
    book["settled"] = {}
    book["shown"] = {}


def settle() -> None:
    """After a page ran: write what it shows into the address."""
    book = _book()
    if st.query_params.to_dict() != book["shown"]:
        st.query_params.from_dict(book["shown"])
    book["written"] = dict(book["shown"])
    book["settled"] = {key: st.session_state.get(key) for key in book["settled"]}


def _note(name: str, text: str | None, key: str) -> None:
    book = _book()
    book["settled"][key] = None
    if text is None:
        book["chosen"].pop(name, None)
    else:
        book["chosen"][name] = book["shown"][name] = text


def _asked(name: str) -> str | None:
    text: str | None = st.query_params.get(name, _book()["chosen"].get(name))
    return text


def choose(
    label: str, options: Sequence[T], *, name: str, default: T | None = None, shown: Callable[[T], str] = str
) -> T:
    """One of some options, which must differ as texts."""
    if st.session_state.get(name) not in options:
        fallback = options[0] if default is None or default not in options else default
        asked: dict[str | None, T] = {str(option) or NOTHING: option for option in options}
        st.session_state[name] = asked.get(_asked(name), fallback)
    value = st.selectbox(label, options, key=name, format_func=shown)
    _note(name, str(value) or NOTHING, name)
    return value


def choose_several(label: str, options: Sequence[int], *, name: str, default: Sequence[int], most: int) -> list[int]:
    """Some of several numbers, at most `most`."""
    if name not in st.session_state:
        asked = _asked(name)
        texts = {str(option): option for option in options}
        wanted = list(default) if asked is None else [texts[text] for text in asked.split(",") if text in texts]
        st.session_state[name] = list(dict.fromkeys(wanted))[:most]
    elif not set(st.session_state[name]) <= set(options):
        st.session_state[name] = [value for value in st.session_state[name] if value in options] or list(default)
    values = st.multiselect(label, options, key=name, max_selections=most, placeholder="None: choose or type a number")
    _note(name, ",".join(map(str, values)) or NOTHING, name)
    return list(values)


def take_several(name: str, values: Sequence[int]) -> None:
    """Choose these numbers; to be called in a callback."""
    st.session_state[name] = list(values)


def choose_window(label: str, steps: int, *, name: str, of: object) -> tuple[int, int]:
    """First and last of the steps to show; whole again when `of`, what the steps belong to, is another."""
    windows = _book()["windows"]
    held = windows.get(name)
    whole = (0, steps - 1)
    if held is None or held["of"] != of:
        begin = whole if held else _window(_asked(name), whole)
        windows[name] = held = {"of": of, "begin": begin, "turn": held["turn"] + 1 if held else 0}
    if steps < 2:
        return whole
    key = f"{name}-{held['turn']}"
    first, last = st.slider(label, 0, steps - 1, held["begin"], key=key)
    held["now"] = (first, last)
    _note(name, None if (first, last) == whole else f"{first}-{last}", key)
    return first, last


def take_window(name: str, first: int, last: int) -> None:
    """Show these steps; to be called in a callback."""
    held = _book()["windows"][name]
    held["begin"], held["turn"] = (first, last), held["turn"] + 1


def _window(text: str | None, whole: tuple[int, int]) -> tuple[int, int]:
    parts = (text or "").split("-")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        return whole
    first, last = sorted(min(int(part), whole[1]) for part in parts)
    return first, last
