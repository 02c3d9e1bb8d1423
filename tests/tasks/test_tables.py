"""The table of a hand-made set of networks: its numbers, its words, its files."""

import ast
import csv
import importlib
import io
import shutil
from collections.abc import Iterator
from dataclasses import replace
from math import isnan
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import xarray as xr

from gatescope.tasks import provenance
from gatescope.tasks.experiment import VARIANTS
from gatescope.tasks.intervals import difference
from gatescope.tasks.provenance import modules
from gatescope.tasks.reported import REPORTED, ROW_TITLES
from gatescope.tasks.results import Job, Results, results_folder
from gatescope.tasks.table_text import number, table_csv, table_text
from gatescope.tasks.tables import AGREES, BEYOND, DIFFERS, NONE, TOO_FEW, VERDICTS, agreement, table

ROWS = ("1997", "decay-0.9", "forget", "restart-20000")


@pytest.fixture(scope="module")
def made_up() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parent)
        yield importlib.import_module("made_up_networks")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, made_up: ModuleType) -> Results:
    """Of 1997 40 networks at rest; of the forget gate 6 perfect, 2 good, 2 at rest, 2 to come; little of others."""
    outcome, out = made_up.outcome, tmp_path_factory.mktemp("results") / "out"
    with results_folder(out, {row: VARIANTS[row] for row in sorted(ROWS, reverse=True)}, 12) as found:
        for network in range(10):
            verdict = "perfect" if network < 6 else "good" if network < 8 else "rest"
            streams = 1000 * (network + 1)
            found.save(Job("forget", network), outcome(network, verdict, streams, network != 5, capped=network == 9))
        for network in range(12):
            found.save(Job("restart-20000", network), outcome(network, "rest"))
    with results_folder(out, {"1997": VARIANTS["1997"]}, 40) as found:
        for network in range(40):
            found.save(Job("1997", network), outcome(network, "rest"))
    return found


@pytest.fixture(scope="module")
def made(results: Results) -> xr.Dataset:
    return table(results)


def test_shares_are_of_the_finished_networks_with_wilson_intervals(made: xr.Dataset) -> None:
    row = made.sel(row="forget")
    assert (int(row["networks"]), int(row["asked"]), int(row["capped"])) == (10, 12, 1)
    assert row["count"].values.tolist() == [6, 2, 2]
    assert row["percent"].values.tolist() == [60, 20, 20]
    # (p + z^2/2n -+ z sqrt(p (1-p)/n + z^2/4n^2)) / (1 + z^2/n) by hand, z^2 = 3.8415
    np.testing.assert_allclose(row["percent_interval"].sel(verdict="perfect"), [31.27, 83.18], atol=0.01)
    np.testing.assert_allclose(row["percent_interval"].sel(verdict="good"), [5.67, 50.98], atol=0.01)


def test_streams_are_those_of_perfect_networks_and_their_median_lies_between_the_outermost_of_six(
    made: xr.Dataset,
) -> None:
    row = made.sel(row="forget")
    assert (float(row["streams"]), float(row["streams_mean"])) == (3500, 3500)
    assert row["streams_interval"].values.tolist() == [1000, 6000]
    assert isnan(made["streams"].sel(row="1997"))


def test_mean_streams_are_over_all_tests_of_networks_of_that_verdict(made: xr.Dataset, made_up: ModuleType) -> None:
    lengths = [length for network in (6, 7) for length in made_up.outcome(network, "good").tests]
    assert float(made["stream"].sel(row="forget", verdict="good")) == pytest.approx(np.mean(lengths))
    assert float(made["stream"].sel(row="forget", verdict="perfect")) == 100_000
    assert isnan(made["stream"].sel(row="1997", verdict="good"))


def test_the_retest_counts_perfect_networks_that_are_so_again(made: xr.Dataset) -> None:
    row = made.sel(row="forget")
    assert (int(row["retested"]), int(row["retest_count"])) == (6, 5)
    assert float(row["retest_percent"]) == pytest.approx(500 / 6)
    assert float(row["retest_stream"]) == pytest.approx((59 * 100_000 + 50) / 60)


def test_every_network_stands_in_the_table(made: xr.Dataset, made_up: ModuleType) -> None:
    assert (
        made["outcome"].sel(row="forget").values.tolist()[:12]
        == ["perfect"] * 6 + ["good"] * 2 + ["rest"] * 2 + [""] * 2
    )
    assert made["training_streams"].sel(row="forget").values[:10].tolist() == list(range(1000, 11000, 1000))
    assert made["test_stream"].sel(row="forget", network=7).values.tolist() == list(made_up.outcome(7, "good").tests)
    assert np.isnan(made["training_streams"].sel(row="forget").values[10:]).all()


def test_the_report_stands_beside(made: xr.Dataset) -> None:
    row = made.sel(row="forget")
    assert row["reported_percent"].values.tolist() == [18, 29, 53]
    assert (int(row["reported_networks"]), float(row["reported_streams"])) == (100, 18889)
    np.testing.assert_array_equal(row["reported_stream"], [np.nan, 39171, 145])
    assert int(made["reported_networks"].sel(row="restart-20000")) == 0
    assert np.isnan(made["reported_percent"].sel(row="restart-20000")).all()


