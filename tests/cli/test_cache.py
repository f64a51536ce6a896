from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import JsonValue

from pytest_rubrics.calls.cache import ReplyStore
from pytest_rubrics.cli.cache import _size
from tests.support.command import rubrics
from tests.support.provider import Provider
from tests.support.workspaces import Outcome, Workspace, keys


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with Provider() as server:
        yield Workspace(tmp_path_factory.mktemp("workspace"), server, keys(3))


@pytest.fixture(scope="module")
def finished(workspace: Workspace) -> Outcome:
    return workspace.pytest("-k", "t000 or t001")


class TestStats:
    def test_counts_what_is_stored_where_a_run_here_would_store_it(
        self, workspace: Workspace, finished: Outcome
    ) -> None:
        found = rubrics(workspace.root, "cache", "stats")
        assert found.returncode == 0, found.stderr
        place, oldest, newest, claims = found.stdout.splitlines()
        assert place.startswith(f"{workspace.cache}: ")
        entries = int(place.split(": ")[1].split()[0])
        assert entries >= 4  # two answers and two sheets, and some notes
        assert oldest.startswith("oldest: 20")
        assert newest.endswith(" ago")
        assert claims.startswith("open claims: 0")

    def test_a_folder_without_a_cache_is_a_fault_and_is_not_made(self, tmp_path: Path) -> None:
        found = rubrics(tmp_path, "cache", "stats", "--cache-dir", "nowhere")
        assert found.returncode == 4
        assert f"{tmp_path / 'nowhere'}: there is no cache of replies." in found.stderr
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize(
        ("size", "shown"), [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (2_500_000, "2.5 MB"), (4e12, "4000.0 GB")]
    )
    def test_sizes_are_in_few_characters(self, size: float, shown: str) -> None:
        assert _size(size) == shown


class TestImport:
    def test_stores_what_a_full_disk_left_behind(self, tmp_path: Path) -> None:
        rows = [{"key": "a" * 64, "value": {"content": "答案"}}, {"key": "b" * 64, "value": {"content": "no"}}]
        spilled = tmp_path / "rubrics-replies-1.jsonl"
        spilled.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        found = rubrics(tmp_path, "cache", "import", spilled.name, "--cache-dir", "replies")
        assert found.returncode == 0, found.stderr
        assert found.stdout.startswith("2 rows stored")
        again = rubrics(tmp_path, "cache", "import", spilled.name, "--cache-dir", "replies")
        assert again.stdout.startswith("0 rows stored")

    def test_takes_over_what_another_hosts_cache_holds(self, tmp_path: Path) -> None:
        answers: dict[str, JsonValue] = {f"key {n}": {"content": "答案" * n} for n in range(250)}
        with closing(ReplyStore(tmp_path / "host", warn=print)) as store:
            asyncio.run(store.put({"a": 1, **answers}))
        with closing(ReplyStore(tmp_path / "replies", warn=print)) as store:
            asyncio.run(store.put({"a": 2}))
        found = rubrics(tmp_path, "cache", "import", "host", "--cache-dir", "replies")
        assert found.stdout == "250 rows stored; those that were there already stay as they are.\n", found.stderr
        with closing(ReplyStore(tmp_path / "replies", warn=print)) as store:
            assert (store.get("a"), store.get("key 249")) == (2, {"content": "答案" * 249})

    def test_a_folder_that_is_no_cache_is_a_fault(self, tmp_path: Path) -> None:
        found = rubrics(tmp_path, "cache", "import", ".", "--cache-dir", "replies")
        assert found.returncode == 4
        assert "there is no cache of replies" in found.stderr

    @pytest.mark.parametrize(("text", "complaint"), [("{}\n", ":1: not {"), (None, "No such file or directory")])
    def test_another_file_is_a_fault(self, text: str | None, complaint: str, tmp_path: Path) -> None:
        if text is not None:
            (tmp_path / "file.jsonl").write_text(text, encoding="utf-8")
        found = rubrics(tmp_path, "cache", "import", "file.jsonl", "--cache-dir", "replies")
        assert found.returncode == 4
        assert "file.jsonl" in found.stderr
        assert complaint in found.stderr
        assert "Traceback" not in found.stderr


