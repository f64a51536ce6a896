from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import execnet
import pytest

from pytest_rubrics.workers import HERE, Part, Workers, callers_of, goes_on, host_of, is_elsewhere

CONTROLLER = """
import sys
from pytest_rubrics.workers import Workers

workers = Workers({})
print(workers.sign, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers({"ssh=one": 1, "ssh=two": 3})
    yield workers
    workers.stop()


def test_seats_are_given_in_turn_on_each_host(workers: Workers) -> None:
    two = [workers.sit(name, "ssh=two") for name in ("gw0", "gw1", "gw3")]
    assert [(seat.number, seat.count) for seat in two] == [(0, 3), (1, 3), (2, 3)]
    one = workers.sit("gw2", "ssh=one")
    assert (one.number, one.count) == (0, 1)


def test_a_worker_that_replaces_another_takes_its_seat(workers: Workers) -> None:
    for name in ("gw0", "gw1", "gw2"):
        workers.sit(name, "ssh=two")
    workers.leave("gw1")
    assert workers.sit("gw3", "ssh=one").number == 0
    assert workers.sit("gw4", "ssh=two").number == 1
    assert workers.sit("gw5", "ssh=two").number == 3


def test_a_worker_that_never_sat_may_leave(workers: Workers) -> None:
    workers.leave("gw9")
    assert workers.sit("gw0", "ssh=one").number == 0


@pytest.mark.parametrize("amount", [0, 1, 4, 5, 400])
def test_hosts_have_parts_by_their_workers_and_all_is_in_one(workers: Workers, amount: int) -> None:
    parts = workers.parts
    assert [number for part in parts.values() for number in part.of(amount)] == list(range(amount))
    assert len(parts["ssh=two"].of(400)) == 3 * len(parts["ssh=one"].of(400)) == 300
    assert sum(part.share for part in parts.values()) == 1


def test_the_only_host_has_everything() -> None:
    workers = Workers(callers_of([HERE, HERE]))
    workers.stop()
    assert workers.parts == {HERE: Part(0, 2, 2)}
    assert workers.parts[HERE].share == 1
    assert workers.parts[HERE].of(7) == range(7)


def test_on_this_machine_no_more_workers_call_than_it_has_cores() -> None:
    most = os.cpu_count() or 1
    assert callers_of([HERE] * (most + 5) + ["ssh=h1"] * 100) == {HERE: most, "ssh=h1": 100}
    workers = Workers(callers_of([HERE] * (most + 1)))
    workers.stop()
    assert [workers.sit(f"gw{n}", HERE).calls for n in range(most + 1)] == [True] * most + [False]


def test_workers_of_equal_specs_are_on_one_host() -> None:
    specs = ["popen", "ssh=h1//chdir=/a", "ssh=h2//chdir=/a", "execmodel=main_thread_only//ssh=h1//chdir=/a"]
    hosts = [host_of(execnet.XSpec(spec)) for spec in specs]
    assert hosts == [HERE, "ssh=h1//chdir=/a", "ssh=h2//chdir=/a", "ssh=h1//chdir=/a"]


@pytest.mark.parametrize(
    ("spec", "elsewhere"),
    [("popen", False), ("popen//chdir=/a", False), ("ssh=h1", True), ("socket=h1:8888", True), ("popen//via=h1", True)],
)
def test_only_workers_that_this_process_starts_see_its_files(spec: str, elsewhere: bool) -> None:
    assert is_elsewhere(execnet.XSpec(spec)) is elsewhere


def test_a_run_goes_on_until_it_is_stopped(workers: Workers) -> None:
    assert goes_on(workers.sign)
    assert goes_on(workers.sign)
    workers.stop()
    assert not goes_on(workers.sign)
    assert not workers.sign.exists()
    workers.stop()


def test_a_run_ends_with_its_controller_however_it_dies() -> None:
    command = [sys.executable, "-c", CONTROLLER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        sign = Path(process.stdout.readline().strip())
        assert goes_on(sign)
        process.kill()
        process.wait()
    assert not goes_on(sign)
    assert not sign.exists()
