"""A run on a Ray cluster of two nodes on this machine, one of which is killed in the middle: what was lost?

Run it as ``python -m perf.ray_cluster``. It needs the extras ``ray`` and ``test`` and about a minute, and uses the
tasks in the folder that ``RUBRICS_SHARED_DATA`` names (or ``../shared/data``), or made-up ones. Each node is a set of
processes of its own, started by ``ray start``, and all of one node's are killed at once. Model and judge are the local
server of the tests, which takes a while for every reply and remembers every request. It ends with exit code 1 if
anything was lost, or asked for again that had been answered.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tabulate import tabulate

from tests.support.clusters import RayCluster, calls_by_node, check_that_nothing_was_lost, hold, ray_cluster
from tests.support.provider import Provider
from tests.support.shared import data_folder
from tests.support.workspaces import Outcome, Workspace, keys, until

DEAD = "second"


def main() -> None:
    """Run, kill, and look at what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=100, help="number of tasks, a multiple of 10 (default: 100)")
    parser.add_argument("--concurrency", type=int, default=16, help="calls in flight (default: 16)")
    parser.add_argument("--latency", type=float, default=1.0, help="seconds for a reply (default: 1)")
    options = parser.parse_args()
    # The path of a socket may be no longer than 107 bytes.
    short = tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)
    with tempfile.TemporaryDirectory() as folder, short as sockets:
        server = Provider(latency=options.latency)
        with server, ray_cluster(Path(sockets), DEAD) as cluster:
            workspace = _workspace(Path(folder), server, options.tasks)
            _report(options, server, *_run_and_kill(workspace, cluster, server, options))


def _workspace(folder: Path, server: Provider, tasks: int) -> Workspace:
    published = data_folder() / "one_million_bench"
    workspace = Workspace(folder, server, keys(tasks))
    if published.is_dir():
        workspace.source = ["--source", str(published)]
    # Each node says who it is.
    workspace.model(headers={"X-Node": "${NODE:-controller}"})
    workspace.judge(headers={"X-Node": "${NODE:-controller}"})
    return workspace


def _run_and_kill(
    workspace: Workspace, cluster: RayCluster, server: Provider, options: argparse.Namespace
) -> tuple[Outcome, int, float]:
    """The run, calls that the dead node had in flight, and seconds from its death to the end of the run."""
    arguments = ["--engine", "ray", "--concurrency", str(options.concurrency)]
    if data_folder().is_dir():
        arguments += ["--limit", str(options.tasks // 10)]  # of each of the 10 subsets
    process = workspace.start(*arguments, **cluster.variables)
    until(lambda: server.count() >= options.tasks and len(calls_by_node(server, status=None)) == 2, seconds=600)
    hold(server, options.concurrency, options.latency, DEAD)  # so that it is known what is in flight
    in_flight = calls_by_node(server, status=None)[DEAD]
    cluster.kill(DEAD)
    killed = time.monotonic()
    server.resume()
    return workspace.finish(process), in_flight, time.monotonic() - killed


def _report(options: argparse.Namespace, server: Provider, outcome: Outcome, in_flight: int, seconds: float) -> None:
    again = check_that_nothing_was_lost(server, DEAD, needed=2 * options.tasks)
    lines = len(outcome.records), len({record["task_id"] for record in outcome.records})
    scored = sum(record["state"] == "scored" for record in outcome.records)
    rows = [
        ("items selected", options.tasks),
        ("lines in results.jsonl, and different tasks in them", "{}, {}".format(*lines)),
        ("scored", scored),
        ("calls needed", 2 * options.tasks),
        ("calls made", server.count()),
        (f"calls that the node {DEAD!r} had in flight when it was killed", in_flight),
        ("calls made again, each of them one of those", again),
        ("most calls in flight at once", server.max_in_flight),
        ("seconds from the kill to the end of the run", f"{seconds:.0f}"),
    ]
    print(f"A limit of {options.concurrency} calls, {options.latency:g} s each\n")
    print(tabulate(rows, ("", ""), tablefmt="github", disable_numparse=True))
    if not (lines == (options.tasks, options.tasks) and scored == options.tasks and again == in_flight > 0):
        raise SystemExit(f"something was lost:\n{outcome.text[-3000:]}")


if __name__ == "__main__":
    main()
