import os
from pathlib import Path

import pytest

from gatescope.dashboards import catalogue
from gatescope.probe.store import save_recording


def test_recordings_are_found_in_folders_below_and_stores_are_not_entered(tmp_path, make_recording):
    for place in (tmp_path / "a.zarr", tmp_path / "deep" / "er" / "b.nc"):
        place.parent.mkdir(parents=True, exist_ok=True)
        save_recording(make_recording(), place)
    (tmp_path / "a.zarr" / "inner.nc").write_bytes(b"")
    (tmp_path / ".hidden.zarr").mkdir()
    (tmp_path / "notes.txt").write_text("")
    assert [entry.name for entry in catalogue.find([tmp_path])] == ["a.zarr", "deep/er/b.nc"]


def test_the_search_ends_four_folders_down(tmp_path):
    for depth in (4, 5):
        place = tmp_path.joinpath(*"abcde"[:depth], f"{depth}.nc")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"")
    assert [entry.path.name for entry in catalogue.find([tmp_path])] == ["4.nc"]


def test_names_stay_apart_and_nothing_is_listed_twice(tmp_path):
    for folder in ("one/run", "two/run"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.nc").write_bytes(b"")
    places = [tmp_path / "one" / "run", tmp_path / "two" / "run", tmp_path / "one" / "run" / "x.nc"]
    entries = catalogue.find(places)
    assert len(entries) == len({entry.name for entry in entries}) == 2


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_links_out_of_the_folder_are_refused_and_links_within_it_are_not(tmp_path, kind):
    shown, outside = tmp_path / "shown", tmp_path / "outside"
    shown.mkdir()
    suffix = ".nc" if kind == "file" else ".zarr"
    for folder in (shown, tmp_path):
        place = folder / f"outside{suffix}"
        place.write_bytes(b"") if kind == "file" else place.mkdir()
    (shown / f"bad{suffix}").symlink_to(outside.with_suffix(suffix))
    (shown / f"good{suffix}").symlink_to(shown / f"outside{suffix}")
    problems = {entry.name: entry.problem for entry in catalogue.find([shown])}
    assert "is a link that leaves it" in problems.pop(f"bad{suffix}")
    assert problems == {f"good{suffix}": "", f"outside{suffix}": ""}


def test_a_folder_behind_a_link_is_not_searched(tmp_path):
    (tmp_path / "shown").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.nc").write_bytes(b"")
    (tmp_path / "shown" / "way").symlink_to(tmp_path / "elsewhere")
    assert catalogue.find([tmp_path / "shown"]) == []


def test_a_recording_is_opened_once_until_it_changes(tmp_path, make_recording):
    save_recording(make_recording(), tmp_path / "x.nc")
    entry = catalogue.find([tmp_path])[0]
    first = catalogue.recordings(entry).modules["encoder.rnn"]
    assert catalogue.recordings(entry).modules["encoder.rnn"] is first
    first.close()
    (tmp_path / "x.nc").unlink()
    save_recording(make_recording(seed=4), tmp_path / "x.nc")
    assert catalogue.recordings(entry).modules["encoder.rnn"] is not first


def test_names_whose_bytes_are_no_text_can_be_shown_and_differ(tmp_path):
    for name in (b"run-\xff.nc", b"run-\xfe.nc"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(b"")
    (tmp_path / "good.nc").write_bytes(b"")
    entries = catalogue.find([tmp_path])
    names = [entry.name for entry in entries]
    assert len(set(names)) == 3
    assert "good.nc" in names
    assert all(name.encode() for name in names)
    assert all(catalogue.recordings(entry).problem.encode() for entry in entries)
