from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.faults import FaultsError
from pytest_rubrics.rebuilding import open_run
from pytest_rubrics.rescoring import rescore
from tests.support.simulated import difficulty_scores, make_tasks, write_run

TASKS = make_tasks(6)


def run_of(root: Path) -> Path:
    def score(task: Any, repeat: int) -> float | str | None:
        special: dict[str, str | None] = {"1004": "empty", "1005": None}
        return special[task.key] if task.key in special else difficulty_scores(0.6)(task, repeat)

    return write_run(root / "run", TASKS, {"m": score})


def edit(folder: Path, name: str, key: str, **changes: Any) -> None:
    path = folder / name
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        if row["key"] == key:
            row.update(changes)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def record(folder: Path, key: str) -> dict[str, Any]:
    text = (folder / "results.jsonl").read_text(encoding="utf-8")
    (found,) = [row for row in map(json.loads, text.splitlines()) if row["key"] == key]
    return dict(found)


def test_a_sound_run_comes_out_as_it_was(tmp_path: Path) -> None:
    folder = run_of(tmp_path)
    assert rescore(open_run(folder), tmp_path / "new") == []
    for name in ("results.jsonl", "tasks.jsonl"):
        assert (tmp_path / "new" / name).read_bytes() == (folder / name).read_bytes()
    old, new = (json.loads((place / "summary.json").read_bytes()) for place in (folder, tmp_path / "new"))
    assert new == old
    assert json.loads((tmp_path / "new" / "manifest.json").read_bytes())["made_from"] == str(folder)


def test_spoiled_scores_and_passes_are_put_right(tmp_path: Path) -> None:
    folder = run_of(tmp_path)
    sound = record(folder, "1001")
    edit(folder, "results.jsonl", "1001", metrics={"expert_score": 0.99}, passed=None)
    edit(folder, "results.jsonl", "1004", metrics={"expert_score": 0.5}, passed=True)
    changes = rescore(open_run(folder), tmp_path / "new")
    assert [(change.name, change.before) for change in changes] == [
        ("m, global_health-1001", 0.99),
        ("m, global_science-1004", 0.5),
    ]
    assert record(tmp_path / "new", "1001") == sound
    assert record(tmp_path / "new", "1004")["metrics"] == {"expert_score": 0.0}
    assert record(tmp_path / "new", "1004")["passed"] is False


def test_weights_are_those_of_the_tasks(tmp_path: Path) -> None:
    folder = run_of(tmp_path)
    verdicts = record(folder, "1001")["verdicts"]
    edit(folder, "results.jsonl", "1001", verdicts=[{**verdict, "weight": 1, "tag": None} for verdict in verdicts])
    assert rescore(open_run(folder), tmp_path / "new") == []
    assert record(tmp_path / "new", "1001")["verdicts"] == verdicts


def test_an_excluded_grade_stays_excluded(tmp_path: Path) -> None:
    rescore(open_run(run_of(tmp_path)), tmp_path / "new")
    found = record(tmp_path / "new", "1005")
    assert (found["state"], found["metrics"], found["reason"]) == ("excluded", None, "transport")


def test_verdicts_between_count_in_part(tmp_path: Path) -> None:
    folder = run_of(tmp_path)
    verdicts = [{**v, "hit": False, "value": 0.5} for v in record(folder, "1001")["verdicts"]]
    edit(folder, "results.jsonl", "1001", verdicts=verdicts)
    rescore(open_run(folder), tmp_path / "new")
    assert record(tmp_path / "new", "1001")["metrics"] == {"expert_score": 0.45}  # half of 100 - 10


def test_unjudged_criteria_give_the_middle_of_what_they_allow(tmp_path: Path) -> None:
    folder = run_of(tmp_path)
    verdicts = [{**verdict, "hit": verdict["weight"] > 0} for verdict in record(folder, "1001")["verdicts"]]
    bounded = {"expert_score": 0.0, "expert_score_low": 0.0, "expert_score_high": 0.0}
    edit(folder, "results.jsonl", "1001", verdicts=verdicts[1:], metrics=bounded)
    rescore(open_run(folder), tmp_path / "new")
    found = record(tmp_path / "new", "1001")["metrics"]
    assert found == {"expert_score": 0.975, "expert_score_low": 0.95, "expert_score_high": 1.0}


@pytest.mark.parametrize(
    ("spoil", "fault"),
    [
        (lambda verdicts: verdicts[1:], "it has no verdict for 1"),
        (
            lambda verdicts: [{**verdicts[0], "id": "99"}, *verdicts[1:]],
            "it has verdicts for 99, which are no criteria",
        ),
        (lambda verdicts: [verdicts[1], *verdicts[1:]], "it has two verdicts for one criterion"),
    ],
)
def test_verdicts_that_do_not_fit_the_task_are_named_and_nothing_is_written(
    spoil: Any, fault: str, tmp_path: Path
) -> None:
    folder = run_of(tmp_path)
    edit(folder, "results.jsonl", "1001", verdicts=spoil(record(folder, "1001")["verdicts"]))
    with pytest.raises(FaultsError, match=f"m, global_health-1001: {fault}"):
        rescore(open_run(folder), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    folder = run_of(tmp_path)
    with pytest.raises(FaultsError, match="is not empty"):
        rescore(open_run(folder), folder)
