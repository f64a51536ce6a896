from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_rubrics.workers import Workers, goes_on

CONTROLLER = """
import sys
from pytest_rubrics.workers import Workers

workers = Workers()
print(workers.sign, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers()
    yield workers
    workers.stop()


def test_seats_are_given_in_turn(workers: Workers) -> None:
    assert [workers.sit(name) for name in ("gw0", "gw1", "gw2")] == [0, 1, 2]


def test_a_worker_that_replaces_another_takes_its_seat(workers: Workers) -> None:
    for name in ("gw0", "gw1", "gw2"):
        workers.sit(name)
    workers.leave("gw1")
    assert workers.sit("gw3") == 1
    assert workers.sit("gw4") == 3


def test_a_worker_that_never_sat_may_leave(workers: Workers) -> None:
    workers.leave("gw9")
    assert workers.sit("gw0") == 0


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
