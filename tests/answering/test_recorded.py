from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.answering.answer import Answer
from pytest_rubrics.answering.recorded import RecordedAnswerer, RecordedAnswers, load_answers
from pytest_rubrics.calls.errors import CallError
from pytest_rubrics.calls.limits import Turn
from pytest_rubrics.faults import FaultsError
from pytest_rubrics.tasks import Criterion, Task
from tests.support.documents import write_docx, write_pdf
from tests.support.provider import Provider
from tests.support.workspaces import Workspace


def task(id_: str, key: str, subset: str = "cn_law", benchmark: str = "b") -> Task:
    return Task(benchmark, id_, key, subset, "en", "Question?", (Criterion("1", "Is there.", 1),))


# Case 1663 stands in two subsets, as translated cases do.
TASKS = [task("id-1", "1663"), task("id-2", "1663", "global_law"), task("id-3", "7", benchmark="c")]


def rows(path: Path, *values: Any) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


def load(path: Path, tasks: Sequence[Task] = TASKS) -> RecordedAnswers:
    return load_answers(path, tasks, path.parent / "kept")


def faults(path: Path) -> list[str]:
    with pytest.raises(FaultsError) as caught:
        load(path)
    return [str(fault).replace(f"{path.parent}/", "") for fault in caught.value.faults]


def answer(answers: RecordedAnswers, of: Task = TASKS[0], repeat: int = 1) -> Answer:
    return asyncio.run(RecordedAnswerer("m", answers).answer(of, repeat, Turn(0), anew=False))


# Whose an answer is


def test_by_task_id_and_by_key(tmp_path: Path) -> None:
    path = rows(tmp_path / "a.jsonl", {"task_id": "id-1", "answer": "A"}, {"key": 7, "answer": "B"})
    assert load(path).texts == {("b", "id-1", 1): "A", ("c", "id-3", 1): "B"}


def test_a_key_of_several_tasks_needs_its_subset(tmp_path: Path) -> None:
    path = rows(tmp_path / "a.jsonl", {"key": "1663", "answer": "A"}, {"key": "7", "answer": "B"})
    assert faults(path) == [
        "a.jsonl, row 1: 1663 is a key of several tasks: b cn_law, b global_law. "
        "Name the task by its task_id, such as id-1, or write the subset beside the key."
    ]
    rows(path, {"key": "1663", "subset": "global_law", "answer": "A"})
    assert load(path).texts == {("b", "id-2", 1): "A"}


def test_a_task_id_of_two_benchmarks_needs_its_benchmark(tmp_path: Path) -> None:
    tasks = [task("same", "1"), task("same", "1", benchmark="c")]
    path = rows(tmp_path / "a.jsonl", {"task_id": "same", "benchmark": "c", "answer": "A"})
    assert load(path, tasks).texts == {("c", "same", 1): "A"}


def test_a_key_is_written_as_in_the_data_or_in_ids(tmp_path: Path) -> None:
    tasks = [task("id-1", "a-1"), task("id-2", "b-1")]
    path = rows(tmp_path / "a.jsonl", {"key": "a/1", "answer": "A"}, {"key": "b-1", "answer": "B"})
    assert set(load(path, tasks).texts) == {("b", "id-1", 1), ("b", "id-2", 1)}


def test_a_wrong_task_id_is_not_rescued_by_the_key(tmp_path: Path) -> None:
    path = rows(tmp_path / "a.jsonl", {"task_id": "id-9", "key": "7", "answer": "A"}, {"key": "7", "answer": "B"})
    found = load(path)
    assert found.texts == {("c", "id-3", 1): "B"}
    assert found.notes == ["1 of 2 answers belong to no task of this run: id-9"]


def test_answers_to_no_task_are_told_and_those_to_none_at_all_refused(tmp_path: Path) -> None:
    strangers = [{"task_id": f"x{number}", "answer": ""} for number in range(7)]
    path = rows(tmp_path / "a.jsonl", *strangers, {"key": "7", "answer": "A"})
    assert load(path).notes == ["7 of 8 answers belong to no task of this run: x0, x1, x2, x3, x4 and 2 more"]
    rows(path, *strangers)
    assert faults(path) == [
        "a.jsonl: none of its 7 answers belongs to a task of this run: x0, x1, x2, x3, x4 and 2 more. "
        "Choose the data with --source, such as --source full."
    ]


def test_repeats_are_answers_of_their_own(tmp_path: Path) -> None:
    path = rows(tmp_path / "a.jsonl", {"key": "7", "answer": "A"}, {"key": "7", "answer": "B", "repeat": 2})
    assert load(path).texts == {("c", "id-3", 1): "A", ("c", "id-3", 2): "B"}


