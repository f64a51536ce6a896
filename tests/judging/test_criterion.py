from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_rubrics import tokens
from pytest_rubrics.faults import FaultsError
from tests.support import faults
from tests.support.faults import Fault
from tests.support.provider import Provider
from tests.support.research import (
    REPORT,
    Research,
    criterion,
    fenced,
    hits,
    prompts,
    research_row,
    truth,
    verdict,
)


@pytest.fixture
def server() -> Iterator[Provider]:
    sheet = {research_row()["prompt"]: {"1": True, "2": False, "3": True}}
    with Provider(truth=sheet, criteria_truth=truth("r1", 1, 3)) as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path, server: Provider) -> Research:
    return Research(tmp_path, server, [research_row()], {"r1": REPORT})


# Polarity, weights, scales


def test_a_negative_criterion_that_is_met_lowers_the_score_below_zero(tmp_path: Path) -> None:
    with Provider(criteria_truth=truth("r1", 3)) as server:
        grade = Research(tmp_path, server, [research_row()], {"r1": REPORT}).grade()
        asked = next(prompt for prompt in prompts(server) if criterion("r1", 3) in prompt)
    assert grade.score == -2 / 8
    assert "(weight -2)" in fenced(asked, "criterion")
    assert "Never turn the meaning round" in asked


def test_weights_can_be_hidden(workspace: Research, server: Provider) -> None:
    workspace.judge(show_weights=False)
    assert workspace.grade().score == (5 - 2) / 8
    assert not any("(weight" in prompt for prompt in prompts(server))


def test_a_ternary_judge_may_give_a_half(workspace: Research, server: Provider) -> None:
    workspace.judge(scale="ternary")
    server.faults.add(Fault(faults.content(verdict("Partially Satisfied", 0.5)), match=criterion("r1", 2)))
    grade = workspace.grade()
    assert grade.score == (5 + 1.5 - 2) / 8
    assert [(row["hit"], row.get("value")) for row in grade.verdicts] == [(True, None), (False, 0.5), (True, None)]
    assert all('"Partially Satisfied"' in prompt for prompt in prompts(server))


def test_a_ternary_judge_needs_criteria_one_by_one(workspace: Research) -> None:
    workspace.judge(scale="ternary", criteria_per_call=5)
    with pytest.raises(FaultsError, match=r"local\.yaml, scale: needs a judge .* Add criteria_per_call: 1\."):
        workspace.plan()


def test_the_prompts_of_a_task_differ_only_after_task_and_report(workspace: Research, server: Provider) -> None:
    workspace.grade()
    first, *others = prompts(server)
    shared = first.index("end of report")
    assert all(prompt[:shared] == first[:shared] for prompt in others)


# Long reports


def _long(language: str, count: int) -> str:
    english = "This paragraph gives grounds, steps and a result; see table {}.\n\n"
    chinese = "第{}段说明依据、步骤与结论，并给出数字以便核对。第二句话说明其限制。\n\n"
    pattern = chinese if language == "zh" else english
    return "".join(pattern.format(number) for number in range(1 + count // (len(pattern) - 2)))[:count]


@pytest.mark.parametrize(("language", "parts"), [("en", 5), ("zh", 19)])
def test_two_million_characters_are_read_in_parts(
    workspace: Research, server: Provider, language: str, parts: int
) -> None:
    report = _long(language, 2_000_000)
    workspace.answers({"r1": report})
    grade = workspace.grade()
    assert grade.score == (5 - 2) / 8
    asked = prompts(server)
    evidence = [prompt for prompt in asked if '"relevant_evidence"' in prompt]
    synthesis = [prompt for prompt in asked if prompt not in evidence]
    assert (len(evidence), len(synthesis)) == (3 * parts, 3)
    one = sorted(
        (prompt for prompt in evidence if criterion("r1", 1) in prompt),
        key=lambda prompt: int(prompt.split(" part ")[1].split()[0]),
    )
    read = [fenced(prompt, f"part {number} of {len(one)}") for number, prompt in enumerate(one, 1)]
    assert "".join(read) == report
    assert max(map(tokens.count_tokens, read)) <= 100_000
    assert not any("(weight" in prompt for prompt in asked)
    assert workspace.grade().metrics == grade.metrics
    assert len(prompts(server)) == len(asked)  # everything was cached


def test_evidence_that_is_too_long_itself_is_cut_evenly(workspace: Research, server: Provider) -> None:
    workspace.judge(context_limit=400, chunk_size=300)
    workspace.answers({"r1": _long("en", 3_000)})
    quotes = [f"Passage {number} says at some length that finding {number} is so." for number in range(100)]
    found = '{"relevant_evidence": ["' + '", "'.join(quotes) + '"], "notes": ""}'
    server.faults.add(Fault(faults.content(found), match="relevant_evidence"))
    assert workspace.grade().score == (5 - 2) / 8
    synthesis = next(prompt for prompt in prompts(server) if "relevant_evidence" not in prompt)
    passages = fenced(synthesis, "passages")
    assert "> Passage 0 says" in passages
    assert "[further passages of this part are left out]" in passages
    assert tokens.count_tokens(passages) <= 300


def test_no_evidence_is_said_to_be_none(workspace: Research, server: Provider) -> None:
    workspace.judge(context_limit=400, chunk_size=300)
    workspace.answers({"r1": _long("en", 3_000)})
    server.faults.add(Fault(faults.content('{"relevant_evidence": []}'), match="relevant_evidence"))
    workspace.grade()
    synthesis = [prompt for prompt in prompts(server) if "relevant_evidence" not in prompt]
    assert {fenced(prompt, "passages") for prompt in synthesis} == {"(no passage was found in any part)"}


def test_a_limit_below_the_chunk_size_holds(workspace: Research, server: Provider) -> None:
    workspace.judge(context_limit=300)
    workspace.answers({"r1": _long("en", 3_000)})
    workspace.grade()
    parts = [prompt for prompt in prompts(server) if "relevant_evidence" in prompt]
    assert len(parts) > 3


def test_evidence_that_cannot_be_read_costs_its_criterion_only(workspace: Research, server: Provider) -> None:
    workspace.judge(context_limit=400, chunk_size=300, on_missing="bound")
    workspace.answers({"r1": _long("en", 3_000)})
    server.faults.add(Fault(faults.content('{"relevant_evidence": "none"}'), match=criterion("r1", 2)))
    grade = workspace.grade()
    assert hits(grade.verdicts) == {"1": True, "3": True}
    assert grade.metrics is not None
    assert (grade.metrics["compliance_score_low"], grade.metrics["compliance_score_high"]) == (3 / 8, 6 / 8)
