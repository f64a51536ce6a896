from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from pytest_rubrics.faults import FaultsError
from pytest_rubrics.plan import Case
from pytest_rubrics.records import RunWriter, read_run
from tests.support.simulated import difficulty_scores, make_grade, make_tasks, write_run


def run_of(folder: Path, count: int = 4) -> Path:
    return write_run(folder, make_tasks(count), {"m": difficulty_scores(0.6)})


def test_the_last_line_of_a_grade_counts_in_the_place_of_the_first(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run")
    task = make_tasks(4)[1]
    writer = RunWriter(folder)
    writer.append(make_grade(Case(task, "m", 1), 0.95))
    writer.close()
    run = read_run(folder)
    assert [figures.task_id for figures in run.figures] == [f"global-{n}" for n in range(4)]
    assert run.figures[1].score == run.grades[1].score == 0.95
    assert [grade.id for grade in run.grades] == [figures.id for figures in run.figures]


def test_whole_grades_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    run = read_run(run_of(tmp_path / "run"))
    assert len(run.grades) == 4
    assert run.grades[-1].answer == "An answer to What is to be done in case 3?"
    assert [grade.key for grade in run.grades[1:3]] == ["1001", "1002"]
    with pytest.raises(IndexError):
        run.grades[4]


def test_a_line_cut_inside_a_character_is_left_out(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run")
    path = folder / "results.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    cut = json.dumps({"answer": "法"}, ensure_ascii=False).encode()[:-4]
    path.write_bytes(b"".join([lines[0], b"\n", cut + b"\n", *lines[1:]]))
    run = read_run(folder)
    assert run.broken_lines == 1
    assert [grade.key for grade in run.grades] == ["1000", "1001", "1002", "1003"]


def test_the_economic_value_of_a_task_is_kept(tmp_path: Path) -> None:
    tasks = make_tasks(1, value=("CNY", 1500.0)) + make_tasks(1, id="other", key="2")
    folder = write_run(tmp_path / "run", tasks, {"m": difficulty_scores(0.6)})
    values = [row["value"] for row in read_run(folder).tasks.values()]
    assert values == [{"currency": "CNY", "amount": 1500.0}, None]


def test_answers_of_a_large_run_are_not_held_in_memory(tmp_path: Path) -> None:
    tasks = make_tasks(300)
    folder = write_run(tmp_path / "run", tasks, {"m": difficulty_scores(0.6)})
    path = folder / "results.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    text = "".join(json.dumps({**row, "answer": "x" * 50_000}) + "\n" for row in rows)
    path.write_text(text, encoding="utf-8")
    tracemalloc.start()
    try:
        run = read_run(folder)
        assert sum(len(grade.answer or "") for grade in run.grades) == 300 * 50_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 7_500_000  # the answers alone are 15 MB, the rubrics of the tasks 3 MB


def test_a_folder_without_a_manifest_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(FaultsError, match=r"is no run folder: it holds no manifest.json"):
        read_run(tmp_path)
