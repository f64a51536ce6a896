"""What the terminal keeps of the reports of a run, seen by another plugin and by its user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.provider import Provider
from tests.support.workspaces import Outcome, Workspace, keys, question

# Another plugin, which looks at pytest's reports when all is over.
OBSERVER = """
import json


def pytest_terminal_summary(terminalreporter):
    kept = {
        category: [
            {"nodeid": report.nodeid, "when": report.when, "words": str(report.longrepr or ""),
             "properties": dict(report.user_properties), "keywords": list(report.keywords),
             "keywords_id": id(report.keywords),
             "hidden": hasattr(report, "_pdbshown"), "is_text": isinstance(report.longrepr, str)}
            for report in reports if hasattr(report, "when")
        ]
        for category, reports in terminalreporter.stats.items()
    }
    with open("kept.json", "w", encoding="utf-8") as file:
        json.dump(kept, file)


def pytest_sessionfinish(session):
    worker = getattr(session.config, "workerinput", {}).get("workerid")
    if worker:
        stats = session.config.pluginmanager.get_plugin("terminalreporter").stats
        kept = [[report.when, hasattr(report, "rubrics")] for reports in stats.values() for report in reports]
        with open(f"kept-by-{worker}.json", "w", encoding="utf-8") as file:
            json.dump(kept, file)


def pytest_runtest_teardown(item):
    print("torn down", item.name)
"""
COUNT = 30


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    verdicts = {
        question(key): {"1": number % 2 == 0, "3": number % 3 > 0, "7": number % 5 == 0}
        for number, key in enumerate(keys(COUNT))
    }
    with Provider(truth=verdicts) as server:
        made = Workspace(tmp_path_factory.mktemp("workspace"), server, keys(COUNT))
        made.model("unanswered")
        made.pytest(run="paid")
        yield made


@pytest.fixture(scope="module", autouse=True)
def observer(workspace: Workspace) -> None:
    workspace.add_to_conftest(OBSERVER)


def run(workspace: Workspace, *arguments: str) -> tuple[Outcome, dict[str, list[dict[str, Any]]]]:
    outcome = workspace.pytest(*arguments, run="-".join(["run", *arguments]).replace("=", ""))
    return outcome, json.loads((workspace.root / "kept.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "workers"])
class TestKeptReports:
    def test_every_test_has_its_report_and_no_setup_that_has_nothing_to_show(
        self, workspace: Workspace, workers: tuple[str, ...]
    ) -> None:
        outcome, kept = run(workspace, *workers)
        calls = [*kept["passed"], *kept["failed"]]
        assert len(calls) == COUNT == len(outcome.records)
        assert all(report["when"] == "call" and "test_one_million_bench.py" in report["keywords"] for report in calls)
        assert len({report["keywords_id"] for report in calls}) == 1
        scores = {record["metrics"]["expert_score"] for record in outcome.records}
        assert {report["properties"]["expert_score"] for report in calls} == scores
        assert {report["when"] for report in kept[""]} == {"teardown"}  # what was printed there, -rP shows

    def test_the_five_worst_failures_are_shown_and_of_others_the_words_stay(
        self, workspace: Workspace, workers: tuple[str, ...]
    ) -> None:
        outcome, kept = run(workspace, *workers)
        failed = kept["failed"]
        shown = [report for report in failed if not report["hidden"]]
        hidden = [report for report in failed if report["hidden"]]
        assert len(shown) == 5
        assert hidden
        assert max(score(report) for report in shown) <= min(score(report) for report in hidden)
        assert all(report["is_text"] for report in hidden)
        assert not any(report["is_text"] for report in shown)
        assert all(report["words"].startswith(f"expert_score {score(report):.4f} is below") for report in failed)
        assert all("\n  missed [" in report["words"] or "\n  violated [" in report["words"] for report in hidden)
        assert f"rubrics: {len(hidden)} failures are not shown above" in outcome.text

    def test_failures_that_were_asked_for_are_kept_whole(self, workspace: Workspace, workers: tuple[str, ...]) -> None:
        outcome, kept = run(workspace, "-rf", *workers)
        assert not any(report["is_text"] or report["hidden"] for report in kept["failed"])
        assert outcome.text.count("is below the pass mark") == outcome.text.count("FAILED bench") == len(kept["failed"])

    def test_with_durations_those_of_setup_and_teardown_are_shown(
        self, workspace: Workspace, workers: tuple[str, ...]
    ) -> None:
        outcome, _ = run(workspace, "--durations=0", "--durations-min=0", *workers)
        for when in ("setup", "call", "teardown"):
            assert outcome.text.count(f"s {when} ") == COUNT


def test_workers_let_go_of_grades_that_they_have_sent(workspace: Workspace) -> None:
    run(workspace, "-n", "2")
    kept = [
        report
        for file in workspace.root.glob("kept-by-*.json")
        for report in json.loads(file.read_text(encoding="utf-8"))
    ]
    assert len([when for when, _ in kept if when == "call"]) == COUNT
    assert "setup" not in [when for when, _ in kept]
    assert not any(has_grade for _, has_grade in kept)


def score(report: dict[str, Any]) -> float:
    return float(report["properties"]["expert_score"])


def test_what_a_teardown_printed_can_be_shown(workspace: Workspace) -> None:
    outcome, _ = run(workspace, "-rP")
    assert outcome.text.count("torn down") > 0


def test_of_many_errors_five_are_kept_whole(workspace: Workspace) -> None:
    outcome, kept = run(workspace, "--model=unanswered", "--cache-mode=offline")
    assert len(kept["error"]) == COUNT
    assert sum(not report["hidden"] for report in kept["error"]) == 5
    assert f"rubrics: {COUNT - 5} errors are not shown above" in outcome.text
    assert outcome.text.count("ERROR at setup of") == 5
    assert f" {COUNT} errors in " in outcome.text


def test_without_a_terminal_the_run_is_the_same(workspace: Workspace) -> None:
    outcome = workspace.pytest("-p", "no:terminal", run="silent")
    assert len(outcome.records) == COUNT