class TestExplain:
    def test_shows_the_keys_and_that_they_are_stored_and_the_same_today(
        self, workspace: Workspace, finished: Outcome
    ) -> None:
        record = finished.by_key["t000"]
        found = rubrics(workspace.root, "cache", "explain", "run", "t000")
        assert found.returncode == 0, found.stderr
        then, now = found.stdout.split("today:\n")
        assert then.startswith(f"cache: {workspace.cache}\nglobal_law-t000, model local, repeat 1: scored\n")
        for part in ("answer", "judge"):
            (key,) = record["keys"][part]
            assert f"  {part} {key}: stored 20" in then
            assert f"    {part} {key}: the run's key, stored 20" in now
        assert "changed" not in now

    @pytest.mark.parametrize("name", ["global_law-t001", "local-global_law-t001", "<task id>"])
    def test_a_task_has_several_names(self, name: str, workspace: Workspace, finished: Outcome) -> None:
        name = name.replace("<task id>", finished.by_key["t001"]["task_id"])
        found = rubrics(workspace.root, "cache", "explain", "run", name)
        assert "\nglobal_law-t001, model local, repeat 1: scored\n" in found.stdout
        assert "t000" not in found.stdout

    def test_an_unknown_task_is_a_fault(self, workspace: Workspace, finished: Outcome) -> None:
        found = rubrics(workspace.root, "cache", "explain", "run", "t00")
        assert found.returncode == 4
        assert "t00: there is no such task in run. Did you mean t001 or t000?" in found.stderr

    def test_a_change_of_the_model_is_named_as_the_reason_of_a_miss(
        self, workspace: Workspace, finished: Outcome
    ) -> None:
        (key,) = finished.by_key["t000"]["keys"]["answer"]
        workspace.model(params={"temperature": 0.5})
        found = rubrics(workspace.root, "cache", "explain", "run", "t000")
        workspace.model()
        then, now = found.stdout.split("today:\n")
        assert f"  answer {key}: stored" in then
        assert "  changed: model local, params.temperature is 0.5 and was nothing\n" in now
        assert key not in now
        assert ": no key of the run, not stored" in now

    def test_another_cache_is_looked_into_where_one_is_named(self, workspace: Workspace, finished: Outcome) -> None:
        found = rubrics(workspace.root, "cache", "explain", "run", "t000", "--cache-dir", "empty")
        then, now = found.stdout.split("today:\n")
        assert then.count(": not stored") == 2
        assert now.count(": the run's key, not stored") == 2  # the judge's is known from the recorded answer
        assert not (workspace.root / "empty").exists()

    def test_a_grade_without_replies_shows_its_reason_and_what_would_be_asked(self, workspace: Workspace) -> None:
        excluded = workspace.pytest("-k", "t002", "--cache-mode", "offline", run="offline")
        assert excluded.by_key["t002"]["reason"] == "cache_miss"
        found = rubrics(workspace.root, "cache", "explain", "offline", "t002")
        assert "global_law-t002, model local, repeat 1: excluded cache_miss " in found.stdout
        assert "  judge: its key depends on a reply that is not there yet\n" in found.stdout

    def test_a_faulty_file_is_said_and_the_record_is_still_shown(self, workspace: Workspace, finished: Outcome) -> None:
        workspace.model(parms={})
        found = rubrics(workspace.root, "cache", "explain", "run", "t000")
        workspace.model()
        assert found.returncode == 0, found.stderr
        assert f"  answer {finished.by_key['t000']['keys']['answer'][0]}: stored" in found.stdout
        assert "what a run would ask cannot be told, since its files have faults:\n" in found.stdout
        assert "configs/models/local.yaml:1, parms: unknown key. Did you mean params?" in found.stdout
