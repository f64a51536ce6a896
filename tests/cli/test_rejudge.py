from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import rubrics
from tests.support.faults import Fault, error, filtered
from tests.support.provider import Provider
from tests.support.replies import Body, question_of
from tests.support.truth import verdict
from tests.support.workspaces import Workspace, keys, question, read_records

KEYS = keys(6)
FILTERED, UNREACHED = KEYS[4], KEYS[5]


def verdicts(body: Body) -> Mapping[str, bool]:
    """The second judge hits everything, the first what is true."""
    everything = body["model"].endswith("judge-lenient")
    return {name: everything or verdict(question_of(body), name) for name in ("1", "3", "7")}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A run in which one answer was filtered and one never came, with a lenient judge to judge it anew."""
    with Provider(truth=verdicts) as server:
        server.faults.add(Fault(filtered(), kind="answer", match=question(FILTERED)))
        server.faults.add(Fault(error(400), kind="answer", match=question(UNREACHED)))
        workspace = Workspace(tmp_path_factory.mktemp("workspace"), server, KEYS)
        workspace.judge("lenient")
        run = workspace.pytest()
        assert len(run.records) == 6, run.text
        server.faults.clear()
        yield workspace


@pytest.fixture(scope="module")
def rejudged(workspace: Workspace) -> Path:
    """The new run folder."""
    answers = workspace.server.count("answer")
    found = rubrics(workspace.root, "rejudge", "run", "--judge", "lenient", "--run-dir", "new")
    assert found.returncode == 0, found.stderr
    assert "| judge lenient" in found.stdout
    assert workspace.server.count("answer") == answers  # nothing was generated
    return workspace.root / "new"


def by_key(folder: Path) -> dict[str, dict[str, Any]]:
    return {record["key"]: record for record in read_records(folder)}


def test_every_answer_is_judged_by_the_new_judge(workspace: Workspace, rejudged: Path) -> None:
    old, new = by_key(workspace.root / "run"), by_key(rejudged)
    assert list(new) == list(old)
    for key in KEYS[:4]:
        assert new[key]["answer"] == old[key]["answer"]
        assert new[key]["judge"] == "lenient"
        assert [each["hit"] for each in new[key]["verdicts"]] == [True, True, True]
        assert new[key]["metrics"] == {"expert_score": (10 + 6 - 5) / 16}


def test_the_answers_own_figures_stay_and_only_the_judge_is_paid(workspace: Workspace, rejudged: Path) -> None:
    old, new = by_key(workspace.root / "run")[KEYS[0]], by_key(rejudged)[KEYS[0]]
    for name in ("usage", "cost_usd", "keys", "served_model"):
        assert new[name]["answer"] == old[name]["answer"]
    assert new["spent_usd"] == pytest.approx(new["cost_usd"]["judge"])
    assert new["cost_usd"]["judge"] > 0


def test_a_failure_of_the_model_stays_one(rejudged: Path) -> None:
    record = by_key(rejudged)[FILTERED]
    assert (record["state"], record["reason"], record["metrics"]) == ("failed", "filtered", {"expert_score": 0.0})


def test_without_an_answer_there_is_nothing_to_judge(rejudged: Path) -> None:
    record = by_key(rejudged)[UNREACHED]
    assert (record["state"], record["reason"]) == ("excluded", "no_answer")
    assert "the run has no answer to judge: bad_request" in record["error"]


def test_the_manifest_names_the_judge_and_where_the_answers_are_from(workspace: Workspace, rejudged: Path) -> None:
    old, new = (json.loads((folder / "manifest.json").read_bytes()) for folder in (workspace.root / "run", rejudged))
    assert list(new["judge"]) == ["lenient"]
    assert new["judge"]["lenient"]["model"] == "openai/judge-lenient"
    assert new["answers_from"] == "run"
    assert new["finished_at"]
    assert new["run"] != old["run"]
    assert new["models"] == old["models"]


def test_the_two_runs_are_not_comparable_without_force(workspace: Workspace, rejudged: Path) -> None:
    found = rubrics(workspace.root, "compare", "run", "new")
    assert found.returncode == 12
    assert "judge.model is openai/judge-lenient and was openai/judge-local" in found.stderr


def test_a_second_time_costs_nothing(workspace: Workspace, rejudged: Path) -> None:
    calls = workspace.server.count("judge")
    found = rubrics(workspace.root, "rejudge", "run", "--judge", "lenient", "--run-dir", "again")
    assert found.returncode == 0, found.stderr
    assert workspace.server.count("judge") == calls
    assert [r["metrics"] for r in read_records(workspace.root / "again")] == [
        r["metrics"] for r in read_records(rejudged)
    ]


def test_faults_stop_it_before_anything_is_written(workspace: Workspace, rejudged: Path) -> None:
    known = rubrics(workspace.root, "rejudge", "run", "--judge", "lenint", "--run-dir", "other")
    assert known.returncode == 4
    assert "Did you mean lenient?" in known.stderr
    taken = rubrics(workspace.root, "rejudge", "run", "--judge", "lenient", "--run-dir", "run")
    assert taken.returncode == 4
    assert "is not empty" in taken.stderr
    workspace.judge("ternary", scale="ternary")
    ternary = rubrics(workspace.root, "rejudge", "run", "--judge", "ternary", "--run-dir", "other")
    assert ternary.returncode == 4
    assert "needs a judge that is asked about one criterion at a time" in ternary.stderr
    assert not (workspace.root / "other").exists()
