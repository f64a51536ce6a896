"""Scores worked out anew from what was recorded: verdicts, weights and the rule of the benchmark."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.grades import Grade
from pytest_rubrics.rebuilding import open_run, rebuild_summary, task_from_record
from pytest_rubrics.records import Run, RunWriter
from pytest_rubrics.scoring import Scoring
from pytest_rubrics.tasks import Task

SHOWN_FAULTS = 20


@dataclass(frozen=True, slots=True)
class Change:
    """A grade whose score or pass became another one.

    Attributes:
        name: Model, subset, key and repeat.
        before: The recorded score; None where there was none.
        after: The score that follows from the verdicts.
    """

    name: str
    before: float | None
    after: float | None


def rescore(run: Run, folder: Path) -> list[Change]:
    """Write a run anew into another folder, with every metric worked out from verdicts and weights.

    Weights and tags are those of ``tasks.jsonl``, the rule is that of ``manifest.json``; verdicts and states stay.

    Args:
        run: The run.
        folder: The new run folder.

    Returns:
        What became different.

    Raises:
        FaultsError: There is something in the folder, or verdicts do not fit their task.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FaultsError([Fault(str(folder), "is not empty.", fix="Name a new folder with --into.")])
    tasks = {id_: task_from_record(row) for id_, row in run.tasks.items()}
    _check(run, tasks)
    writer = RunWriter(folder)
    writer.write_tasks(tasks.values())
    changes = []
    for before, after in _rescored(run, tasks):
        writer.append(after)
        if (before.metrics, before.passed) != (after.metrics, after.passed):
            changes.append(Change(_name(before), before.score, after.score))
    writer.close()
    options = {**run.manifest["options"], "run_dir": str(folder)}
    writer.write_manifest({**run.manifest, "options": options, "command": sys.argv[1:], "made_from": str(run.folder)})
    writer.write_summary(rebuild_summary(open_run(folder)))
    return changes


def _rescored(run: Run, tasks: Mapping[tuple[str, str], Task]) -> Iterator[tuple[Grade, Grade]]:
    scorings = {name: _scoring(entry["scoring"]) for name, entry in run.manifest["benchmarks"].items()}
    for grade in run.grades:
        averages = run.manifest["judge"].get(grade.judge, {}).get("decide") == "mean"
        task = tasks[grade.benchmark, grade.task_id]
        yield grade, rescored(grade, task, scorings[grade.benchmark], averages=averages)


def rescored(grade: Grade, task: Task, scoring: Scoring, *, averages: bool = False) -> Grade:
    """A grade with its metrics, pass, weights and tags as they follow from its verdicts.

    Args:
        grade: The grade.
        task: Its task.
        scoring: The rule.
        averages: Whether the judge is a panel whose members' scores are averaged.
    """
    if grade.state == "excluded":
        return grade
    if grade.state == "failed":
        return replace(grade, metrics={scoring.metric: 0.0}, passed=None if scoring.pass_at is None else False)
    criteria = {criterion.id: criterion for criterion in task.criteria}
    verdicts = [
        {**verdict, "weight": criteria[verdict["id"]].weight, "tag": criteria[verdict["id"]].tag}
        for verdict in grade.verdicts
    ]
    judged = {verdict["id"] for verdict in verdicts}
    unjudged = [criterion.weight for criterion in task.criteria if criterion.id not in judged]
    metrics = scoring.of_verdicts(verdicts, unjudged=unjudged, averages=averages)
    return replace(grade, verdicts=verdicts, metrics=metrics, passed=scoring.passes(metrics[scoring.metric]))


def _scoring(rule: Mapping[str, Any]) -> Scoring:
    return Scoring(rule["metric"], rule["clip"], rule["pass_at"])


def _check(run: Run, tasks: Mapping[tuple[str, str], Task]) -> None:
    faults = []
    for grade in run.grades:
        task = tasks.get((grade.benchmark, grade.task_id))
        problem = "its task is not in tasks.jsonl" if task is None else _misfit(grade, task)
        if problem:
            faults.append(Fault(str(run.folder), f"{problem}.", key=_name(grade)))
    if faults:
        more = [Fault(str(run.folder), f"and {len(faults) - SHOWN_FAULTS} more.")] if len(faults) > SHOWN_FAULTS else []
        raise FaultsError([*faults[:SHOWN_FAULTS], *more])


def _misfit(grade: Grade, task: Task) -> str | None:
    """Why verdicts cannot be scored, or None."""
    if grade.state != "scored":
        return None
    ids = [verdict["id"] for verdict in grade.verdicts]
    known = {criterion.id for criterion in task.criteria}
    if unknown := sorted(set(ids) - known):
        return f"it has verdicts for {', '.join(unknown)}, which are no criteria of the task"
    if len(set(ids)) < len(ids):
        return "it has two verdicts for one criterion"
    missing = sorted(known - set(ids))
    if missing and len(grade.metrics or {}) == 1:
        return f"it has no verdict for {', '.join(missing)}"
    return None


def _name(grade: Grade) -> str:
    return f"{grade.model}, {grade.subset}-{grade.key}" + (f", repeat {grade.repeat}" if grade.repeat > 1 else "")
