"""Known verdicts for tasks, and the score that follows from them, worked out apart from the package's own scoring."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from pytest_rubrics.tasks import Criterion, Task

Truth = dict[str, dict[str, bool]]


def _unit(*parts: str) -> float:
    digest = hashlib.sha256("\n".join(parts).encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


def verdict(question: str, criterion_id: str, seed: int = 0) -> bool:
    """Return a verdict that looks random and is always the same.

    The share of hits differs by question, so that the scores of many tasks spread over the whole range; the square
    makes enough tasks good ones, though penalties are hit as often as rewards.
    """
    question = question.strip()
    return _unit(str(seed), question, criterion_id) > _unit(str(seed), question) ** 2


def truth_of(tasks: Iterable[Task], seed: int = 0) -> Truth:
    """Return verdicts for loaded tasks: prompt -> criterion id -> hit. With seed 0 they are the server's default."""
    return {task.prompt: {c.id: verdict(task.prompt, c.id, seed) for c in task.criteria} for task in tasks}


def criteria_truth_of(tasks: Iterable[Task], truth: Truth) -> dict[str, bool]:
    """Return the same verdicts by the text of the criterion, for a judge that sees one criterion per call.

    Raises:
        ValueError: When two criteria with one text have different verdicts, so that the text cannot decide.
    """
    by_text: dict[str, bool] = {}
    for task in tasks:
        for criterion in task.criteria:
            hit = truth[task.prompt][criterion.id]
            if by_text.setdefault(criterion.text, hit) != hit:
                raise ValueError(f"two criteria share this text and differ in their verdicts: {criterion.text!r}")
    return by_text


def expert_score(task: Task, verdicts: Mapping[str, bool]) -> float:
    """Return the weight that was hit over the weight that can be had, held inside 0 and 1, from exact fractions."""
    weights = {criterion.id: Fraction(criterion.weight) for criterion in task.criteria}
    possible = sum(weight for weight in weights.values() if weight > 0)
    hit = sum((weight for name, weight in weights.items() if verdicts[name]), start=Fraction(0))
    return float(min(Fraction(1), max(Fraction(0), hit / possible)))


def published_tasks(path: Path) -> list[Task]:
    """Read tasks as published, a file or a folder of them: OneMillion-Bench (JSON) or ResearchRubrics (JSONL)."""
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.suffix in {".json", ".jsonl"})
    tasks = [_task(row) for file in files for row in _rows(file)]
    if not tasks:
        raise FileNotFoundError(f"{path}: no .json or .jsonl file with tasks")
    return tasks


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    text = file.read_text(encoding="utf-8")
    rows = json.loads(text) if file.suffix == ".json" else [json.loads(line) for line in text.split("\n") if line]
    yield from rows


def _task(row: dict[str, Any]) -> Task:
    if "question" in row:
        criteria = [
            Criterion(str(r["rubric_number"]), r["rubric_detail"].strip(), r["rubric_weight"]) for r in row["rubrics"]
        ]
        chinese = row["language"] == "cn"
        name, key, prompt, benchmark = row["id"], str(row["case_id"]), row["question"], "one_million_bench"
    else:
        criteria = [
            Criterion(str(n), r["criterion"].strip(), r["weight"]) for n, r in enumerate(row["rubrics"], start=1)
        ]
        chinese = False
        name, key, prompt, benchmark = row["sample_id"], row["sample_id"], row["prompt"], "research_rubrics"
    return Task(benchmark, name, key, "all", "zh" if chinese else "en", prompt, tuple(criteria))
