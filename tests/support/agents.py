"""Agents against the test provider, with real tools and a real sandbox."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_rubrics.answering.agent import AgentAnswerer, AgentSettings
from pytest_rubrics.answering.answer import Answer
from pytest_rubrics.answering.sandbox import Kind, Limits, Sandbox
from pytest_rubrics.answering.tools.bash import BashTool
from pytest_rubrics.answering.tools.tool import ToolSource
from pytest_rubrics.calls.cache import ReplyStore
from pytest_rubrics.calls.endpoint import Endpoint, Wire
from pytest_rubrics.calls.gateway import CacheMode, Gateway
from pytest_rubrics.calls.limits import LocalSlots, Turn
from pytest_rubrics.calls.transport import close_clients
from pytest_rubrics.tasks import Criterion, Language, Task
from tests.support.stores import opened

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


def task(prompt: str = "How tall is the tower?", *, language: Language = "en", system: str | None = None) -> Task:
    """A task with this prompt."""
    return Task("b", "id-1", "1", "s", language, prompt, (Criterion("1", "Names the height.", 1),), system)


def bash(kind: Kind = "bubblewrap", *, network: bool = False, **limits: Any) -> BashTool:
    """The tool bash in a sandbox."""
    return BashTool(Sandbox(kind, network, Limits(**limits)))


class Bench:
    """A store and a gateway in a folder, as one run of the program has them.

    Args:
        folder: Where the cache lies.
        url: Base URL of the provider.
        mode: Cache mode.
        slots: Calls in flight.
    """

    def __init__(self, folder: Path, url: str, *, mode: CacheMode = "rw", slots: int = 4) -> None:
        self.folder = folder
        self.store: ReplyStore = opened(folder / "cache")
        self.gateway = Gateway(self.store, run=os.urandom(4).hex(), started_at=time.time(), mode=mode)
        self.slots = LocalSlots(slots, lambda: None)
        self.endpoint = Endpoint(
            name="agent",
            model="openai/agent",
            address=url,
            connect=lambda: Wire(url, "key"),
            timeout=30,
            retry_for=0,
            slots=[self.slots],
        )

    def agent(self, *tools: ToolSource, params: Mapping[str, Any] | None = None, **settings: Any) -> AgentAnswerer:
        """An agent with these tools."""
        folder = self.folder / "cache" / "agents"
        return AgentAnswerer(self.gateway, self.endpoint, params or {}, {}, AgentSettings(**settings), tools, folder)


@contextmanager
def bench(folder: Path, url: str, *, mode: CacheMode = "rw", slots: int = 4) -> Iterator[Bench]:
    """A bench that is closed at the end."""
    made = Bench(folder, url, mode=mode, slots=slots)
    try:
        yield made
    finally:
        made.store.close()


def answers(agent: AgentAnswerer, tasks: Sequence[Task], *, repeat: int = 1, anew: bool = False) -> list[Answer]:
    """The agent's answers to several tasks at once."""

    async def run() -> list[Answer]:
        waiting = [agent.answer(each, repeat, Turn(rank), anew=anew) for rank, each in enumerate(tasks)]
        try:
            return await asyncio.gather(*waiting)
        finally:
            await close_clients()

    return asyncio.run(run())


def answer(agent: AgentAnswerer, one: Task | None = None, *, repeat: int = 1, anew: bool = False) -> Answer:
    """The agent's answer to one task."""
    return answers(agent, [one or task()], repeat=repeat, anew=anew)[0]


def is_running(command_line: str) -> bool:
    """Whether a process with these arguments runs on this machine, in whatever namespace."""
    wanted = command_line.encode().replace(b" ", b"\0")
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if wanted in path.read_bytes():
                return True
        except OSError:
            continue
    return False


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait for a condition; fail when it does not come about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came about"
        time.sleep(0.02)
