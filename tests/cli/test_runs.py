from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import rubrics
from tests.support.provider import Provider
from tests.support.workspaces import Outcome, Workspace, keys, read_records, until

KEYS = keys(6)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with Provider() as server:
        yield Workspace(tmp_path_factory.mktemp("workspace"), server, KEYS)


@pytest.fixture(scope="module")
def finished(workspace: Workspace) -> Outcome:
    """A run of all tasks that takes its replies from the cache."""
    first = workspace.pytest(run="first")
    assert first.code == 1, first.text  # some tasks are below the pass mark
    return workspace.pytest("--gate", "complete", run="whole")


def gate_file(workspace: Workspace, name: str, **rules: Any) -> None:
    path = workspace.root / "configs" / "gates" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rules), encoding="utf-8")


def table_of(text: str, folder: Path) -> list[str]:
    """The lines of the table and those under it, with the title."""
    lines = [line.strip("= ") for line in text.splitlines()]
    start = next(n for n, line in enumerate(lines) if line.startswith("one_million_bench | model"))
    return lines[start : lines.index(f"records: {folder}") + 1]


def summary_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text(encoding="utf-8")))


def read_records_before_the_last(results: Path) -> list[dict[str, Any]]:
    """The whole lines of a file whose last one is cut off."""
    return [json.loads(line) for line in results.read_text(encoding="utf-8").split("\n")[:-1]]


def edit_manifest(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")


class TestReport:
    def test_prints_the_table_of_the_terminal(self, workspace: Workspace, finished: Outcome) -> None:
        found = rubrics(workspace.root, "report", finished.folder)
        assert found.returncode == 0, found.stderr
        assert len(table_of(found.stdout, finished.folder)) >= 8
        assert table_of(found.stdout, finished.folder) == table_of(finished.text, finished.folder)
        assert found.stdout.splitlines()[-1] == finished.text.splitlines()[-1]
        assert found.stdout.splitlines()[-1].startswith("gate complete: PASS")

    def test_writes_the_summary_as_the_run_did(self, workspace: Workspace, finished: Outcome, tmp_path: Path) -> None:
        copy = shutil.copytree(finished.folder, tmp_path / "copy")
        (copy / "summary.json").unlink()
        assert rubrics(workspace.root, "report", copy).returncode == 0
        assert summary_of(copy)["parts"] == summary_of(finished.folder)["parts"]

    def test_says_that_sample_tasks_and_toy_models_mean_nothing(self, workspace: Workspace, tmp_path: Path) -> None:
        other = Workspace(tmp_path, workspace.server)
        other.model(note="a toy")
        ran = other.pytest("-k", "cn_law")
        found = rubrics(tmp_path, "report", "run")
        assert "SAMPLE: these are bundled sample tasks; the scores say nothing about $OneMillion-Bench." in found.stdout
        assert "model local: a toy" in found.stdout
        assert table_of(found.stdout, Path("run"))[:-1] == table_of(ran.text, ran.folder)[:-1]

    def test_prints_several_runs(self, workspace: Workspace, finished: Outcome) -> None:
        found = rubrics(workspace.root, "report", "first", "whole")
        assert [line for line in found.stdout.splitlines() if line.startswith("records")] == [
            "records: first",
            "records: whole",
        ]

    def test_a_folder_that_is_no_run_is_a_fault(self, workspace: Workspace) -> None:
        found = rubrics(workspace.root, "report", "configs")
        assert found.returncode == 4
        assert "configs: is no run folder: it holds no manifest.json" in found.stderr

    @pytest.mark.parametrize(
        ("name", "text"), [("manifest.json", "{"), ("manifest.json", "{}"), ("results.jsonl", '{"benchmark": "x"}\n')]
    )
    def test_a_file_of_something_else_is_a_fault(self, name: str, text: str, finished: Outcome, tmp_path: Path) -> None:
        copy = shutil.copytree(finished.folder, tmp_path / "copy")
        (copy / name).write_text(text, encoding="utf-8")
        found = rubrics(tmp_path, "report", "copy")
        assert found.returncode == 4
        assert "copy: holds files that are no records of a run: " in found.stderr
        assert "Traceback" not in found.stderr


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workspace, Path, int]]:
    with Provider(latency=0.2) as server:
        workspace = Workspace(tmp_path_factory.mktemp("killed"), server, KEYS)
        process = workspace.start("--concurrency", "1")
        results = workspace.root / "run" / "results.jsonl"
        until(lambda: results.exists() and results.read_text(encoding="utf-8").count("\n") >= 2)
        server.pause()
        process.kill()
        process.communicate()
        with results.open("a", encoding="utf-8") as file:
            file.write('{"schema": 1, "bench')  # a line that the kill cut off
        yield workspace, results.parent, len(read_records_before_the_last(results))
        server.resume()


