"""The report: what stands in it is what measures say, its code draws its pictures, and text from a file stays text."""

import html
import os
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import xarray as xr
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gatescope as gs
from gatescope import report_file, report_page
from gatescope.report_code import Line, Name, Space, ensure, variable
from gatescope.report_health import LOOK, gradients, running_away, stuck
from gatescope.report_html import anchor
from gatescope.report_pictures import Picture, drawn, pictures
from gatescope.report_view import bounded, look

EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</code></pre><b>",
    "&lt;",
    "$\\frac$",
    "\u202eabc",
)
NEAR = "image file, no script"


class Page(HTMLParser):
    """What a browser would make of a page: elements, their attributes, and the text of each kind of element."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        for tag in dict.fromkeys(self.open):
            self.texts[tag][-1] += data

    def attributes(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.elements if name == tag]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are left out, for tests that are about words."""

    def only_measured(picture: Picture, space: Space, room: int) -> str:
        ensure(picture.lines, space)
        for line in picture.lines:
            variable(line.target, space)
        return "<p>no picture</p>"

    monkeypatch.setattr(report_page, "pictured", only_measured)


@pytest.fixture(autouse=True)
def no_window() -> Iterator[None]:
    before = mpl.get_backend()
    mpl.use("agg")
    yield
    pyplot.close("all")
    mpl.use(before)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


def telling(make_recording: Callable[..., xr.Dataset], **options: Any) -> xr.Dataset:
    """A recording in which one unit's memory tells a label and one forget gate is stuck open."""
    recording = make_recording(**{"lengths": (40, 25), "layers": 1, **options}).copy(deep=True)
    token = recording["token"].to_numpy()
    recording["cell_state"].values[:, :, :, :, 1] = (
        np.where(token == "a", 3.0, -3.0) + 0 * recording["cell_state"][..., 1]
    )
    recording["forget_gate"].values[..., 2] = 0.99 + 0 * recording["forget_gate"].values[..., 2]
    return recording


def written(recording: Any, folder: Path, **options: Any) -> tuple[str, Page]:
    text = gs.report(recording, out=folder / "report.html", overwrite=True, **options).read_text(encoding="utf-8")
    return text, Page(text)


def test_the_findings_are_those_of_describe_with_effect_and_grounds(make_recording, tmp_path, undrawn):
    recording = telling(make_recording)
    _, page = written(recording, tmp_path)
    found = gs.describe(recording, most=20)
    items = page.texts["li"]
    assert len(items) == found.sizes["finding"] >= 3
    for item, text, effect, p, grounds in zip(
        items, *(found[name].to_numpy() for name in ("text", "effect", "p", "grounds")), strict=True
    ):
        assert item.startswith(text)
        assert f"effect {effect:.2f}" in item
        assert grounds in item
        assert (f"p {p:.1g}" in item) == (not np.isnan(p))


def test_certificate_versions_and_health_stand_at_the_top(make_recording, tmp_path, undrawn):
    recording = make_recording()
    _, page = written(recording, tmp_path)
    facts = dict(zip(page.texts["dt"], page.texts["dd"], strict=True))
    assert facts["parity"] == "1.0e-07 of the largest state, within its tolerance of 0.0001"
    assert facts["created"] == recording.attrs["created"]
    assert facts["versions"] == f"gatescope {gs.__version__}, torch 2.13.0"
    assert "2 layers, 2 directions, 5 units, 3 sequences, 20 steps" in facts["recorded"]
    rows = page.texts["tbody"][0]
    assert "✓ goodcertificate" in rows
    assert "44% of the array" in rows  # 20 of 36 steps are real


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"parity": 1.0}, "✗ badcertificateNOT within its tolerance"),
        ({"training": 1, "dropout": 0.5}, "✗ badmoderecorded in training mode: dropout 0.5"),
        ({"nonfinite": "nan in 3 sequences"}, "✗ badfinite valuesnot all: nan in 3 sequences"),
        ({"stride": 5}, "● lookstrideonly every 5th step"),
    ],
)
def test_what_must_not_be_believed_is_marked(make_recording, tmp_path, undrawn, change, said):
    recording = make_recording(lengths=(6,)).assign_attrs(change)
    _, page = written(recording, tmp_path)
    assert said in page.texts["tbody"][0]


