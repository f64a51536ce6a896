from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.baselines import baseline_of, to_text
from pytest_rubrics.evidence import Evidence
from pytest_rubrics.faults import FaultsError
from pytest_rubrics.gate_checks import Verdict, worst
from pytest_rubrics.gate_file import GateFile
from pytest_rubrics.gates import Decision, Gate, load_gate
from pytest_rubrics.workspace import Workspace
from pytest_rubrics.yaml_files import load_yaml
from tests.support.benchmarks import REPOSITORY
from tests.support.simulated import (
    BENCHMARK,
    Scores,
    difficulty_scores,
    evidence_in,
    make_evidence,
    make_tasks,
    write_run,
)

FAIL, NOT_COMPARABLE, LOW_COVERAGE = Verdict.FAIL, Verdict.NOT_COMPARABLE, Verdict.LOW_COVERAGE
INCONCLUSIVE, PASS = Verdict.INCONCLUSIVE, Verdict.PASS

TASKS = make_tasks(200)
BOTH = make_tasks(100, ("global", "cn"))
GOOD = difficulty_scores(0.62)

# Decides a run by the rules of a gate file.
Decide = Callable[..., Decision]


@pytest.fixture
def decide(tmp_path: Path) -> Decide:
    def decided(evidence: Evidence, **rules: Any) -> Decision:
        return gate(tmp_path, **rules).decide(evidence)

    return decided


def gate(root: Path, **rules: Any) -> Gate:
    path = root / "gate.yaml"
    path.write_text(json.dumps(rules), encoding="utf-8")
    return load_gate(str(path), Workspace(root))


def run(score: Scores, **settings: Any) -> Evidence:
    return make_evidence(settings.pop("tasks", TASKS), {"m": score}, **settings)


def baseline(root: Path, evidence: Evidence) -> str:
    """Write the baseline of a run and name its file."""
    (name,) = evidence.results
    (root / "main.json").write_text(to_text(baseline_of(evidence, name)), encoding="utf-8")
    return "main.json"


def excluding_each_tenth(score: Scores) -> Scores:
    return lambda task, repeat: None if int(task.key) % 10 == 0 else score(task, repeat)


class TestVerdict:
    def test_the_worst_counts_in_the_order_of_the_design(self) -> None:
        assert [verdict.value for verdict in Verdict] == [1, 12, 11, 10, 0]
        assert worst([PASS, INCONCLUSIVE, LOW_COVERAGE]) is LOW_COVERAGE
        assert worst([LOW_COVERAGE, NOT_COMPARABLE, FAIL]) is FAIL
        assert worst([LOW_COVERAGE, NOT_COMPARABLE, PASS]) is NOT_COMPARABLE


class TestCompleteness:
    def test_a_complete_run_passes_a_gate_that_asks_for_no_more(self, tmp_path: Path, decide: Decide) -> None:
        decision = decide(run(GOOD))
        assert decision == Decision(PASS, "m: 200 of 200 grades were made, coverage 100.0%")

    def test_exclusions_are_low_coverage_and_the_sentence_says_what_they_could_do(
        self, tmp_path: Path, decide: Decide
    ) -> None:
        made = run(excluding_each_tenth(GOOD))
        decision = decide(made)
        assert decision.verdict is LOW_COVERAGE
        assert decision.reason.startswith("m: 180 of 200 grades were made, coverage 90.0%; the gate asks for 100.0%")
        assert "could bring the mean anywhere from 0.5" in decision.reason
        assert decide(made, coverage=0.9).verdict is PASS

    def test_low_coverage_comes_before_floors(self, tmp_path: Path, decide: Decide) -> None:
        floors = [{"mean": {"at_least": 0.99}}]
        assert decide(run(excluding_each_tenth(GOOD)), floors=floors).verdict is LOW_COVERAGE

    def test_a_partial_selection_never_passes_a_gate_for_the_whole(self, tmp_path: Path, decide: Decide) -> None:
        made = run(GOOD, selected=lambda case: case.task.key != "1007")
        decision = decide(made)
        assert decision.verdict is NOT_COMPARABLE
        assert "199 of 200 tasks were selected" in decision.reason
        assert decide(made, selection="any").verdict is PASS

    def test_an_empty_run_never_passes(self, tmp_path: Path, decide: Decide) -> None:
        made = run(GOOD, selected=lambda case: False)
        assert decide(made, selection="any").verdict is LOW_COVERAGE
        assert decide(made).verdict is LOW_COVERAGE

    def test_a_run_in_which_everything_was_excluded_never_passes(self, tmp_path: Path, decide: Decide) -> None:
        made = run(lambda task, repeat: None)
        assert decide(made, coverage=0.01).verdict is LOW_COVERAGE

    def test_a_score_that_is_no_number_never_passes(self, tmp_path: Path, decide: Decide) -> None:
        folder = write_run(tmp_path / "run", TASKS, {"m": GOOD})
        path = folder / "results.jsonl"
        first, *rest = path.read_text(encoding="utf-8").splitlines()
        row = json.loads(first)
        row["metrics"] = {"expert_score": float("nan")}
        path.write_text("\n".join([json.dumps(row), *rest]) + "\n", encoding="utf-8")
        decision = decide(evidence_in(folder), coverage=0.9)
        assert decision.verdict is LOW_COVERAGE
        assert "the score of 1 grades is no number" in decision.reason


