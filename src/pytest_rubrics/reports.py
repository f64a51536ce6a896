"""What pytest's reports say of an item: its grade, or why it has none."""

from __future__ import annotations

import json
import re

import pytest

from pytest_rubrics.recorder import Recorder

# The words of pytest-timeout, whichever way it stops an item.
_TIMEOUT = re.compile(r"Timeout \(?>|Failed: Timeout")


def take_report(recorder: Recorder, report: pytest.TestReport) -> None:
    """Enter one report into the book of a run.

    Args:
        recorder: The book.
        report: Of setup, call or teardown; ``when`` is ``???`` where a worker crashed.
    """
    if report.outcome == "rerun":  # type: ignore[comparison-overlap]  # of pytest-rerunfailures
        recorder.drop(report.nodeid)
        return
    if report.when == "setup":
        recorder.rerunning.discard(report.nodeid)
    grade = getattr(report, "rubrics", {}).get("grade")
    if grade is not None:
        recorder.take(report.nodeid, json.loads(grade) if isinstance(grade, str) else grade)
    if report.when not in {"setup", "call", "teardown"}:
        recorder.note_problem(report.nodeid, "worker_crashed", _first_line(report))
        recorder.finish(report.nodeid)
    elif report.failed and report.nodeid not in recorder.open:
        text = str(report.longrepr)
        recorder.note_problem(report.nodeid, "timeout" if _TIMEOUT.search(text) else "error", _last_line(text))
    elif report.skipped:
        recorder.note_problem(report.nodeid, "skipped", _skip_reason(report))
    if report.when == "teardown" and report.nodeid not in recorder.rerunning:
        recorder.finish(report.nodeid)


def _skip_reason(report: pytest.TestReport) -> str:
    return str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)


def _first_line(report: pytest.TestReport) -> str:
    return str(report.longrepr).strip().splitlines()[0] if report.longrepr else "the worker crashed"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("E").strip() if lines else "the item failed without a word"
