from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_rubrics.baselines import Baseline, baseline_of, read_baseline, to_text
from pytest_rubrics.comparing import (
    by_subset,
    by_track,
    changed_tasks,
    obstacles,
    pairs,
    passes_changed,
    unshared,
)
from pytest_rubrics.statistics.comparison import compare, holm
from pytest_rubrics.tasks import Task
from tests.support.simulated import Scores, difficulty_scores, make_evidence, make_tasks

BOTH = make_tasks(100, ("global", "cn"))
GOOD = difficulty_scores(0.62)


def scores(score: Scores, tasks: Sequence[Task] = BOTH, *, repeats: int = 1) -> Baseline:
    evidence = make_evidence(tasks, {"m": score}, repeats=repeats)
    (name,) = evidence.results
    return baseline_of(evidence, name)


def test_a_run_against_itself_differs_in_nothing() -> None:
    own = scores(GOOD)
    assert obstacles(own, own) == unshared(own, own) == []
    assert changed_tasks(own, own) == []
    for each in by_track(own, own):
        assert (each.comparison.difference.value, each.comparison.p_value, each.comparison.same) == (0.0, 1.0, 100)
        assert each.smallest_detectable is None
    assert passes_changed(own, own) == (0, 0, 1.0)


def test_tracks_are_compared_apart_and_task_by_task() -> None:
    def second(task: Task, repeat: int) -> float:
        first = GOOD(task, repeat)
        assert isinstance(first, float)
        return min(1.0, first + 0.05) if task.groups["track"] == "cn" else first

    a, b = scores(GOOD), scores(second)
    by_name = {each.name: each for each in by_track(a, b)}
    assert list(by_name) == ["global", "cn"]
    assert by_name["global"].comparison.same == 100
    before = [task.score or 0.0 for task in a.tasks.values() if task.track == "cn"]
    after = [task.score or 0.0 for task in b.tasks.values() if task.track == "cn"]
    assert by_name["cn"].comparison == compare(before, after, clusters=list(range(100)), bounds=(0.0, 1.0))
    assert by_name["cn"].candidate == pytest.approx(sum(after) / 100)


def test_p_values_of_subsets_are_corrected_for_their_number() -> None:
    a, b = scores(GOOD), scores(difficulty_scores(0.59, answer=1))
    found = by_subset(a, b)
    assert len(found) == 10
    plain = [each.comparison.p_value for each in found]
    assert [each.p_holm for each in found] == holm([p for p in plain if p is not None])


def test_the_smallest_difference_is_found_four_times_in_five() -> None:
    # The luck of an answer has a standard deviation of 0.1 in each run, so the differences have 0.1 * sqrt(2).
    a, b = scores(GOOD), scores(difficulty_scores(0.62, answer=1))
    for each in by_track(a, b):
        assert each.smallest_detectable == pytest.approx(2.80 * 0.1414 / 10, rel=0.2)


def test_changed_tasks_crossed_the_mark_and_the_largest_change_comes_first() -> None:
    a, b = scores(GOOD), scores(difficulty_scores(0.62, answer=1))
    found = changed_tasks(a, b)
    crossed = {id_ for id_, task in a.tasks.items() if task.passed != b.tasks[id_].passed}
    assert {flip.task for flip in found} == crossed
    assert len(crossed) > 10
    changes = [abs(flip.change) for flip in found]
    assert changes == sorted(changes, reverse=True)
    passes = passes_changed(a, b)
    assert passes is not None
    assert passes.gained + passes.lost == len(crossed)


def test_shares_of_passes_have_no_exact_test() -> None:
    a, b = scores(GOOD, repeats=2), scores(difficulty_scores(0.6, answer=1), repeats=2)
    assert passes_changed(a, b) is None
    assert [each.name for each in by_track(a, b, "pass_rate")] == ["global", "cn"]


def test_what_either_run_excluded_is_left_out() -> None:
    a = scores(lambda task, repeat: None if task.key == "1000" else GOOD(task, repeat))
    b = scores(lambda task, repeat: None if task.key == "1001" else GOOD(task, repeat))
    assert len(pairs(a, b)) == 196
    assert [each.tasks for each in by_track(a, b)] == [98, 98]


def test_tasks_of_one_run_only_are_named() -> None:
    a, b = scores(GOOD, make_tasks(10)), scores(GOOD, make_tasks(12)[2:])
    assert obstacles(a, b) == []
    assert unshared(a, b) == [
        "2 tasks (global_finance-1000, global_health-1001) of the baseline is not in this run",
        "2 tasks (global_finance-1010, global_health-1011) of this run is not in the baseline",
    ]


def test_runs_without_a_common_task_cannot_be_compared() -> None:
    a, b = scores(GOOD, make_tasks(5)), scores(GOOD, make_tasks(5, ("cn",)))
    assert obstacles(a, b) == ["they have no task in common"]


def test_another_benchmark_is_named_alone() -> None:
    own = scores(GOOD, make_tasks(5))
    assert obstacles(own, replace(own, benchmark="other")) == ["the benchmark is other and was one_million_bench"]


def test_a_baseline_file_holds_what_was_written(tmp_path: Path) -> None:
    own = scores(lambda task, repeat: None if task.key == "1000" else GOOD(task, repeat))
    path = tmp_path / "main.json"
    path.write_text(to_text(own), encoding="utf-8")
    assert read_baseline(path) == own


def test_a_baseline_file_is_small_and_has_no_texts() -> None:
    text = to_text(scores(GOOD))
    assert len(text) < 250 * len(BOTH)
    assert "What is to be done" not in text
    assert "An answer to" not in text
    assert sum("global_law" in line for line in text.splitlines()) == 20  # a line for each task


def test_fingerprints_tell_what_changed() -> None:
    tasks = make_tasks(5)
    own = scores(GOOD, tasks)
    same = scores(difficulty_scores(0.3), tasks)
    assert own.fingerprints == same.fingerprints
    edited = scores(GOOD, [replace(tasks[0], prompt="Else."), *tasks[1:]])
    changed = {name for name, value in edited.fingerprints.items() if value != own.fingerprints[name]}
    assert changed == {"data"}