class TestSeveralModels:
    def test_each_is_decided_and_the_worst_counts(self, tmp_path: Path, decide: Decide) -> None:
        models = {"strong": difficulty_scores(0.7), "weak": difficulty_scores(0.3)}
        made = make_evidence(TASKS, models)
        decision = decide(made, floors=[{"mean": {"at_least": 0.5}}])
        assert decision.verdict is FAIL
        first, second = decision.reason.split(" | ")
        assert first.startswith("FAIL: weak: 200 of 200 grades were made")
        assert second.startswith("PASS: strong: 200 of 200 grades were made")

    def test_a_model_without_any_selected_task_is_not_forgotten(self, tmp_path: Path, decide: Decide) -> None:
        models = {"strong": GOOD, "weak": GOOD}
        made = make_evidence(TASKS, models, selected=lambda case: case.model == "strong")
        decision = decide(made)
        assert decision.verdict is NOT_COMPARABLE
        assert "weak: no task of one_million_bench was selected" in decision.reason
        assert decide(made, selection="any").verdict is PASS


class TestFloors:
    # The mean of GOOD on these tasks is 0.625, its interval 0.594 to 0.655.
    @pytest.mark.parametrize(
        ("at_least", "on", "verdict"),
        [
            (0.62, "estimate", PASS),
            (0.63, "estimate", FAIL),
            (0.58, "lower_end", PASS),
            (0.61, "lower_end", INCONCLUSIVE),
            (0.64, "lower_end", INCONCLUSIVE),
            (0.67, "lower_end", FAIL),
        ],
    )
    def test_on_the_mean(self, at_least: float, on: str, verdict: Verdict, tmp_path: Path, decide: Decide) -> None:
        decision = decide(run(GOOD), floors=[{"mean": {"at_least": at_least, "on": on}}])
        assert decision.verdict is verdict
        assert "mean expert_score of global is 0.625 (95 % interval 0.59" in decision.reason

    def test_an_undecided_floor_says_what_it_would_take(self, tmp_path: Path, decide: Decide) -> None:
        decision = decide(run(GOOD), floors=[{"mean": {"at_least": 0.61}}])
        assert "the interval holds the floor 0.610: with this many tasks it takes about 0.64" in decision.reason

    def test_on_the_pass_rate(self, tmp_path: Path, decide: Decide) -> None:
        made = run(GOOD)  # 40 %
        assert decide(made, floors=[{"pass_rate": {"at_least": 0.3}}]).verdict is PASS
        assert decide(made, floors=[{"pass_rate": {"at_least": 0.4}}]).verdict is INCONCLUSIVE
        assert decide(made, floors=[{"pass_rate": {"at_least": 0.5}}]).verdict is FAIL

    def test_the_level_is_kept_in_the_middle_of_an_interval_that_is_just_clear(
        self, tmp_path: Path, decide: Decide
    ) -> None:
        made = run(GOOD)
        (part,) = made.parts.values()
        low, high = part["tracks"]["global"]["mean"]["ci95"]
        assert decide(made, floors=[{"mean": {"at_least": low}}]).verdict is PASS
        assert decide(made, floors=[{"mean": {"at_least": low + 1e-9}}]).verdict is INCONCLUSIVE
        assert decide(made, floors=[{"mean": {"at_least": high}}]).verdict is INCONCLUSIVE
        assert decide(made, floors=[{"mean": {"at_least": high + 1e-9}}]).verdict is FAIL

    def test_a_floor_holds_for_each_track_and_tracks_are_not_pooled(self, tmp_path: Path, decide: Decide) -> None:
        def score(task: Any, repeat: int) -> float:
            return 0.9 if task.groups["track"] == "global" else 0.4

        made = run(score, tasks=BOTH)  # pooled 0.65
        decision = decide(made, floors=[{"mean": {"at_least": 0.6, "on": "estimate"}}])
        assert decision.verdict is FAIL
        assert "mean expert_score of cn is 0.400" in decision.reason
        for track, verdict in (("global", PASS), ("cn", FAIL)):
            floor = {"mean": {"at_least": 0.6, "on": "estimate"}, "track": track}
            assert decide(made, floors=[floor]).verdict is verdict

    def test_a_floor_of_a_subset_looks_at_it_alone(self, tmp_path: Path, decide: Decide) -> None:
        made = run(lambda task, repeat: 0.2 if task.groups["domain"] == "law" else 0.9)
        floor = {"mean": {"at_least": 0.5, "on": "estimate"}}
        assert decide(made, floors=[{**floor, "subset": "global_finance"}]).verdict is PASS
        assert decide(made, floors=[{**floor, "subset": "global_law"}]).verdict is FAIL

    def test_a_floor_of_what_was_not_selected_is_not_comparable(self, tmp_path: Path, decide: Decide) -> None:
        made = run(GOOD)
        decision = decide(made, floors=[{"mean": {"at_least": 0.1}, "track": "cn"}])
        assert decision.verdict is NOT_COMPARABLE
        assert "no task of the track cn was selected" in decision.reason

    def test_one_task_is_too_few_for_an_interval(self, tmp_path: Path, decide: Decide) -> None:
        made = run(lambda task, repeat: 0.9, tasks=make_tasks(1))
        assert decide(made, floors=[{"mean": {"at_least": 0.1}}]).verdict is INCONCLUSIVE

    def test_a_benchmark_without_a_pass_mark_has_no_pass_rate(self, tmp_path: Path, decide: Decide) -> None:
        scoring = {"metric": "compliance_score", "clip": False, "pass_at": None}
        made = run(lambda task, repeat: None, benchmark={"scoring": scoring})
        decision = decide(made, floors=[{"pass_rate": {"at_least": 0.1}}])
        assert decision.verdict is NOT_COMPARABLE
        assert "has no pass mark" in decision.reason


