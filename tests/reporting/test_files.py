"""The reports at the end of a run, and made anew."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import rubrics
from tests.support.provider import Provider
from tests.support.runs import Kind, write_run
from tests.support.workspaces import Outcome, Workspace, keys


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with Provider() as server:
        yield Workspace(tmp_path_factory.mktemp("workspace"), server, keys(14))


@pytest.fixture(scope="module")
def finished(workspace: Workspace) -> Outcome:
    return workspace.pytest(run="finished", GITHUB_STEP_SUMMARY=str(workspace.root / "step.md"))


def test_a_run_writes_its_reports_and_says_where(workspace: Workspace, finished: Outcome) -> None:
    page = (finished.folder / "report.html").read_text(encoding="utf-8")
    assert "<title>Rubrics report</title>" in page
    assert f"report: {finished.folder / 'report.html'}" in finished.text.splitlines()
    text = (finished.folder / "report.md").read_text(encoding="utf-8")
    assert (workspace.root / "step.md").read_text(encoding="utf-8").strip() == text.strip()


def test_it_says_how_many_failures_are_not_shown(finished: Outcome) -> None:
    failed = sum(record["passed"] is False for record in finished.records)
    assert failed > 5
    assert f"rubrics: {failed - 5} failures are not shown above" in finished.text
    assert "-rf" in finished.text


def test_all_failures_are_shown_if_asked_for(workspace: Workspace, finished: Outcome) -> None:
    outcome = workspace.pytest("-rf", run="asked")
    assert "are not shown" not in outcome.text
    assert outcome.text.count("FAILED benchmarks") == sum(record["passed"] is False for record in outcome.records)


def test_a_report_that_cannot_be_written_does_not_change_the_exit_code(workspace: Workspace, finished: Outcome) -> None:
    (workspace.root / "blocked" / "report.html").mkdir(parents=True)
    outcome = workspace.pytest(run="blocked")
    assert outcome.code == finished.code
    assert "report: not written (" in outcome.text
    assert len(outcome.records) == 14


def test_reports_can_be_made_anew(workspace: Workspace, finished: Outcome) -> None:
    former = {name: (finished.folder / name).read_bytes() for name in ("report.html", "report.md")}
    copy = shutil.copytree(finished.folder, workspace.root / "copy")
    for name in former:
        (copy / name).unlink()
    assert rubrics(workspace.root, "report", copy).returncode == 0
    assert {name: (copy / name).read_bytes() for name in former} == former


def test_a_run_that_was_killed_has_a_report(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", kind=Kind(unfinished=0.5))
    with (folder / "results.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"schema": 1, "benchm')
    found = rubrics(tmp_path, "report", "run")
    assert found.returncode == 0, found.stderr
    assert "selected grades have no record" in (folder / "report.md").read_text(encoding="utf-8")


def test_several_runs_side_by_side(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "new")):
        write_run(tmp_path / name, models=("alpha",), tasks=30, seed=number)
    found = rubrics(tmp_path, "report", "old", "new", "--into", "both")
    assert found.returncode == 0, found.stderr
    assert "alpha · new | alpha · old" in (tmp_path / "both" / "report.md").read_text(encoding="utf-8")
    assert not (tmp_path / "old" / "report.html").exists()
