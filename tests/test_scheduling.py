"""Which workers of pytest-xdist get which items."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.provider import Provider
from tests.support.workspaces import Workspace, keys

COUNT = 24
CORES = os.cpu_count() or 1
TASKS = """
import os

from pathlib import Path


def test_task(grade, worker_id):
    key = grade.case.task.key
    with open("ran.log", "a", encoding="utf-8") as file:
        file.write(f"task {worker_id} {key}\\n")
    if key == "t007" and Path("kill").exists():
        Path("kill").unlink()
        os.kill(os.getpid(), 9)
"""
OTHERS = """
import time

import pytest


@pytest.mark.parametrize("number", range(40))
def test_other(number, worker_id):
    time.sleep(0.05)
    with open("ran.log", "a", encoding="utf-8") as file:
        file.write(f"other {worker_id} {number}\\n")
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Provider(answer_bytes=200) as server:
        workspace = Workspace(tmp_path, server, keys(COUNT))
        workspace.module(TASKS)
        yield workspace


def ran(workspace: Workspace, kind: str) -> list[tuple[str, str]]:
    """Worker and name of every item of a kind that was run."""
    lines = [line.split() for line in (workspace.root / "ran.log").read_text(encoding="utf-8").splitlines()]
    return [(worker, name) for what, worker, name in lines if what == kind]


def calls(workspace: Workspace) -> tuple[int, int]:
    return workspace.server.count("answer"), workspace.server.count("judge")


def test_only_as_many_workers_as_cores_get_tasks(workspace: Workspace) -> None:
    outcome = workspace.pytest("-n", str(CORES + 2))
    assert outcome.code == 0, outcome.text
    assert f"{CORES + 2} workers [{COUNT} items]" in outcome.text
    assert {worker for worker, _ in ran(workspace, "task")} <= {f"gw{number}" for number in range(CORES)}
    assert sorted(name for _, name in ran(workspace, "task")) == keys(COUNT)
    assert len(outcome.by_key) == len(outcome.records) == COUNT
    assert calls(workspace) == (COUNT, COUNT)


def test_other_items_go_to_every_worker(workspace: Workspace) -> None:
    (workspace.root / "benchmarks" / "test_other.py").write_text(OTHERS, encoding="utf-8")
    outcome = workspace.pytest("-n", str(CORES + 2))
    assert outcome.code == 0, outcome.text
    others = ran(workspace, "other")
    assert Counter(name for _, name in others) == {str(number): 1 for number in range(40)}
    assert {worker for worker, _ in others} >= {f"gw{CORES}", f"gw{CORES + 1}"}
    assert len(outcome.records) == COUNT
    assert calls(workspace) == (COUNT, COUNT)


def test_the_part_of_a_worker_that_died_is_taken_over(workspace: Workspace) -> None:
    (workspace.root / "kill").touch()
    outcome = workspace.pytest("-n", "2", "--concurrency", "2")
    assert "replacing crashed worker" in outcome.text
    assert sorted(name for _, name in ran(workspace, "task")) == keys(COUNT)
    assert Counter(record["state"] for record in outcome.records) == {"scored": COUNT}, "its grade had travelled"
    assert COUNT <= workspace.server.count("answer") <= COUNT + 1  # one may have been in flight


@pytest.mark.parametrize("way", ["worksteal", "loadscope"])
def test_other_ways_of_distribution_are_pytest_xdists_own(workspace: Workspace, way: str) -> None:
    outcome = workspace.pytest("-n", str(CORES + 1), "--dist", way)
    assert outcome.code == 0, outcome.text
    assert len(outcome.records) == COUNT
    assert calls(workspace) == (COUNT, COUNT)


def test_workers_that_collect_different_items_run_none(workspace: Workspace) -> None:
    conftest = workspace.root / "benchmarks" / "conftest.py"
    conftest.write_text(
        "import os\n\n\ndef pytest_collection_modifyitems(items):\n"
        "    if os.environ['PYTEST_XDIST_WORKER'] == 'gw1':\n        items.pop()\n",
        encoding="utf-8",
    )
    outcome = workspace.pytest("-n", "2")
    assert outcome.code == 1, outcome.text
    # Either may have been the first.
    other = r"Worker (gw1 collected other items than the first: 1 are missing|gw0 .* \[\], 1 are more)"
    assert re.search(other, outcome.text), outcome.text
    assert not (workspace.root / "ran.log").exists()
    assert calls(workspace) == (0, 0)
