from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from pytest_rubrics.facts import facts_of
from pytest_rubrics.figures import figures_of
from pytest_rubrics.grades import Grade
from pytest_rubrics.plan import Case
from pytest_rubrics.sources import Source
from pytest_rubrics.statistics.intervals import mean
from pytest_rubrics.summary import results_by_part, summary_part
from pytest_rubrics.tasks import Criterion, Task
from tests.support.benchmarks import shipped
from tests.support.shared import shared_data
from tests.support.simulated import Scores, difficulty_scores, evidence_in, make_grade, make_tasks, write_run


def summary(
    tasks: Sequence[Task], score: Scores, *, repeats: int = 1, clip: bool = True, cost: float | None = 0.01
) -> dict[str, Any]:
    grades = [
        make_grade(Case(task, "m", repeat), score(task, repeat), cost)
        for task in tasks
        for repeat in range(1, repeats + 1)
    ]
    return summary_of(tasks, grades, clip=clip)


def summary_of(tasks: Sequence[Task], grades: Sequence[Grade], *, clip: bool = True) -> dict[str, Any]:
    ((name, results),) = results_by_part(map(figures_of, grades), facts_of(tasks, clip=clip)).items()
    return summary_part(name, results)


def excluding(score: Scores, keys: set[str]) -> Scores:
    return lambda task, repeat: None if task.key in keys else score(task, repeat)


class TestNumbers:
    def test_counts_grades_by_state_and_tasks(self) -> None:
        scores: dict[str, float | str | None] = {"1000": 0.5, "1001": "empty", "1002": None, "1003": 0.9}
        part = summary(make_tasks(4), lambda task, _: scores[task.key])
        assert (part["tasks"], part["scored"], part["failed"], part["excluded"]) == (4, 2, 1, 1)
        assert part["coverage"] == 0.75
        assert part["mean"]["value"] == pytest.approx((0.5 + 0.0 + 0.9) / 3)
        assert part["pass_rate"]["value"] == pytest.approx(1 / 3)
        assert part["reasons"] == {"failed: empty": 1, "excluded: transport": 1}

    def test_nothing_graded_gives_no_figures(self) -> None:
        part = summary(make_tasks(2), lambda task, repeat: None)
        assert (part["coverage"], part["mean"], part["pass_rate"], part["macro_mean"]) == (0.0, None, None, None)
        assert part["exclusion_bounds"] == {"mean": [0.0, 1.0]}

    def test_the_two_halves_of_a_pair_count_as_one_case(self) -> None:
        tasks = make_tasks(40, ("global", "cn"))
        part = summary(tasks, lambda task, _: round(((int(task.key) * 7) % 20) / 20, 2))
        values = [((int(task.key) * 7) % 20) / 20 for task in tasks]
        clustered = mean(values, clusters=[task.key for task in tasks], bounds=(0.0, 1.0))
        assert part["mean"]["ci95"] == pytest.approx([clustered.low, clustered.high])
        alone = mean(values[:40], bounds=(0.0, 1.0))
        assert part["tracks"]["global"]["mean"]["ci95"] == pytest.approx([alone.low, alone.high])

    def test_the_macro_mean_counts_domains_alike(self) -> None:
        tasks = [task for task in make_tasks(10) if task.groups["domain"] in {"finance", "law"} and task.key != "1000"]
        assert [task.groups["domain"] for task in tasks] == ["law", "finance", "law"]
        part = summary(tasks, lambda task, _: 0.8 if task.groups["domain"] == "finance" else 0.2)
        assert part["mean"]["value"] == pytest.approx(0.4)
        assert part["macro_mean"] == {"domains": 2, "value": pytest.approx(0.5), "ci95": None}

    def test_one_domain_has_no_macro_mean(self) -> None:
        assert summary(make_tasks(1), lambda task, repeat: 0.5)["macro_mean"] is None

    def test_costs_are_summed_and_one_unknown_makes_the_sum_unknown(self) -> None:
        tasks = make_tasks(2)
        assert summary(tasks, difficulty_scores(0.5))["cost_usd"] == {"answer": 0.02, "judge": 0.02}
        grades = [make_grade(Case(task, "m", 1), 0.5) for task in tasks]
        grades[0].cost_usd["judge"] = None
        assert summary_of(tasks, grades)["cost_usd"] == {"answer": 0.02, "judge": None}


