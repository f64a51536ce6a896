from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pytest_rubrics.answering.processes import Command
from tests.support.agents import is_running, until


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def command(text: str, tmp_path: Path, *, seconds: float = 20, stop: Sequence[str] | None = None) -> Command:
    return Command(["/bin/bash", "-c", text], {"PATH": "/usr/bin:/bin"}, tmp_path, seconds, 10_000, stop)


def test_output_errors_and_exit_code(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    finished = asyncio.run(command("pwd; echo e >&2; echo a; exit 3", tmp_path).run(pool))
    assert (finished.output, finished.code) == (f"{tmp_path}\ne\na\n", 3)
    assert finished.seconds > 0


def test_it_ends_with_its_shell_though_a_child_keeps_the_output_open(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    finished = asyncio.run(command("sleep 71700 & echo started", tmp_path).run(pool))
    assert (finished.output, finished.code) == ("started\n", 0)
    until(lambda: not is_running("sleep 71700"))


def test_it_ends_with_its_shell_though_a_child_left_the_group(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    finished = asyncio.run(command("setsid sleep 3 & echo started", tmp_path).run(pool))
    assert (finished.output, finished.code) == ("started\n", 0)


def test_one_that_closes_its_output_runs_on(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    finished = asyncio.run(command("exec >&- 2>&-; sleep 0.3; touch made", tmp_path).run(pool))
    assert (finished.output, finished.code) == ("", 0)
    assert (tmp_path / "made").exists()


def test_one_that_closes_its_output_is_killed_at_its_timeout(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    assert asyncio.run(command("exec >&- 2>&-; sleep 71701", tmp_path, seconds=0.3).run(pool)).code is None
    until(lambda: not is_running("sleep 71701"))


def test_a_cancelled_caller_kills_it(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    async def run() -> None:
        task = asyncio.create_task(command("touch begun; sleep 71702", tmp_path).run(pool))
        await asyncio.to_thread(until, (tmp_path / "begun").exists)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    until(lambda: not is_running("sleep 71702"))


def test_the_loop_goes_on_meanwhile(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    async def run() -> int:
        task = asyncio.create_task(command("sleep 0.5", tmp_path).run(pool))
        turns = 0
        while not task.done():
            await asyncio.sleep(0.01)
            turns += 1
        return turns

    assert asyncio.run(run()) > 5


def test_a_flood_does_not_stay_in_memory(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    finished = asyncio.run(command("head -c 200000000 /dev/zero | tr '\\0' x", tmp_path).run(pool))
    assert finished.code == 0
    assert len(finished.output) < 10_100
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # KB


def test_what_stops_it_elsewhere_is_run_at_the_timeout_only(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    stop = ["/usr/bin/touch", str(tmp_path / "stopped")]
    asyncio.run(command("true", tmp_path, stop=stop).run(pool))
    assert not (tmp_path / "stopped").exists()
    asyncio.run(command("sleep 71703", tmp_path, seconds=0.3, stop=stop).run(pool))
    assert (tmp_path / "stopped").exists()


def test_a_program_that_is_missing_is_an_error(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(Command(["/no/such/program"], {}, tmp_path, 5, 100).run(pool))
