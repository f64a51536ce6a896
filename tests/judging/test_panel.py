from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.judging.panel import Rule, decide
from pytest_rubrics.rebuilding import open_run
from pytest_rubrics.rescoring import rescore
from tests.support import faults
from tests.support.faults import Fault
from tests.support.provider import Provider
from tests.support.replies import Body
from tests.support.workspaces import Workspace, keys, question

# Weights of the criteria are 10, 6 and -5.
VOTES = {
    "judge-a": {"1": True, "3": True, "7": True},
    "judge-b": {"1": True, "3": False, "7": False},
    "judge-c": {"1": False, "3": False, "7": False},
    "judge-d": {"1": False, "3": False, "7": True},  # below 0, so 0
}


def votes_of(body: Body) -> Mapping[str, bool]:
    """What each judge says, by its model."""
    return VOTES[body["model"]]


@pytest.fixture
def server() -> Iterator[Provider]:
    with Provider(truth=votes_of) as server:
        yield server


class Panel(Workspace):
    """A workspace with three judges, and a panel of some of them named local."""

    def __init__(self, root: Path, server: Provider, tasks: int = 1, **settings: Any) -> None:
        super().__init__(root, server, keys(tasks))
        for name in "abc":
            self.judge(name, model=f"openai/judge-{name}")
        self.seat(**{"panel": ["a", "b", "c"], **settings})

    def seat(self, **settings: Any) -> None:
        self._write("judges/local.yaml", json.dumps(settings))


@pytest.mark.parametrize(
    ("rule", "votes", "weight", "value"),
    [
        ("majority", [1, 1, 0], 5, 1.0),
        ("majority", [1, 0, 0], 5, 0.0),
        ("majority", [1, 0], 5, 0.0),
        ("majority", [1, 0], -5, 1.0),
        ("majority", [1, 0, 0, 0], -5, 0.0),
        ("unanimous", [1, 1, 1], 5, 1.0),
        ("unanimous", [1, 1, 0], 5, 0.0),
        ("any", [0, 0, 1], -5, 1.0),
        ("any", [0, 0, 0], 5, 0.0),
        ("mean", [1, 1, 0, 0.5], 5, 0.625),
    ],
)
def test_decides_a_criterion(rule: Rule, votes: list[float], weight: float, value: float) -> None:
    assert decide(votes, weight, rule) == value


@pytest.mark.parametrize(
    ("rule", "score"),
    [("majority", 10 / 16), ("unanimous", 0.0), ("any", 11 / 16), ("mean", (11 + 10 + 0) / 16 / 3)],
)
def test_the_score_follows_the_rule(tmp_path: Path, server: Provider, rule: str, score: float) -> None:
    grade = Panel(tmp_path, server, decide=rule).grade()
    assert grade.score == pytest.approx(score, abs=1e-12)
    assert grade.passed is (score >= 0.7)
    assert server.count("judge") == 3


def test_the_mean_is_of_scores_that_are_clipped_one_by_one(tmp_path: Path, server: Provider) -> None:
    workspace = Panel(tmp_path, server, panel=["a", "d"], decide="mean")
    workspace.judge("d", model="openai/judge-d")
    assert workspace.grade().score == pytest.approx((11 / 16 + 0) / 2, abs=1e-12)


def test_a_record_says_who_voted_how(tmp_path: Path, server: Provider) -> None:
    grade = Panel(tmp_path, server, decide="mean").grade()
    first, second, third = grade.verdicts
    assert first["members"] == {"a": True, "b": True, "c": False}
    assert first["value"] == pytest.approx(2 / 3)
    assert (second["hit"], second["value"]) == (False, pytest.approx(1 / 3))
    assert third["justification"].splitlines()[1] == "b: The answer does not meet criterion 7."
    assert grade.judge == "local"
    assert grade.served_model["judge"] == "judge-a-2026-01-01, judge-b-2026-01-01, judge-c-2026-01-01"
    assert len(set(grade.keys["judge"])) == 3
    usage = [(r.status, r.body["model"]) for r in server.requests if r.kind == "judge"]
    assert sorted(usage) == [(200, "judge-a"), (200, "judge-b"), (200, "judge-c")]


def test_costs_of_all_members_are_counted(tmp_path: Path, server: Provider) -> None:
    alone = Panel(tmp_path, server).grade(judge="a")
    together = Panel(tmp_path, server).grade()
    assert alone.cost_usd["judge"] is not None
    assert together.cost_usd["judge"] == pytest.approx(3 * alone.cost_usd["judge"], rel=0.01)
    assert together.usage["judge"]["input_tokens"] == 3 * alone.usage["judge"]["input_tokens"]


