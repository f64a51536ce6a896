"""Real processes that use one store of replies, for tests of what they do to each other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

from pytest_rubrics.calls.cache import ReplyStore

_BEGINNING = """
import asyncio, os, signal, sqlite3, sys, time
from pathlib import Path
from pytest_rubrics.calls.cache import ReplyStore, StoreError, StoreFullError

directory = Path(sys.argv[1])

def say(*words):
    print(*words, flush=True)

def opened():
    return ReplyStore(directory, warn=lambda sentence: say("warned", sentence))

"""


def start(directory: Path, body: str, *arguments: str) -> subprocess.Popen[str]:
    """Run Python code in a process of its own; it finds `opened`, `say` and ``directory``."""
    code = _BEGINNING + dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", code, str(directory), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )


def line(process: subprocess.Popen[str]) -> str:
    """The next line that a process says."""
    assert process.stdout is not None
    text = process.stdout.readline()
    assert text, f"the process ended with {process.wait()}"
    return text.rstrip("\n")


def finish(process: subprocess.Popen[str]) -> list[str]:
    """Wait for the end of a process; the lines that it said."""
    output = _rest(process)
    assert process.returncode == 0
    return output.splitlines()


def kill(process: subprocess.Popen[str]) -> list[str]:
    """Kill a process as ``kill -9`` does; the lines that it had said, without a torn last one."""
    process.kill()
    output = _rest(process)
    return output.splitlines() if output.endswith("\n") else output.splitlines()[:-1]


def _rest(process: subprocess.Popen[str]) -> str:
    """What a process still says until its end; `communicate` would leave out what `line` has already buffered."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    output = process.stdout.read()
    process.stdout.close()
    process.wait(timeout=120)
    return output


def opened(directory: Path, warn: Callable[[str], None] | None = None) -> ReplyStore:
    """A store that must not warn, unless a function is given."""
    return ReplyStore(directory, warn=warn or _unexpected)


def _unexpected(sentence: str) -> None:
    raise AssertionError(f"unexpected warning: {sentence}")
