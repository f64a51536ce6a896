"""What one model achieved in one run, task by task: what runs are compared by, and the file that teams commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pytest_rubrics.comparability import fingerprint, judge_fingerprint, settings_of, task_fingerprint
from pytest_rubrics.evidence import Evidence
from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.summary import PartName
from pytest_rubrics.task_results import TaskResult

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class TaskScore:
    """One task in a baseline.

    Attributes:
        key, subset, track, cluster: As in the task.
        fingerprint: Names prompt, criteria and weights.
        score: Mean score over the graded repeats; None where all were excluded.
        passed: Share of them that passed; None likewise, and without a pass mark.
    """

    key: str
    subset: str
    track: str
    cluster: str
    fingerprint: str
    score: float | None
    passed: float | None


@dataclass(frozen=True, slots=True)
class Baseline:
    """What one model achieved in one run.

    Attributes:
        benchmark, model, judge: Names.
        run: Id of the run.
        finished_at: End of the run, UTC, in ISO 8601; None while it is going.
        source: Where the tasks came from.
        repeats: Answers per task.
        selected: Selected grades.
        whole: Grades that the whole selection would have had.
        settings: What the scores were made with: ``judge``, ``prompts``, ``scoring``.
        tasks: Score of each task by its id.
    """

    benchmark: str
    model: str
    judge: str
    run: str
    finished_at: str | None
    source: str
    repeats: int
    selected: int
    whole: int
    settings: Mapping[str, Any]
    tasks: Mapping[str, TaskScore]

    @property
    def metric(self) -> str:
        """Name of the score."""
        return str(self.settings["scoring"]["metric"])

    @property
    def bounds(self) -> tuple[float, float] | None:
        """Range of the metric, or None."""
        return (0.0, 1.0) if self.settings["scoring"]["clip"] else None

    @property
    def pass_at(self) -> float | None:
        """The pass mark, or None."""
        mark = self.settings["scoring"]["pass_at"]
        return None if mark is None else float(mark)

    @property
    def fingerprints(self) -> dict[str, str]:
        """Short names of judge, prompts, data and scoring."""
        return {
            "judge": judge_fingerprint(self.settings),
            "prompts": fingerprint(self.settings["prompts"]),
            "data": fingerprint({id_: task.fingerprint for id_, task in self.tasks.items()}),
            "scoring": fingerprint(self.settings["scoring"]),
        }


def baseline_of(evidence: Evidence, name: PartName, *, fingerprints: bool = True) -> Baseline:
    """What one model achieved in a run.

    Args:
        evidence: The run.
        name: Benchmark, model and judge.
        fingerprints: Whether tasks get theirs, which takes time and only a comparison needs.
    """
    benchmark, model, judge = name
    manifest = evidence.manifest
    entry = manifest["benchmarks"][benchmark]
    results = evidence.results[name]
    served = {grade.served_judge for result in results for grade in result.grades if grade.served_judge}
    return Baseline(
        benchmark=benchmark,
        model=model,
        judge=judge,
        run=manifest["run"],
        finished_at=manifest["finished_at"],
        source=entry["source"],
        repeats=manifest["options"]["repeats"],
        selected=sum(len(result.grades) for result in results),
        whole=entry["tasks"] * manifest["options"]["repeats"],
        settings=settings_of(manifest, benchmark, judge, served),
        tasks={result.id: _score(result, evidence, fingerprints) for result in results},
    )


def _score(result: TaskResult, evidence: Evidence, fingerprints: bool) -> TaskScore:
    task = evidence.tasks.get((result.grades[0].benchmark, result.id)) if fingerprints else None
    return TaskScore(
        key=result.key,
        subset=result.subset,
        track=result.facts.track,
        cluster=result.facts.cluster,
        fingerprint=task_fingerprint(task) if task else "",
        score=result.score,
        passed=result.passed,
    )


def to_text(baseline: Baseline) -> str:
    """The contents of a baseline file: JSON with a line for each task, so that changes can be read in a diff."""
    head = {
        "schema": SCHEMA,
        **{name: getattr(baseline, name) for name in Baseline.__slots__ if name != "tasks"},
        "fingerprints": baseline.fingerprints,
    }
    lines = ",\n".join(f"  {_dump(id_)}: {_dump(asdict(task))}" for id_, task in baseline.tasks.items())
    return f'{json.dumps(head, ensure_ascii=False, indent=1, allow_nan=False)[:-2]},\n "tasks": {{\n{lines}\n }}\n}}\n'


def read_baseline(path: Path, *, shown_as: str | None = None) -> Baseline:
    """Read a baseline file.

    Args:
        path: The file.
        shown_as: Its name in messages; the path if not given.

    Raises:
        FaultsError: It is missing, or no baseline file.
    """
    name = shown_as or str(path)
    fix = "Write one with: rubrics baseline RUN --out FILE"
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FaultsError([Fault(name, f"cannot be read as a baseline: {error}.", fix=fix)]) from error
    try:
        tasks = {id_: TaskScore(**task) for id_, task in row["tasks"].items()}
        return Baseline(**{key: row[key] for key in Baseline.__slots__ if key != "tasks"}, tasks=tasks)
    except (KeyError, TypeError, AttributeError) as error:
        raise FaultsError([Fault(name, f"is no baseline file: {error!r}.", fix=fix)]) from error


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
