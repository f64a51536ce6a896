from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.facts import facts_of
from pytest_rubrics.figures import figures_of
from pytest_rubrics.grades import Grade
from pytest_rubrics.summary import results_by_part, summary_part
from pytest_rubrics.tasks import Criterion, Task
from tests.support.provider import Provider
from tests.support.workspaces import Workspace, keys

WEIGHTS = {"1": 10.0, "2": 6.0, "3": -4.0}
TAGS = {"1": "Facts", "2": "Facts", "3": "Form"}


def task(name: str) -> Task:
    criteria = tuple(Criterion(id_, f"point {id_}", weight, TAGS[id_]) for id_, weight in WEIGHTS.items())
    return Task("bench", name, name, "law", "en", f"question {name}", criteria)


def grade(name: str, repeat: int = 1, **settings: Any) -> Grade:
    fields: dict[str, Any] = {
        "benchmark": "bench",
        "task_id": name,
        "key": name,
        "subset": "law",
        "model": "m",
        "track": "vanilla",
    }
    return Grade(
        **fields,
        judge="p",
        repeat=repeat,
        **{"state": "scored", "metrics": {"expert_score": 0.5}, "passed": False, **settings},
    )


def panel_grade(name: str, votes: dict[str, list[bool]], repeat: int = 1) -> Grade:
    """A grade with the votes of each member on criteria 1, 2 and 3."""
    rows = [
        {
            "id": id_,
            "weight": weight,
            "tag": TAGS[id_],
            "hit": True,
            "members": {member: given[n] for member, given in votes.items()},
        }
        for n, (id_, weight) in enumerate(WEIGHTS.items())
    ]
    return grade(name, repeat, verdicts=rows)


def part_of(grades: list[Grade]) -> dict[str, Any]:
    tasks = [task(name) for name in dict.fromkeys(grade.task_id for grade in grades)]
    facts = facts_of(tasks, clip=True, pass_at=0.7)
    ((name, results),) = results_by_part(map(figures_of, grades), facts).items()
    return summary_part(name, results)


Y, N = True, False


