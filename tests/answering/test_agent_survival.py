"""Agent runs that are killed, replayed, asked anew, or wanted by several at once."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.answering.answer import Answer, AnsweringError
from pytest_rubrics.calls.errors import CallError
from tests.support import faults
from tests.support.agents import answer, answers, bash, bench, is_running, needs_bubblewrap, task, until
from tests.support.provider import Fault, Provider, Script, tool_calls

pytestmark = needs_bubblewrap

_PROCESS = """
import sys
from pathlib import Path
from tests.support.agents import answer, bash, bench, task

with bench(Path(sys.argv[1]), sys.argv[2]) as own:
    print(answer(own.agent(bash())).text, flush=True)
"""
SLEEP = "sleep 61234"


def command(text: str) -> dict[str, Any]:
    return tool_calls(("bash", {"command": text}))


def step(number: int) -> dict[str, Any]:
    return command(f"echo {number} >> log; echo did {number}")


def start(folder: Path, url: str) -> subprocess.Popen[str]:
    """An agent in a process of its own."""
    root = Path(__file__).parents[2]
    return subprocess.Popen(
        [sys.executable, "-c", _PROCESS, str(folder), url], cwd=root, stdout=subprocess.PIPE, encoding="utf-8"
    )


def results(given: Answer) -> list[str]:
    return [call["result"] for entry in given.trajectory[:-1] for call in entry["calls"]]


def test_a_run_killed_in_step_7_of_10_goes_on_there(tmp_path: Path) -> None:
    seventh = command(f"echo 7 >> log; if [ -e once ]; then echo again; else touch once; {SLEEP}; fi")
    script: Script = [*map(step, range(1, 7)), seventh, step(8), step(9), command("cat log"), "The report."]
    with Provider(script=script) as server:
        process = start(tmp_path, server.url)
        until(lambda: bool(list(tmp_path.rglob("once"))))
        process.kill()
        process.communicate()
        assert server.count() == 7
        until(lambda: not is_running(SLEEP))  # the sandbox does not outlive its agent
        with bench(tmp_path, server.url) as again:
            given = answer(again.agent(bash()))
        assert given.text == "The report."
        assert len(given.replies) == 11
        assert server.count() == 11
        assert len({json.dumps(request.body) for request in server.requests}) == 11  # no step was paid twice
    assert results(given)[:6] == [f"did {n}" for n in range(1, 7)]
    assert results(given)[6] == (
        "[This call was interrupted and is made again: it may have run before, in whole or in part.]\nagain"
    )
    assert results(given)[9].split() == [
        "1",
        "2",
        "3",
        "4",
        "5",
        "6",
        "7",
        "7",
        "8",
        "9",
    ]  # no tool ran twice but the 7th
    assert not list((tmp_path / "cache" / "agents").iterdir())


def test_a_finished_run_is_replayed_without_a_call_or_a_tool(tmp_path: Path) -> None:
    with Provider(script=[step(1), step(2), "The report."]) as server:
        with bench(tmp_path, server.url) as first:
            given = answer(first.agent(bash()))
        with bench(tmp_path, server.url, mode="offline") as second:
            again = answer(second.agent(bash()))
            assert not any(second.gateway.is_own(reply) for reply in again.replies)
        assert server.count() == 3
    assert (again.text, again.keys, again.trajectory) == (given.text, given.keys, given.trajectory)


def test_a_replay_meets_the_time_limit_at_the_same_step(tmp_path: Path) -> None:
    script: Script = [command("sleep 0.4"), "The report."]
    with Provider(script=script) as server, bench(tmp_path, server.url) as own:
        given = answer(own.agent(bash(), time_limit=0.4))
        own.gateway.mode = "offline"
        again = answer(own.agent(bash(), time_limit=0.4))
    assert given.trajectory[-1]["ended_by"] == again.trajectory[-1]["ended_by"] == "time_limit"
    assert given.keys == again.keys


def test_a_lost_working_directory_is_told(tmp_path: Path) -> None:
    with Provider(script=[step(1), command("ls"), command("ls; echo x > y"), command("ls"), "The report."]) as server:
        server.faults.add(Fault(faults.error(400), start=2, times=1))
        with bench(tmp_path, server.url) as first, pytest.raises(AnsweringError):
            answer(first.agent(bash()))
        (folder,) = (tmp_path / "cache" / "agents").iterdir()
        shutil.rmtree(folder)
        with bench(tmp_path, server.url) as second:
            given = answer(second.agent(bash()))
    reset = "[The working directory was reset: files of earlier commands are gone.]"
    assert results(given) == ["did 1", f"{reset}\n[no output]", "[no output]", "y"]


def test_files_are_kept_for_a_run_that_goes_on(tmp_path: Path) -> None:
    with Provider(script=[step(1), command("cat log"), "The report."]) as server:
        server.faults.add(Fault(faults.error(400), start=2, times=1))
        with bench(tmp_path, server.url) as first, pytest.raises(AnsweringError):
            answer(first.agent(bash()))
        with bench(tmp_path, server.url) as second:
            given = answer(second.agent(bash()))
    assert results(given) == ["did 1", "1"]


def test_asked_anew_a_finished_run_is_made_again(tmp_path: Path) -> None:
    with Provider(script=[command("ls; touch made"), "The report."]) as server:
        with bench(tmp_path, server.url) as first:
            before = answer(first.agent(bash()))
        with bench(tmp_path, server.url) as second:
            after = answer(second.agent(bash()), anew=True)
            assert server.count() == 4
            assert answer(second.agent(bash()), anew=True).keys == after.keys  # this run's own replies stay
        with bench(tmp_path, server.url) as third:
            assert answer(third.agent(bash())).keys == after.keys  # the new round is the one that counts
        assert server.count() == 4
    assert not set(before.keys) & set(after.keys)
    assert results(after) == ["[no output]"]  # in a new working directory


def test_asked_anew_an_unfinished_run_goes_on(tmp_path: Path) -> None:
    with Provider(script=[step(1), step(2), "The report."]) as server:
        server.faults.add(Fault(faults.error(400), start=3, times=1))
        with bench(tmp_path, server.url) as first, pytest.raises(AnsweringError):
            answer(first.agent(bash()))
        with bench(tmp_path, server.url) as second:
            assert answer(second.agent(bash()), anew=True).text == "The report."
        assert server.count() == 4


def test_asked_anew_a_malformed_response_is_not_taken_again(tmp_path: Path) -> None:
    with Provider(script=[step(1), "The report."]) as server:
        server.faults.add(Fault(faults.no_choices(), start=2, times=1))
        for _ in range(2):
            with bench(tmp_path, server.url) as own, pytest.raises(CallError) as caught:
                answer(own.agent(bash()))
            assert caught.value.reason == "malformed_response"
        assert server.count() == 2
        with bench(tmp_path, server.url) as own:
            assert answer(own.agent(bash()), anew=True).text == "The report."
        assert server.count() == 4


def test_refresh_makes_a_new_run_in_a_new_directory(tmp_path: Path) -> None:
    with Provider(script=[command("ls; touch made"), command("ls"), "The report."]) as server:
        server.faults.add(Fault(faults.error(400), start=2, times=1))
        with bench(tmp_path, server.url) as first, pytest.raises(AnsweringError):
            answer(first.agent(bash()))
        with bench(tmp_path, server.url, mode="refresh") as second:
            given = answer(second.agent(bash()))
            assert answer(second.agent(bash())).keys == given.keys
    assert results(given) == ["[no output]", "made"]


def test_a_higher_step_limit_goes_on_from_the_steps_there_are(tmp_path: Path) -> None:
    with Provider(script=[step(1), step(2), step(3), "The report."]) as server, bench(tmp_path, server.url) as own:
        assert answer(own.agent(bash(), max_steps=2)).failure == "no_report"
        assert server.count() == 3
        given = answer(own.agent(bash(), max_steps=9))
        assert given.text == "The report."
        assert server.count() == 5
    assert results(given)[2].startswith("[The working directory was reset")


def test_another_sandbox_does_not_take_its_results_from_the_cache(tmp_path: Path) -> None:
    with Provider(script=[command("echo $HOME"), "The report."]) as server, bench(tmp_path, server.url) as own:
        assert results(answer(own.agent(bash()))) == ["/workspace"]
        (home,) = results(answer(own.agent(bash("none"))))
    assert home.startswith(str(tmp_path))


def test_repeats_are_runs_of_their_own(tmp_path: Path) -> None:
    with Provider(script=[command("ls; touch made"), "The report."]) as server, bench(tmp_path, server.url) as own:
        first = answer(own.agent(bash()), repeat=1)
        second = answer(own.agent(bash()), repeat=2)
        assert server.count() == 4
    assert results(first) == results(second) == ["[no output]"]


def test_two_that_want_the_same_run_get_one(tmp_path: Path) -> None:
    with Provider(script=[step(1), command("cat log"), "The report."]) as server, bench(tmp_path, server.url) as own:
        given = answers(own.agent(bash()), [task()] * 3)
        assert server.count() == 3
    assert [results(each) for each in given] == [["did 1", "1"]] * 3


def test_two_processes_that_want_the_same_run_make_one(tmp_path: Path) -> None:
    script: Script = [step(1), command("cat log; sleep 0.5"), "The report."]
    with Provider(script=script) as server:
        processes = [start(tmp_path, server.url) for _ in range(2)]
        said = [process.communicate(timeout=120)[0] for process in processes]
        assert said == ["The report.\n"] * 2
        assert server.count() == 3


def test_offline_runs_no_tool(tmp_path: Path) -> None:
    with Provider(script=[command("echo a"), "The report."]) as server:
        with bench(tmp_path, server.url) as own:
            answer(own.agent(bash()))
        with bench(tmp_path, server.url, mode="offline") as own, pytest.raises(CallError) as caught:
            answer(own.agent(bash("none")))
    assert caught.value.reason == "cache_miss"


def test_nothing_is_paid_where_the_sandbox_does_not_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Provider(script=["The report."]) as server, bench(tmp_path, server.url) as own:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(CallError, match=r"bwrap is not installed\. Install it .*apt install bubblewrap"):
            answer(own.agent(bash()))
        assert server.count() == 0