class TestBaseline:
    def test_a_run_against_itself_is_not_worse(self, tmp_path: Path, decide: Decide) -> None:
        made = run(GOOD)
        file = baseline(tmp_path, made)
        assert decide(made, baseline={"file": file}).verdict is PASS
        assert decide(made, baseline={"file": file, "on": "pass_rate"}).verdict is PASS
        within = decide(made, baseline={"file": file, "rule": "non_inferior", "margin": 0.03})
        assert within.verdict is PASS
        assert "A loss of 0.030 or more is ruled out" in within.reason

    def test_a_few_equal_tasks_do_not_rule_out_a_loss(self, tmp_path: Path, decide: Decide) -> None:
        made = run(GOOD, tasks=make_tasks(20))
        rule = {"file": baseline(tmp_path, made), "rule": "non_inferior", "margin": 0.03}
        assert decide(made, baseline=rule).verdict is INCONCLUSIVE

    def test_three_points_worse_fails_not_worse(self, tmp_path: Path, decide: Decide) -> None:
        file = baseline(tmp_path, run(GOOD))
        decision = decide(run(difficulty_scores(0.59, answer=1)), baseline={"file": file})
        assert decision.verdict is FAIL
        assert "mean expert_score of global went from 0.625 to 0.596 on 200 tasks, by -0.029 (95 % i" in decision.reason
        assert "That is worse (one-sided p " in decision.reason

    def test_three_points_worse_is_undecided_at_a_margin_of_three(self, tmp_path: Path, decide: Decide) -> None:
        rule = {"file": baseline(tmp_path, run(GOOD)), "rule": "non_inferior", "margin": 0.03}
        decision = decide(run(difficulty_scores(0.59, answer=1)), baseline=rule)
        assert decision.verdict is INCONCLUSIVE
        assert "Whether the loss is less than 0.030 these tasks do not tell" in decision.reason

    def test_ten_points_worse_fails_at_a_margin_of_three(self, tmp_path: Path, decide: Decide) -> None:
        rule = {"file": baseline(tmp_path, run(GOOD)), "rule": "non_inferior", "margin": 0.03}
        decision = decide(run(difficulty_scores(0.52, answer=1)), baseline=rule)
        assert decision.verdict is FAIL
        assert "That is a loss of more than 0.030" in decision.reason

    def test_an_equal_model_passes_at_a_margin_of_three(self, tmp_path: Path, decide: Decide) -> None:
        rule = {"file": baseline(tmp_path, run(GOOD)), "rule": "non_inferior", "margin": 0.03}
        assert decide(run(difficulty_scores(0.62, answer=2)), baseline=rule).verdict is PASS

    def test_a_loss_in_one_track_fails_though_the_other_gains(self, tmp_path: Path, decide: Decide) -> None:
        file = baseline(tmp_path, run(GOOD, tasks=BOTH))
        better, worse = difficulty_scores(0.72, answer=1), difficulty_scores(0.52, answer=1)
        made = run(
            lambda task, repeat: (better if task.groups["track"] == "global" else worse)(task, repeat),
            tasks=BOTH,
        )
        decision = decide(made, baseline={"file": file})
        assert decision.verdict is FAIL
        assert decision.reason.index("of global went") < decision.reason.index("of cn went")

    @pytest.mark.parametrize(
        ("changes", "reason"),
        [
            ({"judge": {"model": "openai/other"}}, "judge.model is openai/other and was openai/judge"),
            ({"judge": {"params": {"temperature": 1}}}, "judge.params.temperature is 1 and was nothing"),
            ({"benchmark": {"prompts_sha256": {"sheet.en": "2" * 64}}}, "prompts.sheet.en is 222"),
            (
                {"benchmark": {"scoring": {"metric": "expert_score", "clip": True, "pass_at": 0.6}}},
                "scoring.pass_at is 0.6 and was 0.7",
            ),
        ],
    )
    def test_other_judges_prompts_and_scoring_are_not_comparable(
        self, changes: dict[str, Any], reason: str, tmp_path: Path, decide: Decide
    ) -> None:
        file = baseline(tmp_path, run(GOOD))
        decision = decide(run(GOOD, **changes), baseline={"file": file})
        assert decision.verdict is NOT_COMPARABLE
        assert reason in decision.reason

    def test_how_the_judge_is_reached_does_not_matter(self, tmp_path: Path, decide: Decide) -> None:
        file = baseline(tmp_path, run(GOOD))
        moved = {"api_base": "http://127.0.0.1:1", "timeout": 5.0, "max_concurrency": 1, "note": "moved"}
        assert decide(run(GOOD, judge=moved), baseline={"file": file}).verdict is PASS

    def test_another_served_version_of_the_judge_is_not_comparable(self, tmp_path: Path, decide: Decide) -> None:
        file = baseline(tmp_path, run(GOOD))
        decision = decide(run(GOOD, served="judge-2026-06-01"), baseline={"file": file})
        assert decision.verdict is NOT_COMPARABLE
        assert 'judge.served is ["judge-2026-06-01"] and was ["judge-2026-01-01"]' in decision.reason

    @pytest.mark.parametrize(
        "changes",
        [
            {"prompt": "What is to be done in case 0? "},
            {"criteria": (replace(TASKS[0].criteria[0], text="Point one."), *TASKS[0].criteria[1:])},
            {"criteria": (replace(TASKS[0].criteria[0], weight=6), *TASKS[0].criteria[1:])},
        ],
        ids=["prompt", "text", "weight"],
    )
    def test_an_edited_data_set_is_not_comparable(
        self, changes: dict[str, Any], tmp_path: Path, decide: Decide
    ) -> None:
        file = baseline(tmp_path, run(GOOD))
        edited = run(GOOD, tasks=[replace(TASKS[0], **changes), *TASKS[1:]])
        decision = decide(edited, baseline={"file": file})
        assert decision.verdict is NOT_COMPARABLE
        assert "the data of 1 task (global_finance-1000) was changed since" in decision.reason

    def test_fewer_tasks_than_the_baseline_are_not_the_whole(self, tmp_path: Path, decide: Decide) -> None:
        file = baseline(tmp_path, run(GOOD))
        made = run(GOOD, tasks=TASKS[:190])
        decision = decide(made, baseline={"file": file})
        assert decision.verdict is NOT_COMPARABLE
        assert "10 tasks (global_finance-1190, " in decision.reason
        assert decide(made, baseline={"file": file}, selection="any").verdict is PASS

    def test_what_was_excluded_in_either_run_is_not_compared(self, tmp_path: Path, decide: Decide) -> None:
        file = baseline(tmp_path, run(excluding_each_tenth(GOOD)))
        decision = decide(run(GOOD), baseline={"file": file})
        assert decision.verdict is PASS
        assert "on 180 tasks" in decision.reason

    def test_a_baseline_in_which_nothing_was_graded_compares_with_nothing(self, tmp_path: Path, decide: Decide) -> None:
        file = baseline(tmp_path, run(lambda task, repeat: None))
        assert decide(run(GOOD), baseline={"file": file}).verdict is NOT_COMPARABLE

    def test_the_baselines_benchmark_is_the_gates(self, tmp_path: Path) -> None:
        made = gate(tmp_path, baseline={"file": baseline(tmp_path, run(GOOD))})
        assert made.is_for(BENCHMARK)
        assert not made.is_for("researchrubrics")