class TestPanel:
    def test_each_member_alone_has_its_headline_and_leniency(self) -> None:
        part = part_of(
            [
                panel_grade("t1", {"a": [Y, Y, N], "b": [Y, N, N]}),
                panel_grade("t2", {"a": [Y, N, N], "b": [N, N, Y]}),
            ]
        )
        members = part["panel"]["members"]
        assert members["a"]["mean"]["value"] == pytest.approx((1 + 10 / 16) / 2)
        assert members["b"]["mean"]["value"] == pytest.approx((10 / 16 + 0) / 2)  # t2 is clipped at 0
        assert (members["a"]["pass_rate"]["value"], members["b"]["pass_rate"]["value"]) == (0.5, 0.0)
        assert (members["a"]["leniency"]["value"], members["b"]["leniency"]["value"]) == (3 / 6, 2 / 6)

    def test_agreement_stands_overall_by_tag_and_by_subset(self) -> None:
        grades = [
            panel_grade("t1", {"a": [Y, Y, N], "b": [Y, N, N], "c": [Y, Y, N]}),
            panel_grade("t2", {"a": [Y, N, N], "b": [Y, N, Y], "c": [Y, N, N]}),
        ]
        panel = part_of(grades)["panel"]
        assert panel["agreement"]["criteria"] == 6
        assert panel["agreement"]["unanimous"]["value"] == 4 / 6
        pairs = {tuple(pair["members"]): pair for pair in panel["agreement"]["pairs"]}
        assert list(pairs) == [("a", "b"), ("a", "c"), ("b", "c")]
        assert pairs["a", "c"]["cohen_kappa"]["value"] == 1.0
        assert pairs["a", "b"]["agreement"]["value"] == 4 / 6
        assert (panel["tags"]["Facts"]["criteria"], panel["tags"]["Form"]["criteria"]) == (4, 2)
        assert panel["subsets"]["law"] == panel["agreement"]

    def test_the_most_contested_criteria_are_listed(self) -> None:
        grades = [
            panel_grade("t1", {"a": [Y, Y, N], "b": [Y, N, N], "c": [Y, N, Y]}),
            panel_grade("t2", {"a": [Y, N, Y], "b": [N, N, N], "c": [N, N, N]}),
        ]
        rows = part_of(grades)["panel"]["contested"]
        assert [(row["task_id"], row["criterion"], row["hit_share"]) for row in rows] == [
            ("t2", "1", pytest.approx(1 / 3)),
            ("t1", "2", pytest.approx(1 / 3)),
            ("t1", "3", pytest.approx(1 / 3)),
            ("t2", "3", pytest.approx(1 / 3)),
        ]

    def test_the_variance_is_split_into_tasks_answers_and_readings(self) -> None:
        good, half = [Y, Y, N], [Y, N, N]
        grades = [
            panel_grade(f"t{number}", {"j": good, "j#2": half if number % 2 else good}, repeat)
            for number in range(4)
            for repeat in (1, 2)
        ]
        variance = part_of(grades)["panel"]["variance"]
        assert variance["judge"]["variance"] == pytest.approx((6 / 16) ** 2 / 2 / 2)
        assert variance["answer"] == {"variance": 0.0, "negative": True}
        assert variance["task"]["variance"] >= 0

    def test_a_failed_answer_counts_zero_under_every_member(self) -> None:
        failed = grade("t2", state="failed", reason="empty", metrics={"expert_score": 0.0})
        members = part_of([panel_grade("t1", {"a": [Y, Y, N], "b": [Y, N, N]}), failed])["panel"]["members"]
        assert members["a"]["mean"]["value"] == 0.5

    def test_an_excluded_grade_counts_nowhere(self) -> None:
        broken = panel_grade("t2", {"a": [N, N, N]})
        broken.state, broken.metrics, broken.passed = "excluded", None, None
        panel = part_of([panel_grade("t1", {"a": [Y, Y, N], "b": [Y, N, N]}), broken])["panel"]
        assert panel["agreement"]["criteria"] == 3

    def test_one_judge_is_no_panel(self) -> None:
        part = part_of([grade("t1", verdicts=[{"id": "1", "weight": 10.0, "tag": "Facts", "hit": True}])])
        assert (part["panel"], part["probabilities"]) == (None, None)


def test_the_verdicts_nearest_to_even_are_listed_and_give_a_soft_mean() -> None:
    chances = {"1": 0.9, "2": 0.45, "3": 0.02}
    rows = [
        {"id": id_, "weight": weight, "tag": None, "hit": chances[id_] > 0.5, "p": chances[id_]}
        for id_, weight in WEIGHTS.items()
    ]
    found = part_of([grade("t1", verdicts=rows)])["probabilities"]
    assert [(row["criterion"], row["p"], row["hit"]) for row in found["nearest_to_even"]][:2] == [
        ("2", 0.45, False),
        ("1", 0.9, True),
    ]
    assert found["soft_mean"]["value"] == pytest.approx((9 + 2.7 - 0.08) / 16)
    assert (found["verdicts"], found["near_even"]) == (3, 1)


def test_a_run_prints_what_the_members_of_its_panel_say(tmp_path: Path) -> None:
    with Provider() as server:
        workspace = Workspace(tmp_path, server, keys(4))
        workspace.judge("a", model="openai/judge-gpt-5", client="litellm")
        workspace.judge("b", model="openai/judge-claude")
        workspace.model(model="openai/claude-opus")
        workspace._write("judges/local.yaml", '{"panel": ["a", "b"], "decide": "mean"}')
        outcome = workspace.pytest()
    assert outcome.code == 1, outcome.text
    assert "members agree on 100.0% of 12 criteria" in outcome.text
    assert "each alone (mean, pass rate, share of hits): a " in outcome.text
    warning = "SELF-PREFERENCE: member b and model local are both of the Claude family"
    assert outcome.text.count(warning) == 2  # before the run, and under its table
    assert outcome.summary["panel"]["members"]["b"]["mean"]["value"] == outcome.summary["mean"]["value"]
