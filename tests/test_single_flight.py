"""Runs of all 400 published tasks, which ask for every reply once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.tasks import Task
from tests.support.provider import Provider
from tests.support.shared import shared_data
from tests.support.truth import Truth, expert_score, published_tasks, truth_of
from tests.support.workspaces import Outcome, Workspace


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return published_tasks(shared_data() / "one_million_bench")


@pytest.fixture(scope="module")
def truth(tasks: list[Task]) -> Truth:
    return truth_of(tasks, seed=7)


@pytest.fixture
def workspace(tmp_path: Path, truth: Truth) -> Iterator[Workspace]:
    with Provider(truth=truth, answer_bytes=1_000) as server:
        workspace = Workspace(tmp_path, server)
        workspace.source = ["--source", str(shared_data() / "one_million_bench")]
        yield workspace


def check(outcome: Outcome, tasks: list[Task], truth: Truth) -> dict[str, dict[str, Any]]:
    """Compare all grades of a run with an independent computation; gives them by task."""
    assert outcome.code == 1, outcome.text  # some tasks are below the pass mark
    records = {record["task_id"]: record for record in outcome.records}
    assert len(outcome.records) == len(records) == len(tasks) == 400
    for task in tasks:
        record, verdicts = records[task.id], truth[task.prompt]
        assert record["metrics"] == {"expert_score": expert_score(task, verdicts)}
        assert record["passed"] == (expert_score(task, verdicts) >= 0.7)
        assert {verdict["id"]: verdict["hit"] for verdict in record["verdicts"]} == verdicts
    summary = outcome.summary
    assert (summary["tasks"], summary["scored"], summary["coverage"]) == (400, 400, 1.0)
    assert {(numbers["tasks"], numbers["scored"]) for numbers in summary["subsets"].values()} == {(40, 40)}
    return records


def test_two_runs_at_once_share_every_reply_and_a_third_one_calls_nobody(
    workspace: Workspace, tasks: list[Task], truth: Truth
) -> None:
    server = workspace.server
    workspace.client = "litellm"
    workspace.model()
    workspace.judge()
    processes = {run: workspace.start(run=run) for run in ("first", "second")}
    outcomes = [workspace.finish(process, run) for run, process in processes.items()]
    assert (server.count("answer"), server.count("judge")) == (400, 400)
    first, second = (check(outcome, tasks, truth) for outcome in outcomes)
    for id_, one in first.items():
        other = second[id_]
        assert (one["answer"], one["keys"], one["cost_usd"]) == (other["answer"], other["keys"], other["cost_usd"])
        assert one["spent_usd"] + other["spent_usd"] == pytest.approx(sum(one["cost_usd"].values()))
    assert workspace.imported_litellm()

    replay = workspace.pytest(run="replay")
    assert server.count() == 800
    assert not workspace.imported_litellm()
    replayed = check(replay, tasks, truth)
    changing = {"spent_usd", "cached", "finished_at"}
    assert all(first[id_][name] == one[name] for id_, one in replayed.items() for name in one.keys() - changing)
    assert {one["spent_usd"] for one in replayed.values()} == {0}
    assert all(one["cached"] == {"answer": True, "judge": True} for one in replayed.values())


def test_four_workers_share_every_reply(workspace: Workspace, tasks: list[Task], truth: Truth) -> None:
    outcome = workspace.pytest("-n", "4", "--concurrency", "16")
    check(outcome, tasks, truth)
    assert (workspace.server.count("answer"), workspace.server.count("judge")) == (400, 400)
    assert workspace.server.max_in_flight <= 16