def test_nothing_to_go_by_is_never_called_good(make_recording):
    recording = make_recording(layers=1, directions=1, lengths=(9,))
    blank = recording.assign({name: data * np.nan for name, data in recording.data_vars.items() if "time" in data.dims})
    looks = {stuck: gs.saturation, running_away: gs.drift, gradients: gs.gradient_flow}
    for check, measure in looks.items():
        assert check(measure(blank)).state == LOOK
        assert check(measure(recording)).said != check(measure(blank)).said


def test_a_report_is_one_small_file_that_fetches_nothing_and_runs_nothing(make_recording, tmp_path):
    out = tmp_path / "report.html"
    gs.report(telling(make_recording), out=out)
    text = out.read_text(encoding="utf-8")
    page = Page(text)
    assert page.open == []
    assert out.stat().st_size < 5_000_000
    names = {name for name, _ in page.elements}
    assert not names & {"script", "link", "iframe", "object", "embed", "form", "base", "svg"}
    assert all(image["src"].startswith("data:image/png;base64,iVBOR") for image in page.attributes("img"))
    assert all(len(image["alt"]) > 20 for image in page.attributes("img"))
    places = {attrs["id"] for _, attrs in page.elements if "id" in attrs}
    assert {link["href"][1:] for link in page.attributes("a")} <= places
    assert "default-src 'none'" in next(m["content"] for m in page.attributes("meta") if "http-equiv" in m)
    assert not re.search(r"url\(|@import|https?:", text)
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert page.attributes("html") == [{"lang": "en"}]
    assert list(tmp_path.iterdir()) == [out]


def picture_numbers(figure: Figure | Axes) -> list[np.ndarray]:
    """All numbers that a figure shows: images, lines, points, bars."""
    figure = figure if isinstance(figure, Figure) else figure.figure
    found: list[np.ndarray] = []
    for ax in figure.axes:
        found += [np.ma.filled(np.ma.asarray(image.get_array(), dtype=float), np.nan) for image in ax.get_images()]
        found += [np.asarray(line.get_xydata(), dtype=float) for line in ax.get_lines()]
        found += [np.ma.filled(np.ma.asarray(points.get_offsets(), dtype=float), np.nan) for points in ax.collections]
        found += [np.array(bar.get_bbox().extents) for bar in ax.patches if hasattr(bar, "get_width")]
    return found


KINDS = ("labels", "no labels", "one sequence")


def kind_of(make_recording: Callable[..., xr.Dataset], kind: str) -> xr.Dataset:
    if kind == "no labels":
        return make_recording(labels=False, directions=1)
    return make_recording(lengths=(50,), layers=1, directions=1) if kind == "one sequence" else telling(make_recording)


@pytest.mark.parametrize("kind", KINDS)
def test_the_code_below_a_picture_draws_its_numbers(make_recording, tmp_path, undrawn, kind):
    recording = kind_of(make_recording, kind)
    gs.save_recording(recording, tmp_path / "run.nc")
    _, page = written(tmp_path / "run.nc", tmp_path)
    opening, *codes = page.texts["code"][len(page.texts.get("li", [])) :]
    part = bounded(gs.open_recording(tmp_path / "run.nc"), 2**22).recording
    space: dict[str, Any] = {"recording": part}
    mine: dict[str, Any] = {}
    exec(opening, mine)
    for picture in pictures(part, look(part, gs.describe(part, most=20)), space):
        try:
            figure = drawn(picture, space)
        except ValueError:
            continue
        code = next(code for code in codes if code == picture.code())
        exec(code, mine)
        last = mine["panels"][0] if picture.draw.target == "panels" else mine["axes"]
        drawn_here, drawn_there = picture_numbers(figure), picture_numbers(last)
        assert len(drawn_here) == len(drawn_there) > 0, picture.name
        for here, there in zip(drawn_here, drawn_there, strict=True):
            np.testing.assert_array_equal(here, there, err_msg=picture.name)
        pyplot.close("all")


def test_the_code_beside_a_finding_draws_it(make_recording, tmp_path, undrawn):
    _, page = written(telling(make_recording), tmp_path)
    lines = page.texts["code"][: len(page.texts["li"])]
    measures = {line.split("(")[0] for line in lines}
    assert {"gs.plot_selectivity", "gs.plot_saturation"} <= measures
    for line in dict.fromkeys(lines):
        axes = eval(line, {"gs": gs, "recording": telling(make_recording)})
        assert axes.has_data(), line


