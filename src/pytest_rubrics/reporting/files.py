"""All that people read of a run, written into its folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_rubrics.records import Run
from pytest_rubrics.redaction import redact
from pytest_rubrics.reporting.html import write_html
from pytest_rubrics.reporting.markdown import markdown_report
from pytest_rubrics.reporting.report_data import Page, RunView

REPORT_MD = "report.md"
STEP_SUMMARY = "GITHUB_STEP_SUMMARY"
"""GitHub's file for what is shown at the end of a workflow run."""


def write_reports(runs: Sequence[tuple[Run, Mapping[str, Any]]], folder: Path) -> list[Path]:
    """Write ``report.html`` and ``report.md``, and append the latter to GitHub's step summary where there is one.

    Args:
        runs: Runs with their summaries; the first is the baseline where there are several.
        folder: Where the files go.

    Raises:
        OSError: A file cannot be written.
    """
    return _write(Page([RunView(run, summary) for run, summary in runs]), folder)


def _write(page: Page, folder: Path, *, in_step_summary: bool = True) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    text = redact(markdown_report(page))
    markdown = folder / REPORT_MD
    markdown.write_text(text, encoding="utf-8", errors="replace")
    if in_step_summary:
        _append_to_step_summary(text)
    return [write_html(page, folder), markdown]


def write_reports_of(folder: Path, view: Callable[[], RunView], *, in_step_summary: bool = True) -> str:
    """Write the reports of the run that has just ended.

    A report never costs the run its exit code: the records are complete, and reports can be made of them again.

    Args:
        folder: The run folder.
        view: Gives the run.
        in_step_summary: Whether GitHub's step summary shows it, where there is one.

    Returns:
        A line for the terminal: where the report is, or why there is none.
    """
    try:
        path, _ = _write(Page([view()]), folder, in_step_summary=in_step_summary)
    except Exception as error:  # noqa: BLE001  # whatever it is, the records are there
        return f"report: not written ({type(error).__name__}: {error}); try: rubrics report {folder}"
    return f"report: {path}"


def _append_to_step_summary(text: str) -> None:
    path = os.environ.get(STEP_SUMMARY)
    if path:
        with Path(path).open("a", encoding="utf-8", errors="replace") as file:
            file.write(text + "\n")
