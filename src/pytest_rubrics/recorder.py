"""The controller's book of a run: which items were selected, what became of each, and what follows from it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest_rubrics
from pytest_rubrics.evidence import Evidence
from pytest_rubrics.figures import Figures, figures_of
from pytest_rubrics.gates import Decision
from pytest_rubrics.grades import Grade, now
from pytest_rubrics.latencies import Observed
from pytest_rubrics.plan import BenchmarkPlan, Case, Plan
from pytest_rubrics.records import RESULTS, Run, RunWriter, StoredGrades, TaskRecords


@dataclass(frozen=True, slots=True, repr=False)
class Selected:
    """A selected item."""

    plan: BenchmarkPlan
    case: Case


@dataclass(slots=True, repr=False)
class Recorder:
    """Keeps exactly one line for every selected item.

    Attributes:
        plan: What the run does.
        writer: The run folder.
        selected: Selected items by node id, in their order.
        open: Grades of items that have not finished yet.
        rerunning: Items whose last attempt is to be run again.
        written: Node ids that have their line.
        figures: Numbers of what was written, for the summary.
        observed: Seconds that the answers took, for the order of the next run.
    """

    plan: Plan
    writer: RunWriter
    selected: dict[str, Selected] = field(default_factory=dict)
    open: dict[str, Grade] = field(default_factory=dict)
    rerunning: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    figures: list[Figures] = field(default_factory=list)
    observed: Observed = field(default_factory=Observed)
    _problems: dict[str, tuple[str, str]] = field(default_factory=dict)
    _started_at: str = field(default_factory=now)
    _manifest: Mapping[str, Any] = field(default_factory=dict)
    _tasks: TaskRecords = field(default_factory=dict)
    _evidence: Evidence | None = None

    def select(self, selected: Mapping[str, Selected]) -> None:
        """Take the selection and begin the run folder."""
        self.selected = dict(selected)
        if self.selected:
            self._write_manifest(finished_at=None)
            self._tasks = self.writer.write_tasks(item.case.task for item in self._tasks_once())

    def take(self, nodeid: str, record: Mapping[str, Any]) -> None:
        """Keep a grade until its item has finished: a rerun may still replace it."""
        self.open[nodeid] = Grade.from_record(record)

    def note_problem(self, nodeid: str, reason: str, error: str) -> None:
        """Remember why an item has no grade."""
        self._problems.setdefault(nodeid, (reason, error))

    def drop(self, nodeid: str) -> None:
        """Forget what an item gave so far: it is run again."""
        self.rerunning.add(nodeid)
        self.open.pop(nodeid, None)
        self._problems.pop(nodeid, None)

    def finish(self, nodeid: str) -> None:
        """Write the line of an item that has finished."""
        item = self.selected.get(nodeid)
        if item is None or nodeid in self.written:
            return
        reason, error = self._problems.pop(nodeid, ("error", "the item ended without a grade"))
        grade = self.open.pop(nodeid) if nodeid in self.open else self._excluded(item, reason, error)
        self._write(nodeid, grade)

    def finish_rest(self, reason: str, error: str) -> None:
        """Write the line of every selected item that has none yet."""
        for nodeid, item in self.selected.items():
            if nodeid in self.open:
                self.finish(nodeid)
            elif nodeid not in self.written:
                why = self._problems.get(nodeid, (reason, error))
                self._write(nodeid, self._excluded(item, *why))

    def unreported(self) -> int:
        """Selected items that have no line."""
        return len(self.selected) - len(self.written)

    def close(self, decision: Mapping[str, Any] | None) -> dict[str, Any]:
        """Write manifest and summary, and return the summary."""
        self.writer.close()
        self.observed.save(self.plan.config.cache_dir)
        self._write_manifest(finished_at=now())
        summary = {"schema": 1, "parts": self.summary(), "gate": decision}
        self.writer.write_summary(summary)
        return summary

    def summary(self) -> list[dict[str, Any]]:
        """Figures of everything in the run folder: a folder used twice holds earlier grades too."""
        return list(self.outcome()[1].parts.values())

    def outcome(self) -> tuple[Run, Evidence]:
        """What the run folder holds, and what it comes to; read again only where it holds earlier grades too."""
        if self.writer.had_results:
            from pytest_rubrics.rebuilding import evidence_of, open_run

            run = open_run(self.writer.folder)
            return run, evidence_of(run)
        grades = StoredGrades(self.writer.folder / RESULTS, self.writer.offsets)
        run = Run(self.writer.folder, self._manifest, self._tasks, self.figures, grades)
        return run, self.evidence

    def decide(self) -> Decision | None:
        """What the gate says; None without one."""
        gate = self.plan.gate
        return None if gate is None else gate.decide(self.evidence)

    @property
    def evidence(self) -> Evidence:
        """What this run came to, once every item has its line."""
        if self._evidence is None:
            tasks = {(task.benchmark, task.id): task for p in self.plan.benchmarks.values() for task in p.data.tasks}
            self._evidence = Evidence(self._manifest, tasks, self.figures)
        return self._evidence

    def _write(self, nodeid: str, grade: Grade) -> None:
        self.writer.append(grade)
        self.written.add(nodeid)
        self.figures.append(figures_of(grade))
        self.observed.note(grade)

    def _excluded(self, item: Selected, reason: str, error: str) -> Grade:
        task = item.case.task
        model = next(model for model in self.plan.models if model.name == item.case.model)
        return Grade(
            benchmark=task.benchmark,
            task_id=task.id,
            key=task.key,
            subset=task.subset,
            model=model.name,
            track=model.config.track,
            judge=self.plan.judge.name,
            repeat=item.case.repeat,
            state="excluded",
            reason=reason,
            error=error,
            usage={part: {"input_tokens": 0, "output_tokens": 0} for part in ("answer", "judge")},
            finished_at=now(),
        )

    def _tasks_once(self) -> Sequence[Selected]:
        return list({(s.case.task.benchmark, s.case.task.id): s for s in self.selected.values()}.values())

    def _write_manifest(self, finished_at: str | None) -> None:
        plan, config = self.plan, self.plan.config
        options = {
            name: str(value) if name.endswith("_dir") else value
            for name, value in asdict(config).items()
            if name not in {"run", "started_at"}
        }
        self._manifest = {
            "schema": 1,
            "run": config.run,
            "started_at": self._started_at,
            "finished_at": finished_at,
            "versions": _versions(),
            "command": sys.argv[1:],
            "options": options,
            **settings_of(plan, self.selected.values()),
        }
        self.writer.write_manifest(self._manifest)


def settings_of(plan: Plan, selected: Iterable[Selected] = ()) -> dict[str, Any]:
    """Models, judge and benchmarks of a plan, as they stand in a manifest."""
    from pytest_rubrics.config import settings_without_secrets

    return {
        "models": {model.name: settings_without_secrets(model.config) for model in plan.models},
        "judge": {plan.judge.name: plan.judge.settings()},
        "benchmarks": {name: _benchmark_entry(entry, selected) for name, entry in plan.benchmarks.items()},
    }


def _benchmark_entry(plan: BenchmarkPlan, selected: Iterable[Selected]) -> dict[str, Any]:
    return {
        "title": plan.benchmark.spec.title,
        "source": plan.data.origin,
        "sha256": plan.data.checksum,
        "tasks": len(plan.data.tasks),
        "scoring": asdict(plan.benchmark.scoring),
        "judging": plan.benchmark.spec.judging.model_dump(exclude_none=True),
        "prompts_sha256": plan.prompts_sha256,
        "subsets": list(dict.fromkeys(task.subset for task in plan.data.tasks)),
        "selected": [item.case.id for item in selected if item.plan is plan],
    }


@cache
def _versions() -> dict[str, str]:
    found = {"pytest-rubrics": pytest_rubrics.__version__, "python": platform.python_version()}
    for name in ("pytest", "pytest-xdist", "litellm", "diskcache"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
