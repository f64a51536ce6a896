"""ResearchRubrics from recorded answers to scores, against a judge that knows the true verdicts."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pytest_rubrics.grades import Grade
from tests.support.provider import Provider, criteria_truth_of, published_tasks, truth_of
from tests.support.research import (
    REPORT,
    Research,
    compliance,
    hits,
    published_rows,
    research_row,
    truth,
)
from tests.support.shared import shared_data


@pytest.mark.parametrize(("per_call", "calls"), [(None, 71), (1, 71), (5, 16), ("all", 3)])
def test_published_rows_score_as_worked_out_apart(tmp_path: Path, per_call: int | str | None, calls: int) -> None:
    rows = published_rows()
    tasks = published_tasks(shared_data() / "researchrubrics")
    known = truth_of(tasks)
    with Provider(truth=known, criteria_truth=criteria_truth_of(tasks, known)) as server:
        workspace = Research(tmp_path, server, rows, {row["sample_id"]: REPORT for row in rows})
        if per_call is not None:
            workspace.judge(criteria_per_call=per_call)
        grades = {grade.task_id: grade for grade in workspace.grades()}
        assert (server.count("judge"), server.count("answer")) == (calls, 0)
    for task in tasks:
        grade = grades[task.id]
        assert (grade.state, grade.passed) == ("scored", None)
        assert hits(grade.verdicts) == known[task.prompt]
        values = {name: float(hit) for name, hit in known[task.prompt].items()}
        assert grade.metrics == pytest.approx({"compliance_score": compliance(task, values)}, abs=1e-12)


def test_all_criteria_of_a_task_are_in_flight_at_once(tmp_path: Path) -> None:
    with Provider(criteria_truth=truth("r1", *range(1, 26), of=25)) as server:
        workspace = Research(tmp_path, server, [research_row(weights=[1.0] * 25)], {"r1": REPORT})
        server.pause()
        grades: list[Grade] = []
        run = threading.Thread(target=lambda: grades.extend(workspace.grades()))
        run.start()
        try:
            server.wait_for(25, "judge", timeout=60)
        finally:
            server.resume()
            run.join(timeout=60)
        assert [grade.score for grade in grades] == [1.0]
        assert server.max_in_flight == 25


def test_what_a_judge_refuses_is_asked_of_it_in_the_first_run_alone(tmp_path: Path) -> None:
    with Provider(criteria_truth=truth("r1", 1, of=25), accepts="json_object") as server:
        workspace = Research(tmp_path, server, [research_row(weights=[1.0] * 25)], {"r1": REPORT})
        workspace.judge(reply="auto")
        assert workspace.grade().score == 1 / 25
        assert 25 < server.count("judge") <= 50  # nobody waits until one has found out what is refused
        before = server.count("judge")
        assert workspace.grade(cache_mode="refresh").score == 1 / 25
        assert server.count("judge") == before + 25


def test_a_run_passes_what_is_scored_and_says_what_its_numbers_are_not(tmp_path: Path) -> None:
    rows = [research_row("good"), research_row("bad"), research_row("none")]
    verdicts = {**truth("good", 1, 2), **truth("bad", 3), **truth("none")}
    with Provider(criteria_truth=verdicts) as server:
        workspace = Research(tmp_path, server, rows, {"good": REPORT, "bad": REPORT, "none": " "})
        workspace.judge(scale="ternary")
        run = workspace.pytest()
        assert server.count("judge") == 6
    assert run.code == 1
    states = {key: (r["state"], r["reason"], r["metrics"], r["passed"]) for key, r in run.by_key.items()}
    assert states == {
        "good": ("scored", None, {"compliance_score": 1.0}, None),
        "bad": ("scored", None, {"compliance_score": -0.25}, None),
        "none": ("failed", "empty", {"compliance_score": 0.0}, None),
    }
    assert "1 failed, 2 passed" in run.text
    assert run.summary["mean"]["value"] == 0.25
    assert "failed grades count 0; compliance_score has no lower bound, so a bad report may score lower." in run.text
    assert "TERNARY: a criterion met in part counts half; such scores are not comparable to binary ones." in run.text