class TestKilledRun:
    def test_report_says_what_is_missing(self, killed: tuple[Workspace, Path, int]) -> None:
        workspace, folder, written = killed
        found = rubrics(workspace.root, "report", "run")
        missing = len(KEYS) - written
        assert found.returncode == 0, found.stderr
        assert (
            f"INCOMPLETE: {missing} of 6 selected grades have no line: the run is still going, or was killed."
            in found.stdout
        )
        assert "1 lines of results.jsonl could not be read and are left out." in found.stdout
        (part,) = summary_of(folder)["parts"]
        assert (part["scored"], part["excluded"]) == (written, missing)
        assert part["coverage"] == pytest.approx(written / 6)
        assert part["reasons"] == {"excluded: interrupted": missing}

    def test_gate_counts_what_is_missing(self, killed: tuple[Workspace, Path, int]) -> None:
        workspace, folder, written = killed
        found = rubrics(workspace.root, "gate", "run", "--gate", "complete")
        assert found.returncode == 11
        assert f"gate complete: LOW_COVERAGE (local: {written} of 6 grades were made" in found.stdout
        assert summary_of(folder)["gate"]["exit_code"] == 11

    def test_the_rest_made_in_another_folder_completes_it(self, killed: tuple[Workspace, Path, int]) -> None:
        workspace, folder, written = killed
        workspace.server.resume()
        made = {record["key"] for record in read_records_before_the_last(folder / "results.jsonl")}
        rest = workspace.pytest("-k", " or ".join(sorted(set(KEYS) - made)), run="rest")
        assert len(rest.records) == 6 - written, rest.text
        merged = rubrics(workspace.root, "merge", "run", "rest", "--into", "merged")
        assert merged.returncode == 0, merged.stderr
        assert "INCOMPLETE" not in merged.stdout
        assert rubrics(workspace.root, "gate", "merged", "--gate", "complete").returncode == 0


class TestGate:
    def test_says_and_returns_what_the_run_did(self, workspace: Workspace, finished: Outcome) -> None:
        found = rubrics(workspace.root, "gate", "first", "--gate", "complete")
        assert found.returncode == finished.code == 0
        report, sentence = found.stdout.splitlines()
        assert report == f"report: {Path('first') / 'report.html'}"
        assert sentence == finished.text.splitlines()[-1]
        assert (workspace.root / "first" / "report.md").read_text(encoding="utf-8").startswith("## PASS")
        assert summary_of(workspace.root / "first")["gate"] == summary_of(finished.folder)["gate"]

    def test_a_part_is_not_comparable_with_the_whole(self, workspace: Workspace, finished: Outcome) -> None:
        gate_file(workspace, "whole", selection="whole")
        part = workspace.pytest("-k", "t001 or t002", run="part")
        assert len(part.records) == 2, part.text
        found = rubrics(workspace.root, "gate", "part", "--gate", "whole")
        assert found.returncode == 12
        assert "2 of 6 tasks were selected" in found.stdout
        assert rubrics(workspace.root, "gate", "whole", "--gate", "whole").returncode == 0

    def test_only_the_last_run_in_a_folder_is_decided(self, workspace: Workspace, finished: Outcome) -> None:
        gate_file(workspace, "whole", selection="whole")
        workspace.pytest(run="twice")
        workspace.pytest("-k", "t001", run="twice")
        assert rubrics(workspace.root, "gate", "twice", "--gate", "whole").returncode == 12
        found = rubrics(workspace.root, "gate", "twice", "--gate", "complete")
        assert "local: 1 of 1 grades were made" in found.stdout

    def test_a_gate_for_another_benchmark_is_a_fault(self, workspace: Workspace, finished: Outcome) -> None:
        gate_file(workspace, "other", benchmark="researchrubrics")
        found = rubrics(workspace.root, "gate", "whole", "--gate", "other")
        assert found.returncode == 4
        assert "is made for the benchmark researchrubrics, which is not in this run" in found.stderr

    def test_an_unknown_gate_is_a_fault(self, workspace: Workspace, finished: Outcome) -> None:
        found = rubrics(workspace.root, "gate", "whole", "--gate", "complet")
        assert found.returncode == 4
        assert "Did you mean complete?" in found.stderr

    def test_a_folder_that_cannot_be_written_is_decided_all_the_same(self, finished: Outcome, tmp_path: Path) -> None:
        copy = shutil.copytree(finished.folder, tmp_path / "copy")
        (copy / "summary.json").unlink()
        (copy / "summary.json.part").mkdir()  # where the summary would be written first
        found = rubrics(tmp_path, "gate", "copy", "--gate", "complete")
        assert found.returncode == 0
        assert "summary.json was not written: " in found.stderr