def test_texts_of_a_recording_are_text(make_recording, tmp_path, monkeypatch):
    monkeypatch.setattr(report_page, "RESOLUTIONS", (30,))
    recording = telling(make_recording, module=EVIL[0], lengths=(150,))
    token = np.random.default_rng(0).choice(np.array(EVIL, dtype=object), (1, 150))
    recording["cell_state"].values[..., 1] = np.where(token == EVIL[0], 3, -3)
    recording = recording.assign_coords(token=(("sequence", "time"), token)).rename(token=EVIL[1])
    for at, key in enumerate(("cell", "created", "torch_version", "gatescope_version", "nonfinite", "note")):
        recording.attrs[key] = EVIL[at % len(EVIL)]
    recording["forget_gate"].attrs |= {"long_name": EVIL[2], "symbol": EVIL[4]}
    place = tmp_path / "<img src=x onerror=alert(1)>.nc"
    gs.save_recording(recording, place)
    text, page = written(place, tmp_path)
    names = {name for name, _ in page.elements}
    assert not names & {"script", "b"}
    assert all(set(image) == {"alt", "src"} for image in page.attributes("img"))
    assert not any(key.startswith("on") for _, attrs in page.elements for key in attrs)
    assert "\u202e" not in text
    assert EVIL[0] in page.texts["h1"][0]
    assert any(EVIL[1] in heading for heading in page.texts["h3"])
    assert place.name in page.texts["header"][0]
    refused = [text for text in page.texts["p"] if text.startswith("No picture")]
    assert len(page.attributes("img")) >= 11, refused
    assert any(repr(EVIL[0]) in text for text in page.texts["li"])


def test_a_recording_that_is_too_long_is_read_in_part_and_the_report_says_so(make_recording, tmp_path, undrawn):
    recording = make_recording(lengths=(30, 30, 30, 30), layers=1, directions=1)
    wide = recording.sizes["unit"]
    _, page = written(recording, tmp_path, values=70 * wide)
    assert "reads the first 2 of 4 sequences: 60 of 120 steps, 50.0%" in page.texts["p"][1]
    assert "recording = recording.isel(sequence=slice(0, 2), time=slice(0, 30))" in "".join(page.texts["code"])
    _, page = written(recording, tmp_path, values=12 * wide)
    assert "reads the first 1 of 4 sequences, of each the first 12 steps: 12 of 120" in page.texts["p"][1]
    _, page = written(recording, tmp_path)
    assert not any("This report reads" in text for text in page.texts["p"])


@pytest.mark.parametrize("lengths", [(3, 9, 2), (40,), (0, 7), (5, 5, 5, 5)])
@pytest.mark.parametrize("steps", [1, 4, 10, 1000])
def test_a_part_is_never_larger_than_asked_and_never_empty(make_recording, lengths, steps):
    recording = make_recording(lengths=lengths)
    wide = 2 * 2 * recording.sizes["unit"]
    part = bounded(recording, steps * wide).recording
    assert part["forget_gate"].size <= max(1, steps) * wide
    assert lengths[0] == 0 or 0 < part["length"].sum() <= recording["length"].sum()
    assert part["length"].max() <= part.sizes["time"]
    taken = {dim: slice(0, part.sizes[dim]) for dim in ("sequence", "time")}
    for name in ("forget_gate", "cell_state", "token"):
        xr.testing.assert_equal(part[name].variable, recording[name].isel(taken).variable)


def test_pictures_that_do_not_fit_are_smaller_and_then_left_out(make_recording, tmp_path, monkeypatch):
    recording = make_recording(lengths=(9,), layers=1, directions=1, labels=False)
    monkeypatch.setattr(report_page, "RESERVED", 0)
    monkeypatch.setattr(report_page, "LIMIT", 60_000)
    text, _ = written(recording, tmp_path)
    assert len(text) < 60_000 + 40_000
    assert "Left out, so that this file stays small" in text
    assert "data:image/png" in text


