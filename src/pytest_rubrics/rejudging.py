"""The stored answers of a run, judged anew by another judge; nothing is generated."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_rubrics.answering.answer import Answer
from pytest_rubrics.benchmarks import Benchmark
from pytest_rubrics.calls.cache import ReplyStore, StoreError
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.config import LoadedJudge
from pytest_rubrics.credentials import missing_keys
from pytest_rubrics.faults import Fault, FaultsError, gather
from pytest_rubrics.grades import Grade, now
from pytest_rubrics.jobs import Contender, Job
from pytest_rubrics.options import RunConfig
from pytest_rubrics.plan import BenchmarkPlan, Plan, judge_templates, judging_faults
from pytest_rubrics.progress import Snapshot
from pytest_rubrics.rebuilding import task_from_record
from pytest_rubrics.records import Run, RunWriter, StoredGrades
from pytest_rubrics.scoring import Scoring
from pytest_rubrics.sources import Loaded
from pytest_rubrics.tasks import Task
from pytest_rubrics.wiring import Seat, Wiring
from pytest_rubrics.workspace import Workspace

# What a grade keeps of the run that made its answer.
_OF_THE_ANSWER = ("usage", "cost_usd", "keys", "seconds", "served_model", "cached")


@dataclass(frozen=True, slots=True)
class StoredAnswerer:
    """Answers with what a model gave in an earlier run.

    Attributes:
        grades: The grades of that run.
        places: Place of each among them, by benchmark, task id and repeat.
    """

    grades: StoredGrades
    places: Mapping[tuple[str, str, int], int]

    async def answer(self, task: Task, repeat: int, turn: Turn, *, anew: bool) -> Answer:
        """The recorded answer, or the failure that it was.

        Raises:
            CallError: The earlier run has none.
        """
        grade = self.grades[self.places[task.benchmark, task.id, repeat]]
        if grade.answer is not None:
            return Answer(
                grade.answer,
                truncated=grade.truncated,
                finish_reason=grade.finish_reason,
                trajectory=grade.trajectory,
            )
        if grade.state == "failed":
            return Answer(None, failure=grade.reason, error=grade.error, finish_reason=grade.finish_reason)
        raise CallError("no_answer", f"the run has no answer to judge: {grade.reason} ({grade.error})")


@dataclass(frozen=True, slots=True)
class Rejudging:
    """Judges the answers of a run anew, into another run folder.

    Attributes:
        run: The run.
        judge: The new judge.
        benchmarks: Those of the run, which say how they are judged.
        workspace: Where prompts are looked up.
        config: Options of the new run.
    """

    run: Run
    judge: LoadedJudge
    benchmarks: Mapping[str, Benchmark]
    workspace: Workspace
    config: RunConfig

    def grades(self, warn: Callable[[str], None], tick: Callable[[Snapshot], None]) -> Iterator[Grade]:
        """Write the new run, yielding each grade once it is on disk.

        Args:
            warn: Takes a message for the user.
            tick: Called now and then while a grade is awaited.

        Raises:
            FaultsError: There is something in the run folder, or the judge does not fit.
        """
        plan = self._plan()
        try:
            wiring = Wiring(plan, Seat(), ReplyStore(self.config.cache_dir, warn=warn))
        except StoreError as error:
            raise FaultsError([Fault("--cache-dir", str(error))]) from error
        writer = RunWriter(self.config.run_dir)
        manifest = self._manifest(plan)
        writer.write_manifest(manifest)
        writer.write_tasks(task for entry in plan.benchmarks.values() for task in entry.data.tasks)
        try:
            wiring.engine.jobs = self._jobs(plan, wiring)
            wiring.engine.launch()
            for index, former in enumerate(self.run.grades):
                grade = wiring.engine.grade(index, tick=lambda: tick(wiring.snapshot()))
                _keep_answer(grade, former)
                writer.append(grade)
                yield grade
            writer.write_manifest({**manifest, "finished_at": now()})
        except (KeyboardInterrupt, GeneratorExit):
            wiring.engine.interrupt()
            raise
        finally:
            writer.close()
            if message := wiring.close():
                warn(message)

    def _plan(self) -> Plan:
        """What is to be done, checked."""
        folder = self.config.run_dir
        faults: list[Fault] = []
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            faults.append(Fault(f"--run-dir {folder}", "is not empty.", fix="Name a new folder."))
        plans = {}
        for name, benchmark in self.benchmarks.items():
            entry = self.run.manifest["benchmarks"][name]
            tasks = [task_from_record(row) for (owner, _), row in self.run.tasks.items() if owner == name]
            data = Loaded(tasks, dict(entry["sha256"]), entry["source"])
            with gather(faults):
                templates = judge_templates(benchmark, self.judge, self.workspace)
                plans[name] = BenchmarkPlan(benchmark, data, entry["source"], templates=templates)
            faults += judging_faults(benchmark, self.judge)
        faults += missing_keys([("--judge", member.config) for member in self.judge.members], self.config)
        if faults:
            raise FaultsError(faults)
        return Plan(self.config, self.workspace, [], self.judge, None, plans)

    def _jobs(self, plan: Plan, wiring: Wiring) -> list[Job]:
        tasks = {(task.benchmark, task.id): task for entry in plan.benchmarks.values() for task in entry.data.tasks}
        benches = {
            name: replace(wiring.bench(entry, self.judge, entry.templates), scoring=self._scoring(name))
            for name, entry in plan.benchmarks.items()
        }
        contenders = {
            model: Contender(model, settings["track"], StoredAnswerer(self.run.grades, self._places(model)), None)
            for model, settings in self.run.manifest["models"].items()
        }
        return [
            Job(tasks[each.benchmark, each.task_id], contenders[each.model], benches[each.benchmark], each.repeat)
            for each in self.run.figures
        ]

    def _places(self, model: str) -> dict[tuple[str, str, int], int]:
        return {
            (each.benchmark, each.task_id, each.repeat): place
            for place, each in enumerate(self.run.figures)
            if each.model == model
        }

    def _scoring(self, benchmark: str) -> Scoring:
        rule = self.run.manifest["benchmarks"][benchmark]["scoring"]
        return Scoring(rule["metric"], rule["clip"], rule["pass_at"])

    def _manifest(self, plan: Plan) -> dict[str, Any]:
        """The manifest of the run, with what the new judge changes."""
        old, config = self.run.manifest, self.config
        changed = {
            "judge": config.judge,
            "run_dir": str(config.run_dir),
            "cache_dir": str(config.cache_dir),
            "cache_mode": config.cache_mode,
            "concurrency": config.concurrency,
            "max_cost": config.max_cost,
            "retry": config.retry,
            "gate": None,
        }
        judging = {
            name: {
                "judging": entry.benchmark.spec.judging.model_dump(exclude_none=True),
                "prompts_sha256": entry.prompts_sha256,
            }
            for name, entry in plan.benchmarks.items()
        }
        return {
            **old,
            "run": config.run,
            "started_at": now(),
            "finished_at": None,
            "command": sys.argv[1:],
            "options": {**old["options"], **changed},
            "judge": {self.judge.name: self.judge.settings()},
            "benchmarks": {name: {**entry, **judging.get(name, {})} for name, entry in old["benchmarks"].items()},
            "answers_from": str(self.run.folder),
        }


def _keep_answer(grade: Grade, former: Grade) -> None:
    """What the answer used and cost, and which model gave it, is as it was; this run paid for the judge alone."""
    for name in _OF_THE_ANSWER:
        values, before = getattr(grade, name), getattr(former, name)
        if "answer" in before:
            values["answer"] = before["answer"]
