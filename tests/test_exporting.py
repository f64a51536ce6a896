from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.rebuilding import open_run
from tests.support.command import rubrics
from tests.support.runs import HOSTILE, Kind, write_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run", kind=Kind(texts=["=1+1", *HOSTILE], unfinished=0.1))


def export(folder: Path, kind: str, what: str) -> Path:
    found = rubrics(folder.parent, "export", "run", "--format", kind, "--what", what)
    assert found.returncode == 0, found.stderr
    return folder / f"{what}.{kind}"


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_parquet(path: Path) -> list[dict[str, Any]]:
    return list(pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist())


def read_xlsx(path: Path) -> list[tuple[Any, ...]]:
    sheet = pytest.importorskip("openpyxl").load_workbook(path)["rubrics"]
    return list(sheet.iter_rows(values_only=True))


def test_one_row_for_every_selected_grade(folder: Path) -> None:
    rows = read_csv(export(folder, "csv", "grades"))
    assert len(rows) == 24
    interrupted = [row for row in rows if row["reason"] == "interrupted"]
    assert interrupted
    assert {(row["state"], row["score"], row["passed"]) for row in interrupted} == {("excluded", "", "")}


def test_one_row_for_every_verdict(folder: Path) -> None:
    grades = list(open_run(folder).grades)
    rows = read_csv(export(folder, "csv", "verdicts"))
    assert len(rows) == sum(len(grade.verdicts) for grade in grades) > 0
    assert rows[0]["criterion_text"]
    assert {row["hit"] for row in rows} == {"true", "false"}


@pytest.mark.parametrize("what", ["grades", "verdicts"])
def test_parquet_and_excel_hold_the_same_rows(folder: Path, what: str) -> None:
    rows = read_csv(export(folder, "csv", what))
    columns = read_parquet(export(folder, "parquet", what))
    sheet = read_xlsx(export(folder, "xlsx", what))
    assert list(columns[0]) == list(rows[0]) == list(sheet[0])
    assert [row["task_id"] for row in rows] == [row["task_id"] for row in columns] == [row[2] for row in sheet[1:]]


def test_a_score_is_a_number(folder: Path) -> None:
    rows = read_parquet(export(folder, "parquet", "grades"))
    scored = [row for row in rows if row["state"] == "scored"]
    assert all(isinstance(row["score"], float) and isinstance(row["passed"], bool) for row in scored)


def test_a_text_is_never_a_formula_in_excel(folder: Path) -> None:
    sheet = pytest.importorskip("openpyxl").load_workbook(export(folder, "xlsx", "verdicts"))["rubrics"]
    cells = [cell for row in sheet.iter_rows() for cell in row if str(cell.value).startswith("=")]
    assert cells
    assert {cell.data_type for cell in cells} == {"s"}


def test_csv_can_go_to_the_terminal(folder: Path) -> None:
    found = rubrics(folder.parent, "export", "run", "--out", "-")
    assert found.stdout.startswith("run,benchmark,task_id,key,")


def test_parquet_cannot(folder: Path) -> None:
    found = rubrics(folder.parent, "export", "run", "--format", "parquet", "--out", "-")
    assert found.returncode == 4
    assert "Give a file" in found.stderr