def test_a_tie_never_favours_the_model(tmp_path: Path, server: Provider) -> None:
    grade = Panel(tmp_path, server, panel=["a", "b"]).grade()
    # 1: both say hit. 3, which rewards, and 7, which penalises, are ties.
    assert [row["hit"] for row in grade.verdicts] == [True, False, True]
    assert grade.score == (10 - 5) / 16


def test_members_are_asked_side_by_side(tmp_path: Path, server: Provider) -> None:
    workspace = Panel(tmp_path, server)
    workspace.grade(judge="a")  # the answer is there now
    server.pause()
    with workspace.wired(workspace.plan()) as wiring:
        server.wait_for(1 + 3, "judge")
        server.resume()
        assert wiring.engine.grade(0, tick=lambda: None).score == 10 / 16


def test_a_member_without_verdicts_excludes_the_grade_and_is_named(tmp_path: Path, server: Provider) -> None:
    workspace = Panel(tmp_path, server)
    workspace.judge("b", model="openai/judge-b", prompt="judges/prompts/odd.md", attempts=2)
    workspace._write("judges/prompts/odd.md", "ODD {{answer}} {{criteria}} rubric_id")
    server.faults.add(Fault(faults.content("I would say yes."), match="ODD"))
    grade = workspace.grade()
    assert (grade.state, grade.reason, grade.metrics) == ("excluded", "judge_malformed", None)
    assert grade.error is not None
    assert grade.error.startswith("member b: the judge's reply on 1, 3, 7 was malformed 2 times")
    assert grade.verdicts[0]["members"] == {"a": True, "c": False}
    assert len(grade.keys["judge"]) == 4
    assert grade.spent_usd == pytest.approx((grade.cost_usd["answer"] or 0) + (grade.cost_usd["judge"] or 0))
    before = server.count("judge")
    server.faults.clear()
    assert workspace.grade(retry="excluded").score == 10 / 16
    assert server.count("judge") == before + 1  # only the member that could not be read


def test_a_replay_pays_nothing(tmp_path: Path, server: Provider) -> None:
    workspace = Panel(tmp_path, server, tasks=3)
    first = workspace.grades()
    count = server.count()
    again = workspace.grades()
    assert server.count() == count
    assert [grade.score for grade in again] == [grade.score for grade in first]
    assert all(grade.cached["judge"] and grade.spent_usd == 0 for grade in again)


def test_a_seat_is_part_of_the_key(tmp_path: Path, server: Provider) -> None:
    workspace = Panel(tmp_path, server)
    workspace.grade()
    workspace.grade(judge="a")
    assert server.count("judge") == 4


class TestRepeats:
    def test_the_majority_of_the_readings_decides(self, tmp_path: Path) -> None:
        readings = iter(["judge-a", "judge-b", "judge-c"])
        with Provider(truth=lambda body: VOTES[next(readings)]) as server:
            workspace = Workspace(tmp_path, server, keys(1))
            workspace.judge(judge_repeats=3)
            grade = workspace.grade()
            assert server.count("judge") == 3
        assert grade.score == 10 / 16
        assert list(grade.verdicts[0]["members"]) == ["local", "local#2", "local#3"]

    def test_the_first_reading_is_that_of_the_judge_alone(self, tmp_path: Path) -> None:
        known = {question(key): VOTES["judge-b"] for key in keys(1)}
        with Provider(truth=known) as server:
            workspace = Workspace(tmp_path, server, keys(1))
            workspace.grade()
            workspace.judge(judge_repeats=3)
            workspace.grade()
            assert server.count("judge") == 3


def test_an_estimate_counts_every_member(tmp_path: Path, server: Provider) -> None:
    outcome = Panel(tmp_path, server, tasks=2).pytest("--estimate")
    rows = [line.split() for line in outcome.text.splitlines() if line.startswith("judge ")]
    assert [(row[1], row[2]) for row in rows[:3]] == [("a", "2"), ("b", "2"), ("c", "2")]


def test_a_run_with_averaged_scores_is_rescored_as_it_was(tmp_path: Path, server: Provider) -> None:
    workspace = Panel(tmp_path, server, tasks=2, panel=["a", "d"], decide="mean")
    workspace.judge("d", model="openai/judge-d")
    workspace.pytest()
    assert rescore(open_run(tmp_path / "run"), tmp_path / "again") == []