def test_agreement_needs_three_differences_that_may_be_zero_and_enough_networks(made: xr.Dataset) -> None:
    assert made["agreement"].values.tolist() == [AGREES, NONE, DIFFERS, BEYOND]
    around, apart = (-0.1, 0.1), (0.01, 0.2)
    assert agreement([around] * 3, 30) == AGREES
    assert agreement([around] * 3, 29) == TOO_FEW
    assert agreement([around, around, apart], 100) == DIFFERS
    assert agreement([around, (-0.2, -0.01), around], 5) == DIFFERS
    assert agreement([around] * 3, 0) == NONE


def test_a_row_with_the_reports_own_counts_is_as_reported(tmp_path: Path, made_up: ModuleType) -> None:
    """And with 20 of 100 moved from perfect to rest it is not."""
    for moved, expected in ((0, AGREES), (20, DIFFERS)):
        with results_folder(tmp_path / str(moved), {"external-reset": VARIANTS["external-reset"]}, 100) as found:
            for network in range(100):
                verdict = "perfect" if network < 74 - moved else "rest"
                found.save(Job("external-reset", network), made_up.outcome(network, verdict))
        assert table(found)["agreement"].item() == expected


def test_a_table_of_networks_that_were_given_up_early_says_so(tmp_path: Path, made_up: ModuleType) -> None:
    for most in (4000, 30_000):
        with results_folder(
            tmp_path / str(most), {"forget": replace(VARIANTS["forget"], max_streams=most)}, 1
        ) as found:
            found.save(Job("forget", 0), made_up.outcome(0, "rest"))
        said = " ".join(table_text(table(found)).split())
        assert ("Given up early: after 4,000 training streams, where the report goes on to 30,000." in said) == (
            most == 4000
        )


def test_reported_shares_are_whole_and_of_rows_that_there_are() -> None:
    for task, rows in REPORTED.items():
        assert set(rows) <= {row for row, setting in VARIANTS.items() if setting.task == task}
        for reported in rows.values():
            assert reported.perfect + reported.good + reported.rest == 100
    assert set(ROW_TITLES) <= set(VARIANTS)


def lines_of(text: str, begin: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(begin)]


def test_the_text_has_ours_above_the_reports(made: xr.Dataset) -> None:
    text = table_text(made)
    (header,) = lines_of(text, "row ")
    assert header.split()[:3] == ["row", "networks", "perfect"]
    (ours,) = lines_of(text, "forget gate  ")
    theirs = text.splitlines()[text.splitlines().index(ours) + 1]
    good = float(made["stream"].sel(row="forget", verdict="good"))
    rest = float(made["stream"].sel(row="forget", verdict="rest"))
    assert (
        ours.split()
        == (
            f"forget gate here 10 of 12 60 [31, 83] 5 of 6 20 [6, 51] <{good:,.0f}> 20 [6, 51] <{rest:,.0f}> "
            "3,500 [1,000, 6,000] 3,500"
        ).split()
    )
    assert theirs.split() == ["report", "100", "18", "29", "<39,171>", "53", "<145>", "18,889"]
    assert theirs.index("report") == ours.index("here")
    following = [line.split()[0] for line in text.splitlines() if " here " in line]
    assert following == ["1997", "state", "forget", "forget"]


def test_the_text_says_what_agrees_what_does_not_and_why(made: xr.Dataset) -> None:
    text = " ".join(table_text(made).split())
    assert "As reported: 1997. " in text
    low, high = made["difference_interval"].sel(row="forget", verdict="perfect").values
    assert (
        "Not as reported: - forget gate: perfect 60 % here, 18 % there "
        f"(difference {low:+.0f} to {high:+.0f}), good 20 % here, 29 % there, rest 20 % here, 53 % there"
    ) in text
    assert "Beyond the report: forget gate + restarts. " in text
    assert "No network yet: state decay 0.9. " in text
    assert "Partial: state decay 0.9 0 of 12; forget gate 10 of 12. " in text
    assert "reached the limit of training symbols: 1 of forget gate." in text
    assert "so each with 98.3 %" in text


def test_the_text_fits_and_has_no_word_of_what_is_not_there(made: xr.Dataset) -> None:
    text = table_text(made)
    assert "nan" not in text
    assert max(map(len, text.splitlines())) <= 150


def test_numbers_are_whole_with_commas() -> None:
    assert [number(value) for value in (0.0, 18889.4, 1e6, float("nan"))] == ["0", "18,889", "1,000,000", ""]


