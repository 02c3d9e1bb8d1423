"""Choices that live in the address of the page: a link opens the same view, and going back shows the view before.

A choice is, in this order: what the reader just chose, what the address says, what another page had, a default.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import streamlit as st

T = TypeVar("T")
NOTHING = "-"  # in an address, where an empty text would be dropped
MOST_WRITTEN = 200
_BOOK = "choices"  # key of the bookkeeping in the session's state


def _book() -> dict[str, Any]:
    """`chosen`: texts for the address; `settled`: widgets' values after the last run; `written`: the address then."""
    fresh: dict[str, Any] = {"chosen": {}, "settled": {}, "written": None, "windows": {}, "page": None}
    book: dict[str, Any] = st.session_state.setdefault(_BOOK, fresh)
    return book


def adopt(page: str) -> None:
    """Before a page runs: let the address win where it changed and no widget did (a followed link, a step back).

    An address that says anything says all. Where it says nothing, as when the menu opens a page, what was chosen
    before holds.
    """
    book, address = _book(), st.query_params.to_dict()
    other = book["page"] is not None and page != book["page"]
    moved = any(st.session_state.get(key) != value for key, value in book["settled"].items())
    followed = bool(address) and book["written"] is not None and (other or (address != book["written"] and not moved))
    if other or followed:  # widgets of the page before keep nothing; the book does
        for key in book["settled"]:
            st.session_state.pop(key, None)
        for held in book["windows"].values():
            held["begin"], held["turn"] = held.get("now", held.get("begin")), held["turn"] + 1
    if followed:
        book["chosen"], book["windows"] = {}, {}
    book |= {"settled": {}, "shown": {}, "page": page, "followed": followed}


def settle() -> None:
    """After a page ran: write what it shows into the address.

    A followed address that leaves out what is usual stays as it is, for it opens the same view: writing it anew would
    put a second entry into the browser's history, from which a step back leads nowhere.
    """
    book, address = _book(), st.query_params.to_dict()
    if not (book["followed"] and address.items() <= book["shown"].items()):
        address = dict(book["shown"])
        if st.query_params.to_dict() != address:
            st.query_params.from_dict(address)
    book["written"] = address
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


def chosen(name: str) -> str | None:
    """What was chosen by this name, here or on another page, as a text; before its own selector is drawn."""
    held = st.session_state.get(name)
    return _asked(name) if held is None else str(held)


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


def choose_several(
    label: str,
    options: Sequence[T],
    *,
    name: str,
    default: Sequence[T],
    most: int,
    shown: Callable[[T], str] = str,
    placeholder: str = "None: choose or type a number",
) -> list[T]:
    """Some of several options, at most `most`; as texts they differ and hold no comma."""
    if name not in st.session_state:
        asked = _asked(name)
        texts = {str(option): option for option in options}
        wanted = list(default) if asked is None else [texts[text] for text in asked.split(",") if text in texts]
        st.session_state[name] = list(dict.fromkeys(wanted))[:most]
    elif not set(st.session_state[name]) <= set(options):
        st.session_state[name] = [value for value in st.session_state[name] if value in options] or list(default)
    values = st.multiselect(label, options, key=name, max_selections=most, placeholder=placeholder, format_func=shown)
    nothing = NOTHING if default else None  # where nothing is usual, it is no choice that other pages should follow
    _note(name, ",".join(map(str, values)) or nothing, name)
    return list(values)


def choose_number(
    label: str,
    low: float,
    high: float,
    *,
    name: str,
    default: float,
    step: float | None = None,
    help: str | None = None,
) -> float:
    """A number from `low` to `high`; whole where these are whole numbers."""
    kind = type(default)
    if name not in st.session_state:
        st.session_state[name] = min(max(_number(_asked(name), default, kind), low), high)
    value = st.number_input(label, low, high, key=name, step=step, help=help)
    _note(name, None if value == default else str(value), name)
    return kind(value)


def choose_whether(label: str, *, name: str, default: bool = False, help: str | None = None) -> bool:
    """Yes or no, as a switch."""
    if name not in st.session_state:
        asked = _asked(name)
        st.session_state[name] = default if asked not in ("yes", "no") else asked == "yes"
    value = st.toggle(label, key=name, help=help)
    _note(name, None if value == default else "yes" if value else "no", name)
    return value


def write(label: str, *, name: str, placeholder: str = "", help: str | None = None) -> str:
    """A short text that the reader types."""
    if name not in st.session_state:
        st.session_state[name] = _asked(name) or ""
    text = st.text_input(label, key=name, placeholder=placeholder, help=help, max_chars=MOST_WRITTEN)
    _note(name, text or None, name)
    return text


def take(name: str, value: object) -> None:
    """Choose this; to be called in a callback."""
    st.session_state[name] = value


def link(**changes: object) -> dict[str, str]:
    """What stands in the address of a page that shows what is chosen now but for some changes (None: not chosen)."""
    texts = {**_book()["chosen"], "time": None, **changes}
    return {name: str(value) or NOTHING for name, value in texts.items() if value is not None}


def _number(text: str | None, default: float, kind: type) -> float:
    try:
        value = kind(text)
    except (TypeError, ValueError):
        return default
    return value if value == value else default


def take_several(name: str, values: Sequence[int]) -> None:
    """Choose these numbers; to be called in a callback."""
    st.session_state[name] = list(values)


def choose_window(label: str, steps: int, *, name: str, of: object, usual: int | None = None) -> tuple[int, int]:
    """First and last of the steps to show, at first all, or the first `usual` of them.

    So again when `of`, what the steps belong to, is another, unless `ask_window` said what to show then.
    """
    windows = _book()["windows"]
    held = windows.get(name)
    whole = (0, steps - 1)
    first_view = whole if usual is None else (0, min(usual, steps) - 1)
    if held is None or held["of"] != of or "asked" in held:
        asked = held.get("asked") if held else _window(_asked(name), whole)
        begin = (min(asked[0], whole[1]), min(asked[1], whole[1])) if asked else first_view
        windows[name] = held = {"of": of, "begin": begin, "turn": held["turn"] + 1 if held else 0}
    if steps < 2:
        return whole
    key = f"{name}-{held['turn']}"
    first, last = st.slider(label, 0, steps - 1, held["begin"], key=key)
    held["now"] = (first, last)
    _note(name, None if (first, last) == first_view else f"{first}-{last}", key)
    return first, last


def take_window(name: str, first: int, last: int) -> None:
    """Show these steps; to be called in a callback."""
    held = _book()["windows"][name]
    held["begin"], held["turn"] = (first, last), held["turn"] + 1


def ask_window(name: str, first: int, last: int) -> None:
    """Show these steps of what is chosen with them, perhaps another sequence; to be called in a callback."""
    _book()["windows"].setdefault(name, {"of": None, "turn": 0})["asked"] = (first, last)


def _window(text: str | None, whole: tuple[int, int]) -> tuple[int, int] | None:
    parts = (text or "").split("-")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        return None
    first, last = sorted(min(int(part), whole[1]) for part in parts)
    return first, last
