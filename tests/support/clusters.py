"""Ray clusters of several nodes on this machine, started by Ray's own command, each node a set of processes."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.provider import Provider
from tests.support.workspaces import until

HOST = "127.0.0.1"
# For every process of a cluster. Tokens belong to clusters that others can reach.
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_enable_metrics_collection": "0"}
# A node that is gone is found dead after two seconds; Ray takes five times as long by itself.
QUICK = {
    "health_check_initial_delay_ms": 1000,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}


@dataclass(slots=True)
class RayCluster:
    """Nodes by name; ``head`` is the first. Each has its name in the variable ``NODE``.

    Attributes:
        folder: Where Ray keeps its sockets and logs. Its path must be short.
    """

    folder: Path
    port: int = field(init=False)
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        with socket.socket() as free:
            free.bind((HOST, 0))
            self.port = free.getsockname()[1]

    @property
    def address(self) -> str:
        """Where a node or a run joins it."""
        return f"{HOST}:{self.port}"

    @property
    def variables(self) -> dict[str, str]:
        """Of the environment of a run that joins it."""
        return {**SETTINGS, "RAY_ADDRESS": self.address}

    def add(self, name: str, cpus: int = 1, **variables: str) -> None:
        """Start a node and wait until it is there.

        Args:
            name: Its name; ``head`` must be the first.
            cpus: How many it claims to have; a node without one gets no worker.
            variables: Of its environment, beside this process's.
        """
        role = [f"--address={self.address}"]
        if name == "head":
            role = ["--head", f"--port={self.port}", "--include-dashboard=false", f"--temp-dir={self.folder}"]
            role.append(f"--system-config={json.dumps(QUICK)}")
        common = [f"--num-cpus={cpus}", f"--node-ip-address={HOST}", "--object-store-memory=80000000", "--block"]
        with (self.folder / f"{name}.log").open("wb") as log:
            self.nodes[name] = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", "start", *role, *common],
                env={**os.environ, **SETTINGS, "NODE": name, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait(name)

    def _wait(self, name: str) -> None:
        log = self.folder / f"{name}.log"
        end = time.monotonic() + 90
        while "Ray runtime started" not in (text := log.read_text(encoding="utf-8", errors="replace")):
            assert self.nodes[name].poll() is None, text
            assert time.monotonic() < end, text
            time.sleep(0.1)

    def kill(self, name: str) -> None:
        """Kill every process of a node at once, as a power failure does."""
        node = self.nodes.pop(name)
        family = _family(node.pid)
        for pid in family:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)  # none may see another die
        for pid in {*family, *_family(node.pid)}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        node.wait()

    def actors(self, kind: str = "Worker|Replies|Limiter|Paces") -> list[int]:
        """Process ids of the actors of runs."""
        family = [pid for node in self.nodes.values() for pid in _family(node.pid)]
        return [pid for pid in family if re.match(f"ray::({kind})", _command(pid))]

    def texts(self) -> Mapping[str, str]:
        """All that Ray has written to its logs, by file."""
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path): path.read_text(encoding="utf-8", errors="replace") for path in files}

    def stop(self) -> None:
        """Kill all nodes."""
        for name in list(self.nodes):
            self.kill(name)


@contextmanager
def ray_cluster(folder: Path, *nodes: str) -> Iterator[RayCluster]:
    """A cluster of a head and further nodes, one CPU each."""
    cluster = RayCluster(folder)
    try:
        for node in ("head", *nodes):
            cluster.add(node)
        yield cluster
    finally:
        cluster.stop()


def hold(server: Provider, calls: int, latency: float, node: str) -> None:
    """Hold all replies back, and return when so many calls are in flight, one of a node's among them.

    Replies before them are stored by then.
    """
    while True:
        server.pause()
        time.sleep(latency + 1)
        until(lambda: server.in_flight == calls)
        if calls_by_node(server, status=None)[node]:
            return
        server.resume()
        until(lambda: server.in_flight < calls)


def calls_by_node(server: Provider, *, kind: str | None = None, **status: int | None) -> Counter[str]:
    """How many requests came from each node, whose models send its name as ``X-Node``.

    Args:
        server: The provider.
        kind: Of which kind; all where not given.
        status: Only requests with this ``status``; None are those in flight.
    """
    wanted = [request for request in server.requests if kind in {None, request.kind}]
    return Counter(r.headers["X-Node"] for r in wanted if not status or r.status == status["status"])


def check_that_nothing_was_lost(server: Provider, dead: str, needed: int) -> int:
    """Check that each question was asked once, but for those that a dead node had in flight.

    Returns:
        How many were asked again.
    """
    asked = defaultdict(list)
    for request in server.requests:
        asked[json.dumps(request.body, sort_keys=True)].append(request)
    assert len(asked) == needed
    again = [requests for requests in asked.values() if len(requests) > 1]
    histories = Counter(tuple((r.headers["X-Node"], r.status) for r in requests) for requests in again)
    assert all(len(h) == 2 and h[0] == (dead, None) and h[1][1] == 200 for h in histories), histories
    return len(again)


def _family(pid: int) -> list[int]:
    """A process with all its descendants."""
    family = [pid]
    for member in family:
        with suppress(OSError):
            for task in Path(f"/proc/{member}/task").iterdir():
                family += map(int, (task / "children").read_text(encoding="utf-8").split())
    return family


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace")
    return ""
