"""What every page shares: choosing a run in the sidebar, saying what is shown, and what to do where nothing can be.

How a page is made
------------------
A page is a file in `views/` and a row in `VIEWS` of `app.py`. Streamlit runs it as a script, so it imports
`gatescope...` absolutely; tests import it, so nothing happens at import. It looks like this:

    def show(view: chooser.View) -> None:
        chooser.reading("Resets: a mark where a unit throws its memory away. Dotted lines: segments begin.")
        low = choices.choose_number("Low level", 0.01, 0.5, name="low", default=0.1)      # lives in the address
        events = results.of(view, resets, low=low)                                        # counted once, then kept
        if isinstance(events, str):
            return chooser.nothing("There are no resets to show.", events)                # why, and what to do
        st.plotly_chart(figures....)
        ways_out.show(view, f"resets-{view.name}", code=view.code(f"events = gs.resets(recording, low={low})"),
                      tables={"events": lambda: events.to_dataframe()}, results={"events": events},
                      pictures={"raster": lambda ax: plot_resets(events, ax=ax)})

    if __name__ == "__main__":
        chooser.page("Resets", show)

- **Choices.** `view` holds what the sidebar chose: recording, module, layer, direction, sequence, label. `page(...,
  place=False, sequence=False, labels=False)` leaves out what a page has no use for. Choices of a page's own are made
  with `choices` (`choose`, `choose_several`, `choose_number`, `choose_whether`, `choose_window`, `write`): they are in
  the address and survive going to another page and back. One name is one choice on all pages: `unit` are the units
  looked at (several, as on "Gates and states"), `time` the steps on view, `signal` the signal. Links to other pages:
  `chooser.link`.
- **Results.** `results.of(view, analyzer, **parameters)` is the analyzer's result on the layer and direction on view
  (`everywhere=True`: on all), or the sentence that says why there is none. What takes another result first:
  `results.of(view, alignment, source=events, tolerance=1)`. It shows that it is busy by itself.
- **Text** from a recording (labels, attributes, file names, messages) goes through `st.text`, `st.dataframe`,
  `st.code`, or `figures.literal` within plotly; where only markdown is taken, through `summary.escaped`.
- **Colours**: `figures.COLOURS`, `SYMBOLS`, `DASHES`, `colour_scale`; no colour without a second sign (symbol, dash,
  text). No background and no text colours: the theme sets them, light and dark.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import streamlit as st
import xarray as xr

from ..probe.schema import label_names
from . import catalogue, choices, summary

NO_LABEL = ""  # no label is named so
LONG, FIRST = 400, 150  # of a sequence longer than so many steps, so many are shown at first
HOW = """import gatescope as gs

