"""Answers made elsewhere, as they stand in files: JSON Lines, CSV, or a folder of reports."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_rubrics.answering.documents import CONVERTERS, report_text
from pytest_rubrics.data_files import DataFile, read_data_file, rows_of
from pytest_rubrics.faults import Fault, FaultsError, gather
from pytest_rubrics.suggestions import did_you_mean

_TEXTS = {".md", ".txt"}
_TABLES = {".csv", ".json", ".jsonl"}
_FIELDS = ("answer", "task_id", "key", "subset", "benchmark", "repeat")
_NO_ANSWER = 'Remove the row, which excludes the task; or write "" where the model gave nothing, which counts 0.'
_WHOSE = "Name its task by task_id or by key."


@dataclass(frozen=True, slots=True)
class Entry:
    """An answer, and whose it is said to be.

    Attributes:
        file: Where it stands.
        row: Row of the file, counted from 1, or None where the file is one report.
        text: The answer.
        task_id: Id of its task, or None.
        key: Key of its task, or None; a report's name may be either.
        subset: Subset of its task, or None where any will do.
        benchmark: Benchmark of its task, or None where any will do.
        repeat: Which of the answers to the task it is, counted from 1.
    """

    file: str
    row: int | None
    text: str
    task_id: str | None
    key: str | None
    subset: str | None = None
    benchmark: str | None = None
    repeat: int = 1

    @property
    def name(self) -> str:
        """What it says of its task."""
        return self.task_id or self.key or ""

    @property
    def place(self) -> str:
        """Where it stands, for messages about another one."""
        return self.file if self.row is None else f"row {self.row} of {Path(self.file).name}"

    def fault(self, message: str, fix: str | None = None) -> Fault:
        """A fault of this entry."""
        return Fault(self.file, message, row=self.row, fix=fix)


@dataclass(slots=True)
class AnswerFiles:
    """Reads the entries of a file or a folder.

    Attributes:
        path: The file or folder.
        kept_in: Folder of texts of reports that were converted before.
        faults: What is wrong.
        skipped: Names of files that are no answers.
    """

    path: Path
    kept_in: Path
    faults: list[Fault]
    skipped: list[str]

    def entries(self) -> Iterator[Entry]:
        """Yield the answers, those of a folder in the order of its files' names."""
        if not self.path.is_dir():
            yield from self._of_file(self.path)
            return
        files = [file for file in sorted(self.path.iterdir()) if file.is_file() and not file.name.startswith(".")]
        for file in files:
            if file.suffix.lower() in _TEXTS | _TABLES | CONVERTERS.keys():
                yield from self._of_file(file)
            else:
                self.skipped.append(file.name)
        if len(files) == len(self.skipped):
            fix = "Give reports as <task_id>.md, .txt, .pdf or .docx, or answers as .jsonl or .csv."
            self.faults.append(Fault(str(self.path), "the folder holds no answers.", fix=fix))

    def _of_file(self, path: Path) -> Iterator[Entry]:
        with gather(self.faults):
            suffix = path.suffix.lower()
            if suffix in CONVERTERS:
                yield Entry(str(path), None, report_text(path, self.kept_in), path.stem, path.stem)
            elif suffix in _TEXTS:
                yield Entry(str(path), None, read_data_file(path).text, path.stem, path.stem)
            else:
                file = read_data_file(path)
                rows = self._csv_rows(file) if suffix == ".csv" else rows_of(file, _is_row, self.faults)
                for number, row in rows:
                    with gather(self.faults):
                        yield _entry(str(path), number, row)

    def _csv_rows(self, file: DataFile) -> Iterator[tuple[int, Any]]:
        """Rows by the number that a spreadsheet shows: the first below the header is row 2."""
        with _long_fields():
            reader = csv.DictReader(io.StringIO(file.text, newline=""), strict=True)
            try:
                columns = list(reader.fieldnames or ())
                if "answer" in columns:
                    yield from enumerate(reader, 2)
                else:
                    fix = did_you_mean("answer", columns) or "Name the columns in the first row."
                    message = f"there is no column answer. Columns found: {', '.join(columns) or 'none'}."
                    self.faults.append(Fault(file.path, message, fix=fix))
            except csv.Error as error:
                self.faults.append(Fault(file.path, f"is not CSV: {error}.", line=reader.reader.line_num))


@contextmanager
def _long_fields() -> Iterator[None]:
    """Reports are longer than the 128 KB that the module allows a field."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _is_row(row: Mapping[str, Any]) -> bool:
    return "answer" in row


def _entry(file: str, number: int, row: Any) -> Entry:
    """Read a row.

    Raises:
        FaultsError: It is no answer.
    """

    def fault(message: str, key: str | None = None, fix: str | None = None) -> FaultsError:
        return FaultsError([Fault(file, message, row=number, key=key, fix=fix)])

    if not isinstance(row, dict):
        raise fault(f"found {type(row).__name__}, expected an object with answer, and task_id or key.")
    if None in row:
        raise fault("has more cells than there are columns.", fix="Put texts with commas in quotes.")
    if "answer" not in row:
        raise fault("the field is missing.", "answer", did_you_mean("answer", row.keys() - set(_FIELDS)) or _NO_ANSWER)
    if not isinstance(text := row["answer"], str):
        raise fault(f"found {_shown(text)}, expected a text.", "answer", _NO_ANSWER)
    names = {}
    for field in ("task_id", "key", "subset", "benchmark"):
        value = row.get(field)
        if value is None or value == "":
            continue
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise fault(f"found {_shown(value)}, expected a text.", field)
        names[field] = str(value).strip()
    if not names.get("task_id") and not names.get("key"):
        raise fault("there is neither a task_id nor a key.", fix=_WHOSE)
    return Entry(
        file,
        number,
        text,
        task_id=names.get("task_id"),
        key=None if "task_id" in names else names["key"],
        subset=names.get("subset"),
        benchmark=names.get("benchmark"),
        repeat=_repeat(row.get("repeat"), fault),
    )


def _repeat(value: Any, fault: Any) -> int:
    if value is None or value == "":
        return 1
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise fault(f"found {_shown(value)}, expected a whole number from 1.", "repeat")
    return value


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
