"""The run folder: what one run leaves behind, and how it is read again."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, overload

from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.figures import Figures, figures_of
from pytest_rubrics.grades import Grade, GradeId
from pytest_rubrics.redaction import is_clean, redact_json
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
        offsets: Where the line of each appended grade begins.
    """

    folder: Path
    had_results: bool = False
    offsets: list[int] = field(default_factory=list)
    _results: io.BufferedWriter | None = None

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
        replace_text(path, redact(text))
        return path

    def write_tasks(self, tasks: Iterable[Task]) -> TaskRecords:
        """Write ``tasks.jsonl``, and return what stands there; tasks of an earlier run in the same folder stay."""
        rows = [*_read_lines(self.folder / TASKS), *map(task_record, tasks)]
        records, lines = {}, {}
        for row in rows:
            id_ = _task_line_id(row)
            records[id_], lines[id_] = _redacted(row)
        replace_text(self.folder / TASKS, "".join(lines.values()))
        return records

    def append(self, grade: Grade) -> None:
        """Append one grade to ``results.jsonl`` and flush."""
        if self._results is None:
            self._results = _open_for_append(self.folder / RESULTS)
        _, line = _redacted(grade.to_record())
        self.offsets.append(self._results.tell())
        self._results.write(line.encode("utf-8", "backslashreplace"))
        self._results.flush()

    def close(self) -> None:
        """Close ``results.jsonl``."""
        if self._results is not None:
            self._results.close()
            self._results = None

    def _write_json(self, name: str, value: Mapping[str, Any]) -> None:
        text = json.dumps(redact_json(value), ensure_ascii=False, indent=2, allow_nan=False)
        replace_text(self.folder / name, text + "\n")


@dataclass(frozen=True, slots=True, repr=False)
class StoredGrades(Sequence[Grade]):
    """Whole grades, read from ``results.jsonl`` one at a time: all answers of a large run would not fit into memory.

    Attributes:
        path: The file.
        offsets: Where the line of each grade begins.
    """

    path: Path
    offsets: Sequence[int]

    def __len__(self) -> int:
        """Number of grades."""
        return len(self.offsets)

    def __iter__(self) -> Iterator[Grade]:
        """Read the grades in their order."""
        if not self.offsets:
            return
        with self.path.open("rb") as file:
            for offset in self.offsets:
                file.seek(offset)
                yield Grade.from_record(json.loads(file.readline()))

    @overload
    def __getitem__(self, index: int) -> Grade: ...
    @overload
    def __getitem__(self, index: slice) -> StoredGrades: ...
    def __getitem__(self, index: int | slice) -> Grade | StoredGrades:
        """Read one grade, or point to some of them."""
        if isinstance(index, slice):
            return StoredGrades(self.path, self.offsets[index])
        (grade,) = StoredGrades(self.path, [self.offsets[index]])
        return grade


TaskRecords: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
"""Records of tasks by (benchmark, task id)."""


@dataclass(frozen=True, slots=True, repr=False)
class Run:
    """A run folder, read.

    Attributes:
        folder: Where it is.
        manifest: What was run.
        tasks: Its tasks.
        figures: Numbers of the last grade of every id, in the order of their first appearance.
        grades: The same grades with answers and justifications, read anew from the file whenever they are asked for.
        broken_lines: Lines of ``results.jsonl`` that could not be read, such as one cut off by a kill.
    """

    folder: Path
    manifest: Mapping[str, Any]
    tasks: TaskRecords
    figures: list[Figures]
    grades: StoredGrades
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
    last: dict[GradeId, tuple[int, Figures]] = {}
    for offset, row in _read_rows(folder / RESULTS, broken):
        figures = figures_of(Grade.from_record(row))
        last[figures.id] = offset, figures
    offsets = [offset for offset, _ in last.values()]
    numbers = [figures for _, figures in last.values()]
    return Run(folder, manifest, tasks, numbers, StoredGrades(folder / RESULTS, offsets), len(broken))


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
        "value": None if task.value is None else {"currency": task.value[0], "amount": task.value[1]},
        "system_prompt": task.system_prompt,
        "prompt": task.prompt,
        "criteria": [{"id": c.id, "text": c.text, "weight": c.weight, "tag": c.tag} for c in task.criteria],
    }


def _task_line_id(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row.get("benchmark")), str(row.get("task_id"))


def _redacted(record: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """A record without secrets, and its line."""
    line = _dump(record)
    if not is_clean(line):
        record = redact_json(record)
        line = _dump(record)
    return record, line + "\n"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(", ", ": "))


def replace_text(path: Path, text: str) -> None:
    """Write a whole file so that a reader, or a crash, never meets half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".part")
    partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    partial.replace(path)


def _open_for_append(path: Path) -> io.BufferedWriter:
    """Open for appending; a line that a kill cut off is ended first, so that the next one stands alone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cut_off = path.exists() and not _ends_in_newline(path)
    file = path.open("ab")
    if cut_off:
        file.write(b"\n")
    return file


def _ends_in_newline(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, io.SEEK_END) == 0:
            return True
        file.seek(-1, io.SEEK_END)
        return file.read(1) == b"\n"


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    return (row for _, row in _read_rows(path, []))


def _read_rows(path: Path, broken: list[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each object and the offset of its line; the numbers of lines that hold none go to ``broken``."""
    if not path.is_file():
        return
    with path.open("rb") as file:
        offset = 0
        for number, line in enumerate(file, start=1):
            try:
                row = json.loads(line) if line.strip() else None
            except ValueError:  # no JSON, or a character that a kill cut in two
                row = None
            if isinstance(row, dict):
                yield offset, row
            elif line.strip():
                broken.append(number)
            offset += len(line)