recording = gs.record(model, batch)
gs.save_recording(recording, "run.zarr")"""


class View(NamedTuple):
    """What the reader chose in the sidebar."""

    entry: catalogue.Entry
    tree: bool
    module: str
    recording: xr.Dataset  # of the module, all layers and directions
    layer: int
    direction: str
    sequence: int
    labels: str | None

    @property
    def place(self) -> dict[str, Any]:
        """Layer and direction, as keywords."""
        return {"layer": self.layer, "direction": self.direction}

    @property
    def where(self) -> dict[str, Any]:
        """Layer, direction and sequence, as keywords."""
        return {**self.place, "sequence": self.sequence}

    @property
    def name(self) -> str:
        """For files that are downloaded and keys of widgets."""
        return f"{self.module}-layer{self.layer}-{self.direction}"

    @property
    def here(self) -> xr.Dataset:
        """The recording with only the layer and direction on view; all dimensions stay."""
        return self.recording.sel(layer=[self.layer], direction=[self.direction])

    def code(self, *lines: str, here: bool = False) -> str:
        """Python that opens the `recording` (`here`: the layer and direction on view) and goes on with `lines`."""
        first = summary.opening(self.entry, self.module if self.tree else None)
        narrowed = [f"recording = recording.sel(layer=[{self.layer}], direction=[{self.direction!r}])"] if here else []
        return "\n".join(["import gatescope as gs", *first, *narrowed, "", *lines])


def folders() -> list[str]:
    """What was given on the command line."""
    return sys.argv[1:]


def page(
    title: str, show: Callable[[View], None], *, place: bool = True, sequence: bool = True, labels: bool = True
) -> bool:
    """A page: its title, the selectors in the sidebar, and what `show` makes of the choice.

    Returned is whether there is any recording to choose, or an example was chosen.
    """
    st.subheader(title, anchor=False)
    entries = catalogue.find(folders())
    choosable = [*entries, *catalogue.embedded()]
    if not entries and choices.chosen("recording") not in {entry.name for entry in choosable}:
        nothing_found(folders())
        return False
    asked = choices.chosen("recording")
    if asked is not None and asked not in {entry.name for entry in choosable}:
        st.text(f"⚠ There is no recording {asked[:100]!r} here, or no longer; another one is shown.")
    with st.sidebar:
        view = choose_view(choosable, place=place, sequence=sequence, labels=labels)
    if isinstance(view, View):
        show(view)
    else:
        nothing("This recording cannot be shown. Choose another one.", view)
    with st.sidebar:
        show_unreadable(entries)
    return True


def nothing_found(folders: Sequence[str]) -> None:
    st.info("There are no recordings in the folders given (`.zarr` folders or `.nc` files, at most four folders deep).")
    for folder in folders:
        st.text(catalogue.readable(folder))
    st.markdown("Make one from any model with an LSTM, GRU or RNN, then load this page again:")
    st.code(HOW, language="python")
    st.markdown("Or record a trained model that comes as an example:")
    st.code("gatescope demo\ngatescope dashboard demo", language="shell")
    st.markdown("Or look at one of the small trained networks that come with gatescope, recorded at once:")
    example_buttons()


def example_buttons() -> None:
    """A button for each embedded example, which chooses it."""
    row = st.container(horizontal=True)
    for entry in catalogue.embedded():
        row.button(entry.example, key=f"take-{entry.name}", on_click=choices.take, args=("recording", entry.name))


def nothing(what: str, why: str = "") -> None:
    """Say that there is nothing to show, and why; `what` is markdown of ours, `why` any text."""
    st.warning(what, icon=":material/info:")
    if why:
        st.text(why)


def reading(text: str) -> None:
    """The line that says what is shown and how to read it."""
    st.text(text)


def usual(steps: int) -> int | None:
    """How many steps of a sequence to show at first; None: all.

    >>> usual(30), usual(2000)
    (None, 150)
    """
    return FIRST if steps > LONG else None


def link(container: Any, page: str, title: str, /, **changes: object) -> None:
    """A link to a page (`"gates"`), with the choices of now but for some changes; `title` is markdown of ours."""
    container.page_link(f"views/{page}.py", label=title, query_params=choices.link(**changes))


def choose_view(
    entries: Sequence[catalogue.Entry], *, place: bool = True, sequence: bool = True, labels: bool = True
) -> View | str:
    """The selectors, from recording to label; or the sentence that says why there is nothing to choose."""
    by_name = {entry.name: entry for entry in entries}
    files = [entry for entry in entries if not entry.example]
    good = next((entry.name for entry in files if not catalogue.recordings(entry).problem), None)
    entry = by_name[choices.choose("Recording", list(by_name), name="recording", default=good)]
    opened = catalogue.recordings(entry)
    if opened.problem:
        return opened.problem
    modules = list(opened.modules)
    module = choices.choose("Module", modules, name="module") if opened.tree else modules[0]
    recording = opened.modules[module]
    layers, directions = (recording[dim].values.tolist() for dim in ("layer", "direction"))
    layer = choices.choose("Layer", layers, name="layer") if place else layers[0]
    direction = choices.choose("Direction", directions, name="direction") if place else directions[0]
    places = {int(recording["sequence"].values[at]): int(at) for at in np.flatnonzero(recording["length"].values)}
    if not places or not recording.sizes["unit"]:
        lacking = "unit" if places else "sequence with at least one step"
        return f"A recording needs a {lacking}; {module} has none. Record it again."
    number = choose_sequence(recording, places) if sequence else next(iter(places))
    label = choose_label(recording) if labels else NO_LABEL
    return View(entry, opened.tree, module, recording, layer, direction, number, label or None)


def choose_sequence(recording: xr.Dataset, places: dict[int, int]) -> int:
    texts = summary.text_labels(recording)
    preview = texts[0] if texts and len(places) <= 1000 else None
    numbers = list(places)
    number = choices.choose(
        "Sequence",
        numbers,
        name="sequence",
        shown=lambda number: summary.sequence_name(recording, places[number], preview),
    )
    if len(numbers) > 1:
        row = st.container(horizontal=True, horizontal_alignment="distribute")
        for label, icon, step in (("Before", "chevron_left", -1), ("After", "chevron_right", 1)):
            row.button(
                label,
                icon=f":material/{icon}:",
                type="tertiary",
                on_click=choices.take,
                args=("sequence", numbers[(numbers.index(number) + step) % len(numbers)]),
            )
    return number


def choose_label(recording: xr.Dataset) -> str:
    names, texts = label_names(recording), summary.text_labels(recording)
    return choices.choose(
        "Label", [*names, NO_LABEL], name="label", default=(texts or [NO_LABEL])[0], shown=lambda name: name or "none"
    )


def show_unreadable(entries: Sequence[catalogue.Entry]) -> None:
    """Last of all, so that looking into every file does not hold up the picture."""
    broken = {entry.name: problem for entry in entries if (problem := catalogue.recordings(entry).problem)}
    if broken:
        with st.expander(f"Cannot be read: {len(broken)}", icon=":material/warning:"):
            for name, problem in broken.items():
                st.text(f"{name}: {problem}")