class TestExclusionBounds:
    def test_complete_runs_have_none(self) -> None:
        assert summary(make_tasks(3), difficulty_scores(0.5))["exclusion_bounds"] is None

    def test_the_excluded_could_all_be_0_or_all_1(self) -> None:
        part = summary(make_tasks(10), excluding(lambda task, repeat: 0.8, {"1003"}))
        assert part["exclusion_bounds"]["mean"] == pytest.approx([0.72, 0.82])
        assert part["exclusion_bounds"]["pass_rate"] == pytest.approx([0.9, 1.0])

    def test_an_excluded_repeat_is_open_only_by_its_share_of_the_task(self) -> None:
        part = summary(make_tasks(2), lambda task, n: None if (task.key, n) == ("1000", 2) else 0.5, repeats=2)
        assert part["exclusion_bounds"]["mean"] == pytest.approx([(0.25 + 0.5) / 2, (0.75 + 0.5) / 2])

    def test_without_clipping_the_weights_of_the_task_bound_it(self) -> None:
        # Rewards of 100 and a penalty of 10: from -0.1 to 1.
        part = summary(make_tasks(2), excluding(lambda task, repeat: 0.5, {"1001"}), clip=False)
        assert part["exclusion_bounds"]["mean"] == pytest.approx([(0.5 - 0.1) / 2, (0.5 + 1.0) / 2])

    def test_unjudged_criteria_are_open_too(self) -> None:
        tasks = make_tasks(2)
        grades = [make_grade(Case(task, "m", 1), 0.5) for task in tasks]
        grades[0].metrics = {"expert_score": 0.5, "expert_score_low": 0.3, "expert_score_high": 0.7}
        assert summary_of(tasks, grades)["exclusion_bounds"]["mean"] == pytest.approx([0.4, 0.6])


class TestGroups:
    def test_every_field_language_and_topic_is_reported(self) -> None:
        part = summary(make_tasks(10, ("global", "cn")), difficulty_scores(0.5))
        assert list(part["groups"]) == ["track", "domain", "time_sensitivity", "language", "topic_1", "topic_2"]
        assert {name: len(values) for name, values in part["groups"].items()} == {
            "track": 2,
            "domain": 5,
            "time_sensitivity": 2,
            "language": 2,
            "topic_1": 5,
            "topic_2": 5,
        }

    def test_a_topic_is_named_with_those_above_it(self) -> None:
        part = summary(make_tasks(5), difficulty_scores(0.5))
        assert "Law / Other" in part["groups"]["topic_2"]

    def test_the_tasks_of_a_group_sum_up_to_the_whole(self) -> None:
        part = summary(make_tasks(20), excluding(difficulty_scores(0.5), {"1004"}))
        for values in part["groups"].values():
            assert sum(numbers["tasks"] for numbers in values.values()) == 20
            assert sum(numbers["excluded"] for numbers in values.values()) == 1

    def test_each_track_has_groups_of_its_own_where_there_are_several(self) -> None:
        part = summary(make_tasks(10, ("global", "cn")), difficulty_scores(0.5))
        assert part["tracks"]["cn"]["groups"]["time_sensitivity"]["weak"]["tasks"] == 5
        assert "groups" not in summary(make_tasks(10), difficulty_scores(0.5))["tracks"]["global"]


