from __future__ import annotations

import math

import pytest

from pytest_rubrics.figures import NOT_A_NUMBER, TagWeights, figures_of
from pytest_rubrics.grades import Grade
from pytest_rubrics.plan import Case
from tests.support.simulated import make_grade, make_tasks

(TASK,) = make_tasks(1)


def grade(score: float | str | None = 0.5) -> Grade:
    return make_grade(Case(TASK, "m", 1), score)


def test_weights_are_summed_by_tag() -> None:
    made = grade(0.75)
    made.verdicts[-1]["hit"] = True
    assert figures_of(made).tags == {
        "Analytical Reasoning": TagWeights(rewards=100, hit=75, penalties=0, violated=0),
        "Structure and Formatting": TagWeights(rewards=0, hit=0, penalties=10, violated=10),
    }


def test_a_verdict_between_counts_in_part() -> None:
    made = grade(0.0)
    made.verdicts[0] |= {"hit": False, "value": 0.5}
    made.verdicts[-1] |= {"hit": False, "value": 0.5}
    tags = figures_of(made).tags
    assert tags["Analytical Reasoning"].hit == 2.5
    assert tags["Structure and Formatting"].violated == 5.0


def test_criteria_without_a_tag_have_none() -> None:
    made = grade(0.5)
    made.verdicts = [{**verdict, "tag": None} for verdict in made.verdicts]
    assert figures_of(made).tags == {}


@pytest.mark.parametrize("score", [math.nan, math.inf, None])
def test_a_score_that_is_no_number_counts_nowhere(score: float | None) -> None:
    made = grade(0.8)
    made.metrics = None if score is None else {"expert_score": score}
    figures = figures_of(made)
    assert (figures.state, figures.reason, figures.score, figures.passed) == ("excluded", NOT_A_NUMBER, None, None)


def test_unjudged_criteria_leave_a_range() -> None:
    made = grade(0.5)
    made.metrics = {"expert_score": 0.5, "expert_score_low": 0.4, "expert_score_high": 0.6}
    figures = figures_of(made)
    assert (figures.low, figures.score, figures.high) == (0.4, 0.5, 0.6)
    assert figures_of(grade(0.5)).low == figures_of(grade(0.5)).high == 0.5


def test_tokens_and_cost_are_kept_and_an_unknown_cost_stays_unknown() -> None:
    made = grade(0.5)
    made.usage["judge"] = {"input_tokens": 7, "output_tokens": 3}
    made.cost_usd = {"answer": 0.25, "judge": None}
    figures = figures_of(made)
    assert figures.tokens == (100, 10, 7, 3)
    assert figures.cost_usd == (0.25, None)