class TestMustPass:
    # With GOOD the task 1000 scores 0.65, the task 1001 scores 0.7.
    @pytest.mark.parametrize("name", ["1001", "global_health-1001", "global-1"])
    def test_a_task_is_named_by_key_id_or_subset_and_key(self, name: str, tmp_path: Path, decide: Decide) -> None:
        made = run(lambda task, repeat: 0.9 if task.key == "1001" else 0.1)
        decision = decide(made, must_pass=[name])
        assert decision.verdict is PASS
        assert "what must be passed was (global_health-1001)" in decision.reason

    def test_a_task_below_the_mark_fails(self, tmp_path: Path, decide: Decide) -> None:
        made = run(lambda task, repeat: 0.1 if task.key == "1001" else 0.9)
        decision = decide(made, must_pass=["1000", "1001"])
        assert decision.verdict is FAIL
        assert "global_health-1001 must be passed and was not" in decision.reason

    def test_a_key_of_two_tracks_names_both(self, tmp_path: Path, decide: Decide) -> None:
        made = run(lambda task, repeat: 0.1 if task.id == "cn-0" else 0.9, tasks=BOTH)
        assert decide(made, must_pass=["1000"]).verdict is FAIL
        assert decide(made, must_pass=["global_finance-1000"]).verdict is PASS

    def test_one_failed_repeat_is_not_a_pass(self, tmp_path: Path, decide: Decide) -> None:
        made = run(lambda task, n: 0.1 if (task.key, n) == ("1001", 3) else 0.9, repeats=3)
        assert decide(made, must_pass=["1001"]).verdict is FAIL

    def test_an_excluded_one_is_low_coverage(self, tmp_path: Path, decide: Decide) -> None:
        made = run(lambda task, repeat: None if task.key == "1001" else 0.9)
        decision = decide(made, must_pass=["1001"], coverage=0.9)
        assert decision.verdict is LOW_COVERAGE
        assert "global_health-1001 must be passed and was excluded" in decision.reason

    def test_one_that_was_not_selected_is_not_comparable(self, tmp_path: Path, decide: Decide) -> None:
        decision = decide(run(GOOD), must_pass=["10001"])
        assert decision.verdict is NOT_COMPARABLE
        assert "10001 must be passed and was not selected" in decision.reason


