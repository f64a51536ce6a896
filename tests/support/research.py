"""Workspaces with ResearchRubrics, ready answers, and a judge that knows the verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from pytest_rubrics.tasks import Task
from tests.support.benchmarks import write_jsonl
from tests.support.provider import Provider
from tests.support.shared import shared_data
from tests.support.workspaces import Workspace

BENCHMARK = "researchrubrics"
REPORT = "# Findings\n\nThe report states everything that is asked for.\n"


class Research(Workspace):
    """A workspace with ResearchRubrics and a model whose answers are ready.

    Args:
        root: The folder.
        server: The provider, where the judge is.
        rows: The tasks, as published.
        answers: Task id to answer.
        client: What calls the provider.
    """

    def __init__(
        self,
        root: Path,
        server: Provider,
        rows: Sequence[Mapping[str, Any]],
        answers: Mapping[str, str],
        *,
        client: str = "openai",
    ) -> None:
        super().__init__(root, server, client=client)
        self.data = write_jsonl(root / "data" / "processed_data.jsonl", rows)
        self.source = ["--source", str(self.data)]
        self.answers(answers)

    def module(self, text: str) -> None:
        """Write the test module."""
        self._write(f"benchmarks/{BENCHMARK}/test_{BENCHMARK}.py", text)

    def answers(self, answers: Mapping[str, str]) -> None:
        """Write the ready answers."""
        rows = [{"task_id": task_id, "answer": text} for task_id, text in answers.items()]
        write_jsonl(self.root / "answers.jsonl", rows)
        self._write("configs/models/local.yaml", json.dumps({"kind": "recorded", "answers": "answers.jsonl"}))


def published_rows() -> list[dict[str, Any]]:
    """The rows of ResearchRubrics that are at hand."""
    path = shared_data() / BENCHMARK / "processed_data.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def research_row(name: str = "r1", weights: Sequence[float] = (5.0, 3.0, -2.0)) -> dict[str, Any]:
    """A row as ResearchRubrics publishes them, with a criterion for each weight."""
    return {
        "prompt": f"Write a report on the subject {name}.",
        "sample_id": name,
        "domain": "AI & ML",
        "conceptual_breadth": "Simple",
        "logical_nesting": "Shallow",
        "exploration": "Low",
        "rubrics": [
            {"criterion": criterion(name, number), "weight": weight, "axis": "Explicit Criteria"}
            for number, weight in enumerate(weights, 1)
        ],
    }


def criterion(name: str, number: int) -> str:
    """The text of a criterion of `research_row`."""
    return f"The report on {name} states finding number {number:02} in full."


def truth(name: str, *hits: int, of: int = 3) -> dict[str, bool]:
    """Verdicts for the criteria of `research_row`: those of these numbers are hit."""
    return {criterion(name, number): number in hits for number in range(1, of + 1)}


def compliance(task: Task, verdicts: Mapping[str, float]) -> float:
    """The weight that was hit over the weight that can be had, from exact fractions."""
    weights = {one.id: Fraction(one.weight) for one in task.criteria}
    possible = sum(weight for weight in weights.values() if weight > 0)
    return float(sum(weights[name] * Fraction(value) for name, value in verdicts.items()) / possible)


def prompts(server: Provider, beginning: int = 0) -> list[str]:
    """The first message of every judge's request, from a certain one on."""
    return [r.body["messages"][0]["content"] for r in server.requests[beginning:] if r.kind == "judge"]


def fenced(prompt: str, name: str) -> str:
    """What stands between the lines of a fence, such as ``report``."""
    lines = prompt.split("\n")
    start = next(number for number, line in enumerate(lines) if line.startswith("-----") and f" {name}" in line)
    mark = lines[start].split()[1]
    end = next(number for number in range(start + 1, len(lines)) if lines[number].startswith(f"----- {mark}"))
    return "\n".join(lines[start + 1 : end])


def verdict(value: str, score: float) -> str:
    """A judge's reply on one criterion."""
    return json.dumps({"verdict": value, "score": score, "reasoning": "So it stands there."})


def hits(grade_verdicts: Iterable[Mapping[str, Any]]) -> dict[str, bool]:
    """Verdicts of a grade by criterion."""
    return {row["id"]: row["hit"] for row in grade_verdicts}