def test_a_tree_has_a_section_for_every_module_or_one_that_is_named(make_recording, tmp_path, undrawn):
    tree = xr.DataTree.from_dict({f"{name}": make_recording(module=name, lengths=(6,)) for name in ("enc", "dec")})
    gs.save_recording(tree, tmp_path / "two.zarr")
    _, page = written(tmp_path / "two.zarr", tmp_path)
    assert page.texts["h2"] == ["enc (LSTMCell)", "dec (LSTMCell)"]
    assert [link["href"] for link in page.attributes("a")][:2] == ["#m0", "#m1"]
    assert "recording = recording['dec'].to_dataset()" in "".join(page.texts["code"])
    _, page = written(tmp_path / "two.zarr", tmp_path, module="dec")
    assert page.texts["h2"] == ["dec (LSTMCell)"]
    with pytest.raises(ValueError, match=r"module must be one of 'enc', 'dec'; 'x' came\."):
        gs.report(tree, out=tmp_path / "x.html", module="x")


def test_of_very_many_modules_the_first_have_sections(make_recording, tmp_path, undrawn, monkeypatch):
    monkeypatch.setattr(report_file, "MODULES", 1)
    tree = xr.DataTree.from_dict({name: make_recording(module=name, lengths=(5,)) for name in ("enc", "dec")})
    _, page = written(tree, tmp_path)
    assert page.texts["h2"] == ["enc (LSTMCell)"]
    assert "the first 1 of 2 modules. Name one to report on: dec." in page.texts["header"][0]


def test_a_file_that_is_there_stays_unless_it_may_be_overwritten(make_recording, tmp_path, undrawn):
    out = tmp_path / "report.html"
    out.write_text("mine")
    with pytest.raises(FileExistsError, match=r"out must be a new file; .* exists\."):
        gs.report(make_recording(), out=out)
    assert out.read_text() == "mine"
    gs.report(make_recording(), out=out, overwrite=True)
    assert out.read_text().startswith("<!DOCTYPE html>")


def test_a_report_that_fails_leaves_the_old_one_and_nothing_else(make_recording, tmp_path, undrawn, monkeypatch):
    out = tmp_path / "report.html"
    out.write_text("old")

    def fails(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="the disk is full"):
        gs.report(make_recording(lengths=(5,)), out=out, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert out.read_text() == "old"


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("report.txt", r"out must end in \.html; .* came\."),
        ("nowhere/report.html", r"out must be in a folder that exists; .* does not\. Make it first\."),
        ("folder.html", r"out must be a file; .* is a folder\."),
    ],
)
def test_a_place_that_cannot_be_written_is_said_before_anything_is_read(tmp_path, out, said):
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(ValueError, match=said):
        gs.report(tmp_path / "is not even there.nc", out=tmp_path / out)


def test_what_is_no_recording_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "x.nc").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="must hold a recording"):
        gs.report(tmp_path / "x.nc", out=tmp_path / "report.html")
    with pytest.raises(FileNotFoundError, match="there is nothing at"):
        gs.report(tmp_path / "y.nc", out=tmp_path / "report.html")
    with pytest.raises(TypeError, match="report needs a recording or the path of one; int came"):
        gs.report(3, out=tmp_path / "report.html")
    with pytest.raises(ValueError, match="values must be at least 1; 0 came"):
        gs.report(tmp_path / "y.nc", out=tmp_path / "report.html", values=0)
    assert [path.name for path in tmp_path.iterdir()] == ["x.nc"]


def test_a_recording_without_a_step_says_so(make_recording, tmp_path):
    empty = make_recording(lengths=(3,)).isel(time=slice(0, 0))
    empty["length"] = ("sequence", [0])
    with pytest.raises(ValueError, match="a report needs a sequence with at least one step; the recording has none"):
        gs.report(empty, out=tmp_path / "report.html")


def test_anchors_hold_nothing_that_could_end_them():
    for text in EVIL:
        assert re.fullmatch("[A-Za-z0-9_-]+", anchor("m", 0, text))
    assert anchor("a b") != anchor("a-b")


def test_a_line_says_what_it_does():
    line = Line("part", "recording.isel", (), {"time": slice(0, 2)})
    recording = xr.Dataset({"x": ("time", [1, 2, 3])})
    assert line.text() == "part = recording.isel(time=slice(0, 2))"
    assert line.run({"recording": recording})["x"].values.tolist() == [1, 2]
    assert Line("", "f", (Name("a"), "a", [1])).expression() == "f(a, 'a', [1])"


def test_html_escapes_are_undone_by_a_browser_only(make_recording, tmp_path, undrawn):
    text, _ = written(make_recording(module="a<b", lengths=(5,)), tmp_path)
    assert "a<b" not in text
    assert "a<b" in html.unescape(text)