class TestCost:
    def test_the_cost_of_answers_and_judging_is_limited(self, tmp_path: Path, decide: Decide) -> None:
        made = run(GOOD)  # 200 x (0.01 + 0.01) USD
        assert decide(made, max_cost_usd=4.01).verdict is PASS
        decision = decide(made, max_cost_usd=3.99)
        assert decision.verdict is FAIL
        assert "answers and judging cost $4.00, and the gate allows $3.99" in decision.reason

    def test_an_unknown_cost_does_not_pass(self, tmp_path: Path, decide: Decide) -> None:
        decision = decide(run(GOOD, cost=None), max_cost_usd=1000)
        assert decision.verdict is INCONCLUSIVE
        assert "a price is missing" in decision.reason


class TestJudgeFingerprint:
    def test_the_named_judge_is_required(self, tmp_path: Path, decide: Decide) -> None:
        made = run(GOOD)
        (name,) = made.results
        known = baseline_of(made, name).fingerprints["judge"]
        assert decide(made, judge_fingerprint=known).verdict is PASS
        decision = decide(run(GOOD, judge={"model": "openai/other"}), judge_fingerprint=known)
        assert decision.verdict is NOT_COMPARABLE
        assert f"the gate asks for the judge {known}, and local is " in decision.reason
        assert "openai/other, served as judge-2026-01-01" in decision.reason


