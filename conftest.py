"""In CI nothing is skipped: a test that lacks its browser or package fails there, so that a green run means it ran."""

import os
from collections.abc import Generator

import pytest

IN_CI = os.environ.get("CI", "").lower() in ("1", "true")


def failed_instead_of_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome = "failed"
        report.longrepr = f"In CI nothing may be skipped; install what is missing. {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    failed_instead_of_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    failed_instead_of_skipped(report)
    return report