class TestTags:
    """A task has rewards of tag Analytical Reasoning and one penalty of tag Structure and Formatting."""

    def test_rewards_count_when_hit_and_penalties_when_avoided(self) -> None:
        tasks = make_tasks(2)
        grades = [make_grade(Case(task, "m", 1), score) for task, score in zip(tasks, (0.4, 0.8), strict=True)]
        grades[0].verdicts[-1]["hit"] = True
        tags = summary_of(tasks, grades)["tags"]
        assert tags["Analytical Reasoning"]["score"]["value"] == pytest.approx(0.6)
        assert tags["Analytical Reasoning"]["avoidance_rate"] is None
        assert tags["Structure and Formatting"]["avoidance_rate"]["value"] == 0.5
        assert tags["Structure and Formatting"]["hit_rate"] is None

    def test_rewards_and_penalties_of_one_tag_are_weighted(self) -> None:
        criteria = (Criterion("1", "a", 6, "T"), Criterion("2", "b", 2, "T"), Criterion("3", "c", -4, "T"))
        (task,) = make_tasks(1, criteria=criteria)
        grade = make_grade(Case(task, "m", 1), 0.0)
        hits = {"1": True, "2": False, "3": False}
        grade.verdicts = [{"id": c.id, "weight": c.weight, "tag": c.tag, "hit": hits[c.id]} for c in criteria]
        tag = summary_of([task], [grade], clip=False)["tags"]["T"]
        assert tag["score"]["value"] == pytest.approx((6 + 4) / 12)
        assert tag["hit_rate"]["value"] == pytest.approx(6 / 8)
        assert tag["avoidance_rate"]["value"] == 1.0
        assert tag["weight_ratio"]["value"] == pytest.approx(6 / 8)

    def test_a_failed_answer_counts_0_in_every_tag_of_its_task(self) -> None:
        part = summary(make_tasks(2), lambda task, _: "empty" if task.key == "1000" else 0.8)
        assert part["tags"]["Analytical Reasoning"]["hit_rate"]["value"] == pytest.approx(0.4)
        assert part["tags"]["Structure and Formatting"]["avoidance_rate"]["value"] == pytest.approx(0.5)

    def test_an_excluded_answer_counts_in_none(self) -> None:
        part = summary(make_tasks(2), excluding(lambda task, repeat: 0.8, {"1000"}))
        assert part["tags"]["Analytical Reasoning"]["tasks"] == 1
        assert part["tags"]["Analytical Reasoning"]["score"]["value"] == pytest.approx(0.8)

    def test_repeats_are_averaged_in_the_task_first(self) -> None:
        part = summary(make_tasks(2), lambda task, n: 0.5 if task.key == "1000" else (0.2, 0.6)[n - 1], repeats=2)
        assert part["tags"]["Analytical Reasoning"]["score"]["value"] == pytest.approx((0.5 + 0.4) / 2)

    def test_the_ratio_of_weights_is_for_metrics_without_a_range_and_needs_a_reward(self) -> None:
        assert "weight_ratio" not in summary(make_tasks(2), difficulty_scores(0.5))["tags"]["Analytical Reasoning"]
        tags = summary(make_tasks(2), lambda task, repeat: 0.5, clip=False)["tags"]
        assert tags["Analytical Reasoning"]["weight_ratio"]["value"] == 0.5
        assert tags["Structure and Formatting"]["weight_ratio"] is None

    def test_the_definition_is_said_to_be_ours(self) -> None:
        assert summary(make_tasks(1), difficulty_scores(0.5))["definitions"]["tags"].startswith("Our own")


class TestRepeats:
    def test_a_single_answer_has_none(self) -> None:
        assert summary(make_tasks(2), difficulty_scores(0.5))["repeats"] is None

    def test_pass_at_k_and_pass_hat_k_are_averaged_over_tasks(self) -> None:
        passes = {"1000": 4, "1001": 1}
        part = summary(make_tasks(2), lambda task, n: 0.9 if n <= passes[task.key] else 0.1, repeats=4)
        at_k, hat_k = part["repeats"]["pass_at_k"], part["repeats"]["pass_hat_k"]
        assert list(at_k) == ["1", "2", "3", "4"]
        for k in range(1, 5):
            chance = 1 - math.comb(3, k) / math.comb(4, k)
            assert at_k[str(k)]["value"] == pytest.approx((1 + chance) / 2)
            assert hat_k[str(k)]["value"] == pytest.approx((1 + math.comb(1, k) / math.comb(4, k)) / 2)
        assert part["pass_rate"]["value"] == pytest.approx((1 + 0.25) / 2)

    def test_tasks_with_too_few_graded_answers_do_not_tell_about_k(self) -> None:
        part = summary(make_tasks(2), lambda task, n: None if (task.key, n) == ("1000", 2) else 0.9, repeats=2)
        assert part["repeats"]["pass_at_k"]["2"]["tasks"] == 1

    def test_mean_and_spread_of_each_task(self) -> None:
        part = summary(make_tasks(1), lambda task, n: (0.2, 0.6)[n - 1], repeats=2)
        assert part["repeats"]["by_task"]["global-0"] == {
            "key": "1000",
            "n": 2,
            "mean": pytest.approx(0.4),
            "sd": pytest.approx(0.2 * math.sqrt(2)),
            "low": 0.2,
            "high": 0.6,
        }

    def test_the_variance_is_split_as_it_was_made(self) -> None:
        part = summary(make_tasks(400), difficulty_scores(0.5), repeats=4)
        parts = part["repeats"]["variance"]
        assert parts["judge"] is None
        assert math.sqrt(parts["task"]["variance"]) == pytest.approx(0.22, abs=0.03)  # cut at 0 and 1
        assert math.sqrt(parts["answer"]["variance"]) == pytest.approx(0.1, abs=0.015)


