"""Runs on a real Ray cluster of two nodes on this machine."""

from __future__ import annotations

import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clusters import RayCluster, calls_by_node, check_that_nothing_was_lost, hold, ray_cluster
from tests.support.provider import Provider
from tests.support.workspaces import Workspace, keys, until

pytest.importorskip("ray", reason="needs Ray: pip install 'pytest-rubrics[ray]'")

COUNT = 30
CONCURRENCY = 6
LATENCY = 0.3
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
    # Each node says who it is.
    workspace.model(headers={"X-Node": "${NODE:-controller}"})
    workspace.judge(headers={"X-Node": "${NODE:-controller}"})
    return workspace


ON_RAY = ("--engine", "ray", "--concurrency", str(CONCURRENCY))


def wait_for_both(process: subprocess.Popen[str], server: Provider) -> None:
    """Wait until both nodes of a run call."""
    until(lambda: len(calls_by_node(server)) == 2 or process.poll() is not None)
    assert process.poll() is None, process.communicate()


def test_a_node_that_is_killed_loses_nothing(two_nodes: RayCluster, workspace: Workspace, server: Provider) -> None:
    process = workspace.start(*ON_RAY, **two_nodes.variables)
    wait_for_both(process, server)
    hold(server, CONCURRENCY, LATENCY)
    in_flight = calls_by_node(server, status=None)["second"]
    two_nodes.kill("second")
    server.resume()
    outcome = workspace.finish(process)
    assert {record["state"] for record in outcome.records} == {"scored"}, outcome.text
    assert len(outcome.records) == len(outcome.by_key) == COUNT
    assert check_that_nothing_was_lost(server, "second", needed=2 * COUNT) == in_flight > 0
    assert server.max_in_flight <= CONCURRENCY
    assert "died; what it was grading is graded elsewhere" in outcome.text
    assert "raylet" not in outcome.text
    before = server.count()
    assert workspace.pytest(run="replay").by_key.keys() == outcome.by_key.keys()
    assert server.count() == before


def test_a_node_without_a_key_gets_no_grades_and_no_key_is_logged(
    two_nodes: RayCluster, workspace: Workspace, server: Provider
) -> None:
    workspace.model(api_key="${SECOND_KEY}", headers={"X-Node": "${NODE:-controller}"})
    outcome = workspace.pytest(*ON_RAY, SECOND_KEY=KEY, **two_nodes.variables)
    assert {record["state"] for record in outcome.records} == {"scored"}, outcome.text
    assert calls_by_node(server, kind="answer") == {"second": COUNT}
    assert server.count() == 2 * COUNT
    assert "gets no more grades" in outcome.text
    assert "SECOND_KEY is not set" in outcome.text
    assert not [name for name, text in two_nodes.texts().items() if KEY in text]


def test_a_cost_limit_holds_over_all_nodes(two_nodes: RayCluster, workspace: Workspace, server: Provider) -> None:
    workspace.model(params={"max_tokens": 200}, headers={"X-Node": "${NODE:-controller}"})
    workspace.judge(params={"max_tokens": 200}, headers={"X-Node": "${NODE:-controller}"})
    whole = 0.03
    outcome = workspace.pytest(*ON_RAY, "--max-cost", str(whole / 3), **two_nodes.variables)
    states = Counter((record["state"], record["reason"]) for record in outcome.records)
    assert states["scored", None] > 0, outcome.text
    assert states["scored", None] + states["excluded", "budget"] == COUNT
    assert sum(record["spent_usd"] for record in outcome.records) <= whole / 3


def test_ctrl_c_ends_a_run_with_its_table_and_its_workers(
    two_nodes: RayCluster, workspace: Workspace, server: Provider
) -> None:
    process = workspace.start(*ON_RAY, **two_nodes.variables)
    wait_for_both(process, server)
    process.send_signal(signal.SIGINT)
    before = server.count()
    outcome = workspace.finish(process)
    assert outcome.code == pytest.ExitCode.INTERRUPTED, outcome.text
    assert server.count() - before <= 2 * CONCURRENCY
    assert len(outcome.records) == COUNT
    assert "excluded: interrupted (" in outcome.text
    assert "Traceback" not in outcome.text
    until(lambda: not two_nodes.workers())
    arrived = sum(request.status == 200 for request in server.requests)
    before = server.count()
    assert {grade.state for grade in workspace.grades()} == {"scored"}
    assert server.count() - before == 2 * COUNT - arrived


def test_workers_of_a_killed_controller_end(two_nodes: RayCluster, workspace: Workspace, server: Provider) -> None:
    process = workspace.start(*ON_RAY, **two_nodes.variables)
    wait_for_both(process, server)
    process.kill()
    process.communicate(timeout=60)
    until(lambda: not two_nodes.workers())
    before = server.count()
    time.sleep(1)
    assert server.count() == before < 2 * COUNT
    assert {grade.state for grade in workspace.grades()} == {"scored"}  # without waiting for claims of the dead
