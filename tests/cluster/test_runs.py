"""Runs on a real Ray cluster of two nodes on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import faults
from tests.support.clusters import RayCluster, calls_by_node, check_that_nothing_was_lost, hold, ray_cluster
from tests.support.faults import Fault
from tests.support.provider import Provider
from tests.support.stores import opened
from tests.support.workspaces import Outcome, Workspace, keys, until

pytest.importorskip("ray", reason="needs Ray: pip install 'pytest-rubrics[ray]'")

COUNT = 30
CONCURRENCY = 6
LATENCY = 0.3
# Each node says who it is. This client is imported sooner than the other.
SETTINGS: dict[str, Any] = {
    "headers": {"X-Node": "${NODE:-controller}"},
    "params": {"max_tokens": 200},
    "client": "openai",
}
OTHER_VERSION = "import pytest_rubrics\npytest_rubrics.__version__ = '0.0.0'\n"
KEY = "sk-of-the-second-node-1234567"


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    # The path of a socket may be no longer than 107 bytes.
    short = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)
    with short as folder, ray_cluster(Path(folder)) as cluster:
        yield cluster


@pytest.fixture
def two_nodes(cluster: RayCluster) -> RayCluster:
    if "second" not in cluster.nodes:
        cluster.add("second", SECOND_KEY=KEY)
    return cluster


@pytest.fixture
def server() -> Iterator[Provider]:
    with Provider(latency=LATENCY, answer_bytes=200) as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path, server: Provider) -> Workspace:
    workspace = Workspace(tmp_path, server, keys(COUNT))
    workspace.model(**SETTINGS)
    workspace.judge(**SETTINGS)
    return workspace


ON_RAY = ("--engine", "ray", "--concurrency", str(CONCURRENCY))


def wait_for_both(process: subprocess.Popen[str], server: Provider) -> None:
    """Wait until both nodes of a run call."""
    until(lambda: len(calls_by_node(server)) == 2 or process.poll() is not None)
    assert process.poll() is None, process.communicate()


def check_money(workspace: Workspace, outcome: Outcome) -> None:
    """Check that nothing is set aside any more, and that what was in flight on the dead node counts as spent."""
    run = json.loads((outcome.folder / "manifest.json").read_text(encoding="utf-8"))["run"]
    store = opened(workspace.cache)
    spent, account = (store.get(f"{row}:{run}") for row in ("spent", "budget"))
    store.close()
    paid = sum(record["spent_usd"] for record in outcome.records)
    assert isinstance(spent, int)
    assert spent == account > round(paid * 1e9) > 0


def test_a_node_that_is_killed_loses_nothing(two_nodes: RayCluster, workspace: Workspace, server: Provider) -> None:
    process = workspace.start(*ON_RAY, "--max-cost", "1", **two_nodes.variables)
    wait_for_both(process, server)
    hold(server, CONCURRENCY, LATENCY, "second")
    in_flight = calls_by_node(server, status=None)["second"]
    two_nodes.kill("second")
    server.resume()
    outcome = workspace.finish(process)
    assert {record["state"] for record in outcome.records} == {"scored"}, outcome.text
    assert len(outcome.records) == len(outcome.by_key) == COUNT
    assert check_that_nothing_was_lost(server, "second", needed=2 * COUNT) == in_flight > 0
    assert server.max_in_flight <= CONCURRENCY
    check_money(workspace, outcome)
    assert "died; what it was grading is graded elsewhere" in outcome.text
    assert "raylet" not in outcome.text
    before = server.count()
    assert workspace.pytest(run="replay").by_key.keys() == outcome.by_key.keys()
    assert server.count() == before


def test_nodes_that_cannot_grade_are_left_out_and_no_key_is_logged(
    two_nodes: RayCluster, workspace: Workspace, server: Provider, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(OTHER_VERSION, encoding="utf-8")
    two_nodes.add("third", PYTHONPATH=str(tmp_path))
    workspace.model(**SETTINGS, api_key="${SECOND_KEY}")
    server.faults.add(Fault(faults.error(429, retry_after=1), kind="judge", times=2))  # all nodes wait
    outcome = workspace.pytest(*ON_RAY, SECOND_KEY=KEY, **two_nodes.variables)
    two_nodes.kill("third")
    assert {record["state"] for record in outcome.records} == {"scored"}, outcome.text
    assert calls_by_node(server, kind="answer") == {"second": COUNT}
    assert calls_by_node(server).keys() <= {"head", "second"}
    assert server.count() == 2 * COUNT + 2
    assert "gets no more grades" in outcome.text
    assert "SECOND_KEY is not set" in outcome.text
    assert "it has pytest-rubrics 0.0.0" in outcome.text
    assert not [name for name, text in two_nodes.texts().items() if KEY in text]


def test_replies_that_do_not_reach_the_store_are_kept_by_their_workers(
    two_nodes: RayCluster, workspace: Workspace, server: Provider
) -> None:
    process = workspace.start(*ON_RAY, **two_nodes.variables)
    wait_for_both(process, server)
    hold(server, CONCURRENCY, LATENCY, "second")
    (store,) = two_nodes.actors("Replies")
    os.kill(store, signal.SIGKILL)
    until(lambda: not two_nodes.actors("Replies"))
    server.resume()
    outcome = workspace.finish(process)
    assert len(outcome.records) == COUNT
    assert "The store of replies on the controller's node cannot be reached" in outcome.text
    arrived = sum(request.status == 200 for request in server.requests)
    assert arrived == server.count() < 2 * COUNT
    assert {grade.state for grade in workspace.grades()} == {"scored"}
    assert server.count() == 2 * COUNT


def test_a_signal_ends_a_run_with_its_table_and_its_workers(
    two_nodes: RayCluster, workspace: Workspace, server: Provider
) -> None:
    process = workspace.start(*ON_RAY, **two_nodes.variables)
    wait_for_both(process, server)
    process.send_signal(signal.SIGTERM)  # for which Ray has a handler of its own
    before = server.count()
    outcome = workspace.finish(process)
    assert outcome.code == pytest.ExitCode.INTERRUPTED, outcome.text
    assert server.count() - before <= 2 * CONCURRENCY
    assert len(outcome.records) == COUNT
    assert "excluded: interrupted (" in outcome.text
    assert "Traceback" not in outcome.text
    until(lambda: not two_nodes.actors())
    arrived = sum(request.status == 200 for request in server.requests)
    before = server.count()
    assert {grade.state for grade in workspace.grades()} == {"scored"}
    assert server.count() - before == 2 * COUNT - arrived


def test_workers_of_a_killed_controller_end(two_nodes: RayCluster, workspace: Workspace, server: Provider) -> None:
    process = workspace.start(*ON_RAY, **two_nodes.variables)
    wait_for_both(process, server)
    process.kill()
    process.communicate(timeout=60)
    until(lambda: not two_nodes.actors())
    before = server.count()
    time.sleep(1)
    assert server.count() == before < 2 * COUNT
    assert {grade.state for grade in workspace.grades()} == {"scored"}  # without waiting for claims of the dead
