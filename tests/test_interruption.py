"""Runs that are interrupted or killed: what has arrived is kept, nothing more is asked, every item has its line."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.provider import Provider
from tests.support.workspaces import Outcome, Workspace, keys

COUNT = 30
CONCURRENCY = 4
FEW = 3 * CONCURRENCY  # requests that may still come on a busy machine; without an end it would be all the rest


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Provider(latency=0.2, answer_bytes=200) as server:
        yield Workspace(tmp_path, server, keys(COUNT))


def check_lines(outcome: Outcome) -> Counter[tuple[str, str | None]]:
    """Check that every item has one line, and give the states with their reasons."""
    assert len(outcome.records) == len(outcome.by_key) == COUNT
    assert outcome.summary["tasks"] == COUNT
    return Counter((record["state"], record["reason"]) for record in outcome.records)


def check_rest(workspace: Workspace) -> None:
    """Check that a second run asks for what had not arrived, and for nothing else."""
    server = workspace.server
    arrived = {kind: sum(r.kind == kind and r.status == 200 for r in server.requests) for kind in ("answer", "judge")}
    before = {kind: server.count(kind) for kind in arrived}
    assert {grade.state for grade in workspace.grades()} == {"scored"}
    asked = {kind: server.count(kind) - before[kind] for kind in arrived}
    assert asked == {kind: COUNT - arrived[kind] for kind in arrived}


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_run_with_its_table(workspace: Workspace, name: str) -> None:
    process = workspace.start("--concurrency", str(CONCURRENCY))
    workspace.server.wait_for(12, timeout=60)
    process.send_signal(getattr(signal, name))
    before = workspace.server.count()
    outcome = workspace.finish(process)
    assert outcome.code == pytest.ExitCode.INTERRUPTED, outcome.text
    assert workspace.server.count() - before <= FEW
    states = check_lines(outcome)
    assert states["excluded", "interrupted"] == COUNT - states["scored", None]
    assert "one_million_bench | model local (vanilla) | judge local" in outcome.text
    assert f"excluded: interrupted ({states['excluded', 'interrupted']})" in outcome.text
    assert "Traceback" not in outcome.text
    check_rest(workspace)


@pytest.mark.parametrize(
    ("name", "send"),
    [("SIGINT", os.kill), ("SIGHUP", os.killpg)],
    ids=["SIGINT to the controller", "SIGHUP to all processes"],
)
def test_a_signal_ends_the_workers_too(workspace: Workspace, name: str, send: Callable[[int, int], None]) -> None:
    process = workspace.start("-n", "2", "--concurrency", str(CONCURRENCY))
    workspace.server.wait_for(12, timeout=60)
    send(process.pid, getattr(signal, name))
    before = workspace.server.count()
    outcome = workspace.finish(process)
    assert outcome.code == pytest.ExitCode.INTERRUPTED, outcome.text
    assert workspace.server.count() - before <= FEW
    check_lines(outcome)
    assert "excluded: interrupted (" in outcome.text
    check_rest(workspace)


def test_a_killed_run_loses_nothing_that_had_arrived(workspace: Workspace) -> None:
    process = workspace.start("--concurrency", str(CONCURRENCY))
    workspace.server.wait_for(14, timeout=60)
    workspace.server.pause()
    time.sleep(0.5)  # what was answered until now is stored
    process.kill()
    process.communicate(timeout=60)
    workspace.server.resume()
    check_rest(workspace)  # without waiting for claims of the dead, which would last for hours


def test_workers_of_a_killed_controller_launch_nothing_more(workspace: Workspace) -> None:
    process = workspace.start("-n", "2", "--concurrency", str(CONCURRENCY))
    workspace.server.wait_for(14, timeout=60)
    process.kill()
    before = workspace.server.count()
    process.communicate(timeout=60)  # returns when the last worker is gone
    assert workspace.server.count() - before <= FEW
    check_rest(workspace)
