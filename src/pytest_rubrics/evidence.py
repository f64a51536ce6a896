"""What a run comes to: its grades, each task's result, and their summary, whether it has just ended or was read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pytest_rubrics.facts import TaskFacts, facts_of
from pytest_rubrics.figures import Figures
from pytest_rubrics.summary import PartName, results_by_part, summary_part
from pytest_rubrics.task_results import TaskResult
from pytest_rubrics.tasks import Task


@dataclass(frozen=True)
class Evidence:
    """The numbers of a run, and what they are numbers of.

    Attributes:
        manifest: What was run.
        tasks: Its tasks by (benchmark, task id).
        figures: Of every selected grade; one that was never made is among them as excluded.
    """

    manifest: Mapping[str, Any]
    tasks: Mapping[tuple[str, str], Task] = field(repr=False)
    figures: Sequence[Figures] = field(repr=False)

    @cached_property
    def facts(self) -> dict[tuple[str, str], TaskFacts]:
        """What summing up needs to know of the tasks."""
        facts: dict[tuple[str, str], TaskFacts] = {}
        for name, entry in self.manifest["benchmarks"].items():
            own = [task for (benchmark, _), task in self.tasks.items() if benchmark == name]
            rule = entry["scoring"]
            facts |= facts_of(own, clip=rule["clip"], pass_at=rule["pass_at"])
        return facts

    @cached_property
    def results(self) -> dict[PartName, list[TaskResult]]:
        """The tasks of each benchmark x model x judge."""
        return results_by_part(sorted(self.figures, key=self._place), self.facts)

    @cached_property
    def _places(self) -> dict[object, int]:
        return {name: number for number, name in enumerate([*self.manifest.get("models", ()), *self.tasks])}

    def _place(self, figures: Figures) -> tuple[int, int, int]:
        """Grades come as they were finished; what is made of them does not depend on that."""
        last = len(self._places)
        task = self._places.get((figures.benchmark, figures.task_id), last)
        return self._places.get(figures.model, last), task, figures.repeat

    @cached_property
    def parts(self) -> dict[PartName, dict[str, Any]]:
        """The summary of each benchmark x model x judge."""
        return {name: summary_part(name, results) for name, results in self.results.items()}
