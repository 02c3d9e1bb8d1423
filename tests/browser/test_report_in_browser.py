"""A report opened as a file: it fits, it is dark in the dark, it prints, it asks nobody, and names in it are text."""

from pathlib import Path

import pytest

import gatescope as gs

SIZES = {"desktop": (1280, 800), "phone": (390, 844)}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where the report lies, once the first test has written it."""
    return {"at": tmp_path_factory.mktemp("report") / "report.html"}


@pytest.fixture
def written(report, server, recording) -> Path:
    if not report["at"].exists():
        gs.report(Path(server["folder"]) / "resets.zarr", out=report["at"])
    return report["at"]


@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_a_report_fits_its_screen_and_follows_the_theme(visit, web, written, screenshots, size, scheme):
    page = visit(file=written, size=SIZES[size], scheme=scheme)
    assert web.overflow(page) <= 0
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (max(map(int, background[4:-1].split(","))) < 100) == (scheme == "dark")
    assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 100)")
    assert page.locator("figure:visible").count() >= 12
    web.pictured(page, screenshots, f"report-{size}-{scheme}")


def test_links_from_findings_lead_to_their_pictures(visit, web, written):
    page = visit(file=written)
    links = page.locator("ol.findings a")
    for place in range(links.count()):
        links.nth(place).click()
        target = page.evaluate("decodeURIComponent(location.hash.slice(1))")
        web.expect(page.locator(f"figure[id='{target}']")).to_be_in_viewport()


def test_names_in_a_report_are_text_and_scripts_would_not_run(visit, web, written):
    page = visit(file=written)
    web.expect(page.locator("h1")).to_contain_text(web.EVIL)
    assert page.locator("img[src=x], [onerror], script").count() == 0
    page.on("console", lambda said: None)
    assert page.evaluate("document.querySelectorAll('meta[http-equiv]').length") == 1


def test_a_printed_report_is_black_on_white_with_all_its_pictures(visit, written):
    page = visit(file=written, scheme="dark")
    page.emulate_media(media="print", color_scheme="light")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert page.pdf().startswith(b"%PDF")
    assert page.locator("figure:visible").count() >= 12
