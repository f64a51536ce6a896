"""Runs that are interrupted or killed: what has arrived is kept, nothing more is asked, every item has its line."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import faults
from tests.support.faults import Fault
from tests.support.provider import Provider
from tests.support.workspaces import Outcome, Workspace, keys, question, until

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


HURRIED = "\nimport pytest_rubrics.engine\n\npytest_rubrics.engine.GRACE = 0.0\n"


def test_a_worker_that_has_run_its_tests_waits_for_its_calls_for_tests_of_others(tmp_path: Path) -> None:
    with Provider(answer_bytes=100, latency=0.6, latency_spread=0.7) as server:
        workspace = Workspace(tmp_path, server, keys(7))
        workspace.add_to_conftest(HURRIED)
        outcome = workspace.pytest("-n", "2", "--concurrency", "2")
        assert {record["state"] for record in outcome.records} == {"scored"}
        assert (server.count("answer"), server.count("judge")) == (7, 7)


@pytest.mark.parametrize("signals", [0, 1], ids=["left alone", "interrupted while it waits"])
def test_a_run_that_stops_at_a_failure_waits_for_what_it_has_asked(tmp_path: Path, signals: int) -> None:
    with Provider(answer_bytes=100) as server:
        workspace = Workspace(tmp_path, server, keys(4))
        workspace.add_to_conftest(HURRIED)
        workspace.module("def test_task(grade):\n    assert False\n")
        for key in keys(4)[1:]:
            server.faults.add(Fault(faults.slow(3), kind="answer", match=question(key)))
        process = workspace.start("-x", "--concurrency", "3")
        results = tmp_path / "run" / "results.jsonl"
        until(lambda: results.exists() and results.read_text(encoding="utf-8") != "")
        time.sleep(0.5)
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
        outcome = workspace.finish(process)
        assert outcome.code == pytest.ExitCode.TESTS_FAILED, outcome.text
        assert "in flight and waited for; Ctrl-C gives up what does not arrive at once" in outcome.text
        assert [record["reason"] for record in outcome.records] == [None, *["interrupted"] * 3]
        before = server.count("answer")
        workspace.module("def test_task(grade):\n    pass\n")
        workspace.pytest(run="again")
        assert server.count("answer") == (4 if not signals else 4 + before - 1)
