"""Run folders made without a model and a judge: the truth about them is known."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_rubrics.evidence import Evidence
from pytest_rubrics.figures import figures_of
from pytest_rubrics.grades import Grade
from pytest_rubrics.plan import Case
from pytest_rubrics.rebuilding import evidence_of, open_run, rebuild_summary
from pytest_rubrics.records import RunWriter
from pytest_rubrics.scoring import Scoring
from pytest_rubrics.tasks import Criterion, Task

BENCHMARK = "one_million_bench"
REWARDS = 20  # of weight 5 each: scores are multiples of 0.05
SCORING = Scoring("expert_score", True, 0.7)

# The score of a task in a repeat; None excludes it, a text fails it for that reason.
Scores = Callable[[Task, int], float | str | None]


def make_tasks(count: int, tracks: Sequence[str] = ("global",), **changes: Any) -> list[Task]:
    """So many tasks in each track, with five domains; the tracks share their cases."""
    return [_task(track, number, changes) for track in tracks for number in range(count)]


def _task(track: str, number: int, changes: Mapping[str, Any]) -> Task:
    domain = ("finance", "health", "industry", "law", "science")[number % 5]
    rewards = [Criterion(str(n), f"Point {n}.", 5, "Analytical Reasoning") for n in range(1, REWARDS + 1)]
    fields: dict[str, Any] = {
        "benchmark": BENCHMARK,
        "id": f"{track}-{number}",
        "key": str(1000 + number),
        "subset": f"{track}_{domain}",
        "language": "zh" if track == "cn" else "en",
        "prompt": f"What is to be done in case {number}?",
        "criteria": (*rewards, Criterion("p1", "Digresses.", -10, "Structure and Formatting")),
        "topics": (domain.title(), "Other"),
        "groups": {"track": track, "domain": domain, "time_sensitivity": "agnostic" if number % 2 else "weak"},
        "cluster": str(1000 + number),
    }
    return Task(**{**fields, **changes})


def difficulty_scores(ability: float, seed: int = 1, answer: int = 0) -> Scores:
    """Scores of a model: the difficulty of a task is common to all models, the luck of an answer is not."""

    def score(task: Task, repeat: int) -> float:
        difficulty = random.Random(f"{seed} {task.id}").gauss(0.0, 0.22)
        luck = random.Random(f"{seed} {answer} {repeat} {task.id}").gauss(0.0, 0.1)
        return round(min(1.0, max(0.0, ability - difficulty + luck)) * REWARDS) / REWARDS

    return score


def write_run(folder: Path, tasks: Sequence[Task], models: Mapping[str, Scores], **settings: Any) -> Path:
    """Write a finished run.

    Args:
        folder: The run folder.
        tasks: The whole selection.
        models: Scores of each model.
        settings: Those of `simulate`.
    """
    manifest, cases, grades = simulate(folder.name, tasks, models, **settings)
    writer = RunWriter(folder)
    writer.write_manifest(manifest)
    writer.write_tasks({case.task.id: case.task for case in cases}.values())
    for grade in grades:
        writer.append(grade)
    writer.close()
    writer.write_summary(rebuild_summary(open_run(folder)))
    return folder


def make_evidence(tasks: Sequence[Task], models: Mapping[str, Scores], run: str = "run", **settings: Any) -> Evidence:
    """What the same run comes to, without a folder."""
    manifest, cases, grades = simulate(run, tasks, models, **settings)
    return Evidence(
        manifest, {(case.task.benchmark, case.task.id): case.task for case in cases}, [*map(figures_of, grades)]
    )


def simulate(
    run: str,
    tasks: Sequence[Task],
    models: Mapping[str, Scores],
    *,
    repeats: int = 1,
    selected: Callable[[Case], bool] = lambda case: True,
    benchmark: Mapping[str, Any] | None = None,
    judge: Mapping[str, Any] | None = None,
    served: str = "judge-2026-01-01",
    cost: float | None = 0.01,
) -> tuple[dict[str, Any], list[Case], list[Grade]]:
    """The manifest of a finished run, its selection, and its grades.

    Args:
        run: Id of the run.
        tasks: The whole selection.
        models: Scores of each model.
        repeats: Answers per task.
        selected: Which cases were selected.
        benchmark: Entries to change in the manifest's entry of the benchmark.
        judge: Settings to change of the judge.
        served: What the judge's endpoint says it is.
        cost: Cost of each answer, and of its judging, in USD.
    """
    cases = [Case(task, model, n) for model in models for task in tasks for n in range(1, repeats + 1)]
    chosen = [case for case in cases if selected(case)]
    manifest = {
        "schema": 1,
        "run": run,
        "started_at": "2026-01-01T00:00:00Z",
        "finished_at": "2026-01-01T01:00:00Z",
        "versions": {},
        "command": [],
        "options": {"repeats": repeats, "run_dir": run, "shard": None, "gate": None, "cache_dir": "none"},
        "models": {model: {"model": f"openai/{model}", "kind": "chat", "track": "vanilla"} for model in models},
        "judge": {"local": {"model": "openai/judge", "timeout": 600.0, **(judge or {})}},
        "benchmarks": {
            BENCHMARK: {
                "title": "$OneMillion-Bench",
                "source": "data",
                "sha256": {"test.json": "0" * 64},
                "tasks": len(tasks),
                "scoring": {"metric": SCORING.metric, "clip": SCORING.clip, "pass_at": SCORING.pass_at},
                "judging": {"method": "sheet"},
                "prompts_sha256": {"sheet.en": "1" * 64},
                "subsets": list(dict.fromkeys(task.subset for task in tasks)),
                "selected": [case.id for case in chosen],
                **(benchmark or {}),
            }
        },
    }
    grades = [make_grade(case, models[case.model](case.task, case.repeat), cost, served) for case in chosen]
    return manifest, chosen, grades


def make_grade(
    case: Case, score: float | str | None, cost: float | None = 0.01, served: str = "judge-2026-01-01"
) -> Grade:
    """The grade of a case with a score that is a multiple of 0.05, excluded (None) or failed (a reason)."""
    task = case.task
    grade = Grade(
        benchmark=task.benchmark,
        task_id=task.id,
        key=task.key,
        subset=task.subset,
        model=case.model,
        track="vanilla",
        judge="local",
        repeat=case.repeat,
        state="excluded",
        usage={part: {"input_tokens": 100, "output_tokens": 10} for part in ("answer", "judge")},
        cost_usd={"answer": cost, "judge": cost},
    )
    if score is None:
        grade.reason, grade.error = "transport", "no route"
    elif isinstance(score, str):
        grade.state, grade.reason, grade.metrics, grade.passed = "failed", score, {SCORING.metric: 0.0}, False
    else:
        grade.state = "scored"
        hits = round(score * REWARDS)
        grade.verdicts = [
            {"id": c.id, "weight": c.weight, "tag": c.tag, "hit": place < hits and c.weight > 0, "justification": ""}
            for place, c in enumerate(task.criteria)
        ]
        grade.metrics = {SCORING.metric: SCORING.score([(v["weight"], v["hit"]) for v in grade.verdicts])}
        grade.passed = SCORING.passes(grade.metrics[SCORING.metric])
        grade.answer = f"An answer to {task.prompt}"
        grade.served_model = {"answer": case.model, "judge": served}
    return grade


def evidence_in(folder: Path) -> Evidence:
    """What a run folder comes to."""
    return evidence_of(open_run(folder))
