"""Workers on two other hosts, each with its own cache. Needs root, network namespaces and an SSH server."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hosts import CONTROLLER, Host, two_hosts, why_not
from tests.support.provider import Provider
from tests.support.workspaces import Workspace, keys

COUNT = 24
CONCURRENCY = 6
# pytest-rerunfailures connects to the controller at 127.0.0.1, and so cannot be used on other hosts.
DISTRIBUTED = ("--dist", "load", "-p", "no:rerunfailures", "--concurrency", str(CONCURRENCY))

_reason = why_not()
pytestmark = [
    pytest.mark.skipif(_reason is not None, reason=f"two hosts cannot be shown: {_reason}"),
    pytest.mark.xdist_group("hosts"),
]


@pytest.fixture
def server() -> Iterator[Provider]:
    with Provider(host="0.0.0.0", latency=0.1, answer_bytes=200) as server:
        yield server


@pytest.fixture
def workspace(tmp_path: Path, server: Provider) -> Workspace:
    """The controller's workspace, whose model and judge want the key of a host."""
    workspace = Workspace(tmp_path / "controller", server, keys(COUNT))
    workspace.source = ["--source", "data"]  # relative, so that each host reads its own copy
    settings = {"api_base": server.url.replace("0.0.0.0", CONTROLLER), "api_key": "${HOST_KEY}"}
    workspace.model(**settings)
    workspace.judge(**settings)
    return workspace


@pytest.fixture
def hosts(tmp_path: Path, workspace: Workspace) -> Iterator[tuple[Host, Host]]:
    with two_hosts(tmp_path, workspace.root) as hosts:
        yield hosts


def keys_used(server: Provider) -> Counter[str]:
    """How many calls were made with the key of each host."""
    return Counter(request.headers["Authorization"].removeprefix("Bearer ") for request in server.requests)


def essence(record: dict[str, Any]) -> dict[str, Any]:
    """What of a line must not depend on where it was made."""
    return {name: value for name, value in record.items() if name not in {"seconds", "finished_at"}}


def test_two_hosts_give_what_one_process_gives_and_pay_each_reply_once(
    workspace: Workspace, server: Provider, hosts: tuple[Host, Host]
) -> None:
    one, two = hosts
    both = workspace.pytest(*one.tx(2), *two.tx(1), *DISTRIBUTED, RUBRICS_REPEATS="2", run="both")
    assert len(both.records) == 2 * COUNT, both.text
    assert (server.count("answer"), server.count("judge")) == (2 * COUNT, 2 * COUNT)
    assert keys_used(server) == {"key-of-h1": 4 * COUNT * 2 // 3, "key-of-h2": 4 * COUNT // 3}
    assert server.max_in_flight <= CONCURRENCY
    assert all((host.folder / ".cache" / "replies" / "cache.db").exists() for host in hosts)
    alone = workspace.pytest(RUBRICS_REPEATS="2", HOST_KEY="key-of-controller", run="alone")
    assert server.count() == 8 * COUNT, "the controller has a cache of its own"
    lines = [sorted(map(essence, run.records), key=lambda line: (line["key"], line["repeat"])) for run in (both, alone)]
    assert lines[0] == lines[1]
    assert {name: both.summary[name] for name in ("tasks", "scored", "coverage", "mean", "pass_rate")} == {
        name: alone.summary[name] for name in ("tasks", "scored", "coverage", "mean", "pass_rate")
    }
    replay = workspace.pytest(*one.tx(2), *two.tx(1), *DISTRIBUTED, RUBRICS_REPEATS="2", run="replay")
    assert {record["spent_usd"] for record in replay.records} == {0.0}, replay.text
    assert server.count() == 8 * COUNT


def test_workers_on_hosts_launch_nothing_more_when_the_controller_is_killed(
    workspace: Workspace, server: Provider, hosts: tuple[Host, Host]
) -> None:
    one, two = hosts
    process = workspace.start(*one.tx(), *two.tx(), *DISTRIBUTED, RUBRICS_REPEATS="20")
    server.wait_for(10, timeout=90)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    time.sleep(4)  # in which the connection is found closed, and calls in flight arrive
    settled = server.count()
    time.sleep(2)  # in which a worker that goes on would make a hundred calls
    assert server.count() == settled < 2 * 20 * COUNT


def test_a_dead_hosts_part_is_done_by_another(workspace: Workspace, server: Provider, hosts: tuple[Host, Host]) -> None:
    one, two = hosts
    process = workspace.start(*one.tx(), *two.tx(), *DISTRIBUTED)
    server.wait_for(10, timeout=90)
    two.die()
    outcome = workspace.finish(process)
    assert "cannot be reached: what was left for it goes on at ssh=h1" in outcome.text
    states = Counter((record["state"], record["reason"]) for record in outcome.records)
    assert len(outcome.by_key) == len(outcome.records) == COUNT
    # The task that was running there may have been graded already.
    assert states["scored", None] + states["excluded", "worker_crashed"] == COUNT, outcome.text
    assert states["scored", None] >= COUNT - 1


def test_a_host_with_another_judge_is_refused_before_anything_is_called(
    workspace: Workspace, server: Provider, hosts: tuple[Host, Host]
) -> None:
    one, two = hosts
    file = two.folder / "judges" / "local.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("judge-local", "judge-older"), encoding="utf-8")
    outcome = workspace.pytest(*one.tx(), *two.tx(), *DISTRIBUTED)
    assert outcome.code == pytest.ExitCode.USAGE_ERROR, outcome.text
    assert 'judge local, model: found "openai/judge-older", expected "openai/judge-local"' in outcome.text
    assert "on ssh=h2//" in outcome.text
    assert server.count() == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--dist", "worksteal"), "with several hosts only --dist load works"),
        (("--concurrency", "1"), "--concurrency 1 cannot be split over 2 hosts: each needs one at least."),
    ],
)
def test_what_hosts_cannot_keep_is_refused(
    workspace: Workspace, server: Provider, hosts: tuple[Host, Host], options: tuple[str, ...], sentence: str
) -> None:
    one, two = hosts
    outcome = workspace.pytest(*one.tx(), *two.tx(), *DISTRIBUTED, *options)
    assert outcome.code == pytest.ExitCode.USAGE_ERROR, outcome.text
    assert sentence in outcome.text
    assert server.count() == 0
