from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_rubrics.faults import FaultsError
from tests.support.provider import Provider
from tests.support.research import (
    REPORT,
    Research,
    criterion,
    prompts,
    research_row,
    truth,
)


@pytest.fixture
def server() -> Iterator[Provider]:
    sheet = {research_row()["prompt"]: {"1": True, "2": False, "3": True}}
    with Provider(truth=sheet, criteria_truth=truth("r1", 1, 3)) as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path, server: Provider) -> Research:
    return Research(tmp_path, server, [research_row()], {"r1": REPORT})


# Prompts of other packages


def test_a_python_template_for_str_format_is_filled(
    workspace: Research, server: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "their_prompts", raising=False)
    (workspace.root / "their_prompts.py").write_text(
        'SINGLE = """Document: {document_content}\\nCriterion: {rubric_title} ({rubric_category}, {rubric_weight})\n'
        'Reply with JSON: {{"verdict": "Satisfied", "score": 1}}"""\n'
        'SHEET = """Task: {prompt}\\nResponse: {model_response}\\nRubrics: {rubrics}\\nReply: {{"rubric_id": 1}}"""\n',
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(workspace.root)
    workspace.judge(prompt="python:their_prompts:SINGLE")
    workspace.answers({"r1": "A {report} with {{braces}}."})
    assert workspace.grade().score == (5 - 2) / 8
    assert prompts(server)[0] == (
        "Document: A {report} with {{braces}}.\n"
        f"Criterion: (weight +5) {criterion('r1', 1)} (Explicit Criteria, +5)\n"
        'Reply with JSON: {"verdict": "Satisfied", "score": 1}'
    )
    workspace.judge(prompt="python:their_prompts:SHEET", criteria_per_call="all")
    assert workspace.grade().score == (5 - 2) / 8
    (sheet,) = prompts(server, beginning=3)
    assert sheet == (
        f"Task: {research_row()['prompt']}\nResponse: A {{report}} with {{{{braces}}}}.\n"
        f"Rubrics: [1] (weight +5) {criterion('r1', 1)}\n[2] (weight +3) {criterion('r1', 2)}\n"
        f'[3] (weight -2) {criterion("r1", 3)}\nReply: {{"rubric_id": 1}}'
    )


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("their_prompts:ABSENT", "cannot be loaded: module 'their_prompts' has no attribute 'ABSENT'"),
        ("absent_prompts:SINGLE", "cannot be loaded: No module named 'absent_prompts'"),
        ("their_prompts:NUMBER", "is of type int, expected str"),
        ("their_prompts:OTHER", r"lacks \{\{answer\}\}"),
    ],
)
def test_a_python_template_that_cannot_serve_is_named(
    workspace: Research, monkeypatch: pytest.MonkeyPatch, name: str, fault: str
) -> None:
    monkeypatch.delitem(sys.modules, "their_prompts", raising=False)
    (workspace.root / "their_prompts.py").write_text("NUMBER = 3\nOTHER = 'Judge {rubrics}.'\n", encoding="utf-8")
    monkeypatch.syspath_prepend(workspace.root)
    workspace.judge(prompt=f"python:{name}")
    with pytest.raises(FaultsError, match=fault):
        workspace.plan()
