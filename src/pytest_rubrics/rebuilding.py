"""What follows from the records of a run alone: grades that were never made, the summary, a gate's decision."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pytest_rubrics.baselines import Baseline, baseline_of, read_baseline
from pytest_rubrics.evidence import Evidence
from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.figures import figures_of
from pytest_rubrics.gates import Decision, Gate
from pytest_rubrics.grades import Grade
from pytest_rubrics.plan import Case
from pytest_rubrics.records import SUMMARY, Run, read_run
from pytest_rubrics.tasks import Criterion, Task

_IN_A_MANIFEST = ("run", "started_at", "finished_at", "options", "models", "judge", "benchmarks")


def open_run(folder: Path) -> Run:
    """Read a run folder, also one of a run that is still going or was killed.

    Raises:
        FaultsError: It is no run folder, or its files hold something else than records.
    """
    try:
        run = read_run(folder)
        if missing := [key for key in _IN_A_MANIFEST if key not in run.manifest]:
            raise ValueError(f"manifest.json lacks {', '.join(missing)}")
    except (ValueError, TypeError, KeyError) as error:
        raise FaultsError([Fault(str(folder), f"holds files that are no records of a run: {error}.")]) from error
    return run


def all_grades(run: Run) -> Iterator[Grade]:
    """Every grade of a run; a selected one that has no line stands there as excluded."""
    yield from run.grades
    yield from missing_grades(run)


def evidence_of(run: Run) -> Evidence:
    """What a run comes to; a selected grade that has no line stands there as excluded."""
    tasks = {id_: task_from_record(row) for id_, row in run.tasks.items()}
    return Evidence(run.manifest, tasks, [*run.figures, *map(figures_of, missing_grades(run))])


def count_without_line(run: Run) -> int:
    """Number of selected grades that have no line: the run is still going, or was killed."""
    return len(missing_grades(run))


def count_selected(run: Run) -> int:
    """Number of grades that the run, or the last one in its folder, had selected."""
    return sum(len(entry["selected"]) for entry in run.manifest["benchmarks"].values())


def scores_in(path: Path) -> list[Baseline]:
    """What each model achieved, task by task: of a run folder, or of a baseline file.

    Raises:
        FaultsError: It is neither.
    """
    if path.is_file():
        return [read_baseline(path)]
    evidence = evidence_of(open_run(path))
    return [baseline_of(evidence, name) for name in evidence.results]


def rebuild_summary(run: Run, gate: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The contents of ``summary.json``, as the run itself would have written it.

    Args:
        run: The run.
        gate: The gate's entry; that of the summary that exists if not given.
    """
    return {"schema": 1, "parts": list(evidence_of(run).parts.values()), "gate": gate or _former_gate(run.folder)}


def decide(gate: Gate, run: Run) -> Decision:
    """What a gate says of a run, or of the last run in its folder.

    Raises:
        FaultsError: The gate is made for a benchmark that the run does not have.
    """
    if faults := gate.wrong_for(dict.fromkeys(run.manifest["benchmarks"], ())):
        raise FaultsError(faults)
    evidence = evidence_of(run)
    selected = {grade.id for grade in _selected(run)}
    return gate.decide(replace(evidence, figures=[each for each in evidence.figures if each.id in selected]))


def gate_entry(gate: Gate, decision: Decision) -> dict[str, Any]:
    """A decision as it stands in ``summary.json``."""
    verdict = decision.verdict
    return {"name": gate.name, "verdict": verdict.name, "exit_code": verdict.value, "reason": decision.reason}


def gate_sentence(entry: Mapping[str, Any]) -> str:
    """A gate's entry in ``summary.json`` as it stands in the terminal."""
    verdict, reason = entry["verdict"], entry["reason"]
    return f"gate {entry['name']}: {f'{verdict} ({reason})' if verdict else reason}"


def task_from_record(row: Mapping[str, Any]) -> Task:
    """A task from its line in ``tasks.jsonl``, which holds all but its markers."""
    criteria = tuple(Criterion(c["id"], c["text"], c["weight"], c["tag"]) for c in row["criteria"])
    names = ("benchmark", "key", "subset", "language", "prompt", "system_prompt", "groups", "cluster")
    value = row.get("value")
    return Task(
        id=row["task_id"],
        criteria=criteria,
        topics=tuple(row["topics"]),
        value=(value["currency"], value["amount"]) if value else None,
        **{name: row[name] for name in names},
    )


def missing_grades(run: Run) -> list[Grade]:
    """The selected grades that have no line, each as excluded."""
    made = {figures.id for figures in run.figures}
    return [grade for grade in _selected(run) if grade.id not in made]


def _selected(run: Run) -> Iterator[Grade]:
    """The selected grades, each as if it had never been made."""
    manifest = run.manifest
    (judge,) = manifest["judge"]
    wanted = {name: set(entry["selected"]) for name, entry in manifest["benchmarks"].items()}
    for model, settings in manifest["models"].items():
        for task in map(task_from_record, run.tasks.values()):
            for repeat in range(1, manifest["options"]["repeats"] + 1):
                if Case(task, model, repeat).id in wanted.get(task.benchmark, ()):
                    yield _unmade(task, model, settings["track"], judge, repeat)


def _unmade(task: Task, model: str, track: str, judge: str, repeat: int) -> Grade:
    return Grade(
        benchmark=task.benchmark,
        task_id=task.id,
        key=task.key,
        subset=task.subset,
        model=model,
        track=track,
        judge=judge,
        repeat=repeat,
        state="excluded",
        reason="interrupted",
        error="the run ended before this item",
        usage={part: {"input_tokens": 0, "output_tokens": 0} for part in ("answer", "judge")},
    )


def _former_gate(folder: Path) -> Any:
    path = folder / SUMMARY
    return json.loads(path.read_text(encoding="utf-8")).get("gate") if path.is_file() else None
