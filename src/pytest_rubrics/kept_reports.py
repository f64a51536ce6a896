"""What pytest's terminal keeps of the reports of a run: it would keep all that stands in each, to the end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

SHOWN_IN_FULL = 5  # failures, and errors, beyond which only the worst are shown
_LETTERS = {"failed": ("f", "failures"), "error": ("E", "errors")}


@dataclass(slots=True, repr=False)
class KeptReports:
    """Keeps less of the reports of grades, and shows only the worst of many failures.

    All failures are shown, and kept as they are, if the user asked for them with ``-rf`` or ``-v``.

    Attributes:
        reporter: Pytest's terminal, which keeps every report in its ``stats``; that of a worker does so too. None where
            there is none.
        options: Pytest's options.
    """

    reporter: Any
    options: Any
    _shown: dict[str, list[tuple[float, int, pytest.TestReport]]] = field(default_factory=dict)
    _failures: dict[str, int] = field(default_factory=dict)
    _errors: list[Any] = field(default_factory=list)
    _keywords: dict[frozenset[str], dict[str, Any]] = field(default_factory=dict)

    def take(self, report: pytest.TestReport, score: float) -> None:
        """Look at a report that everybody has seen.

        Args:
            report: The report of a grade.
            score: What the grade was worth: the lowest are the worst.
        """
        vars(report).pop("rubrics", None)  # the grade, with its answer
        report.keywords = self._shared(report)
        if report.passed and report.when != "call":
            self._forget(report)
        for category in _LETTERS:
            if self._is_last(report, category) and not self._asked_for(category):
                self._take_failure(report, category, score)

    def end(self) -> str:
        """Leave what is not shown out of what pytest is about to write, of its list of failures too.

        Returns:
            What is not shown, and how to see it.
        """
        hidden = []
        for category, count in self._failures.items():
            letter, name = _LETTERS[category]
            if count > SHOWN_IN_FULL:
                self.reporter.reportchars = self.reporter.reportchars.replace(letter, "")
                hidden.append((f"{count - SHOWN_IN_FULL} {name}", f"-r{letter}"))
        if not hidden:
            return ""
        if "error" in self._failures:  # pytest writes errors whatever stands in them
            self._errors = self.reporter.stats["error"]
            self.reporter.stats["error"] = [report for report in self._errors if not hasattr(report, "_pdbshown")]
        counts, options = (" and ".join(column) for column in zip(*hidden, strict=True))
        return (
            f"rubrics: {counts} are not shown above; see the report, or run again with {options} or -v (from the cache)"
        )

    def put_back(self) -> None:
        """Let pytest count what it has left out."""
        if self._errors:
            self.reporter.stats["error"] = self._errors

    def _shared(self, report: pytest.TestReport) -> dict[str, Any]:
        """The keywords that do not stand in the test's name, which all tests of a module have in common."""
        name = report.nodeid.partition("::")[2]
        kept = {word: value for word, value in report.keywords.items() if word not in name}
        return self._keywords.setdefault(frozenset(kept), kept)

    def _forget(self, report: pytest.TestReport) -> None:
        """Drop a setup or teardown of which pytest has nothing to show: two thirds of all reports."""
        if self._is_last(report, "") and not report.sections and self.options.durations is None:
            self.reporter.stats[""].pop()

    def _take_failure(self, report: pytest.TestReport, category: str, score: float) -> None:
        count = self._failures[category] = self._failures.get(category, 0) + 1
        shown = self._shown.setdefault(category, [])
        shown.append((score, count, report))
        shown.sort()
        if len(shown) > SHOWN_IN_FULL:
            _, _, hidden = shown.pop()
            vars(hidden)["_pdbshown"] = True  # by this pytest leaves a failure out of its section, and still counts it
            hidden.longrepr = str(hidden.longrepr)  # a quarter of what pytest needs to show it in colours

    def _is_last(self, report: pytest.TestReport, category: str) -> bool:
        kept = self.reporter.stats.get(category, []) if self.reporter else []
        return bool(kept) and kept[-1] is report

    def _asked_for(self, category: str) -> bool:
        asked = self.options.reportchars
        letter, _ = _LETTERS[category]
        return self.reporter.verbosity > 0 or letter in asked.replace("fE", "") or bool(set(asked) & set("aA"))
