from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_rubrics.rebuilding import evidence_of, open_run
from pytest_rubrics.reporting.joint_panels import joint_panels
from tests.support.runs import BENCHMARK, write_run


def panels(*folders: Path) -> dict[tuple[str, str], dict[str, Any]]:
    runs = [open_run(folder) for folder in folders]
    return joint_panels([(run, evidence_of(run)) for run in runs])


def two_judges(root: Path) -> list[Path]:
    return [write_run(root / judge, tasks=20, judge=judge, seed=n) for n, judge in enumerate(("ann", "bob"))]


def rows(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    return {(row["model"], row["task_id"]): row for row in map(json.loads, lines)}


def test_the_verdicts_on_the_same_answers_are_compared(tmp_path: Path) -> None:
    first, second = two_judges(tmp_path)
    ours, theirs = rows(first), rows(second)
    shared = [
        (ours[id_], theirs[id_])
        for id_ in ours
        if id_[0] == "alpha" and "excluded" not in {ours[id_]["state"], theirs[id_]["state"]}
    ]
    same = [
        one["hit"] == other["hit"] for a, b in shared for one, other in zip(a["verdicts"], b["verdicts"], strict=True)
    ]
    found = panels(first, second)
    assert list(found) == [(BENCHMARK, "alpha"), (BENCHMARK, "beta")]
    panel = found[BENCHMARK, "alpha"]
    assert panel["answers"] == len(shared)
    assert panel["agreement"]["criteria"] == len(same)
    assert panel["agreement"]["unanimous"]["value"] == sum(same) / len(same)
    assert list(panel["members"]) == ["ann", "bob"]


def test_an_answer_that_differs_is_not_compared(tmp_path: Path) -> None:
    first, second = two_judges(tmp_path)
    before = panels(first, second)[BENCHMARK, "alpha"]["answers"]
    ours, theirs = rows(first), rows(second)
    changed = next(id_ for id_ in ours if {ours[id_]["state"], theirs[id_]["state"]} == {"scored"})
    theirs[changed]["answer"] = "something else"
    text = "".join(json.dumps(row) + "\n" for row in theirs.values())
    (second / "results.jsonl").write_text(text, encoding="utf-8")
    assert panels(first, second)[BENCHMARK, "alpha"]["answers"] == before - 1


def test_one_judge_is_no_panel(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, tasks=6, seed=n) for n, name in enumerate("ab")]
    assert panels(*folders) == {}
