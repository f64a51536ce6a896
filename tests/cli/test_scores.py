"""The subcommands that compare: baseline, compare, gate with a baseline, rescore."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.cli import main
from tests.support.shared import shared_data
from tests.support.simulated import difficulty_scores, make_tasks, write_run

TASKS = make_tasks(40, ("global", "cn"), value=("USD", 100.0))
GOOD, WORSE = difficulty_scores(0.62), difficulty_scores(0.52, answer=1)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: a workspace with a good run."""
    (tmp_path / "benchmarks").mkdir()
    write_run(tmp_path / "good", TASKS, {"m": GOOD})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gate_file(root: Path, **rules: Any) -> None:
    path = root / "configs" / "gates" / "release.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rules), encoding="utf-8")


class TestBaseline:
    def test_is_written_where_gates_look_and_decides_runs(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["baseline", "good"]) == 0
        path = root / "baselines" / "one_million_bench-m.json"
        assert capsys.readouterr().out.startswith(f"{path}: m on 80 of 80 tasks of one_million_bench\n")
        gate_file(root, baseline={"file": "baselines/one_million_bench-m.json"})
        write_run(root / "worse", TASKS, {"m": WORSE})
        assert main(["gate", "good", "--gate", "release"]) == 0
        assert main(["gate", "worse", "--gate", "release"]) == 1
        assert "gate release: FAIL (m: 80 of 80 grades were made" in capsys.readouterr().out

    def test_its_fingerprint_names_the_judge_of_a_gate(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        main(["baseline", "good"])
        (line,) = [line for line in capsys.readouterr().out.splitlines() if "judge fingerprint" in line]
        gate_file(root, judge_fingerprint=line.split()[-1])
        assert main(["gate", "good", "--gate", "release"]) == 0
        write_run(root / "other", TASKS, {"m": GOOD}, judge={"model": "openai/other"})
        assert main(["gate", "other", "--gate", "release"]) == 12

    def test_says_what_it_lacks(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        write_run(
            root / "part",
            TASKS,
            {"m": lambda task, repeat: None if task.key == "1002" else 0.5},
            selected=lambda case: case.task.key != "1001",
        )
        main(["baseline", "part", "--out", "part.json"])
        said = capsys.readouterr().out
        assert "m on 76 of 78 tasks" in said
        assert "PARTIAL: 78 of 80 grades were selected" in said
        assert "INCOMPLETE: what was excluded cannot be compared." in said

    def test_of_several_models_each_gets_a_file_or_one_is_named(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_run(root / "two", TASKS, {"a": GOOD, "b": WORSE})
        assert main(["baseline", "two"]) == 0
        assert {path.name for path in (root / "baselines").iterdir()} == {
            "one_million_bench-a.json",
            "one_million_bench-b.json",
        }
        assert main(["baseline", "two", "--out", "one.json"]) == 4
        assert main(["baseline", "two", "--out", "one.json", "--model", "b"]) == 0
        assert json.loads((root / "one.json").read_text(encoding="utf-8"))["model"] == "b"
        assert main(["baseline", "two", "--model", "c"]) == 4
        assert "It has a, b." in capsys.readouterr().err


class TestCompare:
    def test_a_run_against_itself_says_that_no_difference_can_be_told(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["compare", "good", "good"]) == 0
        said = capsys.readouterr().out
        assert "global: no difference can be told: A and B are the same on all 40 tasks" in said
        assert "passes gained: 0, lost: 0 (exact test, p = 1)" in said
        assert "crossed" not in said

    def test_a_worse_run_is_said_to_be_worse_with_the_tasks_that_changed(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_run(root / "worse", TASKS, {"m": WORSE})
        assert main(["compare", "good", "worse", "--changed", "2"]) == 0
        said = capsys.readouterr().out
        assert "global: B is worse (p < .001); 40 tasks show a difference of " in said
        assert "tasks whose score crossed 0.7, the largest change first" in said
        assert max(len(line) for line in said.splitlines()) <= 120
        table = said[said.index("mean expert_score") : said.index("global: B")]
        assert max(len(line) for line in table.splitlines()) <= 80
        names = [line.split()[0] for line in table.splitlines()[2:] if line]
        assert names == [*dict.fromkeys(task.subset for task in TASKS), "global", "cn"]

    def test_a_baseline_file_is_as_good_as_a_run(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        main(["baseline", "good", "--out", "main.json"])
        assert main(["compare", "main.json", "good"]) == 0
        assert "the same on all 40 tasks" in capsys.readouterr().out

    def test_another_judge_is_refused_with_the_reason_and_shown_by_force(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_run(root / "other", TASKS, {"m": GOOD}, judge={"model": "openai/other"})
        assert main(["compare", "good", "other"]) == 12
        refused = capsys.readouterr()
        assert "not comparable, because judge.model is openai/other and was openai/judge." in refused.err
        assert "mean expert_score" not in refused.out
        assert main(["compare", "good", "other", "--force"]) == 0
        shown = capsys.readouterr().out
        assert "NOT COMPARABLE, shown by --force: judge.model is openai/other and was openai/judge" in shown
        assert "mean expert_score" in shown

    def test_several_models_are_compared_by_name_or_with_the_one_that_is_named(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        write_run(root / "two", TASKS, {"a": GOOD, "b": WORSE})
        assert main(["compare", "two"]) == 0
        assert "one_million_bench: b against a" in capsys.readouterr().out
        assert main(["compare", "two", "two"]) == 0
        both = capsys.readouterr().out
        assert "a against a" in both
        assert "b against b" in both
        assert main(["compare", "two", "good"]) == 4
        assert "which model of the first run is meant is not clear: a, b. Name it" in capsys.readouterr().err
        assert main(["compare", "two", "good", "--model", "b"]) == 0
        assert "m against b" in capsys.readouterr().out

    def test_one_model_alone_has_nothing_to_compare_with(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["compare", "good"]) == 4
        assert "there is nothing to compare with" in capsys.readouterr().err

    def test_published_results_stand_among_the_runs_with_a_warning(
        self, root: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        paper = shared_data() / "one_million_bench" / "paper_results.csv"
        assert main(["compare", "good", "--paper", str(paper)]) == 0
        said = capsys.readouterr().out
        lines = said.splitlines()
        assert "WARNING: published figures were made with other judges" in said
        table = lines[lines.index("") - 38 : lines.index("")]
        assert max(map(len, table)) <= 80
        scores = [float(line.split()[-6]) for line in table]
        assert scores == sorted(scores, reverse=True)
        (own,) = [line for line in table if line.startswith("* m (vanilla, run good)")]
        assert own.split()[-1] == f"{_earned(root / 'good', 'cn') / 1000:.1f}"


def _earned(folder: Path, track: str) -> float:
    (part,) = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["parts"]
    return float(part["tracks"][track]["economic_value"]["USD"]["earned"])


class TestRescore:
    def test_writes_a_new_folder_beside_the_run(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        before = (root / "good" / "results.jsonl").read_bytes()
        assert main(["rescore", "good"]) == 0
        assert capsys.readouterr().out.startswith("0 of 80 grades have another score than was recorded.\n")
        assert (root / "good-rescored" / "results.jsonl").read_bytes() == before
        assert main(["report", "good-rescored"]) == 0

    def test_names_what_changed(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = root / "good" / "results.jsonl"
        first, *rest = path.read_text(encoding="utf-8").splitlines(keepends=True)
        row = json.loads(first)
        score = row["metrics"]["expert_score"]
        path.write_text(json.dumps({**row, "metrics": {"expert_score": 0.0}}) + "\n" + "".join(rest), encoding="utf-8")
        assert main(["rescore", "good", "--into", "new"]) == 0
        assert f"  m, global_finance-1000: 0.0000 became {score:.4f}" in capsys.readouterr().out