class TestEconomicValue:
    def test_only_passed_tasks_earn_and_currencies_stay_apart(self) -> None:
        tasks = [*make_tasks(2, value=("USD", 100.0)), *make_tasks(1, ("cn",), value=("CNY", 1000.0))]
        scores = {"global-0": 0.9, "global-1": 0.65, "cn-0": 0.7}
        value = summary(tasks, lambda task, _: scores[task.id])["economic_value"]
        assert value["USD"] == {
            "tasks": 2,
            "possible": 200.0,
            "earned": 100.0,
            "excluded": 0,
            "cost_usd": 0.04,
            "net_of_cost": 99.96,
            "partial_credit": pytest.approx(155.0),
        }
        assert (value["CNY"]["earned"], value["CNY"]["net_of_cost"], value["CNY"]["cost_usd"]) == (1000.0, None, 0.02)

    def test_repeats_do_not_multiply_it(self) -> None:
        tasks = make_tasks(1, value=("USD", 100.0))
        value = summary(tasks, lambda task, n: 0.9 if n < 4 else 0.1, repeats=4)["economic_value"]["USD"]
        assert (value["possible"], value["earned"]) == (100.0, 75.0)
        assert value["net_of_cost"] == pytest.approx(75.0 - 8 * 0.01)

    def test_what_was_excluded_stays_possible_and_is_named(self) -> None:
        tasks = make_tasks(2, value=("USD", 100.0))
        value = summary(tasks, excluding(lambda task, repeat: 0.9, {"1001"}))["economic_value"]["USD"]
        assert (value["possible"], value["earned"], value["excluded"]) == (200.0, 100.0, 100.0)

    def test_without_a_known_cost_there_is_no_net(self) -> None:
        tasks = make_tasks(1, value=("USD", 100.0))
        value = summary(tasks, lambda task, repeat: 0.9, cost=None)["economic_value"]["USD"]
        assert (value["cost_usd"], value["net_of_cost"]) == (None, None)

    def test_all_tasks_of_one_million_are_worth_the_published_totals(self) -> None:
        million = shipped("one_million_bench")
        tasks = Source(str(shared_data() / "one_million_bench"), Path()).load(million).tasks
        grades = [make_grade(Case(task, "m", 1), "empty") for task in tasks]
        part = summary_of(tasks, grades)
        possible = {currency: value["possible"] for currency, value in part["economic_value"].items()}
        assert possible == {"CNY": 921_844, "USD": 1_008_371}
        assert list(part["tracks"]["cn"]["economic_value"]) == ["CNY"]
        assert list(part["tracks"]["global"]["economic_value"]) == ["USD"]

    def test_tasks_without_a_value_have_none(self) -> None:
        assert summary(make_tasks(2), difficulty_scores(0.5))["economic_value"] is None

    def test_partial_credit_is_said_to_be_ours(self) -> None:
        part = summary(make_tasks(1, value=("USD", 1.0)), difficulty_scores(0.5))
        assert part["definitions"]["partial_credit"].startswith("Our own")


def test_a_run_that_was_read_gives_what_it_gave_at_its_end(tmp_path: Path) -> None:
    tasks = make_tasks(20, ("global", "cn"), value=("USD", 10.0))
    folder = write_run(tmp_path / "run", tasks, {"m": excluding(difficulty_scores(0.6), {"1003"})}, repeats=2)
    (part,) = evidence_in(folder).parts.values()
    made = summary(tasks, excluding(difficulty_scores(0.6), {"1003"}), repeats=2)
    assert part["mean"] == made["mean"]
    assert {key: value for key, value in part.items() if key != "judge"} == {
        key: value for key, value in made.items() if key != "judge"
    }


def test_an_interval_holds_the_mean_of_the_scores() -> None:
    tasks = make_tasks(50)
    score = difficulty_scores(0.6)
    part = summary(tasks, score)
    known = fmean(value for task in tasks if isinstance(value := score(task, 1), float))
    low, high = part["mean"]["ci95"]
    assert low < known < high
    assert part["mean"]["value"] == pytest.approx(known)