@pytest.fixture(scope="module")
def shards(workspace: Workspace, finished: Outcome) -> list[str]:
    names = [f"shard{number}" for number in (1, 2, 3)]
    outcomes = [workspace.pytest("--shard", f"{n}/3", run=name) for n, name in enumerate(names, start=1)]
    assert sum(len(outcome.records) for outcome in outcomes if (outcome.folder / "results.jsonl").exists()) == 6
    return [name for name in names if (workspace.root / name / "manifest.json").exists()]


class TestMerge:
    def test_shards_give_what_one_run_gives(self, workspace: Workspace, finished: Outcome, shards: list[str]) -> None:
        assert len(shards) >= 2
        found = rubrics(workspace.root, "merge", *shards, "--into", "merged")
        assert found.returncode == 0, found.stderr
        merged = workspace.root / "merged"
        assert rounded(summary_of(merged)["parts"]) == rounded(summary_of(finished.folder)["parts"])
        own = {record["key"]: record for record in read_records(finished.folder)}
        assert {record["key"]: without_times(record) for record in read_records(merged)} == {
            key: without_times(record) for key, record in own.items()
        }
        assert table_of(found.stdout, Path("merged"))[:-1] == table_of(finished.text, finished.folder)[:-1]
        gate_file(workspace, "whole", selection="whole")
        assert rubrics(workspace.root, "gate", "merged", "--gate", "whole").returncode == 0

    def test_its_report_stands_once_in_the_step_summary_when_a_gate_follows(
        self, workspace: Workspace, shards: list[str]
    ) -> None:
        step = workspace.root / "step.md"
        found = rubrics(workspace.root, "merge", *shards, "--into", "shown", GITHUB_STEP_SUMMARY=str(step))
        assert f"report: {Path('shown') / 'report.html'}" in found.stdout.splitlines()
        assert (workspace.root / "shown" / "report.html").is_file()
        rubrics(workspace.root, "gate", "shown", "--gate", "complete", GITHUB_STEP_SUMMARY=str(step))
        text = (workspace.root / "shown" / "report.md").read_text(encoding="utf-8")
        assert step.read_text(encoding="utf-8").strip() == text.strip()

    def test_a_missing_shard_is_said_and_no_whole(self, workspace: Workspace, shards: list[str]) -> None:
        gate_file(workspace, "whole", selection="whole")
        found = rubrics(workspace.root, "merge", shards[0], "--into", "one_shard")
        assert "MISSING: of the shards, " in found.stdout
        assert rubrics(workspace.root, "gate", "one_shard", "--gate", "whole").returncode == 12

    @pytest.mark.parametrize("order", [["first", "excluded"], ["excluded", "first"]])
    def test_an_excluded_line_never_replaces_a_scored_one(
        self, order: list[str], workspace: Workspace, finished: Outcome, tmp_path: Path
    ) -> None:
        if not (workspace.root / "excluded").exists():
            excluded = workspace.pytest("--cache-mode", "offline", "--cache-dir", "empty", run="excluded")
            assert {record["reason"] for record in excluded.records} == {"cache_miss"}
        found = rubrics(workspace.root, "merge", *order, "--into", tmp_path / "merged")
        assert found.returncode == 0, found.stderr
        assert {record["state"] for record in read_records(tmp_path / "merged")} == {"scored"}

    def test_of_two_scored_lines_the_later_run_counts(self, finished: Outcome, tmp_path: Path) -> None:
        later = shutil.copytree(finished.folder, tmp_path / "later")
        lines = [{**record, "finish_reason": "later"} for record in read_records(later)]
        (later / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        assert rubrics(tmp_path, "merge", finished.folder, "later", "--into", "merged").returncode == 0
        assert {record["finish_reason"] for record in read_records(tmp_path / "merged")} == {"later"}

    def test_runs_of_two_models_become_one_with_both(self, workspace: Workspace, finished: Outcome) -> None:
        workspace.model("second")
        workspace.pytest("--model", "second", run="of_second")
        found = rubrics(workspace.root, "merge", "whole", "of_second", "--into", "of_both")
        assert found.returncode == 0, found.stderr
        assert [part["model"] for part in summary_of(workspace.root / "of_both")["parts"]] == ["local", "second"]
        gate_file(workspace, "whole", selection="whole")
        assert rubrics(workspace.root, "gate", "of_both", "--gate", "whole").returncode == 0

    def test_other_settings_of_the_model_are_refused_and_named(self, finished: Outcome, tmp_path: Path) -> None:
        other = changed(finished, tmp_path, ("models", "local", "params"), {"temperature": 1})
        found = rubrics(tmp_path, "merge", finished.folder, other, "--into", "merged")
        assert found.returncode == 4
        assert found.stderr == (
            "1 fault:\n"
            f"  other, model local, params.temperature: found 1, expected nothing as in {finished.folder}. "
            "Merge runs that were made with the same settings.\n"
        )
        assert not (tmp_path / "merged").exists()

    @pytest.mark.parametrize(
        ("path", "value", "named"),
        [
            (("judge", "local", "attempts"), 5, "judge local, attempts: found 5, expected 3"),
            (("benchmarks", "one_million_bench", "sha256", "law/test.json"), "0" * 64, "sha256.law/test.json: "),
            (
                ("benchmarks", "one_million_bench", "scoring", "pass_at"),
                0.5,
                "scoring.pass_at: found 0.5,",
            ),
            (("benchmarks", "one_million_bench", "prompts_sha256", "sheet.en"), "0" * 64, "prompts_sha256.sheet.en"),
            (("judge",), {"another": {}}, 'run settings, judge: found "another", expected "local"'),
        ],
    )
    def test_every_other_difference_that_matters_is_refused_too(
        self, path: tuple[str, ...], value: Any, named: str, finished: Outcome, tmp_path: Path
    ) -> None:
        other = changed(finished, tmp_path, path, value)
        found = rubrics(tmp_path, "merge", finished.folder, other, "--into", "merged")
        assert found.returncode == 4
        assert named in found.stderr

    def test_what_machines_may_differ_in_is_not_refused(self, finished: Outcome, tmp_path: Path) -> None:
        other = changed(finished, tmp_path, ("models", "local", "timeout"), 7.5)
        assert rubrics(tmp_path, "merge", finished.folder, other, "--into", "merged").returncode == 0

    def test_nothing_is_overwritten(self, workspace: Workspace, finished: Outcome, tmp_path: Path) -> None:
        before = (workspace.root / "first" / "results.jsonl").read_bytes()
        found = rubrics(workspace.root, "merge", "whole", "--into", "first")
        assert found.returncode == 4
        assert "--into first: is not empty. Name a new folder." in found.stderr
        assert (workspace.root / "first" / "results.jsonl").read_bytes() == before


def changed(run: Outcome, folder: Path, path: tuple[str, ...], value: Any) -> str:
    """Copy a run as ``other``, with one value of its manifest changed."""
    copy = shutil.copytree(run.folder, folder / "other")
    manifest = json.loads((copy / "manifest.json").read_text(encoding="utf-8"))
    place = manifest
    for key in path[:-1]:
        place = place[key]
    assert place[path[-1]] != value
    place[path[-1]] = value
    edit_manifest(copy, **manifest)
    return "other"


def rounded(value: Any) -> Any:
    """Nested data without the last digits of numbers, which depend on the order in which costs are added."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return round(value, 12) if isinstance(value, float) else value


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "finished_at"}