class TestFile:
    @pytest.mark.parametrize(
        ("rules", "fault"),
        [
            ({"floors": [{"track": "global"}]}, "give mean or pass_rate, or both"),
            (
                {"floors": [{"mean": {"at_least": 0.5}, "track": "cn", "subset": "cn_law"}]},
                "give track or subset, not both",
            ),
            ({"floors": [{"mean": {"at_leats": 0.5}}]}, "Did you mean at_least?"),
            ({"floors": [{"mean": {"at_least": 0.5, "on": "lowerend"}}]}, "Did you mean lower_end?"),
            ({"baseline": {"file": "a", "rule": "non_inferior"}}, "rule: non_inferior needs a margin"),
            ({"baseline": {"file": "a", "margin": 0.03}}, "not_worse has none"),
            ({"coverage": 0}, "expected a number greater than 0"),
            ({"judge_fingerprint": "abc"}, "judge_fingerprint"),
            ({"baseline": {"file": "nowhere.json"}}, "cannot be read as a baseline"),
        ],
    )
    def test_faults_are_named_before_anything_runs(self, rules: dict[str, Any], fault: str, tmp_path: Path) -> None:
        with pytest.raises(FaultsError) as caught:
            gate(tmp_path, **rules)
        assert fault in str(caught.value)
        assert "gate.yaml" in str(caught.value)

    def test_a_baseline_of_another_benchmark_is_a_fault(self, tmp_path: Path) -> None:
        file = baseline(tmp_path, run(GOOD))
        with pytest.raises(FaultsError, match="is made for researchrubrics, and its baseline is of one_million_bench"):
            gate(tmp_path, benchmark="researchrubrics", baseline={"file": file})

    def test_a_file_that_is_no_baseline_is_a_fault(self, tmp_path: Path) -> None:
        (tmp_path / "main.json").write_text('{"schema": 1}', encoding="utf-8")
        with pytest.raises(FaultsError, match="is no baseline file"):
            gate(tmp_path, baseline={"file": "main.json"})

    def test_the_example_of_the_docs_is_a_gate_and_names_every_key(self, tmp_path: Path) -> None:
        text = (REPOSITORY / "docs" / "gates.md").read_text(encoding="utf-8")
        (tmp_path / "release.yaml").write_text(text.split("```yaml\n")[1].split("```")[0], encoding="utf-8")
        rules = load_yaml(tmp_path / "release.yaml", GateFile)
        assert rules.model_fields_set == GateFile.model_fields.keys()

    def test_a_mistyped_subset_is_named_while_it_costs_nothing(self, tmp_path: Path) -> None:
        made = gate(tmp_path, floors=[{"mean": {"at_least": 0.5}, "subset": "cn_lwa"}])
        (fault,) = made.wrong_for({BENCHMARK: ["cn_law", "cn"]})
        assert str(fault) == "--gate gate: has a floor for cn_lwa, which is no subset or track. Did you mean cn_law?"
        assert made.wrong_for({BENCHMARK: []}) == []
