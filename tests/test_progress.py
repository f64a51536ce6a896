from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_rubrics.progress import ProgressLine, Snapshot
from tests.support.provider import Provider
from tests.support.workspaces import Workspace, keys

KEYS = keys(6)


def line(total: int, done: int) -> ProgressLine:
    return ProgressLine(total, live=True, rewrite=lambda _: None, write=lambda _: None, done=done)


def test_it_adds_up_what_all_processes_did() -> None:
    progress = line(40, 10)
    progress.update("gw0", Snapshot(answered=9, judged=6, in_flight=2, rate_limited=3, spent_usd=0.5))
    progress.update("gw1", Snapshot(answered=7, judged=4, in_flight=1, rate_limited=2, spent_usd=0.25))
    assert progress.text(60) == ("10/40 done, 3 min left, $0.75 spent, 3 in flight, 5 x 429, 16 answered, 10 judged")


def test_the_time_left_is_told_only_after_one_in_twenty() -> None:
    assert "left" not in line(40, 1).text(60)
    assert "38 s left" in line(40, 2).text(2)
    assert "left" not in line(40, 40).text(60)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Provider(latency=0.4) as server:
        yield Workspace(tmp_path, server, KEYS)


def in_a_terminal(workspace: Workspace, *arguments: str) -> str:
    """What pytest writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    source = "=".join(workspace.source)
    command = [sys.executable, "-m", "pytest", "--run-dir", "run", "--concurrency", "1", source, *arguments]
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'stty cols 80; exec "$@"', "sh", *command],
        cwd=workspace.root,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    written = b""
    try:
        while data := os.read(ours, 65536):
            written += data
    except OSError:  # the other end is closed
        pass
    finally:
        os.close(ours)
    process.wait(timeout=60)
    return written.decode("utf-8")


@pytest.mark.parametrize("arguments", [(), ("-s",), ("-n", "2")], ids=["plain", "-s", "xdist"])
def test_on_a_terminal_the_line_is_drawn_over(workspace: Workspace, arguments: tuple[str, ...]) -> None:
    text = in_a_terminal(workspace, *arguments)
    drawn = re.findall(r"\r([^\r\n]*\d/6 done[^\r\n]*)", text)
    assert drawn
    assert all("answered" in one for one in drawn)
    assert not re.search(r"done, [^\r]*\n", text)  # none stays


@pytest.mark.parametrize("arguments", [("-v",), ("-q",)])
def test_other_outputs_have_no_line_that_is_drawn_over(workspace: Workspace, arguments: tuple[str, ...]) -> None:
    assert "/6 done" not in in_a_terminal(workspace, *arguments)


def test_a_log_has_none_either(workspace: Workspace) -> None:
    assert "/6 done" not in workspace.pytest().text


@pytest.mark.parametrize("arguments", [(), ("-q",), ("-v",), ("-n", "1"), ("-n", "1", "-q")], ids=" ".join)
def test_a_line_in_a_log_stands_alone(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    pytester.makeconftest(
        """
        import pytest
        from pytest_rubrics.session import write_lines

        class Hooks:
            def __init__(self, config):
                self.config = config

            @pytest.hookimpl(trylast=True)
            def pytest_runtest_logreport(self, report):
                if report.when == "call" and not hasattr(self.config, "workerinput"):
                    write_lines(self.config, ["rubrics: 1/2 done"])

        def pytest_configure(config):
            config.pluginmanager.register(Hooks(config))
        """
    )
    pytester.makepyfile("def test_a(): pass\ndef test_b(): pass")
    lines = pytester.runpytest_subprocess("-p", "no:randomly", *arguments).outlines
    assert lines.count("rubrics: 1/2 done") == 2