def test_the_csv_has_a_line_for_each_row_with_the_tables_numbers(made: xr.Dataset) -> None:
    lines = {line["row"]: line for line in csv.DictReader(io.StringIO(table_csv(made)))}
    assert list(lines) == list(ROWS)
    forget = lines["forget"]
    for column, expected in {
        "networks": 10,
        "asked": 12,
        "capped": 1,
        "perfect_networks": 6,
        "perfect_percent": 60,
        "perfect_percent_reported": 18,
        "good_stream_reported": 39171,
        "streams_until_perfect": 3500,
        "streams_until_perfect_low": 1000,
        "streams_until_perfect_high": 6000,
        "streams_until_perfect_reported": 18889,
        "retest_perfect": 5,
        "retested": 6,
    }.items():
        assert float(forget[column]) == expected
    for verdict in VERDICTS:
        for bound in ("low", "high"):
            there = float(made["percent_interval"].sel(row="forget", verdict=verdict, bound=bound))
            assert float(forget[f"{verdict}_percent_{bound}"]) == pytest.approx(there, abs=1e-4)
    assert lines["decay-0.9"]["perfect_percent"] == ""
    assert forget["agreement"] == DIFFERS


def test_the_table_survives_netcdf(made: xr.Dataset, tmp_path: Path) -> None:
    made.to_netcdf(tmp_path / "table.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "table.nc", engine="h5netcdf") as back:
        xr.testing.assert_equal(back.load(), made)
        assert back.attrs == made.attrs


def test_what_cannot_be_believed_counts_as_not_there(results: Results, made: xr.Dataset, tmp_path: Path) -> None:
    shutil.copytree(results.path, tmp_path / "copy")
    copy = replace(results, path=tmp_path / "copy")
    place = copy.place(Job("forget", 0))
    place.write_bytes(place.read_bytes()[:100])
    again = table(copy)
    assert int(again["networks"].sel(row="forget")) == 9
    assert int(again["count"].sel(row="forget", verdict="perfect")) == 5
    xr.testing.assert_equal(again.sel(row="1997"), made.sel(row="1997"))


def test_networks_of_two_states_of_the_engine_are_said_to_be_mixed(made: xr.Dataset) -> None:
    assert len(made.attrs["engine"]) == 12
    assert "Mixed" not in table_text(made)
    assert "trained by 2 states of the engine's code" in table_text(made.assign_attrs(engine="abc def"))


def test_the_engines_fingerprint_changes_with_its_code_and_not_with_its_words(tmp_path: Path) -> None:
    (tmp_path / "experiment.py").write_text('"""Doc."""\nfrom .engine import step\n')
    (tmp_path / "engine.py").write_text("def step():\n    return 1  # one\n")
    (tmp_path / "unused.py").write_text("x = 1\n")

    def seen() -> list[tuple[str, str]]:
        return [(name, ast.dump(tree)) for name, tree in sorted(modules(tmp_path).items())]

    before = seen()
    assert [name for name, _ in before] == ["engine", "experiment"]
    (tmp_path / "engine.py").write_text('def step():\n    """Doc."""\n    return 1\n')
    assert seen() == before
    (tmp_path / "engine.py").write_text("def step():\n    return 2\n")
    assert seen() != before


def test_the_engines_fingerprint_is_of_all_that_trains_and_not_of_the_list_of_rows() -> None:
    found = set(modules(Path(provenance.__file__).parent))
    assert {"experiment", "engine", "randomness", "automaton", "exponential", "wiring"} <= found
    assert not found & {"variants", "tables", "results"}


def test_strings_are_tested_on_two_sets_and_tested_again_on_ten(tmp_path: Path, made_up: ModuleType) -> None:
    with results_folder(tmp_path / "out", {"lstm": VARIANTS["lstm"]}, 2) as found:
        for network, (tests, retests) in enumerate([((256, 256), (256,) * 10), ((256, 256), (256,) * 9 + (255,))]):
            found.save(Job("lstm", network), replace(made_up.outcome(network, "perfect"), tests=tests, retests=retests))
    made = table(found).sel(row="lstm")
    assert (int(made["retested"]), int(made["retest_count"])) == (2, 1)
    assert float(made["retest_stream"]) == pytest.approx(255.95)
    assert (made.sizes["test"], made.sizes["retest"]) == (2, 10)
    assert {made[name].attrs["units"] for name in ("stream", "test_stream", "retest_length")} == {"strings of 256"}
    assert "right strings of 256" in " ".join(table_text(table(found)).split())


def test_one_good_network_of_twelve_is_no_difference_to_none_of_a_hundred(tmp_path: Path, made_up: ModuleType) -> None:
    """Alone its 95 % interval leaves out zero; three intervals must hold together."""
    assert difference(1, 12, 0, 100)[0] > 0
    with results_folder(tmp_path / "out", {"external-reset": VARIANTS["external-reset"]}, 12) as found:
        for network, verdict in enumerate(["perfect"] * 9 + ["good"] + ["rest"] * 2):
            found.save(Job("external-reset", network), made_up.outcome(network, verdict))
    made = table(found)
    assert made["agreement"].item() == TOO_FEW
    assert float(made["difference_interval"].sel(verdict="good", bound="low").item()) < 0
