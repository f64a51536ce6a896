"""The run folder: what one run leaves behind, and how it is read again."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.grades import Grade, GradeId
from pytest_rubrics.redaction import redact_json
from pytest_rubrics.tasks import Task

MANIFEST = "manifest.json"
TASKS = "tasks.jsonl"
RESULTS = "results.jsonl"
SUMMARY = "summary.json"


@dataclass(slots=True)
class RunWriter:
    """Writes a run folder; everything goes through the redaction of secrets.

    Attributes:
        folder: The run folder; made when the first file is written.
        had_results: Whether the folder holds grades of an earlier run.
    """

    folder: Path
    had_results: bool = False
    _results: io.TextIOWrapper | None = None

    def __post_init__(self) -> None:
        self.had_results = (self.folder / RESULTS).exists()

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write ``manifest.json``."""
        self._write_json(MANIFEST, manifest)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json``."""
        self._write_json(SUMMARY, summary)

    def write_text(self, name: str, text: str) -> Path:
        """Write a report."""
        from pytest_rubrics.redaction import redact

        path = self.folder / name
        _replace(path, redact(text))
        return path

    def write_tasks(self, tasks: Iterable[Task]) -> None:
        """Write ``tasks.jsonl``; tasks of an earlier run in the same folder stay."""
        lines = {_task_line_id(row): row for row in _read_lines(self.folder / TASKS)}
        lines.update({_task_line_id(row): row for row in map(task_record, tasks)})
        _replace(self.folder / TASKS, "".join(_dump(redact_json(row)) + "\n" for row in lines.values()))

    def append(self, grade: Grade) -> None:
        """Append one grade to ``results.jsonl`` and flush."""
        if self._results is None:
            self._results = _open_for_append(self.folder / RESULTS)
        self._results.write(_dump(redact_json(grade.to_record())) + "\n")
        self._results.flush()

    def close(self) -> None:
        """Close ``results.jsonl``."""
        if self._results is not None:
            self._results.close()
            self._results = None

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        text = json.dumps(redact_json(value), ensure_ascii=False, indent=2, allow_nan=False)
        _replace(self.folder / name, text + "\n")


@dataclass(frozen=True, slots=True)
class Run:
    """A run folder, read.

    Attributes:
        folder: Where it is.
        manifest: What was run.
        tasks: Records of tasks by (benchmark, task id).
        grades: The last grade of every id, in the order of their first appearance.
        broken_lines: Lines of ``results.jsonl`` that could not be read, such as one cut off by a kill.
    """

    folder: Path
    manifest: Mapping[str, Any]
    tasks: Mapping[tuple[str, str], Mapping[str, Any]]
    grades: list[Grade]
    broken_lines: int = 0


def read_run(folder: Path) -> Run:
    """Read a run folder, also one of a run that is still going or was killed.

    Raises:
        FaultsError: It is no run folder.
    """
    if not (folder / MANIFEST).is_file():
        raise FaultsError(
            [Fault(str(folder), f"is no run folder: it holds no {MANIFEST}.", fix="Give a folder below reports/.")]
        )
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    tasks = {_task_line_id(row): row for row in _read_lines(folder / TASKS)}
    broken: list[int] = []
    grades: dict[GradeId, Grade] = {}
    for row in _read_lines(folder / RESULTS, broken):
        grade = Grade.from_record(row)
        grades[grade.id] = grade
    return Run(folder, manifest, tasks, list(grades.values()), len(broken))


def task_record(task: Task) -> dict[str, Any]:
    """A task as plain JSON types."""
    return {
        "benchmark": task.benchmark,
        "task_id": task.id,
        "key": task.key,
        "subset": task.subset,
        "language": task.language,
        "topics": list(task.topics),
        "groups": dict(task.groups),
        "cluster": task.cluster,
        "system_prompt": task.system_prompt,
        "prompt": task.prompt,
        "criteria": [{"id": c.id, "text": c.text, "weight": c.weight, "tag": c.tag} for c in task.criteria],
    }


def _task_line_id(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row.get("benchmark")), str(row.get("task_id"))


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def _replace(path: Path, text: str) -> None:
    """Write a whole file so that a reader, or a crash, never meets half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    partial.replace(path)


def _open_for_append(path: Path) -> io.TextIOWrapper:
    """Open for appending; a line that a kill cut off is ended first, so that the next one stands alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_off = path.exists() and not _ends_in_newline(path)
    file = path.open("a", encoding="utf-8", errors="backslashreplace", newline="\n")
    if cut_off:
        file.write("\n")
    return file


def _ends_in_newline(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, io.SEEK_END) == 0:
            return True
        file.seek(-1, io.SEEK_END)
        return file.read(1) == b"\n"


def _read_lines(path: Path, broken: list[int] | None = None) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                row = None
            if isinstance(row, dict):
                yield row
            elif broken is not None:
                broken.append(number)
