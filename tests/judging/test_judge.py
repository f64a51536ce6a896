from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import faults
from tests.support.faults import Fault
from tests.support.provider import Provider
from tests.support.research import (
    REPORT,
    Research,
    criterion,
    hits,
    prompts,
    research_row,
    truth,
    verdict,
)
from tests.support.workspaces import Workspace, question


@pytest.fixture
def server() -> Iterator[Provider]:
    sheet = {research_row()["prompt"]: {"1": True, "2": False, "3": True}}
    with Provider(truth=sheet, criteria_truth=truth("r1", 1, 3)) as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path, server: Provider) -> Research:
    return Research(tmp_path, server, [research_row()], {"r1": REPORT})


@pytest.mark.parametrize(("per_call", "calls"), [(1, 3), (2, 2), ("all", 1)])
def test_one_million_takes_criteria_in_groups_too(tmp_path: Path, per_call: int | str, calls: int) -> None:
    texts = {f"Point {number} of a.": number != 3 for number in (1, 3, 7)}
    known = {"1": True, "3": False, "7": True}
    with Provider(truth={question("a"): known}, criteria_truth=texts) as server:
        workspace = Workspace(tmp_path, server, ["a"])
        workspace.judge(criteria_per_call=per_call)
        grade = workspace.grade()
        assert server.count("judge") == calls
    assert grade.metrics == {"expert_score": (10 - 5) / 16}
    assert hits(grade.verdicts) == known


# Malformed verdicts


def _with_21(tmp_path: Path, server: Provider) -> Research:
    return Research(tmp_path, server, [research_row(weights=[2.0] * 20 + [-3.0])], {"r1": REPORT})


def test_one_bad_verdict_of_21_costs_one_call_more(tmp_path: Path) -> None:
    with Provider(criteria_truth=truth("r1", *range(1, 22), of=21)) as server:
        server.faults.add(Fault(faults.content("I would say yes."), match=criterion("r1", 7), times=1))
        grade = _with_21(tmp_path, server).grade()
        asked = [prompt for prompt in prompts(server) if criterion("r1", 7) in prompt]
        assert (server.count("judge"), len(asked)) == (22, 2)
    assert grade.score == 37 / 40
    assert len(grade.keys["judge"]) == 22


def test_a_verdict_that_stays_malformed_excludes_the_grade_and_keeps_the_others(tmp_path: Path) -> None:
    with Provider(criteria_truth=truth("r1", *range(1, 22), of=21)) as server:
        server.faults.add(Fault(faults.content("I would say yes."), match=criterion("r1", 7)))
        workspace = _with_21(tmp_path, server)
        grade = workspace.grade()
        assert server.count("judge") == 23
        assert workspace.grade().reason == "judge_malformed"
        assert server.count("judge") == 23  # a replay pays nothing
        server.faults.clear()
        assert workspace.grade(retry="excluded").score == 37 / 40
        assert server.count("judge") == 24
    assert (grade.state, grade.reason, grade.metrics) == ("excluded", "judge_malformed", None)
    assert grade.error is not None
    assert "the judge's reply on 7 was malformed 3 times" in grade.error
    assert list(hits(grade.verdicts)) == [str(number) for number in range(1, 22) if number != 7]
    assert len(grade.keys["judge"]) == 23
    assert grade.cost_usd["judge"] == pytest.approx(grade.spent_usd)


def test_replies_before_a_failed_call_are_accounted_for(workspace: Research, server: Provider) -> None:
    workspace.judge(retry_for=0)
    server.faults.add(
        Fault(faults.content("I would say yes."), match=criterion("r1", 2), times=1),
        Fault(faults.error(400), match="Your reply could not be used"),
    )
    grade = workspace.grade()
    assert (grade.state, grade.reason) == ("excluded", "bad_request")
    assert len(grade.keys["judge"]) == 3
    assert len(grade.verdicts) == 2


@pytest.mark.parametrize(
    "reply",
    [
        verdict("Satisfied", 0),
        verdict("Not Satisfied", 1),
        verdict("Partially Satisfied", 0.5),
        verdict("Satisfied", 1) + verdict("Not Satisfied", 0),
    ],
)
def test_a_reply_that_contradicts_itself_is_asked_again(workspace: Research, server: Provider, reply: str) -> None:
    server.faults.add(Fault(faults.content(reply), match=criterion("r1", 2), times=1))
    grade = workspace.grade()
    assert hits(grade.verdicts) == {"1": True, "2": False, "3": True}
    assert server.count("judge") == 4


def test_missing_verdicts_can_be_bounded(tmp_path: Path) -> None:
    weights = [5.0, 3.0, -2.0, 4.0]
    with Provider(criteria_truth=truth("r1", 1, of=4)) as server:
        for number in (3, 4):
            server.faults.add(Fault(faults.content("?"), match=criterion("r1", number)))
        workspace = Research(tmp_path, server, [research_row(weights=weights)], {"r1": REPORT})
        workspace.judge(on_missing="bound")
        grade = workspace.grade()
    # Of criteria 3 and 4 the worst is a fault committed and a finding missed, the best the other way round.
    assert grade.state == "scored"
    assert grade.metrics == pytest.approx(
        {
            "compliance_score": (3 / 12 + 9 / 12) / 2,
            "compliance_score_low": (5 - 2) / 12,
            "compliance_score_high": (5 + 4) / 12,
        }
    )
    assert grade.error == "unjudged criteria: 3, 4; the score is the middle of what they allow"


def test_bounds_do_not_stand_in_for_what_the_next_run_can_have(workspace: Research, server: Provider) -> None:
    workspace.judge(on_missing="bound")
    server.faults.add(Fault(faults.error(401), match=criterion("r1", 2)))
    assert workspace.grade().reason == "authentication"
