"""Which networks a table is made of."""

from dataclasses import asdict

import pytest

from gatescope.tasks.experiment import VARIANTS
from gatescope.tasks.reported import REPORTED
from gatescope.tasks.results import flat
from gatescope.tasks.rows import SWEEPS, chosen_rows


def test_without_names_cerg_has_the_reports_rows_and_erg_all() -> None:
    assert list(chosen_rows("cerg")) == list(REPORTED["cerg"])
    assert list(chosen_rows("erg")) == [row for row, setting in VARIANTS.items() if setting.task == "erg"]
    assert set(chosen_rows("cerg", ["all"])) | set(chosen_rows("erg", ["all"])) == set(VARIANTS)


def test_named_rows_come_once_in_the_order_of_their_names() -> None:
    assert list(chosen_rows("cerg", ["forget", "1997", "forget"])) == ["forget", "1997"]


def test_seed_and_streams_are_those_that_were_asked_for_and_nothing_else_is_changed() -> None:
    found = chosen_rows("cerg", ["forget"], seed=7, max_streams=50)["forget"]
    assert asdict(found) == asdict(VARIANTS["forget"]) | {"seed": 7, "max_streams": 50}
    assert chosen_rows("cerg", ["forget"])["forget"] == VARIANTS["forget"]


@pytest.mark.parametrize("sweep", SWEEPS)
def test_a_sweep_varies_one_thing_and_has_a_row_of_the_reports_own(sweep: str) -> None:
    base = VARIANTS[{"alpha": "forget", "gamma": "forget-alpha-decay", "bias": "forget", "decay": "decay-0.9"}[sweep]]
    varied = {
        "alpha": {"alpha"},
        "gamma": {"alpha_decay"},
        "bias": {"input_bias", "forget_bias", "output_bias"},
        "decay": {"wiring.forget"},
    }[sweep]
    rows = chosen_rows("cerg", sweep=sweep)
    assert len(rows) >= 4
    settings = set()
    for row, setting in rows.items():
        ours, theirs = flat(asdict(setting)), flat(asdict(base))
        assert setting.variant == row
        assert {name for name in ours if ours[name] != theirs[name]} <= varied | {"variant"}
        settings.add(tuple(str(ours[name]) for name in varied))
    assert len(settings) == len(rows)
    assert tuple(str(flat(asdict(base))[name]) for name in varied) in settings
