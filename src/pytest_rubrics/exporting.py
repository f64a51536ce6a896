"""Long tables of grades and verdicts for other tools: CSV, Parquet, Excel."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

from pytest_rubrics.faults import Fault, FaultsError
from pytest_rubrics.rebuilding import all_grades
from pytest_rubrics.records import Run

Row = dict[str, Any]
Columns = Mapping[str, type]
"""Name of each column to the type of its values, which may be missing too."""

_ID: Columns = {
    "run": str,
    "benchmark": str,
    "task_id": str,
    "key": str,
    "subset": str,
    "model": str,
    "track": str,
    "judge": str,
    "repeat": int,
}
GRADE_COLUMNS: Columns = {
    **_ID,
    "state": str,
    "reason": str,
    "error": str,
    "metric": str,
    "score": float,
    "passed": bool,
    "truncated": bool,
    "finish_reason": str,
    "answer_input_tokens": int,
    "answer_output_tokens": int,
    "judge_input_tokens": int,
    "judge_output_tokens": int,
    "answer_cost_usd": float,
    "judge_cost_usd": float,
    "spent_usd": float,
    "answer_seconds": float,
    "judge_seconds": float,
    "answer_cached": bool,
    "judge_cached": bool,
    "served_answer_model": str,
    "served_judge_model": str,
    "finished_at": str,
    "answer": str,
}
VERDICT_COLUMNS: Columns = {
    **_ID,
    "criterion": str,
    "criterion_text": str,
    "tag": str,
    "weight": float,
    "hit": bool,
    "value": float,
    "justification": str,
}
_BATCH = 1_000  # rows that are held at once
_EXCEL_ROWS, _EXCEL_CELL = 1_048_576, 32_767  # what a sheet and a cell hold


def grade_rows(run: Run) -> Iterator[Row]:
    """One row a grade; a selected one that was never made stands there as excluded."""
    for grade in all_grades(run):
        metric = next(iter(grade.metrics or {}), None)
        row = {name: getattr(grade, name) for name in GRADE_COLUMNS if hasattr(grade, name) and name not in {"score"}}
        row |= {"run": run.manifest["run"], "metric": metric, "score": grade.score}
        for part in ("answer", "judge"):
            usage = grade.usage.get(part, {})
            row |= {f"{part}_{way}_tokens": usage.get(f"{way}_tokens") for way in ("input", "output")}
            row |= {f"{part}_cost_usd": grade.cost_usd.get(part), f"{part}_seconds": grade.seconds.get(part)}
            row |= {f"{part}_cached": grade.cached.get(part), f"served_{part}_model": grade.served_model.get(part)}
        yield {name: row[name] for name in GRADE_COLUMNS}


def verdict_rows(run: Run) -> Iterator[Row]:
    """One row a criterion of each grade that has verdicts."""
    texts = {
        id_: {criterion["id"]: criterion["text"] for criterion in task["criteria"]} for id_, task in run.tasks.items()
    }
    for grade in run.grades:
        ids = {name: getattr(grade, name) for name in _ID if name != "run"}
        for verdict in grade.verdicts:
            yield {
                "run": run.manifest["run"],
                **ids,
                **_verdict(verdict, texts.get((grade.benchmark, grade.task_id), {})),
            }


def _verdict(verdict: Mapping[str, Any], texts: Mapping[str, str]) -> Row:
    hit = verdict.get("hit")
    value = verdict.get("value", None if hit is None else float(hit))
    return {
        "criterion": verdict["id"],
        "criterion_text": texts.get(verdict["id"]),
        "tag": verdict.get("tag"),
        "weight": float(verdict["weight"]),
        "hit": hit,
        "value": None if value is None else float(value),
        "justification": verdict.get("justification"),
    }


TABLES: Mapping[str, tuple[Columns, Callable[[Run], Iterator[Row]]]] = {
    "grades": (GRADE_COLUMNS, grade_rows),
    "verdicts": (VERDICT_COLUMNS, verdict_rows),
}


def write_csv(columns: Columns, rows: Iterable[Row], file: TextIO) -> None:
    """Write CSV as pandas reads it: a missing value is empty, texts stand as they are.

    For Excel `write_xlsx` is safer: in a CSV file Excel takes a text that begins with "=" for a formula.
    """
    writer = csv.writer(file)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([str(value).lower() if isinstance(value, bool) else value for value in row.values()])


def write_parquet(columns: Columns, rows: Iterable[Row], path: Path) -> None:
    """Write Parquet, some rows at a time.

    Raises:
        FaultsError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise _not_installed("parquet", "pyarrow") from error
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in _batches(rows):
            clean = [{name: _encodable(value) for name, value in row.items()} for row in batch]
            writer.write_table(pa.Table.from_pylist(clean, schema))


def write_xlsx(columns: Columns, rows: Iterable[Row], path: Path) -> None:
    """Write an Excel workbook of one sheet; a text is never a formula, and is cut where a cell is full.

    Raises:
        FaultsError: openpyxl is not installed, or there are more rows than a sheet holds.
    """
    try:
        from openpyxl import Workbook
        from openpyxl.cell import WriteOnlyCell
    except ImportError as error:
        raise _not_installed("xlsx", "openpyxl") from error
    book = Workbook(write_only=True)
    sheet = book.create_sheet("rubrics")
    sheet.freeze_panes = "A2"
    sheet.append(list(columns))

    def cell(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        made = WriteOnlyCell(sheet, _excel_text(value))
        made.data_type = "s"  # else a text that begins with "=" would be a formula
        return made

    for number, row in enumerate(rows, start=2):
        if number > _EXCEL_ROWS:
            message = f"holds no more than {_EXCEL_ROWS:,} rows, and there are more."
            raise FaultsError([Fault("a sheet of Excel", message, fix="Use --format parquet.")])
        sheet.append([cell(value) for value in row.values()])
    book.save(path)


def _excel_text(text: str) -> str:
    """A text that a cell can hold: XML knows no control characters, and a cell no more than 32,767 characters."""
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    clean = ILLEGAL_CHARACTERS_RE.sub("\ufffd", _encodable(text).replace("\uffff", "\ufffd"))
    return str(clean)[:_EXCEL_CELL]


def _encodable(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else value


def _batches(rows: Iterable[Row]) -> Iterator[Sequence[Row]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, _BATCH)):
        yield batch


def _not_installed(kind: str, package: str) -> FaultsError:
    fix = "Run: pip install 'pytest-rubrics[export]'"
    return FaultsError([Fault(f"--format {kind}", f"needs the package {package}, which is not installed.", fix=fix)])
