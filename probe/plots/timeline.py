"""What pictures over time share: picking one run, writing labels along it, marking where segments begin."""

import unicodedata
from functools import lru_cache
from math import ceil
from typing import Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties, findfont
from matplotlib.ft2font import FT2Font
from matplotlib.patheffects import withStroke

HALO = 0.6  # width in points from which boundary lines have a white halo
SMALLEST, LARGEST = 6.0, 9.0  # font sizes of labels in points
LETTER, LINE = 0.7, 1.15  # width of a letter and height of a line, in font sizes
SHOWN = {" ": "␣", "\n": "\\n", "\t": "\\t", "\r": "\\r"}  # characters that leave no mark on paper


def one_run(recording: xr.Dataset, signal: str, layer: int, direction: str, sequence: int) -> xr.DataArray:
    """The values (time, unit or projection) of one signal in one layer, direction and sequence, without padding."""
    if signal not in recording.data_vars:
        raise ValueError(
            f"signal must be recorded; {signal!r} came and the recording holds {sorted(map(str, recording.data_vars))}."
        )
    picked = recording[signal]
    for dim, value in {"layer": layer, "direction": direction, "sequence": sequence}.items():
        if dim not in picked.dims:
            raise ValueError(
                f"{signal} must have the dimension {dim!r}; it has {picked.dims}. Select with lists: {dim}=[0]."
            )
        choices = recording[dim].to_numpy().tolist()
        if value not in choices:
            raise ValueError(f"{dim} must be one of {choices}; {value!r} came.")
        picked = picked.isel({dim: choices.index(value)})
    if "length" in picked.coords:
        real = recording["time"].to_numpy() < int(picked["length"])
    else:
        real = ~np.isnan(picked.to_numpy()).all(axis=1)
    if not real.any():
        raise ValueError(f"sequence must have at least one step; sequence {sequence} has none. Choose another one.")
    return picked.isel(time=np.flatnonzero(real))


def run_title(recording: xr.Dataset, run: xr.DataArray) -> str:
    """Module, cell, layer, direction and sequence of one run."""
    module, cell = (recording.attrs.get(key, "") for key in ("module", "cell"))
    head = f"{module} ({cell}), " if module and cell else f"{module or cell}, " if module or cell else ""
    return f"{head}layer {run['layer'].item()}, {run['direction'].item()}, sequence {run['sequence'].item()}"


def draw_boundaries(axes: Axes, run: xr.DataArray, *, over: bool) -> None:
    """A vertical line before every step at which a segment begins, over a heatmap or behind lines.

    Nothing is drawn where the recording marks no boundaries. Lines get thinner as they come closer.
    """
    if "boundary" not in run.coords:
        return
    starts = run["time"].to_numpy()[run["boundary"].to_numpy().astype(bool)] - 0.5
    if not starts.size:
        return
    width = float(np.clip(_width(axes) / starts.size / 20, 0.3, 0.9))
    lines = axes.vlines(starts, 0, 1, transform=axes.get_xaxis_transform(), label="boundary")
    lines.set(linewidth=width, color="black" if over else "0.55", zorder=3 if over else 1)
    if over and width >= HALO:
        lines.set_path_effects([withStroke(linewidth=width + 1, foreground="white", alpha=0.7)])


def draw_labels(axes: Axes, run: xr.DataArray, name: str) -> None:
    """The label `name` of every step above the picture, as many as can be read; the axis says how many are left out."""
    if name not in run.coords or run[name].dims != ("time",):
        choices = sorted(
            str(key) for key, values in run.coords.items() if values.dims == ("time",) and key not in ("time", "call")
        )
        raise ValueError(f"labels must name a label of the recording; {name!r} came and it has {choices}.")
    texts, time = [label_text(value) for value in run[name].to_numpy()], run["time"].to_numpy()
    lengths = [sum(not unicodedata.combining(letter) for letter in text) for text in texts]
    room = _width(axes) / len(texts)
    if room >= LETTER * LARGEST * max(lengths):
        size, every, longest_upright = LARGEST, 1, max(lengths)
    else:
        size, longest_upright = float(np.clip(room / LINE, SMALLEST, LARGEST)), 1
        every = max(1, ceil(LINE * SMALLEST / room))
    above = axes.secondary_xaxis("top")
    above.set_xticks(time[::every])
    drawn = above.set_xticklabels(texts[::every], fontsize=size, parse_math=False)
    for text, length in zip(drawn, lengths[::every], strict=True):
        text.set_rotation(0 if length <= longest_upright else 90)
    above.tick_params(length=2, pad=2)
    above.set_xlabel(name if every == 1 else f"{name} (one step in {every})")


def label_text(value: object) -> str:
    """A label as it can be drawn: spaces visible, combining marks on a circle, characters without glyph as U+XXXX."""
    if isinstance(value, bool | np.bool_):
        return "1" if value else "0"
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else f"{value:g}"
    text = str(value)
    if text and all(unicodedata.category(letter) == "Cf" for letter in text):
        return "".join(map(_code_point, text))
    marked = "◌" + text if text and unicodedata.combining(text[0]) else text
    return "".join(map(_drawable, marked))


def _drawable(letter: str) -> str:
    shown = SHOWN.get(letter, letter)
    blank = unicodedata.category(shown[0]) in ("Zs", "Zl", "Zp", "Cc")
    return _code_point(letter) if blank or not _glyphs(_fonts()).issuperset(map(ord, shown)) else shown


def _code_point(letter: str) -> str:
    return f"U+{ord(letter):04X}"


def _fonts() -> tuple[str, ...]:
    """Names of the fonts that matplotlib may use, generic families spelt out."""
    settings: Any = mpl.rcParams
    return tuple(name for family in settings["font.family"] for name in settings.get(f"font.{family}", [family]))


@lru_cache(maxsize=8)
def _glyphs(fonts: tuple[str, ...]) -> frozenset[int]:
    """Code points that matplotlib can draw with the first installed of these fonts and those it falls back to."""
    found: set[int] = set()
    for font in fonts:
        try:
            path = findfont(FontProperties(family=[font]), fallback_to_default=False)
        except ValueError:
            continue
        found |= set(FT2Font(path).get_charmap())
    return frozenset(found or FT2Font(findfont("DejaVu Sans")).get_charmap())


def _width(axes: Axes) -> float:
    """Width of the axes in points."""
    return float(axes.bbox.width / axes.figure.dpi * 72)


def chosen_units(run: xr.DataArray, units: npt.ArrayLike | None) -> xr.DataArray:
    """The run with only these units (coordinate values of its last dimension), in the order given."""
    dim = str(run.dims[-1])
    if units is None:
        return run
    choices = run[dim].to_numpy().tolist()
    wanted = np.atleast_1d(np.asarray(units)).tolist()
    unknown = [unit for unit in wanted if unit not in choices]
    if unknown or not wanted:
        raise ValueError(
            f"units must be at least one {dim} of the recording ({min(choices)} to {max(choices)}); {wanted} came."
        )
    return run.isel({dim: [choices.index(unit) for unit in wanted]})