def test_a_second_answer_to_a_task_is_a_fault(tmp_path: Path) -> None:
    path = rows(tmp_path / "a.jsonl", {"key": "7", "answer": "A"}, {"task_id": "id-3", "answer": "B"})
    assert faults(path) == [
        "a.jsonl, row 2: is a second answer to id-3, repeat 1; the first is row 1 of a.jsonl. "
        "Remove one, or number them as repeat."
    ]


# What becomes of an answer


def test_an_answer_is_judged_as_it_is_without_its_reasoning(tmp_path: Path) -> None:
    path = rows(
        tmp_path / "a.jsonl", {"task_id": "id-1", "answer": " A\n"}, {"key": 7, "answer": "<think>hm</think>So."}
    )
    assert answer(load(path)) == Answer(" A\n")
    assert answer(load(path), TASKS[2]) == Answer("So.")


@pytest.mark.parametrize("text", ["", " \n", "<think>only that</think>"])
def test_an_empty_answer_is_the_models_failure(tmp_path: Path, text: str) -> None:
    path = rows(tmp_path / "a.jsonl", {"task_id": "id-1", "answer": text})
    assert answer(load(path)) == Answer(None, failure="empty")


def test_a_missing_answer_is_nobodys_failure(tmp_path: Path) -> None:
    answers = load(rows(tmp_path / "a.jsonl", {"task_id": "id-1", "answer": "A"}))
    with pytest.raises(CallError, match=r"a\.jsonl holds no answer to task id-2$") as caught:
        answer(answers, TASKS[1])
    assert caught.value.reason == "no_answer"
    with pytest.raises(CallError, match="task id-1, repeat 2"):
        answer(answers, repeat=2)


# Rows


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"task_id": "id-1", "anwser": "A"}, "row 1, answer: the field is missing. Did you mean anwser?"),
        (
            {"task_id": "id-1", "answer": None},
            "row 1, answer: found null, expected a text. Remove the row, which excludes the task; "
            'or write "" where the model gave nothing, which counts 0.',
        ),
        ({"task_id": "id-1", "answer": ["A"]}, "row 1, answer: found ['A'], expected a text."),
        ({"answer": "A"}, "row 1: there is neither a task_id nor a key. Name its task by task_id or by key."),
        ({"key": "", "answer": "A"}, "row 1: there is neither a task_id nor a key."),
        ({"key": 1.5, "answer": "A"}, "row 1, key: found 1.5, expected a text."),
        ({"key": True, "answer": "A"}, "row 1, key: found True, expected a text."),
        ({"key": "7", "answer": "A", "repeat": 0}, "row 1, repeat: found 0, expected a whole number from 1."),
        ({"key": "7", "answer": "A", "repeat": "x"}, "row 1, repeat: found 'x', expected a whole number from 1."),
        (["A"], "row 1: found list, expected an object with answer, and task_id or key."),
    ],
)
def test_a_row_that_is_no_answer_is_named(tmp_path: Path, row: Any, fault: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([row]), encoding="utf-8")
    (found,) = faults(path)
    assert found.startswith(f"a.json, {fault}")


def test_all_faults_of_a_file_come_at_once(tmp_path: Path) -> None:
    path = rows(tmp_path / "a.jsonl", {"answer": "A"}, {"key": "1663", "answer": "A"}, {"key": "7", "answer": 1})
    path.write_text(path.read_text(encoding="utf-8") + "{\n", encoding="utf-8")
    assert [fault.split(": ")[0] for fault in faults(path)] == [
        "a.jsonl, row 1",
        "a.jsonl, row 2",
        "a.jsonl, row 3, answer",
        "a.jsonl, row 4",
    ]


# CSV


def test_csv_holds_long_answers_of_several_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    long = "x" * 300_000
    path.write_text(
        f'\ufefftask_id,key,answer,repeat,note\r\nid-1,,"Says ""so"", \r\n二",,n\r\n,7,{long},2,\r\n', encoding="utf-8"
    )
    assert load(path).texts == {("b", "id-1", 1): 'Says "so", \r\n二', ("c", "id-3", 2): long}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("id,text\n1,2\n", "a.csv: there is no column answer. Columns found: id, text."),
        ("", "a.csv: there is no column answer. Columns found: none."),
        ("key,answer\n7,one, two\n", "a.csv, row 2: has more cells than there are columns. Put texts with commas in"),
        ("key,answer\n7\n", "a.csv, row 2, answer: found null, expected a text."),
        ('key,answer\n7,"one\n', "a.csv:2: is not CSV: unexpected end of data."),
        ("key,answer\n", "a.csv: holds no answers."),
        ("key,answer\n,A\n", "a.csv, row 2: there is neither a task_id nor a key."),
    ],
)
def test_csv_that_cannot_be_used_is_named(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    assert faults(path)[0].startswith(fault)


# Folders


def test_a_folder_of_reports(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    (folder / "figures").mkdir(parents=True)
    (folder / "id-1.md").write_text("# 报告\n", encoding="utf-8")
    (folder / "id-2.txt").write_text("Plain.", encoding="utf-8")
    write_pdf(folder / "7.PDF", ["Findings."])
    write_docx(folder / "other.docx", "No task", "of this run.")
    (folder / ".DS_Store").write_bytes(b"\xff")
    (folder / "figure.png").write_bytes(b"\xff")
    found = load(folder)
    assert {place: text.strip() for place, text in found.texts.items()} == {
        ("b", "id-1", 1): "# 报告",
        ("b", "id-2", 1): "Plain.",
        ("c", "id-3", 1): "Findings.",
    }
    assert found.notes == [
        "1 of 4 answers belong to no task of this run: other",
        "files of other kinds are left aside: figure.png",
    ]


def test_a_folder_of_json_lines(tmp_path: Path) -> None:
    folder = tmp_path / "answers"
    folder.mkdir()
    rows(folder / "1.jsonl", {"task_id": "id-1", "answer": "A"})
    rows(folder / "2.jsonl", {"task_id": "id-2", "answer": "B"})
    assert list(load(folder).texts.values()) == ["A", "B"]


def test_faults_of_a_folder_name_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    (folder / "1663.md").write_text("A", encoding="utf-8")
    (folder / "7.md").write_text("A", encoding="utf-8")
    (folder / "7.txt").write_text("A", encoding="utf-8")
    (folder / "id-1.txt").write_bytes(b"\xff\xfe")
    assert faults(folder) == [
        "reports/1663.md: 1663 is a key of several tasks: b cn_law, b global_law. "
        "Name the task by its task_id, such as id-1.",
        "reports/7.txt: is a second answer to 7, repeat 1; the first is reports/7.md. Remove one.",
        "reports/id-1.txt: is not UTF-8: byte 0xff at position 0 of 2. Save it as UTF-8.",
    ]


def test_a_folder_without_answers_is_a_fault(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    assert faults(folder) == [
        "reports: the folder holds no answers. "
        "Give reports as <task_id>.md, .txt, .pdf or .docx, or answers as .jsonl or .csv."
    ]


# Whole runs


def write_model(workspace: Workspace, *values: Any) -> None:
    rows(workspace.root / "answers.jsonl", *values)
    text = "kind: recorded\nanswers: answers.jsonl\ntrack: search\n"
    (workspace.root / "configs/models/local.yaml").write_text(text, encoding="utf-8")


def test_ready_answers_are_graded_by_several_processes_and_nothing_else_is_called(tmp_path: Path) -> None:
    with Provider(truth=lambda body: {"1": True, "3": False, "7": False}) as server:
        workspace = Workspace(tmp_path, server, ["a", "b", "c", "d"])
        write_model(
            workspace,
            {"key": "a", "answer": "An answer."},
            {"key": "b", "answer": "\ud83d half a character"},
            {"key": "c", "answer": " "},
            {"key": "z", "answer": "To nothing."},
        )
        run = workspace.pytest("-n", "2")
        assert (server.count("answer"), server.count("judge")) == (0, 2)
        again = workspace.pytest(run="again")
        assert server.count() == 2
        assert not workspace.imported_litellm()
    found = {key: (record["state"], record["reason"], record["metrics"]) for key, record in run.by_key.items()}
    assert found == {
        "a": ("scored", None, {"expert_score": 10 / 16}),
        "b": ("scored", None, {"expert_score": 10 / 16}),
        "c": ("failed", "empty", {"expert_score": 0.0}),
        "d": ("excluded", "no_answer", None),
    }
    assert run.code == again.code == 1
    assert run.by_key["b"]["answer"] == "\ufffd half a character"
    assert "model local: 1 of 4 answers belong to no task of this run: z" in run.text
    a = run.by_key["a"]
    assert (a["track"], a["answer"], a["cost_usd"]["answer"], a["keys"]["answer"]) == ("search", "An answer.", 0.0, [])


def test_faults_of_ready_answers_end_a_run_before_it_calls(tmp_path: Path) -> None:
    with Provider() as server:
        workspace = Workspace(tmp_path, server, ["a"])
        write_model(workspace, {"key": "a", "answer": "A"}, {"key": "a", "answer": "B"})
        run = workspace.pytest()
        assert server.count() == 0
    assert run.code == 4
    assert "answers.jsonl, row 2: is a second answer to a, repeat 1; the first is row 1 of answers.jsonl" in run.text


def test_an_estimate_counts_the_judge_of_ready_answers(tmp_path: Path) -> None:
    with Provider() as server:
        workspace = Workspace(tmp_path, server, ["a", "b"])
        write_model(workspace, {"key": "a", "answer": "A"}, {"key": "b", "answer": ""})
        run = workspace.pytest("--estimate")
        assert server.count() == 0
    assert run.code == 0, run.text
    assert any(line.split()[:4] == ["judge", "local", "1", "0"] for line in run.text.splitlines())
